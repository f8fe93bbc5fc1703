"""The attention view: three stages and the grid of all heads, against an unwatched run."""

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
from llmviz.trace.overview import DROPPED
from llmviz.widgets import AttentionView
from llmviz.widgets.picture import MINUS_INF, NAN

from . import host
from .test_page import CONTRAST
from .test_views import ask

PROMPT = [5, 9, 11, 7, 5, 9, 11, 7, 5]
LAYERS = 3


@pytest.fixture(scope="module")
def model(tiny_model):
    return llmviz.load(tiny_model(n_layer=LAYERS, n_head=4))


def debug(model, n: int = 3, **params) -> Debugger:
    dbg = Debugger(model, PROMPT, n_predict=4, n_ctx=64, **params)
    for _ in range(n):
        dbg.next_token()
    return dbg


class Truth:
    """Rows of attention of an unwatched run, by node and position."""

    def __init__(self, model) -> None:
        self.rows: dict[tuple[str, int], np.ndarray] = {}
        q: list[int] = []
        for event in generate_steps(model.context(n_ctx=64), PROMPT, None, 4):
            if event.name == "inp_pos":
                q = np.array(event.value).reshape(-1).tolist()
            if event.name == "attn_inp_kq_mask":
                for i, pos in enumerate(q):
                    self.rows["mask", pos] = np.array(event.value)[i]
            if event.kind == "node" and re.fullmatch(r"kq(_soft_max)?-\d+", event.name):
                for i, pos in enumerate(q):
                    self.rows[event.name, pos] = np.array(event.value[:, i])

    def at(self, ref: str) -> float | None:
        """The number that a reference names; None for what it does not cover."""
        m = re.match(r"(kq(?:_soft_max)?-\d+)\[(\d+),pos (\d+),pos (\d+)\](.*)", ref)
        if m is not None:
            head, q, k = (int(x) for x in m.groups()[1:4])
            x = self.rows[m[1], q][head, k]
            scale = re.match(r" \* (\S+) \+ attn_inp_kq_mask", m[5])
            return float(x * np.float32(scale[1]) + self.rows["mask", q][k]) if scale else float(x)
        m = re.fullmatch(r"sum\((kq_soft_max-\d+)\[(\d+),pos (\d+)\]\)", ref)
        if m is not None:
            return float(self.rows[m[1], int(m[3])][int(m[2])].sum(dtype=np.float64))
        return None


@pytest.fixture(scope="module")
def truth(model) -> Truth:
    return Truth(model)


# -- the Python side -------------------------------------------------------------------------------


def test_a_stage_asks_for_one_layer_and_lets_go(model) -> None:
    dbg = debug(model, 1)
    view = AttentionView(dbg, layer=1)
    names = {f"kq-{il}" for il in range(LAYERS)}
    assert not any(dbg.recorder.wants(n) for n in names)
    view.stage = "scores"
    assert [n for n in sorted(names) if dbg.recorder.wants(n)] == ["kq-1"]
    view.layer = 2
    assert [n for n in sorted(names) if dbg.recorder.wants(n)] == ["kq-2"]
    view.stage = "softmax"
    assert not any(dbg.recorder.wants(n) for n in names)
    view.stage = "masked"
    view.close()
    assert not any(dbg.recorder.wants(n) for n in names)


def test_stages_as_bytes(model) -> None:
    dbg = debug(model)
    view = AttentionView(dbg, layer=1, head=2, stage="masked")
    n = len(view.axis)
    assert view.attention_about["missing"] == n and view.attention == bytes([NAN]) * n * n
    view.fetch_scores()
    cells = np.frombuffer(view.attention, np.uint8).reshape(n, n)
    shut = np.frombuffer(view.shut, np.uint8).reshape(n, n)
    prompt = len(PROMPT)
    assert (cells[shut == 1] == MINUS_INF).all()
    assert (shut[:prompt, :prompt] == np.triu(np.ones((prompt, prompt)), 1)).all()
    assert (cells[:prompt, prompt:] == NAN).all(), "not in the cache when the prompt was computed"
    high = view.attention_about["high"]
    view.stage = "scores"
    head = model.hparams.n_embd_head_k
    assert view.attention_about["high"] * head**-0.5 == pytest.approx(high)
    reply = ask(view, ask="weight", row=1, column=3)["value"]
    assert reply["mask"] == "-inf" and reply["value"] == reply["raw"]


def test_figures_of_the_stages(model) -> None:
    pytest.importorskip("matplotlib")
    view = AttentionView(debug(model), layer=1, head=2, stage="masked")
    figure = view.figure()
    struck = figure.findobj(lambda a: a.get_gid() == "masked")
    assert len(struck) == len(PROMPT) * (len(PROMPT) - 1) // 2
    view.fetch_scores()
    (image,) = figure.findobj(lambda a: a.get_gid() == "weights")
    want = np.ma.masked_invalid(view._shown.values)
    np.testing.assert_array_equal(image.get_array(), want)
    view.figure(stage="scores", head="all", theme="dark", size="slide").draw_without_rendering()


# -- the page --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    with host.chromium() as running:
        yield running


@pytest.fixture
def opened(browser):
    made = []

    def make(view, scheme="light", width=1240):
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


NUMBERS = "l => l.map(e => [e.dataset.ref, e.dataset.value])"


@pytest.mark.browser
def test_every_number_of_every_stage_is_the_engines(opened, model, truth) -> None:
    h = opened(AttentionView(debug(model), layer=1, head=2))
    page, seen = h.page, set()
    for stage, key in (("scores", "1"), ("masked", "2"), ("softmax", "3")):
        page.focus(".lv-attention .lv-heat")
        page.keyboard.press(key)
        page.wait_for_function(
            "s => { const a = window.model.get('attention_about');"
            " return a.stage === s && !a.missing; }",
            arg=stage,
        )
        page.wait_for_selector(f"[data-stage={stage}][aria-pressed=true]")
        for move in ("PageDown", "Home", "ArrowRight", "ArrowRight"):
            page.keyboard.press(move)
        place = f"pos {len(PROMPT) - 1},pos 2]"
        page.wait_for_selector(f".lv-attention .lv-scale [data-ref*='{place}']")
        if stage != "softmax":
            page.keyboard.press("PageUp")
            page.wait_for_selector(".lv-attention .lv-scale [data-ref*='pos 0,pos 2]']")
        for ref, value in page.eval_on_selector_all("[data-ref]", NUMBERS):
            want = truth.at(ref)
            if want is not None:
                assert np.float32(value) == np.float32(want), ref
                seen.add(ref)
        text = page.inner_text(".lv-attention")
        if stage == "masked":
            assert "masked" in page.inner_text(".lv-readout") and "× 0." in text
            assert page.locator(".lv-att-shut path").count() == 1
        elif stage == "scores":
            assert "later tokens have scores too" in text
        else:
            sums = page.eval_on_selector_all(".lv-att-sums [data-value]", NUMBERS)
            assert len(sums) == len(h.view.axis)
            assert all(abs(float(v) - 1) < 1e-6 for _, v in sums)
    assert len(seen) > 45


@pytest.mark.browser
def test_the_grid_measures_names_what_is_gone_and_fills_it(opened, model) -> None:
    dbg = debug(model, budget=2500)
    view = AttentionView(dbg, layer=0)
    h = opened(view)
    page = h.page
    page.wait_for_selector("[data-dropped='1–2']")
    assert page.locator(".lv-over-gone").count() == 1
    page.click("[data-measure=induction]")
    page.wait_for_function("window.model.get('measure') === 'induction'")
    assert "second A to B" in page.inner_text(".lv-over-box")
    n = dbg.n
    page.click("[data-fill]")
    page.wait_for_selector("[data-dropped]", state="detached")
    assert dbg.n == n and DROPPED not in view.overview_about["states"]
    page.hover(".lv-over canvas", position={"x": 3, "y": 20})
    page.wait_for_selector(".lv-over-box .lv-readout [data-ref^='induction_score(kq_soft_max-']")
    ref, value = page.eval_on_selector_all(".lv-over-box .lv-readout [data-ref]", NUMBERS)[0]
    il, head = (int(x) for x in re.findall(r"\d+", ref))
    assert np.float32(value) == np.frombuffer(view.overview, "<f4").reshape(LAYERS, -1)[il, head]
    page.focus("[data-measure=induction]")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    page.wait_for_function("window.model.get('measure') === 'first'")
    view.projector = True
    h.sync()
    found = page.evaluate(CONTRAST)
    assert found["bad"] == [] and found["smallest"] >= 18


@pytest.mark.browser
def test_a_replay_that_would_take_long_is_asked_for(opened, model) -> None:
    dbg = debug(model)
    dbg.seconds[13] = 60.0  # as if a long prompt had been computed
    h = opened(AttentionView(dbg, layer=1))
    h.page.click("[data-stage=scores]")
    h.page.wait_for_selector("[data-scores]")
    assert "again (up to 60.0 s)" in h.page.inner_text("[data-scores]")
    assert not any(m["ask"] == "scores" for m in h.asked)
    h.page.click("[data-scores]")
    h.page.wait_for_function("!window.model.get('attention_about').missing")
    h.page.wait_for_selector("[data-scores]", state="detached")


@pytest.mark.browser
@pytest.mark.slow
@host.PICTURES
def test_pictures(opened, smollm2_path) -> None:
    """The stages and the grid of a real model, as the documentation shows them."""
    text = "The capital of France is Paris. The capital of Spain is Madrid. The capital of"
    dbg = Debugger(llmviz.load(smollm2_path), text, n_ctx=256, n_predict=2)
    dbg.next_token()
    folder = Path(os.environ["LLMVIZ_SCREENSHOTS"])
    for scheme in ("light", "dark"):
        view = AttentionView(dbg, layer=17, head=5, measure="induction")
        assert view.overview_about["best"][:2] == [17, 5], "the head that copies what came next"
        page = opened(view, scheme).page
        for stage, name in (("softmax", "attention"), ("masked", "attention-masked")):
            page.click(f"[data-stage={stage}]")
            page.wait_for_function(
                "s => { const a = window.model.get('attention_about');"
                " const late = document.querySelector('[data-scores]');"
                " if (late) late.click();"
                " return a.stage === s && !a.missing; }",
                arg=stage,
            )
            page.wait_for_selector(f"[data-stage={stage}][aria-pressed=true]")
            page.locator(".llmviz").screenshot(path=folder / f"{name}-{scheme}.png")
