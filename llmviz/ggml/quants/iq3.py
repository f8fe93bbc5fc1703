"""Three bits per value from a grid of groups of four: IQ3_XXS and IQ3_S. ↔ ggml-quants.c"""

from __future__ import annotations

import numpy as np

from llmviz.ggml.quants.iq2 import GridType, nibbles, seven_bit_signs
from llmviz.ggml.types import GGMLType

__all__ = ["IQ3_S", "IQ3_XXS"]


class IQ3_XXS(GridType):
    """98 bytes per 256 values (3.0625 bits per weight).

    =========  =====  ===================================================
    field      bytes  holds
    =========  =====  ===================================================
    ``d``          2  scale of the scales, a half float
    ``qs``        64  64 groups of the grid of 256
    ``signs``     32  for every 32 values 4 times 7 bits of signs and
                      4 bits of scale
    =========  =====  ===================================================

    ``value = d / 2 * (scale + 0.5) * q`` with q from the grid, ±4 to ±62
    """

    type = GGMLType.IQ3_XXS
    block_dtype = np.dtype([("d", "<f2"), ("qs", "u1", 64), ("signs", "<u4", 8)])
    magnitudes = (4, 12, 20, 28, 36, 44, 52, 62)
    grid_name = "iq3_xxs"
    table = (-62, -52, -44, -36, -28, -20, -12, -4, 4, 12, 20, 28, 36, 44, 52, 62)

    @classmethod
    def index(cls, blocks: np.ndarray) -> np.ndarray:
        return blocks["qs"]  # [n, 64]

    @classmethod
    def signs(cls, blocks: np.ndarray) -> np.ndarray:
        return seven_bit_signs(blocks["signs"])

    @classmethod
    def _small_scales(cls, blocks: np.ndarray) -> np.ndarray:
        return blocks["signs"] >> 28  # [n, 8]

    @classmethod
    def scales(cls, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        d = blocks["d"].astype(np.float32)[:, None]
        half = np.float32(0.5) + cls._small_scales(blocks).astype(np.float32)
        return d * half * np.float32(0.5), None


class IQ3_S(GridType):
    """110 bytes per 256 values (3.4375 bits per weight).

    ==========  =====  ==================================================
    field       bytes  holds
    ==========  =====  ==================================================
    ``d``           2  scale of the scales, a half float
    ``qs``         64  the lower 8 bits of 64 groups of the grid of 512
    ``qh``          8  the groups' ninth bits
    ``signs``      32  a bit for each value
    ``scales``      4  4 bits for every 32 values
    ==========  =====  ==================================================

    ``value = d * (2 * scale + 1) * q`` with q from the grid, odd, ±1 to ±15
    """

    type = GGMLType.IQ3_S
    block_dtype = np.dtype(
        [("d", "<f2"), ("qs", "u1", 64), ("qh", "u1", 8), ("signs", "u1", 32), ("scales", "u1", 4)]
    )
    magnitudes = (1, 3, 5, 7, 9, 11, 13, 15)
    grid_name = "iq3_s"
    table = (-15, -13, -11, -9, -7, -5, -3, -1, 1, 3, 5, 7, 9, 11, 13, 15)

    @classmethod
    def index(cls, blocks: np.ndarray) -> np.ndarray:
        high = np.unpackbits(blocks["qh"], axis=1, bitorder="little")  # [n, 64]
        return blocks["qs"] | high.astype(np.uint16) << 8

    @classmethod
    def signs(cls, blocks: np.ndarray) -> np.ndarray:
        return blocks["signs"]

    @classmethod
    def _small_scales(cls, blocks: np.ndarray) -> np.ndarray:
        return nibbles(blocks["scales"])  # [n, 8]

    @classmethod
    def scales(cls, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        d = blocks["d"].astype(np.float32)[:, None]
        return d * (1 + 2 * cls._small_scales(blocks).astype(np.float32)), None
