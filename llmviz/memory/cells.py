"""Who sits in which KV cell: position, pending shift, sequences, token. ↔ src/llama-kv-cells.h

Cell i describes column i of every layer's K and V. All of it is small numpy arrays that the views
read directly; the operations work on whole index arrays, so that a ubatch of 512 costs about as
much as one token.

Does not do: the K and V values (`kv_cache.py`), several coordinates per position (M-RoPE).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from llmviz.batch import LLAMA_MAX_SEQ

__all__ = ["KVCells"]


class KVCells:
    """Metadata of the cells of one stream.

    Parameters
    ----------
    size : int
        Number of cells.
    n_seq : int
        Sequences expected; rows for higher ids are added when first used.

    Attributes
    ----------
    pos : numpy.ndarray
        int32[size], -1 where the cell is empty.
    shift : numpy.ndarray
        int32[size], how far `pos` was moved since the keys were last rotated.
    tok : numpy.ndarray
        int32[size], the token that was stored, -1 where empty.
    seq : numpy.ndarray
        bool[n_seq, size], true where the cell belongs to the sequence.
    has_shift : bool
        True when a shift is pending.
    """

    def __init__(self, size: int, n_seq: int = 1) -> None:
        self.size = size
        self.pos = np.full(size, -1, np.int32)
        self.shift = np.zeros(size, np.int32)
        self.tok = np.full(size, -1, np.int32)
        self.seq = np.zeros((max(n_seq, 1), size), bool)
        self.has_shift = False
        self._n_used = 0
        # cached; None = to be recomputed from the arrays
        self._used_max_p1: int | None = 0
        self._seq_pos: dict[int, tuple[int, int]] = {}

    # -- reading ---------------------------------------------------------------------------------

    @property
    def n_used(self) -> int:
        """Number of cells that are not empty (``get_used``)."""
        return self._n_used

    @property
    def used_min(self) -> int:
        """Index of the first used cell, 0 when there is none."""
        return int(np.argmax(self.pos >= 0)) if self._n_used else 0

    @property
    def used_max_p1(self) -> int:
        """Index of the last used cell + 1, 0 when there is none."""
        if self._used_max_p1 is None:
            used = np.flatnonzero(self.pos >= 0)
            self._used_max_p1 = int(used[-1]) + 1 if used.size else 0
        return self._used_max_p1

    def is_empty(self, i: int) -> bool:
        """True when cell i holds nothing."""
        return bool(self.pos[i] == -1)

    def seq_has(self, i: int, seq_id: int) -> bool:
        """True when cell i belongs to the sequence."""
        return seq_id < len(self.seq) and bool(self.seq[seq_id, i])

    def seq_get_all(self, i: int) -> tuple[int, ...]:
        """Return the sequences that cell i belongs to."""
        return tuple(np.flatnonzero(self.seq[:, i]).tolist())

    def seq_row(self, seq_id: int) -> np.ndarray:
        """bool[size]: which cells belong to the sequence; a view."""
        if seq_id >= len(self.seq):
            self._grow(seq_id)
        return self.seq[seq_id]

    def seq_count(self) -> np.ndarray:
        """int64[size]: how many sequences each cell belongs to."""
        return self.seq.sum(axis=0)  # [size]

    def seq_ids(self) -> list[int]:
        """Sequences that hold at least one cell, ascending."""
        return np.flatnonzero(self.seq.any(axis=1)).tolist()

    def seq_pos_min(self, seq_id: int) -> int:
        """First position held for the sequence, -1 when it holds none."""
        return self._seq_limits(seq_id)[0]

    def seq_pos_max(self, seq_id: int) -> int:
        """Last position held for the sequence, -1 when it holds none."""
        return self._seq_limits(seq_id)[1]

    def _seq_limits(self, seq_id: int) -> tuple[int, int]:
        limits = self._seq_pos.get(seq_id)
        if limits is None:
            held = self.pos[self.seq[seq_id]] if seq_id < len(self.seq) else self.pos[:0]
            limits = (int(held.min()), int(held.max())) if held.size else (-1, -1)
            self._seq_pos[seq_id] = limits
        return limits

    def in_range(self, seq_id: int, p0: int, p1: int) -> np.ndarray:
        """int64[n]: cells of the sequence (-1: any) with a position in [p0, p1), ascending.

        A negative `p0` means 0, a negative `p1` no end.
        """
        lo, hi = max(p0, 0), p1 if p1 >= 0 else np.iinfo(np.int32).max
        hit = (self.pos >= lo) & (self.pos < hi)  # [size]
        if seq_id >= 0:
            if seq_id >= len(self.seq):
                return np.zeros(0, np.int64)
            hit &= self.seq[seq_id]
        return np.flatnonzero(hit)

    # -- changing --------------------------------------------------------------------------------

    def reset(self) -> None:
        """Empty all cells."""
        self.pos.fill(-1)
        self.shift.fill(0)
        self.tok.fill(-1)
        self.seq.fill(False)
        self.has_shift = False
        self._n_used = 0
        self._used_max_p1 = 0
        self._seq_pos.clear()

    def reset_shift(self) -> None:
        """Note that the pending shifts were carried out."""
        self.shift.fill(0)
        self.has_shift = False

    def put(
        self, idxs: np.ndarray, pos: np.ndarray, tok: np.ndarray, seq_id: list[tuple[int, ...]]
    ) -> None:
        """Fill empty cells.

        Parameters
        ----------
        idxs : numpy.ndarray
            int[n], distinct empty cells.
        pos, tok : numpy.ndarray
            int32[n].
        seq_id : list of tuple of int
            The sequences of each cell.
        """
        if not len(idxs):
            return
        self.pos[idxs] = pos
        self.shift[idxs] = 0
        self.tok[idxs] = tok
        if len(seq_id) == 1 or len(set(seq_id)) == 1:
            for s in seq_id[0]:
                self.seq_row(s)[idxs] = True
                self._seq_pos_inc(s, pos)
        else:
            members: dict[int, list[int]] = {}
            for j, seqs in enumerate(seq_id):
                for s in seqs:
                    members.setdefault(s, []).append(j)
            for s, js in members.items():
                self.seq_row(s)[idxs[js]] = True
                self._seq_pos_inc(s, pos[js])
        self._n_used += len(idxs)
        if self._used_max_p1 is not None:
            self._used_max_p1 = max(self._used_max_p1, int(idxs.max()) + 1)

    def rm(self, idxs: np.ndarray) -> None:
        """Empty used cells, whatever sequences they belong to."""
        if not len(idxs):
            return
        for s in np.flatnonzero(self.seq[:, idxs].any(axis=1)).tolist():
            self._seq_pos.pop(s, None)
        self.seq[:, idxs] = False
        self._free(idxs)

    def seq_rm(self, idxs: np.ndarray, seq_id: int) -> np.ndarray:
        """Take cells away from one of their sequences; returns those that became empty."""
        self.seq[seq_id, idxs] = False
        self._seq_pos.pop(seq_id, None)
        freed = idxs[~self.seq[:, idxs].any(axis=0)]
        self._free(freed)
        return freed

    def seq_keep(self, seq_id: int) -> np.ndarray:
        """Reduce every cell to this one sequence; returns the cells that became empty."""
        keep = self.seq_row(seq_id).copy()  # [size]
        freed = np.flatnonzero((self.pos >= 0) & ~keep)
        self.seq.fill(False)
        self.seq[seq_id] = keep
        limits = self._seq_pos.get(seq_id)
        self._seq_pos = {} if limits is None else {seq_id: limits}
        self._free(freed)
        return freed

    def seq_add(self, idxs: np.ndarray, seq_id: int) -> None:
        """Let used cells belong to one more sequence."""
        if len(idxs):
            self.seq_row(seq_id)[idxs] = True
            self._seq_pos_inc(seq_id, self.pos[idxs])

    def pos_add(self, idxs: np.ndarray, d: int) -> np.ndarray:
        """Move positions by `d`; cells that fall below 0 become empty and are returned."""
        if not len(idxs):
            return idxs
        self._forget_limits(idxs)
        # in 64 bits: a shift near the end of int32 must not come out negative
        moved = self.pos[idxs].astype(np.int64) + d
        stay = moved >= 0
        kept = idxs[stay]
        self.pos[kept] = np.minimum(moved[stay], np.iinfo(np.int32).max)
        self.shift[kept] += np.int32(d)
        self.has_shift = True
        freed = idxs[~stay]
        self.seq[:, freed] = False
        self._free(freed)
        return freed

    def pos_div(self, idxs: np.ndarray, d: int) -> None:
        """Divide positions by `d` > 0, rounding down."""
        if not len(idxs):
            return
        self._forget_limits(idxs)
        old = self.pos[idxs]
        self.pos[idxs] = old // d
        # sign as in llama.cpp (pos_add would give new - old)
        self.shift[idxs] += old - self.pos[idxs]
        self.has_shift = True

    def _free(self, idxs: np.ndarray) -> None:
        if not len(idxs):
            return
        self.pos[idxs] = -1
        self.shift[idxs] = 0
        self.tok[idxs] = -1
        self._n_used -= len(idxs)
        if self._used_max_p1 is not None and int(idxs.max()) + 1 == self._used_max_p1:
            self._used_max_p1 = None

    def _grow(self, seq_id: int) -> None:
        if seq_id >= LLAMA_MAX_SEQ:
            raise IndexError(f"seq_id = {seq_id} >= {LLAMA_MAX_SEQ}")
        rows = np.zeros((seq_id + 1 - len(self.seq), self.size), bool)
        self.seq = np.concatenate([self.seq, rows])

    def _seq_pos_inc(self, seq_id: int, pos: np.ndarray) -> None:
        limits = self._seq_pos.get(seq_id)
        if limits is None:
            return  # not known: stays to be computed
        lo, hi = int(pos.min()), int(pos.max())
        self._seq_pos[seq_id] = (
            (lo, hi) if limits[1] < 0 else (min(limits[0], lo), max(limits[1], hi))
        )

    def _forget_limits(self, idxs: np.ndarray) -> None:
        for s in np.flatnonzero(self.seq[:, idxs].any(axis=1)).tolist():
            self._seq_pos.pop(s, None)

    # -- copies ----------------------------------------------------------------------------------

    def cp(self, idxs: np.ndarray) -> dict[str, Any]:
        """Copy of some cells, for `set`."""
        return {
            "idxs": idxs,
            "pos": self.pos[idxs],
            "shift": self.shift[idxs],
            "tok": self.tok[idxs],
            "seq": self.seq[:, idxs],
        }

    def set(self, saved: dict[str, Any]) -> None:
        """Put back cells that `cp` copied."""
        idxs = saved["idxs"]
        self._forget_limits(idxs)
        for name in ("pos", "shift", "tok"):
            getattr(self, name)[idxs] = saved[name]
        n = len(saved["seq"])
        self.seq[:n, idxs] = saved["seq"]
        self.seq[n:, idxs] = False
        self._forget_limits(idxs)
        self._recount()

    def snapshot(self) -> dict[str, Any]:
        """Everything needed to come back to this moment; only the used part is copied."""
        n = self.used_max_p1
        return {
            "size": self.size,
            "pos": self.pos[:n].copy(),
            "shift": self.shift[:n].copy(),
            "tok": self.tok[:n].copy(),
            "seq": self.seq[:, :n].copy(),
            "has_shift": self.has_shift,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Come back to a `snapshot` of cells of the same size."""
        if snapshot["size"] != self.size:
            raise ValueError(f"snapshot of {snapshot['size']} cells, but here are {self.size}")
        self.reset()
        n = len(snapshot["pos"])
        if len(snapshot["seq"]) > len(self.seq):
            self._grow(len(snapshot["seq"]) - 1)
        for name in ("pos", "shift", "tok"):
            getattr(self, name)[:n] = snapshot[name]
        self.seq[: len(snapshot["seq"]), :n] = snapshot["seq"]
        self.has_shift = snapshot["has_shift"]
        self._recount()

    def _recount(self) -> None:
        self._n_used = int(np.count_nonzero(self.pos >= 0))
        self._used_max_p1 = None

    def as_arrays(self) -> dict[str, np.ndarray]:
        """Read-only views for display.

        Returns
        -------
        dict
            ``pos``, ``shift``, ``tok``: int32[size]; ``seq``: bool[size, n_seq]. They follow later
            changes; copy to keep.
        """
        views = {"pos": self.pos[:], "shift": self.shift[:], "tok": self.tok[:], "seq": self.seq.T}
        for view in views.values():
            view.flags.writeable = False
        return views

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        seqs: Iterable[str] = (
            f"{s}: {self.seq_pos_min(s)}..{self.seq_pos_max(s)}" for s in self.seq_ids()
        )
        return (
            f"<KVCells {self.n_used} of {self.size} used; positions of sequence "
            f"{', '.join(seqs) or '-'}{'; shift pending' if self.has_shift else ''}>"
        )
