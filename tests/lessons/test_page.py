"""Questions in Chromium, answered with the mouse and with keys, in light and dark."""

from __future__ import annotations

import numpy as np
import pytest

import llmviz
from tests.widgets import host

from .test_checks import Words

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser():
    with host.chromium() as found:
        yield found


@pytest.fixture
def shown(browser, tmp_path):
    """Shows a question of a new lesson on a page."""
    lesson = llmviz.lessons.begin("99-page", tmp_path)
    pages = []

    def show(kind, *args, **kw):
        page = browser.new_page(viewport={"width": 900, "height": 600})
        pages.append(page)
        check = getattr(lesson, kind)("key", *args, **kw)
        hosted = host.Hosted(page, check, width=860)
        hosted.check = check
        return hosted

    yield show
    for page in pages:
        page.close()


def verdict(h, state):
    h.page.wait_for_selector(f".lv-verdict[data-state={state}]")
    assert not h.problems
    return h.page.inner_text(".lv-verdict")


def test_a_number(shown):
    h = shown(
        "number",
        "How many is `a` **b**?\nSay <b>.",
        answer=lambda: 1024,
        unit="tokens",
        because=lambda given, right: f"It is `{right}`.",
    )
    asked = h.page.locator(".lv-asked")
    assert asked.inner_text() == "How many is a b?\nSay <b>."
    assert asked.locator("code").inner_text() == "a" and asked.locator("b").inner_text() == "b"
    show = h.page.locator("[data-action=show-answer]")
    h.page.keyboard.press("Tab")
    h.page.keyboard.type("5")
    h.page.keyboard.press("Enter")
    assert "too small, by more than ten times" in verdict(h, "wrong") and show.is_hidden()
    assert "Not yet" in h.page.inner_text("[aria-live]")
    h.page.fill("input", "2,000")
    h.page.click("[data-action=check]")
    h.page.wait_for_function("() => document.querySelector('.lv-tries').innerText == '2 tries'")
    show.click()
    assert "The answer: 1,024 tokens. It is 1024." in verdict(h, "shown")
    assert h.page.input_value("input") == "1,024" and show.is_hidden()
    h.page.click("[data-action=check]")
    assert "Right: 1,024 tokens." in verdict(h, "right")
    for scheme in h.themes():
        colours = h.page.evaluate(
            "() => ['.lv-check-go', '.lv-sign', '.lv-verdict p'].map((s) => {"
            " const n = document.querySelector(s); let b = n;"
            " while (/, 0\\)|transparent/.test(getComputedStyle(b).backgroundColor))"
            " b = b.parentElement;"
            " const light = (c) => { const v = /srgb/.test(c) ? 1 : 255;"
            " return c.match(/[\\d.]+/g).slice(0, 3)"
            ".map((x) => x / v).map((x) => x <= 0.04 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4)"
            ".reduce((a, x, i) => a + x * [0.2126, 0.7152, 0.0722][i], 0); };"
            " const [x, y] = [getComputedStyle(n).color, getComputedStyle(b).backgroundColor]"
            ".map(light).sort((p, q) => p - q); return (y + 0.05) / (x + 0.05); })"
        )
        assert min(colours[0], colours[2]) > 4.5 and colours[1] > 3, (scheme, colours)


def test_choosing(shown):
    h = shown("choose", "Which?", options=["a", "`b`", "c"], answer=lambda: [1, 2], several=True)
    h.page.get_by_text("b", exact=True).click()
    h.page.click("[data-action=check]")
    assert "1 more does as well" in verdict(h, "wrong")
    h.page.get_by_text("c", exact=True).click()
    h.page.click("[data-action=check]")
    assert "Right: b, c." in verdict(h, "right")
    assert h.check.given == ["`b`", "c"]
    h = shown("choose", "Which?", options=["a", "b"], answer=lambda: "b")
    h.page.click("[data-action=check]")
    assert "Choose first." in verdict(h, "unread")
    h.page.focus("input[value=a]")
    h.page.keyboard.press("Space")
    h.page.keyboard.press("ArrowDown")
    h.page.click("[data-action=check]")
    assert "Right: b." in verdict(h, "right")


def test_ordering(shown):
    h = shown("order", "Order.", items=["c", "a", "b"], answer=lambda: "abc")
    rows = h.page.locator(".lv-order-item")
    h.page.keyboard.press("Tab")
    h.page.keyboard.press("Space")
    h.page.keyboard.press("ArrowDown")
    h.page.keyboard.press("ArrowDown")
    h.page.keyboard.press("Space")
    assert [t.split("\n")[0] for t in rows.all_inner_texts()] == ["a", "b", "c"]
    assert "put down" in h.page.inner_text("[aria-live]")
    h.page.get_by_label("Up: c").click()
    h.page.click("[data-action=check]")
    assert "The first is in place" in verdict(h, "wrong")
    one, other = (rows.nth(i).bounding_box() for i in (1, 2))
    h.page.mouse.move(one["x"] + 60, one["y"] + 8)
    h.page.mouse.down()
    h.page.mouse.move(other["x"] + 60, other["y"] + other["height"] - 4, steps=4)
    h.page.mouse.up()
    h.page.click("[data-action=check]")
    assert "Right: a → b → c." in verdict(h, "right")


def test_marking(shown):
    h = shown(
        "mark",
        "Mark.",
        labels=(["The", " cat"], ["The", " cat"]),
        answer=lambda: np.tril(np.ones((2, 2))),
        axes=("query", "key"),
    )
    h.page.keyboard.press("Tab")
    h.page.keyboard.press("Space")
    h.page.keyboard.press("ArrowRight")
    h.page.keyboard.press("Space")
    h.page.click("[data-action=check]")
    assert "1 marked rightly, 1 too many, 2 missing" in verdict(h, "wrong")
    cells = h.page.locator(".lv-mark-cell")
    cells.nth(1).click()
    assert cells.nth(1).get_attribute("aria-pressed") == "false"
    assert cells.nth(1).get_attribute("aria-label") == "query The, key  cat"
    one, other = (cells.nth(i).bounding_box() for i in (2, 3))
    h.page.mouse.move(one["x"] + 9, one["y"] + 9)
    h.page.mouse.down()
    h.page.mouse.move(other["x"] + 9, other["y"] + 9, steps=4)
    h.page.mouse.up()
    h.page.click("[data-action=check]")
    assert "Right: 3 of 4 cells." in verdict(h, "right")


def test_picking_a_token(shown):
    h = shown("token", "Which?", vocab=Words(), answer=lambda: " Paris", because="It is.")
    h.page.fill("input", "the Paris")
    h.page.wait_for_selector(".lv-chip")
    h.page.click("[data-action=check]")
    assert "That is 2 tokens" in verdict(h, "unread")
    h.page.click(".lv-chip[data-token-id='0']")
    h.page.keyboard.press("ArrowRight")
    h.page.keyboard.press("Enter")
    h.page.click("[data-action=check]")
    assert "Right: “ Paris” (2). It is." in verdict(h, "right")


def test_an_exercise(shown):
    h = shown("exercise", "Count.", solution="answer = 3", check=lambda v: (v == 3, "Not three."))
    h.page.click("[data-action=check]")
    assert "There is no answer yet: run your cell first." in verdict(h, "unread")
    h.check.submit(4)
    h.sync()
    assert "Not three." in verdict(h, "wrong")
    h.page.click("[data-action=show-answer]")
    assert "One way to do it:" in verdict(h, "shown")
    assert h.page.inner_text(".lv-solution") == "answer = 3"
