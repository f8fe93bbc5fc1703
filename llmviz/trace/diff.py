"""How far two values are apart: errors of arrays, bounds from statistics, logits held together.

Plain functions over arrays; nothing here knows of runs. An error is ``|a - b| / |a|`` with the
Euclidean norm over all values of a node, in float64: the first run is what the second one is held
against.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmviz.trace.records import Alternative
from llmviz.trace.summary import Statistics, probabilities

__all__ = [
    "KINDS",
    "Difference",
    "LogitsDiff",
    "NodeDiff",
    "compare_arrays",
    "compare_logits",
    "compare_statistics",
    "decades",
    "fitted",
    "kind_of",
    "plain_name",
]

KINDS = ("residual stream", "norm", "attention", "feed-forward", "output", "other")
"""Kinds of nodes, as they are told apart by colour."""

_CHUNK = 1 << 20  # values per pass: temporaries stay at a few MB
_LAYER = re.compile(r"-\d+$")
_NUMBERED = re.compile(r"^node_\d+")


@dataclass(frozen=True, slots=True)
class Difference:
    """How far two values of a node are apart.

    Attributes
    ----------
    error : float
        Norm of the difference, relative to the first value's norm; where that is zero, the norm of
        the second. Infinite where one holds NaN or infinity and the other something else.
    max_abs : float
        The largest difference of two numbers.
    at : tuple of int or None
        Index of that number; None where only statistics were known.
    bound : bool
        Whether these are only lower bounds, from statistics.
    """

    error: float
    max_abs: float
    at: tuple[int, ...] | None
    bound: bool = False


@dataclass(frozen=True, slots=True)
class NodeDiff:
    """One node of two runs, in one pass.

    Attributes
    ----------
    i : int
        Place along depth, counted from 0.
    name, op : str
    nth : int
        How many nodes of the same name and op came before it in its pass.
    layer : int
        -1 outside the layers.
    kind : str
        One of `KINDS`.
    shape_a, shape_b : tuple of int or None
        None where the node was not met in that run.
    n_a, n_b : int
        Numbers of the events, -1 for none.
    difference : Difference or None
    note : str
        What was compared, where it was not the whole value; or why nothing could be compared.
    """

    i: int
    name: str
    op: str
    nth: int
    layer: int
    kind: str
    shape_a: tuple[int, ...] | None
    shape_b: tuple[int, ...] | None
    n_a: int
    n_b: int
    difference: Difference | None
    note: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        """What the node is found by in another run: name, op, which of them."""
        return plain_name(self.name), self.op, self.nth

    @property
    def error(self) -> float | None:
        """The relative error, None where nothing could be compared."""
        return None if self.difference is None else self.difference.error

    @property
    def max_abs(self) -> float | None:
        """The largest difference of two numbers, None where nothing could be compared."""
        return None if self.difference is None else self.difference.max_abs

    @property
    def bound(self) -> bool:
        """Whether the error is at least so large, and not known exactly."""
        return self.difference is not None and self.difference.bound

    def over(self, tolerance: float) -> bool:
        """Whether the error is known to be larger than a tolerance."""
        return self.difference is not None and not self.difference.error <= tolerance


def decades(nodes: Iterable[NodeDiff], tolerance: float) -> tuple[int, int]:
    """Powers of ten between which a chart shows the errors of nodes and the tolerance."""
    errors = [d.error for d in nodes if d.error is not None and 0 < d.error < math.inf]
    errors += [tolerance] if tolerance > 0 else []
    low = math.floor(math.log10(max(min(errors, default=1e-3), 1e-16)))
    high = math.ceil(math.log10(max(errors, default=1e-3)) + 0.1)
    missing = max(0, 4 - (high - low))
    return low - (missing + 1) // 2, high + missing // 2


def plain_name(name: str) -> str:
    """A node's name, without its number where a graph numbered it: other graphs count otherwise."""
    return _NUMBERED.sub("node_#", name)


def kind_of(name: str) -> str:
    """Which of `KINDS` a node is, by llama.cpp's name for it."""
    base = _LAYER.sub("", name)
    if base.startswith("result_"):
        return "norm" if "norm" in base else "output"
    if "norm" in base:
        return "norm"
    if base in ("embd", "inp_embd", "inp_scaled", "l_out", "ffn_inp", "inpL"):
        return "residual stream"
    if base.startswith(("ffn_", "ffn", "moe")):
        return "feed-forward"
    if base.startswith(("Q", "K", "V", "q", "k", "v", "attn", "wqkv", "wo", "rope")):
        return "attention"
    return "other"


def compare_arrays(a: np.ndarray, b: np.ndarray) -> Difference:
    """The difference of two arrays of the same shape; NaN equals NaN, inf equals the same inf."""
    x, y = np.asarray(a).reshape(-1), np.asarray(b).reshape(-1)
    total = size = other = 0.0
    most, at, broken = 0.0, 0, -1
    for start in range(0, x.size, _CHUNK):
        p = x[start : start + _CHUNK].astype(np.float64)
        q = y[start : start + _CHUNK].astype(np.float64)
        fine = np.isfinite(p) & np.isfinite(q)
        if not fine.all():
            same = (p == q) | (np.isnan(p) & np.isnan(q))
            if broken < 0 and not (fine | same).all():
                broken = start + int((~(fine | same)).argmax())
            p, q = np.where(fine, p, 0.0), np.where(fine, q, 0.0)
        d = np.abs(p - q)
        total += float(np.dot(d, d))
        size += float(np.dot(p, p))
        other += float(np.dot(q, q))
        i = int(d.argmax()) if d.size else 0
        if d.size and d[i] > most:
            most, at = float(d[i]), start + i
    if broken >= 0:
        return Difference(math.inf, math.inf, _index(broken, a.shape))
    norm = math.sqrt(size) or (1.0 if other else 0.0)
    error = math.sqrt(total) / norm if norm else 0.0
    return Difference(error, most, _index(at, a.shape))


def _index(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    if 0 in shape:
        return ()
    return tuple(int(i) for i in np.unravel_index(flat, shape)) if shape else ()


def compare_statistics(a: Statistics, b: Statistics) -> Difference | None:
    """The least that two values can differ by, given their statistics; None where it is unknown.

    The mean of a difference is the difference of the means, and its standard deviation is at least
    the difference of the deviations.
    """
    if a.count != b.count:
        return None
    if (a.nan, a.inf) != (b.nan, b.inf):
        return Difference(math.inf, math.inf, None, True)
    if a.mean is None or a.std is None or b.mean is None or b.std is None:
        return Difference(0.0, 0.0, None, True)
    if a.min is None or a.max is None or b.min is None or b.max is None:
        return None
    least = math.hypot(a.mean - b.mean, a.std - b.std)
    norm = math.hypot(a.mean, a.std) or (1.0 if math.hypot(b.mean, b.std) else 0.0)
    error = least / norm if norm else 0.0
    return Difference(error, max(abs(a.min - b.min), abs(a.max - b.max)), None, True)


def fitted(
    a: np.ndarray, b: np.ndarray, n_a: int, n_b: int, name: str
) -> tuple[np.ndarray, np.ndarray, str] | None:
    """Two values cut to what both have, and a note on what that is; None where they do not fit.

    Passes of another number of tokens are compared by their last token, attention over another
    number of cells by the first cells.

    Parameters
    ----------
    n_a, n_b : int
        Tokens of the passes.
    """
    notes = []
    if a.ndim != b.ndim:
        return None
    if a.shape != b.shape and n_a != n_b:
        for axis in range(a.ndim):
            others = [i for i in range(a.ndim) if i != axis]
            if name.startswith("kq"):
                others = [i for i in others if i != a.ndim - 1]
            same = all(a.shape[i] == b.shape[i] for i in others)
            if (a.shape[axis], b.shape[axis]) == (n_a, n_b) and same:
                a, b = a.take([-1], axis), b.take([-1], axis)
                notes.append("last token only")
                break
    if a.shape != b.shape and name.startswith("kq") and a.shape[:-1] == b.shape[:-1]:
        cells = min(a.shape[-1], b.shape[-1])
        a, b = a[..., :cells], b[..., :cells]
        notes.append(f"the first {cells} cells")
    return (a, b, ", ".join(notes)) if a.shape == b.shape else None


@dataclass(frozen=True, slots=True)
class LogitsDiff:
    """What two runs want to say next, after the same pass.

    Attributes
    ----------
    same : bool
        Whether the likeliest token is the same.
    top_a, top_b : tuple of Alternative
        The likeliest tokens of each.
    rank_in_b, rank_in_a : int or None
        Rank of a's likeliest token in b and of b's in a, 0 for the likeliest; None where the other
        run holds only its likeliest tokens and this is none of them.
    kl : float or None
        Kullback-Leibler divergence of b from a, in nats; None where not all logits are known.
    error : float or None
        Relative error of the logits.
    moved : int or None
        How many of a's ten likeliest tokens have another rank in b.
    note : str
        What could not be said, and why.
    """

    same: bool
    top_a: tuple[Alternative, ...]
    top_b: tuple[Alternative, ...]
    rank_in_b: int | None
    rank_in_a: int | None
    kl: float | None = None
    error: float | None = None
    moved: int | None = None
    note: str = ""


def compare_logits(
    a: np.ndarray | None,
    b: np.ndarray | None,
    top_a: tuple[Alternative, ...],
    top_b: tuple[Alternative, ...],
    same_vocabulary: bool,
) -> LogitsDiff | None:
    """Two rows of logits, or what is known of them; None where one of them is not known at all.

    Parameters
    ----------
    a, b : float32 [n_vocab] or None
    top_a, top_b : tuple of Alternative
        The likeliest of each; compared by text where the vocabularies differ.
    """
    if not top_a or not top_b:
        return None

    def find(x: Alternative, others: tuple[Alternative, ...]) -> int | None:
        for i, y in enumerate(others):
            if (x.id == y.id) if same_vocabulary else (x.text == y.text):
                return i
        return None

    same = find(top_a[0], top_b[:1]) == 0
    rank_in_b, rank_in_a = find(top_a[0], top_b), find(top_b[0], top_a)
    whole = a is not None and b is not None and a.shape == b.shape
    if not (whole and same_vocabulary):
        note = (
            "the vocabularies differ: tokens are compared by their text"
            if not same_vocabulary
            else "not all logits were kept: no KL divergence"
        )
        return LogitsDiff(same, top_a, top_b, rank_in_b, rank_in_a, note=note)
    assert a is not None and b is not None
    ten = [x.id for x in top_a]
    ranks = [int((b > b[i]).sum()) for i in ten]
    return LogitsDiff(
        same,
        top_a,
        top_b,
        ranks[0],
        int((a > a[top_b[0].id]).sum()),
        kl=divergence(a, b),
        error=compare_arrays(a, b).error,
        moved=sum(rank != i for i, rank in enumerate(ranks)),
    )


def divergence(a: np.ndarray, b: np.ndarray) -> float:
    """KL divergence of ``softmax(b)`` from ``softmax(a)`` in nats; infinite where b rules out what
    a does not.
    """
    p, q = probabilities(a), probabilities(b)
    some = p > 0
    with np.errstate(divide="ignore"):
        total = float((p[some] * (np.log(p[some]) - np.log(q[some]))).sum())
    return max(0.0, total)  # rounding may take it below zero


def as_statistics(value: Any) -> Statistics | None:
    """Statistics of an array, None of what holds no numbers."""
    from llmviz.trace.summary import statistics

    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiub" or not value.size:
        return None
    return statistics(value)
