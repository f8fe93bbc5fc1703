"""Long ways with something at their end: in slices, with progress, and with a Pause between."""

from __future__ import annotations

import pytest

pytest.importorskip("anywidget")

import llmviz
from llmviz.sampling import Chain, Greedy, Temp
from llmviz.trace import Debugger
from llmviz.widgets import DebuggerPanel, HeadsView, SamplerView, drive

PROMPT = [1, 262, 270, 281]


@pytest.fixture(scope="module")
def model(tiny_model):
    return llmviz.load(tiny_model())


@pytest.fixture
def small(monkeypatch):
    """Slices of one event."""
    monkeypatch.setattr(drive, "SLICE", 0.0)
    monkeypatch.setattr(drive, "GOAL_SLICE", 0.0)


def debug(model) -> Debugger:
    return Debugger(model, PROMPT, Chain([Temp(0.7), Greedy()]), n_predict=4, n_ctx=64)


def ask(view, **message):
    replies = []
    view.send = lambda content, buffers=None: replies.append(content)
    view._on_message(view, {"id": "1", **message}, [])
    return replies[-1]


def finish(view, reply) -> int:
    """What the page does until the run stands; how many slices it took."""
    slices = 0
    while reply["running"]:
        assert "error" not in reply
        reply = ask(view, ask="tick")
        slices += 1
    return slices


def test_a_head_goes_off_and_comes_back_in_slices(model, small):
    dbg, whole = debug(model), debug(model)
    view, other = HeadsView(dbg), HeadsView(whole)
    for d in (dbg, whole):
        d.next_token()
        d.next_token()
    n = dbg.n
    reply = ask(view, ask="heads_off", layer=1, head=2)
    assert reply["running"] and view.way["what"] and dbg.edits == []
    assert finish(view, reply) > 3
    other.switch_off(1, 2)  # a method is waited for
    assert not whole.running
    assert [o["heads"] for o in view.heads_off] == [[2]]
    for key in ("before", "now", "logit_before", "logit_now", "kept"):
        assert view.heads_change[key] == other.heads_change[key]
    assert view.shares == other.shares and view.token == other.token
    finish(view, ask(view, ask="heads_undo", which=view.heads_off[0]["id"]))
    assert dbg.n == n and view.heads_off == []
    assert view.heads_change["same"] == view.heads_change["of"] > 0
    view.close()
    other.close()


def test_paused_before_the_head_is_off_nothing_has_changed(model, small):
    dbg = debug(model)
    view = HeadsView(dbg)
    dbg.next_token()
    dbg.next_token()
    reply = ask(view, ask="heads_off", layer=1, head=2)
    assert reply["running"]
    ask(view, ask="pause")
    assert not dbg.running and dbg.edits == [] and len(dbg.branches) == 1
    ask(view, ask="tick")
    dbg.next_token()
    assert dbg.edits == [], "what was to follow is forgotten"
    view.close()


def test_a_token_is_chosen_anew_in_slices(model, small):
    dbg = debug(model)
    view = SamplerView(dbg)
    dbg.next_token()
    dbg.step_over()
    view.what_if = {"0": {"t": 0.5}}
    reply = ask(view, ask="sampler-apply", again=True)
    assert finish(view, reply) > 3 and view.what_if == {}
    assert (dbg.here.name, dbg.here.kind) == ("sample", "enter")
    assert dbg.chain.samplers[0].params["t"] == 0.5
    view.close()


def test_a_nodes_tensor_opens_where_the_search_ends(model, small):
    dbg = debug(model)
    view = DebuggerPanel(dbg, view="flow")
    dbg.next_token()
    reply = ask(view, ask="flow_tensor", column="l_out-0")
    assert reply["running"] and view.view == "flow"
    assert finish(view, reply) > 3
    assert (dbg.here.name, view.view) == ("l_out-0", "tensor")
    view.view = "flow"
    dbg.next_token()
    view.opened_node = "l_out-1"  # without a page nobody asks for the next slice
    assert (dbg.here.name, view.view) == ("l_out-1", "tensor")
    view.close()
