"""llmviz: a visual debugger for LLM inference that lives in Jupyter.

>>> import llmviz as lv                                              # doctest: +SKIP
>>> model = lv.load("smollm2-135m")                                  # doctest: +SKIP
>>> ctx = model.context(n_ctx=512)                                   # doctest: +SKIP
>>> print("".join(lv.generate(ctx, "The capital of France is")))     # doctest: +SKIP

Reading order of the source: `llmviz.generate`, then what it calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmviz.batch import Batch
from llmviz.context import Context, ContextParams, DecodeStatus
from llmviz.errors import (
    BatchError,
    DecodeError,
    DeviceMemoryError,
    GGUFError,
    HubError,
    LlmvizError,
    LoadCancelled,
    SamplerError,
    UnsupportedError,
    VocabError,
)
from llmviz.events import Event, drain
from llmviz.generate import generate, generate_steps
from llmviz.ggml.backends.backend import devices
from llmviz.ggml.backends.simulated import SimulatedDevice
from llmviz.gguf import open_gguf
from llmviz.model.model import Model
from llmviz.sampling import Chain

if TYPE_CHECKING:
    import os

    from llmviz import builtin, lessons, sampling, show
    from llmviz.trace import Debugger, open_trace
    from llmviz.trace.compare_runs import compare
    from llmviz.trace.llamacpp import record_llamacpp

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "BatchError",
    "Chain",
    "Context",
    "ContextParams",
    "Debugger",
    "DecodeError",
    "DecodeStatus",
    "DeviceMemoryError",
    "Event",
    "GGUFError",
    "HubError",
    "LlmvizError",
    "LoadCancelled",
    "Model",
    "SamplerError",
    "SimulatedDevice",
    "UnsupportedError",
    "VocabError",
    "builtin",
    "compare",
    "devices",
    "drain",
    "generate",
    "generate_steps",
    "lessons",
    "load",
    "open_gguf",
    "open_trace",
    "record_llamacpp",
    "sampling",
    "show",
]


def load(path: str | os.PathLike[str], **params: Any) -> Model:
    """Load a model: a path, a known name, or ``"hf:owner/repo/file.gguf"``.

    ``"builtin"`` is a small model that comes with llmviz (``"builtin:q8_0"`` its quantized sibling,
    see `llmviz.builtin`); other known names, such as ``"smollm2-135m"``, are fetched at first use.
    Parameters are those of `llmviz.model.loader.load`.
    """
    from llmviz.hub import resolve
    from llmviz.model.loader import load as load_file

    return load_file(resolve(path), **params)


def __getattr__(name: str) -> Any:
    # widgets and the debugger are imported when they are first asked for: the engine needs neither
    if name in ("Debugger", "open_trace"):
        import llmviz.show
        from llmviz import trace

        return getattr(trace, name)
    if name == "compare":
        import llmviz.show
        from llmviz.trace.compare_runs import compare

        return compare
    if name == "record_llamacpp":
        import llmviz.show  # noqa: F401  as above
        from llmviz.trace.llamacpp import record_llamacpp

        return record_llamacpp
    # plots is not in __all__: it needs matplotlib
    if name in ("builtin", "lessons", "plots", "sampling", "show"):
        import importlib

        return importlib.import_module(f"llmviz.{name}")
    raise AttributeError(f"module 'llmviz' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
