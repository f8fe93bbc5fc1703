"""How the K types pack small integers into bytes. ↔ ggml/src/ggml-quants.c"""

from __future__ import annotations

import numpy as np

__all__ = [
    "nibble_pairs",
    "pack_scales_and_mins",
    "pack_two_bits",
    "scales_and_mins",
    "two_bits",
]


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


def pack_scales_and_mins(scales: np.ndarray, mins: np.ndarray) -> np.ndarray:
    """The way back of `scales_and_mins`: uint8[n, 8] twice -> uint8[n, 12]."""
    out = np.empty((len(scales), 12), np.uint8)
    out[:, 0:4] = scales[:, :4] | scales[:, 4:] >> 4 << 6
    out[:, 4:8] = mins[:, :4] | mins[:, 4:] >> 4 << 6
    out[:, 8:12] = scales[:, 4:] & 0x0F | mins[:, 4:] << 4
    return out


def two_bits(packed: np.ndarray) -> np.ndarray:
    """Four numbers a byte: [n, 64] -> [n, 256]; byte i of 32 holds i, i+32, i+64 and i+96."""
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    return (packed.reshape(-1, 2, 1, 32) >> shifts & 3).reshape(-1, 256)


def pack_two_bits(q: np.ndarray) -> np.ndarray:
    """The way back of `two_bits`: uint8[n, 256] -> uint8[n, 64]."""
    q = q.reshape(-1, 2, 4, 32)
    return (q[:, :, 0] | q[:, :, 1] << 2 | q[:, :, 2] << 4 | q[:, :, 3] << 6).reshape(-1, 64)


def nibble_pairs(packed: np.ndarray) -> np.ndarray:
    """32 bytes hold two sub-blocks, low nibbles and high ones: uint8[n, 128] -> uint8[n, 256]."""
    packed = packed.reshape(-1, 4, 1, 32)
    q = np.empty((len(packed), 4, 2, 32), np.uint8)
    np.bitwise_and(packed[:, :, 0], 0x0F, out=q[:, :, 0])
    np.right_shift(packed[:, :, 0], 4, out=q[:, :, 1])
    return q.reshape(-1, 256)
