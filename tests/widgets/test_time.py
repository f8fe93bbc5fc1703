"""The time view: what stands on the page sums to what the clock said."""

from __future__ import annotations

import pytest

pytest.importorskip("anywidget")

import llmviz
from llmviz import plots, show
from llmviz.errors import LlmvizError
from llmviz.sampling import Chain, Greedy
from llmviz.trace import Debugger
from llmviz.widgets import DebuggerPanel, TimeView

from ..plots.runs import by_gid, texts
from . import host
from .test_page import CONTRAST

PROMPT = [1, 262, 270, 281]


@pytest.fixture(scope="module")
def model(tiny_model):
    return llmviz.load(tiny_model(n_layer=3))


def debug(model, n: int = 3) -> Debugger:
    dbg = Debugger(model, PROMPT, Chain([Greedy()]), n_predict=6, n_ctx=256)
    for _ in range(n):
        dbg.next_token()
    return dbg


@pytest.fixture(scope="module")
def browser():
    with host.chromium() as running:
        yield running


# -- traits ---------------------------------------------------------------------------------------


def test_the_newest_pass_is_shown_and_its_lines_sum_to_the_total(model):
    dbg = debug(model, 0)
    view = show.time(dbg)
    assert isinstance(view, TimeView) and "Next token" in view.time_about["why"]
    dbg.next_token()
    dbg.next_token()
    newest = dbg.times.passes[-1]
    for by in ("work", "scope", "layer", "op", "node"):
        view.time_by = by
        assert view.time_about["total"] == newest.total == sum(p["ns"] for p in view.time_parts)
    assert view.time_about["watching"] == newest.watching
    assert [p["number"] for p in view.time_passes] == [0, 1, 2]
    assert view.time_about["tokens"]["n"] == 1, "the prompt is no token that was decoded"
    view.time_rows = 5
    (rest,) = (p for p in view.time_parts if p["name"].endswith("other nodes"))
    assert rest["count"] == newest.n_nodes - 5
    dbg.next_token()
    assert view.time_about["number"] == 3


def test_two_passes_side_by_side(model):
    dbg = debug(model)
    view = TimeView(dbg, time_by="op")
    view.choose_pass(3, against=1)
    prompt = dbg.times.passes[1]
    (row,) = (p for p in view.time_parts if p["name"] == "SOFT_MAX")
    assert row["against"] == pytest.approx(
        sum(int(c.ns[[op == "SOFT_MAX" for op in c.graph.ops]].sum()) for c in prompt.computed) / 4
    )
    assert view.time_about["against"]["number"] == 1
    with pytest.raises(LlmvizError, match="no pass 17"):
        view.choose_pass(17)
    with pytest.raises(LlmvizError, match="no division"):
        view.choose_pass(1, by="colour")
    view.time_pass = 17  # from a page that shows an older run
    assert "why" in view.time_about


def test_without_scripts_and_as_a_figure(model):
    dbg = debug(model)
    view = TimeView(dbg, time_by="layer")
    text, page = view.fallback_text(), view.fallback_html()
    assert text == view.fallback_text() and "layer 2: " in text and "watching: " in text
    assert page.startswith("<table>") and "tokens a second" in page
    for by in ("work", "scope", "layer", "op", "node"):
        figure = view.figure(time_by=by)
        assert "watching" in texts(figure) and "sum to" in texts(figure)
    bars = view.figure(time_by="work")
    total = view.dbg.times.passes[-1]
    wide = [by_gid(bars, f"{n}-kernel").get_width() for n in ("attention", "feed-forward")]
    assert wide[0] > 0 and wide[1] > 0
    assert f"{1e9 / total.total:.1f} tokens a second" in texts(bars)
    with pytest.raises(plots.NothingToDraw, match="no pass 40"):
        plots.time(dbg, time_pass=40)
    with pytest.raises(plots.NothingToDraw, match="no times"):
        plots.time(debug(model, 0))


def test_it_costs_nothing_while_another_tab_is_open(model):
    dbg = debug(model, 1)
    panel = DebuggerPanel(dbg, view="logits")
    assert panel.time_parts == []
    panel.view = "time"
    assert sum(p["ns"] for p in panel.time_parts) == dbg.times.passes[-1].total


# -- the page -------------------------------------------------------------------------------------


def test_a_page_of_times(browser, model):
    dbg = debug(model)
    view = TimeView(dbg)
    page = browser.new_page(viewport={"width": 900, "height": 900})
    h = host.Hosted(page, view, width=860)

    def wait(by: str) -> None:
        page.wait_for_selector(f"[data-by={by}][aria-pressed=true]")

    def shown(selector: str) -> list[int]:
        found = page.eval_on_selector_all(selector, "all => all.map((n) => n.dataset.value)")
        return [int(x) for x in found]

    total = dbg.times.passes[-1].total
    assert shown("tfoot .lv-num") == [total]
    assert sum(shown("tbody td:nth-child(3) .lv-num")) == total
    assert page.inner_text("tfoot td:last-child") == "= total"
    page.click("[data-by=node]")
    wait("node")
    assert sum(shown("tbody td:nth-child(3) .lv-num")) == total == shown("tfoot .lv-num")[0]
    page.click("text=Show 30 more nodes")
    page.wait_for_function("() => document.querySelectorAll('.lv-tm-table tbody tr').length > 50")

    page.click("[data-by=scope]")
    wait("scope")
    layers = page.locator(".lv-tm-toggle", has_text="3 layers")
    assert layers.get_attribute("aria-expanded") == "false"
    layers.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-part=layer-2]")
    assert page.evaluate("document.activeElement.textContent").endswith("3 layers")
    page.keyboard.press("Home")
    assert page.evaluate("document.activeElement.dataset.key") == "decode"

    prompt = page.locator("[data-pass='1']")
    assert int(prompt.get_attribute("data-value")) == dbg.times.passes[1].total
    page.locator(".lv-tm-pass[tabindex='0']").focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-pass='2'][aria-pressed=true]")
    assert view.time_pass == 2 and view.time_about["total"] == dbg.times.passes[2].total
    page.wait_for_function(
        "() => document.querySelector('[aria-live]').textContent.includes('pass 2')"
    )
    page.select_option("select", "1")
    page.wait_for_selector(".lv-tm-other")
    assert view.time_against == 1

    for scheme in ("light", "dark"):
        view.theme = scheme
        h.sync()
        page.wait_for_selector(f".llmviz[data-theme={scheme}]")
        found = page.evaluate(CONTRAST)
        assert found["n"] > 30 and found["bad"] == [] and found["small"] == []
    assert h.problems == []
    page.close()


def test_a_node_leads_to_the_graph_and_says_so_where_there_is_none(browser, model):
    view = TimeView(debug(model), time_by="node", projector=True)
    page = browser.new_page(viewport={"width": 900, "height": 900})
    h = host.Hosted(page, view, width=860)
    assert page.evaluate(CONTRAST)["smallest"] >= 18
    page.locator("[data-node]").first.click()
    page.wait_for_function(
        "() => document.querySelector('.lv-tm-note').textContent.includes('lv.show.graph')"
    )
    assert h.problems == []
    page.close()
