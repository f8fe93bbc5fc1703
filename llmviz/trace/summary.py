"""Statistics and two-dimensional slices of a tensor, as the panel and the CLI show them.

Only reads: nothing here changes or keeps the array it is given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmviz.ggml.measure import measure

__all__ = ["Slice", "Statistics", "as_matrix", "probabilities", "statistics"]


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
    nan, inf, *figures = measure(array)
    low, high, mean, std = (None if math.isnan(f) else f for f in figures)
    return Statistics(array.size, int(nan), int(inf), low, high, mean, std)


@dataclass(frozen=True, slots=True)
class Slice:
    """A 2-D slice of an array, and where it lies.

    Attributes
    ----------
    matrix : ndarray [rows, columns]
        A view.
    row_axis, column_axis : int or None
        Axes of the array that the rows and columns run along; None where there is none.
    lead : tuple of int
        The other axes that have a choice (more than one index), in order.
    index : tuple of int
        The index that was used on each axis of `lead`.
    rank : int
        Of the array.
    """

    matrix: np.ndarray
    row_axis: int | None
    column_axis: int | None
    lead: tuple[int, ...]
    index: tuple[int, ...]
    rank: int

    def place(self, row: int, column: int) -> tuple[int, ...]:
        """The index in the array of a cell of the slice."""
        out = [0] * self.rank
        for axis, i in zip(self.lead, self.index, strict=True):
            out[axis] = i
        if self.row_axis is not None:
            out[self.row_axis] = row
        if self.column_axis is not None:
            out[self.column_axis] = column
        return tuple(out)


def as_matrix(array: np.ndarray, index: tuple[int, ...] = ()) -> Slice:
    """A 2-D slice of an array of any rank, as a view.

    Columns run along the last axis, rows along the last axis before it that is longer than 1: of
    [9, 1, 256] all of it is shown, of [9, 5, 256] one of nine [5, 256].

    Parameters
    ----------
    array : ndarray
        Rank 0 becomes [1, 1], rank 1 becomes [1, n].
    index : tuple of int
        Which slice: one number for each remaining axis that is longer than 1. Missing ones are 0,
        others are clamped to their axis.
    """
    if array.ndim < 2:
        column = 0 if array.ndim else None
        return Slice(array.reshape(1, -1), None, column, (), (), array.ndim)
    before = [axis for axis in range(array.ndim - 1) if array.shape[axis] > 1]
    row_axis = before.pop() if before else array.ndim - 2
    lead = tuple(before)
    wanted = (*index, *([0] * len(lead)))[: len(lead)]
    used = tuple(
        max(0, min(int(i), array.shape[axis] - 1)) for i, axis in zip(wanted, lead, strict=True)
    )
    pick: list[Any] = [0] * array.ndim
    for axis, i in zip(lead, used, strict=True):
        pick[axis] = i
    pick[row_axis] = pick[-1] = slice(None)
    return Slice(array[tuple(pick)], row_axis, array.ndim - 1, lead, used, array.ndim)


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
