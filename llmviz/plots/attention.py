"""Attention of one layer: one head large with its tokens, or all heads side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from llmviz.errors import LlmvizError
from llmviz.plots._view import NothingToDraw, drawn, recorder_of
from llmviz.plots.style import PLAIN, Canvas, Style, make_style, mono, quiet_axes
from llmviz.plots.text import count, piece
from llmviz.trace.shown import ShownAttention
from llmviz.trace.shown import attention as shown_attention

__all__ = ["attention"]

SHOWN = 24  # tokens on each axis that are still legible
_ALL = 512  # of small matrices without labels
_PIECE = 12


@drawn
def attention(
    dbg: Any,
    *,
    layer: int | None = None,
    head: int | str = 0,
    query: int = -1,
    theme: Any = "light",
    size: Any = "page",
    for_print: bool = False,
) -> Figure:
    """Who looks at whom? Weights after the softmax; row = query, column = key.

    Parameters
    ----------
    dbg : Debugger or Recorder
    layer : int, optional
        The last layer that is held, by default.
    head : int or "all"
        One head with its tokens, or all heads of the layer as small matrices.
    query : int
        Position whose row is drawn as bars, -1 for the newest.
    theme, size, for_print
        See `llmviz.plots.style.make_style`.

    Raises
    ------
    NothingToDraw
        No attention of that layer and head is held.
    """
    style = make_style(theme, size, for_print)
    recorder = recorder_of(dbg)
    held = recorder.layers()
    if layer is None and held:
        layer = held[-1]
    if layer is None or layer not in held:
        have = ", ".join(str(il) for il in held) or "none"
        raise NothingToDraw(
            f"no attention of {'any layer' if layer is None else f'layer {layer}'} is held (held: "
            f"{have}): let the run compute that layer's kq_soft_max (step 13)"
        )
    n_head = recorder.n_head(layer)
    if head == "all":
        return _all_heads(recorder, layer, n_head, style)
    if not isinstance(head, (int, np.integer)) or not 0 <= head < n_head:
        raise LlmvizError(f"head is 0..{n_head - 1} or 'all', not {head!r}")
    return _one_head(recorder, layer, int(head), query, style)


def _one_head(recorder: Any, layer: int, head: int, query: int, style: Style) -> Figure:
    points = max(9.0, style.base * (0.8 if style.base > 12 else 1.0))  # of the many small labels
    cell = 1.2 * points / 72
    beside = style.height is not None and style.width > 1.3 * style.height
    held = shown_attention(recorder, layer, head, SHOWN)
    longest = max((len(piece(k.text, _PIECE)) for k in held.tokens), default=1) * 0.61 * points / 72
    used = longest + 2.2 * style.base / 72
    room = style.room(2, 1) - used if beside else style.width - used - 0.85
    most = max(4, min(SHOWN, int(room / cell)))
    shown = shown_attention(recorder, layer, head, most)
    if shown.matrix is None:
        raise NothingToDraw(f"layer {layer} has no row of any token that is still in the text")
    matrix, tokens, n = shown.matrix, shown.tokens, len(shown.tokens)
    chosen = shown.index(query)
    pieces = [piece(k.text, _PIECE) for k in tokens]
    about = [
        f"kq_soft_max-{layer} · head {head} of {recorder.n_head(layer)} · float32 [{n}, {n}] · "
        f"{_sum_text(shown)} · {_count_text(shown)}"
    ]
    side = max(1.6, min(room, n * max(cell, 0.26)))
    notes = ["blank: later tokens, never looked at · colour by the square root of the weight"]
    canvas = Canvas(
        style, side + 0.9 + longest + 0.35, f"Attention, layer {layer}, head {head}", about, notes
    )
    if beside:
        grid = canvas.grid(1, 2, width_ratios=[1.0, 0.9])
    else:
        grid = canvas.grid(2, 1, height_ratios=[max(side, 1.0), 0.7])
    ax, bars = canvas.figure.add_subplot(grid[0]), canvas.figure.add_subplot(grid[1])
    image = _matrix(ax, matrix, style)
    ax.set_aspect("auto")
    ax.set_yticks(range(n), pieces, **mono(points))
    ax.set_ylabel("query")
    # The row that the bars repeat.
    ax.add_patch(
        Rectangle((-0.5, chosen - 0.5), n, 1, fill=False, ec=style.now, lw=1.6, clip_on=False)
    )
    ax.get_yticklabels()[chosen].set(color=style.now, fontweight="bold")
    _colourbar(canvas.figure, image, ax, style)
    row = matrix[chosen]
    if beside:
        ax.set_xticks(range(n), pieces, rotation=90, **mono(points))
        ax.set_xlabel("key")
        _bars_beside(bars, row, pieces, chosen, points, style)
    else:
        ax.set_xticks([])
        room = style.width - used - 0.85  # inches of all columns
        _bars_below(bars, row, pieces, chosen, room / n, style)
        bars.set_xlim(ax.get_xlim())
    return canvas.figure


def _matrix(ax: Any, matrix: np.ndarray, style: Style) -> Any:
    colours = style.magnitude.with_extremes(bad=style.raised)
    image = ax.imshow(
        np.ma.masked_invalid(matrix),
        cmap=colours,
        norm=PowerNorm(0.5, 0, 1),
        interpolation="nearest",
    )
    image.set_gid("weights")
    quiet_axes(ax, style, frame=True)
    ax.tick_params(length=0)
    return image


def _colourbar(figure: Figure, image: Any, ax: Any, style: Style) -> None:
    bar = figure.colorbar(image, ax=ax, fraction=0.05, pad=0.02, aspect=25)
    ticks = [0, 0.05, 0.25, 0.5, 1]
    bar.set_ticks(ticks, labels=[f"{x:g}" for x in ticks], **PLAIN)
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=style.soft, labelsize=style.base, length=0)
    bar.ax.set_title("weight", fontsize=style.base, color=style.soft, loc="left", pad=9, **PLAIN)


def _label(w: float) -> str:
    return "0" if w == 0 else "<.001" if w < 0.0005 else f"{w:.3f}".removeprefix("0")


def _bars_below(
    ax: Any, row: np.ndarray, pieces: list[str], chosen: int, room: float, style: Style
) -> None:
    """Under each column of the matrix, the weight that the chosen query gives to that key."""
    known = np.nan_to_num(row)
    for bar in ax.bar(range(len(row)), known, 0.7, color=style.now, linewidth=0):
        bar.set_gid("weight")
    top = max(float(known.max()), 1e-6)
    ax.set_ylim(0, top * 1.45)
    order = np.argsort(-known, kind="stable")
    fits = 2 * room > 4.4 * 0.6 * style.base / 72
    told: set[int] = set()
    for i in order[: len(order) if fits else 1].tolist():  # the longest first, none over another
        if known[i] >= 0.0005 and not {i - 1, i + 1} & told:
            told.add(i)
            text = _label(float(row[i]))
            ax.text(
                i, known[i] + top * 0.06, text, ha="center", va="bottom", color=style.text,
                fontsize=style.base, **PLAIN,
            )  # fmt: skip
    quiet_axes(ax, style)
    ax.spines["bottom"].set_visible(True)
    ax.set_yticks([])
    ax.set_xticks(range(len(row)), pieces, rotation=90, **mono(style.base))
    ax.tick_params(length=0)
    ax.set_xlabel("key")
    ax.set_ylabel(f"where\n{pieces[chosen]}\nlooks", rotation=0, ha="right", va="center")
    ax.yaxis.label.set(color=style.now, **mono(style.base))


def _bars_beside(
    ax: Any, row: np.ndarray, pieces: list[str], chosen: int, points: float, style: Style
) -> None:
    """The same weights as a list of keys, for a slide."""
    known = np.nan_to_num(row)
    for bar in ax.barh(range(len(row)), known, 0.7, color=style.now, linewidth=0):
        bar.set_gid("weight")
    top = max(float(known.max()), 1e-6)
    ax.set_xlim(0, top * 1.35)
    ax.set_ylim(len(row) - 0.5, -0.5)
    for i, w in enumerate(row):
        text = "" if np.isnan(w) else _label(float(w))
        colour = style.text if w >= 0.0005 else style.soft
        ax.text(
            known[i] + top * 0.03, i, text, va="center", color=colour, fontsize=style.base,
            **PLAIN,
        )  # fmt: skip
    quiet_axes(ax, style)
    ax.spines["left"].set_visible(True)
    ax.set_xticks([])
    ax.set_yticks(range(len(row)), pieces, **mono(points))
    ax.tick_params(length=0)
    ax.set_title(f"where {pieces[chosen]} looks", loc="left", color=style.now, **mono(style.base))


# -- all heads -----------------------------------------------------------------------------------


def _all_heads(recorder: Any, layer: int, n_head: int, style: Style) -> Figure:
    most = _ALL
    first = shown_attention(recorder, layer, 0, most)
    if first.matrix is None:
        raise NothingToDraw(f"layer {layer} has no row of any token that is still in the text")
    columns = _columns(n_head, style)
    rows = -(-n_head // columns)
    n = len(first.tokens)
    about = [
        f"kq_soft_max-{layer} · {n_head} heads · float32 [{n_head}, {n}, {n}] · row: query, "
        f"column: key · {_sum_text(first)} · {_count_text(first)}"
    ]
    side = (style.width - 1.0) / columns
    canvas = Canvas(
        style,
        rows * (side + 1.5 * style.base / 72),
        f"Attention, layer {layer}, all heads",
        about,
        ["blank: later tokens, never looked at · colour by the square root of the weight"],
    )
    grid = canvas.grid(rows, columns)
    every = []
    for head in range(n_head):
        ax = canvas.figure.add_subplot(grid[divmod(head, columns)])
        shown = first if head == 0 else shown_attention(recorder, layer, head, most)
        assert shown.matrix is not None
        image = _matrix(ax, shown.matrix, style)
        ax.set(xticks=[], yticks=[])
        ax.set_title(f"head {head}", fontsize=style.base, color=style.soft, pad=3, **PLAIN)
        every.append(ax)
    _colourbar(canvas.figure, image, every, style)
    return canvas.figure


def _columns(n_head: int, style: Style) -> int:
    """Of the small matrices: as large as they can be on a slide, in full rows elsewhere."""
    if style.height is None:
        rows = -(-n_head // (4 if style.narrow else 6))
        return -(-n_head // rows)
    room, line = style.room(2, 1), 1.6 * style.base / 72

    def side(columns: int) -> float:
        return min(style.width / columns, room / -(-n_head // columns) - line)

    return max(range(1, n_head + 1), key=side)


def _sum_text(shown: ShownAttention) -> str:
    part = len(shown.tokens) < shown.total
    return f"rows sum to 1 over all {shown.total:,} tokens" if part else "rows sum to 1"


def _count_text(shown: ShownAttention) -> str:
    n = len(shown.tokens)
    text = count(n, shown.total, "tokens")
    if n < shown.total:
        text += f", positions {shown.tokens[0].pos:,}–{shown.tokens[-1].pos:,}"
    return text
