"""The load view: the cache's formula moves with the slider and is what a context allocates."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("anywidget")

import llmviz
from llmviz import show
from llmviz.errors import LlmvizError
from llmviz.trace import Debugger
from llmviz.widgets import DebuggerPanel, LoadView

from . import host
from .test_page import CONTRAST

SHOTS = os.environ.get("LLMVIZ_SHOTS", "")


@pytest.fixture(scope="module")
def path(tiny_model):
    return tiny_model(n_layer=3, n_head=4, n_head_kv=2)


@pytest.fixture(scope="module")
def run(path):
    """A run that stands before the prompt."""
    with Debugger(path, [1, 2, 3, 4], n_ctx=300) as dbg:
        dbg.break_on("prompt")
        dbg.run()
        yield dbg


def test_the_sliders_begin_where_the_context_is(run):
    with LoadView(run) as view:
        assert (view.n_ctx, view.n_seq_max, view.type_k) == (300, 1, "f16")
        assert view.kv["nbytes"] == view.kv["own"]["nbytes"] == run.ctx.memory.total_size()
        view.n_ctx, view.type_v = 4000, "f32"
        want = run.model.context(n_ctx=4000, type_v="f32").memory.total_size()
        assert view.kv["nbytes"] == want == view.size().nbytes
        assert view.kv["own"]["nbytes"] == run.ctx.memory.total_size()
        view.reset()
        assert view.n_ctx == 300 and view.kv["nbytes"] == run.ctx.memory.total_size()


def test_it_follows_a_run_and_shows_only_what_was_read(path):
    with Debugger(path, [1, 2, 3], n_ctx=64) as dbg, LoadView(dbg) as view:
        assert {s["state"] for s in view.steps} == {"later"} and not view.kv["known"]
        dbg.break_on("n_layer")
        dbg.run()
        names = [h["name"] for h in view.hparams]
        assert (
            "n_vocab" not in names
            and names[-1] == "n_layer"
            and len(names) < view.n_hparams
            and view.here == dbg.n
        )
        assert view.steps[3]["state"] == "now" and not view.kv["known"]
        dbg.run_to_end()
        assert len(view.hparams) == view.n_hparams and view.kv["known"]
        assert [s["seconds"] for s in view.steps] == [dbg.seconds[n] for n in range(1, 8)]
        assert view.weights["loaded"] and view.weights["compute"] > 0
        drawn = view.rev
        dbg.goto(dbg.n - 1)
        assert view.rev == drawn, "nothing of it changes after step 7"
        dbg.restart()
        dbg.step_into()
        assert view.steps[6]["state"] == "later" and view.hparams == []


def test_what_it_is_made_of(path):
    model = llmviz.load(path)
    for source in (path, Path(path), model, model.context(n_ctx=256)):
        view = show.load(source)
        assert view.kv["known"] and view.fallback_text().startswith("llmviz LoadView")
        assert "<table>" in view.fallback_html()
        view.close()
    for wrong in (3, None):
        with pytest.raises(LlmvizError, match="a path, a model"):
            LoadView(wrong)
    with pytest.raises(TypeError, match="nctx"):
        LoadView(path, nctx=3)
    view = LoadView(path, n_seq_max=999)
    assert "n_seq_max" in view.kv["reason"] and view.kv["terms"] == []


def test_figures(run, tmp_path):
    view = LoadView(run, n_ctx=1000)
    view.figure(theme="dark").savefig(tmp_path / "page.svg")
    text = (tmp_path / "page.svg").read_text()
    assert "1,024 cells" in text and "bar-6" in text


# -- the page ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    with host.chromium() as running:
        yield running


@pytest.fixture
def opened(browser):
    pages = []

    def open_view(view, scheme="light", width=1240):
        context = browser.new_context(
            viewport={"width": width + 40, "height": 1100}, color_scheme=scheme
        )
        page = host.Hosted(context.new_page(), view, width=width)
        pages.append((context, page))
        return page

    yield open_view
    for context, page in pages:
        context.close()
        assert page.problems == []


def number(page, ref: str) -> float:
    return float(page.get_attribute(f"[data-ref='{ref}']", "data-value"))


@pytest.mark.browser
def test_the_slider_moves_formula_and_bar(opened, run):
    view = LoadView(run)
    h = opened(view)
    page = h.page
    assert number(page, "kv.nbytes") == run.ctx.memory.total_size()
    width = page.eval_on_selector("[data-part='k']", "e => e.getBoundingClientRect().width")
    page.focus("[data-load='n_ctx-slider']")
    for _ in range(3):
        page.keyboard.press("PageUp")
    page.wait_for_function("() => window.model.get('n_ctx') > 300")
    shown = "+document.querySelector(`[data-ref='kv.nbytes']`).dataset.value"
    page.wait_for_function(f"n => {shown} > n", arg=run.ctx.memory.total_size())
    assert view.n_ctx > 300 and number(page, "kv.nbytes") == view.size().nbytes
    shown = [number(page, f"kv.terms[0].{x}") for x in ("n_layer", "n_cells", "width", "type_size")]
    assert shown[0] * shown[1] * shown[2] * shown[3] == number(page, "kv.terms[0].nbytes")
    assert page.eval_on_selector("[data-part='k']", "e => e.getBoundingClientRect().width") > width
    page.select_option("[data-load='type_k']", "f32")
    page.wait_for_function("() => window.model.get('kv').terms[0].type_size === 4")
    page.click("[data-action='load-reset']")
    page.wait_for_selector(".lv-load-own")
    assert number(page, "memory.total_size") == run.ctx.memory.total_size()
    # every hyperparameter stands with its key
    shown = {
        r.get_attribute("data-hparam"): r.get_attribute("data-key") or ""
        for r in page.locator("[data-hparam]").all()
    }
    assert shown == {h["name"]: h["key"] for h in view.hparams}
    for s in view.steps:
        assert number(page, f"seconds[{s['number']}]") == s["seconds"]
    page.focus("[data-place='input']")
    page.keyboard.press("ArrowRight")
    assert "layer 0" in page.inner_text(".lv-load .lv-readout")
    assert "layer 0" in page.inner_text("[aria-live='polite']")
    for scheme in h.themes():
        found = page.evaluate(CONTRAST)
        assert found["bad"] == [] and found["small"] == [], scheme
        if SHOTS:
            page.locator(".llmviz").screenshot(path=f"{SHOTS}/load-{scheme}.png")
    view.projector = True
    h.sync()
    page.wait_for_selector(".lv-projector")
    assert page.evaluate(CONTRAST)["smallest"] >= 18
    view.close()


@pytest.mark.browser
def test_docked_it_opens_at_the_steps_that_load(opened, path):
    with Debugger(path, "hello", n_ctx=64) as dbg:
        panel = DebuggerPanel(dbg)
        h = opened(panel, width=1400)
        seen = []
        for n in range(1, 17):
            while not dbg.finished and (dbg.here is None or dbg.here.step < n):
                dbg.step_over()
            if dbg.here.step == n:
                seen.append((n, panel.view))
        views = dict(seen)
        assert {views[n] for n in (1, 3, 4, 5, 6, 7)} == {"load"}
        assert views[2] == "gguf" and views[9] == "tokenizer"
        panel.view = "load"
        h.sync()
        h.settle()
        assert h.page.is_visible("[data-panel='load'] .lv-load-line")
        h.page.fill("[data-panel='load'] [data-load='n_ctx']", "5000")
        h.page.keyboard.press("Tab")
        h.page.wait_for_function("() => window.model.get('load_kv').n_ctx === 5120")
        assert panel.load_n_ctx == 5000 and panel.part("load").n_ctx == 5000
        h.page.wait_for_selector("[data-load='n_ctx-slider']")
        panel.load_n_ctx = 256
        assert panel.load_kv["nbytes"] == panel.part("load").size().nbytes
        (term,) = panel.figure("load").findobj(lambda a: a.get_gid() == "term-0")
        assert "256 cells" in term.get_text()
        assert panel.figure("tokens").findobj(lambda a: a.get_gid() == "term-0") == []
        panel.close()


@pytest.fixture(scope="module")
def placed(tiny_model):
    """A context whose layers lie on the host and on two simulated devices."""
    cards = [llmviz.SimulatedDevice(2**21, "GPU0"), llmviz.SimulatedDevice(2**20, "GPU1")]
    model = llmviz.load(tiny_model(n_layer=9, tied=True), devices=cards, n_gpu_layers=6)
    return model.context(n_ctx=512, n_ubatch=16)


def test_every_device_shows_what_it_holds(placed):
    with LoadView(placed) as view:
        assert [m["device"] for m in view.memory] == ["GPU0 (simulated)", "GPU1 (simulated)", "CPU"]
        for m, use in zip(view.memory, placed.memory_breakdown(), strict=True):
            assert (m["weights"], m["kv"], m["compute"]) == (use.weights, use.kv, use.compute)
            assert m["simulated"] == ("(simulated)" in m["device"])
        assert {p["what"]: p["device"] for p in view.places} == placed.model.placement.by_layer()
        assert "GPU1 (simulated): weights" in view.fallback_text()
    with LoadView(placed.model) as view:  # before there is a context
        assert [m["kv"] for m in view.memory] == [0, 0] and view.memory[1]["weights"] > 0


@pytest.mark.browser
def test_devices_on_a_page(placed, opened):
    view = LoadView(placed)
    h = opened(view)
    rows = h.page.locator(".lv-load-device")
    assert rows.count() == 3
    for i, m in enumerate(view.memory):
        row = rows.filter(has_text=m["device"])
        shown = {
            e.get_attribute("data-ref"): int(e.get_attribute("data-value"))
            for e in row.locator(".lv-load-held [data-ref]").all()
        }
        assert shown == {f"memory[{i}].{k}": m[k] for k in ("weights", "kv", "compute") if m[k]}
    for scheme in h.themes():
        found = h.page.evaluate(CONTRAST)
        assert found["bad"] == [] and found["small"] == [], scheme
        if SHOTS:
            h.page.locator(".llmviz").screenshot(path=f"{SHOTS}/load-devices-{scheme}.png")
    view.close()
