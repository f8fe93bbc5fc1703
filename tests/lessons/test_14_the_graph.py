"""Lesson 14: its answers, and the order of the nodes by their sources."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from .running import lesson_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with lesson_run("14-the-graph", tmp_path_factory.mktemp("lesson")) as run:
        yield run


def test_grades(run):
    run.still_holds()
    graph, order = run.names["graph"], run.checks["order"].right()
    for before, after in itertools.pairwise(order):
        assert _needs(graph, after, before), f"{after} follows from {before}"
    views = [n for n in run.names["layers"][0] if n.view_src is not None and n.op != "SET_ROWS"]
    rows = run.names["scores"].shape
    assert rows[0] * rows[1] * rows[2] == run.names["numbers"]("kq-0")
    run.grades(
        {
            "count": ("one for each weight", "some dozens"),
            "order": (order[::-1], order),
            "views": (0, len(views)),
            "largest": (3, 1),
            "graphs": (run.names["begun"]("process_ubatch"), 2),
            "softmax": (np.zeros(rows, np.float32),),
        }
    )
    check, weights = run.checks["softmax"], run.names["weights"]
    assert "shape" in check.submit(weights[0]).reason
    assert "off by" in check.submit(weights[:, ::-1]).reason


def _needs(graph, name, other):
    """Whether a node depends on another one."""
    todo = [n for n in graph.nodes if n.name == name]
    seen: set[int] = set()
    while todo:
        node = todo.pop()
        if node.name == other:
            return True
        # what is written to the cache is read from there: no edge says so
        if id(node) not in seen:
            seen.add(id(node))
            todo += node.src
    return False


def test_what_it_shows(run):
    assert "no 'kq-0' was computed" in run.printed["14-refused"]
    assert [v.view_name for v in run.views()] == ["graph"]
    assert run.names["dbg"].here.name == "kq_soft_max-0"
    assert repr(run.names["graph"]).startswith("<Graph 150 nodes"), "short, where one asks for it"
    assert len(repr(run.names["wide"].graph)) < 120
    apart, together = (
        float(line.split()[-2].replace(",", "")) for line in run.printed["14-memory"].splitlines()
    )
    assert apart > 4 * together
    grown = run.printed["14-grow"].splitlines()
    assert [line.split(" graph ")[1] for line in grown] == [
        "built anew", "used again", "used again", "built anew", "used again", "used again",
    ]  # fmt: skip
    assert grown[3].startswith("257 cells"), "where 256 are full"
    assert "8 passes" in run.printed["14-write"]
