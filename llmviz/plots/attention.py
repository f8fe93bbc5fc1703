"""Attention of one layer: one head large with its tokens, or all heads side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from llmviz.errors import LlmvizError
from llmviz.plots._view import NothingToDraw, drawn, recorder_of
from llmviz.plots.style import PLAIN, Canvas, Style, make_style, mono, quiet_axes
from llmviz.plots.text import count, number, piece
from llmviz.trace.lookback import can_look_back
from llmviz.trace.scores import Scores, ShownStage, shown_stage
from llmviz.trace.shown import scale_of

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
    stage: str = "softmax",
    theme: Any = "light",
    size: Any = "page",
    for_print: bool = False,
) -> Figure:
    """Who looks at whom? Row = query, column = key; after the softmax, or before it.

    Parameters
    ----------
    dbg : Debugger or Recorder
    layer : int, optional
        The last layer that is held, by default.
    head : int or "all"
        One head with its tokens, or all heads of the layer as small matrices.
    query : int
        Position whose row is drawn as bars, -1 for the newest.
    stage : {"softmax", "scores", "masked"}
        Weights; raw scores; or scores times scale plus mask, which enter the softmax. Scores that
        the recorder was not asked to keep are computed again, silently, where the run can go back.
    theme, size, for_print
        See `llmviz.plots.style.make_style`.

    Raises
    ------
    NothingToDraw
        No attention of that layer and head is held, or the stage's numbers are not.
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
    whole = head == "all"
    if not whole and (not isinstance(head, (int, np.integer)) or not 0 <= head < n_head):
        raise LlmvizError(f"head is 0..{n_head - 1} or 'all', not {head!r}")
    with _Source(dbg, layer, stage) as source:
        if whole:
            return _all_heads(source, n_head, style)
        return _one_head(source, int(head), query, style)


class _Source:
    """Where one layer's numbers of one stage come from, for as long as a figure is drawn."""

    def __init__(self, dbg: Any, layer: int, stage: str) -> None:
        self.dbg, self.layer, self.stage = dbg, layer, stage
        self.soft = stage == "softmax"
        self._scores = None
        if not self.soft and hasattr(dbg, "recorder") and can_look_back(dbg):
            self._scores = Scores(dbg)

    def __enter__(self) -> _Source:
        if self._scores is not None:
            self._scores.ask(self.layer)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._scores is not None:
            self._scores.release()

    def shown(self, head: int, most: int) -> ShownStage:
        """One head's numbers between the `most` newest tokens."""
        shown = self._shown(head, most)
        if shown.missing and self._scores is not None:
            self._scores.fetch(shown.missing)
            shown = self._shown(head, most)
        if shown.values is not None and not np.isnan(shown.values).all():
            return shown
        if self.soft:
            raise NothingToDraw(
                f"layer {self.layer} has no row of any token that is still in the text"
            )
        why = (
            "the scale is not known: a saved run does not tell it"
            if shown.scale is None and self.stage == "masked"
            else f"recorder.ask(owner, ...) for {shown.node.split(' ')[0]} and inp_pos before"
        )
        raise NothingToDraw(f"the {self.stage} stage of layer {self.layer} is not held: {why}")

    def _shown(self, head: int, most: int) -> ShownStage:
        return shown_stage(self.dbg, self.layer, head, most, self.stage, self._scores)


def _one_head(source: _Source, head: int, query: int, style: Style) -> Figure:
    points = max(9.0, style.base * (0.8 if style.base > 12 else 1.0))  # of the many small labels
    cell = 1.2 * points / 72
    beside = style.height is not None and style.width > 1.3 * style.height
    held = source.shown(head, SHOWN)
    longest = max((len(piece(k.text, _PIECE)) for k in held.tokens), default=1) * 0.61 * points / 72
    used = longest + 2.2 * style.base / 72
    room = style.room(2, 1) - used if beside else style.width - used - 0.85
    most = max(4, min(SHOWN, int(room / cell)))
    shown = source.shown(head, most)
    matrix, tokens, n = shown.values, shown.tokens, len(shown.tokens)
    assert matrix is not None
    chosen = shown.index(query)
    pieces = [piece(k.text, _PIECE) for k in tokens]
    layer, n_head = source.layer, recorder_of(source.dbg).n_head(source.layer)
    about = [
        f"{shown.node} · head {head} of {n_head} · float32 [{n}, {n}] · "
        + " · ".join(filter(None, (_sum_text(shown), _count_text(shown))))
    ]
    side = max(1.6, min(room, n * max(cell, 0.26)))
    title = f"Attention, layer {layer}, head {head}{_TITLES[source.stage]}"
    canvas = Canvas(style, side + 0.9 + longest + 0.35, title, about, [_NOTES[source.stage]])
    if beside:
        grid = canvas.grid(1, 2, width_ratios=[1.0, 0.9])
    else:
        grid = canvas.grid(2, 1, height_ratios=[max(side, 1.0), 0.7])
    ax, bars = canvas.figure.add_subplot(grid[0]), canvas.figure.add_subplot(grid[1])
    image = _matrix(ax, shown, style)
    ax.set_aspect("auto")
    ax.set_yticks(range(n), pieces, **mono(points))
    ax.set_ylabel("query")
    # The row that the bars repeat.
    ax.add_patch(
        Rectangle((-0.5, chosen - 0.5), n, 1, fill=False, ec=style.now, lw=1.6, clip_on=False)
    )
    ax.get_yticklabels()[chosen].set(color=style.now, fontweight="bold")
    _colourbar(canvas.figure, image, ax, source, style)
    row = matrix[chosen]
    if beside:
        ax.set_xticks(range(n), pieces, rotation=90, **mono(points))
        ax.set_xlabel("key")
        _bars_beside(bars, shown, pieces, chosen, points, style)
    else:
        ax.set_xticks([])
        room = style.width - used - 0.85  # inches of all columns
        _bars_below(bars, row, pieces, chosen, room / n, source.soft, style)
        bars.set_xlim(ax.get_xlim())
    return canvas.figure


_TITLES = {"softmax": "", "scores": ": scores", "masked": ": scaled and masked scores"}
_NOTES = {
    "softmax": "blank: later tokens, never looked at · colour by the square root of the weight",
    "scores": "query times key, no unit, before scale and mask · blank: not cached then",
    "masked": "what enters the softmax · struck out: shut by the mask · blank: not cached then",
}


def _matrix(ax: Any, shown: ShownStage, style: Style) -> Any:
    soft, matrix = shown.stage == "softmax", shown.values
    assert matrix is not None
    colours = (style.magnitude if soft else style.signed).with_extremes(bad=style.raised)
    if soft:
        norm: Any = PowerNorm(0.5, 0, 1)
    else:
        size = np.abs(matrix[np.isfinite(matrix)])
        high = scale_of(np.concatenate([size, -size])[None, :]).high or 1.0
        norm = Normalize(-high, high)
    image = ax.imshow(
        np.ma.masked_invalid(matrix), cmap=colours, norm=norm, interpolation="nearest"
    )
    image.set_gid("weights")
    for i, j in np.argwhere(np.isneginf(matrix)):
        line = ax.plot([j - 0.35, j + 0.35], [i + 0.35, i - 0.35], color=style.soft, lw=0.7)
        line[0].set_gid("masked")
    quiet_axes(ax, style, frame=True)
    ax.tick_params(length=0)
    return image


def _colourbar(figure: Figure, image: Any, ax: Any, source: _Source, style: Style) -> None:
    bar = figure.colorbar(image, ax=ax, fraction=0.05, pad=0.02, aspect=25)
    if source.soft:
        ticks = [0, 0.05, 0.25, 0.5, 1]
        bar.set_ticks(ticks, labels=[f"{x:g}" for x in ticks], **PLAIN)
    else:
        ticks = [float(image.norm.vmin), 0.0, float(image.norm.vmax)]
        bar.set_ticks(ticks, labels=[number(x) for x in ticks], **PLAIN)
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=style.soft, labelsize=style.base, length=0)
    title = "weight" if source.soft else "score"
    bar.ax.set_title(title, fontsize=style.base, color=style.soft, loc="left", pad=9, **PLAIN)


def _label(w: float, soft: bool) -> str:
    if np.isneginf(w):
        return "masked"
    if not soft:
        return number(float(f"{w:.3g}"))
    return "0" if w == 0 else "<.001" if w < 0.0005 else f"{w:.3f}".removeprefix("0")


def _bar_colours(row: np.ndarray, soft: bool, style: Style) -> Any:
    return style.now if soft else [style.final if w > 0 else style.now for w in row]


def _reach(known: np.ndarray, more: float) -> tuple[float, float]:
    """Ends of the axis of the bars, with room for what is written at their ends."""
    low, high = min(float(known.min()), 0.0), max(float(known.max()), 0.0)
    span = max(high - low, 1e-6)
    return (low - more * span if low < 0 else 0.0), high + more * span


def _bars_below(
    ax: Any, row: np.ndarray, pieces: list[str], chosen: int, room: float, soft: bool, style: Style
) -> None:
    """Under each column of the matrix, what the chosen query gives to that key."""
    known = np.where(np.isfinite(row), row, 0)
    colours = _bar_colours(row, soft, style)
    for bar in ax.bar(range(len(row)), known, 0.7, color=colours, linewidth=0):
        bar.set_gid("weight")
    low, high = _reach(known, 0.45)
    ax.set_ylim(low, high)
    if low < 0:
        ax.axhline(0, color=style.line, lw=0.8)
    order = np.argsort(-np.abs(known), kind="stable")
    fits = 2 * room > 4.4 * 0.6 * style.base / 72
    told: set[int] = set()
    for i in order[: len(order) if fits else 1].tolist():  # the longest first, none over another
        if abs(known[i]) >= 0.0005 and not {i - 1, i + 1} & told:
            told.add(i)
            up = 1 if known[i] > 0 else -1
            ax.text(
                i, known[i] + up * (high - low) * 0.04, _label(float(row[i]), soft), ha="center",
                va="bottom" if up > 0 else "top", color=style.text, fontsize=style.base, **PLAIN,
            )  # fmt: skip
    quiet_axes(ax, style)
    ax.spines["bottom"].set_visible(True)
    ax.set_yticks([])
    ax.set_xticks(range(len(row)), pieces, rotation=90, **mono(style.base))
    ax.tick_params(length=0)
    ax.set_xlabel("key")
    what = f"where\n{pieces[chosen]}\nlooks" if soft else f"scores\nof\n{pieces[chosen]}"
    ax.set_ylabel(what, rotation=0, ha="right", va="center")
    ax.yaxis.label.set(color=style.now, **mono(style.base))


def _bars_beside(
    ax: Any, shown: ShownStage, pieces: list[str], chosen: int, points: float, style: Style
) -> None:
    """The same numbers as a list of keys, for a slide."""
    assert shown.values is not None
    row, soft = shown.values[chosen], shown.stage == "softmax"
    known = np.where(np.isfinite(row), row, 0)
    colours = _bar_colours(row, soft, style)
    for bar in ax.barh(range(len(row)), known, 0.7, color=colours, linewidth=0):
        bar.set_gid("weight")
    low, high = _reach(known, 0.35)
    ax.set_xlim(low, high)
    ax.set_ylim(len(row) - 0.5, -0.5)
    for i, w in enumerate(row):
        text = "" if np.isnan(w) else _label(float(w), soft)
        colour = style.text if abs(w) >= 0.0005 and np.isfinite(w) else style.soft
        up = 1 if known[i] >= 0 else -1
        ax.text(
            known[i] + up * (high - low) * 0.02, i, text, va="center", color=colour,
            ha="left" if up > 0 else "right", fontsize=style.base, **PLAIN,
        )  # fmt: skip
    quiet_axes(ax, style)
    ax.spines["left"].set_visible(True)
    ax.set_xticks([])
    ax.set_yticks(range(len(row)), pieces, **mono(points))
    ax.tick_params(length=0)
    what = f"where {pieces[chosen]} looks" if soft else f"scores of {pieces[chosen]}"
    ax.set_title(what, loc="left", color=style.now, **mono(style.base))


# -- all heads -----------------------------------------------------------------------------------


def _all_heads(source: _Source, n_head: int, style: Style) -> Figure:
    most, layer = _ALL, source.layer
    first = source.shown(0, most)
    columns = _columns(n_head, style)
    rows = -(-n_head // columns)
    n = len(first.tokens)
    about = [
        f"{first.node} · {n_head} heads · float32 [{n_head}, {n}, {n}] · row: query, column: key · "
        + " · ".join(filter(None, (_sum_text(first), _count_text(first))))
    ]
    side = (style.width - 1.0) / columns
    canvas = Canvas(
        style,
        rows * (side + 1.5 * style.base / 72),
        f"Attention, layer {layer}, all heads{_TITLES[source.stage]}",
        about,
        [_NOTES[source.stage]],
    )
    grid = canvas.grid(rows, columns)
    every = []
    for head in range(n_head):
        ax = canvas.figure.add_subplot(grid[divmod(head, columns)])
        image = _matrix(ax, first if head == 0 else source.shown(head, most), style)
        ax.set(xticks=[], yticks=[])
        ax.set_title(f"head {head}", fontsize=style.base, color=style.soft, pad=3, **PLAIN)
        every.append(ax)
    _colourbar(canvas.figure, image, every, source, style)
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


def _sum_text(shown: ShownStage) -> str:
    if shown.stage != "softmax":
        return ""
    if shown.sinks:
        return "rows and the sink sum to 1"
    part = len(shown.tokens) < shown.total
    return f"rows sum to 1 over all {shown.total:,} tokens" if part else "rows sum to 1"


def _count_text(shown: ShownStage) -> str:
    n = len(shown.tokens)
    text = count(n, shown.total, "tokens")
    if n < shown.total:
        text += f", positions {shown.tokens[0].pos:,}–{shown.tokens[-1].pos:,}"
    return text
