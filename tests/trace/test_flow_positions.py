"""The flow of a model whose graph has no input for positions: ALiBi needs none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiny_archs import write_arch

import llmviz
from llmviz.sampling import Chain, Greedy
from llmviz.trace import Debugger
from llmviz.trace.flow import EARLIER, NOW, Flow

PROMPT = [1, 20, 30, 40, 50]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("alibi") / "x.gguf"
    keys = {"embedding_length": 96, "attention.head_count": 6, "attention.head_count_kv": 6}
    return llmviz.load(write_arch(path, "bloom", optional=("output.weight",), keys=keys))


def debug(model) -> Debugger:
    return Debugger(model, PROMPT, Chain([Greedy()]), n_predict=2, n_ctx=64, n_ubatch=4)


def states(flow: Flow, name: str) -> list[int]:
    column = next(c for c in flow.columns if c.id == name)
    return flow.strip(column, 8).state.tolist()


def test_rows_and_strips_of_the_passes(model):
    dbg = debug(model)
    flow = Flow(dbg)
    flow.update()
    dbg.next_token()
    flow.update()
    assert flow.pass_ == 1 and flow.missing() == []
    assert dbg.recorder.value("inp_pos") is None, "this model has no such input"
    first = len(dbg.tokens) - 2  # the last of the prompt, alone in the second ubatch
    assert [r.state for r in flow.rows] == ["cached"] * first + ["now", "next"]
    assert states(flow, "Kcur-0") == [EARLIER] * first + [NOW, 0]
    column = next(c for c in flow.columns if c.id == "kq-0")
    values, ref, pass_ = flow.array(column, first)
    assert pass_ == 1 and ref.startswith("kq-0[0,0,")
    np.testing.assert_array_equal(values, dbg.recorder.value("kq-0").array[0, 0])
    dbg.next_token()
    flow.update()
    assert flow.pass_ == 2 and states(flow, "l_out-1")[-2] == NOW
    dbg.goto(dbg.points[0].clock.n + 20)  # back in the first ubatch
    flow.update()
    assert flow.pass_ == 0 and [r.state for r in flow.rows][:4] == ["now"] * 4
    flow.close()


def test_what_nobody_asked_for_is_computed_again(model):
    dbg = debug(model)
    dbg.next_token()
    flow = Flow(dbg, 1)
    flow.update()
    assert flow.missing() == ["attn_inp_kq_mask"]
    flow.fetch()
    flow.update()
    assert flow.missing() == [] and states(flow, "Kcur-1")[-2] == NOW
    flow.close()


def test_in_the_view_and_in_a_saved_run(model, tmp_path: Path):
    widgets = pytest.importorskip("llmviz.widgets")
    dbg = debug(model)
    dbg.keep_all()
    view = widgets.FlowView(dbg)
    dbg.next_token()
    assert view.flow_top and view.flow_at["n_new"] == 1 and not view.flow_at["why"]
    dbg.save(tmp_path / "run")
    trace = llmviz.open_trace(tmp_path / "run")
    trace.goto(dbg.n)
    again = widgets.FlowView(trace)
    assert again.flow_at["n_new"] == 1 and not again.flow_at["why"]
    assert again.flow_top == view.flow_top
    assert again.flow_weights == view.flow_weights != b""
    again.close()
    view.close()
