"""The whole pass on one page: what happens to my words?"""

from __future__ import annotations

from typing import Any

import numpy as np
import traitlets as t

from llmviz.errors import LlmvizError
from llmviz.trace.flow import ABSENT, Flow, bins_of, edges_of
from llmviz.trace.flow_graph import Column, layer_of
from llmviz.trace.flow_numbers import newest_positions
from llmviz.widgets.follow import DebuggerView, answers
from llmviz.widgets.picture import picture

__all__ = ["FlowView"]

TOP = 8  # candidates for the next token
# Rows where tokens will be, before there are any.
_PLACES = [{"pos": -1, "id": -1, "text": "", "state": "place"}] * 4


class FlowView(DebuggerView):
    """What happens to my words?

    Tokens are rows that run from left to right through the whole pass; one layer is open, the
    others are folded to the stream that leaves them.

    Traits
    ------
    layer, head : int
        The open layer and the head that is shown of it; settable. Setting the layer ends `follow`.
    follow : bool
        Whether the open layer follows the run; settable.
    query : int
        Position of the token whose attention is drawn, -1 for the newest; settable.
    selected_node : str
        Name of the node that was clicked; settable.
    opened_node : str
        Name of the node that a click on "tensor" asked to see.
    flow : dict
        columns ({id, label, about, group, kind, op, n, bins, heads, head, layer, shape}), edges
        (pairs of column indices), layer, head, n_layer, n_head, n_head_kv, source ("graph", or
        "file" where only its header is known; empty where nothing is).
    flow_rows : list of {pos, id, text, state}
        A window of the tokens; state is "now", "cached" or "next", or "place" where there are none
        yet and rows only show where they will be.
    flow_at : dict
        phase, now and reached (column indices), query and index (the row that is drawn), scales
        (where the colours of each column end), n_tokens, n_new, pass_, planned (no pass has begun:
        the columns are those that will be), missing (the open
        layer was folded when it was computed), again (seconds that computing it once more takes),
        broken (names with a breakpoint).
    flow_open, flow_folded : bytes
        uint8 of the vector columns of the open layer, and of all others, in their order: for each
        row one byte of state (see `trace.flow`) and `bins` bytes, see `picture.picture`.
    flow_scores, flow_weights, flow_mask : bytes
        uint8 [rows, rows]: scores, square roots of the softmax, and whether the mask shuts a cell.
    flow_row : bytes
        float32 [rows]: the softmax row of `query`; NaN where nothing was computed.
    flow_top : list of {id, text, p_raw, p, cut, chosen, rank}
        The likeliest next tokens, and the chosen one.
    flow_chain : list of {name, done}
        The samplers.
    """

    view_name = "flow"

    layer = t.Int(0).tag(sync=True)
    head = t.Int(0).tag(sync=True)
    follow = t.Bool(True, help="Open the layer that is being computed.").tag(sync=True)
    query = t.Int(-1).tag(sync=True)
    selected_node = t.Unicode("").tag(sync=True)
    opened_node = t.Unicode("").tag(sync=True)
    flow = t.Dict().tag(sync=True)
    flow_rows: t.List = t.List().tag(sync=True)
    flow_at = t.Dict().tag(sync=True)
    flow_open = t.Bytes(b"").tag(sync=True)
    flow_folded = t.Bytes(b"").tag(sync=True)
    flow_scores = t.Bytes(b"").tag(sync=True)
    flow_weights = t.Bytes(b"").tag(sync=True)
    flow_mask = t.Bytes(b"").tag(sync=True)
    flow_row = t.Bytes(b"").tag(sync=True)
    flow_top: t.List = t.List().tag(sync=True)
    flow_chain: t.List = t.List().tag(sync=True)

    _flow_setting = False  # true while a view itself sets the layer
    _flow_asked = False  # true while a page's click opens a node

    def __init__(self, dbg: Any, **kwargs: Any) -> None:
        self._flow = Flow(dbg)
        self._flow_columns_of: Any = None
        super().__init__(dbg, **kwargs)

    # -- drawing -------------------------------------------------------------------------------

    def draw(self) -> None:
        """Show how far the pass has come, and every number that it has left so far."""
        super().draw()
        state = self._flow
        if self.follow and not self.dbg.running:
            self._flow_follow()
        n_layer = state.n_layer
        if n_layer and not 0 <= self.layer < n_layer:
            self._flow_set("layer", max(0, min(self.layer, n_layer - 1)))
        state.layer, state.head = self.layer, self.head
        state.update()
        if state.n_head and not 0 <= self.head < state.n_head:
            self._flow_set("head", max(0, min(self.head, state.n_head - 1)))
            state.head = self.head
        self.flow_rows = [
            {"pos": r.pos, "id": r.id, "text": r.text, "state": r.state} for r in state.rows
        ]
        if not state.rows and state.columns:
            self.flow_rows = _PLACES
        self._flow_draw_columns()
        self._flow_draw_numbers()
        self._flow_draw_next()

    def _flow_follow(self) -> None:
        il = _open_scope(self.dbg)
        if il >= 0 and il != self.layer:
            self._flow_set("layer", il)

    def _flow_set(self, name: str, value: int) -> None:
        self._flow_setting = True
        try:
            setattr(self, name, value)
        finally:
            self._flow_setting = False

    def _flow_draw_columns(self) -> None:
        state = self._flow
        most = bins_for(len(state.rows))
        self.flow = {
            "columns": [
                {
                    "id": c.id,
                    "label": c.label,
                    "about": c.about,
                    "group": c.group,
                    "kind": c.kind,
                    "op": c.op,
                    "n": c.n,
                    "bins": 0 if c.kind == "matrix" else bins_of(c.n, most),
                    "heads": c.heads,
                    "head": state.head_of(c),
                    "layer": c.layer,
                    "shape": list(c.shape),
                }
                for c in state.columns
            ],
            "edges": [list(e) for e in state.edges],
            "layer": self.layer,
            "head": self.head,
            "n_layer": state.n_layer,
            "n_head": state.n_head,
            "n_head_kv": state.n_head_kv,
            "source": state.source,
        }

    def _flow_draw_numbers(self) -> None:
        state, n = self._flow, len(self._flow.rows)
        most = bins_for(n)
        parts: dict[bool, list[bytes]] = {True: [], False: []}
        scales: list[float] = []
        matrices: dict[str, np.ndarray] = {}
        for c in state.columns:
            if c.kind == "matrix":
                matrices[c.op] = state.matrix(c)
                scales.append(_scale_of(matrices[c.op]))
                continue
            strip = state.strip(c, most)
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = np.where(strip.high[:, None] > 0, strip.bins / strip.high[:, None], 0)
            shown = np.frombuffer(picture(ratio, -1, 1)[0], np.uint8).reshape(ratio.shape)
            lines = np.concatenate([strip.state[:, None], shown], 1)
            parts[c.group in ("attention", "mlp")].append(lines.tobytes())
            scales.append(float(strip.high.max(initial=0)))
        self.flow_open, self.flow_folded = b"".join(parts[True]), b"".join(parts[False])
        scores, weights = matrices.get("MUL_MAT"), matrices.get("SOFT_MAX")
        top = _scale_of(scores) if scores is not None else 0.0
        self.flow_scores = picture(scores, -top, top)[0] if scores is not None else b""
        self.flow_weights = picture(np.sqrt(weights), 0, 1)[0] if weights is not None else b""
        shut = np.isneginf(state.mask()) if weights is not None else np.zeros((0, 0))
        self.flow_mask = shut.astype(np.uint8).tobytes()
        index = self._flow_query()
        self.flow_row = weights[index].astype("<f4").tobytes() if weights is not None and n else b""
        now, reached, missing = state.now(), state.reached(), bool(state.missing())
        self.flow_at = {
            "phase": state.phase(),
            "now": now,
            "reached": reached,
            "done": [int(state.done(c)) for c in state.columns],
            "index": index,
            "query": state.rows[index].pos if n else -1,
            "scales": scales,
            "n_tokens": state.n_tokens,
            "n_new": sum(r.state == "now" for r in state.rows),
            "pass_": state.pass_,
            "planned": self.dbg.recorder.passes == 0,
            "missing": missing,
            "again": round(state.fetch_seconds(), 1) if missing else 0,
            "broken": [b.where for b in self.dbg.breakpoints if isinstance(b.where, str)],
            "why": self._flow_why(),
        }

    def _flow_why(self) -> str:
        """Why there is nothing to draw of a trace, empty where there is."""
        kept = getattr(self.dbg, "kept_names", None)  # of a trace
        if kept is None or not {"inp_pos", "attn_inp_kq_mask"}.isdisjoint(kept):
            return ""
        return "Nothing was kept of the nodes of this run: dbg.keep_all() before it keeps them."

    def _flow_query(self) -> int:
        rows = self._flow.rows
        live = [i for i, r in enumerate(rows) if r.state != "next"]
        chosen = next((i for i in live if rows[i].pos == self.query), None)
        return chosen if chosen is not None else (live[-1] if live else 0)

    def _flow_draw_next(self) -> None:
        recorder, tokens = self.dbg.recorder, self.dbg.tokens
        last = tokens[-1] if tokens else None
        fresh = recorder.logits_n >= 0 and self._flow_after_logits()
        newest = last if last is not None and fresh and last.n > recorder.logits_n else None
        shown: list[dict[str, Any]] = [
            {"id": a.id, "text": a.text[:60], "p_raw": a.p_raw, "p": a.p, "cut": a.cut}
            for a in (recorder.top[:TOP] if fresh else ())
        ]
        if newest is not None and all(a["id"] != newest.id for a in shown):
            # an unlikely one was drawn: it takes the last place
            extra: dict[str, Any] = {"id": newest.id, "text": newest.text[:60], "cut": False}
            shown[-1:] = [{**extra, "p_raw": newest.p_raw, "p": newest.p}]
        for a in shown:
            a["chosen"] = newest is not None and a["id"] == newest.id
            a["rank"] = newest.rank if a["chosen"] and newest is not None else None
        self.flow_top = shown
        ran = self._flow_samplers() if fresh else []
        self.flow_chain = [{"name": name} for name in ran]

    def _flow_after_logits(self) -> bool:
        """Whether the newest logits belong to the pass that the run stands in."""
        kept = newest_positions(self.dbg.recorder)
        return kept is not None and self.dbg.recorder.logits_n > kept.n

    def _flow_samplers(self) -> list[str]:
        """Samplers that have looked at the newest logits, first to last."""
        names: list[str] = []
        for record in reversed(self.dbg.events):
            if record.n <= self.dbg.recorder.logits_n:
                break
            if record.step == 15 and record.kind == "data" and record.name != "selected":
                names.append(record.name)
        return names[::-1]

    # -- what the page asks --------------------------------------------------------------------

    @t.observe("layer", "head", "query", "follow")
    def _flow_chosen(self, change: Any) -> None:
        if self._flow_setting:
            return
        if change.name == "layer" and self.follow:
            self.follow = False
            return  # that refreshes
        self.refresh()

    def _flow_column(self, name: Any) -> Column:
        for c in self._flow.columns:
            if c.id == name:
                return c
        raise LlmvizError(f"{name!r} is not shown: open its layer first")

    @answers("flow_value")
    def _flow_value(self, message: dict[str, Any]) -> dict[str, Any]:
        """The exact number under the pointer, and what stands around it.

        ``{column, row, bin}``: the strongest value of one bin; or of a matrix ``bin`` is the key's
        row.
        """
        state, c = self._flow, self._flow_column(message["column"])
        i, k = int(message["row"]), int(message["bin"])
        out: dict[str, Any] = {"column": c.id, "row": i, "bin": k, "value": None}
        if not 0 <= i < len(state.rows) or k < 0:
            return out
        found = state.array(c, state.rows[i].pos)
        if found is None:
            return out
        values, ref, pass_ = found
        if c.kind == "matrix":
            cells = state.cells()
            if k >= len(cells) or not 0 <= cells[k] < len(values):
                return out
            at = int(cells[k])
            mask = state.mask()[i, k]
            out["mask"] = None if np.isnan(mask) else str(mask)
        else:
            count = bins_of(c.n, bins_for(len(state.rows)))
            edges = edges_of(c.n, count)
            if k >= count:
                return out
            a, b = edges[k], edges[k + 1]
            at = a + int(np.argmax(np.nan_to_num(np.abs(values[a:b]), nan=np.inf)))
            out["from"], out["to"] = a, b - 1
        out["pass"] = pass_
        out.update(value=str(values[at]), ref=ref.format(at), dtype=str(values.dtype))
        return out

    @answers("flow_fetch")
    def _flow_fetch(self, message: dict[str, Any]) -> None:
        """Compute the open layer's part of this pass again, where it was not kept."""
        self._flow.fetch()
        self.refresh()

    @answers("flow_break")
    def _flow_break(self, message: dict[str, Any]) -> bool:
        """Set a breakpoint on a node, or take it away; True where there is one now."""
        name = self._flow_column(message["column"]).id
        mine = [b for b in self.dbg.breakpoints if b.where == name]
        if mine:
            for b in mine:
                self.dbg.clear_break(b)
        else:
            self.dbg.break_on(name)
        return not mine

    @answers("flow_tensor")
    def _flow_tensor(self, message: dict[str, Any]) -> None:
        """Ask for the tensor view of a node."""
        self.opened_node, self._flow_asked = "", True
        try:
            self.opened_node = self._flow_column(message["column"]).id
        finally:
            self._flow_asked = False

    def close(self) -> None:
        """Stop following, and ask the recorder for nothing any more."""
        if not self.closed:
            self._flow.close()
        super().close()


def bins_for(n_rows: int) -> int:
    """Values that one row of a strip has room for: fewer where there are more rows."""
    for rows, bins in ((6, 48), (10, 32), (16, 24), (30, 16)):
        if n_rows <= rows:
            return bins
    return 12


def _scale_of(matrix: np.ndarray) -> float:
    size = np.abs(matrix[np.isfinite(matrix)])
    return float(size.max()) if size.size else 0.0


def _open_scope(dbg: Any) -> int:
    """The layer that is being computed at this moment, -1 outside of all layers."""
    for scope in reversed(dbg.scope_stack):
        if scope.name.startswith("layer-"):
            return layer_of(scope.name)
    return -1


assert ABSENT == 0  # the page reads it as "nothing to draw"
