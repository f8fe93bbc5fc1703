"""A trace opened again: at every event what a debugger shows there, and in every view."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llmviz
from llmviz.errors import LlmvizError
from llmviz.trace import Debugger, DebuggerError, Trace, TraceError, open_trace
from llmviz.trace.expressions import compile_expression
from llmviz.trace.filmstrip import HeldStrip, moment_of, replay
from llmviz.trace.flow import Flow
from llmviz.trace.scores import entering
from llmviz.trace.shown import attention, candidates
from tests.trace.test_storage import PROMPT, chain

pytest.importorskip("zarr")

KEPT = ("l_out", "attn_norm", "kq", "Qcur", "Kcur", "Vcur", "ffn", "inp_", "out_ids", "attn_inp")


def keeps(name: str) -> bool:
    return name.startswith(KEPT) or name in ("embd", "result_norm", "result_output")


@pytest.fixture(scope="module")
def run(tiny_model: Callable[..., str]) -> Debugger:
    dbg = Debugger(tiny_model(), PROMPT, chain(), n_predict=4, want="*", n_ctx=64, n_ubatch=8)
    dbg.log.keep_logits = True
    dbg.recorder.ask("a test", keeps)
    dbg.run_to_end()
    return dbg


@pytest.fixture(scope="module")
def path(run: Debugger, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trace") / "run.zarr.zip"
    run.save(out)
    return out


@pytest.fixture
def trace(path: Path) -> Any:
    with open_trace(path) as opened:
        yield opened


def test_it_stands_where_the_run_stood(run: Debugger, trace: Trace) -> None:
    assert trace.here is not None and run.events[-1].n == trace.n
    assert trace.tokens == run.tokens and trace.text == run.text
    assert trace.finished and trace.recorder.stop == "n_predict"
    assert trace.recorder.logits_n == run.recorder.logits_n
    assert trace.recorder.logits.tobytes() == run.recorder.logits.tobytes()
    assert trace.recorder.top == run.recorder.top
    assert trace.recorder.passes == run.recorder.passes
    assert trace.branch.furthest == run.branch.furthest
    assert trace.model.desc == run.model.desc
    assert trace.model.hparams.n_layer == run.model.hparams.n_layer
    assert [s.name for s in trace.chain] == [s.name for s in run.chain]
    assert trace.chain[1].params == {"k": 30}
    assert "Trace of llama" in repr(trace)
    assert trace.missing == []


def test_every_event_is_as_the_debugger_shows_it(run: Debugger, path: Path) -> None:
    """The whole run again, event by event, beside a cursor that goes along."""
    dbg = Debugger(run.subject, PROMPT, chain(), n_predict=4, n_ctx=64, n_ubatch=8)
    dbg.recorder.ask("a test", keeps)
    values = 0
    with open_trace(path) as trace:
        trace.restart()
        while True:
            here = dbg.step_into()
            if here is None or dbg.finished:
                break
            assert trace.here is not None
            same = (here.n, here.kind, here.name, here.depth, here.step)
            assert same == (
                trace.here.n,
                trace.here.kind,
                trace.here.name,
                trace.here.depth,
                trace.here.step,
            )
            assert trace.scope_stack == dbg.scope_stack
            assert trace.tokens == dbg.tokens
            assert trace.recorder.top == dbg.recorder.top
            assert trace.recorder.passes == dbg.recorder.passes
            ours, theirs = trace.recorder.cells, dbg.recorder.cells
            assert (ours is None) == (theirs is None)
            if ours is not None and theirs is not None:
                assert ours.n == theirs.n and ours.fresh == theirs.fresh
                assert ours.pos.tobytes() == theirs.pos.tobytes()
            if here.kind == "node" and isinstance(trace.here.value, np.ndarray):
                values += 1
                mine = trace.here.value
                theirs_value = np.asarray(here.value)[..., : mine.shape[-1]]
                assert mine.tobytes() == np.ascontiguousarray(theirs_value).tobytes()
                assert trace.here.about.op == here.about.op
            if here.name in ("token", "selected", "stop") and here.kind == "data":
                assert trace.here.value == here.value
            if here.step == 15 and hasattr(here.value, "logit"):
                assert trace.here.value.size == here.value.size
                assert trace.here.about.why == here.about.why
            if trace.n < run.events[-1].n:
                trace.step_into()
    assert values > 100


def test_steps_lead_where_the_debugger_s_lead(run: Debugger, path: Path) -> None:
    dbg = Debugger(run.subject, PROMPT, chain(), n_predict=4, n_ctx=64, n_ubatch=8)
    dbg.step_into()
    with open_trace(path) as trace:
        trace.restart()
        for verb in (
            *("step_over", "step_out", "next_token", "step_into", "step_into", "step_over"),
            *("step_out", "step_out", "next_token", "step_back", "back_over", "step_into"),
            *("step_into", "back_out", "prev_token", "step_into", "prev_token", "step_back"),
            *("next_token", "back_over"),
        ):
            a, b = getattr(dbg, verb)(), getattr(trace, verb)()
            assert a is not None and b is not None
            assert (a.n, a.name) == (b.n, b.name), verb
        assert trace.scope_stack == dbg.scope_stack
        name = "kq_soft_max-*"
        assert dbg.reverse_to(name).n == trace.reverse_to(name).n  # type: ignore[union-attr]


def test_numbers_are_taken_from_it_as_from_a_debugger(run: Debugger, trace: Trace) -> None:
    for layer in range(2):
        ours = attention(trace.recorder, layer, 0, 24)
        theirs = attention(run.recorder, layer, 0, 24)
        assert ours.tokens == theirs.tokens
        assert ours.matrix.tobytes() == theirs.matrix.tobytes()  # type: ignore[union-attr]
    assert candidates(trace.recorder) == candidates(run.recorder)
    assert candidates(trace.recorder, 15) == candidates(run.recorder, 15)
    for text in ("entropy", "n_tokens", "kv.used", "text", "top", "norm(l_out-0)"):
        expression = compile_expression(text)
        assert expression.evaluate(trace.values) == expression.evaluate(run.values)
    ours_flow, theirs_flow = Flow(trace, 1, 0), Flow(run, 1, 0)
    for flow in (ours_flow, theirs_flow):
        flow.update()
    assert [c.id for c in ours_flow.columns] == [c.id for c in theirs_flow.columns]
    assert ours_flow.edges == theirs_flow.edges and ours_flow.rows == theirs_flow.rows
    for column in ours_flow.columns:
        if column.kind == "matrix":
            assert entering(trace, 1) == entering(run, 1), "the softmax's scale and mask are known"
            a, b = ours_flow.matrix(column), theirs_flow.matrix(column)
            assert a.tobytes() == b.tobytes()
        else:
            a, b = ours_flow.strip(column, 12).bins, theirs_flow.strip(column, 12).bins
            assert np.array_equal(a, b, equal_nan=True), column.id


def test_what_is_not_there_is_said(tiny_model: Callable[..., str], tmp_path: Path) -> None:
    dbg = Debugger(tiny_model(), PROMPT, chain(), n_predict=3, n_ctx=64)
    dbg.run_to_end()
    dbg.save(tmp_path / "bare.zarr.zip")
    trace = open_trace(tmp_path / "bare.zarr.zip")
    told = " ".join(trace.missing)
    assert "no values" in told and "no node was watched" in told and "ten largest" in told
    first = next(r for r in trace.all_events if r.name == "logits" and r.kind == "data")
    trace.goto(first.n)
    assert trace.here is not None and "not in this trace" in trace.here.value["value"]
    assert trace.here.shape == first.shape
    shown = candidates(trace.recorder)
    assert shown is not None and len(shown.top) == 10 and shown.entropy is None
    watched = Debugger(tiny_model(), PROMPT, chain(), n_predict=2, want="l_out-*", n_ctx=64)
    watched.run_to_end()
    watched.save(tmp_path / "watched.zarr.zip")
    trace = open_trace(tmp_path / "watched.zarr.zip")
    trace.reverse_to("l_out-0")
    assert trace.here is not None
    assert trace.here.value["mean"] == watched.recorder.stats("l_out-0").mean
    assert trace.here.about.op == "ADD"
    # Nodes that were not recorded have no place of their own: the one before is taken.
    unwatched = trace.n - 1
    assert trace.goto(unwatched).n < unwatched  # type: ignore[union-attr]


def test_going_over_the_edges(trace: Trace) -> None:
    with pytest.raises(TraceError, match="last event"):
        trace.step_into()
    assert trace.finished
    trace.goto(10**9)
    assert trace.finished
    trace.restart()
    assert not trace.finished and trace.tokens == [] and trace.recorder.attention == {}
    for verb in ("step_back", "back_over", "back_out", "prev_token"):
        with pytest.raises(TraceError):
            getattr(trace, verb)()
    for n in (-1, True, "3", 2.5):
        with pytest.raises(TraceError, match="from 0 up"):
            trace.goto(n)  # type: ignore[arg-type]
    with pytest.raises(TraceError, match="no such action"):
        trace.start("fly")
    with pytest.raises(TraceError, match="one branch"):
        trace.start("switch", "main")
    with pytest.raises(TraceError, match="condition"):
        trace.reverse_to("entropy > 3")
    with pytest.raises(TraceError, match="called nothing"):
        trace.reverse_to("nothing-*")


@pytest.mark.parametrize("verb", ["edit", "choose_token", "break_on", "ablate_heads", "switch"])
def test_it_cannot_be_changed(trace: Trace, verb: str) -> None:
    with pytest.raises(TraceError, match=f"{verb}: a trace can be looked at"):
        getattr(trace, verb)(1)


def test_a_closed_trace_says_so(path: Path) -> None:
    trace = open_trace(path)
    heard = []
    end = trace.on_change(lambda: heard.append(trace.n))
    trace.step_back()
    end()
    end()
    trace.step_back()
    assert len(heard) == 1
    trace.close()
    with pytest.raises(TraceError, match="closed"):
        trace.step_back()


def test_nothing_holds_a_trace(path: Path) -> None:
    trace = open_trace(path)
    ref = weakref.ref(trace)
    del trace
    gc.collect()
    assert ref() is None


def test_the_views_take_it(run: Debugger, path: Path) -> None:
    """Each view of a trace has the traits that it has of the debugger that was saved."""
    widgets = pytest.importorskip("llmviz.widgets")
    trace = llmviz.open_trace(path)
    steps = ("AttentionView", "LogitsView", "TokensView", "OutputView", "KVCacheView", "FlowView")
    for name in (*steps, "MapView", "TensorView", "TimelineView"):
        with getattr(widgets, name)(trace) as view:
            assert view.error == {}, name
    with widgets.AttentionView(trace, layer=1) as a, widgets.AttentionView(run, layer=1) as b:
        assert a.attention == b.attention and a.overview == b.overview and a.axis == b.axis
        trace.reverse_to("kq_soft_max-0")
        assert a.here == trace.n and a.layer == 1
    trace.run()
    with widgets.LogitsView(trace) as a, widgets.LogitsView(run) as b:
        assert a.top == b.top and a.top_about == b.top_about
    with widgets.KVCacheView(trace) as a, widgets.KVCacheView(run) as b:
        held = ("first", "total", "used", "fresh")
        assert [a.cells[k] for k in held] == [b.cells[k] for k in held]
        assert a.cell_pos == b.cell_pos and a.cell_text == b.cell_text
    with widgets.FlowView(trace, layer=1) as a, widgets.FlowView(run, layer=1) as b:
        assert a.flow == b.flow and a.flow_open == b.flow_open and a.flow_top == b.flow_top
    bundle = trace._repr_mimebundle_()
    assert bundle
    trace.panel.close()
    trace.close()


def test_how_each_token_was_chosen_is_told_as_the_run_tells_it(run: Debugger, path: Path) -> None:
    trace = open_trace(path)
    for k in run.tokens:
        if k.given:
            assert moment_of(trace, k.pos) is None
            continue
        live, held = moment_of(run, k.pos), moment_of(trace, k.pos)
        assert live is not None and held is not None
        assert (held.pos, held.token, held.n_vocab) == (live.pos, live.token, live.n_vocab)
        a, b = replay(live), replay(held)
        assert isinstance(b, HeldStrip) and (b.chosen, b.draw) == (a.chosen, a.draw)
        ids = b.rows(12, k.id)
        assert ids[:12] == a.rows(12)[:12]
        assert b.shares(ids).tobytes() == a.shares(ids).tobytes()
        assert b.logits(ids) == a.logits(ids)
        assert b.left == a.left
        for (p, n), (p2, n2) in zip(a.rest(ids), b.rest(ids), strict=True):
            assert n == n2 and p == pytest.approx(p2, abs=1e-5)
        for s, t in zip(a.steps, b.steps, strict=True):
            assert (t.why, t.threshold, t.index) == (s.why, s.threshold, s.index)
            assert t.sampler.name == s.sampler.name and t.sampler.off == s.sampler.off
            assert a.line(s.index) == b.line(t.index)
        ends = {x.id: x for x in a.segments(40)}
        for segment in b.segments(40):
            assert segment.end == ends[segment.id].end
            assert segment.start == pytest.approx(ends[segment.id].start, abs=1e-6)
        with pytest.raises(DebuggerError, match="only what the samplers did is recorded"):
            replay(held, {1: {"k": 3}})
    # A run tells the same of a token whose chain it does not hold any more.
    run_points = [p for p in run.points if p.stage == "ubatch"]
    assert run_points and trace.points == ()
    trace.restart()
    assert moment_of(trace) is None


def test_the_film_is_shown_where_the_trace_stands(path: Path) -> None:
    widgets = pytest.importorskip("llmviz.widgets")
    trace = open_trace(path)
    with widgets.SamplerView(trace) as view:
        assert view.strip["recorded"] and len(view.strip["frames"]) == 4
        assert view.strip["chosen"] == view.strip["taken"] == trace.tokens[-1].id
        trace.reverse_to("top_k")
        assert [f["now"] for f in view.strip["frames"]] == [False, True, False, False]
        assert view.strip["taken"] is None
        view.selected = trace.tokens[-1].pos
        assert view.strip["taken"] == trace.tokens[-1].id
        with pytest.raises(DebuggerError, match="recorded"):
            view.replay_with("top-k", k=3)
    bare = open_trace(path)
    assert bare.can_go_back and isinstance(llmviz.show.tokens(bare), widgets.TokensView)
    with pytest.raises(LlmvizError, match="holds no bytes of a file"):
        llmviz.show.gguf(bare)
    bare.goto(bare.events[40].n)
    with widgets.TokensView(bare) as view:
        assert view.n_tokens == len(bare.all_tokens) and view.n_ahead > 0, (
            "what lies ahead is known"
        )
    bare.goto(bare.furthest)
    with widgets.DebuggerPanel(bare) as panel:
        assert panel.can_back and panel.can_prev and not panel.can_restart
