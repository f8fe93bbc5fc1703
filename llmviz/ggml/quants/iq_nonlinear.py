"""Four bits that look up one of 16 uneven steps: IQ4_NL and IQ4_XS. ↔ ggml/src/ggml-quants.c

Weights crowd around zero, so the steps are close there and wide at the ends.
"""

from __future__ import annotations

import numpy as np

from llmviz.ggml.quants.base import QuantType
from llmviz.ggml.quants.rounding import inverse, nearest, pack_nibbles, peak, total
from llmviz.ggml.types import GGMLType

__all__ = ["IQ4_NL", "IQ4_XS"]

_STEPS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_CODE = np.array(_STEPS, np.int8)
_VALUE = np.array(_STEPS, np.float32)
_TINY = np.float32(1e-15)
_TRIES = 7


def _nearest_step(x: np.ndarray) -> np.ndarray:
    """Index of the step closest to each number, the upper one of two equally far."""
    upper = np.clip(np.searchsorted(_VALUE, x, side="right"), 1, 15)
    lower = upper - 1
    return np.where(x - _VALUE[lower] < _VALUE[upper] - x, lower, upper)


def _fit(x: np.ndarray, factor: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted sums q*x and q*q where q are the steps nearest to ``factor * x``: [...] each."""
    q = _VALUE[_nearest_step(factor[..., None] * x)]
    wq = weight * q
    return total(wq * x), total(wq * q)


def _scale(x: np.ndarray, tries: int) -> np.ndarray:
    """The scale that fits parts x [..., 32] best among a few, by squares weighted with x*x."""
    weight = x * x
    top = peak(x)  # [...]
    small = np.abs(top) < _TINY
    d = (-top if tries else top) / _VALUE[0]
    qx, qq = _fit(x, np.float32(1) / d, weight)
    d = np.where(qq > 0, qx / qq, np.float32(0))
    best = d * qx
    for i in range(-tries, tries + 1) if tries else ():
        qx, qq = _fit(x, (np.float32(i) + _VALUE[0]) / top, weight)
        better = (qq > 0) & (qx * qx > best * qq)
        d = np.where(better, qx / qq, d)
        best = np.where(better, d * qx, best)
    return np.where(small, np.float32(0), d).astype(np.float32)


class IQ4_NL(QuantType):
    """4 bits per value, 18 bytes per 32 values (4.5 bits per weight).

    ======  =====  ======================================================
    field   bytes  holds
    ======  =====  ======================================================
    ``d``       2  scale, a half float
    ``qs``     16  32 places in the table of steps, laid out as in Q4_0
    ======  =====  ======================================================

    ``value = d * q`` with q one of the 16 steps from -127 to 113
    """

    type = GGMLType.IQ4_NL
    block_dtype = np.dtype([("d", "<f2"), ("qs", "u1", 16)])
    table = _STEPS

    @classmethod
    def codes(cls, blocks: np.ndarray) -> np.ndarray:
        qs = blocks["qs"]
        return _CODE[np.concatenate([qs & 0x0F, qs >> 4], axis=1)]  # [n, 32]

    @classmethod
    def scales(cls, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return blocks["d"].astype(np.float32)[:, None], None

    @classmethod
    def quantize_blocks(cls, values: np.ndarray) -> np.ndarray:
        d = _scale(values, _TRIES)  # [n]
        return cls._of(d, _nearest_step(inverse(d)[:, None] * values))

    @classmethod
    def store_blocks(cls, values: np.ndarray) -> np.ndarray:
        """Encode without the search: codes from the first guess, the scale fitted to them.

        A block of zeros gets codes 0 and the scale 0 (llama.cpp leaves its codes to chance).
        """
        d = _scale(values, 0)
        q = _nearest_step(np.float32(1) / (peak(values) / _VALUE[0])[:, None] * values)
        return cls._of(d, np.where((np.abs(peak(values)) < _TINY)[:, None], 0, q))

    @classmethod
    def _of(cls, d: np.ndarray, q: np.ndarray) -> np.ndarray:
        blocks = np.empty(len(q), cls.block_dtype)
        blocks["d"] = d
        blocks["qs"] = pack_nibbles(q)
        return blocks


class IQ4_XS(QuantType):
    """4 bits per value, 6-bit scales, 136 bytes per 256 values (4.25 bits per weight).

    ============  =====  ================================================
    field         bytes  holds
    ============  =====  ================================================
    ``d``             2  scale of the scales, a half float
    ``scales_h``      2  the upper two bits of eight scales
    ``scales_l``      4  their lower four bits, two scales a byte
    ``qs``          128  256 places in the table of steps, 32 in 16 bytes
    ============  =====  ================================================

    ``value = d * (scale - 32) * q`` with q one of the 16 steps from -127 to 113
    """

    type = GGMLType.IQ4_XS
    block_dtype = np.dtype(
        [("d", "<f2"), ("scales_h", "<u2"), ("scales_l", "u1", 4), ("qs", "u1", 128)]
    )
    table = _STEPS

    @classmethod
    def codes(cls, blocks: np.ndarray) -> np.ndarray:
        qs = blocks["qs"].reshape(-1, 8, 16)
        return _CODE[np.concatenate([qs & 0x0F, qs >> 4], axis=2)].reshape(-1, 256)

    @classmethod
    def parts(cls, blocks: np.ndarray) -> dict[str, np.ndarray]:
        """See `QuantType.parts`; scale [n, 8], 0 to 63."""
        low = blocks["scales_l"]
        low = np.stack([low & 0x0F, low >> 4], axis=2).reshape(-1, 8)
        high = blocks["scales_h"][:, None] >> np.arange(0, 16, 2, dtype=np.uint16) & 3
        return {"scale": low | (high << 4).astype(np.uint8)}

    @classmethod
    def scales(cls, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        scale = cls.parts(blocks)["scale"].astype(np.float32) - 32  # [n, 8]
        return blocks["d"].astype(np.float32)[:, None] * scale, None

    @classmethod
    def quantize_blocks(cls, values: np.ndarray) -> np.ndarray:
        x = values.reshape(-1, 8, 32)
        found = _scale(x, _TRIES)  # [n, 8]
        d = -peak(found)[:, None] / np.float32(32)  # [n, 1]
        scale = np.clip(nearest(inverse(d) * found), -32, 31)  # [n, 8]
        factor = inverse(d * scale.astype(np.float32))
        q = _nearest_step(factor[:, :, None] * x)  # [n, 8, 32]
        scale = (scale + 32).astype(np.uint16)
        blocks = np.empty(len(values), cls.block_dtype)
        blocks["d"] = d[:, 0]
        blocks["scales_l"] = scale[:, 0::2] & 0x0F | (scale[:, 1::2] & 0x0F) << 4
        shifts = np.arange(0, 16, 2, dtype=np.uint16)
        blocks["scales_h"] = np.bitwise_or.reduce(scale >> 4 << shifts, axis=1)
        blocks["qs"] = pack_nibbles(q).reshape(-1, 128)
        return blocks
