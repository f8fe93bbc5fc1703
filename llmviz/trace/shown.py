"""What a view shows of a run: which tokens, cells and columns, and the scale of their colours.

The views of the notebook and the figures on paper take their numbers from here, so that both show
the same. Reads a recorder's records and arrays; changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from llmviz.trace.records import Alternative, CellsRecord, TokenRecord
from llmviz.trace.summary import probabilities

if TYPE_CHECKING:
    from llmviz.trace.recorder import Recorder

__all__ = [
    "Candidates",
    "Scale",
    "ShownAttention",
    "attention",
    "candidates",
    "cells_window",
    "end_of_news",
    "scale_of",
    "short",
    "window",
]

_NAME = 200  # characters of a name: llama.cpp's have at most 63, a file's may have any number
_FEW = 16  # columns that are shown even where most of them hold nothing new
_OUTLIER = 4.0  # a maximum this many times the 99th percentile would leave the rest one colour


def short(text: str, most: int = _NAME) -> str:
    """A name or label as far as it is worth showing."""
    return text if len(text) <= most else text[:most] + "…"


# -- tensors -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scale:
    """Ends of a colour scale.

    Attributes
    ----------
    low, high : float
    signed : bool
        Values on both sides of zero: the scale is symmetric around it.
    clipped : int
        Finite values beyond the ends: single outliers are given up so that the rest can be seen.
    """

    low: float
    high: float
    signed: bool
    clipped: int


def scale_of(part: np.ndarray, low: float | None = None, high: float | None = None) -> Scale:
    """The scale of a window of values; of its finite ones where no ends are given."""
    x = part.astype(np.float64)
    values = x[np.isfinite(x)]
    signed = bool(values.size and values.min() < 0 < values.max())
    if low is None or high is None:
        low, high = _ends(values, signed)
    clipped = int(((values < low) | (values > high)).sum())
    return Scale(low, high, signed, clipped)


def _ends(values: np.ndarray, signed: bool) -> tuple[float, float]:
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


def end_of_news(matrix: np.ndarray) -> tuple[int, Any]:
    """Where the columns end that differ from the last one, and the one value that follows.

    A cache of 256 cells with nine in use has 247 columns that say nothing: those are left out of
    the window (and named), so that what is there can be seen. ``(n_columns, None)`` where there is
    nothing to leave out.
    """
    n_columns = matrix.shape[1]
    last = matrix[0, -1]
    same = np.isnan(matrix) if last != last else matrix == last
    news = np.flatnonzero(~same.all(axis=0))
    end = max(_FEW, -(-(int(news[-1]) + 1) // 8) * 8) if news.size else n_columns
    return (end, last) if end <= n_columns // 2 else (n_columns, None)


def window(
    matrix: np.ndarray, origin: Sequence[int], rows: int, columns: int
) -> tuple[int, int, np.ndarray, Any]:
    """The part of a matrix that fits, from `origin` on where that is inside.

    Returns
    -------
    (int, int, ndarray [<= rows, <= columns], scalar or None)
        First row, first column, a view, and the one value that all columns after it hold, see
        `end_of_news`.
    """
    row, column = (*origin, 0, 0)[:2]
    row = max(0, min(row, matrix.shape[0] - rows))
    end, rest = end_of_news(matrix)
    if column >= end:
        end, rest = matrix.shape[1], None
    column = max(0, min(column, end - columns))
    return row, column, matrix[row : row + rows, column : min(column + columns, end)], rest


# -- attention -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ShownAttention:
    """One head's weights between the newest tokens that have a row.

    Attributes
    ----------
    tokens : list of TokenRecord
    matrix : float32 [n, n] or None
        Row = query, column = key, in the order of `tokens`; NaN where nothing was computed. None
        where the recorder holds nothing of this layer and head.
    total : int
        Tokens that have a row; more than `tokens` where they did not fit.
    """

    tokens: list[TokenRecord]
    matrix: np.ndarray | None
    total: int

    def index(self, query: int) -> int:
        """The row of a position, the newest one's where it is not among those shown."""
        positions = [k.pos for k in self.tokens]
        return positions.index(query) if query in positions else len(positions) - 1


def attention(recorder: Recorder, layer: int, head: int, most: int) -> ShownAttention:
    """The weights of one head between the `most` newest tokens.

    Only tokens that were decoded have a row: the newest one may not have been looked at yet.
    """
    last = recorder.last_query(layer)
    tokens = [k for k in recorder.tokens if k.pos <= last][-most:]
    matrix = recorder.attention_matrix(layer, head, [k.pos for k in tokens]) if tokens else None
    return ShownAttention(tokens, matrix, last + 1)


# -- cells and candidates ------------------------------------------------------------------------


def cells_window(record: CellsRecord, most: int, step: int) -> tuple[int, int]:
    """First and end of the cells to show: up to the last one in use, in whole steps."""
    total = len(record.pos)
    in_use = np.flatnonzero(record.pos >= 0)
    end = int(in_use[-1]) + 1 if in_use.size else 0
    last = min(total, -(-(end + 1) // step) * step)
    return max(0, last - most), last


@dataclass(frozen=True, slots=True)
class Candidates:
    """The likeliest tokens for one position.

    Attributes
    ----------
    top : tuple of Alternative
        Ten at most, by logit.
    chosen : int or None
        Id of the token that was taken.
    pos : int
        The position they are for.
    n_vocab : int or None
        None where only `top` was kept.
    entropy : float or None
        Of the raw probabilities, in nats.
    """

    top: tuple[Alternative, ...]
    chosen: int | None
    pos: int
    n_vocab: int | None = None
    entropy: float | None = None


def candidates(recorder: Recorder, selected: int = -1) -> Candidates | None:
    """What a selected token was chosen from, or else the newest logits; None before the first."""
    tokens = recorder.tokens
    picked = tokens[selected] if 0 <= selected < len(tokens) else None
    if picked is not None and picked.top:
        return Candidates(picked.top, picked.id, picked.pos)
    if recorder.logits is None and not recorder.top:
        return None
    last = tokens[-1] if tokens else None
    chosen = last.id if last is not None and last.n > recorder.logits_n else None
    if recorder.logits is None:  # a trace that has only the likeliest
        return Candidates(recorder.top, chosen, len(tokens) - (chosen is not None))
    p = probabilities(recorder.logits)
    entropy = float(-(p[p > 0] * np.log(p[p > 0])).sum())
    return Candidates(recorder.top, chosen, len(tokens) - (chosen is not None), len(p), entropy)
