"""The debugger's panel: transport, map, the current value, tokens, logits, cache and attention."""

from __future__ import annotations

import traitlets as t

from llmviz.widgets.attention import AttentionView
from llmviz.widgets.kv_cache import KVCacheView
from llmviz.widgets.logits import LogitsView
from llmviz.widgets.map import MapView
from llmviz.widgets.tensor import TensorView
from llmviz.widgets.transport import TransportView, heading

__all__ = ["DebuggerPanel"]


class DebuggerPanel(TransportView, MapView, TensorView, LogitsView, KVCacheView, AttentionView):
    """All views of one debugger in one place; see each of them for its traits.

    Examples
    --------
    >>> dbg = llmviz.Debugger("smollm2-135m", "The capital of France is")   # doctest: +SKIP
    >>> panel = DebuggerPanel(dbg)                                          # doctest: +SKIP
    >>> panel.layer = 12                                                    # doctest: +SKIP
    """

    view_name = "panel"

    spoken = t.Unicode("", help="The current event in one line, for screen readers.").tag(sync=True)

    def draw(self) -> None:
        """Draw every zone."""
        super().draw()
        if not self.dbg.running:
            self.spoken = heading(self.dbg)
