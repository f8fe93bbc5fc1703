"""A column's numbers as short lines: groups of neighbours, each shown by its strongest value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

__all__ = ["ABSENT", "EARLIER", "NOW", "Strip", "bins_of", "edges_of", "ends", "strongest"]

ABSENT, NOW, EARLIER = 0, 1, 2
"""Whether a row of a strip was not computed, computed in this pass, or in an earlier one."""

_SATURATE, _TYPICAL = 0.97, 4.0  # see `ends`


@dataclass(frozen=True, slots=True)
class Strip:
    """A column's numbers, one line per row, reduced to `bins` values each.

    Attributes
    ----------
    state : uint8 [rows]
        ABSENT, NOW or EARLIER.
    bins : float32 [rows, bins]
        The value of the largest size of each group of neighbours, with its sign.
    high : float32 [rows]
        Where each line's colours end, see `ends`.
    n : int
        Event number of the newest part, -1 for none.
    """

    state: np.ndarray
    bins: np.ndarray
    high: np.ndarray
    n: int


def bins_of(n: int, most: int) -> int:
    """How many bins show n values in at most `most`: a divisor of n where one is near."""
    if n <= most:
        return max(n, 1)
    even = [b for b in range(most, most // 2, -1) if n % b == 0]
    return even[0] if even else most


def strongest(x: np.ndarray, bins: int) -> np.ndarray:
    """The value of the largest size in each of `bins` groups of neighbours; NaN wins.

    float [rows, n] -> float32 [rows, bins]
    """
    n = x.shape[1]
    if bins >= n:
        return x.astype(np.float32)
    size = np.where(np.isnan(x), np.inf, np.abs(x))
    if n % bins == 0:
        groups = size.reshape(len(x), bins, n // bins)
        at = groups.argmax(2) + np.arange(bins) * (n // bins)
    else:
        edges = edges_of(n, bins)
        at = np.stack([a + size[:, a:b].argmax(1) for a, b in pairwise(edges)], 1)
    return np.take_along_axis(x, at, 1).astype(np.float32)


def ends(lines: np.ndarray) -> np.ndarray:
    """Where the colours of each line end, so that a few outliers do not leave the rest pale.

    float32 [rows, bins] -> float32 [rows]: near the line's largest size, but at most four times its
    median.
    """
    if not lines.size:
        return np.zeros(len(lines), np.float32)
    size = np.where(np.isfinite(lines), np.abs(lines), 0)
    high = np.quantile(size, _SATURATE, axis=1)
    usual = np.median(size, axis=1) * _TYPICAL
    return np.where(usual > 0, np.minimum(high, usual), high).astype(np.float32)


def edges_of(n: int, bins: int) -> Sequence[int]:
    """Where each of `bins` groups of n values begins, and where the last one ends."""
    return [i * n // bins for i in range(bins + 1)]
