"""Times of nodes: one clock, off by default, and no part of what a node computes."""

from __future__ import annotations

import time

import numpy as np
import pytest

from llmviz.events import drain
from llmviz.ggml import ops
from llmviz.ggml import sched as sched_module
from llmviz.ggml.backends.cpu import CPU
from llmviz.ggml.sched import Aborted, NodeTimes, Sched, never
from tests.ggml.graphs import graph_of, leaf

X = np.array([[1.0, 2.0, 3.0, 4.0]], np.float32)


def chain() -> tuple[Sched, np.ndarray]:
    """Three scales and a view; the last is 24 x."""
    cur = ops.scale(leaf(X), 2.0).set_name("a", -1)
    cur = ops.scale(cur, 3.0).set_name("b", 0)
    cur = ops.reshape(cur, 2, 2).set_name("view", 0)
    cur = ops.scale(cur, 4.0).set_name("c", -1)
    sched = Sched([CPU()])
    sched.alloc_graph(graph_of(cur), [cur])
    assert cur.array is not None
    return sched, cur.array


def ticking(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A clock that moves by one at each look."""
    now = [0]

    def look() -> int:
        now[0] += 1
        return now[0]

    monkeypatch.setattr(sched_module, "perf_counter_ns", look)
    return now


@pytest.mark.parametrize("want", [never, lambda name: False, lambda name: True, None])
def test_every_node_has_its_time_and_the_parts_fit_into_the_whole(want) -> None:
    sched, out = chain()
    sched.times = NodeTimes()
    start = time.perf_counter_ns()
    drain(sched.compute(want))
    wall = time.perf_counter_ns() - start
    times = sched.times
    assert times.graph is sched.graph
    assert len(times.compute) == len(times.ask) == 4
    assert times.compute[2] == 0, "a view computes nothing"
    assert all(ns > 0 for i, ns in enumerate(times.compute) if i != 2)
    assert sum(times.compute) + sum(times.ask) <= wall
    assert out.reshape(-1).tolist() == (24 * X).reshape(-1).tolist()


def test_a_pause_between_two_nodes_is_in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sched, _ = chain()
    sched.times = NodeTimes()
    now = ticking(monkeypatch)
    for _event in sched.compute():
        now[0] += 10**9
    assert sched.times.compute == [1, 1, 0, 1] and sched.times.ask == [1, 1, 1, 1]


def test_nobody_looks_at_the_clock_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    sched, _ = chain()
    now = ticking(monkeypatch)
    drain(sched.compute(never))
    drain(sched.compute())
    assert now == [0] and sched.times is None


def test_a_run_that_is_broken_off_has_the_times_of_what_ran() -> None:
    sched, _ = chain()
    sched.times = NodeTimes()
    asked: list[int] = []
    with pytest.raises(Aborted):
        drain(sched.compute(never, abort=lambda: asked.append(1) or len(asked) > 2))
    assert len(sched.times.compute) == 2
    drain(sched.compute(never))
    assert len(sched.times.compute) == 4, "a new run begins anew"
