"""The K types: super-blocks of 256 values with quantized scales. ↔ ggml/src/ggml-quants.c

A super-block is cut into 8 sub-blocks of 32 (Q4_K, Q5_K) or 16 of 16 (the others). Each sub-block
has its own small integer scale; one or two half floats per super-block give these their size. So
finer scales cost less than in the older types. `k_search` is how the scales are found.
"""

from __future__ import annotations

import numpy as np

from llmviz.ggml.quants.base import QuantType
from llmviz.ggml.quants.k_packing import (
    nibble_pairs,
    pack_scales_and_mins,
    pack_two_bits,
    scales_and_mins,
    two_bits,
)
from llmviz.ggml.quants.k_search import (
    scale_and_minimum,
    symmetric_scale,
    symmetric_scale_by_turns,
)
from llmviz.ggml.quants.rounding import nearest, pack_nibbles, peak, total
from llmviz.ggml.types import GGMLType

__all__ = ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q8_K"]

_F = np.float32


def _recode(
    x: np.ndarray, d: np.ndarray, low: np.ndarray | None, limits: tuple[int, int], q: np.ndarray
) -> np.ndarray:
    """Codes of sub-blocks for the scales as stored; where a scale came out 0, `q` stays.

    Parameters
    ----------
    x : float32[n, m, k]
    d, low : float32[n, m]
        Scale and, where there is one, minimum of each sub-block.
    limits : (int, int)
        The least and the largest code, before the zero is added.
    q : int[n, m, k]
    """
    shifted = x if low is None else x + low[:, :, None]
    found = np.clip(nearest(shifted / d[:, :, None]), *limits) - min(limits[0], 0)
    return np.where(d[:, :, None] != 0, found, q)


class _WithMinimums(QuantType):
    """``value = d * scale * q - dmin * min``: Q2_K, Q4_K, Q5_K.

    A subclass writes `parts` ("scale" and "min") and `codes`.
    """

    @classmethod
    def scales(cls, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        small = cls.parts(blocks)
        scale = blocks["d"].astype(_F)[:, None] * small["scale"].astype(_F)  # [n, m]
        low = blocks["dmin"].astype(_F)[:, None] * small["min"].astype(_F)
        return scale, -low

    @classmethod
    def dequantize_blocks(cls, blocks: np.ndarray, out: np.ndarray) -> None:
        cls._unpack(blocks, out)
        scale, minus_low = cls.scales(blocks)
        assert minus_low is not None
        sub = out.reshape(*scale.shape, -1)
        np.multiply(scale[:, :, None], sub, out=sub)
        sub -= -minus_low[:, :, None]

    @classmethod
    def _unpack(cls, blocks: np.ndarray, out: np.ndarray) -> None:
        out[...] = cls.codes(blocks)


class _EightSubBlocks(_WithMinimums):
    """Q4_K and Q5_K: their scales and minimums have six bits each."""

    @classmethod
    def parts(cls, blocks: np.ndarray) -> dict[str, np.ndarray]:
        """See `QuantType.parts`; scale and min [n, 8], 0 to 63."""
        scale, low = scales_and_mins(blocks["scales"])
        return {"scale": scale, "min": low}

    @classmethod
    def _search(cls, values: np.ndarray, first: float, tries: int) -> tuple[np.ndarray, np.ndarray]:
        """Blocks with their scales set, and codes uint8[n, 8, 32]."""
        top = cls.levels - 1
        x = values.reshape(-1, 32)
        size = np.sqrt(total(x * x) / _F(32))
        weights = size[:, None] + np.abs(x)
        scale, low, q = scale_and_minimum(x, weights, top, first, tries, absolute=False)
        scale, low = scale.reshape(-1, 8), low.reshape(-1, 8)
        max_scale = np.maximum(scale.max(axis=1, keepdims=True), 0)  # [n, 1]
        max_low = np.maximum(low.max(axis=1, keepdims=True), 0)
        small = [
            np.minimum(nearest(np.where(m > 0, _F(63) / m, _F(0)) * a).astype(np.uint8), 63)
            for m, a in ((max_scale, scale), (max_low, low))
        ]
        blocks = np.zeros(len(values), cls.block_dtype)
        blocks["scales"] = pack_scales_and_mins(*small)
        blocks["d"], blocks["dmin"] = max_scale[:, 0] / _F(63), max_low[:, 0] / _F(63)
        d, minus = cls.scales(blocks)
        assert minus is not None
        q = _recode(values.reshape(-1, 8, 32), d, -minus, (0, top), q.reshape(-1, 8, 32))
        return blocks, q.astype(np.uint8)


class Q2_K(_WithMinimums):
    """2 bits per value, 84 bytes per 256 values (2.625 bits per weight).

    ==========  =====  ==================================================================
    field       bytes  holds
    ==========  =====  ==================================================================
    ``scales``     16  for every 16 values a scale (low nibble) and a minimum (high one)
    ``qs``         64  256 numbers from 0 to 3: of each 128 values, byte i holds the
                       values i, i+32, i+64 and i+96
    ``d``           2  scale of the scales, a half float
    ``dmin``        2  scale of the minimums, a half float
    ==========  =====  ==================================================================

    ``value = d * scale * q - dmin * min``, scale and min those of the sub-block
    """

    type = GGMLType.Q2_K
    block_dtype = np.dtype([("scales", "u1", 16), ("qs", "u1", 64), ("d", "<f2"), ("dmin", "<f2")])
    levels = 4

    @classmethod
    def codes(cls, blocks: np.ndarray) -> np.ndarray:
        return two_bits(blocks["qs"])

    @classmethod
    def parts(cls, blocks: np.ndarray) -> dict[str, np.ndarray]:
        """See `QuantType.parts`; scale and min [n, 16], 0 to 15."""
        return {"scale": blocks["scales"] & 0x0F, "min": blocks["scales"] >> 4}

    @classmethod
    def quantize_blocks(cls, values: np.ndarray) -> np.ndarray:
        x = values.reshape(-1, 16)
        scale, low, q = scale_and_minimum(x, np.abs(x), 3, -0.5, 15, absolute=True)
        scale, low = scale.reshape(-1, 16), low.reshape(-1, 16)
        blocks = np.zeros(len(values), cls.block_dtype)
        packed = []
        for name, a in (("d", scale), ("dmin", low)):
            most = np.maximum(a.max(axis=1, keepdims=True), 0)  # [n, 1]
            small = np.where(most > 0, nearest(_F(15) / most * a), 0)
            packed.append(small.astype(np.uint8))
            blocks[name] = np.where(most > 0, most / _F(15), _F(0))[:, 0]
        blocks["scales"] = packed[0] | packed[1] << 4
        d, minus = cls.scales(blocks)
        assert minus is not None
        q = _recode(values.reshape(-1, 16, 16), d, -minus, (0, 3), q.reshape(-1, 16, 16))
        blocks["qs"] = pack_two_bits(q.astype(np.uint8))
        return blocks


class Q3_K(QuantType):
    """3 bits per value, 110 bytes per 256 values (3.4375 bits per weight).

    ==========  =====  ==================================================================
    field       bytes  holds
    ==========  =====  ==================================================================
    ``hmask``      32  the third bits: bit s of byte i belongs to value 32 s + i
    ``qs``         64  the lower two bits, laid out as in `Q2_K`
    ``scales``     12  sixteen scales of six bits: bytes 0-7 hold the low four of scales
                       0-7 (low nibbles) and 8-15 (high ones), bytes 8-11 the upper two
    ``d``           2  scale of the scales, a half float
    ==========  =====  ==================================================================

    ``value = d * (scale - 32) * (q - 4)`` with q from 0 to 7
    """

    type = GGMLType.Q3_K
    block_dtype = np.dtype(
        [("hmask", "u1", 32), ("qs", "u1", 64), ("scales", "u1", 12), ("d", "<f2")]
    )
    zero = 4
    levels = 8

    @classmethod
    def codes(cls, blocks: np.ndarray) -> np.ndarray:
        bit = np.arange(8, dtype=np.uint8)[:, None]
        high = (blocks["hmask"][:, None, :] >> bit & 1).reshape(-1, 256)  # [n, 8, 32]
        return two_bits(blocks["qs"]) | high << 2

    @classmethod
    def parts(cls, blocks: np.ndarray) -> dict[str, np.ndarray]:
        """See `QuantType.parts`; scale [n, 16], 0 to 63."""
        low, high = blocks["scales"][:, :8], blocks["scales"][:, 8:]
        low = np.concatenate([low & 0x0F, low >> 4], axis=1)  # [n, 16]
        high = high[:, None, :] >> np.arange(0, 8, 2, dtype=np.uint8)[:, None] & 3  # [n, 4, 4]
        return {"scale": low | high.reshape(-1, 16) << 4}

    @classmethod
    def scales(cls, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        scale = cls.parts(blocks)["scale"].astype(_F) - 32
        return blocks["d"].astype(_F)[:, None] * scale, None  # [n, 16]

    @classmethod
    def quantize_blocks(cls, values: np.ndarray) -> np.ndarray:
        found, q = symmetric_scale_by_turns(values.reshape(-1, 16), 4)
        found = found.reshape(-1, 16)
        most = peak(found)[:, None]  # [n, 1]
        stretch = _F(-32) / most
        scale = np.clip(nearest(stretch * found), -32, 31) + 32  # [n, 16]
        scale = np.where(most != 0, scale, 0).astype(np.uint8)
        blocks = np.zeros(len(values), cls.block_dtype)
        blocks["d"] = np.where(most != 0, _F(1) / stretch, _F(0))[:, 0]
        blocks["scales"][:, :8] = scale[:, :8] & 0x0F | scale[:, 8:] << 4
        high = (scale >> 4).reshape(-1, 4, 4) << np.arange(0, 8, 2, dtype=np.uint8)[:, None]
        blocks["scales"][:, 8:] = np.bitwise_or.reduce(high, axis=1)
        q = q.reshape(-1, 16, 16)
        q = _recode(values.reshape(-1, 16, 16), cls.scales(blocks)[0], None, (-4, 3), q)
        q = q.astype(np.uint8).reshape(-1, 256)
        blocks["qs"] = pack_two_bits(q & 3)
        third = (q >> 2).reshape(-1, 8, 32) << np.arange(8, dtype=np.uint8)[:, None]
        blocks["hmask"] = np.bitwise_or.reduce(third, axis=1)
        return blocks


class Q4_K(_EightSubBlocks):
    """4 bits per value, 144 bytes per 256 values (4.5 bits per weight).

    ==========  =====  ==================================================================
    field       bytes  holds
    ==========  =====  ==================================================================
    ``d``           2  scale of the scales, a half float
    ``dmin``        2  scale of the minimums, a half float
    ``scales``     12  eight scales and eight minimums, 6 bits each (`scales_and_mins`)
    ``qs``        128  256 numbers from 0 to 15: 32 bytes hold two sub-blocks, the first
                       in their low nibbles, the second in their high ones
    ==========  =====  ==================================================================

    ``value = d * scale * q - dmin * min``, scale and min those of the sub-block
    """

    type = GGMLType.Q4_K
    block_dtype = np.dtype([("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("qs", "u1", 128)])
    levels = 16

    @classmethod
    def codes(cls, blocks: np.ndarray) -> np.ndarray:
        return nibble_pairs(blocks["qs"])

    @classmethod
    def _unpack(cls, blocks: np.ndarray, out: np.ndarray) -> None:
        qs = blocks["qs"].reshape(-1, 4, 32)  # [n, 4, 32]
        pairs = out.reshape(-1, 4, 2, 32)
        pairs[:, :, 0] = qs & 0x0F
        pairs[:, :, 1] = qs >> 4

    @classmethod
    def quantize_blocks(cls, values: np.ndarray) -> np.ndarray:
        blocks, q = cls._search(values, -1.0, 20)
        blocks["qs"] = pack_nibbles(q.reshape(-1, 4, 64)).reshape(-1, 128)
        return blocks


class Q5_K(_EightSubBlocks):
    """5 bits per value, 176 bytes per 256 values (5.5 bits per weight).

    ==========  =====  ==================================================================
    field       bytes  holds
    ==========  =====  ==================================================================
    ``d``           2  scale of the scales, a half float
    ``dmin``        2  scale of the minimums, a half float
    ``scales``     12  eight scales and eight minimums, 6 bits each (`scales_and_mins`)
    ``qh``         32  the fifth bits: bit s of byte i belongs to value i of sub-block s
    ``qs``        128  the lower four bits, laid out as in `Q4_K`
    ==========  =====  ==================================================================

    ``value = d * scale * q - dmin * min`` with q from 0 to 31
    """

    type = GGMLType.Q5_K
    block_dtype = np.dtype(
        [("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("qh", "u1", 32), ("qs", "u1", 128)]
    )
    levels = 32

    @classmethod
    def codes(cls, blocks: np.ndarray) -> np.ndarray:
        q = nibble_pairs(blocks["qs"]).reshape(-1, 8, 32)
        qh = blocks["qh"]  # [n, 32]
        for s in range(8):
            # the bit of sub-block s, moved to place 4
            q[:, s] |= (qh << 4 - s if s < 4 else qh >> s - 4) & 0x10
        return q.reshape(-1, 256)

    @classmethod
    def quantize_blocks(cls, values: np.ndarray) -> np.ndarray:
        blocks, q = cls._search(values, -0.5, 15)
        blocks["qs"] = pack_nibbles(q.reshape(-1, 4, 64) & 0x0F).reshape(-1, 128)
        fifth = q >> 4 << np.arange(8, dtype=np.uint8)[:, None]  # [n, 8, 32]
        blocks["qh"] = np.bitwise_or.reduce(fifth, axis=1)
        return blocks


class Q6_K(QuantType):
    """6 bits per value, 210 bytes per 256 values (6.5625 bits per weight).

    ==========  =====  ==================================================================
    field       bytes  holds
    ==========  =====  ==================================================================
    ``ql``        128  the lower four bits of each value
    ``qh``         64  the upper two bits of each value
    ``scales``     16  a signed scale for every 16 values
    ``d``           2  scale of the scales, a half float
    ==========  =====  ==================================================================

    Each half of the super-block (128 values) takes 64 bytes of ql and 32 of qh: values 0-63 in
    ql's low nibbles, 64-127 in its high ones; byte i of qh holds two bits each for values i, i+32,
    i+64 and i+96. ``value = d * scale * (q - 32)`` with q from 0 to 63.
    """

    type = GGMLType.Q6_K
    block_dtype = np.dtype(
        [("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), ("d", "<f2")]
    )
    zero = 32
    levels = 64

    @classmethod
    def codes(cls, blocks: np.ndarray) -> np.ndarray:
        n = len(blocks)
        ql = blocks["ql"].reshape(n, 2, 64)
        qh = blocks["qh"].reshape(n, 2, 32)
        q = np.empty((n, 2, 128), np.uint8)
        np.bitwise_and(ql, 0x0F, out=q[:, :, :64])
        np.right_shift(ql, 4, out=q[:, :, 64:])
        # two bits for each quarter of the half, moved to places 4 and 5
        for s, high in enumerate((qh << 4, qh << 2, qh, qh >> 2)):
            q[:, :, 32 * s : 32 * s + 32] |= high & 0x30
        return q.reshape(n, 256)

    @classmethod
    def scales(cls, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return blocks["d"].astype(_F)[:, None] * blocks["scales"].astype(_F), None  # [n, 16]

    @classmethod
    def quantize_blocks(cls, values: np.ndarray) -> np.ndarray:
        found, q = symmetric_scale(values.reshape(-1, 16), 32)
        found = found.reshape(-1, 16)
        most = peak(found)[:, None]  # [n, 1]
        nothing = np.abs(most[:, 0]) < _F(1e-15)
        stretch = _F(-128) / most
        blocks = np.zeros(len(values), cls.block_dtype)
        blocks["d"] = np.where(nothing, _F(0), (_F(1) / stretch)[:, 0])
        blocks["scales"] = np.where(nothing[:, None], 0, np.minimum(nearest(stretch * found), 127))
        q = q.reshape(-1, 16, 16)
        q = _recode(values.reshape(-1, 16, 16), cls.scales(blocks)[0], None, (-32, 31), q)
        q = q.astype(np.uint8).reshape(-1, 2, 128)
        q[nothing] = 0
        blocks["ql"] = pack_nibbles(q).reshape(-1, 128)
        blocks["qh"] = pack_two_bits(q.reshape(-1, 256) >> 4)
        return blocks


class Q8_K(QuantType):
    """8 bits per value, 292 bytes per 256 values: what activations become beside K types.

    =========  =====  ===================================================================
    field      bytes  holds
    =========  =====  ===================================================================
    ``d``          4  scale, a 32-bit float
    ``qs``       256  256 numbers from -128 to 127
    ``bsums``     32  the sum of every 16 numbers, for the minimums' part of a dot product
    =========  =====  ===================================================================

    ``value = d * q``. No model file needs it; a file may hold it all the same.
    """

    type = GGMLType.Q8_K
    block_dtype = np.dtype([("d", "<f4"), ("qs", "i1", 256), ("bsums", "<i2", 16)])
    levels = 256

    @classmethod
    def codes(cls, blocks: np.ndarray) -> np.ndarray:
        return blocks["qs"]

    @classmethod
    def scales(cls, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return blocks["d"].astype(_F)[:, None], None

    @classmethod
    def quantize_blocks(cls, values: np.ndarray) -> np.ndarray:
        top = peak(values)[:, None]  # [n, 1]
        stretch = _F(-127) / top
        blocks = np.zeros(len(values), cls.block_dtype)
        q = np.minimum(nearest(stretch * values), 127)
        blocks["qs"] = np.where(top != 0, q, 0)
        blocks["bsums"] = blocks["qs"].reshape(-1, 16, 16).sum(axis=2, dtype=np.int16)
        blocks["d"] = np.where(top != 0, _F(1) / stretch, _F(0))[:, 0]
        return blocks
