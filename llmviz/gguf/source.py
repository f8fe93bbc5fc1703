"""The bytes of one model file, mapped into memory or read. ↔ src/llama-mmap.cpp

Does not know what the bytes mean.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

import numpy as np

from llmviz.errors import GGUFError
from llmviz.gguf.direct import DirectReader

try:
    import mmap
except ImportError:  # Pyodide and other systems without memory mapping
    mmap = None  # type: ignore[assignment]

_HEAD_STEP = 1 << 20


class Source:
    """A read-only file, opened once.

    With mmap nothing is read until it is looked at. Without, the front of the file is read as far
    as the header walk asks for (`head`), and each `view` reads its own bytes.

    Parameters
    ----------
    path : str or os.PathLike
        The file.
    use_mmap : bool
        ``False`` reads even where mapping would work.
    direct : bool
        Views are read past the system's page cache, where the file system allows it; implies that
        nothing is mapped.

    Attributes
    ----------
    fallback : str
        Why the file is not mapped or read directly although that was asked for; else empty.

    Raises
    ------
    GGUFError
        The path is missing, a directory, not a regular file, or not readable.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, use_mmap: bool = True, direct: bool = False
    ) -> None:
        self.path = os.fsdecode(os.fspath(path))
        self.fallback = ""
        self._direct: DirectReader | None = None
        self._file: BinaryIO | None = None
        self._map: mmap.mmap | None = None
        self._head = b""
        try:
            mode = os.stat(self.path).st_mode
            if stat.S_ISDIR(mode):
                raise GGUFError(_directory_hint(Path(self.path)), path=self.path)
            if not stat.S_ISREG(mode):  # opening a pipe would wait for ever
                raise GGUFError("not a regular file; give the path of a .gguf file", path=self.path)
            self._file = open(self.path, "rb")  # noqa: SIM115 - closed by close()
        except FileNotFoundError:
            raise GGUFError(
                "no such file; check the path, or list known models with `llmviz models`",
                path=self.path,
            ) from None
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            reason = getattr(error, "strerror", None) or error
            raise GGUFError(f"the file cannot be opened: {reason}", path=self.path) from error
        self.size = os.fstat(self._file.fileno()).st_size
        if direct:
            self._open_direct()
        elif use_mmap:
            self._open_map()
        if self._map is not None:
            self._file.close()  # the mapping lives on without the descriptor
            self._file = None

    def _open_map(self) -> None:
        assert self._file is not None
        if mmap is None:
            self.fallback = "this Python has no mmap"
        elif self.size > 0:
            try:
                self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
            except (OSError, ValueError) as error:  # some network and fuse file systems cannot map
                self.fallback = f"the file cannot be mapped ({error})"

    def _open_direct(self) -> None:
        try:
            self._direct = DirectReader(self.path)
        except OSError as error:
            self.fallback = f"the file cannot be opened for direct reading ({error.strerror})"

    @property
    def is_mapped(self) -> bool:
        """Whether the file is memory-mapped."""
        return self._map is not None

    @property
    def is_direct(self) -> bool:
        """Whether views are read past the page cache."""
        return self._direct is not None

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._map is None and self._file is None

    def head(self, end: int) -> bytes | mmap.mmap:
        """Return a buffer that starts at byte 0 and holds at least ``min(end, size)`` bytes."""
        if self._map is not None:
            return self._map
        end = min(end, self.size)
        if len(self._head) < end:
            # growing by half keeps the number of copies small for a long walk
            want = min(max(end, len(self._head) * 3 // 2, _HEAD_STEP), self.size)
            self._head += self._pread(len(self._head), want - len(self._head))
        return self._head

    def read(self, offset: int, size: int) -> bytes:
        """Return a copy of ``size`` bytes from byte ``offset``."""
        if self._map is not None:
            return self._map[offset : offset + size]
        if offset + size <= len(self._head):
            return self._head[offset : offset + size]
        return self._pread(offset, size)

    def view(self, offset: int, size: int) -> np.ndarray:
        """Return a read-only uint8[size] array: the mapping itself, or a copy where there is none.

        The array keeps the mapping alive, also after `close`.
        """
        if self._map is not None:
            return np.frombuffer(self._map, np.uint8, size, offset) if size else _NO_BYTES
        data = self._read_direct(offset, size) if self._direct is not None else None
        if data is None:
            data = np.empty(size, np.uint8)
            self._read_into(data.data, offset)
        data.flags.writeable = False
        return data

    def forget(self, offset: int, size: int) -> None:
        """Let go of the mapped pages that lie wholly within a range; they come back when they are
        looked at.
        """
        advice = getattr(mmap, "MADV_DONTNEED", None)
        if self._map is None or advice is None:
            return
        page = mmap.PAGESIZE
        begin, end = -(-offset // page) * page, (offset + size) // page * page
        if end > begin:
            self._map.madvise(advice, begin, end - begin)

    def close(self) -> None:
        """Let go of the file. Arrays from `view` stay valid and keep the mapping until they go."""
        if self._map is not None:
            with contextlib.suppress(
                BufferError
            ):  # an array still looks at it: the last one unmaps
                self._map.close()
            self._map = None
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._direct is not None:
            self._direct.close()
            self._direct = None
        self._head = b""

    def _pread(self, offset: int, size: int) -> bytes:
        data = self._seek(offset).read(size)
        if len(data) < size:
            raise self._too_short(offset, size, len(data))
        return data

    def _read_into(self, room: memoryview, offset: int) -> None:
        done, file = 0, self._seek(offset)
        while done < len(room):  # a raw read may give less than was asked for
            n = file.readinto(room[done:])  # type: ignore[attr-defined]
            if not n:
                raise self._too_short(offset, len(room), done)
            done += n

    def _read_direct(self, offset: int, size: int) -> np.ndarray | None:
        """The bytes; None where direct reading turns out not to work, now and from now on."""
        assert self._direct is not None
        try:
            data = self._direct.read(offset, size)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EFAULT):
                raise GGUFError(
                    f"the file cannot be read: {error.strerror}", offset=offset, path=self.path
                ) from error
            self.fallback = f"the file system refuses direct reads ({error.strerror})"
            self._direct.close()
            self._direct = None
            return None
        if len(data) < size:
            raise self._too_short(offset, size, len(data))
        return data

    def _seek(self, offset: int) -> BinaryIO:
        if self._file is None:
            raise GGUFError("the file was closed; open it again", path=self.path)
        self._file.seek(offset)
        return self._file

    def _too_short(self, offset: int, wanted: int, got: int) -> GGUFError:
        return GGUFError(
            f"the file became shorter while it was read: wanted {wanted} bytes, got {got}",
            offset=offset,
            path=self.path,
        )


_NO_BYTES = np.frombuffer(b"", np.uint8)


def _directory_hint(folder: Path) -> str:
    """Say what to open instead of a directory."""
    try:
        names = sorted(p.name for p in folder.glob("*.gguf"))
    except OSError:
        names = []
    if names:
        more = f" (and {len(names) - 3} more)" if len(names) > 3 else ""
        return f"this is a directory; give a file in it: {', '.join(names[:3])}{more}"
    return "this is a directory, and no .gguf file lies in it; give the path of a .gguf file"
