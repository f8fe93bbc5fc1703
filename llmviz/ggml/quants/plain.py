"""Types without blocks: every value stands for itself. ↔ ggml/src/ggml-impl.h"""

from __future__ import annotations

import numpy as np

from llmviz.ggml.quants.base import QuantType
from llmviz.ggml.types import GGMLType

__all__ = ["BF16", "F16", "F32"]


class F32(QuantType):
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
    def dequantize_blocks(cls, blocks: np.ndarray, out: np.ndarray) -> None:
        out[:, 0] = blocks


class F16(QuantType):
    """IEEE half floats: 1 sign bit, 5 bits of exponent, 10 of fraction; up to 65504."""

    type = GGMLType.F16
    block_dtype = np.dtype("<f2")

    @classmethod
    def dequantize_blocks(cls, blocks: np.ndarray, out: np.ndarray) -> None:
        out[:, 0] = blocks


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
