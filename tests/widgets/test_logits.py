"""The logits view's lens: read on request, held against an unwatched run, on one page."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("anywidget")

import llmviz
from llmviz.generate import generate_steps
from llmviz.trace import Debugger
from llmviz.trace.lens import LogitLens, entropy, rank_of
from llmviz.trace.summary import probabilities
from llmviz.widgets import LogitsView

from ..trace import toy
from . import host
from .test_page import CONTRAST
from .test_views import ask

PROMPT = [5, 9, 11, 7]
LAYERS = 4


@pytest.fixture(scope="module")
def model(tiny_model):
    return llmviz.load(tiny_model(n_layer=LAYERS))


def debug(model, n: int = 1, **params) -> Debugger:
    dbg = Debugger(model, PROMPT, n_predict=6, n_ctx=64, **params)
    for _ in range(n):
        dbg.next_token()
    return dbg


@pytest.fixture(scope="module")
def truth(model):
    """What each layer would say in each pass: logits by (pass, layer)."""
    lens, out, pass_ = LogitLens(model), {}, -1
    for event in generate_steps(model.context(n_ctx=64), PROMPT, None, 6):
        pass_ += event.kind == "enter" and event.name == "process_ubatch"
        if event.kind == "node" and event.name.startswith("l_out-"):
            out[pass_, int(event.name[6:])] = lens(np.array(event.value[-1]))
    return out


def number(ref: str, pass_: int, truth) -> float | None:
    """The number that a reference names; None for what is not the lens's."""
    m = re.search(r"lens\(l_out-(\d+)\[-1\]\)", ref)
    if m is None:
        return None
    x = truth[pass_, int(m[1])]
    if ref.startswith("entropy("):
        return entropy(x)
    if rank := re.match(r"rank\((\d+),", ref):
        return 1 + rank_of(int(rank[1]), x)
    token = int(re.search(r"\[(\d+)\]$", ref)[1])
    return float(probabilities(x)[token] if ref.startswith("softmax(") else x[token])


# -- the Python side -------------------------------------------------------------------------------


def test_nothing_is_read_until_it_is_asked_for(model) -> None:
    dbg = debug(model)
    view = LogitsView(dbg)
    assert not view.lens_about and not dbg.recorder.wants("l_out-0")
    view.lens = True
    assert view.lens_about == {"state": "waiting"} and not view.lens_rows
    assert dbg.recorder.wants("l_out-0")
    ask(view, ask="lens")
    assert view.lens_about["state"] == "read" and len(view.lens_rows) == LAYERS
    rows = view.lens_rows
    dbg.step_into()
    assert view.lens_rows == rows, "a step inside the same pass reads nothing"
    dbg.next_token()
    assert view.lens_about == {"state": "waiting"} and not view.lens_rows, "no older number stays"
    view.lens_token = 3
    assert view.read_early().token == view.lens_about["id"] == 3
    view.lens = False
    assert not view.lens_rows and not dbg.recorder.wants("l_out-0")
    view.lens = True
    view.close()
    assert not dbg.recorder.wants("l_out-0")


def test_what_is_missing_is_said(model) -> None:
    view = LogitsView(debug(model, 0), lens=True)
    assert view.lens_about["state"] == "missing" and "Next token" in view.lens_about["why"]
    dbg = Debugger(toy.run())
    dbg.next_token()
    view = LogitsView(dbg, lens=True)
    assert view.read_early() is None and "no weights" in view.lens_about["why"]


def test_the_figure_shows_the_same(model, truth) -> None:
    pytest.importorskip("matplotlib")
    view = LogitsView(debug(model), lens=True, lens_token=9)
    for size in ("slide", "page", "column"):
        figure = view.figure(size=size)
        figure.draw_without_rendering()
        (line,) = figure.findobj(lambda a: a.get_gid() == "rank")
        want = [1 + rank_of(9, truth[0, il]) for il in range(LAYERS)]
        assert line.get_xdata().tolist() == want
        bars = figure.findobj(lambda a: a.get_gid() == "entropy")
        np.testing.assert_allclose(
            [b.get_width() for b in bars], [entropy(truth[0, i]) for i in range(LAYERS)], rtol=1e-4
        )


# -- the page --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    with host.chromium() as running:
        yield running


@pytest.fixture
def opened(browser):
    made = []

    def make(view, scheme="light", width=960):
        context = browser.new_context(
            color_scheme=scheme, viewport={"width": width + 40, "height": 1100}
        )
        made.append((context, host.Hosted(context.new_page(), view, width=width)))
        return made[-1][1]

    yield make
    for context, h in made:
        h.view.close()
        context.close()
        assert h.problems == []


@pytest.mark.browser
def test_every_layer_on_the_page(opened, model, truth) -> None:
    dbg = debug(model)
    h = opened(LogitsView(dbg))
    page = h.page
    assert not any(m["ask"] == "lens" for m in h.asked)
    page.click("[data-lens]")
    page.wait_for_selector(".lv-lens tbody tr")
    page.focus(".lv-lens table")
    for key, layer in (("ArrowDown", 0), ("ArrowDown", 1), ("End", LAYERS - 1), ("Home", 0)):
        page.keyboard.press(key)
        page.wait_for_selector(f".lv-lens tr[data-layer='{layer}'][data-at]")
    assert "entropy" in page.inner_text("[aria-live=polite]")
    for pass_ in (0, 1):
        seen = 0
        for ref, value in page.eval_on_selector_all(
            ".lv-lens [data-ref]", "l => l.map(e => [e.dataset.ref, Number(e.dataset.value)])"
        ):
            want = number(ref, pass_, truth)
            assert want is not None and value == pytest.approx(want, rel=1e-4), ref
            seen += 1
        assert seen >= 3 * LAYERS
        dbg.next_token()
        h.sync()
        page.wait_for_function(
            "n => window.model.get('lens_about').state === 'read'"
            " && window.model.get('lens_about').pos === n",
            arg=len(dbg.tokens) - 1,
        )
        page.wait_for_selector(".lv-lens tbody tr")
    found = page.evaluate(CONTRAST)
    assert found["bad"] == [] and found["small"] == []


@pytest.mark.browser
@pytest.mark.slow
@host.PICTURES
def test_pictures(opened, smollm2_path) -> None:
    """The lens over a real model, as the documentation shows it."""
    options = {"n_ctx": 256, "n_predict": 2}
    dbg = Debugger(llmviz.load(smollm2_path), "The capital of France is", **options)
    dbg.next_token()
    folder = Path(os.environ["LLMVIZ_SCREENSHOTS"])
    for scheme in ("light", "dark"):
        h = opened(LogitsView(dbg, lens=True), scheme)
        h.page.wait_for_selector(".lv-lens tbody tr")
        assert h.view.lens_about["settled"] == 29 and h.view.lens_rows[22]["rank"] > 2000
        h.page.locator(".llmviz").screenshot(path=folder / f"logits-{scheme}.png")
