"""Types without blocks: every value stands for itself. ↔ ggml/src/ggml-impl.h, ggml.c

The integer types and F64 hold tables rather than weights; here they come out as float32 like the
rest, rounded where a float32 cannot hold them.
"""

from __future__ import annotations

import numpy as np

from llmviz.ggml.quants.base import QuantType
from llmviz.ggml.types import GGMLType

__all__ = ["BF16", "F16", "F32", "F64", "I8", "I16", "I32", "I64"]


class _Plain(QuantType):
    """A numpy dtype."""

    @classmethod
    def dequantize_blocks(cls, blocks: np.ndarray, out: np.ndarray) -> None:
        out[:, 0] = blocks


class F32(_Plain):
    """32-bit floats: nothing to decode.

    ``dequantize`` without `out` returns the bytes themselves, seen as floats (no copy), where they
    are aligned; so the result may be read-only.
    """

    type = GGMLType.F32
    block_dtype = np.dtype("<f4")

    @classmethod
    def dequantize(cls, raw: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """See `QuantType.dequantize`; without `out` a view of `raw` where it can be."""
        values = cls.blocks(raw)
        if out is None and values.flags.aligned and values.dtype.isnative:
            return values
        return super().dequantize(raw, out)

    @classmethod
    def quantize_blocks(cls, values: np.ndarray) -> np.ndarray:
        return values[:, 0]


class F16(_Plain):
    """IEEE half floats: 1 sign bit, 5 bits of exponent, 10 of fraction; up to 65504."""

    type = GGMLType.F16
    block_dtype = np.dtype("<f2")

    @classmethod
    def quantize_blocks(cls, values: np.ndarray) -> np.ndarray:
        return values[:, 0].astype("<f2")


class BF16(QuantType):
    """The upper half of a 32-bit float: same range, only 7 bits of fraction.

    Decoding puts 16 zero bits behind.
    """

    type = GGMLType.BF16
    block_dtype = np.dtype("<u2")

    @classmethod
    def dequantize_blocks(cls, blocks: np.ndarray, out: np.ndarray) -> None:
        bits = out.view(np.uint32)[:, 0]
        bits[:] = blocks
        bits <<= 16

    @classmethod
    def quantize_blocks(cls, values: np.ndarray) -> np.ndarray:
        bits = np.ascontiguousarray(values).view(np.uint32)[:, 0]
        upper = bits >> 16
        rounded = bits + (0x7FFF + (upper & 1)) >> 16  # to nearest, ties to even
        quiet = upper | 64  # a NaN stays one
        return np.where(np.isnan(values[:, 0]), quiet, rounded).astype("<u2")


class F64(_Plain):
    """64-bit floats; of one that float32 cannot hold, the nearest that it can."""

    type = GGMLType.F64
    block_dtype = np.dtype("<f8")


class I8(_Plain):
    """Integers from -128 to 127."""

    type = GGMLType.I8
    block_dtype = np.dtype("i1")


class I16(_Plain):
    """Integers from -32768 to 32767."""

    type = GGMLType.I16
    block_dtype = np.dtype("<i2")


class I32(_Plain):
    """32-bit integers; beyond 2**24 the nearest float32."""

    type = GGMLType.I32
    block_dtype = np.dtype("<i4")


class I64(_Plain):
    """64-bit integers; beyond 2**24 the nearest float32."""

    type = GGMLType.I64
    block_dtype = np.dtype("<i8")
