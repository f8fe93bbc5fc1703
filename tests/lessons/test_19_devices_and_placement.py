"""Lesson 19: its answers, worked out here from the model's shape, and the exercise's reasons."""

from __future__ import annotations

import re

import numpy as np
import pytest

from .running import lesson_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with lesson_run("19-devices-and-placement", tmp_path_factory.mktemp("lesson")) as run:
        yield run


def test_grades(run):
    run.still_holds()
    names = run.names
    h = names["model"].hparams
    placed = np.array([[False, False, False, False, True, True]])
    fits = 1 + (names["memory"] - names["output"]) // names["layer"]
    run.grades(
        {
            "places": (placed[:, ::-1], placed),
            "row": (4 * h.n_embd * 2, 4 * h.n_embd),
            "share": (0, 2),
            "kv": (names["there"][0], names["there"][0] + 2 * h.n_layer),
            "fits": (h.n_layer + 1, fits),
            "unequal": ({"n_gpu_layers": 2, "tensor_split": [1, 1]},),
        }
    )


def test_the_exercise_says_what_is_wrong(run):
    check = run.checks["unequal"]
    by_free_memory = check.submit({"n_gpu_layers": -1})
    assert not by_free_memory.right and "MiB" in by_free_memory.reason, "as the lesson says"
    host = check.submit({"n_gpu_layers": 4, "tensor_split": [1, 3]})
    assert "on the host there are still: 0" in host.reason
    assert "should be a dict" in check.submit(3).reason
    assert not check.submit({"n_gpu_layers": -1, "tensor_split": [4, 1]}).right


def test_what_it_shows(run):
    assert [v.view_name for v in run.views()] == ["load", "graph"]
    assert run.shown["19-same"] == [True]
    assert run.names["n_splits"] == 3 and len(run.names["crossing"]) == 1
    fits = re.search(r"n_gpu_layers=(\d) \(now 3\)", run.printed["19-context"])
    assert fits and 1 <= int(fits[1]) < 3
    graph = run.views()[1].fallback_text()
    assert "GPU1 (simulated)" in graph
