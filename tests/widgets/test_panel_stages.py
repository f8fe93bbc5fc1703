"""Which stage of attention the panel turns to as the run comes past it."""

from __future__ import annotations

import pytest

pytest.importorskip("anywidget")

import llmviz
from llmviz.sampling import Chain, Greedy
from llmviz.trace import Debugger
from llmviz.widgets import DebuggerPanel


@pytest.fixture
def panel(tiny_model):
    dbg = Debugger(llmviz.load(tiny_model()), [1, 2, 3, 4], Chain([Greedy()]), n_ctx=64)
    panel = DebuggerPanel(dbg)
    yield panel
    panel.close()


def come_to(panel, name: str) -> None:
    panel.dbg.breakpoints.clear()
    panel.dbg.break_on(name)
    panel.dbg.run()
    assert panel.dbg.here.name == name


def test_scores_and_weights_are_shown_where_they_are_computed(panel):
    for layer in (0, 1):
        come_to(panel, f"kq-{layer}")
        assert (panel.view, panel.stage, panel.layer) == ("attention", "scores", layer)
        assert not panel.pinned
        assert panel.attention_about["node"].startswith(f"kq-{layer}")
        assert panel.attention and not panel.attention_about["missing"]
        for j in range(4):
            reply = panel._weight({"row": 3, "column": j})
            assert reply["value"] == str(panel.dbg.here.value[panel.head, 3, j])
        panel.dbg.step_into()
        assert panel.dbg.here.name == f"kq_soft_max-{layer}"
        assert (panel.view, panel.stage) == ("attention", "softmax")
        assert panel.attention_about["stage"] == "softmax" and panel.attention


def test_a_chosen_stage_stays_until_the_view_follows_anew(panel):
    come_to(panel, "kq-0")
    panel.stage = "masked"
    panel.dbg.step_into()
    assert (panel.view, panel.stage) == ("attention", "masked")
    panel.pinned = True
    come_to(panel, "kq-1")
    assert panel.stage == "masked"
    panel.pinned = False
    assert panel.stage == "scores"
    panel.dbg.step_into()
    assert panel.stage == "softmax"


def test_a_stage_given_at_the_beginning_is_chosen(panel):
    other = DebuggerPanel(panel.dbg, stage="softmax")
    given = DebuggerPanel(panel.dbg, stage="masked")
    come_to(panel, "kq-0")
    assert (panel.stage, other.stage, given.stage) == ("scores", "softmax", "masked")
    other.close()
    given.close()
