"""Numbers to one byte each: what a heatmap needs of them, and the scale to read it by."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["LEVELS", "MINUS_INF", "NAN", "PLUS_INF", "picture"]

LEVELS = 252
"""Bytes 0..252 are values from low to high."""
MINUS_INF, PLUS_INF, NAN = 253, 254, 255
"""Bytes of what is no finite number; each has a colour of its own."""

_OUTLIER = 4.0  # a maximum this many times the 99th percentile would leave the rest one colour


def picture(part: np.ndarray, low: float | None = None, high: float | None = None) -> Any:
    """A 2-D window as bytes.

    Parameters
    ----------
    part : ndarray [rows, columns]
    low, high : float, optional
        Fixed ends of the scale; by default those of the window. Signed values get a scale that is
        symmetric around zero. Single outliers are clipped, and the scale says so.

    Returns
    -------
    (bytes, dict)
        uint8[rows, columns]; ``{low, high, signed, clipped}`` where `clipped` counts the values
        beyond the scale.
    """
    x = part.astype(np.float64)
    finite = np.isfinite(x)
    values = x[finite]
    signed = bool(values.size and values.min() < 0 < values.max())
    if low is None or high is None:
        low, high = _scale(values, signed)
    clipped = int(((values < low) | (values > high)).sum())
    span = high - low
    with np.errstate(invalid="ignore"):
        level = (x - low) / span * LEVELS if span > 0 else np.where(finite, LEVELS / 2, x)
    out = np.clip(np.nan_to_num(np.rint(level)), 0, LEVELS).astype(np.uint8)
    out[np.isnan(x)] = NAN
    out[np.isposinf(x)] = PLUS_INF
    out[np.isneginf(x)] = MINUS_INF
    scale = {"low": low, "high": high, "signed": signed, "clipped": clipped}
    return out.tobytes(), scale


def _scale(values: np.ndarray, signed: bool) -> tuple[float, float]:
    if not values.size:
        return 0.0, 0.0
    if not signed:
        return float(values.min()), float(values.max())
    size = np.abs(values)
    top = float(size.max())
    usual = float(np.quantile(size, 0.99))
    if usual > 0 and top > _OUTLIER * usual:
        top = usual
    return -top, top
