"""A bound graph in the order it runs: compiled stretches, and kernels between them.

↔ ggml/src/ggml-cpu/ggml-cpu.c (ggml_graph_compute_thread)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from llmviz.ggml.backends import kernels
from llmviz.ggml.backends.backend import Kernel, Taped
from llmviz.ggml.graph import Tensor

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
        bound = [pair for _, run in runs for pair in run]
        rows, before = [], [0]  # rows of the tape before each node
        self._own: list[int] = []  # numbers of the nodes that are not on the tape
        self._kernels: list[Kernel] = []
        for i, (_, kernel) in enumerate(bound):
            if isinstance(kernel, Taped):
                rows += kernel.rows
            elif kernel is not None:
                self._own.append(i)
                self._kernels.append(kernel)
            before.append(len(rows))
        self._before = before
        self._tape = kernels.load().tape(rows, n_threads) if rows else None

    def __len__(self) -> int:
        return len(self._before) - 1

    def run(self, low: int, high: int) -> None:
        """Compute nodes low .. high - 1."""
        if low >= high:
            return
        before, tape, own = self._before, self._tape, self._own
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
                low = own[i] + 1
            if tape is not None:
                tape.run(before[low], before[high])
