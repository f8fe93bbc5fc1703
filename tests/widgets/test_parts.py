"""Parts of the panel without a browser: places as text, completions, the journey, source lines."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("anywidget")

import llmviz
from llmviz.events import Event
from llmviz.trace import Debugger, DebuggerError
from llmviz.widgets import DebuggerPanel, OutputView, TimelineView
from llmviz.widgets.breaks import place_of
from llmviz.widgets.completions import MOST, complete
from llmviz.widgets.journey import Journey
from llmviz.widgets.source import places
from llmviz.widgets.timeline import MARKS, thin

from ..trace import toy
from .test_views import ask


@pytest.fixture(scope="module")
def model(tiny_model):
    return llmviz.load(tiny_model())


@pytest.fixture
def dbg(model):
    with Debugger(model, [5, 9, 11, 7], n_predict=4, n_ctx=64) as dbg:
        yield dbg


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("kq_soft_max-*", {"where": "kq_soft_max-*"}),
        (" 13 ", {"where": 13}),
        ("step 13", {"where": 13}),
        ("layer 5", {"layer": 5}),
        ("scope decode", {"scope": "decode"}),
        ('token "Paris"', {"token": "Paris"}),
        ("token ' of'", {"token": " of"}),
        ("token 7042", {"token": 7042}),
        ("token == 'a'", {"where": "token == 'a'"}),
        ("layer < 3 and entropy > 1", {"where": "layer < 3 and entropy > 1"}),
        ("l_out-5 if any NaN", {"where": "l_out-5", "condition": "any NaN"}),
        ("step 13 if n > 5", {"where": 13, "condition": "n > 5"}),
    ],
)
def test_a_place_as_people_write_it(text, place):
    assert place_of(text) == place


@pytest.mark.parametrize("text", ["", "  ", "step five", "layer -1"])
def test_what_is_no_place_says_so(text):
    with pytest.raises(DebuggerError):
        place_of(text)


def test_completions_are_few_and_fit(dbg):
    assert complete("", dbg, places=True)[0]["text"] == "step "
    names = [c["text"] for c in complete("norm(l_o", dbg)]
    assert names and names[0] == "l_out-" and len(names) <= MOST
    dbg.next_token()
    assert {"l_out-0", "l_out-1"} <= {c["text"] for c in complete("norm(l_out-", dbg)}
    assert complete("entropy > ", dbg) == []
    assert complete("entrop", dbg)[0]["text"] == "entropy"


def test_what_lies_ahead_stays_known_until_it_is_changed(dbg):
    view = OutputView(dbg)
    for _ in range(3):
        dbg.next_token()
    tokens = [k.id for k in dbg.tokens]
    dbg.prev_token()
    dbg.prev_token()
    track = Journey.of(dbg).track
    assert [k.id for k in track.tokens] == tokens and view.n_ahead == 2
    assert [t["ahead"] for t in view.tokens] == [False] * 5 + [True] * 2
    view.choose_another(5, (tokens[5] + 1) % 50)
    assert [b["name"] for b in view.branches] == ["main", "branch-1"]
    assert view.n_ahead == 0 and view.tokens[-1]["id"] == (tokens[5] + 1) % 50
    view.switch("main")
    assert [t["id"] for t in view.tokens] == tokens
    dbg.restart()
    assert view.tokens == [] and Journey.of(dbg).track.passes == []
    with pytest.raises(DebuggerError, match="no token at position"):
        view.goto_token(3)


def test_the_passes_and_their_layers_are_known(dbg):
    view = TimelineView(dbg)
    for _ in range(3):
        dbg.next_token()
    line = view.timeline
    assert [x[0] for x in line["layers"]] == list(range(len(line["layers"]))) != []
    assert line["passes"] == 3 and line["pass_"] == 2 and line["n_tokens"] == 3
    n = line["layers"][1][1]
    dbg.goto(n)
    assert dbg.here.name == "layer-1" and view.timeline["furthest"] == line["furthest"]


def test_marks_are_thinned_evenly_and_the_last_stays():
    marks = list(range(50_000))
    some = thin(marks)
    assert len(some) <= MARKS and some[-1] == marks[-1]
    assert len(set(np.diff(some))) == 1


def test_a_long_run_costs_a_view_what_is_new():
    def events():
        for i in range(50_000):
            yield Event("node", f"x-{i % 40}", 0, 13, np.zeros(2, np.float32))

    dbg = Debugger(events())
    view = DebuggerPanel(dbg)
    dbg.run()
    assert view.timeline["furthest"] == 49_999
    seen = []
    real = type(dbg).events.fget

    class Counting(Debugger):
        @property
        def events(self):
            return _Counted(real(self), seen)

    dbg.__class__ = Counting
    view.refresh()
    assert len(seen) <= 5, "only what is new is looked at"


class _Counted:
    def __init__(self, events, seen):
        self.events, self.seen = events, seen

    def __reversed__(self):
        for record in reversed(self.events):
            self.seen.append(record.n)
            yield record

    def __iter__(self):
        return iter(self.events)

    def __len__(self):
        return len(self.events)


@pytest.mark.parametrize(
    ("node", "named", "words"),
    [
        ("Kcur-1 (view)", "Kcur-1", "it is made from Kcur-1"),
        ("cache_k_l1 (view) (permuted)", "", "on the way to kq-1"),
    ],
)
def test_lines_of_a_view_that_ggml_named_are_those_of_its_nearest(dbg, node, named, words):
    dbg.break_on(node)
    dbg.run()
    assert not dbg.here.about.origin
    asked, here, *rest = places(dbg)
    assert "models/llama.py" in asked["file"] and "model/graph" in here["file"]
    assert asked["note"] == here["note"] and words in here["note"] and node in here["note"]
    if named == "Kcur-1":
        assert (asked["role"], here["role"]) == (
            "the model asks for Kcur-1",
            "Kcur-1 is named here",
        )
    assert rest[-1]["role"] == "shown here" and "note" not in rest[-1]


def test_source_lines_are_those_on_which_the_run_stands(dbg):
    dbg.break_on("kq_soft_max-1")
    dbg.run()
    lines = dbg.lines
    assert Path(lines[-1][0]).name == "sched.py"
    shown = places(dbg)
    assert [p["role"] for p in shown] == [
        "the model asks for it",
        "named here",
        "computed here",
        "shown here",
    ]
    for p in shown:
        file = Path(inspect.getfile(llmviz)).parents[1] / p["file"]
        source = file.read_text().splitlines()
        assert p["lines"] == [x[:200] for x in source[p["first"] - 1 :][: len(p["lines"])]]
        assert p["first"] <= p["line"] < p["first"] + len(p["lines"])
    assert shown[1]["mirrors"].startswith("src/llama-graph.cpp")
    dbg.run_to_end()
    assert isinstance(places(dbg), list)


def test_each_button_has_its_method(dbg):
    panel = DebuggerPanel(dbg)
    assert (panel.can_forward, panel.can_back, panel.can_prev) == (True, False, False)
    panel.step_into()
    panel.step_over()
    panel.next_token()
    panel.next_token()
    assert panel.can_back and panel.can_prev
    n = dbg.n
    panel.prev_token()
    panel.step_back()
    assert dbg.n < n
    panel.goto(n)
    panel.goto_step(13)
    assert panel.step == 13 and dbg.n < n
    panel.goto_step(16)
    assert panel.step == 16 and not dbg.breakpoints
    panel.run()
    assert not panel.can_forward and panel.can_back
    panel.restart()
    assert panel.here == -1


def test_watches_keep_their_values_and_say_what_is_wrong(dbg):
    panel = DebuggerPanel(dbg)
    panel.watch("norm(l_out-1)")
    assert panel.watches[0]["state"] == "missing"
    dbg.break_on("l_out-1")
    dbg.run()
    exact = float(np.linalg.norm(dbg.here.value.astype(np.float64)))
    assert float(panel.watches[0]["value"]) == pytest.approx(exact, rel=1e-12)
    reply = ask(panel, ask="watch", text="norm(")
    assert "column" in reply["error"] and len(panel.watches) == 1
    dbg.restart()
    assert panel.watches[0]["state"] == "missing", "asked for again after a restart"
    ask(panel, ask="unwatch", which=1)
    assert panel.watches == []


def test_changes_that_cannot_be_made_lose_nothing(dbg):
    panel = DebuggerPanel(dbg)
    dbg.break_on("l_out-0")
    dbg.run()
    n, value = dbg.n, np.array(dbg.here.value)
    for message in [
        {"ask": "edit-value", "n": n, "index": [99, 0], "value": "1"},
        {"ask": "edit-value", "n": n - 1, "index": [0, 0], "value": "1"},
        {"ask": "edit-value", "n": n, "index": [0, 0], "value": "one"},
        {"ask": "ablate", "layer": 99, "heads": [0]},
        {"ask": "edit-logit", "token": 10**9, "value": "1"},
        {"ask": "set-sampler", "index": 0, "name": "nothing", "value": "1"},
        {"ask": "memory-op", "op": "seq_rm", "args": [0, 0, 1]},
        {"ask": "undo-edit", "which": 7},
        {"ask": "switch", "name": "nowhere"},
        {"ask": "go", "action": "fly"},
        {"ask": "goto-step", "step": 3},
        {"ask": "unbreak", "which": 77},
    ]:
        reply = ask(panel, **message)
        assert reply["error"] and panel.error["text"] and panel.error["hint"], message
        assert dbg.n == n and (dbg.here.value == value).all() and panel.edits == [], message
    dbg.break_on(lambda event: 1 / 0)
    ask(panel, ask="go", action="run")
    assert "ZeroDivisionError" in panel.error["text"]
    assert (
        panel.breakpoints[-1]["enabled"] is False and "ZeroDivision" in panel.breakpoints[-1]["why"]
    )
    dbg.close()
    assert "closed" in ask(panel, ask="go", action="into")["error"]


def test_a_generator_cannot_go_back_and_says_why():
    dbg = Debugger(toy.run(n_predict=2))
    panel = DebuggerPanel(dbg)
    dbg.run()
    assert not panel.can_back and not panel.can_restart
    ask(panel, ask="go", action="goto", to=3)
    assert "only forward" in panel.error["text"]
