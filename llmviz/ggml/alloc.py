"""Memory for a graph's results: one arena, ranges reused once nobody reads them.

↔ ggml/src/ggml-alloc.c

A node's range is given back after its last reader, so the arena of a 30-layer model is a few layers
wide. Inputs and the graph's outputs keep their memory until the next graph is allocated. Each
backend has an arena of its own; a tensor's `home` says in which it lies.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from llmviz.errors import DeviceMemoryError
from llmviz.ggml.graph import COPY_OP, Graph, Tensor

if TYPE_CHECKING:
    from llmviz.ggml.backends.backend import Backend

__all__ = ["Allocator", "Plan"]

ALIGNMENT = 64


def _padded(n: int) -> int:
    return -(-n // ALIGNMENT) * ALIGNMENT


def _size(tensor: Tensor) -> int:
    """Bytes of a result; only the copy of another tensor may have gaps."""
    return tensor.span if tensor.op == COPY_OP else tensor.nbytes


@dataclass
class Plan:
    """Where each node's result lies in the arena.

    Attributes
    ----------
    offsets : dict
        ``id(tensor) -> byte offset`` for every node with memory of its own and every input.
    size : int
        Bytes the arena must have.
    """

    offsets: dict[int, int] = field(default_factory=dict)
    size: int = 0


class _FreeList:
    """Free ranges of the arena, best fit first, neighbours joined."""

    def __init__(self) -> None:
        self.free: list[tuple[int, int]] = []  # (offset, size), by offset
        self.top = 0

    def take(self, size: int) -> int:
        best = min(
            (i for i, (_, free) in enumerate(self.free) if free >= size),
            key=lambda i: self.free[i][1],
            default=None,
        )
        if best is None:
            # grow at the end, starting in the last free range if it touches the end
            if self.free and sum(self.free[-1]) == self.top:
                offset, _ = self.free.pop()
            else:
                offset = self.top
            self.top = offset + size
            return offset
        offset, free = self.free[best]
        if free == size:
            del self.free[best]
        else:
            self.free[best] = (offset + size, free - size)
        return offset

    def give(self, offset: int, size: int) -> None:
        self.free.append((offset, size))
        self.free.sort()
        joined: list[tuple[int, int]] = []
        for start, length in self.free:
            if joined and joined[-1][0] + joined[-1][1] == start:
                joined[-1] = (joined[-1][0], joined[-1][1] + length)
            else:
                joined.append((start, length))
        self.free = joined


def plan(graph: Graph, outputs: Iterable[Tensor] = (), home: Backend | None = None) -> Plan:
    """Lay out `graph`: each node's memory from its computation to its last reader.

    Parameters
    ----------
    graph : Graph
    outputs : iterable of Tensor
        Results that are read after the graph has run; never reused.
    home : Backend or None
        Only tensors that lie there; None: on the host.
    """
    ranges, result = _FreeList(), Plan()
    keep = {id(t.root) for t in outputs}
    last_use: dict[int, int] = {}
    for i, node in enumerate(graph.nodes):
        for src in node.src:
            last_use[id(src.root)] = i
        last_use[id(node.root)] = i

    for leaf in graph.leafs:
        if leaf.is_input and leaf.home is home:
            result.offsets[id(leaf)] = ranges.take(_padded(leaf.nbytes))
    dying: dict[int, list[Tensor]] = {}
    for node in graph.nodes:
        if not node.is_view and node.home is home and id(node) not in keep:
            dying.setdefault(last_use[id(node)], []).append(node)
    for i, node in enumerate(graph.nodes):
        if not node.is_view and node.home is home:
            result.offsets[id(node)] = ranges.take(_padded(_size(node)))
        for dead in dying.get(i, ()):
            ranges.give(result.offsets[id(dead)], _padded(_size(dead)))
    result.size = ranges.top
    return result


class Allocator:
    """Owns an arena and gives graphs their memory in it. ↔ ggml_gallocr

    Parameters
    ----------
    home : Backend or None
        Whose memory the arena is; None: the host's.
    """

    def __init__(self, home: Backend | None = None) -> None:
        self.home = home
        self.arena: Any = np.empty(0, np.uint8)

    @property
    def size(self) -> int:
        """Bytes of the arena (llama.cpp's "compute buffer size")."""
        return int(self.arena.nbytes)

    def reserve(self, graph: Graph, outputs: Iterable[Tensor] = ()) -> Plan:
        """Make the arena large enough for `graph`. ↔ ggml_gallocr_reserve"""
        layout = plan(graph, outputs, self.home)
        if layout.size > self.arena.nbytes:
            self.arena = np.empty(0, np.uint8)  # given back first: both need not fit
            if self.home is None:
                self.arena = np.empty(layout.size, np.uint8)
            else:
                self.arena = self._there(self.home, layout.size)
        return layout

    @staticmethod
    def _there(home: Backend, size: int) -> Any:
        try:
            return home.alloc(size, "compute")
        except DeviceMemoryError as error:
            raise DeviceMemoryError(
                f"{error} for the results of this graph, which is larger than those that the "
                "context was made for: ask for the logits of fewer tokens at once, or make it with "
                "a smaller n_ubatch",
                device=error.device,
                needed=error.needed,
                free=error.free,
            ) from None

    def alloc(self, graph: Graph, outputs: Iterable[Tensor] = ()) -> Plan:
        """Give every tensor of `graph` that lies here its memory; an earlier graph's values become
        invalid.
        """
        layout = self.reserve(graph, outputs)
        for tensor in (*graph.leafs, *graph.nodes):
            if tensor.home is not self.home:
                continue
            if tensor.is_view:
                assert tensor.view_src is not None
                source = tensor.view_src.buffer
                if source is None:
                    raise RuntimeError(f"{tensor.name}: {tensor.view_src.name} has no memory")
                tensor.bind(source)
            elif id(tensor) in layout.offsets:
                offset = layout.offsets[id(tensor)]
                memory = self.arena[offset : offset + _size(tensor)]
                if tensor.op == COPY_OP and tensor.src[0].blocks is not None:
                    tensor.adopt_blocks(memory)  # a weight that is kept as the file has it
                else:
                    tensor.bind(memory)
        return layout
