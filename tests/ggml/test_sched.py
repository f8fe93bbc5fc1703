"""The scheduler: watching changes nothing, editing changes what comes after, scopes nest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from llmviz.errors import UnsupportedError
from llmviz.events import Event, drain
from llmviz.ggml import ops
from llmviz.ggml.backends.backend import BindScope, Kernel
from llmviz.ggml.backends.cpu import CPU
from llmviz.ggml.graph import Tensor
from llmviz.ggml.sched import Aborted, Sched, never
from tests.ggml.graphs import RandomGraph, graph_of, leaf

X = np.array([[1.0, 2.0, 3.0, 4.0]], np.float32)


def layered() -> tuple[Sched, Tensor]:
    """Five nodes: embd (no layer), a-0, b-0, c-1, out (no layer); out = 2 * 3 * 4 * 5 * x."""
    cur = ops.scale(leaf(X), 1.0).set_name("embd", -1)
    for i, (name, il) in enumerate((("a", 0), ("b", 0), ("c", 1), ("out", -1))):
        cur = ops.scale(cur, 2.0 + i).set_name(name, il)
    sched = Sched([CPU()])
    sched.alloc_graph(graph_of(cur), [cur])
    return sched, cur


def marks(events: list[Event]) -> list[tuple[str, str, int]]:
    return [(e.kind, e.name, e.depth) for e in events]


def test_every_node_inside_its_layer() -> None:
    sched, out = layered()
    events = list(sched.compute(depth=3))
    assert marks(events) == [
        ("node", "embd", 3),
        ("enter", "layer-0", 3),
        ("node", "a-0", 4),
        ("node", "b-0", 4),
        ("exit", "layer-0", 3),
        ("enter", "layer-1", 3),
        ("node", "c-1", 4),
        ("exit", "layer-1", 3),
        ("node", "out", 3),
    ]
    assert {e.step for e in events} == {13}
    assert out.array is not None and out.array.tolist() == (X * 120).tolist()


def test_only_wanted_nodes_inside_every_layer() -> None:
    """A layer's scope is there whether a node of it is wanted or not."""
    sched, out = layered()
    events = list(sched.compute(lambda name: name == "c-1"))
    assert marks(events) == [
        ("enter", "layer-0", 0),
        ("exit", "layer-0", 0),
        ("enter", "layer-1", 0),
        ("node", "c-1", 1),
        ("exit", "layer-1", 0),
    ]
    assert out.array is not None and out.array.tolist() == (X * 120).tolist()


def test_want_is_asked_for_every_node_in_order() -> None:
    sched, _ = layered()
    asked: list[str] = []
    drain(sched.compute(lambda name: asked.append(name) or False))  # type: ignore[func-returns-value]
    assert asked == ["embd", "a-0", "b-0", "c-1", "out"]


def test_want_may_change_its_mind_while_the_graph_runs() -> None:
    sched, _ = layered()
    wanted = {"a-0"}
    names = []
    for event in sched.compute(lambda name: name in wanted):
        if event.kind == "node":
            names.append(event.name)
            wanted.add("c-1")
    assert names == ["a-0", "c-1"]


def test_nobody_watching_yields_nothing() -> None:
    sched, out = layered()
    assert list(sched.compute(never)) == []
    assert out.array is not None and out.array.tolist() == (X * 120).tolist()


def test_a_value_is_a_read_only_view_and_about_is_the_tensor() -> None:
    sched, _ = layered()
    for event in sched.compute():
        if event.kind == "node":
            assert isinstance(event.about, Tensor)
            assert event.value.shape == event.about.shape
            assert np.shares_memory(event.value, event.about.array)
            with pytest.raises(ValueError, match="read-only"):
                event.value[0, 0] = 1.0


@pytest.mark.parametrize("seed", range(10))
def test_watching_changes_no_bit(seed: int) -> None:
    results = []
    for want in (never, None, lambda name: name.endswith("3")):
        g = RandomGraph(seed)
        sched = Sched([CPU()])
        sched.alloc_graph(g.graph, g.outputs)
        g.set_inputs()
        drain(sched.compute(want))
        results.append([np.array(t.array).tobytes() for t in g.outputs])
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("seed", range(10))
def test_every_node_shows_its_own_value(seed: int) -> None:
    """Though memory is shared: the value at the event is the node's, not a later one's."""
    g = RandomGraph(seed)
    sched = Sched([CPU()])
    sched.alloc_graph(g.graph, g.outputs)
    g.set_inputs()
    seen = set()
    for event in sched.compute():
        if event.kind == "node" and event.name in g.expected:
            want = g.expected[event.name]
            np.testing.assert_allclose(event.value, want, rtol=1e-3, atol=1e-4)
            seen.add(event.name)
    assert seen == set(g.expected)


def test_an_edited_value_is_what_later_nodes_use() -> None:
    sched, out = layered()
    for event in sched.compute():
        if event.name == "b-0":
            assert event.value.tolist() == (X * 6).tolist()
            event.value = np.full((1, 4), 10.0, np.float32)
    assert out.array is not None and out.array.tolist() == [[200.0] * 4]  # 10 * 4 * 5


def test_an_edit_holds_for_one_run() -> None:
    sched, out = layered()
    for event in sched.compute():
        if event.name == "a-0":
            event.value = np.zeros((1, 4), np.float32)
    assert out.array is not None and out.array.tolist() == [[0.0] * 4]
    drain(sched.compute(never))
    assert out.array.tolist() == (X * 120).tolist()


def test_an_edit_through_a_view_reaches_its_source() -> None:
    a = ops.scale(leaf(X), 2.0).set_name("a")
    v = ops.reshape(a, 2, 2).set_name("v")
    out = ops.scale(v, 10.0).set_name("out")
    sched = Sched([CPU()])
    sched.alloc_graph(graph_of(out), [out])
    for event in sched.compute():
        if event.name == "v":
            event.value = np.array([[1, 2], [3, 5]], np.float32)
    assert out.array is not None and out.array.tolist() == [[10, 20], [30, 50]]
    assert a.array is not None


def test_an_edit_of_another_shape_is_refused() -> None:
    sched, _ = layered()
    with pytest.raises(ValueError):
        for event in sched.compute():
            if event.name == "a-0":
                event.value = np.zeros((3, 3), np.float32)


@pytest.mark.parametrize("want", [never, None])
@pytest.mark.parametrize("after", [0, 1, 3])
def test_abort_is_asked_before_every_node(want: Callable[[str], bool] | None, after: int) -> None:
    sched, _ = layered()
    calls = 0

    def abort() -> bool:
        nonlocal calls
        calls += 1
        return calls > after

    assert sched.graph is not None
    nodes = sched.graph.nodes
    sched.alloc_graph(sched.graph, nodes)  # as outputs, so that each has memory of its own
    for node in nodes:
        assert node.array is not None
        node.array[...] = -1
    with pytest.raises(Aborted):
        drain(sched.compute(want, abort=abort))
    assert calls == after + 1
    ran = [not (node.array == -1).all() for node in nodes]  # type: ignore[union-attr]
    assert ran == [i < after for i in range(len(nodes))]


def test_an_abort_that_never_says_so() -> None:
    sched, out = layered()
    drain(sched.compute(never, abort=lambda: False))
    assert out.array is not None and out.array.tolist() == (X * 120).tolist()


def test_a_graph_can_run_again_with_other_inputs() -> None:
    g = RandomGraph(3)
    sched = Sched([CPU()])
    sched.alloc_graph(g.graph, g.outputs)
    g.set_inputs()
    drain(sched.compute(never))
    first = [np.array(t.array) for t in g.outputs]
    for t in g.inputs:
        if t.array is not None:
            t.array[...] = 0.25
    drain(sched.compute(never))
    g.set_inputs()
    drain(sched.compute(never))
    for t, before in zip(g.outputs, first, strict=True):
        np.testing.assert_array_equal(t.array, before)


class Only(CPU):
    """A backend that takes one op and leaves a mark; its memory is the host's."""

    def __init__(self, op: str) -> None:
        self.name = f"only {op}"
        self.op = op
        self.bound: list[str] = []

    def supports(self, node: Tensor) -> bool:
        return node.op == self.op

    def bind(self, node: Tensor, scope: BindScope) -> Kernel | None:
        self.bound.append(node.name)
        return CPU().bind(node, scope)


def test_the_first_backend_that_can_computes_a_node() -> None:
    first = Only("RMS_NORM")
    out = ops.rms_norm(ops.scale(leaf(X), 2.0).set_name("s"), 0.0).set_name("n")
    sched = Sched([first, CPU()])
    sched.alloc_graph(graph_of(out), [out])
    assert first.bound == ["n"]
    drain(sched.compute(never))
    expected: Any = X / np.sqrt(7.5)  # mean of 1, 4, 9, 16
    assert out.array is not None
    np.testing.assert_allclose(out.array, expected, rtol=1e-6)


def test_an_op_that_no_backend_knows_is_named() -> None:
    out = ops.scale(leaf(X), 2.0)
    with pytest.raises(UnsupportedError, match="SCALE") as caught:
        Sched([Only("ADD")]).alloc_graph(graph_of(out))
    assert caught.value.supported == ("only ADD",)
