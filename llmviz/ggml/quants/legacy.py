"""The first quantized types: blocks of 32 values. ↔ ggml/src/ggml-common.h, ggml-quants.c

Names: Q, bits per value, then _0 for "value = scale * q" or _1 for "value = scale * q + minimum"
(Q8_1 is named so, but keeps a sum there instead of a minimum).
Values 0 to 15 of a block lie in the low halves (nibbles) of its 16 bytes `qs`, values 16 to 31 in
the high halves: one shift unpacks 16 values at once.
"""

from __future__ import annotations

import numpy as np

from llmviz.ggml.quants.base import QuantType
from llmviz.ggml.quants.rounding import inverse, pack_nibbles, peak, round_away, truncate
from llmviz.ggml.types import GGMLType

__all__ = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q8_1"]


def _scale(half: np.ndarray) -> np.ndarray:
    """Turn a field of half floats into a float32 column: f16[n] -> f32[n, 1]."""
    return half.astype(np.float32)[:, None]


def _codes(blocks: np.ndarray) -> np.ndarray:
    """Unpack 4 bits from `qs`, and a fifth from `qh` where there is one: bit i of qh, value i."""
    q = np.empty((len(blocks), 32), np.uint8)  # [n, 32]
    np.bitwise_and(blocks["qs"], 0x0F, out=q[:, :16])
    np.right_shift(blocks["qs"], 4, out=q[:, 16:])
    if "qh" in (blocks.dtype.names or ()):
        high = np.unpackbits(blocks["qh"], axis=1, bitorder="little")  # [n, 4] -> [n, 32]
        high <<= 4
        q |= high
    return q


def _unpack(blocks: np.ndarray, out: np.ndarray) -> None:
    """`_codes`, written as floats: straight from the nibbles where these are all."""
    if "qh" in (blocks.dtype.names or ()):
        out[...] = _codes(blocks)
        return
    qs = blocks["qs"]  # [n, 16]
    out[:, :16] = qs & 0x0F
    out[:, 16:] = qs >> 4


def _packed(dtype: np.dtype, q: np.ndarray, **fields: np.ndarray) -> np.ndarray:
    """Blocks of codes [n, 32] and of the other fields [n, 1]: the way back from `_codes`."""
    blocks = np.zeros(len(q), dtype)
    q = q.astype(np.uint8)
    blocks["qs"] = pack_nibbles(q)
    if "qh" in (dtype.names or ()):
        blocks["qh"] = np.packbits(q >> 4 & 1, axis=1, bitorder="little")
    for name, value in fields.items():
        blocks[name] = value[:, 0]
    return blocks


def _centred(dtype: np.dtype, values: np.ndarray, zero: int) -> np.ndarray:
    """Quantize to ``d * (q - zero)``: the value furthest from zero gets the code 0."""
    d = peak(values)[:, None] / np.float32(-zero)  # [n, 1]
    shifted = values * inverse(d) + np.float32(zero + 0.5)
    q = np.minimum(truncate(shifted).astype(np.int8), 2 * zero - 1)
    return _packed(dtype, q, d=d)


def _from_minimum(dtype: np.dtype, values: np.ndarray, top: int) -> np.ndarray:
    """Quantize to ``d * q + m``: the smallest value gets the code 0, the largest `top`."""
    low = values.min(axis=1, keepdims=True)
    low = np.where(low == 0, _first_zero(values), low)  # C keeps the sign of the first zero
    d = np.abs(values.max(axis=1, keepdims=True) - low) / np.float32(top)  # [n, 1], never -0
    q = truncate((values - low) * inverse(d) + np.float32(0.5))
    return _packed(dtype, np.minimum(q, top), d=d, m=low)


def _first_zero(values: np.ndarray) -> np.ndarray:
    """Of zeros that are equal and differ in sign, the first of each row: [n, 32] -> [n, 1]."""
    at = np.argmax(values == 0, axis=1)[:, None]
    return np.take_along_axis(values, at, axis=1)


def _eight_bits_as_stored(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales [n, 1] and codes [n, 32] as ggml's x86 code finds them."""
    top = np.abs(values).max(axis=1, keepdims=True)  # [n, 1]
    factor = np.where(top != 0, np.float32(127) / top, np.float32(0))
    return top / np.float32(127), np.rint(values * factor)


class _Centred(QuantType):
    """``value = d * (q - zero)``."""

    @classmethod
    def codes(cls, blocks: np.ndarray) -> np.ndarray:
        return _codes(blocks)

    @classmethod
    def scales(cls, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return _scale(blocks["d"]), None

    @classmethod
    def dequantize_blocks(cls, blocks: np.ndarray, out: np.ndarray) -> None:
        _unpack(blocks, out)
        out -= cls.zero
        np.multiply(_scale(blocks["d"]), out, out=out)  # [n, 1] * [n, 32]

    @classmethod
    def quantize_blocks(cls, values: np.ndarray) -> np.ndarray:
        return _centred(cls.block_dtype, values, cls.zero)


class _WithMinimum(QuantType):
    """``value = d * q + m``."""

    @classmethod
    def codes(cls, blocks: np.ndarray) -> np.ndarray:
        return _codes(blocks)

    @classmethod
    def scales(cls, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return _scale(blocks["d"]), _scale(blocks["m"])

    @classmethod
    def dequantize_blocks(cls, blocks: np.ndarray, out: np.ndarray) -> None:
        _unpack(blocks, out)
        np.multiply(_scale(blocks["d"]), out, out=out)  # [n, 1] * [n, 32]
        out += _scale(blocks["m"])

    @classmethod
    def quantize_blocks(cls, values: np.ndarray) -> np.ndarray:
        return _from_minimum(cls.block_dtype, values, cls.levels - 1)


class Q4_0(_Centred):
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
    zero = 8
    levels = 16


class Q4_1(_WithMinimum):
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
    levels = 16


class Q5_0(_Centred):
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
    zero = 16
    levels = 32


class Q5_1(_WithMinimum):
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
    levels = 32


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
    levels = 256

    @classmethod
    def codes(cls, blocks: np.ndarray) -> np.ndarray:
        return blocks["qs"]

    @classmethod
    def scales(cls, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return _scale(blocks["d"]), None

    @classmethod
    def quantize_blocks(cls, values: np.ndarray) -> np.ndarray:
        d = np.abs(values).max(axis=1, keepdims=True) / np.float32(127)  # [n, 1]
        return cls._of(d, round_away(values * inverse(d)))

    @classmethod
    def store_blocks(cls, values: np.ndarray) -> np.ndarray:
        """Encode as ggml's x86 code does: other roundings than the reference, so other bits.

        It divides 127 by the largest value instead of 1 by the scale, and rounds ties to even.
        """
        return cls._of(*_eight_bits_as_stored(values))

    @classmethod
    def _of(cls, d: np.ndarray, q: np.ndarray) -> np.ndarray:
        blocks = np.empty(len(q), cls.block_dtype)
        blocks["d"] = d[:, 0]
        blocks["qs"] = truncate(q)
        return blocks


class Q8_1(QuantType):
    """8 bits per value and their sum, 36 bytes per 32 values: what activations become.

    ======  =====  ======================================================
    field   bytes  holds
    ======  =====  ======================================================
    ``d``       2  scale, a half float
    ``s``       2  ``d`` times the sum of the codes, a half float
    ``qs``     32  32 numbers from -128 to 127
    ======  =====  ======================================================

    ``value = d * q``. The sum saves a dot product with a minimum from adding up the codes again.
    No model file needs it, and llama.cpp cannot decode it; a file may hold it all the same.
    """

    type = GGMLType.Q8_1
    block_dtype = np.dtype([("d", "<f2"), ("s", "<f2"), ("qs", "i1", 32)])
    levels = 256

    @classmethod
    def codes(cls, blocks: np.ndarray) -> np.ndarray:
        return blocks["qs"]

    @classmethod
    def scales(cls, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return _scale(blocks["d"]), None

    @classmethod
    def quantize_blocks(cls, values: np.ndarray) -> np.ndarray:
        d = np.abs(values).max(axis=1, keepdims=True) / np.float32(127)  # [n, 1]
        return cls._of(d, round_away(values * inverse(d)))

    @classmethod
    def store_blocks(cls, values: np.ndarray) -> np.ndarray:
        """See `Q8_0.store_blocks`."""
        return cls._of(*_eight_bits_as_stored(values))

    @classmethod
    def _of(cls, d: np.ndarray, q: np.ndarray) -> np.ndarray:
        blocks = np.empty(len(q), cls.block_dtype)
        blocks["d"] = d[:, 0]
        blocks["qs"] = truncate(q)
        blocks["s"] = blocks["qs"].sum(axis=1, dtype=np.int32).astype(np.float32) * d[:, 0]
        return blocks
