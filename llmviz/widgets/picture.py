"""Numbers to one byte each: what a heatmap needs of them, and the scale to read it by."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from llmviz.trace.shown import scale_of

__all__ = ["LEVELS", "MINUS_INF", "NAN", "PLUS_INF", "picture"]

LEVELS = 252
"""Bytes 0..252 are values from low to high."""
MINUS_INF, PLUS_INF, NAN = 253, 254, 255
"""Bytes of what is no finite number; each has a colour of its own."""


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
    scale = scale_of(part, low, high)
    span = scale.high - scale.low
    with np.errstate(invalid="ignore"):
        middle = np.where(np.isfinite(x), LEVELS / 2, x)
        level = (x - scale.low) / span * LEVELS if span > 0 else middle
    out = np.clip(np.nan_to_num(np.rint(level)), 0, LEVELS).astype(np.uint8)
    out[np.isnan(x)] = NAN
    out[np.isposinf(x)] = PLUS_INF
    out[np.isneginf(x)] = MINUS_INF
    return out.tobytes(), asdict(scale)
