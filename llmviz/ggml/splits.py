"""Which backend computes which node, and what has to be copied between them: as plain data.

↔ ggml/src/ggml-backend.cpp (ggml_backend_sched_split_graph)

`assign` gives every tensor a backend in the same passes as ggml: where its memory is, then where
its weights are, then where its neighbours are. `split` cuts the graph where the backend changes
and puts a copy, named ``"CUDA0#l_out-3#0"``, before the first node of a split for every tensor
that it needs from elsewhere. Nothing here computes or allocates.

One thing of ggml is missing: pipeline parallelism (several copies of each input, the ``#0`` in
the names).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from llmviz.errors import UnsupportedError
from llmviz.ggml.backends.backend import Backend
from llmviz.ggml.graph import COPY_OP, VIEW_OPS, Graph, Tensor

__all__ = ["Assignment", "Split", "assign", "split"]

Pinned = Mapping[int, int]
"""``id(node) -> backend`` for nodes whose place the graph's builder wants."""

UNASSIGNED = -1


@dataclass
class Assignment:
    """The backend of every tensor, as an index into the scheduler's backends.

    Attributes
    ----------
    backend : dict
        ``id(tensor) -> index``.
    cause : dict
        ``id(tensor) -> why``, in ggml's words: ``"1.dst"`` its memory is there, ``"1.inp"`` a
        graph's input, ``"1.wgt0"`` source 0 is a weight there, ``"1.off"`` worth copying that
        weight to a faster backend, ``"usr"`` the builder said so, ``"2.sup"`` its neighbours are
        there, ``"3.upg"`` a faster backend shares that memory, ``"3.best"`` most of its sources
        are there, ``"4.vsrc"`` a view of something there, ``"4.cur"`` the node that reads it is
        there, ``"4.cpy"`` a copy that was put there.
    """

    backend: dict[int, int] = field(default_factory=dict)
    cause: dict[int, str] = field(default_factory=dict)

    def of(self, tensor: Tensor) -> int:
        """The backend of a tensor, -1 while it has none."""
        return self.backend.get(id(tensor), UNASSIGNED)

    def put(self, tensor: Tensor, backend: int, cause: str) -> None:
        """Give a tensor its backend."""
        self.backend[id(tensor)] = backend
        self.cause[id(tensor)] = cause


@dataclass
class Split:
    """Neighbouring nodes that one backend computes. ↔ ggml_backend_sched_split

    Attributes
    ----------
    backend : int
        Index into the scheduler's backends.
    i_start, i_end : int
        Its nodes in ``graph.nodes``, the copies of its inputs first.
    inputs : list of Tensor
        What it needs from other backends, in the order in which its nodes ask for it.
    copies : list of Tensor
        The same on its own backend.
    """

    backend: int
    i_start: int
    i_end: int = 0
    inputs: list[Tensor] = field(default_factory=list)
    copies: list[Tensor] = field(default_factory=list)


class _Assigner:
    """The four passes. ↔ ggml_backend_sched_split_graph, pass 1 to 4"""

    def __init__(self, graph: Graph, backends: Sequence[Backend], op_offload: bool) -> None:
        self.graph = graph
        self.backends = backends
        self.last = len(backends) - 1
        self.op_offload = op_offload
        self.found = Assignment()
        self.memory = [id(None if b.is_host else b) for b in backends]
        self.real = [node for node in graph.nodes if node.op not in VIEW_OPS]

    def home_of(self, tensor: Tensor, node: Tensor | None = None) -> int:
        """The first backend that reads a tensor's memory and supports `node`; -1 for none."""
        for i, memory in enumerate(self.memory):
            if memory == id(tensor.home) and (node is None or self.backends[i].supports(node)):
                return i
        return UNASSIGNED

    def run(self, pinned: Pinned) -> Assignment:
        for leaf in self.graph.leafs:
            if leaf.is_input:
                self.found.put(leaf, self.last, "1.inp")
            else:
                self.found.put(leaf, self.home_of(leaf), "1.dst")
        for node in self.graph.nodes:
            if id(node) in pinned:
                self.found.put(node, pinned[id(node)], "usr")
            else:
                self.by_memory(node)
        # faster backends spread down and up, the last one only fills what is left
        for skip_last, backwards in ((True, False), (True, True), (False, False), (False, True)):
            self.expand(skip_last, reversed(self.real) if backwards else iter(self.real))
        for node in self.real:
            if self.found.of(node) == UNASSIGNED:
                self.by_sources(node)
            else:
                self.upgrade(node)
        for node in self.graph.nodes:
            self.rest(node)
        return self.found

    def by_memory(self, node: Tensor) -> None:
        """Pass 1: where the memory it writes to is, or a weight it reads."""
        root = node.root
        if root is not node and root.op == "NONE" and not root.is_input:
            at = self.home_of(root, node)
            if at == UNASSIGNED:
                where = self.backends[self.home_of(root)].name
                raise UnsupportedError(
                    f"op on {where}",
                    node.op,
                    hint=f"{root.name} lies there, {node.name} writes to it",
                )
            self.found.put(node, at, "1.dst")
            return
        if node.op == "ROPE":  # its frequency factors are too small to decide
            return
        for j, src in enumerate(node.src):
            if not src.is_weight:
                continue
            at = self.home_of(src, node)
            if self.op_offload and at == self.last:
                for b, backend in enumerate(self.backends[:at]):
                    if backend.supports(node) and backend.offload_op(node):
                        self.found.put(node, b, "1.off")
                        return
            if at != UNASSIGNED:
                self.found.put(node, at, f"1.wgt{j}")
            return

    def expand(self, skip_last: bool, nodes: Iterator[Tensor]) -> None:
        """Pass 2: nodes without a backend take their neighbour's, where that supports them."""
        current = UNASSIGNED
        for node in nodes:
            at = self.found.of(node)
            if at != UNASSIGNED:
                current = UNASSIGNED if skip_last and at == self.last else at
            elif current != UNASSIGNED and self.backends[current].supports(node):
                self.found.put(node, current, "2.sup")

    def reads(self, b: int, src: Tensor) -> bool:
        """Whether backend b can read a source where it is."""
        at = self.found.of(src)
        at = at if at != UNASSIGNED else self.found.of(src.root)
        return at != UNASSIGNED and self.memory[at] == self.memory[b]

    def upgrade(self, node: Tensor) -> None:
        """Pass 3: a backend of higher priority that shares the memory takes the node."""
        at = self.found.of(node)
        for b in range(at):
            if self.memory[b] != self.memory[at] or not self.backends[b].supports(node):
                continue
            if all(self.reads(b, src) for src in node.src):
                self.found.put(node, b, "3.upg")
                return

    def by_sources(self, node: Tensor) -> None:
        """Pass 3: the backend that most of its sources are on."""
        best = UNASSIGNED
        for b, backend in enumerate(self.backends):
            if backend.supports(node):
                near = sum(self.reads(b, src) for src in node.src)
                if near > best:
                    best = near
                    self.found.put(node, b, "3.best")

    def rest(self, node: Tensor) -> None:
        """Pass 4: views are where their memory is; other sources where they are read."""
        if node.is_view and self.found.of(node) == UNASSIGNED:
            self.found.put(node, self.found.of(node.root), "4.vsrc")
        for src in node.src:
            if self.found.of(src) == UNASSIGNED:
                if src.is_view:
                    self.found.put(src, self.found.of(src.root), "4.vsrc")
                else:
                    self.found.put(src, self.found.of(node), "4.cur")
        if self.found.of(node) == UNASSIGNED:
            names = ", ".join(b.name for b in self.backends)
            raise UnsupportedError("op", node.op, hint=f"none of {names} computes {node.name}")


def assign(
    graph: Graph,
    backends: Sequence[Backend],
    pinned: Pinned | None = None,
    *,
    op_offload: bool = True,
) -> Assignment:
    """Give every tensor of a graph a backend.

    Parameters
    ----------
    graph : Graph
        Weights and caches have memory (`Tensor.home`), nodes have none yet.
    backends : sequence of Backend
        In order of priority; the last is the host's.
    pinned : mapping or None
        ``id(node) -> backend``: decided before all else.
    op_offload : bool
        Whether a weight on the host may be copied to a faster backend for one product.

    Raises
    ------
    UnsupportedError
        An op that no backend can compute, or not the one that it must.
    """
    return _Assigner(graph, backends, op_offload).run(pinned or {})


def split(graph: Graph, backends: Sequence[Backend], found: Assignment) -> list[Split]:
    """Cut `graph` into splits; copies of their inputs become nodes of it, and sources of others.

    Every tensor gets its `home`. A graph that was split before stays as it is: build it anew.

    Returns
    -------
    list of Split
        They cover ``graph.nodes``.
    """
    homes = [None if b.is_host else b for b in backends]
    first = next((n for n in graph.nodes if n.op not in VIEW_OPS), None)
    current = Split(found.of(first) if first is not None else len(backends) - 1, 0)
    splits = [current]
    copies: dict[tuple[int, int], Tensor] = {}  # (id(source), backend) -> its copy there
    members: list[list[Tensor]] = [[]]
    for node in graph.nodes:
        at = found.of(node)
        if node.op not in VIEW_OPS:
            if at != current.backend or _needs_new(node, current, found, homes):
                current = Split(at, 0)
                splits.append(current)
                members.append([])
            _bring_sources(node, current, found, homes, backends[at].name, copies)
        node.home = homes[at]
        members[-1].append(node)
    nodes: list[Tensor] = []
    for part, own in zip(splits, members, strict=True):
        part.i_start = len(nodes)
        for copy in part.copies:
            copy.home = homes[part.backend]
        nodes += [*part.copies, *own]
        part.i_end = len(nodes)
    graph.nodes[:] = nodes
    return splits


def _needs_new(
    node: Tensor, current: Split, found: Assignment, homes: Sequence[Backend | None]
) -> bool:
    """Whether a node of the same backend starts a split all the same: it brings a weight along,
    and the memory of weights that were brought before can be used again.
    """
    if not current.inputs:
        return False
    here = homes[current.backend]
    return any(src.is_weight and homes[found.of(src)] is not here for src in node.src)


def _bring_sources(
    node: Tensor,
    current: Split,
    found: Assignment,
    homes: Sequence[Backend | None],
    name: str,
    copies: dict[tuple[int, int], Tensor],
) -> None:
    """Put copies in place of sources that lie elsewhere; make those that do not exist yet."""
    for j, src in enumerate(node.src):
        if homes[found.of(src)] is homes[current.backend]:
            continue
        key = id(src), current.backend
        copy = copies.get(key)
        if copy is None:
            copy = Tensor(
                src.type, src.ne, op=COPY_OP, name=f"{name}#{src.name}#0", src=(src,), nb=src.nb
            )
            copy.n_dims = src.n_dims
            copies[key] = copy
            found.put(copy, current.backend, "4.cpy")
            current.inputs.append(src)
            current.copies.append(copy)
        node.src[j] = copy
