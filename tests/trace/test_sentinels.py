"""Sentinels find what is out of order, where it is, and nothing in an ordinary run."""

from __future__ import annotations

import math
import time
from types import SimpleNamespace

import numpy as np
import pytest

import llmviz
from llmviz.errors import LlmvizError
from llmviz.events import Event
from llmviz.sampling import Chain, Greedy
from llmviz.trace import Debugger, DebuggerError
from llmviz.trace.sentinel_norms import FEWEST, KEPT, NormHistory

from .toy import cells

ONE = [1, 262, 270, 281]


@pytest.fixture(scope="module")
def model(tiny_model):
    return llmviz.load(tiny_model(n_layer=3))


def debug(model, **options) -> Debugger:
    options = {"n_predict": 14, "n_ctx": 256, "want": "l_out-*", **options}
    return Debugger(model, ONE, Chain([Greedy()]), **options)


def process_ubatch(dbg, index):
    return [r.n for r in dbg.events if r.name == "process_ubatch" and r.kind == "enter"][index]


def found(dbg):
    return [(f.kind, f.name, f.pass_) for f in dbg.sentinels.findings]


def test_an_ordinary_run_has_no_findings(model):
    dbg = debug(model, want="*")
    dbg.run_to_end()
    assert dbg.sentinels.findings == [] and "0 findings" in repr(dbg.sentinels)


# -- NaN and infinity ----------------------------------------------------------------------------


def poison(dbg, name="ffn_out-1", value=math.nan, heal=True):
    """Put a broken number into a node from here on; mend the last layer, so that it goes on."""

    def put(x, tensor):
        x[-1, 3] = value
        return x

    if heal:
        dbg.zero("l_out-2")
    return dbg.intervene(name, put)


def test_nan_is_found_in_logits_and_where_it_began(model):
    dbg = debug(model, want=None)
    dbg.next_token()
    edit = poison(dbg, heal=False)
    with pytest.raises(LlmvizError, match="look for the first node"):
        dbg.next_token()
    (f,) = dbg.sentinels.findings  # nobody watches a node: the logits show it
    assert (f.kind, f.name, f.pass_) == ("nan", "logits", 1) and "NaN of" in f.text
    before = dbg.n, dbg.recorder.logits.tobytes(), dbg.error
    origin = dbg.sentinels.origin(f)
    assert (origin.name, origin.layer) == ("ffn_out-1", 1) and "[0, 3]" in origin.text
    assert (dbg.n, dbg.recorder.logits.tobytes(), dbg.error) == before and dbg.finished
    dbg.goto(origin.n)
    assert dbg.here.name == "ffn_out-1" and np.isnan(dbg.here.value[0, 3])
    dbg.undo_edit(edit)
    dbg.next_token()
    assert dbg.sentinels.findings == []  # in the run as it is now nothing was found


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_the_first_watched_node_of_a_pass_is_listed_and_the_rest_counted(model, value):
    dbg = debug(model, want=["l_out-*", "Qcur-2"])
    dbg.next_token()
    poison(dbg, value=value)
    dbg.next_token()
    (f,) = dbg.sentinels.findings
    assert (f.kind, f.name, f.layer) == ("nan", "l_out-1", 1) and f.more >= 1
    assert dbg.sentinels.origin(f).name == "ffn_out-1"
    dbg.next_token()
    assert found(dbg) == [("nan", "l_out-1", 1), ("nan", "l_out-1", 2)]


def test_a_forbidden_token_is_no_accident(model):
    dbg = debug(model)
    dbg.edit_logit(5, -math.inf)
    dbg.next_token()
    assert dbg.sentinels.findings == []


# -- norms ---------------------------------------------------------------------------------------


def test_a_norm_out_of_line_is_found(model):
    dbg = debug(model)
    while dbg.recorder.passes < FEWEST + 3:
        dbg.next_token()
    dbg.scale("l_out-1", 500.0)
    dbg.next_token()
    (f,) = [x for x in dbg.sentinels.findings if x.kind == "norm"]
    assert (f.name, f.layer) == ("l_out-1", 1) and f.more == 1  # and the next layer, which reads it
    times = float(f.text.split(" is ")[1].split(" ")[0])
    assert 150 < times < 1500
    rms = float(np.sqrt(np.square(dbg.peek("l_out-1").astype(float)).mean()))
    assert f"root mean square {rms:.3g}" in f.text or f"root mean square {rms:,.0f}" in f.text


def test_the_history_needs_few_samples_and_forgets():
    h = NormHistory()
    assert h.follows("l_out-12") and h.follows("result_norm") and not h.follows("kq-1")
    for n in range(FEWEST):
        assert h.judge("l_out-0", n, 1.0 + 0.01 * n, 1) is None
    assert h.judge("l_out-0", 50, 1e6, 4) is None  # a prompt is not judged, nor remembered
    assert h.judge("l_out-0", 51, 1.5, 1) is None
    assert h.judge("l_out-0", 52, 100.0, 1) == pytest.approx(1.03, rel=0.05)
    assert h.judge("l_out-0", 53, 0.001, 1) == pytest.approx(1.03, rel=0.05)
    assert h.judge("l_out-0", 54, 0.0, 1) is None and h.judge("l_out-0", 55, math.nan, 1) is None
    assert h.judge("l_out-0", 3, 100.0, 1) is None  # gone back: only what came before counts
    h.forget(2)
    assert h.judge("l_out-0", 60, 100.0, 1) is None
    for n in range(3 * KEPT):
        h.judge("l_out-1", n, 1.0, 1)
    assert len(h._held["l_out-1"]) == KEPT


def test_a_layer_that_always_swings_is_not_flagged():
    h = NormHistory()
    rng = np.random.default_rng(0)
    sizes = np.exp(rng.standard_normal(40) * 3)  # spread over several powers of ten
    flagged = [h.judge("l_out-0", n, float(x), 1) for n, x in enumerate(sizes)]
    assert flagged == [None] * 40


# -- attention -----------------------------------------------------------------------------------


def attention_run(rows):
    """One pass whose only node is an attention matrix of one query over 20 tokens."""
    n = 15
    yield Event("enter", "process_ubatch", 0, 13)
    yield Event("data", "kv_cells", 1, 13, cells(list(range(n))))
    yield Event("data", "inp_pos", 1, 13, np.array([n - 1], np.int32))
    p = np.array(rows, np.float32)[:, None, :]
    about = SimpleNamespace(name="kq_soft_max-2", op="SOFT_MAX", ne=p.shape[::-1], src=[], il=2)
    yield Event("node", "kq_soft_max-2", 1, 13, p, about)
    yield Event("exit", "process_ubatch", 0, 13)


def rows(*where, share=0.995):
    out = np.full((len(where), 16), (1 - share) / 14)
    out[:, 15] = 0
    for row, k in zip(out, where, strict=True):
        row[k] = share
    return out


@pytest.mark.parametrize(
    ("p", "finds"),
    [
        (rows(7, 7, 7, 7), True),
        (rows(7, 7, 7, 3), True),
        (rows(7, 7, 3, 3), False),  # heads that look at different things
        (rows(0, 0, 0, 0), False),  # an attention sink is normal
        (rows(14, 14, 14, 14), False),  # a token that looks at itself
        (rows(7, 7, 7, 7, share=0.9), False),
        (rows(7), False),  # one head is no many
    ],
)
def test_attention_on_one_token(p, finds):
    dbg = Debugger(attention_run(p))
    dbg.run()
    assert found(dbg) == ([("attention", "kq_soft_max-2", 0)] if finds else [])
    if finds:
        (f,) = dbg.sentinels.findings
        assert f.layer == 2 and "position 7" in f.text and " of 4 heads" in f.text


# -- soft caps -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "size", "finds"), [
    ("SCALE", 5.0, True), ("SCALE", 0.3, False), ("MUL_MAT", 5.0, False),
])  # fmt: skip
def test_a_saturated_soft_cap(source, size, finds):
    x = np.tanh(np.linspace(-size, size, 64, dtype=np.float32)).reshape(4, 16)
    about = SimpleNamespace(
        name="kq_tanh-0", op="TANH", ne=(16, 4), src=[SimpleNamespace(op=source)], il=0
    )
    dbg = Debugger(iter([Event("node", "kq_tanh-0", 0, 13, x, about)]))
    dbg.step_into()
    assert [k for k, *_ in found(dbg)] == (["softcap"] if finds else [])


# -- switching, stopping -------------------------------------------------------------------------


def test_each_is_switched_on_and_off(model):
    dbg = debug(model)
    dbg.sentinels.off("nan")
    dbg.next_token()
    poison(dbg)
    dbg.next_token()
    assert dbg.sentinels.findings == [] and "nan" not in repr(dbg.sentinels)
    dbg.sentinels.on()
    dbg.next_token()
    assert len(dbg.sentinels.findings) == 1
    dbg.sentinels.clear()
    assert dbg.sentinels.findings == []
    assert [s.kind for s in dbg.sentinels] == ["nan", "norm", "attention", "softcap"]
    assert all(s.title and s.about for s in dbg.sentinels) and len(dbg.sentinels) == 4
    assert "first token this is normal" in dbg.sentinels["attention"].about
    with pytest.raises(DebuggerError, match="there is no sentinel 'nam'"):
        dbg.sentinels["nam"]
    with pytest.raises(DebuggerError, match="only NaN"):
        dbg.sentinels.origin(SimpleNamespace(kind="norm"))


def test_a_run_stops_where_one_finds_something(model):
    dbg = debug(model)
    dbg.next_token()
    poison(dbg)
    dbg.sentinels.stop_on("nan")
    dbg.sentinels.stop_on("norm")
    assert len(dbg.breakpoints) == 1 and dbg.breakpoints[0].label == "a sentinel finds something"
    dbg.run()
    assert dbg.stopped_by == "breakpoint" and dbg.here.name == "l_out-1"
    dbg.run()  # on it goes, to the next pass that has one
    assert dbg.here.name == "l_out-1" and dbg.sentinels.findings[-1].n == dbg.n
    dbg.sentinels.stop_on("nan", False)
    assert len(dbg.breakpoints) == 1
    dbg.sentinels.stop_on("norm", False)
    assert dbg.breakpoints == []
    dbg.run()
    assert dbg.finished


def test_branches_have_their_own_findings(model):
    dbg = debug(model)
    for _ in range(4):
        dbg.next_token()
    dbg.goto(process_ubatch(dbg, 2))
    poison(dbg)
    dbg.next_token()
    assert found(dbg) == [("nan", "l_out-1", 2)]
    dbg.switch("main")
    assert dbg.sentinels.findings == []
    dbg.restart()
    dbg.run_to_end()
    assert dbg.sentinels.findings == []


def test_watching_costs_next_to_nothing(model, figures):
    dbg = debug(model, want="*", n_predict=4)
    spent, see = [0.0], dbg.sentinels.see

    def timed(event, n):
        start = time.perf_counter()
        see(event, n)
        spent[0] += time.perf_counter() - start

    dbg._onlooker = timed
    start = time.perf_counter()
    dbg.run_to_end()
    share = spent[0] / (time.perf_counter() - start)
    figures(f"sentinels: {share:.1%} of a fully watched run of a tiny model")
    assert share < 0.25


def test_smollm2_is_quiet_on_ordinary_text(smollm2_path):
    dbg = Debugger(llmviz.load(smollm2_path), "Once upon a time,\n", n_predict=8, want="l_out-*")
    dbg.run_to_end()
    assert dbg.sentinels.findings == []
