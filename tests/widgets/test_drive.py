"""Driving a run from the page: queued and held keys, the focus, long ways and their Pause."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("anywidget")

import llmviz
from llmviz.trace import Debugger
from llmviz.widgets import DebuggerPanel, drive

from . import host

pytestmark = pytest.mark.browser

PROMPT = [5, 9, 11, 7]


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

    def make(n_predict=5, **traits):
        dbg = Debugger(model, PROMPT, n_predict=n_predict, n_ctx=64)
        view = DebuggerPanel(dbg, view="tensor", **traits)
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


PRESSES = """([key, times, repeat]) => {
  const at = document.activeElement;
  for (let i = 0; i < times; i++) {
    const more = { key, bubbles: true, cancelable: true, repeat: repeat && i > 0 };
    at.dispatchEvent(new KeyboardEvent("keydown", more));
  }
}"""


def focused(page) -> str:
    return page.evaluate("document.activeElement.dataset.action || document.activeElement.tagName")


def test_every_press_counts_and_a_held_key_stops_when_it_is_let_go(opened):
    h = opened()
    page, dbg = h.page, h.view.dbg
    page.focus("[data-action='into']")
    page.evaluate(PRESSES, ["F11", 12, False])
    assert "more press" in page.inner_text(".lv-status"), "what waits is shown"
    page.wait_for_function("window.model.get('here') === 11")
    h.settle()
    assert dbg.n == 11 and page.inner_text(".lv-status") == "paused"
    page.evaluate(PRESSES, ["F11", 40, True])  # as fast as a keyboard never is
    page.wait_for_function("window.model.get('here') === 13")
    h.settle()
    assert dbg.n == 13, "the first, and one that waited"
    # A held Enter on a button is the same; a held F5 does not switch to and fro.
    page.evaluate(PRESSES, ["Enter", 40, True])
    page.wait_for_function("window.model.get('here') > 13")
    h.settle()
    assert 14 <= dbg.n <= 15
    page.evaluate(PRESSES, ["F5", 30, True])
    h.page.wait_for_function("window.model.get('status') === 'end'")
    h.settle()
    assert dbg.finished
    # A click on a token, on top of a step, waits for it.
    token = next(k.n for k in dbg.tokens if k.pos == 5)
    page.focus("[data-action='back']")
    page.evaluate(
        "() => { document.activeElement.click();"
        " document.querySelector('.lv-tokens [data-pos=\"5\"]').click(); }"
    )
    page.wait_for_function(f"window.model.get('here') === {token}")
    h.settle()
    h.click("run")
    # At the end the presses that wait are not tried one by one.
    asked = len(h.asked)
    page.evaluate(PRESSES, ["F10", 5, False])
    page.wait_for_selector(".lv-notice:visible")
    h.settle()
    assert len(h.asked) == asked + 1 and "at its end" in page.inner_text(".lv-notice")


def test_the_focus_stays_where_it_was(opened):
    h = opened()
    page, dbg = h.page, h.view.dbg
    page.focus("[data-action='into']")
    for _ in range(2):
        n = dbg.n
        page.keyboard.press("Enter")
        page.wait_for_function(f"window.model.get('here') > {n}")
        h.settle()
    page.focus("[data-action='back']")
    page.keyboard.press("Enter")
    page.wait_for_function("window.model.get('here') === 0")
    h.settle()
    assert page.is_disabled("[data-action='back']") and focused(page) == "back"
    page.keyboard.press("Enter")  # nothing to do, and nothing happens
    page.keyboard.press("ArrowRight")
    assert focused(page) == "into" and dbg.n == 0
    page.keyboard.press("F11")
    page.wait_for_function("window.model.get('here') === 1")
    page.keyboard.press("Shift+F10")
    page.wait_for_function("window.model.get('here') === 0")
    h.settle()
    assert focused(page) == "into"
    # Run and Pause share a place, and at the end of the run the focus is still there.
    page.focus("[data-action='run']")
    page.keyboard.press("Enter")
    page.wait_for_function("window.model.get('status') === 'end'")
    h.settle()
    assert focused(page) == "run" and page.is_disabled("[data-action='run']")
    stops = "document.querySelectorAll('.lv-bar button[tabindex=\"0\"]').length"
    assert page.evaluate(stops) == 1


def test_long_ways_show_how_far_they_are_and_take_a_pause(opened, monkeypatch):
    h = opened(n_predict=3)
    page, dbg = h.page, h.view.dbg
    dbg.run()
    end, tokens = dbg.n, [k.id for k in dbg.tokens]
    logits = np.array(dbg.recorder.logits)
    h.sync()

    def pause_on_the_way(click: str, words: str, by: str) -> None:
        monkeypatch.setattr(drive, "GOAL_SLICE", 0.0)  # one event a slice: nothing is missed
        page.click(click)
        page.wait_for_selector(".lv-way:visible")
        page.wait_for_function("window.model.get('way').fraction > 0.05")
        status = page.inner_text(".lv-status")
        assert words in status and "%" in status
        if by == "Escape":
            page.focus(".lv-time-track")
            page.keyboard.press("Escape")
        else:
            page.click("[data-action='pause']")
        page.wait_for_selector("[data-action='run']:visible")
        h.settle()
        assert not dbg.running and dbg.stopped_by == "pause"
        status = page.inner_text(".lv-status")
        assert status.startswith("paused on the way") and words in status
        monkeypatch.setattr(drive, "GOAL_SLICE", 0.15)

    # A travel back; then on to where it went.
    target = dbg.tokens[5].n
    pause_on_the_way(".lv-tokens [data-pos='5']", f"to event {target:,}", "Escape")
    assert dbg.n < target
    page.click(".lv-tokens [data-pos='5']")
    page.wait_for_function(f"window.model.get('here') === {target}")
    h.settle()
    assert page.inner_text(".lv-status") == "paused"
    # Another token, paused before it was taken: nothing was changed.
    page.click(".lv-tokens [data-pos='6']", button="right")
    other = int(page.get_attribute(".lv-text .lv-sheet [data-choose]", "data-choose"))
    pause_on_the_way(f".lv-text .lv-sheet [data-choose='{other}']", "to take another", "click")
    assert len(dbg.branches) == 1 and not dbg.edits
    dbg.goto(end)
    dbg.take_token(other, next(k.n for k in dbg.tokens if k.pos == 6))
    dbg.run()
    h.sync()
    # The switch and the undo.
    pause_on_the_way("[data-branch='main']", "to branch main", "Escape")
    assert dbg.branch.name == "main" and dbg.n < end
    page.focus("[data-timeline]")
    page.keyboard.press("End")
    page.wait_for_function(f"window.model.get('here') === {end}")
    h.settle()
    assert [k.id for k in dbg.tokens] == tokens
    assert (dbg.recorder.logits == logits).all()
    page.click("[data-branch='branch-1']")
    page.wait_for_selector("[data-branch='branch-1'][aria-pressed=true]")
    h.settle()
    pause_on_the_way("[data-edit='undo']", "again, without: choose", "click")
    assert not dbg.edits and [b.name for b in dbg.branches] == ["main"]
    page.focus("[data-timeline]")
    page.keyboard.press("End")
    page.wait_for_function(f"window.model.get('here') === {end}")
    h.settle()
    assert [k.id for k in dbg.tokens] == tokens and (dbg.recorder.logits == logits).all()
