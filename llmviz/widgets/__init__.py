"""The views of a notebook: one Python file and one ES module each, and the panel that docks them.

Needs the ``lab`` extra (anywidget). Everything shown comes from a `Debugger` or its recorder;
nothing here computes a model's number.
"""

from __future__ import annotations

from llmviz.widgets.attention import AttentionView
from llmviz.widgets.batch import BatchView
from llmviz.widgets.compare import CompareView
from llmviz.widgets.flow import FlowView
from llmviz.widgets.gguf import GGUFView
from llmviz.widgets.graph import GraphView
from llmviz.widgets.heads import HeadsView
from llmviz.widgets.kv_cache import KVCacheView
from llmviz.widgets.load import LoadView
from llmviz.widgets.logits import LogitsView
from llmviz.widgets.map import MapView
from llmviz.widgets.output import OutputView
from llmviz.widgets.panel import DebuggerPanel
from llmviz.widgets.sampler import SamplerView
from llmviz.widgets.sentinels import SentinelsView
from llmviz.widgets.tensor import TensorView
from llmviz.widgets.time import TimeView
from llmviz.widgets.timeline import TimelineView
from llmviz.widgets.tokenizer import TokenizerView
from llmviz.widgets.tokens import TokensView

__all__ = [
    "AttentionView",
    "BatchView",
    "CompareView",
    "DebuggerPanel",
    "FlowView",
    "GGUFView",
    "GraphView",
    "HeadsView",
    "KVCacheView",
    "LoadView",
    "LogitsView",
    "MapView",
    "OutputView",
    "SamplerView",
    "SentinelsView",
    "TensorView",
    "TimeView",
    "TimelineView",
    "TokenizerView",
    "TokensView",
]
