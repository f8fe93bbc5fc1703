"""The tokenizer view: boxes are the vocabulary's, the film ends at them, two can be compared."""

from __future__ import annotations

import time

import numpy as np
import pytest

pytest.importorskip("anywidget")

import llmviz
from llmviz import show
from llmviz.errors import LlmvizError
from llmviz.gguf import open_gguf
from llmviz.trace import Debugger
from llmviz.vocab import Vocab
from llmviz.vocab.tokenized import ADDED, BYTES, SPECIAL, difference, tokenized
from llmviz.widgets import TokensView
from llmviz.widgets.tokenizer import TokenizerView

from ..trace import toy
from . import host
from .test_page import CONTRAST

HARD = "Strawberries 😀 café e\u0301\u0323 שלום \u202eevil\u202c 👩‍👩‍👧 <b>&amp;</b>\n\tx  y 12345"


@pytest.fixture(scope="module")
def bpe(tiny_model):
    return llmviz.load(tiny_model(vocab="bpe"), vocab_only=True).vocab


@pytest.fixture(scope="module")
def spm(tiny_model):
    return llmviz.load(tiny_model(), vocab_only=True).vocab


@pytest.fixture(scope="module")
def real(smollm2_path):
    return Vocab.from_gguf(open_gguf(smollm2_path))


@pytest.fixture(params=["bpe", "spm"])
def vocab(request):
    return request.getfixturevalue(request.param)


def boxes(view: TokenizerView, other: bool = False) -> np.ndarray:
    return np.frombuffer(view.boxes_other if other else view.boxes, "<i4").reshape(-1, 6)


@pytest.mark.parametrize("text", ["", "a", " the cat  sat", HARD, "😀", "\x00\ufeff"])
def test_every_token_covers_the_bytes_that_it_writes(vocab, text):
    r = tokenized(vocab, text)
    assert r.ids == vocab.tokenize(text)
    place = 0
    for token, start, end, kind in zip(r.ids, r.starts, r.ends, r.kinds, strict=True):
        assert start == place or kind == ADDED
        piece = vocab.token_to_piece(token, special=True)
        assert kind == ADDED or r.raw[start:end] in (piece, piece[1:])
        place = max(place, end)
    assert place == len(r.raw)


def test_the_film_of_each_word_ends_at_its_tokens(vocab):
    r = tokenized(vocab, "the cat and the rain went in the house 😀")
    for word in range(len(r.words)):
        merges = r.merges(word)
        if not merges:
            continue
        left = merges[-1].film.symbols(len(merges))
        ids = [r.ids[i] for i in r.tokens_of(word) if r.kinds[i] != BYTES]
        assert [vocab.find(s.encode()) for s in left if vocab.find(s.encode()) >= 0] == ids
        assert all(m.rank is not None or m.score is not None for m in merges)


def test_merges_alone_are_those_of_the_whole_text(real):
    r = tokenized(real, HARD)
    steps, truth = real.tokenize_steps(HARD), []
    for event in steps:
        if event.name == "merge":
            truth.append((event.value.word, event.value.left, event.value.right))
    got = [(w, m.left, m.right) for w in range(len(r.words)) for m in r.merges(w)]
    assert got == truth and len(truth) > 20


def test_special_tokens_are_cut_out_only_where_asked(real):
    text = "a<|im_end|>b"
    plain, special = tokenized(real, text), tokenized(real, text, True, True)
    assert SPECIAL not in plain.kinds and special.kinds == [0, SPECIAL, 0]
    assert special.ids[1] == 2 and (special.starts[1], special.ends[1]) == (1, 11)
    found = difference(plain, special)
    assert found.byte == 1 and found.index == (1, 1)
    assert difference(plain, plain) is None


def test_settings_replay_and_bad_ones_are_named(real):
    view = TokenizerView(real, "a<|im_end|>b")
    n = view.sides[0]["n"]
    view.parse_special = True
    assert view.sides[0]["n"] == 3 < n
    view.parse_special, view.compare = False, True
    assert len(view.sides) == 2 and view.differs == {"byte": 1, "index": [1, 1]}
    with pytest.raises(TypeError, match="txet"):
        TokenizerView(real, txet="a")
    with pytest.raises(LlmvizError, match="model, a vocabulary or a file"):
        TokenizerView(3, "a")


def test_two_tokenizers_part_at_the_first_differing_merge(bpe, spm):
    view = TokenizerView(bpe, "the cat sat", other=spm)
    assert view.compare and [s["kind"] for s in view.sides] == ["byte-pair", "SentencePiece"]
    a, b = boxes(view), boxes(view, True)
    i, j = view.differs["index"]
    own = [x for x in b.tolist() if x[3] != ADDED]
    same = list(zip(a.tolist(), own, strict=False))[:i]
    assert all(x[1:3] == y[1:3] for x, y in same)
    assert a[i, 1:3].tolist() != b[j, 1:3].tolist()
    view.selected = i
    films = [[(m["left"], m["right"]) for m in f["merges"]] for f in view.films]
    k = view.films_part
    assert films[0][:k] == films[1][:k] and films[0][k : k + 1] != films[1][k : k + 1]


def test_of_a_sentencepiece_text_the_film_shows_one_word(spm):
    view = TokenizerView(spm, "the 😀 cat sat")
    ids = boxes(view)[:, 0].tolist()
    for i, (token, kind) in enumerate(zip(ids, boxes(view)[:, 3], strict=True)):
        view.selected = i
        film = view.films[0]
        if kind == ADDED:
            assert film["symbols"] == []
            continue
        assert token in [x["id"] for x in film["tokens"]]
        joined = "".join(s["text"] for s in film["symbols"])
        assert len(joined) < film["n_symbols"] and "▁" not in joined[1:]
        assert all(0 <= m["a"] < m["b"] < len(film["symbols"]) for m in film["merges"])


def test_ten_thousand_characters_come_in_windows(real):
    text = "The quick brown fox 😀 jumps. " * 345
    assert len(text) > 10_000
    start = time.perf_counter()
    view = TokenizerView(real, text)
    assert time.perf_counter() - start < 3
    assert len(boxes(view)) == 300 == len(view.box_texts) < view.sides[0]["n"]
    start = time.perf_counter()
    view.first = 600
    view.selected = 700
    assert time.perf_counter() - start < 1
    assert boxes(view)[0, 5] == 600 and view.films[0]["token"]["index"] == 700
    view.first = 10**6
    assert len(boxes(view)) > 0
    assert bytes(view.text_bytes) == text.encode()[view.bytes_from :][: len(view.text_bytes)]


def test_show_tells_a_model_from_a_debugger(real):
    assert isinstance(show.tokens(real, "abc"), TokenizerView)
    assert isinstance(show.tokens(Debugger(toy.run())), TokensView)
    with pytest.raises(LlmvizError, match="own text"):
        show.tokens(Debugger(toy.run()), "abc")


def test_fallbacks_and_figures(real, spm, tmp_path):
    view = TokenizerView(real, HARD, other=spm)
    page = view.fallback_html()
    assert "<b>" not in page and "&lt;" in page and "first difference" in view.fallback_text()
    for size in ("page", "slide", "column"):
        view.figure(size=size, theme="dark").savefig(tmp_path / f"{size}.svg")
    assert f"token-0-{boxes(view)[0, 0]}" in (tmp_path / "page.svg").read_text()


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
def test_boxes_bytes_and_hostile_text(opened, real):
    view = TokenizerView(real, HARD)
    page = opened(view).page
    ids = page.eval_on_selector_all("[data-token-id]", "l => l.map(e => +e.dataset.tokenId)")
    assert ids == real.tokenize(HARD)
    assert page.locator(".lv-tok-boxes b").count() == 0
    assert "\u202e" not in page.inner_text("body")
    page.hover("[data-pos='0']")
    assert "id " in page.inner_text("output.lv-tok-part")
    part = np.flatnonzero(boxes(view)[:, 3] == BYTES)[0]
    _, start, end = boxes(view)[part, :3]
    page.hover(f"[data-pos='{part}']")
    assert HARD.encode()[start:end].hex(" ").upper() in page.inner_text("output.lv-tok-part")


@pytest.mark.browser
def test_typing_tokenizes_and_the_film_is_played_by_keys(opened, real):
    view = TokenizerView(real, "")
    page = opened(view).page
    page.fill("textarea", "unbelievable")
    page.wait_for_selector("[data-pos='0']")
    assert view.text == "unbelievable"
    page.click("[data-pos='0']")
    page.wait_for_selector(".lv-tok-film")
    merges = view.films[0]["merges"]
    assert page.locator("[data-merge]").count() == len(merges) > 2
    page.focus("[data-action=film-next]")
    page.keyboard.press("Home")
    assert page.locator(".lv-tok-symbol").count() == len("unbelievable")
    for n, merge in enumerate(merges, 1):
        page.keyboard.press("ArrowRight")
        assert page.locator(".lv-tok-symbol").count() == len("unbelievable") - n
        row = page.locator("tr[aria-current]")
        assert row.get_attribute("data-merge") == str(n - 1)
        assert row.locator("[data-value]").get_attribute("data-value") == str(merge["rank"])
    texts = page.eval_on_selector_all(".lv-tok-symbol .lv-piece", "l => l.map(e => e.textContent)")
    assert texts == [t["text"] for t in view.films[0]["tokens"]]
    page.keyboard.press("Home")
    page.click("[data-action=film-play]")
    page.wait_for_selector("tr[aria-current][data-merge='1']")


@pytest.mark.browser
def test_where_two_tokenizers_part(opened, bpe, spm):
    view = TokenizerView(bpe, "the cat sat", other=spm)
    page = opened(view).page
    at = page.get_attribute("[data-ref='differs.byte']", "data-value")
    assert at == str(view.differs["byte"]) and page.locator("[data-diff][data-pos]").count() == 2
    page.click("[data-action=show-difference]")
    page.wait_for_selector("[data-film='1']")
    assert view.selected == view.differs["index"][0]
    if view.films_part >= 0:
        assert page.locator(f"tr[data-diff][data-merge='{view.films_part}']").count() >= 1


@pytest.mark.browser
def test_a_long_text_is_paged(opened, real):
    view = TokenizerView(real, "The quick brown fox jumps. " * 400)
    page = opened(view).page
    assert page.locator("[data-pos]").count() == 300
    assert f"of {view.sides[0]['n']:,}" in page.inner_text(".lv-tok-part:has([data-action])")
    page.click("[data-action=tokens-after]")
    page.wait_for_selector("[data-pos='300']")
    assert page.locator("[data-pos='299']").count() == 0


@pytest.mark.browser
def test_legible_in_both_themes_and_on_a_projector(opened, real):
    view = TokenizerView(real, HARD + "<|im_end|>", compare=True, selected=2)
    h = opened(view)
    for scheme in h.themes():
        found = h.page.evaluate(CONTRAST)
        assert found["n"] > 60 and found["bad"] == [] and found["small"] == [], scheme
    view.projector = True
    h.sync()
    h.page.wait_for_selector(".lv-projector")
    assert h.page.evaluate(CONTRAST)["smallest"] >= 18


def test_kinds_that_take_whole_tokens(tmp_path):
    """Shown instead of merges: what was passed over, and what the other ways would have cost."""
    from ..vocab.files import CONTROL, F32, NORMAL, UNKNOWN, keys_of
    from ..vocab.files import vocab as made

    tokens = ["<pad>", "</s>", "<unk>", "a", "b", "c", "ab", "bc"]
    types = [CONTROL, CONTROL, UNKNOWN, *[NORMAL] * 5]
    scores = ("arr", F32, [0, 0, 0, -2.0, -2.0, -1.0, -2.0, -2.0])
    ugm = made(tmp_path, keys_of("t5", tokens, types, scores=scores))
    with TokenizerView(ugm, "abc") as view:
        assert view.sides[0]["kind"] == "Unigram"
        view.selected = 1  # "c", after "ab"
        found = view.films[0]["found"]
        assert (found["text"], found["id"]) == ("c", 5)
        rows = [(c["text"], c["total"], c["chosen"]) for c in found["choices"]]
        assert rows == [("c", -3.0, True), ("bc", -4.0, False)]
        view.selected = 0
        assert view.films[0]["found"]["shorter"] == [{"text": "a", "id": 3}]
