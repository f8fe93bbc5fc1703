"""Where in the cache a ubatch goes. ↔ src/llama-kv-cache.cpp (find_slot), src/llama-hparams.h

Pure functions over `KVCells`: nothing here changes anything.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmviz.batch import LLAMA_MAX_SEQ, Ubatch
from llmviz.errors import UnsupportedError
from llmviz.memory.cells import KVCells
from llmviz.memory.memory import CacheError

__all__ = ["SWA_TYPES", "SlotInfo", "check_swa_type", "find_slot", "is_masked_swa", "usable_cells"]

SWA_TYPES = ("none", "standard", "chunked", "symmetric")
"""Kinds of sliding-window attention (``llama_swa_type``)."""


@dataclass(slots=True, eq=False)
class SlotInfo:
    """The cells that a ubatch was given (``llama_kv_cache::slot_info``).

    Attributes
    ----------
    s0, s1 : int
        First and last stream that the ubatch touches.
    strm : list of int
        The stream of each sequence of the ubatch; one entry when the cache is unified.
    idxs : list of numpy.ndarray
        int64[n_tokens / len(strm)] per stream: token j goes to cell ``idxs[s][j]``.
    """

    s0: int
    s1: int
    strm: list[int]
    idxs: list[np.ndarray]

    @property
    def n_stream(self) -> int:
        """Number of streams, ``len(strm)``."""
        return len(self.strm)

    @property
    def size(self) -> int:
        """Tokens per stream."""
        return len(self.idxs[0])

    @property
    def head(self) -> int:
        """First cell, where there is one stream."""
        return int(self.idxs[0][0])

    def is_contiguous(self) -> bool:
        """True when the cells follow each other in one stream."""
        return self.n_stream == 1 and bool((np.diff(self.idxs[0]) == 1).all())

    def __repr__(self) -> str:
        parts = [f"stream {s}: cells {_runs(i)}" for s, i in zip(self.strm, self.idxs, strict=True)]
        return f"<SlotInfo {'; '.join(parts)}>"


def _runs(idxs: np.ndarray) -> str:
    """'3..7, 12' for [3, 4, 5, 6, 7, 12]."""
    parts = np.split(idxs, np.flatnonzero(np.diff(idxs) != 1) + 1)
    shown = [str(p[0]) if len(p) == 1 else f"{p[0]}..{p[-1]}" for p in parts[:8] if len(p)]
    return ", ".join(shown) + (f", ... {len(parts) - 8} more runs" if len(parts) > 8 else "")


def check_swa_type(n_swa: int, swa_type: str) -> None:
    """Refuse an unknown kind of window, or a window without a size."""
    if swa_type not in SWA_TYPES:
        raise UnsupportedError("sliding-window type", str(swa_type), supported=SWA_TYPES)
    if swa_type != "none" and n_swa < 1:
        raise CacheError(f"swa_type {swa_type!r} needs n_swa >= 1, got {n_swa}")


def is_masked_swa(n_swa: int, swa_type: str, p0: np.ndarray, p1: np.ndarray | int) -> np.ndarray:
    """Whether a key at position `p0` lies outside the window of a query at position `p1`.

    Parameters
    ----------
    n_swa : int
        Size of the window.
    swa_type : str
        One of `SWA_TYPES`.
    p0, p1 : numpy.ndarray or int
        Positions, broadcast against each other.

    Returns
    -------
    numpy.ndarray
        bool, of the broadcast shape.
    """
    if swa_type == "standard":
        return p1 - p0 >= n_swa
    if swa_type == "chunked":
        return p0 < p1 // n_swa * n_swa
    if swa_type == "symmetric":
        return np.abs(p1 - p0) > n_swa // 2
    return np.zeros(np.broadcast(p0, p1).shape, bool)


def usable_cells(cells: KVCells, n_swa: int, swa_type: str) -> np.ndarray:
    """bool[size]: cells that a new token may take.

    Empty ones, and those of a single sequence whose window has moved past them.
    """
    usable = cells.pos < 0  # [size]
    if swa_type != "none":
        single = cells.seq_count() == 1  # [size]
        for s in cells.seq_ids():
            after = cells.seq_pos_max(s) + 1
            usable |= single & cells.seq[s] & is_masked_swa(n_swa, swa_type, cells.pos, after)
    return usable


def find_slot(
    ubatch: Ubatch,
    cells: list[KVCells],
    heads: list[int],
    seq_to_stream: list[int],
    *,
    cont: bool = False,
    n_swa: int = 0,
    swa_type: str = "none",
) -> SlotInfo | None:
    """Find a cell for every token of a ubatch.

    The search goes once around the cells of each stream, beginning at its head, or at cell 0 when
    so many cells before the head are free that filling them up is better.

    Parameters
    ----------
    ubatch : Ubatch
        With several streams its tokens are grouped by sequence.
    cells, heads : list
        Per stream.
    seq_to_stream : list of int
        The stream of each sequence.
    cont : bool
        True: the cells must follow each other.
    n_swa, swa_type
        See `usable_cells`.

    Returns
    -------
    SlotInfo or None
        None when there is not enough room.
    """
    n_seqs = ubatch.n_seqs_unq if len(cells) > 1 else 1
    n_tokens, rest = divmod(ubatch.n_tokens, n_seqs)
    if rest:
        raise ValueError(f"{ubatch.n_tokens} tokens cannot be shared evenly by {n_seqs} sequences")
    found = SlotInfo(LLAMA_MAX_SEQ, 0, [], [])
    for s in range(n_seqs):
        seq_id = ubatch.seq_id_unq[s]
        if len(cells) > 1 and ubatch.seq_id[s * n_tokens] != (seq_id,):
            raise ValueError(
                f"token {s * n_tokens} of the ubatch belongs to {ubatch.seq_id[s * n_tokens]}, "
                f"but with one stream per sequence it must belong to {seq_id} alone"
            )
        stream = seq_to_stream[seq_id]
        idxs = _search(cells[stream], heads[stream], n_tokens, cont, n_swa, swa_type)
        if idxs is None:
            return None
        found.s0 = min(found.s0, stream)
        found.s1 = max(found.s1, stream)
        found.strm.append(stream)
        found.idxs.append(idxs)
    return found


def _search(
    cells: KVCells, head: int, n_tokens: int, cont: bool, n_swa: int, swa_type: str
) -> np.ndarray | None:
    if n_tokens > cells.size:
        return None
    if head > cells.n_used + 2 * n_tokens:
        head = 0
    # the usual case: the cells right after the head are empty
    if head + n_tokens <= cells.size and cells.pos[head : head + n_tokens].max() < 0:
        return np.arange(head, head + n_tokens)
    if swa_type == "none" and cells.size - cells.n_used < n_tokens:
        return None

    usable = usable_cells(cells, n_swa, swa_type)  # [size]
    if not cont:
        free = np.flatnonzero(usable)
        start = int(np.searchsorted(free, head))
        if len(free) < n_tokens:
            return None
        return np.concatenate([free[start:], free[:start]])[:n_tokens]

    blocked = np.append(np.flatnonzero(~usable), cells.size)
    n_tested = 0
    while True:
        if head + n_tokens > cells.size:
            n_tested += cells.size - head
            head = 0
        stop = int(blocked[np.searchsorted(blocked, head)])
        if stop >= head + n_tokens:
            return np.arange(head, head + n_tokens)
        n_tested += stop + 1 - head
        head = stop + 1
        if n_tested >= cells.size:
            return None
