"""Lesson 20: its answers, worked out with runs of this test, and the exercise's reasons."""

from __future__ import annotations

import numpy as np
import pytest

import llmviz as lv
from llmviz.sampling import Greedy

from .running import lesson_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with lesson_run("20-change-it-and-see", tmp_path_factory.mktemp("lesson")) as run:
        yield run


def _chance(names, change):
    """What " Tom" has in a run of its own that was changed before the first pass."""
    greedy = lv.Chain([Greedy()])
    dbg = lv.Debugger(names["model"], names["prompt"], greedy, n_ctx=256, n_predict=1)
    dbg.break_on("decode", once=True)
    dbg.run()
    change(dbg)
    dbg.next_token()
    x = dbg.recorder.logits.astype(float)
    p = np.exp(x - x.max()) / np.exp(x - x.max()).sum()
    return p[names["word"]("Tom")]


def test_grades(run):
    run.still_holds()
    names = run.names
    needed = [
        f"layer {il}"
        for il in range(4)
        if _chance(names, lambda dbg, il=il: dbg.zero(f"kqv_out-{il}")) < 0.5
    ]
    left = {
        (il, h): _chance(names, lambda dbg, il=il, h=h: dbg.ablate_heads(il, h))
        for il in range(4)
        for h in range(4)
    }
    assert min(left, key=left.get) == (0, 2), "section 3 silences the head of the exercise"
    run.grades(
        {
            "branch": (0, 1),
            "edit": (" Tom", " Zoe"),
            "double": (0, 1),
            "layers": (["layer 1"], needed),
            "first": ("l_out-3", "kqv_out-0"),
            "undo": (1, 0),
            "worst": ((3, 3),),
        }
    )
    assert sorted(left.values())[1] > 0.5, "no other head comes near"


def test_the_exercise_says_what_is_wrong(run):
    check = run.checks["worst"]
    assert "should be a pair" in check.submit(7).reason
    assert "counted from 0" in check.submit((4, 0)).reason
    assert "heads that hurt more" in check.submit((3, 3)).reason


def test_what_it_shows(run):
    names = run.names
    assert [v.view_name for v in run.views()] == ["panel", "compare"]
    assert names["told"]["main"].startswith(" Tom.")
    assert names["told"]["branch-1"].startswith(" Mia.")
    assert names["off_text"] == " Mia" and names["two"].text == " Tom"
    assert (names["changed"] != names["before"]).all()
    assert (names["restored"] == names["before"]).all()
    assert len(names["trial"].branches) == 1, "and no branch is left of it"
