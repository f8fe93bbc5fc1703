"""Less than two bits per value: groups of eight from -1, 0 and 1. ↔ ggml-quants.c (iq1_s, iq1_m)

A group comes from a grid of 2048, and one more bit shifts all of it up or down by an eighth. The
codes here are in eighths, so that they are integers: 8 * (-1, 0 or 1) plus or minus 1.
"""

from __future__ import annotations

import numpy as np

from llmviz.ggml.quants.base import QuantType
from llmviz.ggml.quants.iq_grids import grid
from llmviz.ggml.types import GGMLType

__all__ = ["IQ1_M", "IQ1_S"]

_TABLE = (-9, -7, -1, 1, 7, 9)


class _Shifted(QuantType):
    """A subclass writes `index`, `minus` and `scales`."""

    @classmethod
    def index(cls, blocks: np.ndarray) -> np.ndarray:
        """The number of each group in the grid: uint16[n, 32]."""
        raise NotImplementedError

    @classmethod
    def minus(cls, blocks: np.ndarray) -> np.ndarray:
        """1 where the shift of a group is downward: [n, 32] or [n, 8]."""
        raise NotImplementedError

    @classmethod
    def codes(cls, blocks: np.ndarray) -> np.ndarray:
        q = grid("iq1_s", (-8, 0, 8))[cls.index(blocks)]  # [n, 32, 8]
        minus = cls.minus(blocks).astype(np.int8)
        shift = np.repeat(1 - 2 * minus, 32 // minus.shape[1], axis=1)  # [n, 32]
        q += shift[:, :, None]
        return q.reshape(-1, 256)

    @classmethod
    def held_in(cls, blocks: np.ndarray) -> list[np.ndarray]:
        """The group and the shift of each value."""
        minus = cls.minus(blocks)
        return [
            np.repeat(cls.index(blocks), 8, axis=1),
            np.repeat(minus, 256 // minus.shape[1], axis=1),
        ]


class IQ1_S(_Shifted):
    """50 bytes per 256 values (1.5625 bits per weight).

    ======  =====  ======================================================
    field   bytes  holds
    ======  =====  ======================================================
    ``d``       2  scale of the scales, a half float
    ``qs``     32  the lower 8 bits of 32 groups
    ``qh``     16  for every 32 values: 4 times 3 upper bits, 3 bits of
                   scale, 1 bit for the shift
    ======  =====  ======================================================

    ``value = d * (2 * scale + 1) / 8 * q`` with q -8, 0 or 8 from the grid, plus or minus 1
    """

    type = GGMLType.IQ1_S
    block_dtype = np.dtype([("d", "<f2"), ("qs", "u1", 32), ("qh", "<u2", 8)])
    table = _TABLE

    @classmethod
    def index(cls, blocks: np.ndarray) -> np.ndarray:
        high = blocks["qh"][:, :, None] >> np.arange(0, 12, 3, dtype=np.uint16) & 7  # [n, 8, 4]
        return blocks["qs"] | high.reshape(-1, 32) << 8

    @classmethod
    def minus(cls, blocks: np.ndarray) -> np.ndarray:
        return blocks["qh"] >> 15  # [n, 8]

    @classmethod
    def parts(cls, blocks: np.ndarray) -> dict[str, np.ndarray]:
        """See `QuantType.parts`; group [n, 32], shift_down and scale [n, 8]."""
        return {
            "group": cls.index(blocks),
            "shift_down": cls.minus(blocks),
            "scale": blocks["qh"] >> 12 & 7,
        }

    @classmethod
    def scales(cls, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        odd = 2 * (blocks["qh"] >> 12 & 7).astype(np.float32) + 1  # [n, 8]
        return blocks["d"].astype(np.float32)[:, None] * odd * np.float32(0.125), None


class IQ1_M(_Shifted):
    """56 bytes per 256 values (1.75 bits per weight).

    ==========  =====  ==================================================
    field       bytes  holds
    ==========  =====  ==================================================
    ``qs``         32  the lower 8 bits of 32 groups
    ``qh``         16  a nibble for each group: 3 upper bits, 1 for the
                       shift
    ``scales``      8  four words: in each 4 times 3 bits of scale, and
                       4 bits of d, a half float in four parts
    ==========  =====  ==================================================

    ``value = d * (2 * scale + 1) / 8 * q`` with q -8, 0 or 8 from the grid, plus or minus 1
    """

    type = GGMLType.IQ1_M
    block_dtype = np.dtype([("qs", "u1", 32), ("qh", "u1", 16), ("scales", "<u2", 4)])
    table = _TABLE

    @classmethod
    def _nibbles(cls, blocks: np.ndarray) -> np.ndarray:
        qh = blocks["qh"]
        return np.stack([qh & 0x0F, qh >> 4], axis=2).reshape(-1, 32)

    @classmethod
    def index(cls, blocks: np.ndarray) -> np.ndarray:
        return blocks["qs"] | (cls._nibbles(blocks) & 7).astype(np.uint16) << 8

    @classmethod
    def minus(cls, blocks: np.ndarray) -> np.ndarray:
        return cls._nibbles(blocks) >> 3  # [n, 32]

    @classmethod
    def _half(cls, blocks: np.ndarray) -> np.ndarray:
        """The bits of d: uint16[n, 1]."""
        top = blocks["scales"] >> 12 << np.arange(0, 16, 4, dtype=np.uint16)  # [n, 4]
        return np.bitwise_or.reduce(top, axis=1, keepdims=True).astype(np.uint16)

    @classmethod
    def _small_scales(cls, blocks: np.ndarray) -> np.ndarray:
        shifts = np.arange(0, 12, 3, dtype=np.uint16)
        return (blocks["scales"][:, :, None] >> shifts & 7).reshape(-1, 16)

    @classmethod
    def parts(cls, blocks: np.ndarray) -> dict[str, np.ndarray]:
        """See `QuantType.parts`; group and shift_down [n, 32], scale [n, 16], d_bits [n, 1]."""
        return {
            "group": cls.index(blocks),
            "shift_down": cls.minus(blocks),
            "scale": cls._small_scales(blocks),
            "d_bits": cls._half(blocks),
        }

    @classmethod
    def scales(cls, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        d = cls._half(blocks).view(np.float16).astype(np.float32)  # [n, 1]
        odd = 2 * cls._small_scales(blocks).astype(np.float32) + 1  # [n, 16]
        return d * odd * np.float32(0.125), None
