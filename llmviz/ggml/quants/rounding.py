"""Arithmetic of the quantizers, in float32 and in C's order. ↔ ggml/src/ggml-quants.c

A quantizer that is to give the same bits must round where C rounds. So sums run from the first
element to the last (`total`; numpy's own `sum` adds in pairs), and each rounding has its function.
"""

from __future__ import annotations

import numpy as np

__all__ = ["inverse", "nearest", "pack_nibbles", "peak", "round_away", "total", "truncate"]

_SHIFTER = np.float32(12582912.0)  # 1.5 * 2**23: added to a float, leaves an integer in its bits


def total(values: np.ndarray) -> np.ndarray:
    """Sum the last axis of float32 values one after the other."""
    return np.cumsum(values, axis=-1, dtype=np.float32)[..., -1]


def nearest(values: np.ndarray) -> np.ndarray:
    """Round to the nearest integer, ties to the even one, as ``nearest_int`` does; int32."""
    bits = (np.asarray(values, np.float32) + _SHIFTER).view(np.int32)
    return (bits & 0x007FFFFF) - 0x00400000


def round_away(values: np.ndarray) -> np.ndarray:
    """Round to the nearest integer, ties away from zero, as ``roundf`` does; float32."""
    whole = np.trunc(values)
    return whole + np.copysign(np.abs(values - whole) >= np.float32(0.5), values).astype(np.float32)


def truncate(values: np.ndarray) -> np.ndarray:
    """Cut off the fraction, as a cast does in C; int32."""
    return np.asarray(values, np.float32).astype(np.int32)


def inverse(d: np.ndarray) -> np.ndarray:
    """``1 / d``, and 0 for 0."""
    return np.where(d != 0, np.float32(1) / d, np.float32(0)).astype(np.float32)


def peak(values: np.ndarray) -> np.ndarray:
    """The value furthest from zero along the last axis, with its sign; of equals the first.

    Where all are zero it is +0.
    """
    at = np.argmax(np.abs(values), axis=-1)
    found = np.take_along_axis(values, at[..., None], axis=-1)[..., 0]
    return np.where(found == 0, np.float32(0), found)


def pack_nibbles(codes: np.ndarray) -> np.ndarray:
    """Two codes a byte, the first half in the low nibbles: [..., n] -> uint8[..., n / 2]."""
    codes = codes.astype(np.uint8)
    half = codes.shape[-1] // 2
    return (codes[..., :half] & 0x0F) | (codes[..., half:] << 4)
