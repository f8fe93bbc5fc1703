"""One or two bits per value and one scale. ↔ ggml/src/ggml-quants.c (q1_0, q2_0)"""

from __future__ import annotations

import numpy as np

from llmviz.ggml.quants.base import QuantType
from llmviz.ggml.quants.rounding import inverse, round_away, total, truncate
from llmviz.ggml.types import GGMLType

__all__ = ["Q1_0", "Q2_0"]


class Q1_0(QuantType):
    """1 bit per value, 18 bytes per 128 values (1.125 bits per weight): only the sign is kept.

    ======  =====  ======================================================
    field   bytes  holds
    ======  =====  ======================================================
    ``d``       2  scale, a half float
    ``qs``     16  the signs, bit i of byte k for value 8 k + i
    ======  =====  ======================================================

    ``value = d * q`` with q 1 where the bit is set, else -1
    """

    type = GGMLType.Q1_0
    block_dtype = np.dtype([("d", "<f2"), ("qs", "u1", 16)])
    table = (-1, 1)

    @classmethod
    def codes(cls, blocks: np.ndarray) -> np.ndarray:
        bits = np.unpackbits(blocks["qs"], axis=1, bitorder="little")  # [n, 128]
        return 2 * bits.astype(np.int8) - 1

    @classmethod
    def scales(cls, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return blocks["d"].astype(np.float32)[:, None], None

    @classmethod
    def quantize_blocks(cls, values: np.ndarray) -> np.ndarray:
        blocks = np.empty(len(values), cls.block_dtype)
        blocks["d"] = total(np.abs(values)) / np.float32(128)
        blocks["qs"] = np.packbits(values >= 0, axis=1, bitorder="little")
        return blocks


class Q2_0(QuantType):
    """2 bits per value, 18 bytes per 64 values (2.25 bits per weight).

    ======  =====  ======================================================
    field   bytes  holds
    ======  =====  ======================================================
    ``d``       2  scale, a half float
    ``qs``     16  numbers from 0 to 3, four a byte, the first lowest
    ======  =====  ======================================================

    ``value = d * (q - 1)``
    """

    type = GGMLType.Q2_0
    block_dtype = np.dtype([("d", "<f2"), ("qs", "u1", 16)])
    zero = 1
    levels = 4

    @classmethod
    def codes(cls, blocks: np.ndarray) -> np.ndarray:
        shifts = np.arange(0, 8, 2, dtype=np.uint8)
        return (blocks["qs"][:, :, None] >> shifts & 3).reshape(-1, 64)  # [n, 16, 4]

    @classmethod
    def scales(cls, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return blocks["d"].astype(np.float32)[:, None], None

    @classmethod
    def quantize_blocks(cls, values: np.ndarray) -> np.ndarray:
        d = np.abs(values).max(axis=1, keepdims=True)  # [n, 1]
        q = truncate(round_away(values * inverse(d))) + 1
        q = np.clip(q, 0, 3).astype(np.uint8).reshape(-1, 16, 4)
        blocks = np.empty(len(values), cls.block_dtype)
        blocks["d"] = d[:, 0]
        blocks["qs"] = q[:, :, 0] | q[:, :, 1] << 2 | q[:, :, 2] << 4 | q[:, :, 3] << 6
        return blocks
