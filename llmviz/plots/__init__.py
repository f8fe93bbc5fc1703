"""The views as matplotlib figures, for a slide, a paper, or a machine without a notebook.

Each function takes a `Debugger` and returns a `matplotlib.figure.Figure` with the numbers that the
notebook's view of the same name shows.

>>> import llmviz.plots as plots                                           # doctest: +SKIP
>>> plots.attention(dbg, layer=3, head=1, size="column").savefig("fig.pdf")  # doctest: +SKIP
"""

from __future__ import annotations

from llmviz.errors import LlmvizError

try:
    import matplotlib  # noqa: F401
except ImportError as error:
    raise LlmvizError(
        f"figures need matplotlib ({error}): install it with  pip install 'llmviz-debugger[lab]'"
    ) from error

from llmviz.plots._view import NothingToDraw
from llmviz.plots.attention import attention
from llmviz.plots.batch import batch
from llmviz.plots.compare import compare
from llmviz.plots.flow import flow
from llmviz.plots.gguf import gguf
from llmviz.plots.graph import graph
from llmviz.plots.heads import heads
from llmviz.plots.kv_cache import kv_cache
from llmviz.plots.load import load
from llmviz.plots.logits import logits
from llmviz.plots.map import map
from llmviz.plots.output import output
from llmviz.plots.sampler import sampler
from llmviz.plots.tensor import tensor
from llmviz.plots.time import time
from llmviz.plots.tokenizer import tokenizer
from llmviz.plots.tokens import tokens

__all__ = [
    "NothingToDraw",
    "attention",
    "batch",
    "compare",
    "flow",
    "gguf",
    "graph",
    "heads",
    "kv_cache",
    "load",
    "logits",
    "map",
    "output",
    "sampler",
    "tensor",
    "time",
    "tokenizer",
    "tokens",
]
