"""Each view's figure holds the recorder's own numbers: a real run, odd values, hostile text."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from llmviz import plots
from llmviz.errors import LlmvizError
from llmviz.plots.text import number, percent, piece
from llmviz.trace import Debugger, Recorder, statistics
from llmviz.trace.records import Alternative, AttentionBlock, CellsRecord, TokenRecord

from . import runs
from .runs import by_gid, texts

VIEWS = {
    "attention": {},
    "batch": {"selected": 0},
    "graph": {},
    "kv_cache": {},
    "load": {},
    "logits": {},
    "map": {},
    "output": {},
    "tensor": {"name": "l_out-1"},
    "time": {"time_by": "layer"},
    "tokens": {"selected": 2},
}


@pytest.fixture(scope="module")
def dbg(tiny_model: Callable[..., str]) -> Debugger:
    return runs.of(tiny_model(), "hello world, hello again", n_ctx=64)


SIZES = {"slide": {"theme": "dark"}, "page": {"for_print": True}, "column": {}}
FORMATS = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("size", SIZES)
def test_every_view_saves_in_every_size(dbg: Debugger, view: str, size: str, tmp_path) -> None:
    """In three sizes as three formats: each view as each of them; nothing leaves the page."""
    kind = [*FORMATS][([*VIEWS].index(view) + [*SIZES].index(size)) % len(FORMATS)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = getattr(plots, view)(dbg, size=size, **SIZES[size], **VIEWS[view])
        figure.savefig(tmp_path / f"x.{kind}", dpi=50)
    assert (tmp_path / f"x.{kind}").read_bytes().startswith(FORMATS[kind])
    width, height = figure.get_size_inches()
    assert width == {"slide": 10, "page": 7.2, "column": 3.5}[size]
    assert height == 5.625 if size == "slide" else height > 1

    figure.draw_without_rendering()
    width, height = figure.bbox.size
    unseen = beyond_limits(figure)
    for text in figure.findobj(lambda a: hasattr(a, "get_text") and a.get_text()):
        if not text.get_visible() or text in unseen:
            continue
        box = text.get_window_extent()
        inside = box.x0 > -2 and box.y0 > -2 and box.x1 < width + 2 and box.y1 < height + 2
        assert inside, (text.get_text(), box, (width, height))


def beyond_limits(figure) -> set:
    """Labels of ticks outside of what their axes show: matplotlib does not draw them."""
    found = set()
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if not low <= tick.get_loc() <= high:
                    found |= {tick.label1, tick.label2}
    return found


def test_attention_is_the_recorders(dbg: Debugger) -> None:
    recorder = dbg.recorder
    for layer in recorder.layers():
        for head in range(recorder.n_head(layer)):
            figure = plots.attention(dbg, layer=layer, head=head, query=3)
            image = by_gid(figure, "weights").get_array()
            last = recorder.last_query(layer)
            positions = [k.pos for k in dbg.tokens if k.pos <= last][-image.shape[0] :]
            want = recorder.attention_matrix(layer, head, positions)
            np.testing.assert_array_equal(np.ma.filled(image, np.nan), want)
            bars = figure.findobj(lambda a: a.get_gid() == "weight")
            row = np.nan_to_num(want[positions.index(3) if 3 in positions else -1])
            np.testing.assert_array_equal([b.get_height() for b in bars], row)
    every = plots.attention(dbg, layer=0, head="all")
    images = every.findobj(lambda a: a.get_gid() == "weights")
    assert len(images) == recorder.n_head(0)
    positions = [k.pos for k in dbg.tokens if k.pos <= recorder.last_query(0)]
    for head, image in enumerate(images):
        want = recorder.attention_matrix(0, head, positions)
        np.testing.assert_array_equal(np.ma.filled(image.get_array(), np.nan), want)


def test_the_tensor_is_the_kept_value(dbg: Debugger) -> None:
    for name in ("l_out-0", "l_out-1", "kq_soft_max-1", "inp_pos"):
        kept = dbg.recorder.value(name)
        figure = plots.tensor(dbg, name, slice=[1])
        shown = by_gid(figure, "values").get_array()
        whole = kept.array[1, :, :] if kept.array.ndim == 3 else np.atleast_2d(kept.array)
        whole = whole if shown.shape[0] == whole.shape[0] else np.squeeze(kept.array)
        np.testing.assert_array_equal(shown, whole[: shown.shape[0], : shown.shape[1]])
        bars = figure.findobj(lambda a: a.get_gid() == "spread")
        assert sum(b.get_height() for b in bars) == kept.array.size
        s = statistics(kept.array)
        words = texts(figure)
        assert f"mean {number(s.mean)}" in words and str(kept.array.dtype) in words
        assert f"[{', '.join(map(str, kept.array.shape))}]" in words


def test_the_event_at_which_the_run_stands(tiny_model: Callable[..., str]) -> None:
    dbg = runs.of(tiny_model(), "hello world", n=0)
    dbg.break_on("ffn_out-1")
    dbg.run()
    shown = by_gid(plots.tensor(dbg), "values").get_array()
    np.testing.assert_array_equal(shown, dbg.here.value[:, : shown.shape[1]])
    figure = plots.map(dbg)
    spent = dbg.seconds
    widths = {n: by_gid(figure, f"step-{n}").get_width() for n in spent}
    longest = max(spent, key=spent.get)
    for n, width in widths.items():
        assert width == pytest.approx(widths[longest] * spent[n] / spent[longest])
    assert "ffn_out-1" in texts(figure) and "layer-1" in texts(figure)


def test_cells_are_the_recorders(dbg: Debugger) -> None:
    figure, cells = plots.kv_cache(dbg), dbg.recorder.cells
    shown = [a.get_gid() for a in figure.findobj(lambda a: (a.get_gid() or "").startswith("cell-"))]
    owned = {g for g in shown if "seq" in g}
    want = {f"cell-{i}-seq-{s}" for i in np.flatnonzero(cells.pos >= 0) for s in cells.sequences(i)}
    assert owned == want
    for i in np.flatnonzero(cells.pos >= 0):
        assert by_gid(figure, f"pos-{i}").get_text() == str(cells.pos[i])
        text = dbg.recorder.piece_of(int(cells.tok[i])).decode("utf-8", "replace")
        assert by_gid(figure, f"piece-{i}").get_text()[:3] == piece(text)[:3]
    for i in cells.fresh:
        assert by_gid(figure, f"cell-{i}").get_linewidth() > 1
    assert f"{cells.used} of {len(cells.pos)} cells used" in texts(figure)


def test_bars_are_probabilities(dbg: Debugger) -> None:
    for selected in (-1, dbg.tokens[-2].pos):
        figure = plots.logits(dbg, selected=selected)
        top = dbg.tokens[-1 if selected < 0 else -2].top
        widths = [by_gid(figure, f"p_raw-{a.id}").get_width() for a in top]
        unit = widths[0] / top[0].p_raw
        np.testing.assert_allclose(widths, [a.p_raw * unit for a in top])
        for a in top:
            if a.p is not None:
                assert by_gid(figure, f"p-{a.id}").get_width() == pytest.approx(a.p * unit)
            assert percent(a.p_raw) in texts(figure) and number(a.logit) in texts(figure)
        assert texts(figure).count("cut") == sum(a.cut for a in top)


def test_tokens_and_output_are_the_text(dbg: Debugger) -> None:
    figure = plots.tokens(dbg, selected=dbg.tokens[-1].pos)
    assert [by_gid(figure, f"piece-{k.pos}").get_text() for k in dbg.tokens] == [
        piece(k.text, 28) for k in dbg.tokens
    ]
    assert by_gid(figure, f"token-{dbg.tokens[-1].pos}").get_linewidth() > 1
    figure = plots.output(dbg)
    chosen = [k for k in dbg.tokens if not k.given]
    widths = [by_gid(figure, f"p_raw-{k.pos}").get_width() for k in chosen]
    np.testing.assert_allclose(
        np.array(widths) / widths[0], [k.p_raw / chosen[0].p_raw for k in chosen]
    )


def test_what_is_not_there_is_said() -> None:
    empty = Debugger(iter([]))
    for view in ("attention", "kv_cache", "logits", "output", "tensor", "tokens"):
        with pytest.raises(plots.NothingToDraw, match=r"step|started"):
            getattr(plots, view)(empty)
    assert "Not started" in texts(plots.map(empty))
    with pytest.raises(plots.NothingToDraw, match=r"l_out-99.*recorder.ask"):
        plots.tensor(empty, "l_out-99")


def test_a_head_or_layer_that_is_not_there(dbg: Debugger) -> None:
    with pytest.raises(plots.NothingToDraw, match="layer 77 is held"):
        plots.attention(dbg, layer=77)
    with pytest.raises(LlmvizError, match="head is 0"):
        plots.attention(dbg, head=100)


def test_what_is_not_finite_has_its_own_colour_and_is_counted() -> None:
    x = np.linspace(-1, 1, 40).reshape(4, 10)
    x[0, 0], x[1, 1], x[2, 2], x[3, 3] = np.nan, np.inf, -np.inf, np.nan
    figure = plots.tensor(runs.at(x))
    image = by_gid(figure, "values").get_array()
    assert np.ma.getmaskarray(image).sum() == 4
    rgba = by_gid(figure, "not-finite").get_array()
    assert len({tuple(rgba[i, i]) for i in range(3)}) == 3
    assert (rgba[0, 0] == rgba[3, 3]).all() and rgba[0, 1, 3] == 0
    words = texts(figure)
    assert "NaN 2" in words and "inf 2" in words
    assert "min −1" not in words, "the corner that was −1 is NaN now"
    plots.tensor(runs.at(np.full((3, 3), np.nan))).draw_without_rendering()


def test_values_without_a_tensor_are_a_table(tiny_model: Callable[..., str]) -> None:
    dbg = runs.of(tiny_model(), "hello world", n=0)
    for name in ("tokens", "batch", "kv_cells", "token"):
        dbg.clear_break()
        dbg.break_on(name)
        dbg.run()
        figure = plots.tensor(dbg)
        figure.draw_without_rendering()
        assert name in texts(figure)


def test_windows_say_what_they_leave_out() -> None:
    x = np.arange(300 * 1000, dtype=np.float32).reshape(300, 1000)
    figure = plots.tensor(runs.at(x), origin=[290, 990])
    np.testing.assert_array_equal(by_gid(figure, "values").get_array(), x[252:, 840:])
    assert "rows 252–299 of 300, columns 840–999 of 1,000" in texts(figure)
    r = odd_recorder(2000)
    assert "of 2,000" in texts(plots.tokens(r))
    assert "of 2,000" in texts(plots.kv_cache(r))
    assert "10 of 262,144" in texts(plots.logits(r))
    for size in ("slide", "page", "column"):
        assert "of 2,000" in texts(plots.attention(r, size=size))
        assert "of 1,999" in texts(plots.output(r, size=size))


HOSTILE = [
    *(
        "$x^2$",
        "\u202eevil",
        "<script>alert(1)</script>",
        "\x00\x07",
        "你好",
        "🙂",
        "a" * 1_000_000,
    ),
    *(
        "$",
        "\\frac{1}{2}",
        "مرحبا",
        "e\u0301\u0301",
        " ",
        "",
        "\n\n",
        "\ud800",
        "नमस्ते",
        "%s{}",
        "^{_",
    ),
]


def odd_recorder(n: int) -> Recorder:
    """A recorder of hostile texts, shared cells and large sizes."""
    rng = np.random.default_rng(0)
    text = [HOSTILE[i % len(HOSTILE)] for i in range(n)]
    top = tuple(
        Alternative(i, HOSTILE[i], 3.0 - i, 0.5 / (i + 1), None if i > 3 else 0.25, i > 3)
        for i in range(10)
    )
    r = Recorder(piece_of=lambda k: HOSTILE[k % len(HOSTILE)].encode("utf-8", "replace"))
    r.tokens = [
        TokenRecord(i, b"", t, i, i, i < 1, 1.0, 0.3 / (i % 50 + 1), None, i, top)
        for i, t in enumerate(text)
    ]
    pos = np.where(np.arange(n) % 7 == 6, -1, np.arange(n)).astype(np.int32)
    seq = np.zeros((9, n), bool)
    for s in range(9):
        seq[s, s * 3 : n - s] = True
    seq[:, pos < 0] = False
    r.cells = CellsRecord(pos, np.where(pos < 0, -1, pos), seq, frozenset([n - 1]), 7)
    r.logits, r.logits_n, r.top = rng.normal(size=262_144).astype(np.float32), 10**9, top
    few = np.arange(n - 30, n, dtype=np.int32) if n > 30 else np.arange(n, dtype=np.int32)
    p = rng.random((2, len(few), len(few)), dtype=np.float32)
    r.attention = {0: deque([AttentionBlock(1, 0, few, few, p)])}
    r.stop = "eog\u202e$"
    return r


@pytest.mark.parametrize("view", ["attention", "kv_cache", "logits", "output", "tokens"])
@pytest.mark.parametrize("size", ["slide", "column"])
def test_hostile_text_is_drawn_as_text(view: str, size: str, tmp_path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a missing glyph is a warning
        figure = getattr(plots, view)(odd_recorder(len(HOSTILE)), size=size)
        figure.savefig(tmp_path / "x.svg")
        if size == "column":
            figure.savefig(tmp_path / "x.pdf")
    words = texts(figure)
    assert not set(words) & {"\u202e", "\x00", "\ud800", "🙂"}
    assert len(words) < 20_000
    svg = (tmp_path / "x.svg").read_text("utf-8")
    assert "<script" not in svg and "\u202e" not in svg
