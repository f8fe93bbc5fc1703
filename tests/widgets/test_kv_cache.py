"""The KV view on one page: cells, the next search, sizes, and the norms under the pointer."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("anywidget")

import llmviz
from llmviz.trace import Debugger
from llmviz.widgets import KVCacheView
from llmviz.widgets.picture import LEVELS, NAN

from . import host
from .test_page import CONTRAST
from .test_views import ask

PROMPT = [5, 9, 11, 7, 6]
LAYERS = 3


@pytest.fixture(scope="module")
def model(tiny_model):
    return llmviz.load(tiny_model(n_layer=LAYERS))


def debug(model, n: int = 2) -> Debugger:
    dbg = Debugger(model, PROMPT, n_predict=5, n_ctx=512, type_k="f32", type_v="f32")
    for _ in range(n):
        dbg.next_token()
    return dbg


def norm(dbg: Debugger, ref: str) -> float:
    """The length of a row, from the engine's array."""
    what, il, cell = re.fullmatch(r"norm\(cache_([kv])_l(\d+)\[cell (\d+)\]\)", ref).groups()
    layer = dbg.ctx.memory.layer(int(il))
    row = layer.k[0, int(cell)] if what == "k" else layer.v[0][:, int(cell)]
    return float(np.linalg.norm(row.astype(np.float64)))


def test_norms_as_bytes_and_on_demand(model) -> None:
    dbg = debug(model)
    view = KVCacheView(dbg)
    (strip,) = view.strips
    shape = (2, LAYERS, strip["count"])
    cells = np.frombuffer(view.kv_norms, np.uint8).reshape(shape)
    used = len(PROMPT) + 1
    assert (cells[:, :, used:] == NAN).all() and cells[0, :, :used].max() == LEVELS
    for what in "kv":
        reply = ask(view, ask="kv_norm", strip=0, what=what, row=1, cell=2)["value"]
        assert float(reply["value"]) == pytest.approx(norm(dbg, reply["ref"]), rel=1e-6)
        level = cells["kv".index(what), 1, 2] / LEVELS * strip[f"{what}_high"]
        assert level == pytest.approx(float(reply["value"]), abs=strip[f"{what}_high"] / LEVELS)
    for bad in ({"row": 99}, {"cell": 10**6}, {"strip": 5}, {"what": "x"}, {"cell": used}):
        message = {"ask": "kv_norm", "strip": 0, "what": "k", "row": 0, "cell": 0, **bad}
        assert ask(view, **message)["value"]["value"] is None, bad
    assert strip["heads"] == [used] and view.cells["used"] == used


def test_the_figure_shows_sizes_and_the_next_search(model) -> None:
    pytest.importorskip("matplotlib")
    from llmviz import plots
    from llmviz.errors import LlmvizError

    dbg = debug(model)
    figure = plots.kv_cache(dbg)
    assert len(figure.findobj(lambda a: a.get_gid() == "search")) == 1
    with pytest.raises(LlmvizError, match="strip is 0"):
        plots.kv_cache(dbg, strip=3)


@pytest.fixture(scope="module")
def browser():
    with host.chromium() as running:
        yield running


@pytest.fixture
def opened(browser):
    made = []

    def make(view, scheme="light", width=960):
        context = browser.new_context(
            color_scheme=scheme, viewport={"width": width + 40, "height": 1000}
        )
        made.append((context, host.Hosted(context.new_page(), view, width=width)))
        return made[-1][1]

    yield make
    for context, h in made:
        h.view.close()
        context.close()
        assert h.problems == []


@pytest.mark.browser
def test_maps_by_pointer_and_keys(opened, model) -> None:
    dbg = debug(model)
    h = opened(KVCacheView(dbg))
    page = h.page
    assert page.get_attribute(".lv-head", "data-cell") == str(len(PROMPT) + 1)
    text = page.inner_text(".lv-kv")
    assert "256 cells, padded" in text and "begins at cell 6" in text
    seen = set()
    for what in "kv":
        heat = f"[data-norms={what}] .lv-heat"
        page.focus(heat)
        for key in ("Home", "ArrowRight", "ArrowDown", "End"):
            page.keyboard.press(key)
            page.wait_for_timeout(40)
            readout = f"[data-norms={what}] .lv-readout [data-value]"
            page.wait_for_selector(readout)
            ref, value = (page.get_attribute(readout, f"data-{a}") for a in ("ref", "value"))
            assert float(value) == pytest.approx(norm(dbg, ref), rel=1e-6)
            seen.add(ref)
        page.keyboard.press("Escape")
    assert len(seen) >= 6
    assert "layer 1, cell 5" in page.inner_text("[aria-live=polite]")
    dbg.break_on("kq_soft_max-1")
    dbg.run()
    h.sync()
    h.settle()
    page.focus("[data-norms=v] .lv-heat")
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "document.querySelector('[data-norms=v] .lv-readout').innerText.includes('not written yet')"
    )
    h.view.projector = True
    h.sync()
    found = page.evaluate(CONTRAST)
    assert found["bad"] == [] and found["smallest"] >= 18


@pytest.mark.browser
@pytest.mark.slow
@host.PICTURES
def test_pictures(opened, smollm2_path) -> None:
    """The cache of a real model in the middle of a pass, as the documentation shows it."""
    dbg = Debugger(llmviz.load(smollm2_path), "The capital of France is", n_ctx=512, n_predict=9)
    for _ in range(4):
        dbg.next_token()
    dbg.break_on("kq_soft_max-11")
    dbg.run()
    folder = Path(os.environ["LLMVIZ_SCREENSHOTS"])
    for scheme in ("light", "dark"):
        h = opened(KVCacheView(dbg), scheme)
        h.page.locator(".llmviz").screenshot(path=folder / f"kv-{scheme}.png")
