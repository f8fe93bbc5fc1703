"""Parts of a numpy op on several threads; numpy lets go of Python's lock while it computes.

↔ ggml/src/ggml-cpu/ggml-cpu.c (ggml_graph_compute_thread)
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np

__all__ = ["FEWEST", "share"]

FEWEST = 1 << 17
"""Values of an op from which on it is worth waking another thread."""


def share(n: int, n_threads: int, work: Callable[[slice], object]) -> None:
    """Call ``work`` for each of n items, by several threads where there are.

    Items must be independent of each other, so that the result is the same with any number.

    Parameters
    ----------
    n_threads : int
        0 is one for each core.
    work : callable
        Gets a slice of one item.
    """
    threads = min(n_threads or os.cpu_count() or 1, n)
    pool = _pool() if threads > 1 else None
    if pool is None:
        _some(range(n), work)
        return
    waiting = [pool.submit(_some, range(i, n, threads), work) for i in range(1, threads)]
    _some(range(0, n, threads), work)
    for one in waiting:
        one.result()


def _some(items: range, work: Callable[[slice], object]) -> None:
    with np.errstate(all="ignore"):  # each thread has its own
        for i in items:
            work(slice(i, i + 1))


@cache
def _pool() -> ThreadPoolExecutor | None:
    """Threads that wait for work; None where no thread can be started."""
    pool = ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 1), "llmviz numpy")
    try:
        pool.submit(int).result()
    except RuntimeError:
        return None
    return pool


if hasattr(os, "register_at_fork"):  # threads do not live on in a forked process
    os.register_at_fork(after_in_child=_pool.cache_clear)
