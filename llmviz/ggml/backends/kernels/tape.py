"""Rows of a tape: what they read and write, where threads must wait for each other.

Data only; `tape_run` executes it. Needs no numba until a `Tape` is made.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns
from typing import Any

import numpy as np

__all__ = ["ALONE", "Pace", "Range", "Row", "Tape", "barriers", "statistics_row"]

Range = tuple[int, int]
"""Addresses: the first, and one after the last."""

ALONE = ("alone", 0)
"""The `Row.split` of a step that one thread does."""

_UNITS = {"alone": 0, "rows": 16, "heads": 1}  # rows: as many floats as a line of the cache holds
_LATE = 1.2  # times what one thread takes
_SMALL = 96 << 10  # bytes of weights that are read sooner than another thread is woken


@dataclass(frozen=True, slots=True)
class Row:
    """One step of a tape.

    Attributes
    ----------
    step : str
        Its name in `tape_steps.STEPS`.
    n : int
        Items.
    numbers : tuple of int
        The kernel's parameters.
    split : tuple of (str, int)
        What is shared out among threads (``"rows"``, ``"heads"``) and how many there are; or
        `ALONE`. Rows with the same split give each thread the same share.
    reads, writes : tuple of Range
    keep : tuple
        What must live as long as the addresses are used.
    weight : int
        Bytes of the matrix it reads: where there are few, no other thread is woken for it alone.
    """

    step: str
    n: int
    numbers: tuple[int, ...]
    split: tuple[str, int]
    reads: tuple[Range, ...]
    writes: tuple[Range, ...]
    keep: tuple[Any, ...] = ()
    weight: int = 0


def _touch(left: Sequence[Range], right: Sequence[Range]) -> bool:
    return any(a < d and c < b for a, b in left for c, d in right)


def _must_wait(row: Row, before: Row) -> bool:
    """Whether all threads must be done with `before` when `row` begins."""
    if row.split == before.split == ALONE:
        return False
    written = before.writes
    if row.split == before.split and row.split != ALONE:
        # a thread reads the share that it wrote itself
        own = [r for r in row.reads if r not in before.writes]
    else:
        own = list(row.reads)
    return _touch(written, own) or _touch(written, row.writes) or _touch(before.reads, row.writes)


def barriers(rows: Sequence[Row]) -> list[bool]:
    """Before which rows the threads must wait for each other.

    Two rows may run side by side where neither writes what the other one touches, and where each
    thread goes on with its own share of what it wrote.
    """
    out: list[bool] = []
    since: list[Row] = []
    for row in rows:
        wait = any(_must_wait(row, before) for before in since)
        if wait:
            since = []
        since.append(row)
        out.append(wait)
    return out


def statistics_row(x: np.ndarray, out: np.ndarray) -> Row:
    """Look at a node's values, float32 and contiguous, when they have just been computed.

    Parameters
    ----------
    out : ndarray of float64, [6]
        See `llmviz.ggml.measure.FIELDS`.
    """
    at, to = x.ctypes.data, out.ctypes.data
    reads, writes = ((at, at + x.nbytes),), ((to, to + out.nbytes),)
    return Row("statistics", 1, (at, to, x.size), ALONE, reads, writes, keep=(x, out))


class Tape:
    """Rows as the compiled runner takes them.

    Parameters
    ----------
    rows : sequence of Row
    n_threads : int
    lock : threading.Lock
        Held while several threads run: numba's serve one caller at a time.
    """

    def __init__(self, rows: Sequence[Row], n_threads: int, lock: threading.Lock) -> None:
        from llmviz.ggml.backends.kernels import cached_on_disk

        with cached_on_disk():
            from llmviz.ggml.backends.kernels import tape_run, tape_steps
        from llmviz.ggml.backends.kernels.calls import compiled, use_threads

        self._alone, self._together = tape_run.run_alone, tape_run.run_together
        table = np.zeros((len(rows), tape_run.WIDTH), np.int64)
        for i, (row, wait) in enumerate(zip(rows, barriers(rows), strict=True)):
            address, at = compiled(tape_steps.STEPS[row.step]), tape_run.ARGS_AT
            table[i, :at] = address, wait, row.n, _UNITS[row.split[0]]
            table[i, at : at + len(row.numbers)] = row.numbers
        self.rows = rows
        self.n_threads = n_threads
        self._lock, self._use_threads = lock, use_threads
        self._table = table
        self._sync = np.zeros(tape_run.SYNC, np.int64)
        self._at, self._sync_at = table.ctypes.data, self._sync.ctypes.data
        self._bytes = np.concatenate(([0], np.cumsum([row.weight for row in rows]))).tolist()
        # a run that is cut in pieces wakes the threads often, and may be better off without
        self._pieces, self._whole = Pace(self._bytes[-1]), Pace(self._bytes[-1])

    def stretch(self, low: int, high: int) -> Callable[[], object]:
        """`run` for rows that are run again and again."""
        if self.n_threads == 1 or self._bytes[high] - self._bytes[low] < _SMALL:
            return partial(self._alone, self._at, low, high)
        return partial(self.run, low, high)

    def run(self, low: int, high: int) -> None:
        """Run rows low .. high - 1."""
        if low >= high:
            return
        size = self._bytes[high] - self._bytes[low]
        if self.n_threads == 1 or size < _SMALL:
            self._alone(self._at, low, high)
            return
        pace = self._whole if 4 * size >= self._bytes[-1] else self._pieces
        together = pace.together()
        start = perf_counter_ns()
        if together:
            with self._lock:
                self._use_threads(self.n_threads)
                self._together(self._at, low, high, self._sync_at, self.n_threads)
        else:
            self._alone(self._at, low, high)
        pace.took(perf_counter_ns() - start, size)


class Pace:
    """Whether several threads are faster than one just now.

    On a busy machine they wait for the one that has no core. What one thread takes is measured
    first, and now and then again; where several take longer, the work that comes next is done by
    one, and more of it each time that it is so again. Judged by half a tape at a time: what a byte
    takes differs from row to row.

    Parameters
    ----------
    size : int
        Bytes of weights that the whole tape reads.
    """

    _LONGEST = 128

    def __init__(self, size: int) -> None:
        self._window = size // 2
        self._by_one = 0.0  # ns for a byte of weights, 0 before it is known
        self._alone_for = 2  # windows: in the first one pages are touched for the first time
        self._next_time = 4
        self._ns = self._seen = 0

    def together(self) -> bool:
        """Whether the next stretch should be shared out."""
        return self._alone_for == 0

    def took(self, ns: int, size: int) -> None:
        """How long a stretch took, and how many bytes of weights it read."""
        self._ns += ns
        self._seen += size
        if self._seen < self._window:
            return
        rate = self._ns / self._seen
        self._ns = self._seen = 0
        if self._alone_for:
            self._alone_for -= 1
            faster = min(rate, self._by_one) if self._by_one else rate
            self._by_one = 0.9 * faster + 0.1 * rate
        elif rate > _LATE * self._by_one:
            self._alone_for = self._next_time
            self._next_time = min(2 * self._next_time, self._LONGEST)
        else:
            self._next_time = 4
