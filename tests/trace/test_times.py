"""Where the time went: stretches of one clock, without gap or overlap, whatever way was taken."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace

import numpy as np
import pytest

import llmviz
from llmviz.ggml import sched as sched_module
from llmviz.sampling import Chain, Greedy
from llmviz.trace import Debugger
from llmviz.trace import times as times_module
from llmviz.trace.graph_blocks import part_of
from llmviz.trace.time_parts import DIVISIONS, parts_of, rate
from llmviz.trace.time_shown import chosen_pass, label_of, milliseconds, rows_of

from . import toy

PROMPT = [1, 262, 270, 281]


@pytest.fixture(scope="module")
def model(tiny_model):
    return llmviz.load(tiny_model(n_layer=3))


def debug(model, **options) -> Debugger:
    options = {"n_predict": 4, "n_ctx": 256, **options}
    return Debugger(model, PROMPT, Chain([Greedy()]), **options)


def ticking(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A clock that moves by one at each look."""
    now = [0]

    def look() -> int:
        now[0] += 1
        return now[0]

    monkeypatch.setattr(sched_module, "perf_counter_ns", look)
    monkeypatch.setattr(times_module, "perf_counter_ns", look)
    return now


def check(dbg: Debugger) -> int:
    """Every division of every pass sums to its total; the sum of all passes."""
    for p in dbg.times.passes:
        for by in DIVISIONS:
            parts = parts_of(p, by)
            assert sum(part.ns for part in parts) == p.total, (p.number, by)
            assert all(part.ns >= 0 for part in parts), (p.number, by)
            assert parts[-1].name == "watching" and parts[-1].ns == p.watching
            inner = [part for part in parts if part.depth == 0]
            assert sum(part.whole for part in inner) == p.total
        assert p.kernels <= p.engine and p.engine + p.watching == p.total
        for most in (1, 5, 2000):
            assert sum(row["ns"] for row in rows_of(p, "node", most)) == p.total
    return sum(p.total for p in dbg.times.passes)


def test_the_parts_sum_to_the_total_and_the_total_fits_into_the_wall(model):
    dbg = debug(model)
    start = time.perf_counter_ns()
    dbg.next_token()
    dbg.run_to_end()
    wall = time.perf_counter_ns() - start
    total = check(dbg)
    assert 0 < total <= wall, "what is missing is what lies between two calls"
    passes = dbg.times.passes
    assert [p.kind for p in passes] == ["start", "prompt", "token", "token", "token"]
    assert [p.n_tokens for p in passes] == [0, 4, 1, 1, 1]
    assert [p.text for p in passes[1:]] == [t.text for t in dbg.tokens if not t.given]
    assert all(p.whole for p in passes) and not any(p.quiet for p in passes)
    graph = dbg.ctx.graph.gf
    for p in passes[1:]:
        (run,) = p.computed
        assert run.graph.names == tuple(t.name for t in graph.nodes)
        assert run.ns.shape == (len(graph.nodes),) and run.ns.sum() == p.kernels > 0
        views = np.array([t.op in ("VIEW", "RESHAPE", "PERMUTE") for t in graph.nodes])
        assert (run.ns[views] == 0).all()
    assert sum(p.kernels for p in passes) / 1e9 < sum(dbg.seconds.values()) <= total / 1e9


def test_a_pause_counts_nowhere(model, monkeypatch):
    """The same run, stepped with long looks between the steps, has the same times to the tick."""
    totals = []
    for pause in (0, 10**9):
        now = ticking(monkeypatch)
        dbg = debug(model)
        for _ in range(3):
            dbg.next_token()
            now[0] += pause
        while dbg.step_into() is not None and not dbg.finished:
            now[0] += pause
        totals.append([p.total for p in dbg.times.passes])
        check(dbg)
    assert totals[0] == totals[1] and max(totals[0]) < 10**6


def test_watching_is_a_part_of_its_own(model, monkeypatch):
    """Asking and looking on is never the engine's time."""
    now = ticking(monkeypatch)

    def slow(name: str) -> bool:
        now[0] += 1000
        return name.startswith("l_out-")

    plain, watched = debug(model), debug(model, want=slow)
    for dbg in (plain, watched):
        dbg.next_token()
        dbg.next_token()
        check(dbg)
    a, b = plain.times.passes[2], watched.times.passes[2]
    assert b.kernels == a.kernels
    assert b.watching > a.watching + 1000 * len(b.computed[0].ns)
    assert b.engine < a.engine + 1000, "the asking is not counted as the engine's"
    assert b.n_seen == a.n_seen + 3
    told = rate([b])
    assert told.n_tokens == 1 and told.per_second == pytest.approx(1e9 / b.total)
    assert told.unwatched == pytest.approx(1e9 / b.engine) and told.unwatched > told.per_second


def test_going_back_measures_anew_and_counts_nothing_twice(model):
    dbg = debug(model)
    for _ in range(4):
        dbg.next_token()
    end, before = dbg.n, dbg.times.passes
    middle = next(r.n for r in dbg.events if r.n > before[3].n and r.name == "graph_compute")
    dbg.goto(middle)
    now = dbg.times.passes
    assert [p.number for p in now] == [0, 1, 2, 3] and not now[3].whole
    assert [p.total for p in now[:3]] == [p.total for p in before[:3]], "they were not touched"
    assert now[3].n_tokens == 1
    check(dbg)
    dbg.goto(end)
    again = dbg.times.passes
    assert [(p.n, p.kind, p.n_tokens, p.text, p.whole) for p in again] == [
        (p.n, p.kind, p.n_tokens, p.text, p.whole) for p in before
    ]
    assert [p.quiet for p in again] == [False, False, False, False, True]
    assert again[4].paths == before[4].paths
    check(dbg)
    dbg.peek("l_out-1", middle)
    assert [p.n for p in dbg.times.passes] == [p.n for p in before]
    dbg.restart()
    assert dbg.times.passes == [] and dbg.times.n_passes == 0


def test_another_branch_has_its_own_passes(model):
    dbg = debug(model)
    for _ in range(3):
        dbg.next_token()
    texts = [p.text for p in dbg.times.passes]
    dbg.goto(dbg.times.passes[2].n + 4)
    dbg.fork("other")
    dbg.next_token()
    check(dbg)
    assert [p.number for p in dbg.times.passes] == [0, 1, 2]
    dbg.switch("main")
    assert [p.text for p in dbg.times.passes] == texts
    check(dbg)


def test_looking_at_the_account_leaves_nothing_behind(model):
    dbg = debug(model)
    dbg.next_token()
    for _ in range(4):
        dbg.step_into()
    held = len(dbg.times._known)
    for _ in range(40):
        dbg.step_into()
        assert dbg.times.passes[-1].total > 0
    assert len(dbg.times._known) == held
    dbg.next_token()
    dbg.next_token()
    a, b = dbg.times.passes[2:4]
    assert a.computed[0].graph is b.computed[0].graph, "names are kept once"
    assert len(dbg.times._graphs) <= 2


def test_a_prompt_in_pieces_is_one_pass(model):
    dbg = debug(model, n_ubatch=2, n_batch=3)
    dbg.next_token()
    dbg.next_token()
    prompt = dbg.times.passes[1]
    assert prompt.n_tokens == 4 and len(prompt.computed) == 3
    assert [p.n_tokens for p in dbg.times.passes] == [0, 4, 1]
    nodes = [p for p in parts_of(prompt, "node") if p.index >= 0]
    assert all(p.count == 3 for p in nodes) and len(nodes) == len(prompt.computed[0].ns)
    check(dbg)
    dbg.goto(prompt.n + 30)
    dbg.next_token()
    assert dbg.times.passes[1].n_tokens == 4, "a piece that came again is not counted twice"


def test_a_run_that_fails_and_one_without_an_engine(monkeypatch):
    dbg = Debugger(toy.run())
    dbg.next_token()
    dbg.run_to_end()
    check(dbg)
    assert [p.kind for p in dbg.times.passes] == ["start", "prompt", "token"]
    assert dbg.times.last_computed() is None and dbg.times.passes[1].kernels == 0
    broken = Debugger(toy.run(fail_at="l_out-1"))
    broken.step_into()
    now = ticking(monkeypatch)
    with pytest.raises(ValueError, match="on purpose"):
        broken.run()
    check(broken)
    assert sum(p.total for p in broken.times.passes) > 0 and now[0] > 0
    assert any("end of the run" in p for p in broken.times.passes[-1].paths)


def test_a_pass_as_plain_data(model):
    dbg = debug(model)
    dbg.next_token()
    prompt = dbg.times.passes[1]
    record = json.loads(json.dumps(prompt.record()))
    assert sum(record["engine_ns"]) + sum(record["watching_ns"]) == prompt.total
    assert record["nodes"][0]["ns"] == prompt.computed[0].ns.tolist()
    assert "decode/process_ubatch/graph_compute/layer-2" in record["paths"]


def test_layers_and_parts(model):
    dbg = debug(model)
    dbg.next_token()
    parts = parts_of(dbg.times.passes[1], "layer")
    names = [(p.depth, p.name) for p in parts]
    assert names[:4] == [
        (0, "embedding"), (0, "layer 0"), (1, "attention"), (1, "feed-forward"),
    ]  # fmt: skip
    assert [n for _, n in names[-3:]] == ["output", "Python around the nodes", "watching"]
    scopes = parts_of(dbg.times.passes[1], "scope")
    (layers,) = (p for p in scopes if p.name == "layers")
    inside = [p for p in scopes if p.layer >= 0]
    assert layers.count == 3 == len(inside) and layers.whole == sum(p.whole for p in inside)
    assert layers.kernels == sum(p.whole for p in parts if p.name.startswith("layer "))
    with pytest.raises(ValueError, match="no division"):
        parts_of(dbg.times.passes[1], "colour")


def test_parts_go_by_the_names_that_llama_cpp_gives():
    def node(name: str, il: int | None) -> SimpleNamespace:
        return SimpleNamespace(name=name, il=il)

    names = [
        ("embd", -1, "embedding"), ("norm-0", 0, "attention"), ("attn_norm-0", 0, "attention"),
        ("Qcur-0", 0, "attention"), ("cache_k_l0 (view)", 0, "attention"),
        ("kqv-0 (permuted)", 0, "attention"), ("kqv_out-0", 0, "attention"),
        ("attn_out-0", 0, "attention"), ("ffn_inp-0", 0, "attention"),
        ("norm-0", 0, "feed-forward"), ("ffn_moe_logits-0", 0, "feed-forward"),
        ("node_31", 0, "feed-forward"), ("l_out-0", 0, "feed-forward"),
        ("ssm_in-1", 1, "other"), ("odd-1", 1, "feed-forward"), ("l_out-1", 1, "feed-forward"),
        ("result_norm", -1, "output"), ("result_output", -1, "output"),
    ]  # fmt: skip
    assert part_of([node(n, il) for n, il, _ in names]) == [part for *_, part in names]
    assert part_of([]) == []


def test_words_and_choices(model):
    assert [milliseconds(x) for x in (0, 950, 12_345, 1_234_567, 45_678_901, 5e9, 123e9)] == [
        "0.0 µs", "0.9 µs", "12.3 µs", "1.23 ms", "45.7 ms", "5.00 s", "123 s",
    ]  # fmt: skip
    dbg = debug(model)
    assert chosen_pass(dbg.times.passes, -1) is None
    dbg.step_into()
    assert chosen_pass(dbg.times.passes, -1).kind == "start"
    dbg.next_token()
    dbg.step_into()
    assert chosen_pass(dbg.times.passes, -1).number == 1, "the newest at its end"
    assert chosen_pass(dbg.times.passes, 0).number == 0
    assert chosen_pass(dbg.times.passes, 99) is None
    assert label_of(dbg.times.passes[1]).startswith("the prompt, then")
