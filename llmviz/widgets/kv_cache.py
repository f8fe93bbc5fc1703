"""The cells of the KV cache: which position and sequence each holds, and what was just written."""

from __future__ import annotations

from typing import Any

import traitlets as t

from llmviz.trace.shown import cells_window
from llmviz.widgets.edits import EditsView

__all__ = ["KVCacheView"]

SHOWN = 256
_STEP = 64  # the window grows in whole rows


class KVCacheView(EditsView):
    """What does the model remember?

    Traits
    ------
    cell_pos, cell_seq : bytes
        int32 per shown cell: position (-1 = empty), and the first sequence (-1 = none).
    cell_text : list of str
        Piece of the token in each shown cell.
    cells : dict
        first (number of the first shown cell), total, used, fresh (numbers of cells just given);
        bytes and formula (of the whole cache) where the run has an engine.
    """

    view_name = "kv_cache"

    cell_pos = t.Bytes(b"").tag(sync=True)
    cell_seq = t.Bytes(b"").tag(sync=True)
    cell_text: t.List = t.List().tag(sync=True)
    cells = t.Dict().tag(sync=True)

    _cells_of = -1

    def draw(self) -> None:
        """Show the part of the cache that is in use."""
        super().draw()
        if not self.shows("kv_cache"):
            return
        record = self.dbg.recorder.cells
        if record is None:
            self.cell_pos, self.cell_seq, self.cell_text, self.cells = b"", b"", [], {}
            self._cells_of = -1
            return
        if record.n == self._cells_of:
            return
        self._cells_of = record.n
        total = len(record.pos)
        first, last = cells_window(record, SHOWN, _STEP)
        pos = record.pos[first:last]
        seq = [s[0] if (s := record.sequences(i)) else -1 for i in range(first, last)]
        piece = self.dbg.recorder.piece_of
        self.cell_pos = pos.astype("<i4").tobytes()
        self.cell_seq = b"".join(s.to_bytes(4, "little", signed=True) for s in seq)
        self.cell_text = [
            piece(int(k)).decode("utf-8", "replace")[:40] if piece is not None and k >= 0 else ""
            for k in record.tok[first:last]
        ]
        self.cells = {
            "first": first,
            "total": total,
            "used": record.used,
            "fresh": sorted(i for i in record.fresh if first <= i < last),
            **_memory(getattr(self.dbg.ctx, "memory", None)),
        }


def _memory(cache: Any) -> dict[str, Any]:
    """What the cache takes and how that comes about, where the run has an engine."""
    if not hasattr(cache, "total_size"):
        return {}
    return {"bytes": cache.total_size(), "formula": cache.size_formula()}
