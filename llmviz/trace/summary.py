"""Statistics and two-dimensional slices of a tensor, as the panel and the CLI show them.

Only reads: nothing here changes or keeps the array it is given.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Statistics", "as_matrix", "probabilities", "statistics"]

_CHUNK = 1 << 20  # values per pass: temporaries stay at a few MB however large the tensor is


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of all finite values of a tensor, in float64; None where there is none.

    Attributes
    ----------
    count : int
        All values.
    nan, inf : int
        How many of them are NaN, and infinite of either sign.
    """

    count: int
    nan: int
    inf: int
    min: float | None
    max: float | None
    mean: float | None
    std: float | None


def statistics(array: np.ndarray) -> Statistics:
    """Minimum, maximum, mean, standard deviation, NaN and inf counts of an array of any shape.

    Raises
    ------
    TypeError
        If the array does not hold numbers.
    """
    if array.dtype.kind not in "fiub":
        raise TypeError(f"statistics need numbers, this array holds {array.dtype}")
    flat = array.reshape(-1)  # a view where the layout allows it
    nan = inf = finite = 0
    low, high, total = np.inf, -np.inf, 0.0
    for start in range(0, flat.size, _CHUNK):
        part = flat[start : start + _CHUNK].astype(np.float64)
        ok = np.isfinite(part)
        if not ok.all():
            nan += int(np.isnan(part).sum())
            inf += int(np.isinf(part).sum())
            part = part[ok]
        if part.size:
            finite += part.size
            low, high = min(low, float(part.min())), max(high, float(part.max()))
            total += float(part.sum())
    if not finite:
        return Statistics(flat.size, nan, inf, None, None, None, None)
    mean = total / finite
    squares = 0.0
    for start in range(0, flat.size, _CHUNK):
        part = flat[start : start + _CHUNK].astype(np.float64)
        part = part[np.isfinite(part)]
        squares += float(np.square(part - mean).sum())
    return Statistics(flat.size, nan, inf, low, high, mean, float(np.sqrt(squares / finite)))


def as_matrix(array: np.ndarray, index: tuple[int, ...] = ()) -> tuple[np.ndarray, tuple[int, ...]]:
    """A 2-D slice of an array of any rank, as a view.

    Parameters
    ----------
    array : ndarray
        Rank 0 becomes [1, 1], rank 1 becomes [1, n].
    index : tuple of int
        Which slice: one number for each axis before the last two. Missing ones are 0, others are
        clamped to their axis.

    Returns
    -------
    (ndarray [rows, columns], tuple of int)
        The slice and the index that was used.
    """
    if array.ndim < 2:
        return array.reshape(1, -1), ()
    lead = array.shape[:-2]
    wanted = (*index, *([0] * len(lead)))[: len(lead)]
    used = tuple(max(0, min(int(i), n - 1)) for i, n in zip(wanted, lead, strict=True))
    return array[used], used


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Softmax of one row of logits, in float64: the probability before any sampler.

    float32[n_vocab] -> float64[n_vocab]; NaN counts as impossible.
    """
    x = np.nan_to_num(logits.astype(np.float64), nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    top = x.max(initial=-np.inf)
    if not np.isfinite(top):
        hit = x == top
        return hit / max(int(hit.sum()), 1)
    e = np.exp(x - top)
    return e / e.sum()
