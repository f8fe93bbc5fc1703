"""The panel over a real engine, in Chromium: time travel, conditions, watches, edits, branches.

The truth is a second engine of the test's own, run straight forward.
"""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

pytest.importorskip("anywidget")

import llmviz
from llmviz.trace import Debugger
from llmviz.trace.summary import statistics
from llmviz.widgets import DebuggerPanel

from . import host
from .test_page import show, shown_numbers

pytestmark = pytest.mark.browser

PROMPT = [5, 9, 11, 7]
N_PREDICT = 5


@pytest.fixture(scope="module")
def browser():
    with host.chromium() as running:
        yield running


@pytest.fixture(scope="module")
def model(tiny_model):
    return llmviz.load(tiny_model())


@pytest.fixture
def opened(browser, model):
    made = []

    def make(**traits):
        dbg = Debugger(model, PROMPT, n_predict=N_PREDICT, n_ctx=64)
        view = DebuggerPanel(dbg, **traits)
        context = browser.new_context(viewport={"width": 1540, "height": 1000})
        h = host.Hosted(context.new_page(), view, width=1500)
        made.append((context, h))
        return h

    yield make
    for context, h in made:
        h.view.close()
        h.view.dbg.close()
        context.close()
        assert h.problems == []


class Straight:
    """The same run, straight forward, every event's array by number and name."""

    def __init__(self, model) -> None:
        self.arrays: dict[str, list[tuple[int, np.ndarray]]] = {}
        self.tokens: list[tuple[int, int]] = []
        self.names: list[str] = []
        dbg = Debugger(model, PROMPT, n_predict=N_PREDICT, n_ctx=64)
        try:
            while not dbg.finished:
                here = dbg.step_into()
                if dbg.finished:
                    break
                self.names.append(here.name)
                if isinstance(here.value, np.ndarray):
                    self.arrays.setdefault(here.name, []).append((here.n, np.array(here.value)))
                if here.name == "token" and here.step == 16:
                    self.tokens.append((here.n, int(here.value)))
        finally:
            dbg.close()

    def at(self, name: str, n: int) -> np.ndarray:
        """The latest array of a name at or before event n."""
        return [a for m, a in self.arrays[name] if m <= n][-1]

    def p_raw(self, n: int) -> np.ndarray:
        x = self.at("logits", n)[-1].astype(np.float64)
        e = np.exp(x - x.max())
        return e / e.sum()

    def truth(self, ref: str, n: int, current: str) -> float | None:
        """What the number with this name is at event n; None for names not covered."""
        if m := re.fullmatch(r"kq_soft_max-(\d+)\[(\d+),pos (\d+),pos (\d+)\]", ref):
            layer, head, q, k = map(int, m.groups())
            for number, a in self.arrays[f"kq_soft_max-{layer}"]:
                positions = self.at("inp_pos", number)
                if q in positions:
                    rows = list(positions)[-a.shape[1] :]
                    return float(a[head, rows.index(q), k]) if q in rows else None
        if m := re.fullmatch(r"(logits|p_raw)\[(\d+)\]", ref):
            table = self.at("logits", n)[-1] if m[1] == "logits" else self.p_raw(n)
            return float(table[int(m[2])])
        if m := re.fullmatch(r"out\[(\d+)\]\.(p_raw|rank)", ref):
            number, token = self.tokens[int(m[1]) - len(PROMPT)]
            if m[2] == "p_raw":
                return float(self.p_raw(number)[token])
            x = self.at("logits", number)[-1]
            return 1.0 + int((x > x[token]).sum())
        if ref == "entropy":
            p = self.p_raw(n)
            return float(-(p[p > 0] * np.log(p[p > 0])).sum())
        if m := re.fullmatch(r"watch norm\((.+)\)", ref):
            return float(np.linalg.norm(self.at(m[1], n).astype(np.float64)))
        if m := re.fullmatch(r"(.+)\[([\d,]+)\]", ref):
            if m[1] in self.arrays and m[1] == current:
                return float(self.at(m[1], n)[tuple(int(i) for i in m[2].split(","))])
            return None
        name, _, what = ref.rpartition(".")
        if name == current and name in self.arrays:
            return float(getattr(statistics(self.at(name, n)), what))
        return None


@pytest.fixture(scope="module")
def straight(model):
    return Straight(model)


def check(h, straight: Straight) -> int:
    """Hold every shown number against the straight run; how many were covered."""
    checked, dbg = 0, h.view.dbg
    for ref, value in shown_numbers(h.page):
        truth = straight.truth(ref, dbg.n, dbg.here.name)
        if truth is None:
            continue
        got = float(value)
        same = np.float32(got) == np.float32(truth)
        # The sampler view's raw p is the chain's own float32 softmax.
        close = 3e-7 if ref.startswith("p_raw[") else 1e-9
        assert same or math.isclose(got, truth, rel_tol=close, abs_tol=1e-12), (ref, value, truth)
        checked += 1
    return checked


def wait_here(h, n: int) -> None:
    h.page.wait_for_function(
        "n => document.querySelector('.llmviz').dataset.here == n", arg=n, timeout=15_000
    )
    h.settle()


def submit(h, selector: str, text: str) -> None:
    h.page.fill(selector, text)
    h.page.press(selector, "Escape")
    h.page.fill(selector, text)
    h.page.press(selector, "Enter")


BREAK, WATCH = ".lv-breaks-card input[type=text]", ".lv-watches input[type=text]"


def test_every_shown_number_is_the_engines(opened, straight, figures):
    h = opened()
    page, dbg, total = h.page, h.view.dbg, 0
    submit(h, WATCH, "norm(l_out-0)")
    page.wait_for_selector("[data-watch][data-state=missing]")
    for name in ("attn_norm-1", "kqv-0", "ffn_swiglu-1", "l_out-1"):
        dbg.break_on(name, once=True)
        h.click("run")
        total += check(h, straight)
        if not page.is_visible(".lv-numbers"):
            page.click(".lv-now .lv-button:has-text('Numbers')")
        page.focus(".lv-now .lv-heat")
        page.keyboard.press("ArrowRight")
        page.wait_for_selector(".lv-now .lv-readout [data-value]")
        total += check(h, straight)
    for _ in range(2):
        h.click("next-token")
    for tab in ("logits", "output", "attention"):
        show(page, tab)
        total += check(h, straight)
    page.hover(".lv-att-query[data-pos='3']")
    page.wait_for_function("window.model.get('attention_about').query === 3")
    page.wait_for_timeout(60)
    total += check(h, straight)
    for _ in range(2):
        h.click("prev-token")
        h.click("back")
        total += check(h, straight)
    assert total >= 200
    figures(f"DOM truth: {total} shown numbers equal the engine's arrays")


def test_fifty_times_back_and_forth_leaves_identical_numbers(opened, straight, figures):
    h = opened(view="logits")
    for _ in range(3):
        h.click("next-token")
    first = shown_numbers(h.page)
    assert len(first) > 20
    for i in range(50):
        h.click("prev-token" if i % 2 else "back")
        back = shown_numbers(h.page)
        assert i % 2 == 0 or back != first
        h.click("next-token" if i % 2 else "into")
        assert shown_numbers(h.page) == first, i
    assert check(h, straight) > 20
    figures("50 times back and forth: identical numbers on screen")


def test_a_token_and_the_timeline_and_a_step_travel(opened, straight):
    h = opened()
    page, dbg = h.page, h.view.dbg
    for _ in range(4):
        h.click("next-token")
    end = dbg.n
    page.click(".lv-tokens [data-pos='5']")
    wait_here(h, straight.tokens[1][0])
    ahead = page.eval_on_selector_all(".lv-tokens .lv-ahead", "l => l.map(e => e.dataset.pos)")
    assert ahead == ["6", "7"], "what lies ahead stays in sight"
    page.click(".lv-tokens [data-pos='7']")
    wait_here(h, end)
    # On the line: a click takes the token whose stretch it hits, a drag goes anywhere.
    box = page.locator(".lv-time-token[data-pos='6']").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    wait_here(h, straight.tokens[2][0])
    page.mouse.move(box["x"] + 2, box["y"] + 5)
    page.mouse.down()
    for i in range(1, 12):
        page.mouse.move(box["x"] - 14 * i, box["y"] + 5)
    page.mouse.up()
    h.settle()
    assert 0 < dbg.n < straight.tokens[1][0] and not dbg.running
    page.focus("[data-timeline]")
    n = dbg.n
    page.keyboard.press("ArrowLeft")
    wait_here(h, n - 1)
    page.keyboard.press("End")
    wait_here(h, end)
    # A step of this pass, then one that lies ahead.
    page.click("[data-step='12']")
    page.wait_for_function("window.model.get('step') === 12")
    h.settle()
    assert straight.tokens[2][0] < dbg.n < end and dbg.here.step == 12
    page.click("[data-step='15']")
    page.wait_for_function("window.model.get('step') === 15")
    h.settle()
    page.click("[data-step='3']")
    page.wait_for_selector(".lv-notice:visible")
    assert "did not run in this debugger" in page.inner_text(".lv-notice")
    page.click("[data-scope='sample'] button")
    h.settle()
    assert dbg.here.name == "sample" and check(h, straight) >= 0


def test_conditions_watches_and_what_is_wrong_with_them(opened, straight):
    h = opened()
    page, dbg = h.page, h.view.dbg
    submit(h, BREAK, "entorpy > 3")
    page.wait_for_selector(".lv-notice:visible")
    notice = page.inner_text(".lv-notice-text")
    assert "did you mean entropy" in notice and "\n  ^" in notice, "a caret under the place"
    assert page.input_value(BREAK) == "entorpy > 3", "nothing is lost"
    submit(h, BREAK, "n_tokens > 5 and entropy > 0")
    page.wait_for_selector("[data-break='1']")
    h.click("run")
    assert len(dbg.tokens) == 6 and "breakpoint 1" in page.inner_text(".lv-status")
    assert page.inner_text("[data-break='1'] .lv-remark") == "1×"
    page.click("[data-break='1'] input[type=checkbox]")
    page.wait_for_function("window.model.get('breakpoints')[0].enabled === false")
    submit(h, BREAK, "kq_sotf_max-1")
    page.wait_for_selector("[data-break='2'] .lv-why")
    assert "kq_soft_max-1" in page.inner_text("[data-break='2'] .lv-why")
    for text, label in [("layer 1", "layer 1"), ("step 15", "step 15"), ("token 7", "token 7")]:
        submit(h, BREAK, text)
        page.wait_for_selector(f"[data-break] code:text-is('{label}')")
    submit(h, BREAK, "layer 99")
    page.wait_for_selector(".lv-why:has-text('layer 99 never runs')")
    # Watches: a value that was computed before anybody asked is fetched.
    h.click("next-token")
    submit(h, WATCH, "norm(l_out-1)")
    page.wait_for_selector("[data-watch='1'][data-state=ok]")
    shown = float(page.get_attribute("[data-watch='1'] [data-value]", "data-value"))
    truth = float(np.linalg.norm(straight.at("l_out-1", dbg.n).astype(np.float64)))
    assert shown == pytest.approx(truth, rel=1e-9)
    submit(h, WATCH, "norm(")
    page.wait_for_selector(".lv-notice:visible")
    page.fill(WATCH, "")
    page.click(WATCH)
    page.keyboard.type("entr")
    page.wait_for_selector(".lv-watches .lv-complete li:first-child:has-text('entropy')")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.input_value(WATCH) == "entropy"
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-watch='2'][data-state=ok]")
    page.click("[data-watch='1'] .lv-x")
    page.wait_for_selector("[data-watch='1']", state="detached")


def test_edits_are_made_listed_and_undone(opened, straight):
    h = opened(view="tensor")
    page, dbg = h.page, h.view.dbg
    dbg.break_on("l_out-0", once=True)
    h.click("run")
    before = np.array(dbg.here.value)
    page.focus(".lv-now .lv-heat")
    page.click("[data-edit='value']")
    page.fill(".lv-edit-number", "12.5")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-edit-id='1']")
    h.settle()
    assert dbg.here.value[0, 0] == 12.5 and (dbg.here.value[0, 1:] == before[0, 1:]).all()
    assert page.is_visible(".lv-here .lv-edited")
    page.click("[data-edit-id='1'] [data-edit='undo']")
    page.wait_for_selector("[data-edit-id='1']", state="detached")
    h.settle()
    assert (dbg.here.value == before).all() and check(h, straight) > 5
    page.click("[data-edit='value']")
    page.fill(".lv-edit-number", "twelve")
    page.keyboard.press("Enter")
    page.wait_for_selector(".lv-notice:visible")
    assert "no number" in page.inner_text(".lv-notice")
    # A node is zeroed from here on, switched off, and gone again.
    page.click("[data-edit='zero']")
    page.wait_for_selector("[data-edit-id='2']")
    h.settle()
    assert not dbg.here.value.any()
    page.click("[data-edit-id='2'] [data-edit='undo']")
    page.wait_for_selector("[data-edit-id='2']", state="detached")
    # A head is ablated: the run ends differently; without it, as before.
    h.click("next-token")
    show(page, "attention")
    page.click("[data-edit='ablate']")
    page.wait_for_selector("[data-edit-id='3']")
    h.settle()
    h.click("next-token")
    ablated = np.array(dbg.recorder.logits)
    page.click("[data-edit-id='3'] [data-edit='undo']")
    page.wait_for_selector("[data-edit-id='3']", state="detached")
    h.settle()
    again = dbg.recorder.logits
    truth = straight.at("logits", straight.tokens[1][0])[-1]
    assert (again == truth).all() and (ablated != truth).any()
    # A logit is forbidden: another token is chosen, in a branch of its own.
    show(page, "logits")
    taken = straight.tokens[1][1]
    page.click(f"[data-more='{taken}']")
    page.click("[data-edit='forbid']")
    page.wait_for_selector("[data-branch]")
    h.settle()
    h.click("next-token")
    assert dbg.tokens[-1].id != taken and len(dbg.branches) == 2
    # A sampler's parameter, with the slider.
    page.click(".lv-chain summary")
    page.locator("[data-param$='.t']").fill("1.5")
    page.wait_for_selector(".lv-edit-list :text('t = 1.5')")


def test_fork_with_another_token_and_switch(opened, straight):
    h = opened()
    page, dbg = h.page, h.view.dbg
    for _ in range(3):
        h.click("next-token")
    page.hover(".lv-tokens [data-pos='5']")
    page.wait_for_selector(".lv-text .lv-sheet:visible [data-choose]")
    shown = page.eval_on_selector_all(
        ".lv-text .lv-sheet [data-value]", "l => l.map(e => [e.dataset.ref, +e.dataset.value])"
    )
    p = straight.p_raw(straight.tokens[1][0])
    raw = [(int(m[1]), v) for r, v in shown if (m := re.search(r"p_raw\[(\d+)\]", r))]
    assert len(raw) == 10 and all(v == pytest.approx(p[i], rel=1e-9) for i, v in raw)
    other = int(page.get_attribute(".lv-text .lv-sheet [data-choose]", "data-choose"))
    page.click(f".lv-text .lv-sheet [data-choose='{other}']")
    page.wait_for_selector("[data-branch='branch-1'][aria-pressed=true]")
    h.settle()
    assert [k.id for k in dbg.tokens[4:]] == [straight.tokens[0][1], other]
    page.click("[data-branch='main']")
    page.wait_for_selector("[data-branch='main'][aria-pressed=true]")
    h.settle()
    assert [k.id for k in dbg.tokens[4:]] == [t for _, t in straight.tokens[:3]]
    show(page, "logits")
    assert check(h, straight) > 20
    page.click("[data-branch='branch-1']")
    page.wait_for_selector("[data-branch='branch-1'][aria-pressed=true]")
    h.settle()
    assert dbg.tokens[-1].id == other
    # Another token by its text; one that is no token says so.
    page.click(".lv-tokens [data-pos='5']", button="right")
    page.fill(".lv-sheet input", "no such token, surely")
    page.keyboard.press("Enter")
    page.wait_for_selector(".lv-notice:visible")
    assert dbg.tokens[-1].id == other


def test_the_source_line_is_where_the_run_stands(opened):
    h = opened()
    page, dbg = h.page, h.view.dbg
    dbg.break_on("kq_soft_max-1")
    h.click("run")
    roles = page.eval_on_selector_all("[data-source]", "l => l.map(e => e.textContent)")
    assert roles == ["the model asks for it", "named here", "computed here", "shown here"]
    for i, (file, text) in enumerate(
        [
            ("models/llama.py", "build_attn"),
            ("model/graph", "kq_soft_max"),
            ("backends/cpu", "def"),
            ("ggml/sched.py", "yield event"),
        ]
    ):
        page.click(f"[data-source='{i}']")
        page.wait_for_function("i => window.model.get('source_shown') === i", arg=i)
        assert file in page.inner_text(".lv-source-where")
        assert text in page.inner_text(".lv-code-now")
    assert "ggml-backend.cpp" in page.inner_text(".lv-source-where")


def test_a_click_while_the_run_is_busy_gives_a_message(opened):
    h = opened()
    view, dbg = h.view, h.view.dbg
    h.click("next-token")
    dbg.start("run")
    dbg.advance(0.0)
    h.sync()
    h.page.keyboard.press("Tab")
    h.page.focus("[data-timeline]")
    h.page.click("[data-step='12']")
    h.page.wait_for_selector(".lv-notice:visible")
    assert "under way" in h.page.inner_text(".lv-notice") and dbg.running
    h.page.click("[data-action='pause']")
    h.page.wait_for_selector("[data-action='run']:visible")
    assert not dbg.running and view.status == "paused"


def test_tabs_follow_until_one_is_chosen(opened):
    h = opened()
    page, view = h.page, h.view
    h.click("next-token")
    assert view.view == "output" and page.is_visible("[data-panel='output']")
    page.focus("[data-tab='output']")
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    page.wait_for_function("window.model.get('view') === 'flow'")
    assert view.pinned
    h.click("next-token")
    assert view.view == "flow" and page.is_visible("[data-panel='flow']")
    page.click("[data-action='pin']")
    page.wait_for_function("window.model.get('view') === 'output'")
    page.click("[data-action='wide']")
    page.wait_for_selector(".lv-left", state="hidden")
    page.click("[data-action='wide']")
    height = page.evaluate("document.querySelector('.llmviz').offsetHeight")
    assert height <= 860, "a 1080p screen shows it whole"
