"""The Python side of the views: traits, answers, slices, errors, closing, fallbacks."""

from __future__ import annotations

import builtins
import gc
import json
import re
import sys
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("anywidget")

from ipywidgets.widgets.widget import _instances

from llmviz import show
from llmviz.errors import LlmvizError
from llmviz.events import Event
from llmviz.trace import Debugger
from llmviz.trace.glossary import NODES, gloss
from llmviz.widgets import (
    AttentionView,
    BatchView,
    DebuggerPanel,
    KVCacheView,
    LoadView,
    LogitsView,
    MapView,
    OutputView,
    TensorView,
    TimelineView,
    TokensView,
)
from llmviz.widgets.modules import esm, style
from llmviz.widgets.picture import LEVELS, MINUS_INF, NAN, PLUS_INF, picture

from ..trace import toy
from .witness import Witness

VIEWS = [
    AttentionView,
    BatchView,
    DebuggerPanel,
    KVCacheView,
    LoadView,
    LogitsView,
    MapView,
    OutputView,
    TensorView,
    TimelineView,
    TokensView,
]


def at(name: str, **kwargs) -> tuple[Debugger, Witness]:
    witness = Witness()
    dbg = Debugger(witness.watch(toy.run(**kwargs)))
    dbg.break_on(name)
    dbg.run()
    return dbg, witness


def ask(view, **message):
    """Send a view what its page would send; returns the reply."""
    replies = []
    view.send = lambda content, buffers=None: replies.append(content)
    view._on_message(view, {"id": "1", **message}, [])
    return replies[-1]


@pytest.mark.parametrize("view", VIEWS)
def test_a_misspelled_argument_is_named(view):
    with pytest.raises(TypeError, match="projecter"):
        view(Debugger(toy.run()), projecter=True)
    assert view(Debugger(toy.run()), projector=True).projector


@pytest.mark.parametrize("view", VIEWS)
def test_modules_are_whole_and_stay_home(view):
    source = esm(view.view_name)
    assert not re.search(r"^\s*import\b", source, re.MULTILINE)
    assert len(re.findall(r"^export default", source, re.MULTILINE)) == 1
    assert "innerHTML" not in source and "insertAdjacentHTML" not in source
    for text in (source, style()):
        addresses = set(re.findall(r"https?://[^\s\"')]+", text))
        assert addresses <= {"http://www.w3.org/2000/svg"}
    assert set(re.findall(r"model\.(\w+)", source)) <= {
        *("get", "set", "on", "off", "save_changes", "send")
    }


def test_everything_is_drawn_from_the_event_at_which_the_run_stands():
    dbg, _ = at("kq_soft_max-1")
    panel = DebuggerPanel(dbg, view="tensor")
    event = panel.event
    assert panel.here == dbg.n and event["name"] == "kq_soft_max-1" and event["op"] == "SOFT_MAX"
    assert event["shape"] == [2, 5, 16] and event["sources"] == ["inp-1", "blk.1.weight"]
    s = event["statistics"]
    assert s["max"] == float(dbg.here.value.max()) and s["nan"] == 0 and s["count"] == 160
    assert [x["name"] for x in panel.scopes] == [x.name for x in dbg.scope_stack]
    assert panel.step == 13 and len(panel.steps) == 16
    dbg.step_into()
    assert panel.here == dbg.n and panel.event["name"] == "l_out-1"


def test_values_on_demand_are_the_engines():
    dbg, _ = at("kq_soft_max-1")
    view = TensorView(dbg, slice=[1])
    reply = ask(view, ask="values", n=dbg.n, row=2, column=1, rows=8, columns=3)["value"]
    for line, refs in zip(reply["values"], reply["refs"], strict=True):
        for text, ref in zip(line, refs, strict=True):
            index = tuple(int(i) for i in ref[len("kq_soft_max-1[") : -1].split(","))
            assert np.float32(text) == dbg.here.value[index]
    assert reply["refs"][0][0] == "kq_soft_max-1[1,2,1]" and len(reply["values"]) == 3
    assert ask(view, ask="values", n=dbg.n - 1, row=0, column=0)["value"]["values"] == []


def test_a_large_tensor_is_shown_through_a_window():
    x = np.arange(300 * 1000, dtype=np.float32).reshape(300, 1000)
    dbg = Debugger(iter([Event("node", "big", 0, 13, x)]))
    view = TensorView(dbg)
    dbg.step_into()
    w = view.window
    assert (w["rows"], w["columns"], w["n_rows"], w["n_columns"]) == (48, 160, 300, 1000)
    assert len(view.picture) == 48 * 160
    view.origin = [290, 990]
    assert (view.window["row"], view.window["column"]) == (252, 840), "the window stays inside"
    reply = ask(view, ask="values", n=0, row=299, column=999)["value"]
    assert reply["values"] == [[str(x[299, 999])]]


def test_columns_that_say_nothing_are_left_out_and_named():
    def window(x: np.ndarray) -> dict:
        dbg = Debugger(iter([Event("node", "x", 0, 13, x)]))
        view = TensorView(dbg)
        dbg.step_into()
        return view.window

    x = np.zeros((3, 256), np.float32)
    x[1, 20] = 1
    w = window(x)
    assert (w["columns"], w["n_columns"], w["rest"]) == (24, 256, "0.0")
    assert window(np.where(x, 1, -np.inf).astype(np.float32))["rest"] == "-inf"
    assert window(np.where(x, 1, np.nan).astype(np.float32))["columns"] == 24
    x[2, 200] = 1
    assert (window(x)["columns"], window(x)["rest"]) == (160, None)
    assert window(np.zeros((3, 64), np.float32))["columns"] == 64, "all alike is not cut"
    dbg = Debugger(iter([Event("node", "x", 0, 13, np.eye(4, 256))]))
    view = TensorView(dbg, origin=[0, 100])
    dbg.step_into()
    assert view.window["column"] == 96 and view.window["columns"] == 160, "they can be visited"


def test_glossary():
    assert "attention" in gloss("kq_soft_max-12", "SOFT_MAX", (9, 5, 256))[0]
    assert gloss("kq_soft_max-12", "SOFT_MAX", (9, 5, 256))[1] == ("head", "query token", "cell")
    assert "angle" in gloss("Qcur-0", "ROPE", (5, 9, 64))[0]
    assert "KV cache" in gloss("cache_k_l3 (view)", "SET_ROWS", (1, 256, 192))[0]
    assert gloss("no_such_node-1", "MUL", (2, 2)) == ("", ())
    assert all(len(axes) == rank for _, known in NODES.values() for rank, axes in known.items())


def test_pictures():
    data, scale = picture(np.array([[-2.0, 0.0, 2.0, 1.0]]))
    assert scale["signed"] and list(data) == [0, 126, LEVELS, 189]
    data, scale = picture(np.array([[np.nan, np.inf, -np.inf, 0.0, 1.0]]))
    assert list(data) == [NAN, PLUS_INF, MINUS_INF, 0, LEVELS] and not scale["signed"]
    assert list(picture(np.full((1, 3), 7.0))[0]) == [126] * 3
    assert list(picture(np.full((1, 2), np.nan))[0]) == [NAN] * 2
    rest = np.linspace(-1, 1, 1000)
    _, scale = picture(np.append(rest, 1000.0)[None, :])
    assert scale["high"] < 2 and scale["clipped"] >= 1, "one outlier does not blank the rest"


def test_attention_is_sent_as_bytes_and_equals_the_engine():
    dbg, witness = at("stop", n_predict=3)
    view = AttentionView(dbg, layer=1, head=1, query=5)
    row = np.frombuffer(view.row, "<f4")
    assert [a["pos"] for a in view.axis] == list(range(7))
    for k in range(6):
        assert row[k] == np.float32(witness.attention[1, 1, 5, k])
    assert np.isnan(row[6])
    assert len(view.attention) == 49 and view.attention[6] == NAN
    reply = ask(view, ask="weight", row=4, column=2)["value"]
    assert np.float32(reply["value"]) == np.float32(witness.attention[1, 1, 4, 2])
    assert ask(view, ask="weight", row=2, column=4)["value"]["value"] is None
    view.head = 0
    assert np.frombuffer(view.row, "<f4")[0] == np.float32(witness.attention[1, 0, 5, 0])


def test_attention_follows_the_layer_that_runs_until_one_is_chosen():
    dbg, _ = at("kq_soft_max-1")
    view = AttentionView(dbg)
    assert view.layer == 1 and view.follow
    view.layer = 0
    assert not view.follow
    dbg.step_into()
    assert view.layer == 0


def test_logits_show_raw_and_final_probability():
    dbg, witness = at("token")
    view = LogitsView(dbg)
    p = witness.p_raw()
    best = np.argsort(-witness.logits[-1])[:10]
    assert [a["id"] for a in view.top] == best.tolist()
    for a in view.top:
        assert a["p_raw"] == pytest.approx(p[a["id"]]) and a["chosen"] == (
            a["id"] == dbg.here.value
        )
        assert a["cut"] == (a["id"] not in witness.candidates[-1])
    dbg.clear_break()
    dbg.next_token()
    view.selected = 5
    assert view.top_about["pos"] == 5 and [a["id"] for a in view.top] == best.tolist()


def test_cells_and_tokens():
    dbg, _ = at("stop", n_predict=3)
    panel = DebuggerPanel(dbg, view="kv_cache")
    pos = np.frombuffer(panel.cell_pos, "<i4")
    assert pos[:7].tolist() == list(range(7)) and (pos[7:] == -1).all()
    assert np.frombuffer(panel.cell_seq, "<i4")[:7].tolist() == [0] * 7
    assert panel.cells == {"first": 0, "total": 16, "used": 7, "fresh": [6]}
    assert [k["given"] for k in panel.tokens] == [True] * 5 + [False] * 3
    assert panel.tokens[-1]["p_raw"] == dbg.tokens[-1].p_raw


def test_a_long_run_advances_in_slices_and_pause_arrives():
    dbg = Debugger(toy.run(n_predict=6))
    panel = DebuggerPanel(dbg)
    dbg.start("run")
    dbg.advance(0.0)
    assert panel.running and panel.status == "running"
    assert ask(panel, ask="pause")["running"] is False
    assert panel.status == "paused" and not dbg.running
    reply = ask(panel, ask="go", action="run")
    while reply["running"]:
        reply = ask(panel, ask="tick")
    assert panel.status == "end" and panel.status_text == "finished: n_predict"


def test_a_click_that_cannot_be_done_says_so_and_loses_nothing():
    dbg, _ = at("token")
    panel = DebuggerPanel(dbg)
    n = dbg.n
    reply = ask(panel, ask="break", where="step 99")
    assert "no step 99" in reply["error"] and "no step 99" in panel.error["text"]
    assert panel.error["hint"] and dbg.n == n
    ask(panel, ask="break", where="step 13")
    assert panel.error == {} and panel.breakpoints[-1]["label"] == "step 13"
    ask(panel, ask="toggle-break", which=panel.breakpoints[-1]["id"])
    assert panel.breakpoints[-1]["enabled"] is False
    ask(panel, ask="unbreak", which=panel.breakpoints[-1]["id"])
    assert [b["label"] for b in panel.breakpoints] == ["token"]
    view = TensorView(dbg)
    view._on_message(view, "nonsense", [])
    view._on_message(view, {"ask": "no such question"}, [])


def test_an_engine_error_is_shown_with_what_to_do():
    panel = DebuggerPanel(Debugger(toy.run(fail_at="l_out-1")))
    reply = ask(panel, ask="go", action="run")
    while reply["running"]:
        reply = ask(panel, ask="tick")
    assert panel.status == "error" and "on purpose" in panel.error["text"]
    assert "Restart" in panel.error["hint"] and panel.scopes[-1]["name"] == "layer-1"
    assert len(panel.tokens) == 5, "what was computed is still shown"


def test_a_hundred_views_leave_nothing_behind():
    dbg, _ = at("kq_soft_max-1")
    before = len(_instances)
    for _ in range(100):
        with DebuggerPanel(dbg):
            pass
    gc.collect()
    assert len(_instances) == before and dbg._listeners == []


def test_a_closed_view_hears_nothing_and_is_collected():
    dbg, _ = at("kq_soft_max-1")
    view = TensorView(dbg)
    shown = view.here
    view.close()
    view.close()
    dbg.step_into()
    assert view.here == shown
    ref = weakref.ref(view)
    del view
    gc.collect()
    assert ref() is None


def test_what_is_not_shown_is_not_sent():
    dbg, _ = at("kq_soft_max-1")
    panel = DebuggerPanel(dbg)
    state = panel.get_state()
    assert "dbg" not in state
    sizes = {k: len(v) if isinstance(v, bytes) else len(json.dumps(v)) for k, v in state.items()}
    del sizes["_esm"], sizes["_css"], sizes["steps"]
    assert sum(sizes.values()) < 40_000, sizes
    assert isinstance(state["picture"], bytes) and isinstance(state["attention"], bytes)


def long_run(n: int = 512, n_layer: int = 4) -> Debugger:
    """A prompt of n tokens through a few layers of nine heads, as one ubatch."""
    rng = np.random.default_rng(1)

    def events():
        yield Event("data", "tokens", 0, 9, list(range(n)))
        yield Event("data", "inp_pos", 0, 13, np.arange(n, dtype=np.int32))
        for il in range(n_layer):
            p = np.tril(rng.random((9, n, n), dtype=np.float32))
            yield Event("node", f"kq_soft_max-{il}", 0, 13, p / p.sum(-1, keepdims=True))

    dbg = Debugger(events(), budget=32 << 20)
    dbg.recorder.keep_layer(2)
    dbg.run()
    return dbg


def test_512_tokens_of_attention_stay_within_the_budget_and_off_the_wire():
    dbg = long_run()
    recorder = dbg.recorder
    assert 2 in recorder.layers() and recorder.dropped >= 1 and recorder.used <= 32 << 20
    view = AttentionView(dbg, layer=2)
    state = view.get_state()
    sizes = [len(v) if isinstance(v, bytes) else len(json.dumps(v)) for v in state.values()]
    assert sum(sizes) < 200_000, "the whole view, its module included"
    assert view.attention_about["first"] == 512 - 24 and view.attention_about["total"] == 512
    view.layer = 0
    assert view.attention == b"" and view.attention_about["dropped"] >= 1


def test_in_colab_the_widget_manager_is_switched_on_once(monkeypatch):
    from anywidget._util import enable_custom_widget_manager_once

    calls = []
    output = SimpleNamespace(enable_custom_widget_manager=lambda: calls.append(1))
    monkeypatch.setitem(sys.modules, "google.colab.output", output)
    enable_custom_widget_manager_once.cache_clear()
    for _ in range(3):
        TensorView(Debugger(toy.run())).close()
    assert calls == [1]


def hostile() -> Debugger:
    evil = '<script>alert(1)</script>"\u202e' + "x" * 1_000_000
    vocab = SimpleNamespace(token_to_piece=lambda token, special=False: evil.encode())
    dbg = Debugger(toy.run())
    dbg.model = SimpleNamespace(vocab=vocab, hparams=None)
    dbg.recorder.piece_of = lambda token: evil.encode()
    dbg.next_token()
    return dbg


def test_fallbacks_are_static_small_and_safe():
    dbg = hostile()
    panel = DebuggerPanel(dbg)
    data = panel._repr_mimebundle_()
    data = data[0] if isinstance(data, tuple) else data
    assert "application/vnd.jupyter.widget-view+json" in data
    page = data["text/html"]
    assert "<script" not in page and "&lt;script" in page and len(page) < 20_000
    assert data["text/plain"] == DebuggerPanel(dbg).fallback_text(), "the same state, the same text"
    assert "0x" not in data["text/plain"] and "step" in data["text/plain"]
    state = panel.get_state()
    assert max(len(json.dumps(v, default=len)) for k, v in state.items() if k[0] != "_") < 40_000


def test_show_gives_one_panel_for_one_debugger():
    dbg = Debugger(toy.run())
    first = show.panel(dbg)
    assert show.panel(dbg, projector=True) is first and first.projector
    first.close()
    second = show.panel(dbg)
    assert second is not first and not second.closed
    bundle = dbg._repr_mimebundle_()
    bundle = bundle[0] if isinstance(bundle, tuple) else bundle
    model_id = bundle["application/vnd.jupyter.widget-view+json"]["model_id"]
    assert model_id == second.model_id
    for name, view in [
        ("attention", AttentionView),
        ("kv_cache", KVCacheView),
        ("logits", LogitsView),
        ("map", MapView),
        ("tensor", TensorView),
        ("tokens", TokensView),
    ]:
        assert isinstance(getattr(show, name)(dbg), view)


def test_without_widgets_a_table_is_shown_and_the_error_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def without(name, globals=None, locals=None, fromlist=(), level=0):
        if name == "llmviz.widgets" or (name == "llmviz" and "widgets" in (fromlist or ())):
            raise ImportError("No module named 'anywidget'")
        return real(name, globals, locals, fromlist, level)

    monkeypatch.setattr(builtins, "__import__", without)
    dbg, _ = at("token")
    with pytest.raises(LlmvizError, match="pip install"):
        show.panel(dbg)
    data = dbg._repr_mimebundle_()
    assert "<table>" in data["text/html"] and "pip install" in data["text/plain"]
