"""The compare view: opens where two runs part, and its numbers are those of both engines."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("anywidget")

import llmviz
from llmviz import plots, show
from llmviz.errors import LlmvizError
from llmviz.sampling import Chain, Greedy
from llmviz.trace import Comparison, Debugger, open_trace
from llmviz.widgets import CompareView, DebuggerPanel

from ..plots.runs import by_gid, texts
from . import host
from .test_page import CONTRAST

ONE, TWO = [1, 262, 270, 281], [1, 262, 275, 281]
HOSTILE = "<img src=x onerror=alert(1)>\u202e"


@pytest.fixture(scope="module")
def model(tiny_model):
    return llmviz.load(tiny_model(n_layer=3))


def debug(model, prompt=ONE, n_predict=3) -> Debugger:
    dbg = Debugger(model, prompt, Chain([Greedy()]), n_predict=n_predict, n_ctx=256)
    dbg.run_to_end()
    return dbg


def branched(model) -> tuple[Debugger, Comparison]:
    """A run, and a branch of it that has another value in its second pass."""
    dbg = debug(model)
    n = [r.n for r in dbg.events if r.name == "process_ubatch" and r.kind == "enter"][1]
    dbg.goto(n)
    dbg.scale("ffn_out-1", 1.5)
    dbg.run_to_end()
    return dbg, llmviz.compare((dbg, "main"), dbg)


def ask(view, **message):
    replies = []
    view.send = lambda content, buffers=None: replies.append(content)
    view._on_message(view, {"id": "1", **message}, [])
    return replies[-1]


def column(view, name, dtype="<f8"):
    return np.frombuffer(getattr(view, name), dtype)


# -- the view without a page ---------------------------------------------------------------------


def test_it_opens_at_the_first_diverging_node(model):
    _, c = branched(model)
    view = show.compare(c)
    assert view.pass_ == view.first_pass == 1
    assert view.node_names[view.first] == view.node["name"] == "ffn_out-1"
    assert view.chosen == view.first and view.node["kind"] == "feed-forward"
    assert column(view, "node_errors")[view.first] == pytest.approx(0.5)
    assert [d.error for d in c.nodes] == column(view, "node_errors").tolist()
    assert [d.max_abs for d in c.nodes] == column(view, "node_max").tolist()
    view.pass_ = 0
    assert view.first == -1 and view.first_pass == 1 and not column(view, "node_errors").any()
    view.pass_ = 99
    assert view.pass_ == len(c.passes) - 1


def test_both_values_and_their_difference(model):
    c = Comparison(debug(model), debug(model, TWO))
    view = CompareView(c)
    view.choose("kq_soft_max-1")
    assert view.window["lead"][0][1] == c.values("kq_soft_max-1")[0].shape[0]
    view.slice, view.origin = [1], [0, 0]
    a, b = c.values("kq_soft_max-1")
    reply = ask(view, ask="compare-values", node=view.chosen, row=2, column=1, rows=2, columns=2)[
        "value"
    ]
    np.testing.assert_array_equal(np.float32(reply["a"]), a[1, 2:4, 1:3])
    np.testing.assert_array_equal(np.float32(reply["b"]), b[1, 2:4, 1:3])
    np.testing.assert_array_equal(
        np.float64(reply["d"]), b[1, 2:4, 1:3].astype(float) - a[1, 2:4, 1:3]
    )
    assert reply["refs"][0][0] == "kq_soft_max-1[1,2,1]"
    size = view.window["rows"] * view.window["columns"]
    assert len(view.picture_a) == len(view.picture_b) == len(view.picture_d) == size
    stale = ask(view, ask="compare-values", node=0, row=0, column=0, rows=1, columns=1)
    assert stale["value"]["a"] == []
    d = c.node("l_out-0")
    view.choose("l_out-0")  # the window begins where the largest difference is
    row, col = d.difference.at
    w = view.window
    assert (
        w["row"] <= row < w["row"] + w["rows"] and w["column"] <= col < w["column"] + w["columns"]
    )


def test_the_tolerance_moves_the_first_node(model):
    c = Comparison(debug(model), debug(model, TWO))
    view = CompareView(c)
    errors = [d.error for d in c.nodes]
    limit = sorted(errors)[-4]
    view.tolerance = limit
    assert c.tolerance == limit and view.first == next(i for i, e in enumerate(errors) if e > limit)
    view.tolerance = 1e6
    assert view.first == view.first_pass == -1
    view.tolerance = -1.0
    assert "a tolerance is a number" in view.error["text"]


def test_a_run_that_moves_on_is_noticed(model):
    dbg, other = debug(model), Debugger(model, TWO, Chain([Greedy()]), n_predict=3, n_ctx=256)
    other.next_token()
    view = CompareView(Comparison(dbg, other))
    assert len(view.passes) == 1 and not view.moved
    other.next_token()
    assert view.moved
    ask(view, ask="compare-again")
    assert len(view.passes) == 2 and not view.moved
    view.close()
    other.next_token()  # nobody listens any more
    assert not view.moved


def test_a_patch_from_the_view(model):
    dbg, other = debug(model, n_predict=1), debug(model, TWO, n_predict=1)
    view = CompareView(Comparison(dbg, other))
    view.choose("l_out-1")
    ask(view, ask="compare-patch", into="a")
    assert view.patched["recovered"] == pytest.approx(1.0) and view.patched["into"] == "a"
    assert dbg.branch.name == view.patched["branch"] and view.node["name"] == "l_out-1"
    np.testing.assert_array_equal(dbg.recorder.logits, other.recorder.logits)


def test_what_cannot_be_patched_says_why(model, tmp_path):
    dbg = debug(model)
    dbg.save(tmp_path / "run.zarr.zip")
    with open_trace(tmp_path / "run.zarr.zip") as trace:
        view = CompareView(Comparison(debug(model, TWO), trace))
        view.choose("kq_soft_max-0")
        assert view.node["patches"] == ["", "a recording cannot be changed"]
        view.choose("l_out-0")
        assert view.node["patches"][0] == "the shapes differ" and view.window["why"]
        assert view.runs[1]["live"] is False
    longer = CompareView(Comparison(debug(model), debug(model, [*TWO, 290])))
    longer.choose("l_out-0")
    assert longer.node["note"] == "last token only" and longer.window["rows"] == 1
    reply = ask(longer, ask="compare-patch", into="a")
    assert "needs the same shape" in reply["error"] and longer.error["text"]


def test_misuse_and_fallbacks(model):
    c = Comparison(debug(model), debug(model, TWO), labels=(HOSTILE, "b"))
    with pytest.raises(TypeError, match="tolerence"):
        CompareView(c, tolerence=1)
    with pytest.raises(LlmvizError, match=r"as llmviz\.compare"):
        CompareView(object())
    view = CompareView(c)
    assert "<img" not in view.fallback_html() and "first node over" in view.fallback_text()
    bundle = c._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    assert "first node over" in data["text/plain"] and c.view is not None
    again = c._repr_mimebundle_()
    assert c.view is not None and again is not None
    shown = c.view
    c.close()
    assert shown.closed
    empty = CompareView(Comparison(debug(model), Debugger(model, TWO)))
    assert empty.passes == [] and empty.node == {} and "no pass yet" in empty.fallback_text()
    with pytest.raises(plots.NothingToDraw):
        empty.figure()


def test_the_figure_shows_the_same_numbers(model, tmp_path):
    _, c = branched(model)
    view = CompareView(c)
    figure = view.figure(theme="dark", size="column")
    drawn = np.concatenate(
        [
            by_gid(figure, f"nodes-{k.replace(' ', '-')}").get_offsets()
            for k in dict.fromkeys(d.kind for d in c.nodes)
        ]
    )
    errors = {d.i: d.error for d in c.nodes}
    assert len(drawn) == len(errors)
    for x, y in drawn:
        error = errors[int(x)]
        assert y == pytest.approx(np.log10(error)) if error else y < np.log10(c.tolerance)
    assert "ffn_out-1" in texts(figure)
    for size in ("page", "slide"):
        plots.compare(c, 0, size=size, for_print=True).savefig(tmp_path / f"{size}.svg")


# -- the page ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    with host.chromium() as running:
        yield running


@pytest.fixture
def opened(browser):
    pages = []

    def open_view(view, scheme="light", width=1240):
        size = {"width": width + 40, "height": 1500}
        context = browser.new_context(viewport=size, color_scheme=scheme)
        page = host.Hosted(context.new_page(), view, width=width)
        pages.append((context, page))
        return page

    yield open_view
    for context, page in pages:
        context.close()
        assert page.problems == []


@pytest.mark.browser
def test_the_page_opens_where_they_part_and_walks_along_depth(opened, model):
    _, c = branched(model)
    view = CompareView(c)
    h = opened(view)
    page = h.page
    assert "ffn_out-1" in page.inner_text(".lv-cp-verdict")
    assert page.get_attribute("tr[aria-selected=true]", "data-row") == str(view.first)
    shown = json.loads(
        page.evaluate(
            "JSON.stringify([...document.querySelectorAll('.lv-cp-dot[data-node]')]"
            ".map(e => [+e.dataset.node, +e.dataset.value]))"
        )
    )
    assert shown == [[d.i, d.error] for d in c.nodes]
    page.focus(".lv-cp-chart")
    page.keyboard.press("ArrowRight")
    after = c.nodes[view.first + 1]
    number = page.locator(".lv-cp > .lv-card-body output.lv-readout .lv-num").first
    assert float(number.get_attribute("data-value")) == after.error
    assert after.name in page.inner_text("[aria-live]")
    page.keyboard.press("Enter")
    page.wait_for_function(f"window.model.get('node').name === '{after.name}'")
    assert view.chosen == after.i
    page.focus("[data-heat=picture_a]")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".lv-cp-node output [data-ref^='d:']")
    w, (a, b) = view.window, c.values(after)
    place = (w["row"], w["column"] + 1) if w["rows"] == 1 else (w["row"] + 1, w["column"] + 1)
    for letter, x in (("a", a), ("b", b)):
        found = page.locator(f".lv-cp-node output [data-ref^='{letter}:']")
        assert np.float32(found.get_attribute("data-value")) == x[place]
    page.click("[data-pass='0']")
    page.wait_for_function("window.model.get('pass_') === 0")
    assert "No node of this pass" in page.inner_text(".lv-cp-verdict")
    assert page.evaluate("document.querySelectorAll('[tabindex=\"0\"]').length") < 40
    page.keyboard.press("Escape")


@pytest.mark.browser
def test_the_table_sorts_filters_and_chooses(opened, model):
    c = Comparison(debug(model), debug(model, TWO), labels=(HOSTILE, "b"))
    view = CompareView(c)
    page = opened(view).page
    assert page.locator("img").count() == 0 and "\u202e" not in page.inner_text("body")
    page.click("[data-sort=error]")
    rows = page.eval_on_selector_all(".lv-cp-table tbody tr", "l => l.map(e => +e.dataset.row)")
    assert rows == sorted(range(len(c.nodes)), key=lambda i: (c.nodes[i].error, -i), reverse=True)
    page.fill("input[type=search]", "kqv_out")
    page.wait_for_function("document.querySelectorAll('.lv-cp-table tbody tr').length === 3")
    page.click(".lv-cp-table tbody tr >> nth=0")
    page.wait_for_function("window.model.get('node').name.startsWith('kqv_out')")
    page.fill("input[type=search]", "")
    page.locator("input[type=range]").evaluate(
        "e => { e.value = 0; e.dispatchEvent(new Event('change')); }"
    )
    page.wait_for_function("window.model.get('tolerance') === 1")
    over = [d.i for d in c.nodes if d.error > 1]
    page.click("text=only over the tolerance")
    assert page.locator(".lv-cp-table tbody tr").count() == len(over)
    page.click("[data-action=compare-patch-a]")
    page.wait_for_selector(".lv-cp-patched")
    assert c.a.dbg.branch.name == view.patched["branch"]


@pytest.mark.browser
def test_legible_in_both_themes_and_on_a_projector(opened, model):
    view = CompareView(branched(model)[1])
    h = opened(view)
    for scheme in h.themes():
        found = h.page.evaluate(CONTRAST)
        assert found["n"] > 200 and found["bad"] == [] and found["small"] == [], scheme
    view.projector = True
    h.sync()
    h.page.wait_for_selector(".lv-projector")
    assert h.page.evaluate(CONTRAST)["smallest"] >= 18
    fits = "document.querySelector('.llmviz').scrollWidth <= 1242"
    assert h.page.evaluate(fits)


# -- docked --------------------------------------------------------------------------------------


def test_the_panel_lays_branches_side_by_side(model):
    dbg = debug(model)
    panel = DebuggerPanel(dbg)
    panel.view = "compare"
    assert "one run only" in panel.compare_missing
    n = [r.n for r in dbg.events if r.name == "process_ubatch" and r.kind == "enter"][1]
    dbg.goto(n)
    dbg.scale("ffn_out-1", 1.5)
    dbg.run_to_end()
    assert panel.compare_missing == "" and panel.compare_moved  # it looked when the edit was made
    ask(panel, dock="compare", ask="compare-again")
    assert panel.compare_node["name"] == "ffn_out-1" and panel.compare_pass_ == 1
    assert [r["label"] for r in panel.compare_runs] == ["branch main", "branch branch-1"]
    dbg.switch("main")
    assert [r["label"] for r in panel.compare_runs] == ["branch main", "branch branch-1"]
    dbg.goto(n)
    dbg.zero("l_out-0")
    assert [r["label"] for r in panel.compare_runs] == ["branch main", "branch branch-2"]
    other = debug(model, TWO)
    panel.compare_with(other)
    assert panel.compare_node["name"] == "embd" and panel.view == "compare"
    dbg.run_to_end()
    assert panel.compare_moved and panel.part("compare").comparison.b.dbg is other
    panel.compare_chosen = 3
    assert panel.part("compare").chosen == 3
    panel.close()


@pytest.mark.browser
def test_it_is_a_tab_of_the_panel(opened, model):
    dbg, _ = branched(model)
    panel = DebuggerPanel(dbg)
    page = opened(panel, width=1360).page
    page.click("[data-tab=compare]")
    page.wait_for_selector("[data-panel=compare] .lv-cp-verdict:visible")
    assert "ffn_out-1" in page.inner_text("[data-panel=compare] .lv-cp-verdict")
    page.click("[data-panel=compare] [data-pass='0']")
    page.wait_for_function("window.model.get('compare_pass_') === 0")
    assert "No node of this pass" in page.inner_text("[data-panel=compare] .lv-cp-verdict")
    found = page.evaluate(CONTRAST)
    assert found["bad"] == [] and found["small"] == []
