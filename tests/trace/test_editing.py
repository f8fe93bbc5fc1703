"""Edits: what they change, that replays reapply them, and that taking them back leaves no trace."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import llmviz
from llmviz.errors import LlmvizError
from llmviz.events import Event
from llmviz.trace import Debugger, DebuggerError

from .test_travel import begin, move, same, state


@pytest.fixture(scope="module")
def model(tiny_model: Any) -> Any:
    return llmviz.load(tiny_model())


def to(dbg: Debugger, name: str, times: int = 1) -> Debugger:
    for _ in range(times):
        point = dbg.break_on(name)
        dbg.run()
        dbg.clear_break(point)
    assert dbg.here.name == name
    return dbg


def straight_again(dbg: Debugger, model: Any, type_kv: str) -> Debugger:
    """A fresh run in which the same edits are made as its events pass, never going back."""
    other = begin(model, type_kv)
    pending = sorted(dbg.edits, key=lambda e: e.id)
    while pending:
        edit = pending.pop(0)
        if edit.n >= 0:
            other.goto(edit.n)
        kind = type(edit).__name__
        if kind == "ValueEdit":
            other.edit(edit.value)
        elif kind == "LogitEdit":
            other.edit_logit(edit.token, edit.logit)
        elif kind == "TokenEdit":
            other.choose_token(edit.token)
        elif kind == "MemoryEdit":
            other.memory_op(edit.op, *edit.args)
        elif kind == "SamplerEdit":
            other.set_sampler(edit.index, **edit.params)
        elif kind == "Intervention":
            other.intervene(edit.pattern, edit.function, edit.description)
        else:
            (other.enable if edit.on else other.disable)(edit.target.id)
        other.edits[-1].id = edit.id
    return other


def test_a_node_an_input_and_the_logits(model: Any) -> None:
    dbg = begin(model)
    plain = begin(model)
    plain.run()
    to(dbg, "ffn_out-0")
    edit = dbg.edit(np.zeros(dbg.here.shape))
    assert (edit.id, edit.n, edit.name) == (1, dbg.n, "ffn_out-0") and edit.applied_at == dbg.n
    assert not dbg.here.value.any()
    with pytest.raises(DebuggerError, match="shape"):
        dbg.edit(np.zeros((3, 2)))
    to(dbg, "inp_pos")
    dbg.edit(dbg.here.value + 1)
    to(dbg, "logits")
    changed = dbg.here.value.copy()
    changed[-1, 300] = 50
    dbg.edit(changed)
    assert dbg.recorder.logits[300] == 50 and dbg.recorder.top[0].id == 300
    dbg.next_token()
    assert dbg.tokens[-1].id == 300
    dbg.run()
    assert dbg.text != plain.text and [e.id for e in dbg.edits] == [1, 2, 3]


def test_one_logit_and_the_chosen_token(model: Any) -> None:
    dbg = begin(model)
    dbg.edit_logit(300, 60.0)  # before anything has run: of the first pass
    dbg.next_token()
    assert dbg.tokens[-1].id == 300
    first = dbg.tokens[-1].n
    dbg.choose_token(280)  # just accepted: that one, in a branch of its own
    assert dbg.here.name == "selected" and dbg.here.value == 280 and dbg.branch.parent == "main"
    dbg.next_token()
    assert dbg.n == first and dbg.tokens[-1].id == 280
    dbg.choose_token(281, pos=dbg.tokens[-1].pos)
    dbg.next_token()
    assert dbg.tokens[-1].id == 281
    dbg.step_over()
    dbg.edit_logit(282, float("inf"))  # of the pass that is over: back to its logits
    assert dbg.here.name == "logits" and dbg.here.value[-1, 282] == np.inf
    dbg.step_into()
    dbg.step_into()
    dbg.step_into()
    dbg.choose_token(283)  # the next one to be chosen
    dbg.next_token()
    assert dbg.tokens[-1].id == 283 and [b.name for b in dbg.branches][:2] == ["main", "branch-1"]
    for bad in (-1, 10_000, 1.5, True, "no token has this text"):
        with pytest.raises(LlmvizError):
            dbg.choose_token(bad)
    with pytest.raises(DebuggerError, match="NaN"):
        dbg.edit_logit(3, float("nan"))
    with pytest.raises(DebuggerError, match="position 3"):
        dbg.choose_token(3, pos=3)


def test_other_prompt_tokens(model: Any) -> None:
    dbg = to(begin(model), "tokens")
    dbg.edit([1, 300, 301])
    dbg.next_token()
    assert [t.id for t in dbg.tokens[:3]] == [1, 300, 301] and len(dbg.tokens) == 4
    dbg.goto(5)
    dbg.next_token()
    assert len(dbg.tokens) == 4


def test_cells_between_decodes_only(model: Any) -> None:
    dbg = to(begin(model), "kq_soft_max-0")
    with pytest.raises(DebuggerError, match="step out"):
        dbg.memory_op("seq_rm", 0, 2, 5)
    dbg.next_token()
    with pytest.raises(DebuggerError, match="seq_rm, seq_cp"):
        dbg.memory_op("explode")
    with pytest.raises(LlmvizError, match="seq_id"):
        dbg.memory_op("seq_rm", 9999, 0, 1)
    assert not dbg.edits
    edit = dbg.memory_op("seq_rm", 0, 2, 5)
    assert edit.description == "seq_rm(0, 2, 5)" and dbg.recorder.cells.used == 11
    n = dbg.n
    dbg.next_token()
    after = state(dbg)
    dbg.goto(3)
    dbg.goto(n)
    assert dbg.recorder.cells.used == 11
    dbg.next_token()
    same(state(dbg), after)
    dbg.undo_edit(edit)
    assert dbg.n == after["event"][0] and not dbg.edits and dbg.recorder.cells.used == 15


@pytest.mark.parametrize("op", [("clear",), ("seq_add", 0, 4, -1, 3), ("seq_keep", 1)])
def test_what_an_operation_destroys_comes_back(model: Any, op: Any) -> None:
    dbg = begin(model)
    dbg.next_token()
    dbg.next_token()
    before = state(dbg)
    dbg.memory_op(*op)
    dbg.step_over()
    dbg.step_over()  # a shift happens with the next decode, before its ubatch begins
    while dbg.here.name != "init_batch":
        dbg.step_into()
    assert dbg.edits
    dbg.undo_edit(1)
    dbg.goto(before["event"][0])
    same(state(dbg), before)
    dbg.goto(5)
    dbg.goto(before["event"][0])
    same(state(dbg), before)


def test_sampler_parameters_from_here_on(model: Any) -> None:
    dbg = begin(model)
    dbg.next_token()
    remembered = list(dbg.chain[0].prev)
    dbg.set_sampler("top_k", k=1)
    dbg.set_sampler(0, penalty_repeat=1.0, penalty_freq=2.0)
    assert dbg.chain[1].k == 1 and list(dbg.chain[0].prev) == remembered and len(remembered) == 1
    draws = dbg.chain[3].rng.draws
    dbg.set_sampler("dist", seed=3)
    assert dbg.chain[3].rng.draws == 0 and draws == 1
    with pytest.raises(LlmvizError, match="its parameters are: k"):
        dbg.set_sampler("top-k", p=1)
    with pytest.raises(DebuggerError, match="penalties, top-k"):
        dbg.set_sampler("xtc", p=1)
    with pytest.raises(DebuggerError, match="has 4"):
        dbg.set_sampler(4, p=1)
    with pytest.raises(LlmvizError):
        dbg.set_sampler(1, k="many")
    n = dbg.n
    dbg.next_token()
    end = state(dbg)
    dbg.goto(n - 1)
    assert dbg.chain[1].k == 30
    dbg.goto(n)
    assert dbg.chain[1].k == 1
    dbg.next_token()
    same(state(dbg), end)


def test_standing_interventions(model: Any) -> None:
    dbg = begin(model)
    dbg.next_token()
    plain = dbg.recorder.logits.copy()
    n = dbg.n
    dbg.goto(0)
    ablation = dbg.ablate_heads(0, [1, 3])
    assert ablation.description == "ablate heads 1, 3 of layer 0" and dbg.branch.name == "branch-1"
    to(dbg, "kqv_out-0")
    d = dbg.here.shape[1] // 4
    x = dbg.here.value.reshape(-1, 4, d)
    assert not x[:, [1, 3]].any() and x[:, [0, 2]].any()
    dbg.next_token()
    assert dbg.n == n and not np.array_equal(dbg.recorder.logits, plain)
    dbg.disable(ablation)
    assert dbg.interventions[0].active(n - 1) and not dbg.interventions[0].active(n)
    to(dbg, "kqv_out-0")
    assert dbg.here.value.reshape(-1, 4, d)[:, 1].any()
    dbg.enable(ablation.id)
    assert not dbg.here.value.reshape(-1, 4, d)[:, 1].any(), "the event it stands at, too"
    dbg.remove(ablation)
    assert not dbg.edits
    dbg.goto(n)
    assert np.array_equal(dbg.recorder.logits, plain)


def test_scale_zero_mean_and_ones_that_cannot_work(model: Any) -> None:
    dbg = begin(model)
    dbg.scale("attn_norm-0", 2)
    dbg.zero("ffn_out-*")
    dbg.mean("l_out-1")
    to(dbg, "ffn_out-0")
    assert not dbg.here.value.any()
    to(dbg, "l_out-1", times=2)  # the first ubatch of the prompt gives no output
    assert np.ptp(dbg.here.value, axis=-1).max() == 0
    dbg.clear_break()
    assert "near it: l_out-1" in dbg.zero("l_out-9").warning
    with pytest.raises(DebuggerError, match="0 to 1"):
        dbg.ablate_heads(2, 0)
    with pytest.raises(DebuggerError, match="0 to 3"):
        dbg.ablate_heads(0, [0, 4])
    broken = dbg.intervene("ffn_norm-*", lambda x, t: x[:-1], "cut")
    dbg.next_token()
    with pytest.raises(DebuggerError, match=r"cut.*shape.*off now"):
        dbg.next_token()
    assert dbg.here.name == "ffn_norm-0" and broken.broken and "shape" in broken.note
    dbg.next_token()
    assert dbg.here.name == "token"
    weights = dbg.intervene("cache_k*", lambda x, t: x * 0)
    with pytest.raises(DebuggerError, match="KV cache itself"):
        dbg.next_token()
    assert weights.broken


def test_taking_an_edit_back_leaves_no_trace(model: Any) -> None:
    plain = begin(model)
    plain.next_token()
    plain.next_token()
    dbg = to(begin(model), "l_out-0")
    edit = dbg.edit(np.ones(dbg.here.shape))
    dbg.undo_edit(edit)
    assert np.ptp(dbg.here.value) > 0 and not dbg.edits
    edit = dbg.edit(np.ones(dbg.here.shape))
    dbg.next_token()
    dbg.next_token()
    dbg.undo_edit(edit.id)
    same(state(dbg), state(plain))
    with pytest.raises(DebuggerError, match="it has: none"):
        dbg.undo_edit(edit)


def test_branches_are_kept_apart(model: Any) -> None:
    dbg = begin(model)
    dbg.run()
    main = state(dbg)
    pos = dbg.tokens[16].pos
    dbg.choose_token(300, pos=pos)
    dbg.run()
    one = state(dbg)
    dbg.goto(dbg.tokens[15].n)
    fork = dbg.fork("by hand")
    assert (fork.parent, fork.fork_n, fork.reason) == ("branch-1", dbg.n, "")
    dbg.scale("result_norm", 0.1)
    dbg.run()
    two = state(dbg)
    assert [b.name for b in dbg.branches] == ["main", "branch-1", "by hand"]
    assert dbg.branches[1].reason.startswith("choose")
    assert main["text"] != one["text"] != two["text"]
    for name, expected in [("main", main), ("by hand", two), ("branch-1", one), ("main", main)]:
        dbg.switch(name)
        same(state(dbg), expected)
        assert dbg.branch.name == name and dbg.finished
        assert {b.name: b.text for b in dbg.branches} == {
            "main": main["text"], "branch-1": one["text"], "by hand": two["text"],
        }  # fmt: skip
    with pytest.raises(DebuggerError, match="main, branch-1, by hand"):
        dbg.switch("nowhere")
    for bad in ("main", "", 3):
        with pytest.raises(DebuggerError, match="new name"):
            dbg.fork(bad)
    dbg.switch("branch-1", 40)
    dbg.disable(dbg.zero("ffn_out-0"))
    dbg.goto(30)
    dbg.zero("ffn_out-1")
    dbg.goto(35)
    dbg.fork("off")
    dbg.disable(dbg.interventions[0].id)
    dbg.switch("branch-4")
    assert dbg.interventions[0].active(100), "switched off in the other branch alone"
    dbg.switch("off")
    assert not dbg.interventions[0].active(100)
    dbg.switch("branch-1", 40)
    assert dbg.n == 40 and dbg.branch.name == "branch-1"


def random_edit(dbg: Debugger, rng: random.Random) -> None:
    """Some change that is possible where the run stands."""
    kind = rng.randrange(7)
    here = dbg.here
    if kind == 0 and here.kind == "node" and here.dtype == "float32" and "cache" not in here.name:
        dbg.edit(here.value * np.float32(0.5))
    elif kind == 1:
        dbg.edit_logit(rng.randrange(300), 12.5)
    elif kind == 2 and here.step < 15:
        dbg.choose_token(rng.randrange(262, 320))
    elif kind == 3 and dbg.recorder.cells is not None:
        p = rng.randrange(1, 8)
        op = rng.choice([("seq_rm", 0, p, p + 2), ("seq_add", 0, p, -1, 2), ("seq_cp", 0, 1, 0, p)])
        dbg.memory_op(*op)
    elif kind == 4:
        dbg.set_sampler(rng.randrange(1, 3), **rng.choice([{"k": 5}, {"t": 1.5}]))
    elif kind == 5:
        dbg.scale(rng.choice(["ffn_out-0", "kqv_out-*", "Qcur-1"]), rng.choice([0.5, 2]))
    elif kind == 6 and dbg.interventions:
        target = rng.choice(dbg.interventions)
        rng.choice([dbg.disable, dbg.enable])(target)


@pytest.mark.parametrize("type_kv", ["f16", "f32"])
def test_walks_with_edits_forks_and_switches(model: Any, type_kv: str, figures: Any) -> None:
    n_edits = n_branches = 0
    for walk in range(20):
        rng = random.Random(1000 + walk)
        dbg = begin(model, type_kv)
        dbg.goto(rng.randrange(150))
        for _ in range(14):
            what = rng.random()
            try:
                if what < 0.45:
                    random_edit(dbg, rng)
                elif what < 0.55 and len(dbg.branches) > 1:
                    dbg.switch(rng.choice([b.name for b in dbg.branches]))
                elif what < 0.6 and dbg.edits:
                    dbg.undo_edit(rng.choice(dbg.edits))
                else:
                    move(dbg, rng, dbg.furthest)
            except LlmvizError as error:
                assert not isinstance(dbg.error, LlmvizError) or dbg.finished, error
        here = dbg.n
        n_edits += len(dbg.edits)
        n_branches += len(dbg.branches)
        while later := [e for e in dbg.edits if e.n > here]:
            dbg.undo_edit(later[0])
        other = straight_again(dbg, model, type_kv)
        other.goto(here)
        same(state(dbg), state(other))
    figures(f"{type_kv}: 20 walks with {n_edits} edits in {n_branches} branches")


def test_a_context_that_was_used_before(model: Any) -> None:
    ctx = model.context(n_ctx=256)
    first = Debugger(ctx, [1, 270, 271], n_predict=3)
    first.run()
    dbg = Debugger(ctx, [280, 281], n_predict=3)
    dbg.run()
    end, used = dbg.text, dbg.recorder.cells.used
    dbg.goto(0)
    assert ctx.memory.cells[0].n_used == 5
    dbg.run()
    assert (dbg.text, dbg.recorder.cells.used) == (end, used)


def test_events_of_a_generator_cannot_go_back() -> None:
    dbg = Debugger(iter([Event("data", "a", 0, 1, 1), Event("data", "b", 0, 1, 2)]))
    dbg.step_into()
    dbg.step_into()
    for back in (dbg.step_back, dbg.fork, lambda: dbg.goto(0), lambda: dbg.reverse_to("a")):
        with pytest.raises(DebuggerError, match="only forward"):
            back()
    assert dbg.n == 1
