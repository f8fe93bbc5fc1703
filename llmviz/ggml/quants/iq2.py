"""Two bits per value from a grid of groups of eight: IQ2_XXS, IQ2_XS, IQ2_S. ↔ ggml-quants.c

Eight magnitudes (8, 25 or 43) come from a table of the groups that occur most; signs stand beside
it, and every 16 or 32 values have a 4-bit scale.
"""

from __future__ import annotations

import numpy as np

from llmviz.ggml.quants.base import QuantType
from llmviz.ggml.quants.iq_grids import grid, sign_bits
from llmviz.ggml.types import GGMLType

__all__ = ["IQ2_S", "IQ2_XS", "IQ2_XXS", "GridType"]

_MAGNITUDES = (8, 25, 43)


class GridType(QuantType):
    """Groups of magnitudes from a grid, and signs: ``value = scale * magnitude * sign``.

    A subclass sets `magnitudes` and `grid_name`, and writes `index`, `signs` and `scales`.
    """

    magnitudes: tuple[int, ...]
    grid_name: str

    @classmethod
    def index(cls, blocks: np.ndarray) -> np.ndarray:
        """The number of each group in the grid: integers [n, n_groups]."""
        raise NotImplementedError

    @classmethod
    def signs(cls, blocks: np.ndarray) -> np.ndarray:
        """Where there is a minus, bit i for value i of eight: uint8[n, 32]."""
        raise NotImplementedError

    @classmethod
    def _signed(cls, blocks: np.ndarray) -> np.ndarray:
        """Magnitudes with their signs: int8[n, 256]."""
        values = grid(cls.grid_name, cls.magnitudes)[cls.index(blocks)].reshape(-1, 256)
        minus = np.unpackbits(cls.signs(blocks), axis=1, bitorder="little").view(np.int8)
        values *= 1 - 2 * minus
        return values

    @classmethod
    def codes(cls, blocks: np.ndarray) -> np.ndarray:
        return cls._signed(blocks)

    @classmethod
    def held_in(cls, blocks: np.ndarray) -> list[np.ndarray]:
        """The group and the sign of each value."""
        group = cls.index(blocks)
        minus = np.unpackbits(cls.signs(blocks), axis=1, bitorder="little")
        return [np.repeat(group, 256 // group.shape[1], axis=1), minus]

    @classmethod
    def parts(cls, blocks: np.ndarray) -> dict[str, np.ndarray]:
        """See `QuantType.parts`; group [n, n_groups], signs [n, 32], scale."""
        return {
            "group": cls.index(blocks),
            "signs": cls.signs(blocks),
            "scale": cls._small_scales(blocks),
        }

    @classmethod
    def _small_scales(cls, blocks: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    @classmethod
    def scales(cls, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        d = blocks["d"].astype(np.float32)[:, None]
        half = np.float32(0.5) + cls._small_scales(blocks).astype(np.float32)
        return d * half * np.float32(0.25), None


def nibbles(packed: np.ndarray) -> np.ndarray:
    """Both halves of bytes, the low one first: uint8[n, k] -> uint8[n, 2 k]."""
    return np.stack([packed & 0x0F, packed >> 4], axis=2).reshape(len(packed), -1)


def seven_bit_signs(words: np.ndarray) -> np.ndarray:
    """Signs of four groups of eight from the low 28 bits of words: uint32[n, 8] -> uint8[n, 32]."""
    seven = words[:, :, None] >> np.arange(0, 28, 7, dtype=np.uint32) & 127  # [n, 8, 4]
    return sign_bits()[seven].reshape(len(words), 32)


class IQ2_XXS(GridType):
    """66 bytes per 256 values (2.0625 bits per weight).

    ======  =====  ======================================================
    field   bytes  holds
    ======  =====  ======================================================
    ``d``       2  scale of the scales, a half float
    ``qs``     64  for every 32 values 8 bytes: four groups of the grid of
                   256, then 4 times 7 bits of signs and 4 bits of scale
    ======  =====  ======================================================

    ``value = d / 4 * (scale + 0.5) * q`` with q from the grid, ±8, ±25 or ±43
    """

    type = GGMLType.IQ2_XXS
    block_dtype = np.dtype([("d", "<f2"), ("qs", "<u2", 32)])
    magnitudes = _MAGNITUDES
    grid_name = "iq2_xxs"
    table = (-43, -25, -8, 8, 25, 43)

    @classmethod
    def _words(cls, blocks: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(blocks["qs"]).view("<u4").reshape(-1, 8, 2)

    @classmethod
    def index(cls, blocks: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(cls._words(blocks)[:, :, 0]).view(np.uint8)  # [n, 32]

    @classmethod
    def signs(cls, blocks: np.ndarray) -> np.ndarray:
        return seven_bit_signs(cls._words(blocks)[:, :, 1])

    @classmethod
    def _small_scales(cls, blocks: np.ndarray) -> np.ndarray:
        return cls._words(blocks)[:, :, 1] >> 28  # [n, 8]


class IQ2_XS(GridType):
    """74 bytes per 256 values (2.3125 bits per weight).

    ==========  =====  ==================================================
    field       bytes  holds
    ==========  =====  ==================================================
    ``d``           2  scale of the scales, a half float
    ``qs``         64  32 groups: 9 bits of the grid of 512, 7 of signs
    ``scales``      8  4 bits for every 16 values
    ==========  =====  ==================================================

    ``value = d / 4 * (scale + 0.5) * q`` with q from the grid, ±8, ±25 or ±43
    """

    type = GGMLType.IQ2_XS
    block_dtype = np.dtype([("d", "<f2"), ("qs", "<u2", 32), ("scales", "u1", 8)])
    magnitudes = _MAGNITUDES
    grid_name = "iq2_xs"
    table = IQ2_XXS.table

    @classmethod
    def index(cls, blocks: np.ndarray) -> np.ndarray:
        return blocks["qs"] & 511  # [n, 32]

    @classmethod
    def signs(cls, blocks: np.ndarray) -> np.ndarray:
        return sign_bits()[blocks["qs"] >> 9]

    @classmethod
    def _small_scales(cls, blocks: np.ndarray) -> np.ndarray:
        return nibbles(blocks["scales"])  # [n, 16]


class IQ2_S(GridType):
    """82 bytes per 256 values (2.5625 bits per weight).

    ==========  =====  ==================================================
    field       bytes  holds
    ==========  =====  ==================================================
    ``d``           2  scale of the scales, a half float
    ``qs``         32  the lower 8 bits of 32 groups of the grid of 1024
    ``signs``      32  a bit for each value
    ``qh``          8  the groups' upper 2 bits
    ``scales``      8  4 bits for every 16 values
    ==========  =====  ==================================================

    ``value = d / 4 * (scale + 0.5) * q`` with q from the grid, ±8, ±25 or ±43
    """

    type = GGMLType.IQ2_S
    block_dtype = np.dtype(
        [("d", "<f2"), ("qs", "u1", 32), ("signs", "u1", 32), ("qh", "u1", 8), ("scales", "u1", 8)]
    )
    magnitudes = _MAGNITUDES
    grid_name = "iq2_s"
    table = IQ2_XXS.table

    @classmethod
    def index(cls, blocks: np.ndarray) -> np.ndarray:
        high = blocks["qh"][:, :, None] >> np.arange(0, 8, 2, dtype=np.uint8) & 3  # [n, 8, 4]
        return blocks["qs"] | high.reshape(-1, 32).astype(np.uint16) << 8

    @classmethod
    def signs(cls, blocks: np.ndarray) -> np.ndarray:
        return blocks["signs"]

    @classmethod
    def _small_scales(cls, blocks: np.ndarray) -> np.ndarray:
        return nibbles(blocks["scales"])  # [n, 16]
