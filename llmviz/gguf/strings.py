"""Arrays of strings in the header: found by a walk, decoded only when asked for.

A string is a length (8 bytes) and that many bytes; an array of them can only be walked one after
the other. `walk_strings` is that walk; a vocabulary has tens to hundreds of thousands of strings,
so stretches of short ones are found many at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import overload

import numpy as np

from llmviz.gguf.source import Source

__all__ = ["StringArray", "decode", "walk_strings"]

_LENGTH = struct.Struct("<Q")
_WINDOW = 1 << 16
_PATIENCE = 64
_AT_ONCE = 1 << 13


def decode(raw: bytes) -> str:
    """Decode a string value; bytes that are not UTF-8 become lone surrogates (PEP 383).

    ``text.encode("utf-8", "surrogateescape")`` gives the bytes back.
    """
    return raw.decode("utf-8", "surrogateescape")


def walk_strings(source: Source, start: int, n: int) -> tuple[np.ndarray, int]:
    """Find where each of ``n`` strings begins, without looking at their contents.

    Parameters
    ----------
    source : Source
        The file.
    start : int
        Offset of the first string's length.
    n : int
        Number of strings claimed; nothing is allocated for strings that are not there.

    Returns
    -------
    positions : int64[m + 1]
        Offsets of the length words of the strings found, and where the last one ends.
    m : int
        How many lie wholly within the file; ``m < n`` means that string ``m`` does not fit.
    """
    size, unpack = source.size, _LENGTH.unpack_from
    buffer = source.head(start + 8)
    have = len(buffer)
    chunks = [np.array([start], np.int64)]
    pos, found, patience = start, 0, _PATIENCE
    while found < n:
        # plain form of the walk: read a length, skip so many bytes
        ends: list[int] = []
        for _ in range(min(patience, n - found)):
            if pos + 8 > have:
                if pos + 8 > size:
                    break
                buffer = source.head(pos + 8)
                have = len(buffer)
            (length,) = unpack(buffer, pos)
            if length > size - pos - 8:
                break
            pos += 8 + length
            ends.append(pos)
        chunks.append(np.array(ends, np.int64))
        found += len(ends)
        if found < n and len(ends) < patience:
            break
        # then as many short ones as come in a row, a window at a time
        gained = 0
        while found < n and (run := _short_run(source, pos, n - found)).size:
            chunks.append(run)
            gained += run.size
            found += run.size
            pos = int(run[-1])
        # where that does not pay (long or empty strings), try it less often
        patience = _PATIENCE if gained > _PATIENCE else min(2 * patience, _WINDOW)
    return np.concatenate(chunks), found


def _short_run(source: Source, pos: int, limit: int) -> np.ndarray:
    """Ends of the next strings, as far as each is under 256 bytes and within one window.

    A length below 256 is one byte and seven zeros. All places that look so are found at once; they
    are the true string starts as far as each one's end is the next place.
    """
    stop = min(pos + _WINDOW, source.size)
    window = np.frombuffer(source.head(stop), np.uint8, stop - pos, pos)
    zero = window == 0
    zero = zero[:-1] & zero[1:]  # two zeros in a row start here
    zero = zero[:-2] & zero[2:]  # four
    zero = zero[:-3] & zero[3:]  # seven
    place = np.flatnonzero(zero[1:])  # [k] candidates: seven zeros follow this byte
    if place.size == 0 or place[0] != 0:
        return place[:0]
    end = place + 8 + window[place]
    chained = end[:-1] == place[1:]
    k = int(chained.size if chained.all() else chained.argmin())
    # the last candidate's end has no next place to prove it right, so it is left for the next run
    return pos + end[: min(k, limit)]


class StringArray(Sequence[str]):
    """A header's array of strings; each is decoded when it is asked for.

    Parameters
    ----------
    source : Source
        The file.
    positions : int64[n + 1]
        What `walk_strings` returned.
    """

    __slots__ = ("_source", "positions")

    def __init__(self, source: Source, positions: np.ndarray) -> None:
        self._source = source
        self.positions = positions

    def __len__(self) -> int:
        return len(self.positions) - 1

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        if isinstance(i, slice):
            return [decode(self.raw(j)) for j in range(*i.indices(len(self)))]
        return decode(self.raw(i))

    def __iter__(self) -> Iterator[str]:
        return map(decode, self.raws())

    def __repr__(self) -> str:
        more = ", ..." if len(self) > 3 else ""
        return f"StringArray([{', '.join(map(repr, self[:3]))}{more}], n={len(self)})"

    def raw(self, i: int) -> bytes:
        """Return the bytes of string ``i``."""
        n = len(self)
        if not -n <= i < n:
            raise IndexError(f"string {i} of an array of {n}")
        if i < 0:
            i += n
        begin, end = int(self.positions[i]) + 8, int(self.positions[i + 1])
        return self._source.read(begin, end - begin)

    def raws(self) -> list[bytes]:
        """Return the bytes of all strings; the quick way to read a whole vocabulary."""
        raws: list[bytes] = []
        for start in range(
            0, len(self), _AT_ONCE
        ):  # not all at once: memory that is not given back
            positions = self.positions[start : start + _AT_ONCE + 1]
            first = int(positions[0])
            blob = self._source.read(first, int(positions[-1]) - first)
            ends = (positions - first).tolist()
            raws += [blob[a + 8 : b] for a, b in pairwise(ends)]
        return raws
