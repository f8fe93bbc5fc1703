"""The K types: super-blocks of 256 values with quantized scales. ↔ ggml/src/ggml-quants.c

A super-block is cut into 8 sub-blocks of 32 (Q4_K, Q5_K) or 16 of 16 (Q6_K). Each sub-block has its
own small integer scale; one or two half floats per super-block give these their size. So finer
scales cost less than in the older types.
"""

from __future__ import annotations

import numpy as np

from llmviz.ggml.quants.base import QuantType
from llmviz.ggml.types import GGMLType

__all__ = ["Q4_K", "Q5_K", "Q6_K"]


def scales_and_mins(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Unpack eight 6-bit scales and eight 6-bit minimums from 12 bytes.

    Bytes 0-3 hold scales 0-3 and bytes 4-7 minimums 0-3, six bits each. Their upper two bits are
    the top bits of scales and minimums 4-7, whose low four bits stand in bytes 8-11: low nibble
    scale, high nibble minimum.

    Parameters
    ----------
    packed : uint8[n, 12]

    Returns
    -------
    scales, mins : uint8[n, 8]
    """
    a, b, low = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.empty((len(packed), 8), np.uint8)
    mins = np.empty((len(packed), 8), np.uint8)
    scales[:, :4] = a & 0x3F
    mins[:, :4] = b & 0x3F
    scales[:, 4:] = (low & 0x0F) | (a >> 2 & 0x30)
    mins[:, 4:] = (low >> 4) | (b >> 2 & 0x30)
    return scales, mins


def _apply(blocks: np.ndarray, out: np.ndarray) -> None:
    """Apply scales and minimums to decoded integers: out [n, 256] -> d*scale*q - dmin*min."""
    sc, mn = scales_and_mins(blocks["scales"])  # [n, 8] each
    d = blocks["d"].astype(np.float32)[:, None] * sc.astype(np.float32)  # [n, 8]
    m = blocks["dmin"].astype(np.float32)[:, None] * mn.astype(np.float32)  # [n, 8]
    sub = out.reshape(-1, 8, 32)
    np.multiply(d[:, :, None], sub, out=sub)
    sub -= m[:, :, None]


class Q4_K(QuantType):
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

    @classmethod
    def dequantize_blocks(cls, blocks: np.ndarray, out: np.ndarray) -> None:
        qs = blocks["qs"].reshape(-1, 4, 32)  # [n, 4, 32]
        pairs = out.reshape(-1, 4, 2, 32)
        pairs[:, :, 0] = qs & 0x0F
        pairs[:, :, 1] = qs >> 4
        _apply(blocks, out)


class Q5_K(QuantType):
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

    @classmethod
    def dequantize_blocks(cls, blocks: np.ndarray, out: np.ndarray) -> None:
        qs = blocks["qs"].reshape(-1, 4, 32)  # [n, 4, 32]
        qh = blocks["qh"]  # [n, 32]
        q = np.empty((len(blocks), 8, 32), np.uint8)
        np.bitwise_and(qs, 0x0F, out=q[:, 0::2])
        np.right_shift(qs, 4, out=q[:, 1::2])
        for s in range(8):
            # the bit of sub-block s, moved to place 4
            q[:, s] |= (qh << 4 - s if s < 4 else qh >> s - 4) & 0x10
        out[...] = q.reshape(-1, 256)
        _apply(blocks, out)


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

    @classmethod
    def dequantize_blocks(cls, blocks: np.ndarray, out: np.ndarray) -> None:
        n = len(blocks)
        ql = blocks["ql"].reshape(n, 2, 64)
        qh = blocks["qh"].reshape(n, 2, 32)
        q = np.empty((n, 2, 128), np.uint8)
        np.bitwise_and(ql, 0x0F, out=q[:, :, :64])
        np.right_shift(ql, 4, out=q[:, :, 64:])
        # two bits for each quarter of the half, moved to places 4 and 5
        for s, high in enumerate((qh << 4, qh << 2, qh, qh >> 2)):
            q[:, :, 32 * s : 32 * s + 32] |= high & 0x30
        out[...] = q.reshape(n, 256)
        out -= 32
        d = blocks["d"].astype(np.float32)[:, None] * blocks["scales"].astype(np.float32)  # [n, 16]
        sub = out.reshape(n, 16, 16)
        np.multiply(d[:, :, None], sub, out=sub)
