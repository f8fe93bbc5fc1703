"""Time travel over the real engine: wherever a walk leads, everything is as in a straight run."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import llmviz
from llmviz.sampling import Chain, Dist, Penalties, Temp, TopK
from llmviz.trace import Debugger, DebuggerError

PROMPT = [1, *range(262, 275)]


def chain() -> Chain:
    return Chain([Penalties(16, 1.1, 0.1, 0.0), TopK(30), Temp(0.9), Dist(7)])


def state(dbg: Debugger) -> dict[str, Any]:
    """Everything that must agree with the event at which a run stands."""
    here, recorder, memory = dbg.here, dbg.recorder, dbg.ctx.memory
    value = here.value
    out: dict[str, Any] = {
        "event": (here.n, here.kind, here.name, here.depth, here.step),
        "value": np.array(value) if isinstance(value, np.ndarray) else None,
        "stack": dbg.scope_stack,
        "tokens": [t.id for t in dbg.tokens],
        "token_n": [t.n for t in dbg.tokens],
        "text": dbg.text,
        "logits": recorder.logits,
        "logits_n": recorder.logits_n,
        "top": recorder.top,
        "passes": recorder.passes,
        "heads": memory.heads,
        "chain": [list(getattr(s, "prev", ())) for s in dbg.chain],
        "draws": dbg.chain[-1].rng.draws,
        "scopes": [(r.n, r.kind, r.name) for r in dbg.events if r.kind != "node"],
        "edits": [(e.id, e.n, e.applied_at) for e in dbg.edits if e.n <= here.n],
    }
    if recorder.cells is not None:
        out["cells"] = recorder.cells.pos
        out["fresh"] = (recorder.cells.n, recorder.cells.fresh)
    for i, cells in enumerate(memory.cells):
        out[f"pos {i}"], out[f"seq {i}"] = cells.pos.copy(), np.argwhere(cells.seq)
        out[f"shift {i}"] = cells.shift.copy()
    for layer in memory.layers:
        out[f"k {layer.il}"], out[f"v {layer.il}"] = layer.k.copy(), layer.v.copy()
    for layer, blocks in recorder.attention.items():
        out[f"attention {layer}"] = [(b.n, b.p.tobytes()) for b in blocks]
    return out


def same(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert a.keys() == b.keys()
    for key, x in a.items():
        if isinstance(x, np.ndarray):
            assert x.tobytes() == b[key].tobytes(), key
        else:
            assert x == b[key], key


def begin(path_or_model: Any, type_kv: str = "f16", **kwargs: Any) -> Debugger:
    model = llmviz.load(path_or_model) if isinstance(path_or_model, str) else path_or_model
    ctx = model.context(n_ctx=256, n_ubatch=8, type_k=type_kv, type_v=type_kv)
    return Debugger(ctx, PROMPT, chain(), n_predict=kwargs.pop("n_predict", 6), **kwargs)


def straight(dbg: Debugger, every: int = 1) -> dict[int, dict[str, Any]]:
    """The state at every event of a run that only goes forward, or at every so many."""
    seen = {}
    while dbg.step_into() and not dbg.finished:
        if dbg.n % every == 0:
            seen[dbg.n] = state(dbg)
    return seen


MOVES = ("goto", "step_back", "back_over", "back_out", "prev_token", "into", "over", "out", "token")


def move(dbg: Debugger, rng: random.Random, last: int) -> None:
    kind = rng.choice(MOVES)
    try:
        if kind == "goto":
            dbg.goto(rng.randrange(last + 1))
        elif kind == "into":
            dbg.step_into()
        elif kind == "over":
            dbg.step_over()
        elif kind == "out":
            dbg.step_out()
        elif kind == "token":
            dbg.next_token()
        else:
            getattr(dbg, kind)()
    except DebuggerError as error:  # at one of the two ends
        assert any(w in str(error) for w in ("first", "before", "no scope", "at its end")), error


@pytest.mark.parametrize("type_kv", ["f16", "f32"])
def test_fifty_walks_forth_and_back(tiny_model: Any, type_kv: str) -> None:
    model = llmviz.load(tiny_model())
    expected = straight(begin(model, type_kv))
    last = max(expected)
    dbg = begin(model, type_kv)
    dbg.run()
    for walk in range(50):
        rng = random.Random(walk)
        for _ in range(rng.randrange(1, 6)):
            move(dbg, rng, last)
        same(state(dbg), expected[dbg.n])


def graphs(dbg: Debugger) -> list[tuple[int, str]]:
    return [(r.n, r.kind) for r in dbg.events if r.name in ("build_graph", "can_reuse")]


def test_graphs_are_reused_and_built_as_before(tiny_model: Any) -> None:
    # 250 tokens of prompt: the cache's window grows from 256 to 512 cells after six tokens
    model = llmviz.load(tiny_model(n_ctx_train=1024))
    ids = [1, *(262 + i % 50 for i in range(249))]

    def make() -> Debugger:
        return Debugger(model, ids, chain(), n_predict=12, n_ctx=1024, n_ubatch=64)

    other = make()
    other.run()
    built = graphs(other)
    assert len([k for _, k in built if k == "enter"]) == 4 and len(built) == 8 + 11
    dbg = make()
    dbg.run()
    for n in (other.tokens[252].n, other.tokens[260].n, other.tokens[254].n, 100, other.n):
        dbg.goto(n)
        if not dbg.finished:
            dbg.run()
        assert [
            (r.n, r.kind) for r in dbg.events if r.name in ("build_graph", "can_reuse")
        ] == built
        assert [t.id for t in dbg.tokens] == [t.id for t in other.tokens]


def test_old_points_are_thinned_out(tiny_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from llmviz.trace import history

    monkeypatch.setattr(history, "N_ALL", 4)
    monkeypatch.setattr(history, "LOGITS_BYTES", 5000)  # of about three points
    model = llmviz.load(tiny_model())
    expected = straight(begin(model, n_predict=50), every=31)
    dbg = begin(model, n_predict=50)
    dbg.run()
    points = dbg.points
    held = [p.mark.passes for p in points if not p.thin]
    assert len(points) == 51 and held == [0, 24, 32, 40, 47, 48, 49, 50]
    assert sum(p.mark.logits is not None for p in points if not p.thin) <= 3
    assert not any(p.rows for p in points), "rows of cells that were never used are not kept"
    rng = random.Random(0)
    for n in [max(expected), *rng.sample(sorted(expected), 12)]:
        dbg.goto(n)
        same(state(dbg), expected[n])


def test_from_a_path_loading_is_replayed_and_the_model_stays(tiny_model: Any) -> None:
    dbg = Debugger(tiny_model(), PROMPT, chain(), n_predict=3, n_ctx=256)
    names = {}
    while dbg.step_into() and not dbg.finished:
        names[dbg.n] = (dbg.here.kind, dbg.here.name)
    model, text, last = dbg.model, dbg.text, dbg.n
    contexts = [n for n, (_, name) in names.items() if name == "kv_cache"]
    for n in (contexts[0], 0, 40, contexts[0] + 1):
        dbg.goto(n)
        assert (dbg.here.kind, dbg.here.name) == names[n]
        assert dbg.scope_stack[-1].n <= n and not dbg.tokens and dbg.ctx is None
        assert (dbg.model is None) == (n < contexts[0])
    dbg.goto(40)
    dbg.run()
    assert (dbg.model, dbg.text, dbg.n) == (model, text, last) and dbg.finished
    assert [(r.kind, r.name) for r in dbg.events] == [names[r.n] for r in dbg.events]
    dbg.step_back()
    assert dbg.n == last - 1 and not dbg.finished


def test_the_first_graph_is_built_again_from_before_the_context(tiny_model: Any) -> None:
    dbg = Debugger(llmviz.load(tiny_model()), "a b", chain(), n_predict=1, n_ctx=64)
    dbg.run_to_end()
    end, events = dbg.n, [(r.n, r.name) for r in dbg.events]
    dbg.goto(2)  # in the middle of making the context
    dbg.run_to_end()
    assert dbg.n == end and [(r.n, r.name) for r in dbg.events] == events


def test_where_back_steps_lead(tiny_model: Any) -> None:
    dbg = begin(llmviz.load(tiny_model()))
    with pytest.raises(DebuggerError, match="nothing has run"):
        dbg.step_back()
    dbg.next_token()
    token = dbg.n
    point = dbg.break_on("kq_soft_max-1")
    dbg.run()
    dbg.clear_break(point)
    node = dbg.n
    dbg.step_back()
    assert (dbg.n, dbg.here.kind) == (node - 1, "node"), "a node that nobody watched"
    dbg.step_into()
    assert dbg.here.name == "kq_soft_max-1"
    dbg.back_out()
    assert (dbg.here.kind, dbg.here.name) == ("enter", "layer-1")
    dbg.back_out()
    assert (dbg.here.kind, dbg.here.name) == ("enter", "graph_compute")
    dbg.step_over()
    end = dbg.n
    assert (dbg.here.kind, dbg.here.name) == ("exit", "graph_compute")
    dbg.back_over()
    assert (dbg.here.kind, dbg.here.name) == ("enter", "graph_compute") and dbg.n < end
    dbg.prev_token()
    assert dbg.n == token
    dbg.prev_token()
    assert dbg.here.name == "tokens" and dbg.text == ""
    with pytest.raises(DebuggerError, match="no token before"):
        dbg.prev_token()
    assert dbg.here.name == "tokens"
    dbg.goto(0)
    with pytest.raises(DebuggerError, match="first event"):
        dbg.step_back()
    for bad in (-1, 1.5, "3", True):
        with pytest.raises(DebuggerError, match="from 0 up"):
            dbg.goto(bad)
    dbg.goto(10**9)
    assert dbg.finished and dbg.stopped_by == "end" and dbg.recorder.stop == "n_predict"


def test_reverse_to_names_conditions_and_callables(tiny_model: Any) -> None:
    dbg = begin(llmviz.load(tiny_model()))
    dbg.run()
    end = state(dbg)
    tokens = [t.n for t in dbg.tokens if not t.given]
    dbg.reverse_to("l_out-0")
    last = dbg.n
    assert dbg.here.name == "l_out-0" and tokens[-2] < last < tokens[-1]
    dbg.reverse_to("l_out-0")
    assert dbg.here.name == "l_out-0" and tokens[-3] < dbg.n < tokens[-2]
    dbg.reverse_to("token")
    assert dbg.n == tokens[-3]
    dbg.reverse_to("decode")
    assert dbg.here.kind == "enter"
    dbg.reverse_to("n_tokens < 16")
    assert dbg.here.name == "token" and len(dbg.tokens) == 15
    dbg.goto(10**9)
    dbg.reverse_to("max(ffn_out-1) > 0")
    assert dbg.here.name == "ffn_out-1" and dbg.here.value.max() > 0
    dbg.reverse_to(lambda e: e.kind == "node" and e.about.op == "ROPE")
    assert dbg.here.name == "Kcur-1" and dbg.here.about.op == "ROPE"
    dbg.goto(10**9)
    same(state(dbg), end)
    with pytest.raises(DebuggerError, match=r"no event before .* called nothing_like_it"):
        dbg.reverse_to("nothing_like_it")
    assert dbg.finished
    same(state(dbg), end)
    with pytest.raises(DebuggerError, match="KeyError"):
        dbg.reverse_to(lambda e: {}["typo"])
    same(state(dbg), end)
    dbg.error = None
    point = dbg.break_on("ffn_out-1")
    dbg.run_back()
    assert dbg.here.name == "ffn_out-1"
    dbg.clear_break(point)
    with pytest.raises(DebuggerError, match="no breakpoint"):
        dbg.run_back()


def test_peek_does_not_move(tiny_model: Any) -> None:
    model = llmviz.load(tiny_model())
    values = {}
    other = begin(model)
    while other.step_into() and not other.finished:
        if other.here.kind == "node":
            values.setdefault(other.here.name, []).append((other.n, other.here.value.copy()))
    dbg = begin(model)
    dbg.run()
    end, heard = state(dbg), []
    dbg.on_change(lambda: heard.append(dbg.n))
    for name in ("l_out-1", "Qcur-0", "result_output"):
        assert np.array_equal(dbg.peek(name), values[name][-1][1])
        n, value = values[name][2]
        assert np.array_equal(dbg.peek(name, n), value)
        assert np.array_equal(dbg.peek(name, n - 1), values[name][1][1])
    assert dbg.finished and not heard
    same(state(dbg), end)
    with pytest.raises(DebuggerError, match="no node 'l_out-7'"):
        dbg.peek("l_out-7")
    with pytest.raises(DebuggerError, match="up to event 20"):
        dbg.peek("l_out-1", 20)
    same(state(dbg), end)
    n = values["Qcur-0"][-1][0]
    dbg.goto(n)
    assert np.array_equal(dbg.peek("l_out-1"), values["l_out-1"][-2][1])
    assert dbg.here.name == "Qcur-0" and np.array_equal(dbg.peek("Qcur-0"), dbg.here.value)


def test_going_back_in_slices_and_pausing(tiny_model: Any) -> None:
    dbg = begin(llmviz.load(tiny_model()))
    dbg.run()
    dbg.start("goto", 200)
    slices = 1
    while not dbg.advance(0.0):
        slices += 1
        assert dbg.running
    assert dbg.n == 200 and slices > 3 and dbg.stopped_by == "goal"
    dbg.start("reverse-to", "token")
    dbg.advance(0.0)
    dbg.pause()
    assert dbg.advance() and dbg.stopped_by == "pause"
    dbg.run_to_end()
    assert dbg.finished and len(dbg.tokens) == 20
    dbg.start("back")
    assert dbg.advance() and not dbg.finished


def test_an_engine_error_can_be_left_behind(tiny_model: Any) -> None:
    dbg = begin(llmviz.load(tiny_model()))
    dbg.next_token()
    before = state(dbg)
    dbg.scale("result_output", float("nan"))
    with pytest.raises(llmviz.LlmvizError, match="NaN"):
        dbg.run()
    assert dbg.finished and dbg.here.name == "sample"
    with pytest.raises(DebuggerError, match="step back"):
        dbg.step_into()
    dbg.undo_edit(1)
    dbg.goto(before["event"][0])
    same(state(dbg), before)
    dbg.run()
    assert dbg.error is None and len(dbg.tokens) == 20


def test_an_interrupt_in_the_middle_of_a_node_loses_nothing(tiny_model: Any) -> None:
    model = llmviz.load(tiny_model())
    expected = straight(begin(model))
    when = [3, 200]

    def interrupted(name: str) -> bool:
        if when and dbg._n >= when[0]:
            when.pop(0)
            raise KeyboardInterrupt
        return False

    dbg = begin(model, want=interrupted)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            dbg.run()
        assert not dbg.running and dbg.stopped_by == "pause"
        same(state(dbg), expected[dbg.n])
    assert 180 < dbg.n <= 200
    dbg.run()
    same(state(dbg), expected[dbg.n])


def test_closed_things_say_so(tiny_model: Any) -> None:
    model = llmviz.load(tiny_model())
    model.gguf.close()
    with pytest.raises(DebuggerError, match=r"closed.*load it again"):
        Debugger(model, "a").run()
    dbg = begin(tiny_model())
    dbg.next_token()
    dbg.close()
    for call in (dbg.step_into, dbg.step_back, dbg.run, lambda: dbg.peek("l_out-0"), dbg.fork):
        with pytest.raises(DebuggerError, match="closed"):
            call()
    dbg.close()


def test_restart_forgets_edits_and_branches(tiny_model: Any) -> None:
    dbg = begin(llmviz.load(tiny_model()))
    dbg.run()
    text = dbg.text
    dbg.goto(50)
    dbg.zero("ffn_out-*")
    dbg.run()
    assert dbg.text != text
    dbg.restart()
    assert dbg.here is None and not dbg.edits and len(dbg.branches) == 1
    dbg.run()
    assert dbg.text == text


def test_walks_on_a_real_model(smollm2_path: str, figures: Any) -> None:
    import time

    model = llmviz.load(smollm2_path)
    ids = model.vocab.tokenize("The capital of France is a city that " * 80)[:506]
    dbg = Debugger(model, ids, chain(), n_predict=10, n_ctx=1024)
    expected, spent, back = {}, [], 0.0
    while True:
        start = time.perf_counter()
        dbg.next_token()
        spent.append(time.perf_counter() - start)
        if dbg.finished:
            break
        expected[n := dbg.n] = state(dbg)
        if len(dbg.tokens) == 512:
            start = time.perf_counter()
            dbg.step_back()
            back = time.perf_counter() - start
            dbg.step_into()
            assert dbg.n == n
            same(state(dbg), expected[n])
        dbg.step_into()
        expected[dbg.n] = state(dbg)
    token = float(np.median(spent[1:]))
    figures(f"512 tokens deep: a token takes {token * 1000:.0f} ms, back {back * 1000:.0f} ms")
    assert 0 < back < 3 * token + 0.1
    rng = random.Random(5)
    for _ in range(6):
        n = rng.choice(sorted(expected))
        dbg.goto(n)
        same(state(dbg), expected[n])
