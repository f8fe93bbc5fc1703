"""The debugger over hand-written events: where each step stands, and what is known there."""

from __future__ import annotations

import numpy as np
import pytest

from llmviz.errors import LlmvizError
from llmviz.events import Event
from llmviz.trace import Debugger, DebuggerError

from . import toy


def names(dbg: Debugger) -> list[str]:
    return [s.name for s in dbg.scope_stack]


def free(**kwargs) -> Debugger:
    """A debugger whose toy asks it which nodes it wants."""
    box: dict[str, Debugger] = {}
    dbg = Debugger(toy.run(want=lambda name: box["dbg"]._want(name)), **kwargs)
    box["dbg"] = dbg
    return dbg


def test_into_visits_every_event_in_order():
    expected = [(e.kind, e.name, e.depth) for e in toy.run()]
    dbg = Debugger(toy.run())
    seen = []
    while dbg.step_into() and not dbg.finished:
        seen.append((dbg.here.kind, dbg.here.name, dbg.here.depth))
    assert seen == expected
    assert [r.n for r in dbg.events] == list(range(len(expected)))
    assert dbg.finished and dbg.stopped_by == "end" and dbg.scope_stack == ()


def test_over_leaves_a_scope_behind_and_out_ends_the_enclosing_one():
    dbg = Debugger(toy.run())
    while dbg.here is None or dbg.here.name != "graph_compute":
        dbg.step_into()
    assert names(dbg) == ["decode", "process_ubatch", "graph_compute"]
    dbg.step_into()
    assert dbg.here.name == "layer-0" and dbg.here.kind == "enter"
    dbg.step_over()
    assert (dbg.here.kind, dbg.here.name) == ("exit", "layer-0")
    dbg.step_over()
    assert (dbg.here.kind, dbg.here.name) == ("enter", "layer-1")
    dbg.step_into()
    assert dbg.here.name == "attn_norm-1"
    dbg.step_over()
    assert dbg.here.name == "kq_soft_max-1"
    dbg.step_out()
    assert (dbg.here.kind, dbg.here.name) == ("exit", "layer-1")
    dbg.step_out()
    assert (dbg.here.kind, dbg.here.name) == ("exit", "graph_compute")
    assert names(dbg) == ["decode", "process_ubatch", "graph_compute"]
    dbg.step_into()
    assert names(dbg) == ["decode", "process_ubatch"]


def test_numbers_mean_the_same_event_stepped_or_free():
    stepped = {}
    for n, event in enumerate(toy.run()):
        stepped[n] = (event.kind, event.name)
    dbg = free()
    dbg.run()
    assert dbg.finished
    assert all(stepped[r.n] == (r.kind, r.name) for r in dbg.events)
    assert len(dbg.events) < len(stepped), "unwanted nodes are not yielded"
    assert dbg.events[-1].n == len(stepped) - 1


def test_stepping_into_a_computation_yields_every_node():
    dbg = free()
    dbg.break_on("layer-1")
    dbg.run()
    visited = []
    while dbg.step_into().kind == "node":
        visited.append(dbg.here.name)
    assert visited == ["attn_norm-1", "kq_soft_max-1", "l_out-1"]


def test_want_by_glob_yields_only_those():
    dbg = free(want="l_out-*")
    dbg.run()
    seen = {r.name for r in dbg.events if r.kind == "node"}
    assert seen == {"l_out-0", "l_out-1", "kq_soft_max-0", "kq_soft_max-1"}


def test_next_token_and_text():
    dbg = free()
    dbg.next_token()
    assert dbg.here.name == "token" and dbg.here.step == 16
    first = dbg.tokens[-1]
    assert not first.given and first.id == dbg.here.value and dbg.text == first.text
    assert [t.given for t in dbg.tokens] == [True] * 5 + [False]
    dbg.next_token()
    assert len(dbg.tokens) == 7 and dbg.text == "".join(t.text for t in dbg.tokens[5:])


def test_probabilities_before_and_after_the_chain():
    dbg = free()
    dbg.next_token()
    token, logits = dbg.tokens[-1], dbg.recorder.logits
    raw = np.exp(logits.astype(np.float64) - logits.max())
    raw /= raw.sum()
    assert token.p_raw == pytest.approx(raw[token.id])
    assert token.rank == 1 and token.top[1].id == token.id
    assert token.p == pytest.approx(token.top[1].p) and token.p > token.p_raw
    assert [a.cut for a in token.top] == [False] * 4 + [True] * 6
    assert [a.logit for a in token.top] == sorted((a.logit for a in token.top), reverse=True)


@pytest.mark.parametrize("where", ["kq_soft_max-1", "kq_soft_max-1*", "kq_*-1"])
def test_break_on_a_name_or_glob(where):
    dbg = free()
    point = dbg.break_on(where)
    dbg.run()
    assert dbg.here.name == "kq_soft_max-1" and dbg.stopped_by == "breakpoint"
    assert dbg.hit is point and point.hits == 1
    dbg.run()
    assert point.hits == 2
    point.enabled = False
    dbg.run()
    assert dbg.finished and point.hits == 2


def test_break_on_a_scope_stops_once_and_on_a_step_where_it_begins():
    dbg = free()
    dbg.break_on("decode")
    dbg.run()
    assert (dbg.here.kind, dbg.here.name) == ("enter", "decode")
    dbg.clear_break()
    step = dbg.break_on(15)
    dbg.run()
    assert (dbg.here.kind, dbg.here.name) == ("enter", "sample")
    dbg.run()
    assert step.hits == 2 and dbg.here.name == "sample"


def test_break_on_a_predicate_and_one_that_raises():
    dbg = free()
    dbg.break_on(lambda e: e.kind == "node" and float(e.value.max()) > 0.9)
    dbg.run()
    assert dbg.here.kind == "node" and dbg.here.value.max() > 0.9
    dbg.clear_break()

    def broken(event: Event) -> bool:
        raise KeyError("typo")

    point = dbg.break_on(broken)
    with pytest.raises(DebuggerError, match=r"broken.*KeyError"):
        dbg.run()
    assert not point.enabled and not dbg.finished
    dbg.run()
    assert dbg.finished and dbg.error is None, "the run itself was well and went on"


@pytest.mark.parametrize("where", [0, 17, True, 1.5, None, "", "  "])
def test_a_breakpoint_that_makes_no_sense_is_refused(where):
    with pytest.raises(DebuggerError):
        Debugger(toy.run()).break_on(where)


def test_clear_break_names_what_there_is():
    dbg = Debugger(toy.run())
    point = dbg.break_on("decode")
    with pytest.raises(DebuggerError, match="there are: 1"):
        dbg.clear_break(99)
    dbg.clear_break(point)
    assert dbg.breakpoints == []


def test_slices_add_up_to_the_whole_run_and_pause_arrives():
    whole = free()
    whole.run()
    sliced = free()
    sliced.start("run")
    slices = 1
    while not sliced.advance(0.0):
        slices += 1
        assert sliced.running
    assert slices > 10 and sliced.finished
    assert [r.n for r in sliced.events] == [r.n for r in whole.events]

    paused = free()
    paused.start("run")
    paused.advance(0.0)
    paused.pause()
    assert paused.advance(None) and paused.stopped_by == "pause" and not paused.running
    n = paused.n
    assert paused.step_into().n == n + 1


def test_an_engine_error_is_raised_stored_and_loses_nothing():
    dbg = Debugger(toy.run(fail_at="l_out-1"))
    with pytest.raises(ValueError, match="on purpose"):
        dbg.run()
    assert isinstance(dbg.error, ValueError) and dbg.stopped_by == "error"
    assert dbg.here.name == "kq_soft_max-1" and names(dbg)[-1] == "layer-1"
    assert len(dbg.tokens) == 5 and dbg.recorder.layers() == [0, 1]
    with pytest.raises(DebuggerError, match="restart"):
        dbg.step_into()


def test_busy_is_refused_and_the_state_survives():
    dbg = Debugger(toy.run())
    problems = []

    def meddle(event: Event) -> bool:
        try:
            dbg.step_into()
        except DebuggerError as e:
            problems.append(str(e))
        return False

    dbg.break_on(meddle)
    dbg.next_token()
    assert problems and "busy" in problems[0] and dbg.here.name == "token"


def test_edit_checks_shape_and_dtype_and_logs():
    received = []

    def engine():
        event = Event("node", "x", 0, 13, np.zeros((2, 3), np.float32))
        yield event
        received.append(event.value)
        yield Event("enter", "scope", 0, 13)

    dbg = Debugger(engine())
    with pytest.raises(DebuggerError, match="tensor"):
        dbg.edit(np.zeros(3))
    dbg.step_into()
    with pytest.raises(DebuggerError, match=r"\[2, 3\].*\[3, 2\]"):
        dbg.edit(np.zeros((3, 2)))
    with pytest.raises(DebuggerError, match="complex"):
        dbg.edit(np.zeros((2, 3), complex))
    dbg.edit(np.full((2, 3), 7.0))
    assert dbg.edits[0].n == 0 and dbg.here.value.dtype == np.float32
    dbg.step_into()
    assert (received[0] == 7).all()
    with pytest.raises(AttributeError):
        dbg.here.value = 1


def test_followers_hear_of_every_stand_and_can_leave():
    dbg = Debugger(toy.run())
    heard = []
    end = dbg.on_change(lambda: heard.append(dbg.n))
    dbg.step_into()
    dbg.step_into()
    end()
    dbg.step_into()
    assert heard == [0, 1]


def test_misuse_has_plain_messages():
    dbg = Debugger(toy.run())
    with pytest.raises(DebuggerError, match="into, over"):
        dbg.start("sideways")
    with pytest.raises(DebuggerError, match="make a new"):
        dbg.restart()
    dbg.run()
    with pytest.raises(DebuggerError, match="at its end"):
        dbg.step_into()
    assert issubclass(DebuggerError, LlmvizError)


def test_events_are_bounded_and_hold_no_arrays():
    dbg = Debugger(toy.run(n_predict=6), n_events=20)
    dbg.run()
    assert len(dbg.events) == 20
    record = next(r for r in dbg.events if r.kind == "data" and r.shape)
    assert record.shape == (1, toy.N_VOCAB) and record.dtype == "float32"
    assert not any(isinstance(getattr(record, s), np.ndarray) for s in record.__slots__)


def test_repr_and_bundle_work_without_widgets(monkeypatch):
    monkeypatch.setattr(Debugger, "display_with", None)
    dbg = Debugger(toy.run())
    assert repr(dbg) == "<Debugger not started, 0 tokens>"
    dbg.step_into()
    assert dbg._repr_mimebundle_() == {"text/plain": repr(dbg)}
    assert "#0 enter tokenize" in repr(dbg)


def test_time_is_counted_by_step():
    dbg = Debugger(toy.run())
    dbg.run()
    assert set(dbg.seconds) == {9, 11, 13, 14, 15, 16} and min(dbg.seconds.values()) >= 0


def test_close_ends_the_generator():
    ended = []

    def engine():
        try:
            while True:
                yield Event("data", "x", 0, 1, 1)
        finally:
            ended.append(True)

    with Debugger(engine()) as dbg:
        dbg.step_into()
    assert ended == [True] and dbg.here is None
