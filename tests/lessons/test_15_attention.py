"""Lesson 15: its answers, and that the heads of the built-in model do what its prose says."""

from __future__ import annotations

import numpy as np
import pytest

from .running import lesson_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with lesson_run("15-attention", tmp_path_factory.mktemp("lesson")) as run:
        yield run


def test_grades(run):
    run.still_holds()
    words = run.names["words"]
    said = run.checks["next"].submit("stone")
    assert not said.counted and "tokens" in said.reason, "without the space it is another one"
    run.grades(
        {
            "next": (" river", " stone"),
            "mask": (np.tri(5, dtype=bool), ~np.tri(5, dtype=bool)),
            "look": (words[4], words[5]),
            "off": (0, 2),
            "told": (0, 1),
            "gqa": (0, run.names["model"].hparams.n_head_kv(0) - 1),
            "by-hand": (np.zeros_like(run.names["result"]),),
        }
    )
    q, k, v, scale = (run.names[x] for x in ("q", "k", "v", "scale"))
    x = np.exp(q @ k.T * scale)
    sees_all = run.checks["by-hand"].submit(x / x.sum(1, keepdims=True) @ v)
    assert "do they see the future?" in sees_all.reason


def test_the_heads_do_what_it_says(run):
    names = run.names
    assert names["words"][4] == "4 river" and names["words"][5] == "5 stone"
    assert names["weights"][-1].argmax() == 5 and names["weights"][-1, 5] > 0.9
    assert names["whole"] > 0.8 and names["chance"](names["one_off"]) > 0.3, "one can be missed"
    assert len(names["twins"]) > 1, "because there are others"
    assert names["chance"](names["without"](*names["twins"])) < 0.1, "all of them are"
    back = names["back"]
    assert back[0] < names["layer"] and back not in names["twins"]
    assert names["shares"](names["dbg"])[back] < 0.3, "it does not look there itself"
    assert names["chance"](names["back_off"]) < 0.3, "yet without it the word is lost"
    blind, twins = names["shares"](names["back_off"]), names["twins"]
    assert sum(blind[who] for who in twins) < 0.8 * sum(twins.values()), "they need that mark"


def test_what_it_shows(run):
    assert [v.view_name for v in run.views()] == ["attention", "heads"]
    pairs = [line.split() for line in run.printed["15-score"].splitlines()]
    assert len(pairs) == 5
    for line in pairs:
        assert abs(float(line[2]) - float(line[5])) < 0.02, "by hand as in the engine"
    assert run.names["sets"] == [0, 0, 1, 1]
