"""Minimum, maximum, mean and deviation of a node's values, and how many are no finite numbers.

In plain numpy here; the compiled form is `llmviz.ggml.backends.kernels.statistics`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from llmviz.ggml.graph import Graph, Tensor
from llmviz.ggml.types import GGMLType

__all__ = ["FIELDS", "NodeStatistics", "measurable", "measure"]

FIELDS = ("nan", "inf", "min", "max", "mean", "std")
"""Columns of a table of statistics: counts, then figures of the finite values (NaN without any)."""

_CHUNK = 1 << 15  # values at a time: 256 KiB as float64, however large the tensor is


def measure(array: np.ndarray) -> tuple[float, ...]:
    """`FIELDS` of an array of numbers, computed in float64.

    Parameters
    ----------
    array : ndarray of any shape, of floats, integers or booleans
    """
    flat = array.reshape(-1)  # a view where the layout allows it
    room = np.empty(min(_CHUNK, flat.size), np.float64)  # reused: it stays in the processor's cache
    nan = inf = finite = 0
    low, high, total = np.inf, -np.inf, 0.0
    for part, x in _parts(flat, room):
        least, most = float(part.min()), float(part.max())
        if np.isfinite(least) and np.isfinite(most):  # one NaN would have made both NaN
            np.copyto(x, part)
        else:
            nan += int(np.isnan(part).sum())
            inf += int(np.isinf(part).sum())
            x = part[np.isfinite(part)].astype(np.float64)
            if not x.size:
                continue
            least, most = float(x.min()), float(x.max())
        finite += x.size
        low, high, total = min(low, least), max(high, most), total + float(x.sum())
    if not finite:
        return (nan, inf, np.nan, np.nan, np.nan, np.nan)
    mean = total / finite
    squares = 0.0
    for part, x in _parts(flat, room):
        np.subtract(part, mean, out=x, dtype=np.float64)
        if nan or inf:
            x[~np.isfinite(x)] = 0.0
        squares += float(np.square(x, out=x).sum())
    return (nan, inf, low, high, mean, float(np.sqrt(squares / finite)))


def measurable(node: Tensor) -> bool:
    """Whether a node computes float32 values of its own."""
    return not node.is_view and node.type == GGMLType.F32 and node.nelements > 0


def _parts(flat: np.ndarray, room: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The values piece by piece, each with as much room for float64."""
    for start in range(0, flat.size, _CHUNK):
        part = flat[start : start + _CHUNK]
        yield part, room[: part.size]


@dataclass(slots=True, eq=False)
class NodeStatistics:
    """What the values of each node of the last run were like.

    Attributes
    ----------
    graph : Graph or None
        The graph that ran.
    table : ndarray of float64, [n_nodes, 6]
        `FIELDS` of each node, in the order of ``graph.nodes``; NaN in all columns for a view, which
        computes nothing, and for a node of another type than float32.
    """

    graph: Graph | None = None
    table: np.ndarray = field(default_factory=lambda: np.empty((0, len(FIELDS))))

    def begin(self, graph: Graph | None) -> None:
        """Make room for a run."""
        n = 0 if graph is None else len(graph.nodes)
        if len(self.table) != n:  # its address stays the same while the graph is used again
            self.table = np.empty((n, len(FIELDS)))
        self.graph = graph
        self.table.fill(np.nan)

    def of(self, name: str) -> dict[str, float] | None:
        """The last node of a name; None where there is none that was measured.

        Returns
        -------
        dict of str to float, or None
            By `FIELDS`.
        """
        nodes: list[Tensor] = [] if self.graph is None else self.graph.nodes
        for i in reversed(range(len(nodes))):
            if nodes[i].name == name and not np.isnan(self.table[i, 0]):
                return dict(zip(FIELDS, self.table[i].tolist(), strict=True))
        return None
