"""Attention of one layer and head over the tokens: row = query, column = key."""

from __future__ import annotations

from typing import Any

import numpy as np
import traitlets as t

from llmviz.trace.shown import attention as shown_attention
from llmviz.widgets.edits import EditsView
from llmviz.widgets.follow import answers
from llmviz.widgets.picture import picture

__all__ = ["AttentionView"]

SHOWN = 24  # tokens on each axis that are still legible


class AttentionView(EditsView):
    """Who looks at whom?

    Traits
    ------
    layer, head : int
        Which one; settable. Setting the layer ends `follow`.
    follow : bool
        Whether the layer follows the run; settable.
    query : int
        Position whose row is drawn as links, -1 for the newest; settable.
    key : int
        Position that the overview asks for, -1 for the strongest one but the first; settable.
    overview : bytes
        float32[n_layer, n_head]: how much each head's `query` looks at `key`; NaN where that is not
        held.
    overview_about : dict
        query, key (positions; key -1: none chosen), best ([layer, head, weight] of the largest).
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
    key = t.Int(-1).tag(sync=True)
    overview = t.Bytes(b"").tag(sync=True)
    overview_about = t.Dict().tag(sync=True)
    layers = t.List(t.Int()).tag(sync=True)
    n_layer = t.Int(0).tag(sync=True)
    n_head = t.Int(0).tag(sync=True)
    axis: t.List = t.List().tag(sync=True)
    attention = t.Bytes(b"").tag(sync=True)
    row = t.Bytes(b"").tag(sync=True)
    attention_about = t.Dict().tag(sync=True)

    _following = False
    _flow_setting = False
    _matrix: np.ndarray | None = None
    _attention_of: Any = None
    _total = 0

    def draw(self) -> None:
        """Show the chosen head, where the recorder holds it."""
        super().draw()
        if not self.shows("attention"):
            return
        recorder = self.dbg.recorder
        self.layers = recorder.layers()
        now = _layer_of(self.dbg)
        if self.follow and now >= 0 and not self.dbg.running and now != self.layer:
            self._following = self._flow_setting = True  # the flow view shares the layer
            self.layer = now
            self._following = self._flow_setting = False
        hparams = getattr(self.dbg.model, "hparams", None)
        self.n_layer = int(getattr(hparams, "n_layer", 0) or (max(self.layers, default=-1) + 1))
        held = recorder.attention.get(self.layer)
        state = (held[-1].n if held else -1, len(self.dbg.tokens), self.layer, self.head)
        if state != self._attention_of:
            self._attention_of = state
            self._draw_matrix()
        self._draw_row()
        self._draw_overview()

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

    def _draw_overview(self) -> None:
        """How much each head of each layer looks at the chosen key, from the chosen query."""
        query = self.attention_about.get("query")
        if query is None:
            self.overview, self.overview_about = b"", {}
            return
        blocks = self.dbg.recorder.attention
        n_head = max((self.dbg.recorder.n_head(il) for il in blocks), default=0)
        out = np.full((self.n_layer, n_head), np.nan, np.float32)
        for il, held in blocks.items():
            block = next((b for b in reversed(held) if query in b.q_pos), None)
            if block is None or il >= self.n_layer:
                continue
            row = block.p[:, int(np.flatnonzero(block.q_pos == query)[0])]  # [n_head, n_k]
            if self.key >= 0:
                seen = block.k_pos == self.key if self.key <= query else block.k_pos < -1
            else:  # the first token is where heads look that have nothing to say
                seen = (block.k_pos > 0) & (block.k_pos <= query)
            if seen.any():
                out[il, : len(row)] = row[:, seen].max(axis=1)
        self.overview = out.tobytes()
        best: list[Any] = []
        if np.isfinite(out).any():
            most = np.unravel_index(int(np.nanargmax(out)), out.shape)
            best = [int(most[0]), int(most[1]), float(out[most])]
        self.overview_about = {"query": query, "key": self.key, "best": best, "n_head": n_head}

    @t.observe("layer", "head", "follow")
    def _choose(self, change: Any) -> None:
        self.dbg.recorder.keep_layer(self.layer)
        if self._following or self._flow_setting:
            return
        if change.name == "layer":
            self.follow = False
        self.refresh()

    @t.observe("query", "key")
    def _ask_row(self, change: Any) -> None:
        if not self.shows("attention"):
            return
        with self.hold_sync():
            self._draw_row()
            self._draw_overview()
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
