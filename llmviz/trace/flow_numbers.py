"""The numbers of a pass: rows of tokens by columns of nodes, from what the recorder holds.

`Numbers` finds them; which rows, columns and passes there are is `flow.Flow`'s. It computes no
number of the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from llmviz.trace.flow_graph import Column, Layout, stem
from llmviz.trace.flow_strips import EARLIER, NOW, Strip, bins_of, ends, strongest
from llmviz.trace.flow_wanted import cache_names
from llmviz.trace.records import read_cells
from llmviz.trace.scores import cells_of, entering

if TYPE_CHECKING:
    from llmviz.trace.flow import Row

__all__ = ["Numbers", "head_first", "newest_positions"]


class Numbers:
    """What is held of each column, by token; see `flow.Flow` for the attributes."""

    dbg: Any
    layer: int
    head: int
    rows: list[Row]
    layout: Layout
    _strips: dict[str, tuple[Any, Strip]]
    _positions: dict[int, tuple[np.ndarray, np.ndarray]]

    @property
    def n_head(self) -> int:
        """Query heads of the open layer."""
        return max((c.heads for c in self.layout.columns if c.kind == "matrix"), default=0)

    @property
    def pass_(self) -> int:
        """Number of the pass that the run stands in, or of the last one."""
        kept = newest_positions(self.dbg.recorder)
        return kept.pass_ if kept is not None else -1

    def array(self, column: Column, pos: int) -> tuple[np.ndarray, str, int] | None:
        """One token's values of a column, as the engine computed them.

        Returns
        -------
        (ndarray [n], str, int), or None
            The values, and their place in the node that holds them: ``"kq-3[2,4,{}]"``, to be
            filled in with the index of a value; the number of the pass.
        """
        head = self.head_of(column)
        for kept in reversed(self.dbg.recorder.values(column.id)):
            hit = np.flatnonzero(self._pos_of(kept, column) == pos)
            if hit.size:
                row = int(hit[0])
                place = f"{row}"
                if column.kind != "vector":
                    place = f"{head},{row}" if head_first(column) else f"{row},{head}"
                return (
                    self._lines(kept.array, column)[row],
                    f"{column.id}[{place},{{}}]",
                    kept.pass_,
                )
        window = self._cache_window(column)
        cells = self._cell_of() if window is not None else {}
        if window is None or pos not in cells:
            return None
        cell, (name, lines, by_value) = cells[pos], window
        place = f"{{}},{head},{cell}" if by_value else f"{cell},{head},{{}}"
        return lines[cell], f"{name}[{place}]", self.pass_

    def _cache_window(self, column: Column) -> tuple[str, np.ndarray, bool] | None:
        """The cache's keys or values of the chosen head as [n_cells, n], with the node's name.

        The last is whether the node holds them value by value (transposed).
        """
        which = {"Kcur": 0, "Vcur": 1}.get(stem(column.id))
        if which is None:
            return None
        name = cache_names(self.layer)[which]
        kept = self.dbg.recorder.value(name)
        if kept is None or kept.pass_ != self.pass_ or kept.array.shape[1] != column.heads:
            return None
        head = self.head_of(column)
        by_value = which == 1 and kept.array.shape[0] == column.n
        part = kept.array[:, head]
        return name, (part.T if by_value else part), by_value

    def _pos_of(self, kept: Any, column: Column) -> np.ndarray:
        """Position of each token in a kept array, int [n_tokens]; empty where that is not known."""
        known = self._positions.get(kept.pass_)
        if known is None:
            return np.empty(0, np.int32)
        positions, out_ids = known
        count = _count(column, kept.array)
        if count == len(positions):
            return positions
        # after the last attention only the rows whose logits are wanted go on
        return positions[out_ids] if count == len(out_ids) else np.empty(0, np.int32)

    def _lines(self, array: np.ndarray, column: Column) -> np.ndarray:
        """A kept array as [n_tokens, n]: the chosen head's part where there are heads. A view."""
        if column.kind == "vector":
            return array.reshape(-1, array.shape[-1])
        head = self.head_of(column)
        if head_first(column):
            return array[head]
        if array.ndim == 2:  # before its reshape
            array = array.reshape(array.shape[0], column.heads, -1)
        return array[:, head]

    def head_of(self, column: Column) -> int:
        """The head of a column that the chosen query head uses (shared keys have fewer)."""
        if not column.heads or not self.n_head:
            return 0
        return min(self.head, self.n_head - 1) * column.heads // self.n_head

    def strip(self, column: Column, bins: int) -> Strip:
        """A column's rows as short lines of values, from what the recorder holds."""
        held = self.dbg.recorder.values(column.id)
        window = self._cache_window(column)
        key = (
            tuple(k.n for k in held),
            window is not None,
            self.pass_,
            bins,
            self.head if column.heads else 0,
            tuple(r.pos for r in self.rows),
        )
        known = self._strips.get(column.id)
        if known is not None and known[0] == key:
            return known[1]
        count = bins_of(column.n, bins)
        state = np.zeros(len(self.rows), np.uint8)
        lines = np.zeros((len(self.rows), count), np.float32)
        for rows, values, pass_ in self._parts(column):
            lines[rows] = strongest(values, count)
            state[rows] = NOW if pass_ == self.pass_ else EARLIER
        strip = Strip(state, lines, ends(lines), held[-1].n if held else -1)
        self._strips[column.id] = (key, strip)
        return strip

    def _parts(self, column: Column) -> Iterator[tuple[list[int], np.ndarray, int]]:
        """What is held for the rows: (row indices, values [rows, n], pass), the newest first."""
        where = {r.pos: i for i, r in enumerate(self.rows) if r.state != "next"}
        for kept in reversed(self.dbg.recorder.values(column.id)):
            if not where:
                return
            hits = [
                (i, where.pop(int(p)))
                for i, p in enumerate(self._pos_of(kept, column))
                if int(p) in where
            ]
            if hits:
                yield (
                    [row for _, row in hits],
                    self._lines(kept.array, column)[[i for i, _ in hits]],
                    kept.pass_,
                )
        window = self._cache_window(column) if where else None
        if window is not None:
            cells = self._cell_of()
            found = [(row, cells[p]) for p, row in where.items() if p in cells]
            if found:
                yield [r for r, _ in found], window[1][[c for _, c in found]], -1

    def held(self, column: Column) -> Iterator[tuple[np.ndarray, np.ndarray, int, int]]:
        """All that is held of a column, the oldest first.

        Positions [rows], values [heads, rows, n] (a vector has one head), number of the pass, event
        number.
        """
        for kept in self.dbg.recorder.values(column.id):
            positions, array = self._pos_of(kept, column), kept.array
            if not positions.size:
                continue
            if column.kind == "vector":
                array = array.reshape(1, -1, array.shape[-1])
            elif not head_first(column):
                array = array.reshape(array.shape[0], column.heads, -1).transpose(1, 0, 2)
            yield positions, array, kept.pass_, kept.n

    def _cell_of(self) -> dict[int, int]:
        """The cell of the cache that each position lies in."""
        cells = self.dbg.recorder.cells
        if cells is None:
            return {}
        pos = cells.pos
        if cells_of(self.dbg, self.layer) != "kv_cells":  # a layer with a window has its own cells
            parts = getattr(getattr(self.dbg.ctx, "memory", None), "caches", {})
            pos = read_cells(parts["_swa"].cells)[0] if "_swa" in parts else pos
        return {int(p): i for i, p in reversed(list(enumerate(pos))) if p >= 0}

    def cells(self) -> np.ndarray:
        """Which cell of the cache each row's token lies in, int [rows]; -1 where it has none."""
        where = self._cell_of()
        return np.array([where.get(r.pos, -1) for r in self.rows], np.int64)

    def matrix(self, column: Column) -> np.ndarray:
        """A matrix column between the rows' tokens, float32 [rows, rows]; NaN: not computed."""
        out = np.full((len(self.rows), len(self.rows)), np.nan, np.float32)
        cells = self.cells()
        for rows, values, _ in self._parts(column):
            ok = np.flatnonzero((cells >= 0) & (cells < values.shape[1]))
            out[np.array(rows)[:, None], ok] = values[:, cells[ok]]
        return out

    def mask(self) -> np.ndarray:
        """What the softmax adds to each score first, float32 [rows, rows]; NaN: not known."""
        out = np.full((len(self.rows), len(self.rows)), np.nan, np.float32)
        cells = self.cells()
        held = self.dbg.recorder.values(entering(self.dbg, self.layer).mask or "attn_inp_kq_mask")
        for i, row in enumerate(self.rows):
            for kept in reversed(held):
                known = self._positions.get(kept.pass_)
                hit = np.flatnonzero(known[0] == row.pos) if known is not None else np.empty(0)
                if hit.size:
                    line = kept.array.reshape(-1, kept.array.shape[-1])[int(hit[0])]
                    ok = (cells >= 0) & (cells < len(line))
                    out[i, ok] = line[cells[ok]]
                    break
        return out


def newest_positions(recorder: Any) -> Any:
    """The newest record (`Kept`) of a pass's positions, None where none is held."""
    kept, ubatches = recorder.value("inp_pos"), recorder.ubatches
    return kept if kept is not None or not ubatches else ubatches[-1]


def head_first(column: Column) -> bool:
    """Whether a node has its heads before its tokens."""
    return column.kind == "matrix" or stem(column.id) == "kqv"


def _count(column: Column, array: np.ndarray) -> int:
    """How many tokens a kept array has."""
    if array.ndim < 2:
        return 1
    return array.shape[1] if head_first(column) and array.ndim == 3 else array.shape[0]
