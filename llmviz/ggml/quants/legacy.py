"""The first quantized types: blocks of 32 values. ↔ ggml/src/ggml-common.h, ggml-quants.c

Names: Q, bits per value, then _0 for "value = scale * q" or _1 for "value = scale * q + minimum".
Values 0 to 15 of a block lie in the low halves (nibbles) of its 16 bytes `qs`, values 16 to 31 in
the high halves: one shift unpacks 16 values at once.
"""

from __future__ import annotations

import numpy as np

from llmviz.ggml.quants.base import QuantType
from llmviz.ggml.types import GGMLType

__all__ = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]


def _scale(half: np.ndarray) -> np.ndarray:
    """Turn a field of half floats into a float32 column: f16[n] -> f32[n, 1]."""
    return half.astype(np.float32)[:, None]


def _five_bits(blocks: np.ndarray, out: np.ndarray) -> None:
    """Put together 4 bits from `qs` and the fifth from `qh`: bit i of qh belongs to value i."""
    n = len(blocks)
    q = np.empty((n, 32), np.uint8)  # [n, 32]
    np.bitwise_and(blocks["qs"], 0x0F, out=q[:, :16])
    np.right_shift(blocks["qs"], 4, out=q[:, 16:])
    high = np.unpackbits(blocks["qh"], axis=1, bitorder="little")  # [n, 4] -> [n, 32]
    high <<= 4
    q |= high
    out[...] = q  # [n, 32], 0..31


class Q4_0(QuantType):
    """4 bits per value, 18 bytes per 32 values (4.5 bits per weight).

    ======  =====  ======================================================
    field   bytes  holds
    ======  =====  ======================================================
    ``d``       2  scale, a half float
    ``qs``     16  32 numbers from 0 to 15; 8 stands for zero
    ======  =====  ======================================================

    ``value = d * (q - 8)``
    """

    type = GGMLType.Q4_0
    block_dtype = np.dtype([("d", "<f2"), ("qs", "u1", 16)])

    @classmethod
    def dequantize_blocks(cls, blocks: np.ndarray, out: np.ndarray) -> None:
        qs = blocks["qs"]  # [n, 16]
        out[:, :16] = qs & 0x0F
        out[:, 16:] = qs >> 4
        out -= 8
        np.multiply(_scale(blocks["d"]), out, out=out)  # [n, 1] * [n, 32]


class Q4_1(QuantType):
    """4 bits per value and a minimum, 20 bytes per 32 values (5 bits per weight).

    ======  =====  ======================================================
    field   bytes  holds
    ======  =====  ======================================================
    ``d``       2  scale, a half float
    ``m``       2  minimum of the block, a half float
    ``qs``     16  32 numbers from 0 to 15
    ======  =====  ======================================================

    ``value = d * q + m``
    """

    type = GGMLType.Q4_1
    block_dtype = np.dtype([("d", "<f2"), ("m", "<f2"), ("qs", "u1", 16)])

    @classmethod
    def dequantize_blocks(cls, blocks: np.ndarray, out: np.ndarray) -> None:
        qs = blocks["qs"]  # [n, 16]
        out[:, :16] = qs & 0x0F
        out[:, 16:] = qs >> 4
        np.multiply(_scale(blocks["d"]), out, out=out)  # [n, 1] * [n, 32]
        out += _scale(blocks["m"])


class Q5_0(QuantType):
    """5 bits per value, 22 bytes per 32 values (5.5 bits per weight).

    ======  =====  ======================================================
    field   bytes  holds
    ======  =====  ======================================================
    ``d``       2  scale, a half float
    ``qh``      4  the fifth bit of each value, bit i for value i
    ``qs``     16  the lower four bits of each value
    ======  =====  ======================================================

    ``value = d * (q - 16)`` with q from 0 to 31
    """

    type = GGMLType.Q5_0
    block_dtype = np.dtype([("d", "<f2"), ("qh", "u1", 4), ("qs", "u1", 16)])

    @classmethod
    def dequantize_blocks(cls, blocks: np.ndarray, out: np.ndarray) -> None:
        _five_bits(blocks, out)
        out -= 16
        np.multiply(_scale(blocks["d"]), out, out=out)  # [n, 1] * [n, 32]


class Q5_1(QuantType):
    """5 bits per value and a minimum, 24 bytes per 32 values (6 bits per weight).

    ======  =====  ======================================================
    field   bytes  holds
    ======  =====  ======================================================
    ``d``       2  scale, a half float
    ``m``       2  minimum of the block, a half float
    ``qh``      4  the fifth bit of each value, bit i for value i
    ``qs``     16  the lower four bits of each value
    ======  =====  ======================================================

    ``value = d * q + m`` with q from 0 to 31
    """

    type = GGMLType.Q5_1
    block_dtype = np.dtype([("d", "<f2"), ("m", "<f2"), ("qh", "u1", 4), ("qs", "u1", 16)])

    @classmethod
    def dequantize_blocks(cls, blocks: np.ndarray, out: np.ndarray) -> None:
        _five_bits(blocks, out)
        np.multiply(_scale(blocks["d"]), out, out=out)  # [n, 1] * [n, 32]
        out += _scale(blocks["m"])


class Q8_0(QuantType):
    """8 bits per value, 34 bytes per 32 values (8.5 bits per weight).

    ======  =====  ======================================================
    field   bytes  holds
    ======  =====  ======================================================
    ``d``       2  scale, a half float
    ``qs``     32  32 numbers from -128 to 127
    ======  =====  ======================================================

    ``value = d * q``. Activations are quantized to this type too before a matrix product.
    """

    type = GGMLType.Q8_0
    block_dtype = np.dtype([("d", "<f2"), ("qs", "i1", 32)])

    @classmethod
    def dequantize_blocks(cls, blocks: np.ndarray, out: np.ndarray) -> None:
        out[...] = blocks["qs"]
        out *= _scale(blocks["d"])  # [n, 32] * [n, 1]
