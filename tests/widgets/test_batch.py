"""The batch view: which ubatch a token went to, which cell it got, what it may look at."""

from __future__ import annotations

import os

import numpy as np
import pytest

pytest.importorskip("anywidget")

import llmviz
from llmviz import show
from llmviz.batch import Batch
from llmviz.errors import BatchError, LlmvizError
from llmviz.trace import Debugger
from llmviz.trace.batches import MASK, of_batch
from llmviz.widgets import BatchView, DebuggerPanel

from ..trace.test_batches import CONTEXTS, two
from . import host
from .test_page import CONTRAST

SHOTS = os.environ.get("LLMVIZ_SHOTS", "")


@pytest.fixture(scope="module")
def model(tiny_model):
    return llmviz.load(tiny_model())


def values(view) -> np.ndarray:
    return np.frombuffer(view.mask_values, "<f4").reshape(len(view.mask["rows"]), -1)


def test_a_large_batch_is_shown_through_windows(model):
    ctx = model.context(n_ctx=2048, n_ubatch=100)
    batch = Batch([7 + i % 50 for i in range(2000)])
    view = show.batch(batch, ctx)
    assert (
        view.about["n_tokens"] == 2000 and len(view.rows) == 64 and view.about["n_ubatches"] == 20
    )
    view.selected = 1234
    assert view.ubatch == 12 and view.find(1234) == {
        "ubatch": 12,
        "row": 34,
        "stream": 0,
        "cell": 1234,
    }
    assert any(r["i"] == 1234 for r in view.rows)
    row = next(k for k, r in enumerate(view.mask["rows"]) if r["i"] == 1234)
    first = view.mask["first_cell"]
    assert first <= 1234 < first + view.mask["n_cells"]
    want = of_batch(batch, ctx).mask(12).rows
    np.testing.assert_array_equal(values(view)[row], want[34, first : first + view.mask["n_cells"]])
    assert view.mask["rows"][row]["sees"] == "0–1234"
    view.selected, view.first = 10**6, 10**6
    assert view.selected == 1999 and view.rows[-1]["i"] == 1999
    view.ubatch = 3
    assert view.selected == -1 and view.mask["ubatch"] == 3
    assert ctx.memory.cells[0].n_used == 0
    assert len(view.fallback_text()) < 4000 and "<table>" in view.fallback_html()


def test_misuse_is_named(model):
    ctx = model.context(n_ctx=256)
    with pytest.raises(LlmvizError, match="give the context"):
        BatchView(Batch([1]))
    with pytest.raises(BatchError, match="invalid token"):
        BatchView(Batch([10**6]), ctx)
    with pytest.raises(TypeError, match="slected"):
        BatchView(Batch([1]), ctx, slected=3)
    view = BatchView(ctx)
    assert "decoded nothing" in view.about["reason"]
    ctx.decode(Batch([5, 6, 7]))
    view.refresh()
    assert view.about["state"] == "done" and view.about["n_tokens"] == 3
    with pytest.raises(LlmvizError, match="no token 9"):
        view.find(9)


def test_the_masks_of_a_run_are_the_graphs_own(model):
    with Debugger(model, list(range(20, 31)), n_predict=2, n_ctx=64, n_ubatch=4) as dbg:
        with BatchView(dbg) as view:
            assert "step 10" in view.about["reason"] and view.fallback_text()
            dbg.break_on("kq_soft_max-0")
            dbg.run()
            dbg.run()
            assert view.ubatch == 1 and view.mask["source"] == "input"
            np.testing.assert_array_equal(
                values(view), np.array(dbg.recorder.value(MASK).array).reshape(4, -1)[:, :8]
            )
            view.selected = 2
            assert view.ubatch == 0 and view.mask["source"] == "input"
            view.selected = 10
            assert view.ubatch == 2 and view.mask["source"] == "planned"
            rev = view.rev
        dbg.step_into()
        assert view.rev == rev, "closed"
        assert not dbg.recorder._kept._askers


def test_figures(model, tmp_path):
    for name, params in CONTEXTS.items():
        view = BatchView(two(), model.context(**params), selected=3)
        view.figure(for_print=True).savefig(tmp_path / "page.svg")
        text = (tmp_path / "page.svg").read_text()
        assert 'id="token-3"' in text and 'id="mask-' in text, name


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


def follow(page, view, i: int) -> None:
    """What is lit after token i was chosen: its ubatch, its cell, its row of the mask."""
    page.wait_for_selector(f"tr[data-i='{i}'][aria-selected='true']")
    went = view.find(i)
    lit = page.locator(".lv-batch-chip[data-lit]")
    assert lit.count() == 1 and lit.get_attribute("data-token") == str(i)
    cut = page.locator(".lv-batch-cut[aria-current]")
    assert cut.get_attribute("data-ubatch") == str(went["ubatch"])
    assert cut.locator(".lv-batch-chip[data-lit]").count() == 1
    mark = page.locator(".lv-batch .lv-heat > .lv-mark").first
    assert mark.get_attribute("data-row") == str(went["row"]) and mark.is_visible()
    cell = page.locator(".lv-batch-cell[data-lit]")
    assert cell.get_attribute("data-cell") == str(went["cell"])
    slot = page.locator(f"[data-ref='slot[{i}]']")
    assert slot.get_attribute("data-value") == str(went["cell"])
    assert slot.get_attribute("data-stream") == str(went["stream"])


@pytest.mark.browser
@pytest.mark.parametrize(("name", "scheme"), [("streams", "light"), ("unified", "dark")])
def test_which_ubatch_a_token_went_to(opened, model, name, scheme):
    """Click a token: its ubatch, its slot and its row of the mask light up; then decode agrees."""
    ctx = model.context(**CONTEXTS[name])
    batch = two()
    view = BatchView(batch, ctx)
    h = opened(view, scheme)
    page = h.page
    assert page.inner_text(".lv-batch .lv-tag[data-state]") == "hypothetical"
    page.click("tr[data-i='7'] button")
    follow(page, view, 7)
    spoken = page.inner_text("[aria-live='polite']")
    assert f"ubatch {view.find(7)['ubatch']}" in spoken
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    follow(page, view, 8)
    page.click(".lv-batch-chip[data-token='1']")
    follow(page, view, 1)
    # the mask under the keys is the mask's number
    page.focus(".lv-batch .lv-heat")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    number = page.locator(".lv-batch .lv-readout [data-value]")
    row, cell = map(int, number.get_attribute("data-ref")[len(MASK) + 1 : -1].split(","))
    shown = float(number.get_attribute("data-value").replace("Infinity", "inf"))
    assert shown == of_batch(batch, ctx).mask(view.ubatch).rows[row, cell]
    # sequences have colours of their own, and labels
    border = "e => getComputedStyle(e).borderLeftColor"
    of = [page.eval_on_selector(f"tr[data-i='{i}'] .lv-batch-seq", border) for i in (0, 7)]
    assert of[0] != of[1]
    assert page.inner_text("tr[data-i='0'] .lv-batch-seq") == "seq 0"
    assert page.inner_text("tr[data-i='7'] .lv-batch-seq") == "seq 1"
    found = page.evaluate(CONTRAST)
    assert found["n"] > 60 and found["bad"] == [] and found["small"] == []
    if SHOTS:
        page.locator(".llmviz").screenshot(path=f"{SHOTS}/batch-{scheme}.png")
    view.projector = True
    h.sync()
    page.wait_for_selector(".lv-projector")
    assert page.evaluate(CONTRAST)["smallest"] >= 18
    went = [view.find(i) for i in range(len(batch))]
    ctx.decode(batch)
    for i, x in enumerate(went):
        assert ctx.memory.cells[x["stream"]].tok[x["cell"]] == batch.token[i]
    view.close()


@pytest.mark.browser
def test_docked_it_opens_from_the_batch_to_the_slots(opened, model):
    with Debugger(model, list(range(20, 31)), n_predict=2, n_ctx=64, n_ubatch=4) as dbg:
        panel = DebuggerPanel(dbg)
        h = opened(panel, width=1400)
        seen = {}
        while dbg.here is None or dbg.here.step < 13:
            dbg.step_into()
            seen.setdefault((dbg.here.step, dbg.here.name), panel.view)
        assert {v for (step, _), v in seen.items() if step in (10, 11, 12)} == {"batch"}
        dbg.break_on("kq_soft_max-0")
        dbg.run()
        panel.view = "batch"
        h.sync()
        h.settle()
        h.page.click("[data-panel='batch'] tr[data-i='6'] button")
        follow(h.page, panel.part("batch"), 6)
        assert panel.batch_selected == 6 and panel.batch_mask["source"] == "planned"
        assert panel.figure("batch").findobj(lambda a: a.get_gid() == "token-6")
        panel.close()
        assert not dbg.recorder._kept._askers
