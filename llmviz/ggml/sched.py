"""The scheduler: divides a graph between backends, gives it memory, binds its nodes, runs them.

↔ ggml/src/ggml-backend.cpp

`Sched.compute` is a generator: a node that the consumer wants to see is an event, all others run
in one stretch (`line.Line`). With nobody watching it yields nothing. `Sched.times` makes it read
the clock around every node; off by default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, repeat
from time import perf_counter_ns

import numpy as np

from llmviz.errors import UnsupportedError
from llmviz.events import Event, Steps
from llmviz.ggml.alloc import Allocator, Plan, plan
from llmviz.ggml.backends.backend import Backend, BindScope, Joins, Kernel
from llmviz.ggml.copies import Copy, copies_of, copy_kernel
from llmviz.ggml.graph import COPY_OP, Graph, Tensor
from llmviz.ggml.line import Line
from llmviz.ggml.measure import NodeStatistics, measurable, measure
from llmviz.ggml.splits import assign, split

__all__ = ["Aborted", "NodeTimes", "Sched", "Want", "never"]

Want = Callable[[str], bool]


def never(name: str) -> bool:
    """The `want` of a consumer that watches nothing."""
    return False


class Aborted(Exception):
    """The abort callback returned true while a graph was running."""


@dataclass(slots=True, eq=False)
class NodeTimes:
    """What each node of the last run took, by `time.perf_counter_ns`.

    The stretches do not overlap, and a pause between two events lies in none of them.

    Attributes
    ----------
    graph : Graph or None
        The graph that ran.
    compute : list of int
        Nanoseconds in each node's kernel, in the order of ``graph.nodes``; 0 for a view. Shorter
        than the graph where the run was broken off.
    ask : list of int
        Nanoseconds in ``want(name)``, for the same nodes.
    """

    graph: Graph | None = None
    compute: list[int] = field(default_factory=list)
    ask: list[int] = field(default_factory=list)

    def begin(self, graph: Graph | None) -> None:
        """Forget the last run."""
        self.graph, self.compute, self.ask = graph, [], []

    def run(self, kernel: Kernel | None, asking: int) -> None:
        """Run one node's kernel between two looks at the clock."""
        self.ask.append(asking)
        if kernel is None:
            self.compute.append(0)
            return
        with np.errstate(all="ignore"):
            start = perf_counter_ns()
            kernel()
            wait = getattr(kernel, "wait", None)  # of a device, which computes later
            if wait is not None:
                wait()
            self.compute.append(perf_counter_ns() - start)


class Sched:
    """Runs graphs on backends in order of priority. ↔ ggml_backend_sched

    Parameters
    ----------
    backends : sequence of Backend
        In order of priority; of several the last is the host's. Which computes a node is decided
        by `splits.assign`: above all, where its weights are.
    op_offload : bool
        Whether a weight on the host may be copied to a device for a large batch.

    Attributes
    ----------
    allocators : list of Allocator
        One for each memory, the host's last.
    plans : list of Plan
        How the allocated graph lies in each of their arenas.
    times : NodeTimes or None
        Filled by every run where it is set.
    statistics : NodeStatistics or None
        Filled by every run where it is set.
    n_threads : tuple of (int, int)
        Threads of compiled kernels: for one column, and for several. 0 is all there are.
    compiled : bool
        Whether ops use their compiled form where there is one.
    """

    def __init__(self, backends: Iterable[Backend], *, op_offload: bool = True) -> None:
        self.backends = list(backends)
        self.op_offload = op_offload
        self.allocators = [Allocator(b) for b in self.backends if not b.is_host]
        self.allocators.append(Allocator())
        self.graph: Graph | None = None
        self.plans: list[Plan] = []
        self._places: dict[int, Backend] = {}
        self.times: NodeTimes | None = None
        self.statistics: NodeStatistics | None = None
        self.n_threads = (0, 0)
        self.compiled = False
        self._runs: list[tuple[int, list[tuple[Tensor, Kernel | None]]]] = []
        self._line = Line([], 1)
        self._unseen: list[Kernel] = []

    @property
    def allocator(self) -> Allocator:
        """The host's allocator."""
        return self.allocators[-1]

    @property
    def plan(self) -> Plan | None:
        """How the allocated graph lies in the host's arena."""
        return self.plans[-1] if self.plans else None

    @property
    def n_splits(self) -> int:
        """Pieces that the allocated graph is cut into. ↔ ggml_backend_sched_get_n_splits"""
        return len(self.graph.splits) or 1 if self.graph is not None else 0

    @property
    def copies(self) -> list[Copy]:
        """What every run of the allocated graph copies between backends."""
        return copies_of(self.graph, self.backends) if self.graph is not None else []

    def divide(self, graph: Graph, pinned: Mapping[int, Backend] | None = None) -> None:
        """Assign every node to a backend and cut the graph into splits; once for each graph.

        Parameters
        ----------
        graph : Graph
        pinned : mapping or None
            ``id(node) -> backend`` that the builder wants. ↔ ggml_backend_sched_set_tensor_backend
        """
        if len(self.backends) == 1 or graph.splits:
            return
        at = {id(backend): i for i, backend in enumerate(self.backends)}
        places = {node: at[id(backend)] for node, backend in (pinned or {}).items()}
        found = assign(graph, self.backends, places, op_offload=self.op_offload)
        graph.splits = split(graph, self.backends, found)

    def measure(
        self,
        graph: Graph,
        outputs: Iterable[Tensor] = (),
        pinned: Mapping[int, Backend] | None = None,
    ) -> list[int]:
        """Bytes of each allocator's arena that `graph` would need; nothing is allocated."""
        outputs = list(outputs)
        self.divide(graph, pinned)
        return [plan(graph, outputs, allocator.home).size for allocator in self.allocators]

    def reserve(
        self,
        graph: Graph,
        outputs: Iterable[Tensor] = (),
        pinned: Mapping[int, Backend] | None = None,
    ) -> Plan:
        """Size the arenas for `graph` without binding it; the host's layout is returned."""
        outputs = list(outputs)
        self.divide(graph, pinned)
        return [allocator.reserve(graph, outputs) for allocator in self.allocators][-1]

    def alloc_graph(
        self,
        graph: Graph,
        outputs: Iterable[Tensor] = (),
        pinned: Mapping[int, Backend] | None = None,
    ) -> None:
        """Give `graph` memory and turn each node into its kernel.

        ↔ ggml_backend_sched_alloc_graph
        """
        outputs = list(outputs)
        self.divide(graph, pinned)
        self.plans = [allocator.alloc(graph, outputs) for allocator in self.allocators]
        # one scope for each memory: what nodes share lies in theirs
        scopes = {
            id(a.home): BindScope(n_threads=self.n_threads, compiled=self.compiled)
            for a in self.allocators
        }
        self._places = {
            id(node): self.backends[part.backend]
            for part in graph.splits
            for node in graph.nodes[part.i_start : part.i_end]
        }
        self._runs = [
            (il, [(node, self._bind(node, scopes)) for node in nodes])
            for il, nodes in graph.by_layer()
        ]
        self._line = Line(self._runs, self.n_threads[0])
        self._unseen = self._bind_unseen(graph)
        self.graph = graph

    def _bind(self, node: Tensor, scopes: dict[int, BindScope]) -> Kernel | None:
        if node.op == COPY_OP:
            return copy_kernel(node)
        return self.backend_of(node).bind(node, scopes[id(node.home)])

    def _bind_unseen(self, graph: Graph) -> list[Kernel]:
        """What runs when nobody watches: for neighbours on a device that can, fewer launches."""

        joins = {id(backend) for backend in self.backends if isinstance(backend, Joins)}
        if not joins:
            return [partial(self._line.run, 0, len(self._line))]

        def place(pair: tuple[Tensor, Kernel | None]) -> Backend | None:
            backend = self._places.get(id(pair[0])) if pair[0].op != COPY_OP else None
            return backend if id(backend) in joins else None

        out: list[Kernel] = []
        low = 0
        for backend, group in groupby([pair for _, run in self._runs for pair in run], place):
            pairs = list(group)
            high = low + len(pairs)
            if isinstance(backend, Joins):
                out += backend.bind_unseen([n for n, _ in pairs], [k for _, k in pairs], graph)
            else:
                out.append(partial(self._line.run, low, high))
            low = high
        return out

    def backend_of(self, node: Tensor) -> Backend:
        """The backend that computes `node` of the allocated graph, or would."""
        place = self._places.get(id(node))
        if place is not None:
            return place
        for backend in self.backends:
            if backend.supports(node):
                return backend
        raise UnsupportedError("op", node.op, supported=[b.name for b in self.backends])

    def compute(
        self,
        want: Want | None = None,
        *,
        depth: int = 0,
        abort: Callable[[], bool] | None = None,
    ) -> Steps[None]:
        """Run the allocated graph.

        Parameters
        ----------
        want : callable or None
            ``want(name)`` says which nodes become events; None means all.
        abort : callable or None
            Asked before every node; true raises `Aborted`.

        Yields
        ------
        Event
            ``node`` events, those of layer il inside a scope ``layer-<il>``. Nothing at all where
            `want` is `never` and nobody may abort.
        """
        if self.times is not None:
            self.times.begin(self.graph)
        stats = self.statistics
        if stats is not None:
            stats.begin(self.graph)
        one_by_one = self.times is not None or abort is not None
        if want is never and not one_by_one:
            if stats is not None:
                self._line.run(0, len(self._line), stats)
                return
            for run in self._unseen:
                run()
            return
        if one_by_one:
            yield from self._compute_one_by_one(want, depth, abort)
            return
        at = pending = 0
        for il, nodes, names in self._line.layers:
            inside = depth + (il >= 0)
            if il >= 0:  # the scope is there watched or not, so that events keep their numbers
                yield Event("enter", f"layer-{il}", depth, 13, il)
            # what nobody watches waits, and runs in one stretch with what comes after it
            for i, watched in enumerate(map(want, names) if want else repeat(True, len(nodes))):
                if watched:
                    self._line.run(pending, at + i + 1, stats)
                    value = self._line.value(at + i)
                    pending = at + i + 1
                    event = Event("node", names[i], inside, 13, value, nodes[i])
                    yield event
                    if event.value is not value:  # the consumer puts another in its place
                        nodes[i].write(event.value)
            at += len(nodes)
            if il >= 0:
                yield Event("exit", f"layer-{il}", depth, 13, il)
        self._line.run(pending, at, stats)

    def _compute_one_by_one(
        self, want: Want | None, depth: int, abort: Callable[[], bool] | None
    ) -> Steps[None]:
        """Each node by itself, for a clock or for who may stop the run before any of them."""
        for il, nodes in self._runs:
            if il >= 0:
                yield Event("enter", f"layer-{il}", depth, 13, il)
            yield from self._compute_nodes(nodes, want, depth + (il >= 0), abort)
            if il >= 0:
                yield Event("exit", f"layer-{il}", depth, 13, il)

    def _compute_nodes(
        self,
        nodes: list[tuple[Tensor, Kernel | None]],
        want: Want | None,
        depth: int,
        abort: Callable[[], bool] | None,
    ) -> Steps[None]:
        stats = self.statistics
        at = 0 if self.graph is None or stats is None else self.graph.nodes.index(nodes[0][0])
        for i, (node, kernel) in enumerate(nodes, at):
            if abort is not None and abort():
                raise Aborted
            start = 0 if self.times is None else perf_counter_ns()
            watched = want is None or want(node.name)
            if self.times is not None:
                self.times.run(kernel, perf_counter_ns() - start)
            elif kernel is not None:
                with np.errstate(all="ignore"):
                    kernel()
            if stats is not None and measurable(node):
                stats.table[i] = measure(node.read())
            if watched:
                value = node.read().view()
                value.flags.writeable = False
                event = Event("node", node.name, depth, 13, value, node)
                yield event
                if event.value is not value:
                    node.write(event.value)
