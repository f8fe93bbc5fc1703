"""What goes in at once? The batch, where it is cut, the cell each token gets, what it may see."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

import numpy as np
import traitlets as t

from llmviz.errors import LlmvizError
from llmviz.trace.batches import MASK, Batched, Mask, batched_of
from llmviz.widgets.base import View
from llmviz.widgets.follow import weakly

__all__ = ["BatchView"]

ROWS = 64  # tokens of the table
UBATCHES = 24
CHIPS = 24  # tokens of one ubatch
MASK_ROWS, MASK_CELLS = 32, 96
_PIECE = 40


class BatchView(View):
    """What goes in at once?

    Parameters
    ----------
    source : Debugger, Batch or Context
        A debugger is followed, from step 10 on. Of a context: its last decode. Of a batch and a
        context: what decode would do with it now; nothing is decoded and the memory stays as it is.
    ctx : Context, optional
        For a batch.
    **kwargs
        Traits of the view.

    Traits
    ------
    selected : int
        Index of the chosen token in the batch, -1 for none; settable. Its ubatch, its cell and its
        row of the mask come into view.
    ubatch : int
        The ubatch whose mask is shown; settable.
    cache : str
        Which cache's cells: ``""``, or ``"_swa"`` for layers with a window; settable.
    first, mask_row, mask_cell : int
        First token of the table, first row and first cell of the mask that are shown; settable.
    about : dict
        n_tokens, n_outputs, sequences, n_ubatches, n_ubatch, n_batch, how, state, say, reason,
        caches; empty, with `reason`, where there is no batch.
    rows : list of {i, id, text, pos, seqs, output, ubatch, row, stream, cell}
    ubatches : list of {i, n_tokens, n_seq_tokens, n_seqs, seqs, n_outputs, state, cells, tokens}
        `tokens` are {i, text, seq} of those that are shown.
    mask : dict
        name, ubatch, n_rows, n_kv, used, first_row, first_cell, source, rows ({i, row, text, pos,
        seqs, stream, cell, sees}); cells (of each stream: {stream, pos, seq, text}).
    mask_values : bytes
        float32 [rows, cells] of what is shown.
    """

    view_name = "batch"

    here = t.Int(-1).tag(sync=True)
    error = t.Dict().tag(sync=True)
    selected = t.Int(-1).tag(sync=True)
    ubatch = t.Int(0).tag(sync=True)
    cache = t.Unicode("").tag(sync=True)
    first = t.Int(0).tag(sync=True)
    mask_row = t.Int(0).tag(sync=True)
    mask_cell = t.Int(0).tag(sync=True)
    about = t.Dict().tag(sync=True)
    rows: t.List = t.List().tag(sync=True)
    ubatches: t.List = t.List().tag(sync=True)
    mask = t.Dict().tag(sync=True)
    mask_values = t.Bytes(b"").tag(sync=True)

    _end: Callable[[], None] = staticmethod(lambda: None)
    _ready = False

    def __init__(self, source: Any, ctx: Any = None, **kwargs: Any) -> None:
        self._source, self._ctx = source, ctx
        self._dbg = source if hasattr(source, "recorder") else None
        self._batched: Batched | str = ""
        self._masks: dict[tuple[int, str], Mask | None] = {}
        if not set(kwargs) - set(self._public_traits()) and self._dbg is None:
            self._batched = batched_of(source, ctx)
        super().__init__(**kwargs)
        self._ready = True
        if self._dbg is not None:
            # its inputs are small beside a layer's attention, and cannot be had afterwards
            self._dbg.recorder.ask(self, lambda name: name.startswith(MASK))
            if not self.docked:
                self._end = self._dbg.on_change(weakly(self))
            self.refresh()
        elif self.selected >= 0:
            self._select(None)
        else:
            self._draw()

    def close(self) -> None:
        """Stop following and let go of the page's side."""
        if not self.closed:
            self._end()
            if self._dbg is not None:
                self._dbg.recorder.release(self)
        super().close()

    # -- drawing -------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Bring the view in line with the run that it follows, or look at the context again."""
        if self.closed or (self._dbg is not None and self._dbg.running):
            return
        before = self._batched
        try:
            self._batched = batched_of(self._source, self._ctx)
        except LlmvizError as error:
            self._batched = str(error)
        self._masks = {}
        if self._dbg is not None:
            self.here = self._dbg.n
        now = self._batched
        if isinstance(now, Batched):
            another = not isinstance(before, Batched) or not np.array_equal(before.pos, now.pos)
            self._ready = False
            if another:
                self.selected, self.first, self.mask_row, self.mask_cell = -1, 0, 0, 0
                self.ubatch = 0
            if now.state == "running" and self.selected < 0:
                self.ubatch = now.now
            self._ready = True
        self._draw()

    @t.observe("selected")
    def _select(self, change: Any) -> None:
        """Bring a token's ubatch, row and cell into view."""
        b = self._batched
        if not self._ready or not isinstance(b, Batched):
            return
        self._ready = False
        self.selected = i = max(-1, min(self.selected, len(b) - 1))
        if i >= 0:
            if not self.first <= i < self.first + ROWS:
                self.first = max(0, i - ROWS // 2)
            if b.ubatch_of[i] >= 0:
                self.ubatch = int(b.ubatch_of[i])
                row, (_, cell) = int(b.row_of[i]), b.slot(i, self.cache)
                if not self.mask_row <= row < self.mask_row + MASK_ROWS:
                    self.mask_row = max(0, row - MASK_ROWS // 2)
                if not self.mask_cell <= cell < self.mask_cell + MASK_CELLS:
                    self.mask_cell = max(0, cell - MASK_CELLS // 2)
        self._ready = True
        self._draw()

    @t.observe("ubatch")
    def _turn(self, change: Any) -> None:
        b = self._batched
        if not self._ready or not isinstance(b, Batched):
            return
        self._ready = False
        if self.selected >= 0 and b.ubatch_of[self.selected] != self.ubatch:
            self.selected = -1
        self.mask_row = 0
        if b.ubatches and 0 <= self.ubatch < len(b.ubatches):
            _, cell = b.slot(int(b.ubatches[self.ubatch].batch_idxs[-1]), self.cache)
            self.mask_cell = max(0, cell + 1 - MASK_CELLS)
        self._ready = True
        self._draw()

    @t.observe("first", "mask_row", "mask_cell", "cache")
    def _elsewhere(self, change: Any) -> None:
        if self._ready:
            self._draw()

    def _draw(self) -> None:
        b = self._batched
        ready, self._ready = self._ready, False
        try:
            with self.hold_sync():
                if isinstance(b, Batched):
                    self._draw_batch(b)
                else:
                    self.about = {"n_tokens": 0, "reason": b}
                    self.rows, self.ubatches, self.mask, self.mask_values = [], [], {}, b""
                self.rev += 1
        finally:
            self._ready = ready

    def _draw_batch(self, b: Batched) -> None:
        if self.cache not in b.caches:
            self.cache = b.caches[0] if b.caches else ""
        self.ubatch = max(0, min(self.ubatch, len(b.ubatches) - 1))
        self.first = max(0, min(self.first, len(b) - ROWS))
        self.about = {
            "n_tokens": len(b),
            "n_outputs": int(b.output.sum()),
            "sequences": b.sequences,
            "n_ubatches": len(b.ubatches),
            "n_ubatch": b.n_ubatch,
            "n_batch": b.n_batch,
            "how": b.how,
            "state": b.state,
            "say": b.say,
            "reason": b.reason,
            "caches": b.caches,
        }
        self.rows = [self._row(b, i) for i in range(self.first, min(len(b), self.first + ROWS))]
        at = max(0, min(self.ubatch - UBATCHES // 2, len(b.ubatches) - UBATCHES))
        self.ubatches = [self._ubatch(b, k) for k in range(at, min(len(b.ubatches), at + UBATCHES))]
        self._draw_mask(b)

    def _row(self, b: Batched, i: int) -> dict[str, Any]:
        stream, cell = b.slot(i, self.cache)
        return {
            "i": i,
            "id": int(b.token[i]),
            "text": self._piece(b, int(b.token[i])),
            "pos": int(b.pos[i]),
            "seqs": list(b.seq_id[i]),
            "output": bool(b.output[i]),
            "ubatch": int(b.ubatch_of[i]),
            "row": int(b.row_of[i]),
            "stream": stream,
            "cell": cell,
        }

    def _ubatch(self, b: Batched, k: int) -> dict[str, Any]:
        u = b.ubatches[k]
        at = 0
        if self.selected >= 0 and b.ubatch_of[self.selected] == k:
            at = max(0, min(int(b.row_of[self.selected]) - CHIPS // 2, u.n_tokens - CHIPS))
        shown = u.batch_idxs[at : at + CHIPS].tolist()
        return {
            "i": k,
            "n_tokens": u.n_tokens,
            "n_seq_tokens": u.n_seq_tokens,
            "n_seqs": u.n_seqs,
            "equal_seqs": u.equal_seqs,
            "seqs": list(u.seq_id_unq),
            "n_outputs": int(u.output.sum()),
            "state": b.state_of(k),
            "first": at,
            "cells": self._cells_text(b, k),
            "tokens": [
                {"i": i, "text": self._piece(b, int(b.token[i])), "seqs": list(b.seq_id[i])}
                for i in shown
            ],
        }

    def _cells_text(self, b: Batched, k: int) -> str:
        if self.cache not in b.sinfos:
            return ""
        sinfo = b.sinfos[self.cache][k]
        several = len(b.ctx.memory.caches[self.cache].cells) > 1
        return "; ".join(
            (f"stream {s}: " if several else "") + _runs(idxs)
            for s, idxs in zip(sinfo.strm, sinfo.idxs, strict=True)
        )

    def _draw_mask(self, b: Batched) -> None:
        key = (self.ubatch, self.cache)
        if key not in self._masks:
            self._masks = {key: b.mask(*key) if b.ubatches else None}
        m = self._masks[key]
        if m is None:
            self.mask, self.mask_values = {}, b""
            return
        u = b.ubatches[self.ubatch]
        used = max(1, min(m.used, m.rows.shape[1]))
        self.mask_row = max(0, min(self.mask_row, u.n_tokens - MASK_ROWS))
        self.mask_cell = max(0, min(self.mask_cell, used - MASK_CELLS))
        rows = range(self.mask_row, min(u.n_tokens, self.mask_row + MASK_ROWS))
        cells = slice(self.mask_cell, min(used, self.mask_cell + MASK_CELLS))
        self.mask_values = np.ascontiguousarray(
            m.rows[rows.start : rows.stop, cells], "<f4"
        ).tobytes()
        self.mask = {
            "name": MASK + self.cache,
            "ubatch": self.ubatch,
            "n_rows": u.n_tokens,
            "n_kv": m.rows.shape[1],
            "used": used,
            "first_row": rows.start,
            "first_cell": cells.start,
            "n_cells": cells.stop - cells.start,
            "source": m.source,
            "rows": [self._mask_row(b, u, m, r) for r in rows],
            "cells": [self._mask_cells(b, s, *of, cells) for s, of in m.cells.items()],
        }

    def _mask_row(self, b: Batched, u: Any, m: Mask, r: int) -> dict[str, Any]:
        i = int(u.batch_idxs[r])
        return {
            "i": i,
            "row": r,
            "text": self._piece(b, int(u.token[r])),
            "pos": int(u.pos[r]),
            "seqs": list(u.seq_id[r]),
            "stream": int(m.streams[r]),
            "cell": b.slot(i, self.cache)[1],
            "sees": _runs(m.sees(r)) or "nothing",
        }

    def _mask_cells(
        self, b: Batched, stream: int, pos: Any, tok: Any, seq: Any, part: slice
    ) -> dict[str, Any]:
        owner = [np.flatnonzero(seq[:, c]).tolist() for c in range(part.start, part.stop)]
        return {
            "stream": stream,
            "pos": pos[part].tolist(),
            "seqs": owner,
            "text": [self._piece(b, int(k)) if k >= 0 else "" for k in tok[part]],
        }

    def _piece(self, b: Batched, token: int) -> str:
        piece = b.ctx.model.vocab.token_to_piece(token, special=True)
        return piece.decode("utf-8", "replace")[:_PIECE]

    # -- elsewhere -----------------------------------------------------------------------------

    def find(self, token: int) -> dict[str, int]:
        """Where a token of the batch went: ubatch, row in it, stream and cell.

        Parameters
        ----------
        token : int
            Its index in the batch.
        """
        b = self._batched
        if not isinstance(b, Batched) or not 0 <= token < len(b):
            raise LlmvizError(f"there is no token {token} in this batch")
        stream, cell = b.slot(token, self.cache)
        return {
            "ubatch": int(b.ubatch_of[token]),
            "row": int(b.row_of[token]),
            "stream": stream,
            "cell": cell,
        }

    def figure(self, view: str = "batch", **options: Any) -> Any:
        """The view as a matplotlib figure; see `llmviz.plots.batch`."""
        from llmviz import plots

        settings = {"ubatch": self.ubatch, "selected": self.selected, "cache": self.cache}
        return plots.batch(self._batched, **{**settings, **options})

    def _lines(self) -> list[tuple[str, str]]:
        a = self.about
        if not a["n_tokens"]:
            return [("", a["reason"])]
        out = [("batch", f"{a['n_tokens']} tokens of sequences {a['sequences']}")]
        if a["say"]:
            out.append(("", a["say"]))
        if a["reason"]:
            out.append(("no slots", a["reason"]))
        out.append(("cut", f"{a['how']}, at most {a['n_ubatch']} tokens in one ubatch"))
        out += [
            (f"ubatch {u['i']}", f"{u['n_tokens']} tokens, sequences {u['seqs']}"
             + (f", cells {u['cells']}" if u["cells"] else ""))
            for u in self.ubatches
        ]  # fmt: skip
        return out

    def fallback_text(self) -> str:
        """The batch, its ubatches and their cells, in plain lines."""
        lines = (f"  {a}: {b}" if a else f"  {b}" for a, b in self._lines())
        return "\n".join(("llmviz BatchView", *lines))

    def fallback_html(self) -> str:
        """The batch, its ubatches and their cells as a static table."""
        rows = "".join(
            f'<tr><th style="text-align:left">{escape(a)}</th>'
            f'<td style="text-align:left">{escape(b)}</td></tr>'
            for a, b in self._lines()
        )
        return f"<table><caption>llmviz BatchView</caption><tbody>{rows}</tbody></table>"


def _runs(cells: Any) -> str:
    """``"3–7, 12"`` for 3, 4, 5, 6, 7, 12; of many runs the first."""
    if not len(cells):
        return ""
    parts = np.split(cells, np.flatnonzero(np.diff(cells) != 1) + 1)
    shown = [str(p[0]) if len(p) == 1 else f"{p[0]}–{p[-1]}" for p in parts[:8]]
    return ", ".join(shown) + (f" and {len(parts) - 8} more" if len(parts) > 8 else "")
