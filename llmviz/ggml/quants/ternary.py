"""Values that are -1, 0 or 1 times one scale, for models trained that way. ↔ ggml/src/ggml-quants.c

TQ2_0 spends two bits on each. TQ1_0 puts five into a byte (3**5 = 243 < 256): the byte is the
fraction ``n / 243`` of 256, rounded up, so that multiplying by 3 pushes out one digit after the
other, and no division is needed to read it.
"""

from __future__ import annotations

import numpy as np

from llmviz.ggml.quants.base import QuantType
from llmviz.ggml.quants.rounding import inverse, round_away, truncate
from llmviz.ggml.types import GGMLType

__all__ = ["TQ1_0", "TQ2_0"]

_POWERS = np.array([1, 3, 9, 27, 81], np.uint8)


def _digits(packed: np.ndarray, n: int) -> np.ndarray:
    """The first n base-3 digits of bytes: uint8[n_blocks, k] -> uint8[n_blocks, n, k]."""
    moved = packed[:, None, :] * _POWERS[:n, None]  # wraps: the digits before are pushed out
    return (moved.astype(np.uint16) * 3 >> 8).astype(np.uint8)


def _packed(digits: np.ndarray) -> np.ndarray:
    """The way back: [n_blocks, n, k] -> uint8[n_blocks, k]."""
    number = np.zeros((digits.shape[0], digits.shape[2]), np.uint16)
    for i in range(5):
        number = number * 3 + (digits[:, i] if i < digits.shape[1] else 0)
    return (((number & 0xFF) * 256 + 242) // 243).astype(np.uint8)


def _ternary(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales [n] and digits uint8[n, 256]."""
    d = np.abs(values).max(axis=1, keepdims=True)  # [n, 1]
    return d[:, 0], (truncate(round_away(values * inverse(d))) + 1).astype(np.uint8)


class TQ1_0(QuantType):
    """Five values in a byte, 54 bytes per 256 values (1.6875 bits per weight).

    ======  =====  ======================================================
    field   bytes  holds
    ======  =====  ======================================================
    ``qs``     48  240 numbers from 0 to 2: bytes 0-31 hold values 0-159
                   (byte i: i, i+32, ... i+128), bytes 32-47 the next 80
    ``qh``      4  the last 16 numbers, four a byte
    ``d``       2  scale, a half float
    ======  =====  ======================================================

    ``value = d * (q - 1)``
    """

    type = GGMLType.TQ1_0
    block_dtype = np.dtype([("qs", "u1", 48), ("qh", "u1", 4), ("d", "<f2")])
    zero = 1
    levels = 3

    @classmethod
    def codes(cls, blocks: np.ndarray) -> np.ndarray:
        n, qs = len(blocks), blocks["qs"]
        q = np.empty((n, 256), np.uint8)
        q[:, :160] = _digits(qs[:, :32], 5).reshape(n, 160)
        q[:, 160:240] = _digits(qs[:, 32:], 5).reshape(n, 80)
        q[:, 240:] = _digits(blocks["qh"], 4).reshape(n, 16)
        return q

    @classmethod
    def held_in(cls, blocks: np.ndarray) -> list[np.ndarray]:
        """The byte of each value."""
        qs, qh = blocks["qs"], blocks["qh"]
        return [np.concatenate([*[qs[:, :32]] * 5, *[qs[:, 32:]] * 5, *[qh] * 4], axis=1)]

    @classmethod
    def scales(cls, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return blocks["d"].astype(np.float32)[:, None], None

    @classmethod
    def quantize_blocks(cls, values: np.ndarray) -> np.ndarray:
        blocks = np.empty(len(values), cls.block_dtype)
        blocks["d"], q = _ternary(values)
        blocks["qs"][:, :32] = _packed(q[:, :160].reshape(-1, 5, 32))
        blocks["qs"][:, 32:] = _packed(q[:, 160:240].reshape(-1, 5, 16))
        blocks["qh"] = _packed(q[:, 240:].reshape(-1, 4, 4))
        return blocks


class TQ2_0(QuantType):
    """Two bits per value, 66 bytes per 256 values (2.0625 bits per weight).

    ======  =====  ======================================================
    field   bytes  holds
    ======  =====  ======================================================
    ``qs``     64  256 numbers from 0 to 3 (3 is not written): byte i of
                   each 32 holds values i, i+32, i+64, i+96 of its 128
    ``d``       2  scale, a half float
    ======  =====  ======================================================

    ``value = d * (q - 1)``
    """

    type = GGMLType.TQ2_0
    block_dtype = np.dtype([("qs", "u1", 64), ("d", "<f2")])
    zero = 1
    levels = 4

    @classmethod
    def codes(cls, blocks: np.ndarray) -> np.ndarray:
        qs = blocks["qs"].reshape(-1, 2, 1, 32)
        return (qs >> np.arange(0, 8, 2, dtype=np.uint8)[:, None] & 3).reshape(-1, 256)

    @classmethod
    def scales(cls, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return blocks["d"].astype(np.float32)[:, None], None

    @classmethod
    def quantize_blocks(cls, values: np.ndarray) -> np.ndarray:
        blocks = np.empty(len(values), cls.block_dtype)
        blocks["d"], q = _ternary(values)
        q = (q & 3).reshape(-1, 2, 4, 32)
        packed = q[:, :, 0] | q[:, :, 1] << 2 | q[:, :, 2] << 4 | q[:, :, 3] << 6
        blocks["qs"] = packed.reshape(-1, 64)
        return blocks
