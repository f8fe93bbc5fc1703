"""The ES modules in Chromium, without Jupyter, over a hand-written run."""

from __future__ import annotations

import math
import re
import time

import numpy as np
import pytest

pytest.importorskip("anywidget")

from llmviz.trace import Debugger
from llmviz.trace.glossary import WORDS
from llmviz.widgets import (
    AttentionView,
    DebuggerPanel,
    KVCacheView,
    LogitsView,
    OutputView,
    TensorView,
    TimelineView,
)

from ..trace import toy
from . import host
from .test_views import hostile
from .witness import Witness

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser():
    with host.chromium() as running:
        yield running


@pytest.fixture
def opened(browser):
    """Opens views in pages of their own; no page may log an error."""
    pages = []

    def open_view(view, scheme="light", width=1240, **options):
        context = browser.new_context(
            viewport={"width": width + 40, "height": 1000}, color_scheme=scheme, **options
        )
        page = host.Hosted(context.new_page(), view, width=width)
        pages.append((context, page))
        return page

    yield open_view
    for context, page in pages:
        context.close()
        assert page.problems == []


def panel(**kwargs) -> tuple[DebuggerPanel, Witness]:
    witness = Witness()
    return DebuggerPanel(Debugger(witness.watch(toy.run(**kwargs)))), witness


def shown_numbers(page) -> list[tuple[str, str]]:
    """Every number on screen that names its source, with the full-precision value it carries."""
    return page.evaluate(
        "[...document.querySelectorAll('[data-value]')].map(e => [e.dataset.ref, e.dataset.value])"
    )


def check_numbers(page, witness: Witness, here) -> int:
    """Hold every shown number against the witness; returns how many were covered."""
    checked = 0
    for ref, value in shown_numbers(page):
        truth = witness.truth(ref, here)
        if truth is None:
            continue
        got = float(value)
        single = np.float32(got) == np.float32(truth)
        assert single or math.isclose(got, truth, rel_tol=1e-12, abs_tol=1e-15), (ref, value, truth)
        checked += 1
    return checked


def show(page, tab: str) -> None:
    """Open a tab of the panel and wait until it is drawn."""
    page.click(f"[data-tab='{tab}']")
    page.wait_for_selector(f"[data-panel='{tab}']:visible")
    page.wait_for_function("v => window.model.get('view') === v", arg=tab)
    page.wait_for_timeout(60)


def test_stepping_by_buttons_and_keys_shows_the_engines_numbers(opened):
    view, witness = panel()
    h = opened(view)
    page, dbg = h.page, view.dbg
    assert page.get_attribute(".llmviz", "data-view") == "panel"
    h.click("into")
    assert dbg.here.name == "tokenize" and page.inner_text(".lv-event-name") == "tokenize"
    h.click("over")
    assert dbg.here.kind == "exit" and dbg.here.name == "tokenize"
    page.focus("[data-action='into']")
    for key, name in [
        *(("F11", "decode"), ("F11", "process_ubatch"), ("F11", "kv_cells"), ("F10", "inp_pos")),
        *(("F10", "graph_compute"), ("F11", "layer-0"), ("F11", "attn_norm-0")),
        *(("F10", "kq_soft_max-0"), ("Shift+F11", "layer-0"), ("F10", "layer-1")),
        *(("F11", "attn_norm-1"), ("F11", "kq_soft_max-1")),
    ]:
        before = page.get_attribute(".llmviz", "data-draws")
        page.keyboard.press(key)
        page.wait_for_function(f"document.querySelector('.llmviz').dataset.draws != {before}")
        h.settle()
        assert dbg.here.name == name and page.inner_text(".lv-event-name") == name, key
        assert page.get_attribute(".llmviz", "data-here") == str(dbg.n)
    assert page.inner_text("[data-step][aria-current=step] .lv-step-title")
    assert page.get_attribute("[data-step][aria-current=step]", "data-step") == "13"
    word = page.locator(".lv-explain abbr", has_text="embeddings")
    assert word.get_attribute("title") == WORDS["embedding"]
    scopes = page.eval_on_selector_all("[data-scope]", "l => l.map(e => e.dataset.scope)")
    assert scopes == [s.name for s in dbg.scope_stack]
    show(page, "tensor")
    page.focus(".lv-now .lv-heat")
    page.wait_for_selector(".lv-numbers [data-value]", state="attached")
    assert check_numbers(page, witness, dbg.here) >= 40
    h.click("next-token")
    assert dbg.here.name == "token"
    show(page, "logits")
    assert check_numbers(page, witness, dbg.here) >= 20
    chips = page.eval_on_selector_all("button[data-token-id]", "l => l.map(e => e.dataset.tokenId)")
    assert chips[: len(dbg.tokens)] == [str(t.id) for t in dbg.tokens]


def test_the_value_under_the_pointer_and_under_the_keys(opened):
    view, _ = panel()
    view.dbg.break_on("attn_norm-1")
    view.dbg.run()
    h = opened(view)
    page, value = h.page, view.dbg.here.value
    box = page.locator(".lv-now .lv-heat canvas").bounding_box()
    cell = (box["width"] / value.shape[1], box["height"] / value.shape[0])
    page.mouse.move(box["x"] + 3.5 * cell[0], box["y"] + 2.5 * cell[1])
    page.wait_for_selector(".lv-now .lv-readout [data-ref='attn_norm-1[2,3]']")
    shown = page.get_attribute(".lv-now .lv-readout [data-value]", "data-value")
    assert np.float32(shown) == value[2, 3]
    page.focus(".lv-now .lv-heat")
    for key, ref in [
        ("ArrowDown", "[3,3]"),
        ("End", "[3,7]"),
        ("Home", "[3,0]"),
        ("PageUp", "[0,0]"),
    ]:
        page.keyboard.press(key)
        page.wait_for_selector(f".lv-now .lv-readout [data-ref='attn_norm-1{ref}']")
    assert "attn_norm-1[0,0]" in page.inner_text("[aria-live=polite]")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement === document.body")


def test_the_slice_of_a_3d_tensor_is_chosen(opened):
    view, _ = panel()
    view.dbg.break_on("kq_soft_max-0")
    view.dbg.run()
    view.view = "tensor"
    h = opened(view)
    h.page.fill(".lv-lead input", "1")
    h.page.keyboard.press("Tab")
    h.page.wait_for_function("window.model.get('window').index[0] === 1")
    h.page.focus(".lv-now .lv-heat")
    h.page.wait_for_selector(".lv-now .lv-readout [data-ref='kq_soft_max-0[1,0,0]']")
    shown = h.page.get_attribute(".lv-now .lv-readout [data-value]", "data-value")
    assert np.float32(shown) == view.dbg.here.value[1, 0, 0]


def test_run_pauses_and_runs_to_a_breakpoint(opened):
    def slow(events):
        for event in events:
            time.sleep(0.01)
            yield event

    view = DebuggerPanel(Debugger(slow(toy.run(n_predict=20))))
    h = opened(view)
    page, dbg = h.page, view.dbg
    page.click("[data-action='run']")
    page.wait_for_selector("[data-action='pause']:visible")
    page.wait_for_function("window.model.get('here') > 20")
    page.click("[data-action='pause']")
    page.wait_for_selector("[data-action='run']:visible")
    h.settle()
    n = dbg.n
    assert not dbg.running and not dbg.finished and page.inner_text(".lv-status") == "paused"
    page.wait_for_timeout(100)
    assert dbg.n == n, "it stands"
    page.fill(".lv-break-form input", "l_out-1")
    page.press(".lv-break-form input", "Enter")
    page.wait_for_selector("[data-break]")
    h.click("run")
    assert dbg.here.name == "l_out-1" and "breakpoint" in page.inner_text(".lv-status")
    page.click("[data-break] .lv-x")
    page.wait_for_selector("[data-break]", state="detached")
    page.focus("[data-action='run']")
    page.keyboard.press("F5")
    page.wait_for_selector("[data-action='pause']:visible")
    page.evaluate("window.unmount()")
    page.wait_for_timeout(200)
    assert not dbg.running, "a run ends with the page that watches it"
    assert page.evaluate("window.listenerCount()") == 0


def test_attention_links_cells_and_chips(opened):
    view, witness = panel(n_predict=3)
    view.dbg.run()
    view.view = "attention"
    h = opened(view)
    page = h.page
    page.hover(".lv-att-query[data-pos='3']")
    page.wait_for_function("window.model.get('attention_about').query === 3")
    weights = page.eval_on_selector_all(
        ".lv-att-key [data-value]", "l => l.map(e => [e.dataset.ref, Number(e.dataset.value)])"
    )
    assert len(weights) == 4 and sum(w for _, w in weights) == pytest.approx(1, abs=1e-6)
    for ref, weight in weights:
        assert np.float32(weight) == np.float32(witness.truth(ref, None))
    page.click("[data-head='1']")
    page.wait_for_function("window.model.get('head') === 1")
    page.focus(".lv-attention .lv-heat")
    page.keyboard.press("ArrowDown")
    page.wait_for_selector(".lv-attention .lv-readout [data-value]")
    assert check_numbers(page, witness, view.dbg.here) >= 5
    show(page, "kv_cache")
    cells = page.eval_on_selector_all(
        "[data-cell]", "l => l.map(e => [e.dataset.cell, e.dataset.pos, e.dataset.seq].map(Number))"
    )
    assert cells[:7] == [[i, i, 0] for i in range(7)] and all(c[1] == -1 for c in cells[7:])
    assert page.get_attribute(".lv-fresh", "data-cell") == "6"
    page.click(".lv-tokens [data-pos='5']")
    page.wait_for_selector(".lv-notice:visible")
    assert "runs once and only forward" in page.inner_text(".lv-notice")


def test_text_from_models_never_becomes_markup(opened):
    h = opened(DebuggerPanel(hostile()))
    assert h.page.locator(".llmviz script, .llmviz img").count() == 0
    text = h.page.inner_text(".llmviz")
    assert "<script>" in text and "U+202E" in text and len(text) < 40_000


CONTRAST = r"""() => {
  const channel = (c) => {
    const part = c / 255;
    return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  };
  const luminance = ([r, g, b]) =>
    0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (text) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    const d = canvas.getImageData(0, 0, 1, 1).data;
    return [d[0], d[1], d[2], d[3] / 255];
  };
  const over = (top, under) =>
    top.slice(0, 3).map((c, i) => c * top[3] + under[i] * (1 - top[3]));
  const quiet = ".lv-hidden, :disabled, [aria-disabled=true], .lv-space";
  const bad = [], sizes = [], root = document.querySelector(".llmviz");
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.data.trim(), e = walker.currentNode.parentElement;
    if (!text || !e.checkVisibility() || e.closest(quiet)) continue;
    const style = getComputedStyle(e), behind = [];
    for (let p = e; p; p = p.parentElement) {
      behind.unshift(rgba(getComputedStyle(p).backgroundColor));
    }
    const back = behind.reduce((under, top) => over(top, under), [255, 255, 255]);
    const a = luminance(over(rgba(style.color), back)), b = luminance(back);
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) bad.push([text.slice(0, 30), e.className, contrast.toFixed(2)]);
    sizes.push([parseFloat(style.fontSize), text.slice(0, 30), e.className]);
  }
  const smallest = Math.min(...sizes.map(([size]) => size));
  return { bad, small: sizes.filter(([size]) => size < 13), smallest, n: sizes.length };
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_and_sizes(opened, scheme):
    view, _ = panel(n_predict=3)
    view.dbg.break_on("kq_soft_max-1")
    view.dbg.run()
    view.dbg.run()
    view.watch("entropy")
    view.watch("norm(nothing-1)")
    view.dbg.break_on("no_such_node-7")
    h = opened(view, scheme)
    for tab in ("flow", "tensor", "kv_cache", "logits", "output"):
        show(h.page, tab)
        other = h.page.evaluate(CONTRAST)
        assert other["bad"] == [] and other["small"] == [], tab
    show(h.page, "attention")
    found = h.page.evaluate(CONTRAST)
    assert found["n"] > 100 and found["bad"] == [] and found["small"] == []
    background = h.page.evaluate(
        "getComputedStyle(document.querySelector('.llmviz')).backgroundColor"
    )
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")
    h.page.click("[data-action='projector']")
    h.page.wait_for_selector(".lv-projector")
    assert view.projector and h.page.evaluate(CONTRAST)["smallest"] >= 18


def test_a_theme_is_followed_live_and_can_be_fixed(opened):
    view, _ = panel()
    h = opened(view)
    draws = int(h.page.get_attribute(".llmviz", "data-draws"))
    h.page.evaluate("document.documentElement.setAttribute('theme', 'dark')")
    h.page.wait_for_function(f"document.querySelector('.llmviz').dataset.draws > {draws}")
    dark = (
        "getComputedStyle(document.querySelector('.llmviz')).backgroundColor === 'rgb(22, 24, 27)'"
    )
    assert h.page.evaluate(dark)
    view.theme = "light"
    h.sync()
    assert not h.page.evaluate(dark)
    h.page.evaluate("document.body.setAttribute('data-jp-theme-light', 'false')")
    view.theme = "auto"
    h.sync()
    assert h.page.evaluate(dark)


def test_a_kernel_that_is_gone_gives_a_calm_message(opened):
    view, _ = panel()
    h = opened(view)
    h.page.evaluate("window.kernelGone = true")
    h.page.click("[data-action='into']")
    h.page.wait_for_selector(".lv-notice[data-kind=gone]:visible", timeout=8000)
    assert "run the cell again" in h.page.inner_text(".lv-notice")
    h.page.evaluate("window.kernelGone = false")
    h.click("into")
    assert h.page.is_hidden(".lv-notice"), "it came back"


def test_an_error_is_shown_in_the_panel(opened):
    view, _ = panel(fail_at="l_out-0")
    h = opened(view)
    h.click("run")
    assert "on purpose" in h.page.inner_text(".lv-notice")
    assert h.page.get_attribute(".lv-status", "data-status") == "error"
    assert h.page.is_disabled("[data-action='into']")


def test_one_tab_stop_for_each_group(opened):
    view, _ = panel(n_predict=3)
    view.dbg.run()
    view.view = "attention"
    h = opened(view)
    page = h.page
    stops = page.evaluate(
        "['.lv-bar', '.lv-steps', '.lv-tokens', '.lv-heads', '.lv-att-queries', '.lv-tabs',"
        " '.lv-att-keys']"
        ".map(s => document.querySelector(s))"
        ".map(g => g.querySelectorAll('button[tabindex=\"0\"]').length)"
    )
    assert stops == [1] * 7
    page.focus(".lv-tokens .lv-token[tabindex='0']")
    newest = page.evaluate("document.activeElement.dataset.pos")
    page.keyboard.press("Home")
    first = page.evaluate("document.activeElement.dataset.pos")
    assert (newest, first) == ("7", "0")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "the focus can be seen"
    assert page.get_attribute(".llmviz", "data-lm-suppress-shortcuts") == "true"


@pytest.mark.parametrize(
    "view", [AttentionView, KVCacheView, LogitsView, OutputView, TensorView, TimelineView]
)
def test_a_view_stands_alone(opened, view):
    dbg = Debugger(toy.run(n_predict=2))
    dbg.run()
    h = opened(view(dbg), width=600)
    assert h.page.get_attribute(".llmviz", "data-view") == view.view_name
    assert h.page.get_attribute(".llmviz", "data-here") == str(dbg.n)
    assert re.search(r"\w", h.page.inner_text(".lv-card"))
