"""Arrays of a recorded run, packed for a page: attention of all layers, and tensors."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from llmviz.trace import Trace

__all__ = ["Arrays", "attention_of"]


class Arrays:
    """Arrays one after the other in four-byte words.

    Attributes
    ----------
    tensors : dict of str to list
        By event number: [first word, shape, dtype as the engine has it, whether whole numbers,
        how many columns are there: the others are 0].
    """

    def __init__(self) -> None:
        self.tensors: dict[str, list[Any]] = {}
        self._parts: list[np.ndarray] = []
        self._words = 0
        self._packed: bytes | None = None
        self._blocks: dict[int, tuple[int, tuple[int, ...]]] = {}

    def add(self, x: np.ndarray) -> int:
        """Append an array of four-byte numbers; its first word."""
        assert x.dtype.itemsize == 4
        first = self._words
        self._parts.append(np.ascontiguousarray(x).reshape(-1).view(np.uint32))
        self._words += x.size
        self._packed = None
        return first

    def add_tensor(self, n: int, x: np.ndarray, first: int | None = None, there: int = 0) -> None:
        """The value of event n; `first` where its first `there` columns are there already."""
        whole = x.dtype.kind in "iub"
        if first is None:
            first = self.add(x.astype(np.int32 if whole else np.float32))
            there = x.shape[-1] if x.ndim else 1
        self.tensors[str(n)] = [first, list(x.shape), str(x.dtype), whole, there]

    def add_attention(self, n: int, x: np.ndarray) -> bool:
        """The value of event n where its columns that are not 0 are a block; whether that is so."""
        at, shape = self._blocks.get(n, (0, ()))
        there = shape[-1] if shape else 0
        if x.ndim != 3 or x.shape[:2] != shape[:2] or x.shape[-1] < there or x[..., there:].any():
            return False
        self.add_tensor(n, x, at, there)
        return True

    def add_block(self, n: int, p: np.ndarray) -> int:
        """A block of attention that event n has left, float32 [heads, queries, keys]."""
        first = self.add(p)
        self._blocks[n] = (first, p.shape)
        return first

    def add_tensors(self, wanted: list[tuple[int, np.ndarray]], room: int) -> int:
        """As many of them as `room` bytes hold, the small ones first; how many were left out.

        A float64 or an int64 that four bytes do not hold exactly is left out too.
        """
        left = 0
        for n, x in sorted(wanted, key=lambda w: (w[1].size, w[0])):
            if self.add_attention(n, x):
                continue
            need = x.size * 5  # in base64, and hardly any smaller than before
            if need > room or not _exact(x):
                left += 1
                continue
            room -= need
            self.add_tensor(n, x)
        return left

    def packed(self) -> bytes:
        """All words, byte by byte (first all lowest bytes), compressed."""
        if self._packed is None:
            words = np.concatenate(self._parts) if self._parts else np.empty(0, np.uint32)
            planes = words.astype("<u4").view(np.uint8).reshape(-1, 4).T
            self._packed = zlib.compress(np.ascontiguousarray(planes).tobytes(), 6)
        return self._packed

    def packed_size(self) -> int:
        """Bytes that it takes in a page."""
        return -(-len(self.packed()) // 3) * 4


def _exact(x: np.ndarray) -> bool:
    if x.dtype.kind == "f":
        return x.dtype.itemsize <= 4 or np.array_equal(x, x.astype(np.float32), equal_nan=True)
    return x.dtype.itemsize < 4 or bool((np.abs(x.astype(np.float64)) < 2**31).all())


def attention_of(trace: Trace, room: int) -> tuple[Arrays, dict[str, Any], int]:
    """Attention of as many layers as there is room for, evenly over the model.

    Returns
    -------
    (Arrays, dict, int)
        By layer, blocks ``{n, q, k, heads, at}``: event, positions of queries and keys, heads, and
        the first word of float32 [heads, queries, keys]; and how many layers are held in all.
    """
    held = trace.recorder.attention
    layers = sorted(held)
    for every in range(1, len(layers) + 1):
        chosen = layers[:: every or 1]
        words = sum(b.p.size for il in chosen for b in held[il])
        if every == 1 and words * 4 > room * 4:
            continue  # far too many: nothing is packed to find out
        out, blocks = Arrays(), {}
        for il in chosen:
            blocks[str(il)] = [_block(out, b) for b in held[il]]
        if out.packed_size() <= room:
            return out, blocks, len(layers)
    return Arrays(), {}, len(layers)


def _block(out: Arrays, b: Any) -> dict[str, Any]:
    p = np.ascontiguousarray(b.p, np.float32)
    return {
        "n": int(b.n),
        "q": b.q_pos.tolist(),
        "k": b.k_pos.tolist(),
        "heads": int(p.shape[0]),
        "at": out.add_block(b.n, p),
    }
