"""The list of findings: what the sentinels found, and the way to it."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("anywidget")

import llmviz
from llmviz import show
from llmviz.errors import LlmvizError
from llmviz.sampling import Chain, Greedy
from llmviz.trace import Debugger, open_trace
from llmviz.widgets import SentinelsView

from . import host
from .test_page import CONTRAST


@pytest.fixture(scope="module")
def model(tiny_model):
    return llmviz.load(tiny_model(n_layer=2))


def broken(model) -> Debugger:
    """A run that ends where NaN has come to its logits."""

    def put(x, tensor):
        x[0, 3] = math.nan
        return x

    dbg = Debugger(model, [1, 262, 270], Chain([Greedy()]), n_predict=4, n_ctx=64)
    dbg.next_token()
    dbg.intervene("ffn_out-1", put)
    with pytest.raises(LlmvizError):
        dbg.next_token()
    return dbg


def test_findings_switches_and_where_it_began(model):
    dbg = broken(model)
    view = show.sentinels(dbg)
    (f,) = view.findings
    assert (f["kind"], f["name"], f["past"]) == ("nan", "logits", True)
    assert [s["kind"] for s in view.sentinels] == ["nan", "norm", "attention", "softcap"]
    n = dbg.n
    view.find_nan_origin(0)
    assert (
        view.nan_origin["name"] == "ffn_out-1" and view.nan_origin["n_of"] == f["n"] and dbg.n == n
    )
    view.switch_sentinel("norm", False)
    view.stop_on_finding("nan")
    assert [s["on"] for s in view.sentinels] == [True, False, True, True]
    assert view.sentinels[0]["stop"] and len(dbg.breakpoints) == 1
    assert "NaN" in view.fallback_text() and "<table>" in view.fallback_html()
    dbg.undo_edit(dbg.edits[-1])
    assert view.findings == [] and view.nan_origin == {} and "so far" in view.fallback_text()


def test_a_trace_has_none(model, tmp_path):
    dbg = broken(model)
    dbg.save(tmp_path / "run.zarr.zip")
    with open_trace(tmp_path / "run.zarr.zip") as trace:
        view = SentinelsView(trace)
        assert view.findings == [] and view.sentinels == []


@pytest.fixture(scope="module")
def browser():
    with host.chromium() as running:
        yield running


@pytest.mark.browser
def test_the_page_leads_to_where_it_began(browser, model):
    dbg = broken(model)
    view = SentinelsView(dbg)
    context = browser.new_context(viewport={"width": 520, "height": 700})
    h = host.Hosted(context.new_page(), view, width=460)
    page = h.page
    assert "NaN" in page.inner_text("[data-finding]")
    page.click("[data-action=sentinel-origin]")
    page.wait_for_selector(
        f"[data-go='{view.nan_origin.get('n')}']" if view.nan_origin else ".lv-sn-list p + p"
    )
    page.click(".lv-sn-list p + p [data-go]")
    h.settle()
    assert dbg.here.name == "ffn_out-1" and math.isnan(dbg.here.value[0, 3])
    page.click("summary")
    page.click("[data-stops=attention]")
    page.wait_for_function("window.model.get('sentinels')[2].stop")
    assert dbg.sentinels["attention"].stop
    page.keyboard.press("Space")
    page.wait_for_function("!window.model.get('sentinels')[2].stop")
    for scheme in h.themes():
        found = page.evaluate(CONTRAST)
        assert found["n"] > 15 and found["bad"] == [] and found["small"] == [], scheme
    assert h.problems == []
    context.close()
