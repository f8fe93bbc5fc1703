"""Long ways in slices: wherever a switch, an undo or a search is paused, nothing is lost."""

from __future__ import annotations

import random
from typing import Any

import pytest

import llmviz
from llmviz.errors import LlmvizError
from llmviz.trace import Debugger, DebuggerError

from .test_editing import straight_again
from .test_travel import begin, same, state


@pytest.fixture(scope="module")
def model(tiny_model: Any) -> Any:
    return llmviz.load(tiny_model())


def paused(dbg: Debugger, slices: int, action: str, *arguments: Any) -> bool:
    """Begin an action and pause it after some slices of one event; False where it came to stand."""
    dbg.start(action, *arguments)
    for _ in range(slices):
        if dbg.advance(0.0):
            return False
    dbg.stop_here()
    return True


def is_as_straight(dbg: Debugger, model: Any) -> None:
    """Hold everything against a run with the same edits that never went back."""
    other = straight_again(dbg, model, "f16")
    other.goto(dbg.n)
    same(state(dbg), state(other))
    other.close()


def three_ways(model: Any) -> Debugger:
    """A run with two branches: another token, and a scaled norm in a third."""
    dbg = begin(model)
    dbg.run()
    dbg.take_token(300, dbg.tokens[16].n)
    dbg.run()
    dbg.goto(dbg.tokens[15].n)
    dbg.scale("result_norm", 0.1)
    dbg.run()
    assert [b.name for b in dbg.branches] == ["main", "branch-1", "branch-2"]
    return dbg


@pytest.mark.parametrize(
    ("action", "arguments", "words"),
    [
        ("goto", (150,), "to event 150"),
        ("prev-token", (), "to event "),
        ("reverse-to", ("tokens",), "back to where an event is called tokens"),
        ("switch", ("main", 200), "to branch main, event 200"),
        ("undo-edit", (2,), "again, without: result_norm x 0.1"),
        ("take-token", (301, -1), "to where event "),
    ],
)
def test_a_long_way_can_be_paused_anywhere(
    model: Any, action: str, arguments: Any, words: str
) -> None:
    dbg = three_ways(model)
    end, n_branches = state(dbg), len(dbg.branches)
    if action == "take-token":
        arguments = (arguments[0], dbg.tokens[14].n)
    stops = set()
    for slices in (1, 2, 4, 9, 14):
        if not paused(dbg, slices, action, *arguments):
            break
        assert not dbg.running and dbg.stopped_by == "pause"
        assert words in dbg.way.what and 0 <= dbg.way.fraction < 1
        assert max(r.n for r in dbg.events) == dbg.n
        stops.add(dbg.n)
        if action == "undo-edit":
            assert not dbg.edits and [b.name for b in dbg.branches] == ["main", "branch-1"]
            assert dbg.branch.name == "main", "which is what it was without the edit"
            break  # it is taken back: only the way to where the run stood is left
        if action == "switch":
            dbg.switch("branch-2")
        dbg.goto(end["event"][0] - 1)
        assert dbg.way is None
        dbg.step_into()
        same(state(dbg), end)
    assert len(stops) > 2 or action == "undo-edit"
    is_as_straight(dbg, model)
    assert len(dbg.branches) == n_branches - (action == "undo-edit")


def test_a_paused_way_is_gone_on_by_going_there_again(model: Any) -> None:
    dbg = three_ways(model)
    there = next(b for b in dbg.branches if b.name == "main").furthest
    assert paused(dbg, 7, "switch", "main")
    assert dbg.branch.name == "main" and dbg.n < there == dbg.furthest
    dbg.goto(there)
    is_as_straight(dbg, model)
    other = begin(model)
    other.run()
    other.goto(there)
    same(state(dbg), state(other))


def test_another_token_is_taken_in_slices(model: Any) -> None:
    dbg = begin(model)
    dbg.run()
    n = dbg.tokens[15].n
    dbg.goto(20)
    dbg.start("take-token", 299, n)  # it lies ahead
    fractions = []
    while not dbg.advance(0.0):
        fractions.append(dbg.way.fraction)
    assert fractions == sorted(fractions) and fractions[-1] > 0.9
    assert (dbg.n, dbg.tokens[-1].id, dbg.branch.name) == (n, 299, "branch-1")
    for bad, error in ((-1, "ids are 0"), ("no such token", "not one token")):
        with pytest.raises(LlmvizError, match=error):
            dbg.start("take-token", bad, n)
    assert not dbg.running and dbg.n == n
    # Of the token just accepted, and of one at a position.
    dbg.start("choose-token", 298)
    while not dbg.advance(0.0):
        pass
    assert dbg.here.name == "selected" and dbg.here.value == 298
    dbg.start("edit-logit", 297, 50.0)
    while not dbg.advance(0.0):
        pass
    assert dbg.here.name == "logits" and dbg.here.value[-1, 297] == 50
    is_as_straight(dbg, model)


def test_a_branch_that_undo_emptied_is_its_parent_again(model: Any) -> None:
    dbg = begin(model)
    dbg.run()
    main = state(dbg)
    dbg.goto(40)
    edit = dbg.zero("ffn_out-0")
    assert dbg.branch.name == "branch-1"
    dbg.undo_edit(edit)  # at once: nothing has to be computed
    assert [b.name for b in dbg.branches] == ["main"] and dbg.n == 40
    assert dbg.furthest == main["event"][0], "what lay ahead is ahead again"
    edit = dbg.zero("ffn_out-0")
    assert dbg.branch.name == "branch-2", "a name is not given twice"
    dbg.next_token()
    dbg.fork("by hand")
    dbg.next_token()
    dbg.switch("branch-2")
    dbg.undo_edit(edit)
    assert [(b.name, b.parent) for b in dbg.branches] == [("main", None), ("by hand", "main")]
    assert dbg.branches[1].fork_n == 40 and dbg.branch.name == "main"
    is_as_straight(dbg, model)
    dbg.goto(main["event"][0] - 1)
    dbg.step_into()
    same(state(dbg), main)
    dbg.switch("by hand")
    assert [e.description for e in dbg.edits] == ["zero ffn_out-0"]
    is_as_straight(dbg, model)
    # Where the parent was changed after the fork, both are ways of their own.
    dbg.switch("main", 40)
    edit = dbg.zero("ffn_out-1")
    dbg.next_token()
    dbg.switch("main")
    dbg.goto(60)
    dbg.fork("own")
    dbg.switch(edit_branch := "branch-4")
    dbg.undo_edit(edit)
    assert edit_branch not in [b.name for b in dbg.branches]


def test_walks_that_are_paused_everywhere(model: Any, figures: Any) -> None:
    n_pauses = 0
    for walk in range(10):
        rng = random.Random(walk)
        dbg = begin(model)
        dbg.run()
        for _ in range(12):
            kind, slices = rng.randrange(6), rng.randrange(1, 60)
            tokens = [t.n for t in dbg.tokens if not t.given]
            todo: tuple[Any, ...] = ("goto", rng.randrange(dbg.furthest))
            if kind == 1:
                todo = ("switch", rng.choice(dbg.branches).name)
            elif kind == 2 and dbg.edits:
                todo = ("undo-edit", rng.choice(dbg.edits).id)
            elif kind == 3 and tokens:
                todo = ("take-token", rng.randrange(262, 320), rng.choice(tokens))
            elif kind == 4:
                todo = ("reverse-to", rng.choice(["token", "l_out-0", "n_tokens < 15"]))
            elif kind == 5:
                dbg.scale(rng.choice(["ffn_out-0", "kqv_out-*"]), rng.choice([0.5, 2]))
                continue
            try:
                n_pauses += paused(dbg, slices, *todo)
            except DebuggerError as error:
                assert "event" in str(error)
            if rng.random() < 0.3:
                dbg.next_token() if not dbg.finished else dbg.goto(30)
        while later := [e for e in dbg.edits if e.n > dbg.n]:
            dbg.undo_edit(later[0])
        is_as_straight(dbg, model)
        dbg.close()
    figures(f"{n_pauses} long ways paused between two events")
