"""How the bytes of a model's weights get into memory, and what became of what was asked for.

↔ include/llama.h (llama_load_mode), src/llama-model.cpp (load_tensors)
"""

from __future__ import annotations

import warnings

import numpy as np

from llmviz.errors import UnsupportedError
from llmviz.gguf import GGUF
from llmviz.gguf.lock import MemoryLock

__all__ = ["LOAD_MODES", "LoadMode"]

LOAD_MODES = {
    "auto": "mapped where the system can, else read",
    "mmap": "mapped: pages of the file are its memory, and come when they are looked at",
    "mlock": "read into memory that is never swapped out",
    "mmap+mlock": "mapped, and never swapped out",
    "dio": "read past the system's page cache",
    "none": "read into memory",
}
"""The modes by llama.cpp's names, and what each means."""


class LoadMode:
    """A mode that was asked for, on its way through a load.

    Parameters
    ----------
    asked : str
        One of `LOAD_MODES`.

    Attributes
    ----------
    name : str
        What it became: never ``"auto"``, and without what the system refused.
    notes : list of str
        Why it is another than was asked for, a sentence each.

    Raises
    ------
    UnsupportedError
        No mode has this name.
    """

    def __init__(self, asked: str) -> None:
        if not isinstance(asked, str) or asked not in LOAD_MODES:
            raise UnsupportedError("load_mode", str(asked), supported=LOAD_MODES)
        self.asked = asked
        self.name = asked
        self.notes: list[str] = []
        self._lock = MemoryLock() if "mlock" in asked else None

    def __repr__(self) -> str:
        asked = "" if self.name == self.asked else f", {self.asked!r} was asked for"
        return f"<LoadMode {self.name!r}{asked}>"

    @property
    def use_mmap(self) -> bool:
        """Whether the file is to be mapped."""
        return self.asked in ("auto", "mmap", "mmap+mlock")

    @property
    def direct(self) -> bool:
        """Whether it is to be read past the page cache."""
        return self.asked == "dio"

    @property
    def locked(self) -> int:
        """Bytes of weights that are locked in memory."""
        return self._lock.size if self._lock is not None else 0

    @property
    def meaning(self) -> str:
        """What the mode that it became means."""
        return LOAD_MODES[self.name]

    def opened(self, gguf: GGUF) -> None:
        """Take note of how the file could be opened."""
        if self.use_mmap and not gguf.is_mapped:
            self._become({"mmap+mlock": "mlock"}.get(self.asked, "none"), gguf.fallback)
        elif self.asked == "auto":
            self.name = "mmap"
        self.check_direct(gguf)

    def check_direct(self, gguf: GGUF) -> None:
        """Take note where direct reads turned out not to work."""
        if self.name == "dio" and not all(part.is_direct for part in gguf.parts):
            self._become("none", gguf.fallback)

    def keep(self, array: np.ndarray | None) -> None:
        """Lock the memory of a weight where the mode says so."""
        if array is None or self._lock is None or self._lock.failed:
            return
        if not self._lock.lock(array):
            self._become("mmap" if self.name == "mmap+mlock" else "none", self._lock.failed)

    def _become(self, name: str, why: str) -> None:
        self.name = name
        if why:
            self.notes.append(why)
        if self.asked != "auto":
            warnings.warn(f"load_mode={self.asked!r} became {name!r}: {why}", stacklevel=2)
