"""Reading a file past the system's page cache. ↔ src/llama-mmap.cpp (llama_file, O_DIRECT)

A large model read once would push everything else out of the cache. The price: where a read begins
and how long it is, in the file and in memory, must be multiples of the file system's block size.
"""

from __future__ import annotations

import errno
import os

import numpy as np

__all__ = ["DirectReader"]

_CHUNK = 64 << 20  # bytes asked for at once


class DirectReader:
    """A file opened for direct reads.

    Parameters
    ----------
    path : str

    Attributes
    ----------
    alignment : int
        What offsets, lengths and addresses are multiples of: the file system's block size.

    Raises
    ------
    OSError
        The system has no direct reads, or the file system has none (tmpfs, some network ones).
    """

    def __init__(self, path: str) -> None:
        flag = getattr(os, "O_DIRECT", None)
        if flag is None or not hasattr(os, "preadv"):
            raise OSError(errno.EINVAL, "this system has no direct reads")
        self._fd = os.open(path, os.O_RDONLY | flag)
        self.alignment = max(os.fstat(self._fd).st_blksize, 512)

    def read(self, offset: int, size: int) -> np.ndarray:
        """Read into aligned memory of its own.

        Returns
        -------
        uint8[size]
            Shorter where the file ends before.

        Raises
        ------
        OSError
            With EINVAL or EFAULT where the file system does not read so after all.
        """
        step = self.alignment
        begin = offset // step * step
        n = -(-(offset + size) // step) * step - begin
        room = np.empty(n + step, np.uint8)
        room = room[-room.ctypes.data % step :][:n]  # begins at a multiple of `step`
        done = 0
        while done < offset - begin + size:
            got = os.preadv(self._fd, [room[done : done + _CHUNK].data], begin + done)
            if got == 0:
                break
            done += got
        return room[offset - begin : min(done, offset - begin + size)]

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)
