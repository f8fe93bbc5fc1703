"""The heads view: its shares are those of the run, and switching a head off is that very change."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("anywidget")

import llmviz
from llmviz import plots, show
from llmviz.generate import generate_steps
from llmviz.sampling import Chain, Greedy
from llmviz.trace import Debugger, DebuggerError
from llmviz.trace.attribution import Attribution, attribute, attribution_names
from llmviz.trace.shares import words
from llmviz.widgets import AttentionView, HeadsView

from ..trace import toy
from . import host
from .test_page import CONTRAST

PROMPT = [1, 262, 270, 281]
LAYERS, HEADS = 6, 4


@pytest.fixture(scope="module")
def model(tiny_model):
    return llmviz.load(tiny_model(n_layer=LAYERS, n_head=HEADS))


def debug(model, prompt=PROMPT, **options) -> Debugger:
    options = {"n_predict": 4, "n_ctx": 256, **options}
    return Debugger(model, prompt, Chain([Greedy()]), **options)


def shares_of(view) -> np.ndarray:
    return np.frombuffer(view.shares, "<f4").reshape(LAYERS, HEADS + 1)


def ask(view, **message):
    replies = []
    view.send = lambda content, buffers=None: replies.append(content)
    view._on_message(view, {"id": "1", **message}, [])
    return replies[-1]


def truth(model, n: int, token: int) -> Attribution:
    """The shares after n tokens, from whole values of a run that nobody looked at."""
    dbg = debug(model)
    dbg.recorder.ask(model, attribution_names(model).__contains__)
    for _ in range(n):
        dbg.next_token()
    return attribute(model, dbg.recorder, token)


def straight(model, n: int, layer: int = -1, head: int = -1) -> list[np.ndarray]:
    """Logits of the first passes of a run without a debugger, with one head's output zeroed."""
    found = []
    for event in generate_steps(model.context(n_ctx=256), PROMPT, Chain([Greedy()]), n):
        if event.kind == "node" and event.name == f"kqv_out-{layer}":
            x = np.array(event.value)
            width = x.shape[-1] // HEADS
            x[:, head * width : (head + 1) * width] = 0
            event.value = x
        if event.name == "logits" and event.step == 14:
            found.append(np.array(event.value)[-1])
    return found


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max())
    return e / e.sum()


# -- what is shown -------------------------------------------------------------------------------


def test_the_shares_are_the_attributions_and_add_up(model):
    dbg = debug(model)
    view = show.heads(dbg)
    assert isinstance(view, HeadsView) and view.shares == b""
    assert "Next token" in view.heads_about["why"]
    dbg.next_token()
    token, about = dbg.tokens[-1], view.heads_about
    want = truth(model, 1, token.id)
    shown = shares_of(view)
    assert np.array_equal(shown[:, :HEADS], want.heads) and np.array_equal(shown[:, -1], want.ffn)
    assert about["id"] == token.id and about["chosen"] and about["p"] == token.p_raw
    parts = about["heads"] + about["ffn"] + about["embedding"] + about["biases"]
    assert parts == pytest.approx(about["logit"], abs=1e-3) and about["whole"]
    assert [tuple(x[:3]) for x in about["top"]] == want.top_heads(5)
    assert about["top"][0][3] == words(want.top_heads(1)[0][2], about["logit"])
    assert (view.layer, view.head) == want.top_heads(1)[0][:2], "the largest is chosen first"
    assert view.heads_tokens[0]["id"] == int(dbg.recorder.logits.argmax())
    dbg.next_token()
    assert view.heads_about["pos"] == 5 and view.heads_about["id"] == dbg.tokens[-1].id


def test_another_token_is_split_by_id_or_by_its_text_for_this_pass_only(model):
    dbg = debug(model)
    view = HeadsView(dbg)
    dbg.next_token()
    other = view.heads_tokens[2]["id"]
    ask(view, ask="heads_token", token=other)
    want = truth(model, 1, other)
    assert view.token == other and np.array_equal(shares_of(view)[:, :HEADS], want.heads)
    assert not view.heads_about["chosen"]
    piece = model.vocab.token_to_piece(300, special=True).decode()
    assert "error" not in ask(view, ask="heads_token", token=piece)
    assert view.heads_about["id"] == 300
    assert "not one token" in ask(view, ask="heads_token", token="no such token at all")["error"]
    assert view.error["title"] and view.shares, "nothing was lost"
    dbg.next_token()
    assert view.token == -1 and view.heads_about["id"] == dbg.tokens[-1].id


def test_it_asks_the_recorder_only_while_it_is_open(model):
    dbg = debug(model)
    view = HeadsView(dbg)
    dbg.next_token()
    assert dbg.recorder.wants("kqv_out-0")
    assert dbg.recorder.value("kqv_out-0[-1]").array.shape[0] == 1, "of a long prompt one row"
    assert dbg.recorder.value("kqv_out-0") is None
    view.close()
    assert not dbg.recorder.wants("kqv_out-0") and dbg.recorder.value("kqv_out-0[-1]") is None
    dbg.next_token()


def test_a_long_prompt_needs_little_room(model):
    """Of 200 tokens one layer's values alone would not fit; their last rows do."""
    prompt = [1, *(262 + i % 40 for i in range(199))]
    dbg = debug(model, prompt, budget=48 << 10)  # attention of one layer would take 625 KiB
    view = HeadsView(dbg)
    dbg.next_token()
    roomy = debug(model, prompt)
    beside = HeadsView(roomy)
    roomy.next_token()
    assert view.shares and view.shares == beside.shares and view.heads_about["whole"]
    assert dbg.recorder.bytes_used <= 48 << 10


# -- measuring what was not kept -----------------------------------------------------------------


@pytest.mark.parametrize("stop", ["token", "kqv_out-3"])
def test_a_token_is_measured_by_a_silent_replay(model, stop):
    """Also from the middle of the next pass, a part of which the recorder has seen."""
    dbg = debug(model)
    dbg.next_token()
    first = dbg.tokens[-1].id
    if stop != "token":
        dbg.break_on("attn_norm-1")
        dbg.run()
    view = HeadsView(dbg)
    if stop != "token":
        dbg.clear_break()
        dbg.break_on(stop)
        dbg.run()
    about = view.heads_about
    assert not view.shares and about["measurable"] and "not kept" in about["why"]
    told: list[int] = []
    end = dbg.on_change(lambda: told.append(dbg.n))
    before = (dbg.n, dbg.here.name, len(dbg.events), dbg.recorder.logits.tobytes(), len(dbg.tokens))
    assert "error" not in ask(view, ask="heads_measure")
    end()
    after = (dbg.n, dbg.here.name, len(dbg.events), dbg.recorder.logits.tobytes(), len(dbg.tokens))
    assert before == after and not told, "nobody saw the run move"
    open_ = debug(model)
    beside = HeadsView(open_)
    open_.next_token()
    assert beside.heads_about["id"] == first == view.heads_about["id"]
    assert beside.shares == view.shares
    dbg.next_token()
    assert view.shares and view.heads_about["pos"] == beside.heads_about["pos"] + 1


def test_what_cannot_be_measured_says_why(model):
    dbg = Debugger(toy.run(n_predict=2))
    dbg.next_token()
    view = HeadsView(dbg)
    assert not view.shares and not view.heads_about["measurable"]
    assert "no model" in view.heads_about["why"]
    assert "measure" in ask(view, ask="heads_measure")["error"]
    small = debug(model, budget=512)
    beside = HeadsView(small)
    small.next_token()
    assert "larger budget" in beside.heads_about["why"]
    with pytest.raises(DebuggerError, match="measure this token first"):
        beside.switch_off(0, 0)


# -- switching off -------------------------------------------------------------------------------


def test_a_head_goes_off_and_comes_back_bit_for_bit(model):
    dbg = debug(model)
    view = HeadsView(dbg)
    dbg.next_token()
    dbg.next_token()
    whole = straight(model, 2)
    assert np.array_equal(dbg.recorder.logits, whole[1])
    token, n = dbg.tokens[-1].id, dbg.n
    layer, head = view.layer, view.head
    assert "error" not in ask(view, ask="heads_off", layer=layer, head=head)
    # Off from the second pass on: the first token's K and V were made with it.
    assert dbg.n == n and dbg.branch.parent == "main" and dbg.here.name == "token"
    change = view.heads_change
    assert view.heads_about["id"] == token, "the same token before and now"
    assert change["before"] == pytest.approx(softmax(whole[1])[token], rel=1e-12)
    assert change["now"] == pytest.approx(softmax(dbg.recorder.logits)[token], rel=1e-12)
    assert shares_of(view)[layer, head] == 0 and change["kept"] == "main"
    assert view.heads_off[0]["layer"] == layer and view.heads_off[0]["heads"] == [head]
    assert "is off already" in ask(view, ask="heads_off", layer=layer, head=head)["error"]
    other = (layer, (head + 1) % HEADS)
    view.switch_off(*other)
    assert len(view.heads_off) == 2 and view.heads_change["before"] == change["before"]
    assert view.heads_about["scale"] >= np.abs(shares_of(view)[:, :HEADS]).max()
    for off in list(view.heads_off):
        assert "error" not in ask(view, ask="heads_undo", which=off["id"])
    assert view.heads_off == [] and dbg.n == n
    assert view.heads_change == {"same": len(whole[1]), "of": len(whole[1])}
    assert np.array_equal(dbg.recorder.logits, whole[1])
    dbg.switch("main")
    assert dbg.n == n and np.array_equal(dbg.recorder.logits, whole[1])


def test_off_in_the_first_pass_is_the_run_without_that_head(model):
    dbg = debug(model)
    view = HeadsView(dbg)
    dbg.next_token()
    view.switch_off(2, 1)
    assert np.array_equal(dbg.recorder.logits, straight(model, 1, 2, 1)[0])
    for _ in range(2):
        dbg.next_token()
    assert np.array_equal(dbg.recorder.logits, straight(model, 3, 2, 1)[2]), "it stays off"
    assert view.heads_off and view.heads_change == {}, "this pass was never seen with the head"


def test_looking_turns_the_linked_view_or_the_panel(model):
    dbg = debug(model)
    linked = AttentionView(dbg)
    view = show.heads(dbg, linked)
    dbg.next_token()
    assert ask(view, ask="heads_look", layer=3, head=2)["value"] is True
    assert (linked.layer, linked.head, view.look_at) == (3, 2, [3, 2])
    alone = HeadsView(dbg)
    assert ask(alone, ask="heads_look", layer=1, head=0)["value"] is False
    assert alone.look_at == [1, 0]
    panel = show.panel(dbg)
    assert alone.look(1, 3) is panel
    assert (panel.layer, panel.head) == (1, 3) and getattr(
        panel, "view", "attention"
    ) == "attention"


def test_it_can_be_docked_beside_attention(model):
    class Docked(AttentionView, HeadsView):
        view_name = "attention"

        def shows(self, view):
            return view == self.visible

        visible = "attention"

    dbg = debug(model)
    view = Docked(dbg)
    assert not dbg.recorder.wants("kqv_out-0"), "nothing is kept for what nobody looked at"
    view.visible = "heads"
    view.refresh()
    dbg.next_token()
    assert view.shares and "HeadsView" not in view.fallback_text()
    assert view.look(3, 1) is view and (view.layer, view.head, view.follow) == (3, 1, False)
    view.switch_off(3, 1)
    assert view.heads_change["before"] != view.heads_change["now"]
    view.visible = "attention"
    dbg.next_token()
    view.visible = "heads"
    view.refresh()
    assert view.heads_about["id"] == dbg.tokens[-1].id, "who comes back need not measure"


def test_a_click_while_the_run_is_under_way_changes_nothing(model):
    dbg = debug(model)
    view = HeadsView(dbg)
    dbg.next_token()
    dbg.start("next-token")
    dbg.advance(0.0)
    for message in ({"ask": "heads_off", "layer": 0, "head": 0}, {"ask": "heads_measure"}):
        assert "under way" in ask(view, **message)["error"]
    dbg.advance()
    assert not dbg.edits


def test_fallbacks_are_static_and_safe(model, monkeypatch):
    dbg = debug(model)
    view = HeadsView(dbg)
    evil = b"<script>alert(1)</script>\xe2\x80\xae" + b"x" * 1_000_000
    dbg.next_token()
    monkeypatch.setattr(type(model.vocab), "token_to_piece", lambda self, i, **k: evil)
    view.choose(5)
    bundle = view._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    assert "<script" not in data["text/html"] and "&lt;script" in data["text/html"]
    assert len(data["text/html"]) < 5000 and "adds" in data["text/plain"]
    assert "application/vnd.jupyter.widget-view+json" in data
    state = {k: v for k, v in view.get_state().items() if k[0] != "_"}
    assert len(json.dumps(state, default=len)) < 20_000


def test_the_figure_shows_the_same_shares(model):
    dbg = debug(model)
    with pytest.raises(plots.NothingToDraw, match="measure"):
        dbg.next_token()
        plots.heads(dbg)
    view = HeadsView(dbg)
    view.measure_token()
    for options in ({}, {"theme": "dark"}, {"size": "column", "for_print": True}):
        figure = view.figure(**options)
        images = [i for ax in figure.axes for i in ax.images if i.get_gid() == "shares"]
        assert np.array_equal(images[0].get_array(), shares_of(view)[:, :HEADS])
        bars = [p.get_width() for ax in figure.axes for p in ax.patches]
        assert [np.float32(b) for b in bars][-LAYERS:] == shares_of(view)[:, -1].tolist()
        figure.savefig("/dev/null", format="png")


# -- the page ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    with host.chromium() as running:
        yield running


@pytest.fixture
def opened(browser):
    pages = []

    def open_view(view, scheme="light", width=1100):
        context = browser.new_context(
            viewport={"width": width + 40, "height": 1000}, color_scheme=scheme
        )
        pages.append((context, host.Hosted(context.new_page(), view, width=width)))
        return pages[-1][1]

    yield open_view
    for context, page in pages:
        context.close()
        assert page.problems == []


def numbers(page) -> dict[str, str]:
    return dict(
        page.evaluate(
            "[...document.querySelectorAll('[data-value]')]"
            ".map(e => [e.dataset.ref, e.dataset.value])"
        )
    )


@pytest.mark.browser
def test_every_number_on_the_page_is_the_engines(opened, model):
    dbg = debug(model)
    view = HeadsView(dbg)
    dbg.next_token()
    h = opened(view)
    token, p = dbg.tokens[-1].id, softmax(straight(model, 1)[0])
    want, checked = truth(model, 1, token), 0
    for ref, text in numbers(h.page).items():
        value = float(text)
        if ref.startswith(f"share({token})."):
            what, _, index = ref.partition(".")[2].partition("[")
            at = tuple(int(i) for i in index.rstrip("]").split(",")) if index else ()
            sums = {"heads": want.heads.sum(dtype=float), "ffn": want.ffn.sum(dtype=float)}
            sums |= {"embedding": want.embedding, "biases": want.biases}
            exact = getattr(want, what)[at] if at else sums[what]
            assert np.float32(value) == np.float32(exact), ref
        elif ref.startswith("p_raw["):
            assert value == pytest.approx(p[int(ref[6:-1])], rel=1e-12), ref
        else:
            assert ref == f"logits[{token}]" and np.float32(value) == straight(model, 1)[0][token]
        checked += 1
    assert checked >= LAYERS * (HEADS + 1) + 5, "the table behind the grid is checked as well"
    assert h.page.get_attribute(".llmviz", "data-view") == "heads"
    assert h.page.get_attribute(".llmviz", "data-here") == str(dbg.n)


@pytest.mark.browser
def test_keys_and_clicks(opened, model):
    dbg = debug(model)
    dbg.next_token()
    linked = AttentionView(dbg)
    view = HeadsView(dbg, linked)
    h = opened(view)
    page = h.page
    n = dbg.n
    page.click("[data-action='heads-measure']")
    page.wait_for_selector(".lv-hd-top button")
    assert dbg.n == n
    page.focus(".lv-hd-grid")
    for key, where in [
        *(("Home", (view.layer, 0)), ("PageUp", (0, 0)), ("ArrowDown", (1, 0))),
        *(("ArrowRight", (1, 1)), ("Enter", (1, 1))),
    ]:
        page.keyboard.press(key)
        ref = f"share({view.heads_about['id']}).heads[{where[0]},{where[1]}]"
        page.wait_for_selector(f".lv-readout [data-ref='{ref}']")
    page.wait_for_function("window.model.get('head') === 1")
    assert (view.layer, view.head) == (1, 1)
    assert "layer 1, head 1" in page.inner_text("[aria-live=polite]")
    page.keyboard.press("End")
    page.wait_for_selector(f".lv-readout [data-ref='share({view.heads_about['id']}).ffn[1]']")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement === document.body")

    box = page.locator(".lv-hd-grid canvas").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 2.5 / HEADS, box["y"] + box["height"] * 3.5 / LAYERS)
    page.wait_for_function("window.model.get('layer') === 3 && window.model.get('head') === 2")
    page.click("[data-action='heads-look']")
    page.wait_for_function("document.querySelector('.lv-hd-chosen').innerText.includes('shows')")
    assert (linked.layer, linked.head) == (3, 2)
    whole = dbg.recorder.logits.copy()
    page.click("[data-action='heads-off']")
    page.wait_for_selector("[data-action='heads-undo']")
    now = page.get_attribute(".lv-hd-change [data-ref^='p_raw']", "data-value")
    token = view.heads_about["id"]
    assert float(now) == pytest.approx(softmax(straight(model, 1, 3, 2)[0])[token], rel=1e-12)
    was = page.get_attribute("[data-ref^='before.p_raw']", "data-value")
    assert float(was) == pytest.approx(softmax(whole)[token], rel=1e-12)
    page.focus("[data-action='heads-undo']")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-action='heads-undo']", state="detached")
    assert "bit for bit" in page.inner_text(".lv-hd-gone-box")
    assert np.array_equal(dbg.recorder.logits, whole)
    page.fill(".lv-hd-form input", "not a token of this model")
    page.press(".lv-hd-form input", "Enter")
    page.wait_for_selector(".lv-notice:visible")
    page.click(".lv-hd-tokens button:nth-of-type(3)")
    page.wait_for_function("n => window.model.get('heads_about').id !== n", arg=token)


@pytest.mark.browser
def test_contrast_and_sizes(opened, model):
    dbg = debug(model)
    view = HeadsView(dbg)
    dbg.next_token()
    view.switch_off()
    h = opened(view)
    for scheme in h.themes():
        found = h.page.evaluate(CONTRAST)
        assert found["n"] > 30 and found["bad"] == [] and found["small"] == [], scheme
    view.projector = True
    h.sync()
    h.page.wait_for_selector(".lv-projector")
    assert h.page.evaluate(CONTRAST)["smallest"] >= 18
    fits = "(r => r.scrollWidth <= r.clientWidth)(document.querySelector('.llmviz'))"
    assert h.page.evaluate(fits)


@pytest.mark.browser
def test_text_of_a_vocabulary_stays_text_and_a_large_model_stays_small(opened, model, monkeypatch):
    dbg = debug(model)
    view = HeadsView(dbg)
    dbg.next_token()
    monkeypatch.setattr(
        type(model.vocab), "token_to_piece", lambda self, i, **k: "<img src=x>\u202e".encode()
    )
    view.choose(5)
    h = opened(view, width=500)
    assert h.page.locator(".llmviz img, .llmviz script").count() == 0
    text = h.page.inner_text(".llmviz")
    assert "<img" in text and "U+202E" in text
    rows, columns = 80, 64
    big = np.random.default_rng(0).standard_normal((rows, columns + 1)).astype("<f4")
    big[3, 4] = np.nan
    with view.hold_sync():
        view.shares = big.tobytes()
        view.heads_about = {**view.heads_about, "n_layer": rows, "n_head": columns, "scale": 4.0}
        view.rev += 1
    h.sync()
    h.page.wait_for_function(
        "document.querySelector('.lv-hd-grid').ariaLabel.includes('80 layers')"
    )
    assert h.page.locator(".lv-card table tr").count() < 100
    assert "showing 64 of 5,200" in h.page.text_content(".lv-card table caption")
    assert h.page.locator(".lv-hd-grid").bounding_box()["height"] < 700


@pytest.mark.browser
@pytest.mark.slow
@host.PICTURES
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures(opened, smollm2_path, scheme):
    """The view over a real model, as the documentation shows it."""
    options = {"n_ctx": 256, "n_predict": 2}
    dbg = Debugger(llmviz.load(smollm2_path), "The capital of France is", **options)
    view = HeadsView(dbg)
    dbg.next_token()
    h = opened(view, scheme)
    first = h.page.locator(".lv-hd-top button").first
    assert first.inner_text().startswith("layer 23, head 4 adds 2.82 of 17.37")
    folder = Path(os.environ["LLMVIZ_SCREENSHOTS"])
    h.page.locator(".llmviz").screenshot(path=folder / f"heads-{scheme}.png")
    assert (folder / f"heads-{scheme}.png").stat().st_size < 250_000
