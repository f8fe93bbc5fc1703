"""Views docked in the panel: their traits under their name, their messages, their life."""

from __future__ import annotations

import pytest

pytest.importorskip("anywidget")

from ipywidgets.widgets.widget import _instances

from llmviz.errors import LlmvizError
from llmviz.trace import Debugger
from llmviz.widgets import DebuggerPanel
from llmviz.widgets.docks import DOCKS, prompt_text
from llmviz.widgets.panel import VIEWS, view_for

from ..trace import toy
from . import host
from .test_views import ask


@pytest.fixture(scope="module")
def path(tiny_model):
    return tiny_model(vocab="bpe")


@pytest.fixture
def dbg(path):
    with Debugger(path, "the cat sat on the mat", n_ctx=64, n_predict=2) as dbg:
        yield dbg


def test_every_dock_is_a_tab_and_its_traits_are_the_panels():
    assert {d.name for d in DOCKS} < set(VIEWS)
    for dock in DOCKS:
        own, panel = dock.kind.class_traits(), DebuggerPanel.class_traits()
        for name in dock.traits:
            there = panel[f"{dock.name}_{name}"]
            assert type(there) is type(own[name]) and there is not own[name]
            assert there.metadata["sync"]


def test_a_part_is_made_when_it_is_looked_at(dbg):
    dbg.step_into()
    before = len(_instances)
    panel = DebuggerPanel(dbg, view="flow")
    made = len(_instances)
    assert panel._parts == {}
    panel.view = "gguf"
    assert list(panel._parts) == [] and "step 2" in panel.gguf_missing
    dbg.break_on("n_kv")
    dbg.run()
    assert list(panel._parts) == ["gguf"] and panel.gguf_missing == ""
    assert len(_instances) <= made + 1, "a part opens nothing to the page"
    panel.close()
    assert len(_instances) == before
    assert panel.gguf_missing == "" and panel._parts["gguf"].gguf.closed


def test_both_ways_and_its_messages(dbg):
    dbg.break_on("prompt")
    dbg.run()
    panel = DebuggerPanel(dbg, view="gguf", gguf_field=5)
    part = panel.part("gguf")
    assert part.field == 5 == panel.gguf_field
    rev = panel.rev
    panel.gguf_sort = "size"
    assert [r["name"] for r in panel.gguf_table] == [r["name"] for r in part.table]
    assert panel.rev > rev and part.sort == "size"
    part.field = 7
    assert panel.gguf_field == 7 and panel.gguf_hex_bytes == part.hex_bytes
    panel.gguf_field = 10**6
    assert panel.gguf_field == part.field == len(part.gguf.fields) - 1, "clamped on both sides"
    reply = ask(panel, dock="gguf", ask="gguf-byte", offset=5)
    assert reply["value"]["name"] == "version" and reply["reply"] == "1"
    panel.tokenizer_text = "a dog"
    assert panel.tokenizer_sides[0]["n"] == len(dbg.model.vocab.tokenize("a dog"))
    with pytest.raises(TypeError, match="gguf_feild"):
        DebuggerPanel(dbg, gguf_feild=3)
    panel.close()


def test_the_file_follows_the_header_and_the_tokens_the_prompt(dbg):
    panel = DebuggerPanel(dbg)
    dbg.break_on("n_kv")
    dbg.run()
    fields = panel.part("gguf").gguf.fields
    for _ in range(12):
        dbg.step_into()
        assert panel.view == "gguf"
        assert fields[panel.gguf_field].offset == dbg.here.event.about.offset
    dbg.break_on("tokens")
    while dbg.here.step < 9:
        dbg.run()
    assert view_for(dbg) == "tokenizer" == panel.view
    assert panel.tokenizer_text == dbg.prompt
    assert panel.tokenizer_sides[0]["n"] == len(dbg.here.value)
    panel.close()


def test_the_heads_button_works_inside_the_panel(dbg):
    dbg.next_token()
    panel = DebuggerPanel(dbg, view="heads")
    assert "error" not in ask(panel, ask="heads_measure") and panel.error == {}
    panel.close()


def test_prompts_of_every_kind(path):
    with Debugger(path, [5, 6, 7], n_ctx=64) as dbg:
        dbg.break_on("prompt")
        dbg.run()
        vocab = dbg.model.vocab
        assert vocab.tokenize(prompt_text(dbg, vocab), add_special=False)
        dbg.prompt = []
        assert prompt_text(dbg, vocab) == ""


def test_where_there_is_nothing_it_says_why():
    panel = DebuggerPanel(Debugger(toy.run()))
    for dock in DOCKS:
        panel.view = dock.name
        part = panel.part(dock.name)
        if part is None:
            assert getattr(panel, f"{dock.name}_missing")
            with pytest.raises(LlmvizError):
                panel.figure()
    assert panel.gguf_missing and panel.tokenizer_missing
    assert "bare events" in panel.batch_about["reason"]


@pytest.mark.browser
def test_in_the_page(dbg):
    """Clicks and keys inside a docked view reach its part, and what it says is seen."""
    with host.chromium() as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        panel = DebuggerPanel(dbg)
        h = host.Hosted(page, panel, width=1400)
        assert page.locator("[data-tab]").count() == len(VIEWS)
        assert [t.get_attribute("data-tab") for t in page.locator("[data-tab]").all()] == [*VIEWS]
        lines = page.eval_on_selector_all("[data-tab]", "l => l.map(e => e.offsetTop)")
        assert len(set(lines)) <= 3, "the tabs need no more lines than that"
        page.click("[data-tab='gguf']")
        page.wait_for_selector("[data-panel='gguf'] .lv-empty:visible")
        dbg.break_on("prompt")
        dbg.run()
        h.sync()
        h.settle()
        page.click("[data-panel='gguf'] [data-field='1']")
        page.wait_for_function("() => window.model.get('gguf_field') === 1")
        page.hover("[data-panel='gguf'] .lv-gguf-line > [data-k='9']")
        assert "n_tensors" in page.inner_text("[data-panel='gguf'] .lv-gguf-says")
        page.click("[data-tab='tokenizer']")
        page.fill("[data-panel='tokenizer'] textarea", "the dog")
        page.wait_for_function("() => window.model.get('tokenizer_text') === 'the dog'")
        page.locator("[data-panel='tokenizer'] .lv-tok-box").first.click()
        page.wait_for_function("() => window.model.get('tokenizer_selected') === 0")
        assert panel.part("tokenizer").selected == 0
        page.wait_for_selector("[data-panel='tokenizer'] .lv-tok-film")
        page.keyboard.press("ArrowRight")
        assert page.evaluate("() => document.activeElement.dataset.pos") == "1"
        panel.close()
        assert h.problems == []
