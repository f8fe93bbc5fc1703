"""The views that a page of a recorded run has, standing on one trace; nothing is ever displayed."""

from __future__ import annotations

from typing import Any

import numpy as np

from llmviz.widgets.flow import FlowView
from llmviz.widgets.kv_cache import KVCacheView
from llmviz.widgets.logits import LogitsView
from llmviz.widgets.map import MapView
from llmviz.widgets.output import OutputView
from llmviz.widgets.sampler import SamplerView
from llmviz.widgets.tensor import TensorView
from llmviz.widgets.timeline import TimelineView
from llmviz.widgets.tokens import TokensView
from llmviz.widgets.transport import TransportView

__all__ = ["OWN", "Walker"]

# What the page itself decides, or computes from arrays.
OWN = frozenset(
    (
        *(
            "layer",
            "head",
            "follow",
            "query",
            "key",
            "stage",
            "measure",
            "selected",
            "selected_node",
            "opened_node",
            "flow",
        ),
        *("flow_rows", "flow_at", "flow_open", "flow_folded", "flow_scores", "flow_weights"),
        *("flow_mask", "flow_row", "picture", "window", "slice", "origin", "shown_step", "theme"),
        *("projector", "rev", "running", "error", "what_if", "n_rows", "editable", "chain"),
        *("edits", "can_restart"),
    )
)


class _Tokens(TokensView):
    """The text, made anew when there is another token."""

    _text_of: Any = None

    def draw(self) -> None:
        """Leave out what cannot have changed."""
        now = len(self.dbg.tokens), self.selected
        if now == self._text_of:
            super(TokensView, self).draw()
        else:
            self._text_of = now
            super().draw()


class _Next(FlowView):
    """Of the flow the next token alone: the page has the rest of every layer."""

    def draw(self) -> None:
        """Leave out the strips."""
        super(FlowView, self).draw()
        self._flow_draw_next()


class Walker(
    TransportView,
    TimelineView,
    MapView,
    TensorView,
    LogitsView,
    OutputView,
    KVCacheView,
    SamplerView,
    _Tokens,
    _Next,
):
    """The views that a page has, standing on one trace; nothing of it is ever displayed."""

    view_name = "recorded"

    _known: Any = None

    def open(self) -> None:
        """There is no page at the other end."""

    def shows(self, view: str) -> bool:
        """The list of what came out changes with its tokens only."""
        return view != "output" or self._known != self._what_came_out()

    def refresh(self) -> None:
        """Draw, without sending anything."""
        super().refresh()
        self._known = self._what_came_out()

    def _what_came_out(self) -> tuple[int, str]:
        return len(self.dbg.tokens), self.dbg.recorder.rest

    def _draw_window(self, array: np.ndarray) -> None:
        """The page draws windows from the arrays themselves."""
