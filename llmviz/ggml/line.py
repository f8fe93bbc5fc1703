"""A bound graph in the order it runs: compiled stretches, and kernels between them.

↔ ggml/src/ggml-cpu/ggml-cpu.c (ggml_graph_compute_thread)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from llmviz.ggml.backends import kernels
from llmviz.ggml.backends.backend import Kernel, Taped
from llmviz.ggml.backends.kernels.tape import statistics_row
from llmviz.ggml.graph import Tensor
from llmviz.ggml.measure import NodeStatistics, measurable, measure

__all__ = ["Line"]


class Line:
    """Nodes with their kernels, run from one to another without a look at each.

    Parameters
    ----------
    runs : sequence of (int, list of (Tensor, Kernel or None))
        Neighbouring nodes of a layer (-1: of none), in order; None for a view.
    n_threads : int
        Of the compiled stretches; 0 is all there are.

    Attributes
    ----------
    layers : list of (int, list of Tensor, list of str)
        The runs: layer, nodes, their names.
    """

    def __init__(
        self, runs: Sequence[tuple[int, list[tuple[Tensor, Kernel | None]]]], n_threads: int
    ) -> None:
        self.layers = [(il, [n for n, _ in run], [n.name for n, _ in run]) for il, run in runs]
        self._bound = [pair for _, run in runs for pair in run]
        self._n_threads = n_threads
        self._own: list[int] = []  # numbers of the nodes that are not on the tape
        self._kernels: list[Kernel] = []
        for i, (_, kernel) in enumerate(self._bound):
            if kernel is not None and not isinstance(kernel, Taped):
                self._own.append(i)
                self._kernels.append(kernel)
        self._tape, self._before = self._made(None)
        self._measuring: tuple[int, Any, list[int]] | None = None
        self._alone = [self._one(i, kernel) for i, (_, kernel) in enumerate(self._bound)]
        self._values: list[np.ndarray | None] = [None] * len(self._bound)

    def _made(self, statistics: NodeStatistics | None) -> tuple[Any, list[int]]:
        """The tape, and how many of its rows come before each node; measured after each or not."""
        rows, before = [], [0]
        for i, (node, kernel) in enumerate(self._bound):
            if isinstance(kernel, Taped):
                rows += kernel.rows
                if statistics is not None and measurable(node):
                    assert node.array is not None
                    rows.append(statistics_row(node.array, statistics.table[i]))
            before.append(len(rows))
        return kernels.load().tape(rows, self._n_threads) if rows else None, before

    def _one(self, i: int, kernel: Kernel | None) -> Kernel | None:
        """What runs where node i is a stretch by itself."""
        if isinstance(kernel, Taped):
            return self._tape.stretch(self._before[i], self._before[i + 1])
        return None if kernel is None else partial(_quietly, kernel)

    def __len__(self) -> int:
        return len(self._before) - 1

    def value(self, i: int) -> np.ndarray:
        """The value of node i as it is now, not to be written; of the host's nodes one object."""
        value = self._values[i]
        if value is None:
            node = self._bound[i][0]
            value = node.read().view()
            value.flags.writeable = False
            if node.home is None:
                self._values[i] = value
        return value

    def run(self, low: int, high: int, statistics: NodeStatistics | None = None) -> None:
        """Compute nodes low .. high - 1; with `statistics`, look at each one's values as well."""
        if high - low == 1 and statistics is None:
            kernel = self._alone[low]
            if kernel is not None:
                kernel()
            return
        if low >= high:
            return
        tape, before, own = self._tape, self._before, self._own
        if statistics is not None and tape is not None:
            tape, before = self._measured(statistics)
        first, last = bisect_left(own, low), bisect_left(own, high)
        if first == last:
            if tape is not None:
                tape.run(before[low], before[high])
            return
        with np.errstate(all="ignore"):
            for i in range(first, last):
                if tape is not None:
                    tape.run(before[low], before[own[i]])
                self._kernels[i]()
                if statistics is not None and measurable(self._bound[own[i]][0]):
                    statistics.table[own[i]] = measure(self._bound[own[i]][0].read())
                low = own[i] + 1
            if tape is not None:
                tape.run(before[low], before[high])

    def _measured(self, statistics: NodeStatistics) -> tuple[Any, list[int]]:
        """The tape that measures, made when it is first wanted."""
        table = statistics.table.ctypes.data
        if self._measuring is None or self._measuring[0] != table:
            self._measuring = (table, *self._made(statistics))
        return self._measuring[1:]


def _quietly(kernel: Kernel) -> None:
    with np.errstate(all="ignore"):
        kernel()
