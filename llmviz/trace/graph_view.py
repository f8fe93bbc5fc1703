"""A graph as it is shown: blocks, nodes with what is known of each, and how far a run has come.

Reads tensors, the allocator's plan and a debugger's events; computes no number of the model.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llmviz.ggml.graph import COPY_OP, VIEW_OPS
from llmviz.ggml.types import TYPES, GGMLType
from llmviz.trace.breakpoints import matches_name
from llmviz.trace.flow import graph_of
from llmviz.trace.graph_blocks import layers_of, part_of
from llmviz.trace.graph_layout import Drawing, lay_out

__all__ = ["Block", "Memory", "Node", "Progress", "Shown", "broken", "progress", "shown"]


@dataclass(frozen=True, slots=True)
class Memory:
    """A node's range of the arena.

    Attributes
    ----------
    offset, size : int
        Bytes; of several devices the arenas are counted one behind the other.
    born, dies : int
        Node that writes it, and the last that reads it; a result that is read after the graph has
        run dies behind the last node.
    before, after : int
        Node whose bytes it takes over, and the first that takes over some of its; -1 for none.
    """

    offset: int
    size: int
    born: int
    dies: int
    before: int = -1
    after: int = -1


@dataclass(frozen=True, slots=True)
class Node:
    """One node.

    Attributes
    ----------
    index : int
        Its place in the order of computing.
    name, op, type : str
    ne : tuple of int
        ggml's order, as many as were declared.
    layer, block : int
    part : str
        One of `graph_blocks.PARTS`.
    view : bool
        It computes nothing: it looks at its source's memory in another way.
    src : tuple of int
        Nodes that it reads.
    stored : tuple of int
        Nodes whose result it reads from the cache.
    leafs : tuple of str
        Weights, inputs and caches that it reads.
    cache : str
        The cache that it writes to; empty for none.
    backend : str
        Who computes it; empty where that is not known.
    split : int
        Which run of neighbours on one backend it belongs to, -1 where that is not known.
    memory : Memory or None
        None for a view, and where no plan is known.
    """

    index: int
    name: str
    op: str
    type: str
    ne: tuple[int, ...]
    layer: int
    block: int
    part: str
    view: bool
    src: tuple[int, ...]
    stored: tuple[int, ...]
    leafs: tuple[str, ...]
    cache: str
    backend: str
    split: int
    memory: Memory | None


@dataclass(frozen=True, slots=True)
class Block:
    """A run of nodes of one layer, or outside of the layers.

    Attributes
    ----------
    title : str
    layer : int
    first, count : int
        Its nodes.
    drawing : Drawing
        Shared by blocks of the same shape.
    ports : tuple of int
        Nodes outside whose values come in, for each of the drawing's ports.
    lanes : tuple of str
        The part that each lane shows.
    """

    title: str
    layer: int
    first: int
    count: int
    drawing: Drawing
    ports: tuple[int, ...]
    lanes: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """A graph.

    Attributes
    ----------
    nodes : tuple of Node
    blocks : tuple of Block
    events : tuple of int
        Number of each node's event, counted from that of ``graph_compute``'s begin.
    arena : int
        Bytes that all results take together in the arena, 0 where no plan is known.
    """

    nodes: tuple[Node, ...]
    blocks: tuple[Block, ...]
    events: tuple[int, ...]
    arena: int

    @property
    def apart(self) -> int:
        """Bytes that the results would take without reuse."""
        return sum(n.memory.size for n in self.nodes if n.memory is not None)

    def find(self, text: str) -> list[int]:
        """Nodes whose name holds a text, or fits it as a glob, in any case of letters."""
        text = text.strip().lower()
        if not text:
            return []
        glob = any(c in text for c in "*?[")
        return [
            n.index
            for n in self.nodes
            if (matches_name(text, n.name.lower()) if glob else text in n.name.lower())
        ]

    def named(self, name: str) -> int:
        """The last node of this name, -1 for none."""
        return next((n.index for n in reversed(self.nodes) if n.name == name), -1)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come.

    Attributes
    ----------
    now : int
        The node that the run stands at, -1 for none.
    done : int
        Nodes computed in this ubatch.
    start : int
        Event number where the graph began to be computed last, -1 where it never did.
    reused : bool or None
        Whether this ubatch uses an earlier graph again; None where that is not known yet.
    """

    now: int
    done: int
    start: int
    reused: bool | None


def shown(dbg: Any) -> Shown | None:
    """The graph that a run's context has built last, None before it has built one."""
    graph = graph_of(dbg)
    if graph is None or not graph.nodes:
        return None
    sched = getattr(dbg.ctx, "sched", None)
    plans = sched.plans if sched is not None and sched.graph is graph else []
    outputs = dbg.ctx.graph.outputs() if plans else ()
    return describe(list(graph.nodes), plans, sched, outputs)


def describe(
    nodes: Sequence[Any],
    plans: Sequence[Any] = (),
    sched: Any = None,
    outputs: Sequence[Any] = (),
) -> Shown:
    """Nodes in the order in which they are computed, as they are shown.

    Parameters
    ----------
    nodes : sequence of Tensor
    plans : sequence of llmviz.ggml.alloc.Plan
        One for each device's arena.
    sched : llmviz.ggml.sched.Sched, optional
        Says which backend computes what.
    outputs : sequence of Tensor
        Results that are read after the graph has run.
    """
    layers = layers_of(nodes)
    parts = part_of(nodes)
    where = {id(t): i for i, t in enumerate(nodes)}
    runs = _runs(layers)
    block_of = [k for k, (_, first, count) in enumerate(runs) for _ in range(count)]
    kept = {id(t) for t in outputs}
    memory: dict[int, Memory] = {}
    base = 0  # the arenas of several devices one behind the other
    for plan in plans:
        memory.update(_memories(nodes, plan, kept, base))
        base += plan.size
    writers: dict[int, int] = {}
    out: list[Node] = []
    split, backend = -1, ""
    starts = {part.i_start for part in sched.graph.splits} if sched is not None else set()
    for i, t in enumerate(nodes):
        view = t.op in VIEW_OPS
        if sched is not None and (i in starts or not (view or backend)):
            split, backend = split + 1, sched.backend_of(t).name
        src = tuple(dict.fromkeys(where[id(s)] for s in t.src if id(s) in where))
        leafs = tuple(dict.fromkeys(s.name for s in t.src if s is not None and id(s) not in where))
        stored = tuple(
            dict.fromkeys(
                writers[id(s.root)]
                for s in t.src
                if id(s) not in where and writers.get(id(s.root), i) < i
            )
        )
        root = t.root
        writes = not view and root is not t and id(root) not in where
        if writes:
            writers[id(root)] = i
        type_ = TYPES[t.type].name if isinstance(t.type, GGMLType) else str(t.type)
        out.append(
            Node(
                i, t.name, t.op, type_, tuple(t.ne[: max(t.n_dims, 1)]), layers[i], block_of[i],
                parts[i], view, src, stored, leafs, root.name if writes else "", backend,
                split if backend else -1, memory.get(i),
            )
        )  # fmt: skip
    named = len({n.backend for n in out}) > 1
    blocks = tuple(_block(out, il, first, count, named) for il, first, count in runs)
    arena = sum(plan.size for plan in plans)
    return Shown(tuple(out), blocks, _event_numbers(runs), arena)


def _runs(layers: Sequence[int]) -> list[tuple[int, int, int]]:
    """Neighbours of one layer: (layer, first, count)."""
    out: list[tuple[int, int, int]] = []
    for i, il in enumerate(layers):
        if out and out[-1][0] == il:
            out[-1] = (il, out[-1][1], out[-1][2] + 1)
        else:
            out.append((il, i, 1))
    return out


def _event_numbers(runs: Sequence[tuple[int, int, int]]) -> tuple[int, ...]:
    """As `Sched.compute` yields: nodes of a layer between its begin and its end."""
    out: list[int] = []
    n = 0
    for il, _, count in runs:
        n += il >= 0
        out += range(n + 1, n + count + 1)
        n += count + (il >= 0)
    return tuple(out)


def _block(nodes: Sequence[Node], il: int, first: int, count: int, named: bool) -> Block:
    own = nodes[first : first + count]
    parts = list(dict.fromkeys(n.part for n in own)) if il >= 0 else [own[0].part]
    # A part that comes twice (a norm between the two, say) keeps its first line.
    lane = tuple(parts.index(n.part) if il >= 0 else 0 for n in own)
    ports: list[int] = []
    edges: list[tuple[int, int]] = []
    for n in own:
        for s in (*n.src, *n.stored):
            if s >= first:
                edges.append((s - first, n.index - first))
            else:
                if s not in ports:
                    ports.append(s)
                edges.append((-1 - ports.index(s), n.index - first))
    drawing = lay_out(tuple(n.view for n in own), lane, tuple(dict.fromkeys(edges)))
    part = next((n.part for n in own if n.part != "copies"), own[0].part)
    title = f"layer {il}" if il >= 0 else {"embedding": "input"}.get(part, part)
    if named:  # there are several devices
        title += " on " + " and ".join(dict.fromkeys(n.backend for n in own))
    return Block(title, il, first, count, drawing, tuple(ports), tuple(parts))


def _memories(nodes: Sequence[Any], plan: Any, kept: set[int], base: int) -> dict[int, Memory]:
    """Ranges of an arena that begins at `base`, and their lives, as the allocator gives them."""
    read: dict[int, int] = {}
    for i, t in enumerate(nodes):
        for s in (t, *t.src):
            read[id(s.root)] = i
    out: dict[int, Memory] = {}
    order: list[int] = []
    for i, t in enumerate(nodes):
        offset = plan.offsets.get(id(t))
        if offset is None or t.is_view:
            continue
        offset += base
        dies = len(nodes) if id(t) in kept else read[id(t)]
        size = t.span if t.op == COPY_OP else t.nbytes
        before = next((j for j in reversed(order) if _meet(out[j], offset, size)), -1)
        out[i] = Memory(offset, size, i, dies, before)
        order.append(i)
    for i in order:
        m = out[i]
        later = (j for j in order if j > i and _meet(out[j], m.offset, m.size))
        out[i] = Memory(m.offset, m.size, m.born, m.dies, m.before, next(later, -1))
    return out


def _meet(m: Memory, offset: int, size: int) -> bool:
    return m.offset < offset + size and offset < m.offset + m.size


def progress(dbg: Any, graph: Shown) -> Progress:
    """Where the run stands in a graph."""
    here = dbg.here
    start, reused, computing, over = -1, None, False, False
    for record in reversed(dbg.events):
        mark = (record.kind, record.name)
        if record.n > dbg.n or mark[1] not in _MARKS:
            continue
        if mark == ("exit", "graph_compute") and start < 0 and not computing:
            over = True
        elif mark == ("enter", "graph_compute"):
            if start < 0:
                start = record.n
            computing = computing or not over
        elif mark[1] == "can_reuse":
            reused = True
            break
        elif mark == ("exit", "build_graph"):
            reused = False
            break
        elif mark == ("enter", "process_ubatch"):
            if start >= 0:
                break
            over = True  # a new one, whose graph has not begun
            return _waiting(dbg, record.n)
    if start < 0 or here is None:
        return Progress(-1, 0, start, reused)
    at = dbg.n - start
    done = bisect_right(graph.events, at)
    now = done - 1 if done and graph.events[done - 1] == at else -1
    return Progress(now, done, start, reused)


_MARKS = frozenset({"graph_compute", "can_reuse", "build_graph", "process_ubatch"})


def _waiting(dbg: Any, begin: int) -> Progress:
    """A ubatch that has begun and whose graph has not: the one before is the last that ran."""
    start = next(
        (
            r.n
            for r in reversed(dbg.events)
            if r.n < begin and (r.kind, r.name) == ("enter", "graph_compute")
        ),
        -1,
    )
    return Progress(-1, 0, start, None)


def broken(dbg: Any, graph: Shown) -> tuple[dict[int, bool], dict[int, bool]]:
    """Nodes and blocks with a breakpoint, each with whether one of them is enabled."""
    nodes: dict[int, bool] = {}
    blocks: dict[int, bool] = {}
    for point in getattr(dbg, "breakpoints", ()):
        if point.token is not None:
            continue
        if isinstance(point.where, str):
            for n in graph.nodes:
                if matches_name(point.where, n.name) and point.layer in (None, n.layer):
                    nodes[n.index] = nodes.get(n.index, False) or point.enabled
            continue
        for k, block in enumerate(graph.blocks):
            scope = point.scope is not None and matches_name(point.scope, f"layer-{block.layer}")
            if block.layer >= 0 and (point.layer == block.layer or scope):
                blocks[k] = blocks.get(k, False) or point.enabled
    return nodes, blocks
