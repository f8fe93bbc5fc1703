"""Keeping memory from being swapped out. ↔ src/llama-mmap.cpp (llama_mlock)

The system allows a process only so much locked memory (``ulimit -l``), often a few megabytes. The
first refusal is the last try; what is locked by then stays so.
"""

from __future__ import annotations

import ctypes
import errno
import os
import weakref
from functools import cache
from typing import Any

import numpy as np

__all__ = ["MemoryLock"]


class MemoryLock:
    """Locks arrays, each for as long as its memory lives.

    Attributes
    ----------
    size : int
        Bytes locked so far.
    failed : str
        Why the system refused, in a sentence; empty while it has not.
    """

    def __init__(self) -> None:
        self.size = 0
        self.failed = ""

    def lock(self, array: np.ndarray) -> bool:
        """Lock an array's pages; False where that is refused, or was before."""
        if self.failed:
            return False
        if array.nbytes == 0:
            return True
        library = _library()
        if library is None:
            self.failed = "this system cannot lock memory"
            return False
        page = os.sysconf("SC_PAGESIZE")
        address = array.ctypes.data // page * page  # some systems lock nothing but whole pages
        n = array.ctypes.data + array.nbytes - address
        if library.mlock(ctypes.c_void_p(address), ctypes.c_size_t(n)) != 0:
            self.failed = self._reason(array.nbytes, ctypes.get_errno())
            return False
        self.size += array.nbytes
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        if owner.flags.owndata:  # a mapping is unlocked by the system when it goes
            unlock = weakref.finalize(owner, _unlock, address, n)
            unlock.atexit = False
        return True

    def _reason(self, n: int, code: int) -> str:
        hint = ""
        if code in (errno.ENOMEM, errno.EPERM, errno.EAGAIN):
            limit = _limit()
            allowed = f" ({limit:,} bytes now)" if limit is not None else ""
            hint = f"; raise the limit on locked memory, `ulimit -l`{allowed}"
        return (
            f"the system refused to lock {n:,} bytes after {self.size:,} had been locked: "
            f"{os.strerror(code)}{hint}"
        )


def _unlock(address: int, n: int) -> None:
    library = _library()
    if library is not None:
        library.munlock(ctypes.c_void_p(address), ctypes.c_size_t(n))


@cache
def _library() -> Any:
    """The C library, where it can lock memory; else None."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
    except (OSError, TypeError):  # no such library: Windows, Pyodide
        return None
    return library if hasattr(library, "mlock") else None


def _limit() -> int | None:
    """Bytes that this process may lock; None where that is not known or not limited."""
    try:
        import resource
    except ImportError:  # not a Unix
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else soft
