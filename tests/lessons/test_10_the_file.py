"""Lesson 10: what it asks is graded by what another reader finds in the same file."""

from __future__ import annotations

import pytest

from llmviz.hub import resolve

from .running import lesson_run

gguf = pytest.importorskip("gguf")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with lesson_run("10-the-file", tmp_path_factory.mktemp("lesson")) as run:
        yield run


@pytest.fixture(scope="module")
def reader():
    return gguf.GGUFReader(resolve("builtin"))


def test_grades(run, reader):
    run.still_holds()
    order = run.checks["four-parts"]
    keys = run.checks["what-keys-say"]
    assert run.checks["first-name"].submit("24").reason.startswith("Add up")
    run.checks["first-name"].attempts = 0
    layer = sum(int(t.n_elements) for t in reader.tensors if t.name.startswith("blk.1."))
    total = sum(int(t.n_elements) for t in reader.tensors)
    assert run.checks["count-a-layer"].submit(layer - 2 * 128).reason.startswith("Nearly")
    run.checks["count-a-layer"].attempts = 0
    run.grades(
        {
            "four-parts": (order.items, [order.items[i] for i in (2, 3, 1, 0)]),
            "first-name": (24, "32"),
            "what-keys-say": (keys.options[:2], keys.options[:3]),
            "data-starts": (reader.data_offset - 32, f"{reader.data_offset:,}"),
            "how-many-weights": (reader.data.nbytes, round(total * 1.04)),
            "where-most-are": ("attention", "feed-forward networks"),
            "count-a-layer": (layer * 4,),
        }
    )
    assert run.names["answer"] == layer


def test_what_it_shows(run, reader):
    assert [v.view_name for v in run.views()] == ["gguf", "load"]
    by_hand, as_loaded = run.shown["file-20"][0]
    assert (by_hand == as_loaded).all()
    assert (
        f"n_tensors={len(reader.tensors)} n_kv={len(run.names['model'].gguf.kv)}"
        in (run.printed["file-07"])
    )
