"""Attention of one layer and head over the tokens: row = query, column = key."""

from __future__ import annotations

from typing import Any

import numpy as np
import traitlets as t

from llmviz.trace.shown import attention as shown_attention
from llmviz.widgets.follow import DebuggerView, answers
from llmviz.widgets.picture import picture

__all__ = ["AttentionView"]

SHOWN = 24  # tokens on each axis that are still legible


class AttentionView(DebuggerView):
    """Who looks at whom?

    Traits
    ------
    layer, head : int
        Which one; settable. Setting the layer ends `follow`.
    follow : bool
        Whether the layer follows the run; settable.
    query : int
        Position whose row is drawn as links, -1 for the newest; settable.
    layers : list of int
        Layers whose attention is held.
    n_layer, n_head : int
    axis : list of {pos, id, text}
        The tokens on both axes, a window of the text.
    attention : bytes
        uint8[n, n] of the weights' square roots, see `picture.picture`; the byte of NaN where
        nothing was computed.
    row : bytes
        float32[n], the engine's weights of the query that is shown; NaN where nothing was computed.
    attention_about : dict
        first (position of the window), total (tokens with a row), query and index (the one shown),
        dropped (blocks that did not fit the recorder).
    """

    view_name = "attention"

    layer = t.Int(0).tag(sync=True)
    head = t.Int(0).tag(sync=True)
    follow = t.Bool(True, help="Show the layer that is being computed.").tag(sync=True)
    query = t.Int(-1).tag(sync=True)
    layers = t.List(t.Int()).tag(sync=True)
    n_layer = t.Int(0).tag(sync=True)
    n_head = t.Int(0).tag(sync=True)
    axis: t.List = t.List().tag(sync=True)
    attention = t.Bytes(b"").tag(sync=True)
    row = t.Bytes(b"").tag(sync=True)
    attention_about = t.Dict().tag(sync=True)

    _following = False
    _matrix: np.ndarray | None = None
    _attention_of: Any = None
    _total = 0

    def draw(self) -> None:
        """Show the chosen head, where the recorder holds it."""
        super().draw()
        recorder = self.dbg.recorder
        self.layers = recorder.layers()
        now = _layer_of(self.dbg)
        if self.follow and now >= 0 and not self.dbg.running and now != self.layer:
            self._following = True
            self.layer = now
            self._following = False
        hparams = getattr(self.dbg.model, "hparams", None)
        self.n_layer = int(getattr(hparams, "n_layer", 0) or (max(self.layers, default=-1) + 1))
        held = recorder.attention.get(self.layer)
        state = (held[-1].n if held else -1, len(self.dbg.tokens), self.layer, self.head)
        if state != self._attention_of:
            self._attention_of = state
            self._draw_matrix()
        self._draw_row()

    def _draw_matrix(self) -> None:
        recorder = self.dbg.recorder
        self.n_head = recorder.n_head(self.layer)
        if self.n_head and self.head >= self.n_head:
            self.head = self.n_head - 1
        shown = shown_attention(recorder, self.layer, self.head, SHOWN)
        self._total, self._matrix = shown.total, shown.matrix
        self.axis = [{"pos": k.pos, "id": k.id, "text": k.text[:40]} for k in shown.tokens]
        if self._matrix is None:
            self.attention = b""
            return
        # By the square root: among 200 tokens even a strong link is a small part of 1.
        self.attention, _ = picture(np.sqrt(self._matrix), 0.0, 1.0)

    def _draw_row(self) -> None:
        recorder = self.dbg.recorder
        about: dict[str, Any] = {"total": self._total, "dropped": recorder.dropped}
        if self._matrix is None:
            self.row, self.attention_about = b"", about
            return
        positions = [a["pos"] for a in self.axis]
        query = self.query if self.query in positions else positions[-1]
        i = positions.index(query)
        self.row = self._matrix[i].astype("<f4").tobytes()
        about.update(first=positions[0], query=query, index=i, node=f"kq_soft_max-{self.layer}")
        self.attention_about = about

    @t.observe("layer", "head", "follow")
    def _choose(self, change: Any) -> None:
        self.dbg.recorder.keep_layer(self.layer)
        if self._following:
            return
        if change.name == "layer":
            self.follow = False
        self.refresh()

    @t.observe("query")
    def _ask_row(self, change: Any) -> None:
        with self.hold_sync():
            self._draw_row()
            self.rev += 1

    @answers("weight")
    def _weight(self, message: dict[str, Any]) -> dict[str, Any]:
        """One weight in full precision, for the cell under the pointer."""
        i, j = int(message["row"]), int(message["column"])
        m = self._matrix
        if m is None or not (0 <= i < len(m) and 0 <= j < len(m)) or np.isnan(m[i, j]):
            return {"row": i, "column": j, "value": None}
        q, k = self.axis[i]["pos"], self.axis[j]["pos"]
        ref = f"kq_soft_max-{self.layer}[{self.head},pos {q},pos {k}]"
        return {"row": i, "column": j, "value": str(m[i, j]), "ref": ref}


def _layer_of(dbg: Any) -> int:
    """The layer that is being computed at this moment, -1 outside of all layers."""
    for scope in reversed(dbg.scope_stack):
        if scope.name.startswith("layer-"):
            return int(scope.name.removeprefix("layer-"))
    return -1
