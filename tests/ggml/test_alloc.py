"""The arena: no two tensors that are needed at the same time share a byte."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmviz.events import drain
from llmviz.ggml import ops
from llmviz.ggml.alloc import Allocator, plan
from llmviz.ggml.backends.cpu import CPU
from llmviz.ggml.graph import Graph, Tensor, new_tensor
from llmviz.ggml.sched import Sched, never
from llmviz.ggml.types import GGMLType
from tests.ggml.graphs import RandomGraph, graph_of, leaf

F32 = GGMLType.F32
FOREVER = 10**9


def lifetimes(gf: Graph, outputs: list[Tensor]) -> dict[int, tuple[Tensor, int, int]]:
    """``id -> (tensor, first node, last node)`` that its memory must hold for, by hand."""
    lives: dict[int, tuple[Tensor, int, int]] = {}
    for t in gf.leafs:
        if t.is_input:
            lives[id(t)] = (t, -1, FOREVER)
    for i, node in enumerate(gf.nodes):
        if node.view_src is None:
            lives[id(node)] = (node, i, i)
        for source in (*node.src, node):
            owner = source.view_src or source
            if id(owner) in lives:
                t, first, last = lives[id(owner)]
                lives[id(owner)] = (t, first, max(last, i))
    for t in outputs:
        owner = t.view_src or t
        if id(owner) in lives:
            lives[id(owner)] = (owner, lives[id(owner)][1], FOREVER)
    return lives


def clashes(gf: Graph, outputs: list[Tensor]) -> list[str]:
    """Pairs of tensors that live at the same time in the same bytes, or lie outside the arena."""
    layout = plan(gf, outputs)
    lives = list(lifetimes(gf, outputs).values())
    bad = []
    for i, (a, a0, a1) in enumerate(lives):
        start = layout.offsets[id(a)]
        if start < 0 or start + a.nbytes > layout.size:
            bad.append(f"{a.name} outside the arena")
        for b, b0, b1 in lives[:i]:
            other = layout.offsets[id(b)]
            at_once = a0 <= b1 and b0 <= a1
            if at_once and start < other + b.nbytes and other < start + a.nbytes:
                bad.append(f"{a.name} and {b.name}")
    return bad


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_nothing_that_is_needed_is_overwritten(seed: int, n_nodes: int) -> None:
    g = RandomGraph(seed, n_nodes)
    assert clashes(g.graph, g.outputs) == []


def chain_graph(n: int) -> tuple[Graph, Tensor]:
    cur = ops.scale(leaf(np.zeros((4, 16), np.float32)), 1.0)
    for _ in range(n - 1):
        cur = ops.scale(cur, 1.0)
    return graph_of(cur), cur


def test_memory_is_used_again() -> None:
    """A chain of any length needs the memory of two links: source and result."""
    for n in (2, 5, 50):
        gf, out = chain_graph(n)
        assert plan(gf, [out]).size == 2 * 256


def test_ranges_start_at_multiples_of_64() -> None:
    x = leaf(np.zeros((3, 5), np.float32))  # 60 bytes
    a, b = ops.scale(x, 1.0), ops.scale(x, 2.0)
    layout = plan(graph_of(ops.add(a, b)), [])
    assert all(offset % 64 == 0 for offset in layout.offsets.values())


def test_a_view_keeps_its_source_alive() -> None:
    x = leaf(np.ones((4, 16), np.float32))
    a = ops.scale(x, 2.0)
    seen = ops.reshape(a, 8, 8)
    others = ops.scale(x, 3.0)
    for _ in range(5):
        others = ops.scale(others, 1.0)
    out = ops.add(ops.reshape(others, 8, 8), seen)
    gf = Graph()
    for t in (seen, others, out):
        gf.build_forward_expand(t)
    assert clashes(gf, [out]) == []


def test_outputs_and_inputs_survive_the_run() -> None:
    for seed in range(20):
        g = RandomGraph(seed)
        sched = Sched([CPU()])
        sched.alloc_graph(g.graph, g.outputs)
        g.set_inputs()
        drain(sched.compute(never))
        for t in g.outputs:
            assert t.array is not None
            np.testing.assert_allclose(t.array, g.expected[t.name], rtol=1e-3, atol=1e-4)
        for t in g.inputs:
            if t.array is not None:
                np.testing.assert_array_equal(t.array, g.data[t.name])


def test_reserve_grows_and_never_shrinks() -> None:
    allocator = Allocator()
    small, _ = chain_graph(1)
    large = graph_of(ops.scale(leaf(np.zeros((100, 16), np.float32)), 1.0))
    allocator.reserve(small)
    assert allocator.size == 256
    allocator.reserve(large)
    assert allocator.size == 6400
    allocator.reserve(small)
    assert allocator.size == 6400


def test_a_graph_that_was_reserved_for_needs_no_more() -> None:
    allocator = Allocator()
    large, out = chain_graph(7)
    allocator.reserve(large, [out])
    arena = allocator.arena
    small, out = chain_graph(3)
    allocator.alloc(small, [out])
    assert allocator.arena is arena


def test_views_look_into_the_arena() -> None:
    x = new_tensor(F32, 6, 2, name="x", is_input=True)
    a = ops.scale(x, 2.0)
    v = ops.view(a, (2, 2), (24,), offset=8)
    allocator = Allocator()
    allocator.alloc(graph_of(ops.cont(v)))
    assert a.array is not None and v.array is not None
    a.array[...] = np.arange(12).reshape(2, 6)
    assert v.array.tolist() == [[2, 3], [8, 9]]


def test_a_view_of_nothing_is_named() -> None:
    gone = new_tensor(F32, 4, name="gone")
    gf = graph_of(ops.scale(ops.reshape(gone, 2, 2), 1.0))
    with pytest.raises(RuntimeError, match="gone"):
        Allocator().alloc(gf)


def test_a_result_that_is_read_twice_in_a_node_is_freed_once() -> None:
    x = leaf(np.ones((4, 16), np.float32))
    a = ops.scale(x, 2.0)
    b = ops.mul(a, a)
    c = ops.add(b, b)
    d = ops.add(ops.scale(c, 1.0), ops.scale(c, 3.0))
    assert clashes(graph_of(d), [d]) == []
