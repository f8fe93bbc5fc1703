"""The cells of the KV cache: what each holds, what was just written, how long its K and V are."""

from __future__ import annotations

from typing import Any

import numpy as np
import traitlets as t

from llmviz.trace.kv_shown import KVStrip, Norms, row_norms, strips
from llmviz.widgets.edits import EditsView
from llmviz.widgets.follow import answers
from llmviz.widgets.picture import picture

__all__ = ["KVCacheView"]

SHOWN = 256
_STEP = 64  # the window grows in whole rows


class KVCacheView(EditsView):
    """What does the model remember?

    A memory may be several caches, such as one for layers with a sliding window: each is a strip,
    and the bytes below hold the cells of all strips one after the other.

    Traits
    ------
    cell_pos, cell_seq : bytes
        int32 per shown cell: position (-1 = empty), and the first sequence (-1 = none).
    cell_text : list of str
        Piece of the token in each shown cell.
    cells : dict
        Of the first strip: first (number of the first shown cell), total, used, fresh (numbers of
        cells just given); bytes and formula (of the whole memory) where the run has an engine.
    strips : list of dict
        Of each cache: title (empty where there is only one), first, count (shown cells), total,
        used, fresh; where the run has an engine heads (cell at which the next search for free ones
        begins, of each stream), bytes, bytes_used, bytes_read, n_read (cells that attention reads,
        padded), formula, layers, k_high, v_high (where the colours of the norms end).
    kv_norms : bytes
        uint8, of each strip [n_layer, count] for K, then for V; see `picture.picture`. The byte of
        NaN where a cell is empty or its row is not written yet.
    """

    view_name = "kv_cache"

    cell_pos = t.Bytes(b"").tag(sync=True)
    cell_seq = t.Bytes(b"").tag(sync=True)
    cell_text: t.List = t.List().tag(sync=True)
    cells = t.Dict().tag(sync=True)
    strips: t.List = t.List().tag(sync=True)
    kv_norms = t.Bytes(b"").tag(sync=True)

    _cells_of: Any = -1
    _kv_shown: tuple[KVStrip, ...] = ()

    def __init__(self, dbg: Any, **kwargs: Any) -> None:
        self._kv_norms: dict[int, Norms] = {}
        super().__init__(dbg, **kwargs)

    def draw(self) -> None:
        """Show the part of each cache that is in use."""
        super().draw()
        if not self.shows("kv_cache"):
            return
        record = self.dbg.recorder.cells
        if record is None:
            self.cell_pos, self.cell_seq, self.cell_text, self.cells = b"", b"", [], {}
            self.strips, self.kv_norms, self._kv_shown = [], b"", ()
            self._cells_of = -1
            return
        if self.dbg.running and record is self._cells_of:
            return
        self._kv_shown = tuple(strips(self.dbg, SHOWN, _STEP, self._kv_norms))
        if record is not self._cells_of:
            self._cells_of = record
            self._draw_cells()
        self._draw_strips()

    def _draw_cells(self) -> None:
        pos, seq, text = [], [], []
        piece = self.dbg.recorder.piece_of
        for strip in self._kv_shown:
            record, part = strip.record, slice(strip.first, strip.end)
            pos.append(record.pos[part].astype("<i4").tobytes())
            held = (record.sequences(i) for i in range(strip.first, strip.end))
            seq += [(s[0] if s else -1).to_bytes(4, "little", signed=True) for s in held]
            text += [
                piece(int(k)).decode("utf-8", "replace")[:40]
                if piece is not None and k >= 0
                else ""
                for k in record.tok[part]
            ]
        self.cell_pos, self.cell_seq, self.cell_text = b"".join(pos), b"".join(seq), text
        first = _about(self._kv_shown[0])
        self.cells = {
            **{k: first[k] for k in ("first", "total", "used", "fresh")},
            **_memory(getattr(self.dbg.ctx, "memory", None)),
        }

    def _draw_strips(self) -> None:
        about, pictures = [], []
        for strip in self._kv_shown:
            one = _about(strip)
            if strip.norms is not None:
                one["layers"] = list(strip.norms.layers)
                for name in ("k", "v"):
                    part = getattr(strip.norms, name)[:, strip.first : strip.end]
                    high = float(np.nanmax(part)) if np.isfinite(part).any() else 0.0
                    one[f"{name}_high"] = high
                    pictures.append(picture(part, 0.0, high or 1.0)[0])
            about.append(one)
        self.strips, self.kv_norms = about, b"".join(pictures)

    @answers("kv_norm")
    def _on_norm(self, message: dict[str, Any]) -> dict[str, Any]:
        """One norm in full precision, read from the cache as it is now."""
        which, what = int(message["strip"]), str(message["what"])
        row, cell = int(message["row"]), int(message["cell"])
        out: dict[str, Any] = {"value": None}
        strip = self._kv_shown[which] if 0 <= which < len(self._kv_shown) else None
        norms = strip.norms if strip is not None else None
        if strip is None or norms is None or what not in ("k", "v"):
            return out
        if not (0 <= row < len(norms.layers) and strip.first <= cell < strip.end):
            return out
        il = norms.layers[row]
        if np.isnan(getattr(norms, what)[row, cell]):
            return {"value": None, "layer": il}
        layer = norms.cache.layers[row]
        value = row_norms(norms.cache, layer, np.array([cell]), what)[0]
        return {"value": str(value), "layer": il, "ref": f"norm(cache_{what}_l{il}[cell {cell}])"}


def _about(strip: KVStrip) -> dict[str, Any]:
    record, sizes = strip.record, strip.sizes
    out: dict[str, Any] = {
        "title": strip.title,
        "first": strip.first,
        "count": strip.end - strip.first,
        "total": len(record.pos),
        "used": record.used,
        "fresh": sorted(i for i in record.fresh if strip.first <= i < strip.end),
    }
    if sizes is not None:
        out.update(
            heads=list(strip.heads),
            bytes=sizes.total,
            bytes_used=sizes.used,
            bytes_read=sizes.read,
            n_read=sizes.n_read,
            formula=sizes.formula,
        )
    return out


def _memory(memory: Any) -> dict[str, Any]:
    """What the cache takes and how that comes about, where the run has an engine."""
    if not hasattr(memory, "total_size"):
        return {}
    return {"bytes": memory.total_size(), "formula": memory.size_formula()}
