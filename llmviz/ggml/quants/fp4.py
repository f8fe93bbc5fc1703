"""Four-bit floats with a small shared exponent: MXFP4 and NVFP4. ↔ ggml/src/ggml-quants.c

A four-bit float (E2M1: sign, two bits of exponent, one of fraction) is one of 0, 0.5, 1, 1.5, 2,
3, 4, 6 and their negatives. Here the codes are twice that, so that they are integers, and the
scales half of what the formats say.
"""

from __future__ import annotations

import numpy as np

from llmviz.ggml.quants.base import QuantType
from llmviz.ggml.quants.rounding import pack_nibbles, truncate
from llmviz.ggml.types import GGMLType

__all__ = ["MXFP4", "NVFP4"]

_DOUBLED = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)
_DISTINCT = tuple(sorted({int(c) for c in _DOUBLED}))


def _e8m0() -> np.ndarray:
    """Half of ``2**(e - 127)`` for each byte e: float32[256]."""
    e = np.arange(256, dtype=np.uint32)
    bits = np.where(e < 2, np.uint32(0x00200000) << e, (e - 1) << 23)
    return bits.astype(np.uint32).view(np.float32)


def _e4m3() -> np.ndarray:
    """Half of what each byte means with 4 bits of exponent and 3 of fraction: float32[256].

    The sign bit is not looked at; 0x7F, "not a number", counts as 0.
    """
    byte = np.arange(256)
    exponent, fraction = byte >> 3 & 15, byte & 7
    value = np.where(
        exponent == 0, np.ldexp(fraction, -9), np.ldexp(1 + fraction / 8, exponent - 7)
    )
    value[[0, 0x7F]] = 0
    return (value * 0.5).astype(np.float32)


_E8M0 = _e8m0()
_E4M3 = _e4m3()


def _nearest_code(values: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The first of the sixteen codes whose number comes closest: uint8 as `values`."""
    best = np.zeros(values.shape, np.uint8)
    error = np.abs(np.float32(_DOUBLED[0]) * scale - values)
    for i in range(1, 16):
        this = np.abs(np.float32(_DOUBLED[i]) * scale - values)
        closer = this < error
        best[closer] = i
        np.copyto(error, this, where=closer)
    return best


def _to_e4m3(x: np.ndarray) -> np.ndarray:
    """Round positive float32 values to bytes of 4 bits exponent and 3 fraction, at most 448."""
    x = np.where(x > 0, np.minimum(x, np.float32(448)), np.float32(0)).astype(np.float32)
    bits = x.view(np.uint32).astype(np.int64)
    exponent = (bits >> 23 & 0xFF) - 127 + 7
    fraction = (bits >> 20 & 7) + (bits >> 19 & 1)  # rounded by the bit behind
    exponent, fraction = exponent + (fraction > 7), np.where(fraction > 7, 0, fraction)
    whole = np.where(exponent >= 15, 0x7E, exponent << 3 | fraction)
    small = np.minimum(truncate(x * np.float32(512) + np.float32(0.5)), 7)
    below = (bits >> 23 & 0xFF) - 127 + 7 <= 0
    return np.where(below, small, whole).astype(np.uint8)


class _FourBitFloats(QuantType):
    """A subclass writes `_places` and `scales`."""

    @classmethod
    def _places(cls, blocks: np.ndarray) -> np.ndarray:
        """The four bits of each value: uint8[n, block_size]."""
        raise NotImplementedError

    @classmethod
    def codes(cls, blocks: np.ndarray) -> np.ndarray:
        return _DOUBLED[cls._places(blocks)]

    @classmethod
    def held_in(cls, blocks: np.ndarray) -> list[np.ndarray]:
        """The four bits: there are two zeros."""
        return [cls._places(blocks)]


class MXFP4(_FourBitFloats):
    """4-bit floats with one exponent, 17 bytes per 32 values (4.25 bits per weight).

    ======  =====  ======================================================
    field   bytes  holds
    ======  =====  ======================================================
    ``e``       1  exponent e of the scale 2**(e - 128)
    ``qs``     16  32 four-bit floats, values 0-15 in the low nibbles
    ======  =====  ======================================================

    ``value = 2**(e - 128) * q`` with q twice the four-bit float, -12 to 12
    """

    type = GGMLType.MXFP4
    block_dtype = np.dtype([("e", "u1"), ("qs", "u1", 16)])
    table = _DISTINCT

    @classmethod
    def _places(cls, blocks: np.ndarray) -> np.ndarray:
        qs = blocks["qs"]
        return np.concatenate([qs & 0x0F, qs >> 4], axis=1)  # [n, 32]

    @classmethod
    def parts(cls, blocks: np.ndarray) -> dict[str, np.ndarray]:
        """See `QuantType.parts`; exponent [n, 1]."""
        return {"exponent": blocks["e"].astype(np.int16)[:, None] - 128}

    @classmethod
    def scales(cls, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return _E8M0[blocks["e"]][:, None], None

    @classmethod
    def quantize_blocks(cls, values: np.ndarray) -> np.ndarray:
        top = np.abs(values).max(axis=1)  # [n]
        log = np.log2(top.astype(np.float64)).astype(np.float32)  # as log2f rounds
        e = np.where(top > 0, truncate(np.floor(log)) - 2 + 127, 0).astype(np.uint8)
        blocks = np.empty(len(values), cls.block_dtype)
        blocks["e"] = e
        blocks["qs"] = pack_nibbles(_nearest_code(values, _E8M0[e][:, None]))
        return blocks


class NVFP4(_FourBitFloats):
    """4-bit floats, four 8-bit float scales, 36 bytes per 64 values (4.5 bits per weight).

    ======  =====  ======================================================
    field   bytes  holds
    ======  =====  ======================================================
    ``d``       4  a scale for every 16 values: 4 bits exponent, 3 fraction
    ``qs``     32  64 four-bit floats: of each 16, the first 8 in the low
                   nibbles of 8 bytes, the others in the high ones
    ======  =====  ======================================================

    ``value = d / 2 * q`` with q twice the four-bit float, -12 to 12
    """

    type = GGMLType.NVFP4
    block_dtype = np.dtype([("d", "u1", 4), ("qs", "u1", 32)])
    table = _DISTINCT

    @classmethod
    def _places(cls, blocks: np.ndarray) -> np.ndarray:
        qs = blocks["qs"].reshape(-1, 4, 8)
        return np.concatenate([qs & 0x0F, qs >> 4], axis=2).reshape(-1, 64)

    @classmethod
    def scales(cls, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return _E4M3[blocks["d"]], None  # [n, 4]

    @classmethod
    def quantize_blocks(cls, values: np.ndarray) -> np.ndarray:
        sub = values.reshape(-1, 4, 16)
        d = _to_e4m3(np.abs(sub).max(axis=2) / np.float32(6))  # [n, 4]
        q = _nearest_code(sub, _E4M3[d][:, :, None])
        blocks = np.empty(len(values), cls.block_dtype)
        blocks["d"] = d
        blocks["qs"] = pack_nibbles(q).reshape(-1, 32)
        return blocks
