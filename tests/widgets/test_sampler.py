"""The sampler view: its strip is the engine's, a moved parameter replays it, the page shows it."""

from __future__ import annotations

import time

import numpy as np
import pytest

pytest.importorskip("anywidget")

import llmviz
from llmviz.errors import LlmvizError
from llmviz.sampling import Chain, Dist, Greedy, MinP, Penalties, Temp, TopK, TopP
from llmviz.sampling.candidates import TokenDataArray
from llmviz.trace import Debugger, DebuggerError
from llmviz.trace.filmstrip import moment_of, replay
from llmviz.widgets.sampler import SamplerView

from ..trace import toy
from . import host
from .test_page import CONTRAST
from .test_views import ask

PROMPT = "The cat sat on the mat"


@pytest.fixture(scope="module")
def model(tiny_model):
    return llmviz.load(tiny_model())


def chain() -> Chain:
    return Chain([Penalties(64, 1.2), TopK(8), TopP(0.8), MinP(0.2), Temp(0.7), Dist(seed=7)])


def debug(model, samplers=None, n_predict=4) -> Debugger:
    return Debugger(model, PROMPT, samplers or chain(), n_predict=n_predict, n_ctx=256)


@pytest.fixture
def dbg(model):
    run = debug(model)
    for _ in range(3):
        run.next_token()
    return run


def probabilities(view: SamplerView) -> np.ndarray:
    flat = np.frombuffer(view.strip_p, "<f4")
    return flat.reshape(-1, len(view.strip_rows))


def recorded(model) -> list[list]:
    """What the engine's own events said at each token: an independent run."""
    found: list[list] = []
    run = debug(model)
    while run.step_into() is not None and not run.finished:
        if run.here.kind == "enter" and run.here.name == "sample":
            found.append([])
        elif run.here.step == 15 and hasattr(run.here.about, "why"):
            found[-1].append(run.here.about)
    return found


def test_the_strip_of_every_token_is_what_the_engine_did(model, dbg):
    truth = recorded(model)
    view = SamplerView(dbg)
    chosen = [k for k in dbg.tokens if not k.given]
    for token, steps in zip(chosen, truth, strict=False):
        view.selected = token.pos
        s = view.strip
        assert (s["pos"], s["taken"], s["was"], s["chosen"]) == (token.pos, *[token.id] * 3)
        assert [f["why"] for f in s["frames"]] == [x.why for x in steps]
        assert [f["draw"] for f in s["frames"]] == [x.draw for x in steps]
        assert [f["after"] for f in s["frames"]] == [x.after.size for x in steps]
        p = probabilities(view)
        for row, step in enumerate(steps, 1):
            after = dict(zip(step.after.id.tolist(), step.after.probabilities(), strict=True))
            for column, entry in enumerate(view.strip_rows):
                want = after.get(entry["id"])
                got = p[row, column]
                assert np.isnan(got) if want is None else np.isclose(got, want, rtol=1e-6)


def test_what_is_not_shown_is_counted(dbg):
    view = SamplerView(dbg, n_rows=3)
    p = probabilities(view)
    for row, rest in enumerate(view.strip_rest):
        assert np.nansum(p[row]) + rest["p"] == pytest.approx(1, abs=1e-5)
    assert view.strip_rest[0]["n"] == view.strip["n_vocab"] - len(view.strip_rows)
    assert view.strip["n_shown"] == len(view.strip_rows) >= 3


def test_before_the_token_is_drawn_the_strip_says_what_will_be(model):
    run = debug(model)
    run.break_on("logits")
    run.run()
    view = SamplerView(run)
    coming = view.strip["chosen"]
    assert view.strip["taken"] is None
    run.break_on("top_p")
    run.run()
    assert [f["now"] for f in view.strip["frames"]] == [False, False, True, False, False, False]
    run.clear_break()
    run.next_token()
    assert run.tokens[-1].id == coming == view.strip["taken"]


def test_another_parameter_replays_without_moving_the_run(dbg):
    view = SamplerView(dbg)
    n, state, was = dbg.n, dbg.chain.samplers[-1].rng.clone(), view.strip_p
    view.replay_with("top-k", k=2)
    view.replay_with("temp", t=2.0)
    frames = view.strip["frames"]
    assert frames[1]["after"] == 2 and frames[1]["params"][0] == {
        **{"name": "k", "value": 2, "was": 8, "low": 0, "high": 100, "step": 1, "whole": True}
    }
    assert frames[4]["params"][0]["value"] == 2.0 and view.strip_was != b""
    expected = TokenDataArray.from_logits(dbg.recorder.logits)
    moment = moment_of(dbg)
    again = replay(moment, {1: {"k": 2}, 4: {"t": 2.0}})
    assert view.strip["chosen"] == again.chosen and expected.size == view.strip["n_vocab"]
    assert dbg.n == n and dbg.chain.samplers[-1].rng.uniform() == state.uniform()
    view.put_back()
    assert view.strip_was == b"" and view.strip_p == was


def test_apply_again_gives_what_the_replay_promised(dbg):
    view = SamplerView(dbg)
    for seed in range(20):
        view.replay_with("dist", seed=seed)
        if view.strip["chosen"] != view.strip["was"]:
            break
    promised, pos = view.strip["chosen"], view.strip["pos"]
    view.apply(again=True)
    assert view.what_if == {} and view.strip["chosen"] == promised
    dbg.next_token()
    assert (dbg.tokens[-1].id, dbg.tokens[-1].pos) == (promised, pos)
    assert view.strip["taken"] == view.strip["was"] == promised


def test_apply_changes_what_comes(dbg):
    view = SamplerView(dbg)
    view.replay_with("top-k", k=1)
    assert ask(view, ask="sampler-apply").get("error") is None
    assert dbg.chain.samplers[1].k == 1
    dbg.next_token()
    assert view.strip["frames"][1]["after"] == 1
    assert view.strip["chosen"] == view.strip["taken"] == dbg.tokens[-1].id


def test_bad_numbers_are_refused_where_they_can_be_read(dbg):
    view = SamplerView(dbg)
    before = view.strip
    for changes in ({"1": {"k": 1.5}}, {"1": {"kk": 1}}, {"77": {"k": 1}}, {"x": {"k": 1}}):
        assert "error" in ask(view, ask="sampler-try", changes=changes)
        assert view.error["text"] and view.what_if == {} and view.strip == before
    with pytest.raises(DebuggerError, match="no sampler 'typical'"):
        view.replay_with("typical", p=0.5)
    with pytest.raises(LlmvizError):
        view.replay_with("temp", t="hot")


def test_a_stream_of_events_says_why_there_is_no_strip():
    run = Debugger(toy.run())
    view = SamplerView(run)
    assert view.strip["frames"] == []
    run.next_token()
    assert "no sampler chain" in view.strip["reason"] and "no sampler chain" in repr(view)


def test_a_greedy_chain_has_no_draw(model):
    run = debug(model, Chain([TopK(3), Greedy()]))
    run.next_token()
    view = SamplerView(run)
    assert view.strip["draw"] is None and view.strip_segments == []
    assert view.strip["chosen"] == run.tokens[-1].id
    assert view.figure(size="slide") is not None


def test_segments_are_the_line_that_the_draw_falls_on(dbg):
    view = SamplerView(dbg)
    at = view.strip["draw"]
    hit = next(s for s in view.strip_segments if s["id"] == view.strip["chosen"])
    assert hit["start"] <= at <= hit["end"]
    starts = [s["start"] for s in view.strip_segments]
    assert starts == sorted(starts) and view.strip_segments[-1]["end"] == pytest.approx(1)


def test_fallbacks_and_figures(dbg, tmp_path):
    view = SamplerView(dbg)
    assert "top-k (k = 8): kept the 8 largest" in view.fallback_text()
    assert "<table>" in view.fallback_html() and "<script" not in view.fallback_html()
    for size in ("page", "slide", "column"):
        for theme in ("light", "dark"):
            view.figure(size=size, theme=theme).savefig(tmp_path / f"{size}-{theme}.svg")
    svg = (tmp_path / "page-light.svg").read_text()
    assert f"draw-{view.strip['chosen']}" in svg


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
            viewport={"width": width + 40, "height": 1000}, color_scheme=scheme
        )
        page = host.Hosted(context.new_page(), view, width=width)
        pages.append((context, page))
        return page

    yield open_view
    for context, page in pages:
        context.close()
        assert page.problems == []


@pytest.mark.browser
def test_shown_numbers_are_the_engines(opened, dbg):
    view = SamplerView(dbg)
    page = opened(view).page
    p, rows = probabilities(view), view.strip_rows
    cells = page.eval_on_selector_all(
        "tbody td[data-row]",
        "l => l.map(e => [+e.dataset.row, +e.dataset.frame, e.dataset.state,"
        " e.querySelector('[data-value]')?.dataset.value])",
    )
    assert len(cells) == p.size
    for row, stage, state, value in cells:
        if state == "left":
            assert np.float32(value) == p[stage, row]
        else:
            assert value is None and (np.isnan(p[stage, row]) or p[stage, row] == 0)
    chosen = page.get_attribute("tr[data-chosen]", "data-token-id")
    assert chosen == str(view.strip["chosen"])
    assert page.get_attribute("[data-ref='sampler.draw']", "data-value") == str(view.strip["draw"])
    assert rows[0]["id"] == int(page.get_attribute("tbody tr", "data-token-id"))
    for frame in view.strip["frames"]:
        if not frame["off"]:
            assert page.inner_text(f"[data-why='{frame['name']}']") == frame["why"]


@pytest.mark.browser
def test_a_slider_replays_and_the_buttons_apply(opened, dbg):
    view = SamplerView(dbg)
    h = opened(view)
    page = h.page
    page.focus("[data-slider='1.k']")
    page.keyboard.press("Home")
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("document.querySelector('[data-sampler=top-k] b')?.textContent == '2'")
    page.wait_for_selector("[data-action=sampler-apply]")
    assert page.evaluate("document.activeElement.dataset.slider") == "1.k"
    assert view.what_if == {"1": {"k": 2}} and page.input_value("[data-param='1.k']") == "2"
    cut = page.locator("td[data-frame='2'][data-state=cut]")
    assert cut.count() >= 8 and cut.first.inner_text() == "cut"
    page.click("[data-action=sampler-reset]")
    page.wait_for_selector("[data-action=sampler-apply]", state="detached")
    assert page.input_value("[data-param='1.k']") == "8"
    page.fill("[data-param='4.t']", "1.5")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-action=sampler-apply]")
    page.click("[data-action=sampler-apply]")
    page.wait_for_selector("[data-action=sampler-apply]", state="detached")
    assert dbg.chain.samplers[4].t == 1.5


@pytest.mark.browser
def test_why_a_candidate_was_cut_by_keyboard(opened, dbg):
    view = SamplerView(dbg)
    page = opened(view).page
    page.focus("tbody td[tabindex='0']")
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    for _ in range(20):
        page.keyboard.press("ArrowDown")
    cell = page.evaluate("({...document.activeElement.dataset})")
    assert cell["row"] == str(len(view.strip_rows) - 1)
    cut = page.locator("td[data-state=cut]").first
    cut.focus()
    by = view.strip["frames"][int(cut.get_attribute("data-frame")) - 1]
    said = page.inner_text("output.lv-readout")
    assert f"cut by {by['name']}" in said and by["why"] in said
    assert page.locator("tbody td[tabindex='0']").count() == 1


@pytest.mark.browser
def test_legible_in_both_themes_and_on_a_projector(opened, dbg):
    view = SamplerView(dbg)
    view.replay_with("temp", t=1.3)
    h = opened(view)
    page = h.page
    for scheme in h.themes():
        found = page.evaluate(CONTRAST)
        assert found["n"] > 60 and found["bad"] == [] and found["small"] == [], scheme
    view.projector = True
    h.sync()
    page.wait_for_selector(".lv-projector")
    assert page.evaluate(CONTRAST)["smallest"] >= 18
    table = page.locator(".lv-film-scroll")
    assert table.evaluate("e => e.scrollWidth <= e.clientWidth + 1")


@pytest.mark.browser
def test_a_real_vocabulary_replays_at_once(opened, smollm2_path):
    run = Debugger(str(smollm2_path), "The best thing about Paris is", n_ctx=256)
    run.next_token()
    view = SamplerView(run)
    start = time.perf_counter()
    view.replay_with("temp", t=1.5)
    assert time.perf_counter() - start < 0.5
    page = opened(view).page
    assert page.locator("tbody tr[data-token-id]").count() == len(view.strip_rows)
    assert "of 49,152 candidates" in page.inner_text("header")
