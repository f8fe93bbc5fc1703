"""Text from prompts, vocabularies and models is data in every view: never markup, never code."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("anywidget")

from llmviz import show
from llmviz.events import Event
from llmviz.trace import Debugger

from ..trace import toy
from . import host

pytestmark = pytest.mark.browser

PWN = "window.__pwned=1"
EVIL = (
    f"<script>{PWN}</script>",
    f'<img src=x onerror="{PWN}">',
    f"\"'><svg/onload={PWN}>",
    f"</bdi></textarea></style></title><iframe srcdoc='<script>parent.{PWN}</script>'>",
    f'" autofocus onfocus="{PWN}" x="',
    f"javascript:{PWN}",
    f"${{{PWN}}}{{{{{PWN}}}}}\\u003cscript>",
    "\u202egnp.exe\u2066\u200f\u0000\u0007\x1b[31m\ufeff",
    "a" + "\u0301" * 3000,
    "&lt;b&gt; &amp;quot;",
    "x" * 1_000_000,
)
LONG = 40_000
"""Characters that a page may hold of all of it."""


def evil(i: int) -> str:
    """One of the texts, the same for the same number."""
    return EVIL[i % len(EVIL)]


def hostile_events() -> Iterator[Event]:
    """The toy's run with names, pieces and values that mean harm."""
    for k, event in enumerate(toy.run(n_predict=len(EVIL))):
        if event.name == "token":
            text = evil(k)
            event = replace(event, about={"piece": text.encode(), "text": text})
        elif event.name.startswith("l_out-"):
            sources = [SimpleNamespace(name=text) for text in EVIL]
            op = evil(k + 1)[:100]
            about = SimpleNamespace(name=evil(k), op=op, ne=(8, 5), src=sources, il=0)
            event = replace(event, name=evil(k), about=about)
        yield event
        if event.name == "tokens":
            for text in EVIL:
                yield Event("enter", text, 1, 9)
                yield Event("data", text, 2, 9, {text: text, "list": [text]}, {"about": text})
                yield Event("exit", text, 1, 9)


def hostile_debugger() -> Debugger:
    dbg = Debugger(hostile_events(), prompt=EVIL[0])
    vocab = SimpleNamespace(token_to_piece=lambda token, special=False: evil(token).encode())
    dbg.model = SimpleNamespace(vocab=vocab, hparams=None)
    dbg.recorder.piece_of = lambda token: evil(token).encode()
    for text in EVIL[:-1]:
        dbg.break_on(scope=text).enabled = False
    return dbg


# What stands on the page: tags, handlers, the longest text, raw control and direction characters.
FOUND = r"""() => {
  const root = document.querySelector(".llmviz"), tags = new Set(), handlers = [], raw = [];
  let text = 0, attributes = 0;
  for (const e of [root, ...root.querySelectorAll("*")]) {
    tags.add(e.localName);
    for (const a of e.attributes) {
      attributes += a.value.length;
      if (/^on/.test(a.name) || ["src", "href", "srcdoc", "action"].includes(a.name)) {
        handlers.push(a.name);
      }
    }
  }
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const t = walker.currentNode.data;
    text += t.length;
    const inStyle = walker.currentNode.parentElement.localName === "style";
    if (!inStyle && /[\u0000-\u0008\u000e-\u001f\u202a-\u202e\u2066-\u2069]/.test(t)) {
      raw.push([walker.currentNode.parentElement.className, t.slice(0, 40)]);
    }
  }
  const bad = ["script", "img", "iframe", "object", "embed", "link", "base", "meta", "a"];
  return {
    pwned: window.__pwned, tags: [...tags].filter((t) => bad.includes(t)),
    handlers, raw, text, attributes,
  };
}"""


def check(page: Any) -> int:
    """Hold the page as it is now against all that must not be; the characters that it shows."""
    found = page.evaluate(FOUND)
    assert found["pwned"] is None
    assert found["tags"] == [] and found["handlers"] == []
    assert found["raw"] == [], "directions and controls are shown by number"
    assert found["text"] < LONG and found["attributes"] < 4 * LONG
    start = time.perf_counter()
    page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)))")
    assert time.perf_counter() - start < 2, "the page answers"
    return found["text"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with host.chromium() as running:
        yield running


# Those that show a file or need an engine: see the hostile prompt below, and their own tests.
ELSEWHERE = ("gguf", "compare", "load", "batch")


@pytest.mark.parametrize("name", [name for name in show.__all__ if name not in ELSEWHERE])
def test_hostile_text_stays_text(browser, name, figures):
    dbg = hostile_debugger()
    context = browser.new_context(viewport={"width": 1300, "height": 1000})
    try:
        view = getattr(show, name)(dbg)
        hosted = host.Hosted(context.new_page(), view)
        page = hosted.page
        slowest = 0.0
        most = 0
        for step in [dbg.step_into] * (4 + 3 * len(EVIL)) + [dbg.next_token] * len(EVIL):
            start = time.perf_counter()
            step()
            hosted.sync()
            slowest = max(slowest, time.perf_counter() - start)
            if dbg.here.kind == "data":  # of three events with one text the one in the middle
                most = max(most, check(page))
        for tab in page.locator("[data-tab]").all():
            tab.click()
            hosted.settle()
            check(page)
        # Under the pointer and the keys: chips, cells, rows.
        for selector in ("[data-token-id]", "[data-cell]", "canvas", "button"):
            for place in page.locator(f".llmviz {selector}:visible").all()[:5]:
                place.hover(force=True, timeout=5000)
        page.keyboard.press("Tab")
        page.keyboard.press("ArrowDown")
        page.wait_for_timeout(100)
        check(page)
        figures(f"{name}: at most {most} characters, slowest step {1000 * slowest:.0f} ms")
        assert slowest < 5
        assert hosted.problems == []
        view.close()
    finally:
        context.close()


def test_a_hostile_error_stays_text(browser):
    def events() -> Iterator[Event]:
        yield Event("enter", "tokenize", 0, 9)
        raise ValueError("".join(EVIL))

    dbg = Debugger(events())
    context = browser.new_context()
    try:
        hosted = host.Hosted(context.new_page(), show.panel(dbg))
        hosted.click("into")
        hosted.click("into")
        hosted.page.wait_for_selector(".lv-notice:visible")
        assert "<script>" in hosted.page.inner_text(".lv-notice")
        check(hosted.page)
        assert hosted.problems == []
    finally:
        context.close()


def test_a_hostile_prompt_in_a_real_vocabulary(browser, tiny_model):
    text = "".join(EVIL[:-1]).replace("\x00", "") + "x" * 300
    dbg = Debugger(tiny_model(), text, n_ctx=8192, n_batch=256, n_predict=1)
    dbg.break_on("batch")
    dbg.run()
    assert len(dbg.tokens) > 100
    context = browser.new_context()
    try:
        hosted = host.Hosted(context.new_page(), show.panel(dbg))
        check(hosted.page)
        for _ in range(3):
            hosted.click("over")
            check(hosted.page)
        for tab in ("load", "gguf", "tokenizer", "batch"):
            hosted.page.click(f"[data-tab='{tab}']")
            hosted.settle()
            check(hosted.page)
        assert hosted.problems == []
    finally:
        context.close()
        dbg.close()
