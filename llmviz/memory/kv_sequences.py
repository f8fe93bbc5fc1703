"""Removing, sharing and moving what sequences hold: metadata only. ↔ src/llama-kv-cache.cpp (seq_*)

K and V stay where they are: a removed cell is free to be written again, a shared one has several
sequences, a moved one waits for its key to be rotated.
"""

from __future__ import annotations

import numpy as np

from llmviz.memory.cells import KVCells
from llmviz.memory.kv_layers import KVLayer
from llmviz.memory.memory import CacheError

__all__ = ["KVSequences"]


class KVSequences:
    """The ``seq_*`` operations of a `KVCache`, which sets these attributes.

    Attributes
    ----------
    kv_size, n_stream : int
    layers : list of KVLayer
    seq_to_stream : list of int
        The stream of each sequence.
    data_version : int
        Goes up when K or V change other than by a graph or a rotation: copies of them are stale.
    """

    kv_size: int
    n_stream: int
    layers: list[KVLayer]
    seq_to_stream: list[int]
    data_version: int
    _cells: list[KVCells]
    _heads: list[int]
    _stream_copies: list[tuple[int, int]]

    def clear(self, data: bool = True) -> None:
        """Empty all cells; with `data` also zero K and V."""
        for cells in self._cells:
            cells.reset()
        self._heads = [0] * self.n_stream
        if data:
            self.data_version += 1
            for layer in self.layers:
                layer.clear()

    def seq_rm(self, seq_id: int, p0: int = -1, p1: int = -1) -> bool:
        """Remove positions [p0, p1) of a sequence, -1 for every sequence; always possible: True."""
        if seq_id == -1:
            for stream, cells in enumerate(self._cells):
                freed = cells.in_range(-1, p0, p1)
                cells.rm(freed)
                self._lower_head(stream, freed)
            return True
        stream = self._stream(seq_id)
        cells = self._cells[stream]
        idxs = cells.in_range(seq_id, p0, p1)
        if len(idxs):
            self._lower_head(stream, cells.seq_rm(idxs, seq_id))
        return True

    def seq_cp(self, seq_id_src: int, seq_id_dst: int, p0: int = -1, p1: int = -1) -> None:
        """Let `seq_id_dst` share the cells of `seq_id_src` at positions [p0, p1).

        Between streams only a whole sequence can be copied: the metadata now, K and V at the next
        update.
        """
        s0, s1 = self._stream(seq_id_src), self._stream(seq_id_dst)
        src, dst = self._cells[s0], self._cells[s1]
        if s0 == s1:
            if seq_id_src != seq_id_dst:
                dst.seq_add(src.in_range(seq_id_src, p0, p1), seq_id_dst)
            return
        if (p0 > 0 and p0 + 1 < self.kv_size) or (p1 > 0 and p1 + 1 < self.kv_size):
            raise CacheError(
                f"seq_cp({seq_id_src}, {seq_id_dst}, {p0}, {p1}): between streams only a full copy "
                "is possible; use p0 = p1 = -1, or a context with kv_unified=True"
            )
        self._stream_copies.append((s0, s1))
        idxs = src.in_range(seq_id_src, -1, -1)
        dst.reset()
        dst.put(idxs, src.pos[idxs], src.tok[idxs], [(seq_id_dst,)] * len(idxs))
        dst.shift[idxs] = src.shift[idxs]
        dst.has_shift = bool(dst.shift.any())
        self._heads[s1] = self._heads[s0]

    def seq_keep(self, seq_id: int) -> None:
        """Remove all other sequences from the stream of this one."""
        stream = self._stream(seq_id)
        self._lower_head(stream, self._cells[stream].seq_keep(seq_id))

    def seq_add(self, seq_id: int, p0: int, p1: int, shift: int) -> None:
        """Add `shift` to the positions in [p0, p1); what falls below 0 is removed.

        A cell shared with other sequences moves for them too.
        """
        stream = self._stream(seq_id)
        cells = self._cells[stream]
        if abs(shift) > np.iinfo(np.int32).max:
            raise CacheError(f"seq_add: shift = {shift} does not fit in 32 bits")
        if shift == 0 or max(p0, 0) == p1:
            return
        freed = cells.pos_add(cells.in_range(seq_id, p0, p1), shift)
        self._heads[stream] = int(freed[0]) if len(freed) else 0

    def seq_div(self, seq_id: int, p0: int, p1: int, d: int) -> None:
        """Divide the positions in [p0, p1) by `d`, rounding down."""
        cells = self._cells[self._stream(seq_id)]
        if d < 1:
            raise CacheError(f"seq_div: cannot divide positions by {d}; d must be at least 1")
        if d != 1 and max(p0, 0) != p1:
            cells.pos_div(cells.in_range(seq_id, p0, p1), d)

    def seq_pos_min(self, seq_id: int) -> int:
        """First position held for a sequence, -1 when it holds none."""
        return self._cells[self._stream(seq_id)].seq_pos_min(seq_id)

    def seq_pos_max(self, seq_id: int) -> int:
        """Last position held for a sequence, -1 when it holds none."""
        return self._cells[self._stream(seq_id)].seq_pos_max(seq_id)

    def _stream(self, seq_id: int) -> int:
        n = len(self.seq_to_stream)
        if not 0 <= seq_id < n:
            raise CacheError(
                f"seq_id = {seq_id} is out of range: this cache has sequences 0..{n - 1}"
            )
        return self.seq_to_stream[seq_id]

    def _lower_head(self, stream: int, freed: np.ndarray) -> None:
        if len(freed):
            self._heads[stream] = min(self._heads[stream], int(freed[0]))
