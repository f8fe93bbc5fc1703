"""A tensor: a window of it as colours, how all its values are spread, and their statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.colors import Normalize, to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from llmviz.plots._view import NothingToDraw, drawn, recorder_of
from llmviz.plots.style import PLAIN, Canvas, Style, make_style, mono, quiet_axes
from llmviz.plots.text import count, number, piece, plain, short
from llmviz.trace.details import details
from llmviz.trace.glossary import gloss
from llmviz.trace.shown import Scale, scale_of, window
from llmviz.trace.summary import Statistics, as_matrix, statistics
from llmviz.trace.timeline import shape_text

__all__ = ["tensor"]

ROWS, COLUMNS = 48, 160
_BINS = 63
_CHUNK = 1 << 20


class _Value(NamedTuple):
    name: str
    n: int
    op: str
    value: Any


@drawn
def tensor(
    dbg: Any,
    name: str | None = None,
    *,
    slice: Sequence[int] = (),
    origin: Sequence[int] = (0, 0),
    theme: Any = "light",
    size: Any = "page",
    for_print: bool = False,
) -> Figure:
    """What is in this tensor? A window of it, the spread of all its values, their statistics.

    Parameters
    ----------
    dbg : Debugger
    name : str, optional
        A node or input whose value the recorder was asked to keep; else the event at which the run
        stands. An event that holds no tensor is drawn as a table.
    slice : sequence of int
        Which 2-D slice of a tensor of three or more dimensions.
    origin : (row, column)
        Upper left corner of the window.
    theme, size, for_print
        See `llmviz.plots.style.make_style`.

    Raises
    ------
    NothingToDraw
        The run has not started, or no value of that name is held.
    """
    style = make_style(theme, size, for_print)
    shown = _find(dbg, name)
    array = shown.value
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub" or not array.size:
        return _table(dbg, style)
    return _heatmap(shown, array, style, tuple(slice), tuple(origin))


def _find(dbg: Any, name: str | None) -> _Value:
    if name is not None:
        kept = recorder_of(dbg).value(name)
        if kept is None:
            raise NothingToDraw(
                f"no value of {short(name, 60)!r} is held: call recorder.ask(owner, want) with a "
                "want that says yes to it, and let the run compute it"
            )
        return _Value(kept.name, kept.n, getattr(kept.tensor, "op", None) or "", kept.array)
    here = getattr(dbg, "here", None)
    if here is None:
        raise NothingToDraw("the run has not started: step to an event first")
    op = getattr(here.about, "op", None) if here.kind == "node" else None
    return _Value(here.name, here.n, op or "", here.value)


# -- arrays --------------------------------------------------------------------------------------


def _heatmap(
    shown: _Value, array: np.ndarray, style: Style, index: tuple[int, ...], origin: Sequence[int]
) -> Figure:
    cut = as_matrix(array, index)
    n_rows, n_columns = cut.matrix.shape
    row, column, part, rest = window(cut.matrix, origin, ROWS, COLUMNS)
    scale = scale_of(part)
    stats = statistics(array)
    sentence, axes = gloss(shown.name, shown.op, array.shape)
    about = [
        sentence,
        " · ".join(
            filter(
                None,
                (
                    f"{shape_text(array.shape)} {array.dtype}",
                    " × ".join(axes),
                    shown.op,
                    f"event {shown.n:,}",
                    _slice_text(cut, array, axes),
                ),
            )
        ),
        _window_text(row, column, part.shape, (n_rows, n_columns)),
    ]
    span = _span(scale)
    counts, beyond = _histogram(array, span)
    notes = [_stats_text(stats), _rest_text(rest, column + part.shape[1], n_columns, beyond)]
    tall = min(3.2, max(0.45, part.shape[0] * 0.11))
    wanted = tall + 0.5 + 5.2 * style.base / 72
    canvas = Canvas(
        style, wanted + 0.45, short(shown.name, 60), about, notes, _swatches(stats, style)
    )
    grid = canvas.grid(2, 1, height_ratios=[max(0.3, canvas.height - 1.5), 0.6])
    ax, below = canvas.figure.add_subplot(grid[0]), canvas.figure.add_subplot(grid[1])

    colours = style.signed if scale.signed else style.magnitude
    image = ax.imshow(
        np.ma.masked_invalid(part.astype(np.float64)),
        cmap=colours,
        norm=Normalize(*span),
        aspect="auto",
        interpolation="nearest",
        extent=(column - 0.5, column + part.shape[1] - 0.5, row + part.shape[0] - 0.5, row - 0.5),
    )
    image.set_gid("values")
    _mark_nonfinite(ax, part, image.get_extent(), style)
    quiet_axes(ax, style, frame=True)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
    ax.set_xlabel(axes[-1] if axes else "column")
    if n_rows > 1:
        ax.set_ylabel(axes[cut.row_axis] if axes and cut.row_axis is not None else "row")
    else:
        ax.set_yticks([])
    _spread(below, counts, span, colours, style)
    return canvas.figure


def _span(scale: Scale) -> tuple[float, float]:
    """Ends that are apart: a tensor of one value has a scale too."""
    if scale.high > scale.low:
        return scale.low, scale.high
    return scale.low - 0.5, scale.high + 0.5


def _mark_nonfinite(ax: Any, part: np.ndarray, extent: Any, style: Style) -> None:
    x = part.astype(np.float64)
    if np.isfinite(x).all():
        return
    rgba = np.zeros((*x.shape, 4))
    for where, colour in (
        (np.isnan(x), style.nan),
        (np.isposinf(x), style.plus_inf),
        (np.isneginf(x), style.minus_inf),
    ):
        rgba[where] = to_rgba(colour)
    over = ax.imshow(rgba, aspect="auto", interpolation="nearest", extent=extent)
    over.set_gid("not-finite")


def _spread(
    ax: Any, counts: np.ndarray, span: tuple[float, float], colours: Any, style: Style
) -> None:
    """A histogram in the colours of the values: the legend of the heatmap."""
    edges = np.linspace(*span, _BINS + 1)
    norm = Normalize(*span)
    centres = (edges[:-1] + edges[1:]) / 2
    bars = ax.bar(centres, counts, np.diff(edges), color=colours(norm(centres)), linewidth=0)
    for bar in bars:
        bar.set_gid("spread")
    some = counts[counts > 0]
    steep = some.size > 1 and float(some.max()) > 40 * float(np.median(some))
    if steep:
        ax.set_yscale("log")
    quiet_axes(ax, style)
    # The colour of a low bar could not be seen: a strip of the whole scale lies under the bars.
    strip = ax.inset_axes((0, -0.18, 1, 0.12))
    strip.imshow(np.linspace(0, 1, 253)[None, :], cmap=colours, aspect="auto")
    strip.axis("off")
    ax.set_xlim(span)
    ax.tick_params(axis="x", length=0, pad=4 + 0.8 * style.base)
    low, high = span
    ticks = [low, 0.0, high] if low < 0 < high else [low, (low + high) / 2, high]
    ax.set_xticks(ticks, [f"{x:.4g}".replace("-", "−") for x in ticks], **PLAIN)
    labels = ax.get_xticklabels()
    labels[0].set_ha("left")
    labels[-1].set_ha("right")
    ax.set_yticks([])
    ax.minorticks_off()
    ax.set_ylabel("count\n(log)" if steep else "count", rotation=0, ha="right", va="center")


def _histogram(array: np.ndarray, span: tuple[float, float]) -> tuple[np.ndarray, int]:
    """Counts of all finite values, those beyond the scale in the outermost bars; how many are."""
    flat = array.reshape(-1)
    counts = np.zeros(_BINS, dtype=np.int64)
    edges = np.linspace(*span, _BINS + 1)
    beyond = 0
    for start in range(0, flat.size, _CHUNK):
        part = flat[start : start + _CHUNK].astype(np.float64)
        part = part[np.isfinite(part)]
        inside = np.clip(part, *span)
        beyond += int((inside != part).sum())
        counts += np.histogram(inside, edges)[0]
    return counts, beyond


def _swatches(stats: Statistics, style: Style) -> list[tuple[str, str]]:
    out = [(style.nan, f"NaN: {stats.nan:,}")] if stats.nan else []
    if stats.inf:
        out += [(style.plus_inf, "+inf"), (style.minus_inf, f"−inf (both: {stats.inf:,})")]
    return out


def _slice_text(cut: Any, array: np.ndarray, axes: Sequence[str]) -> str:
    return ", ".join(
        f"{axes[axis] if axes else f'axis {axis}'} {i} of {array.shape[axis]}"
        for axis, i in zip(cut.lead, cut.index)
    )


def _window_text(row: int, column: int, part: tuple[int, ...], whole: tuple[int, int]) -> str:
    out = []
    for first, n, of, what in (
        (row, part[0], whole[0], "rows"),
        (column, part[1], whole[1], "columns"),
    ):
        if n < of:
            out.append(f"{what} {first:,}–{first + n - 1:,} of {of:,}")
    return "showing " + ", ".join(out) if out else ""


def _stats_text(s: Statistics) -> str:
    parts = [f"{k} {number(getattr(s, k))}" for k in ("min", "max", "mean", "std")]
    odd = [f"{k} {x:,}" for k, x in (("NaN", s.nan), ("inf", s.inf)) if x]
    whole = f"{s.count:,} value{'s' * (s.count != 1)}"
    return " · ".join((whole, *parts, *(odd or ["no NaN, no inf"])))


def _rest_text(rest: Any, first: int, n_columns: int, beyond: int) -> str:
    out = []
    if rest is not None:
        out.append(f"columns {first:,}–{n_columns - 1:,} all hold {number(float(rest))}")
    if beyond:
        out.append(f"{count(beyond, beyond, 'values')} beyond the scale, in the outermost bars")
    return " · ".join(out)


# -- everything else -----------------------------------------------------------------------------


def _table(dbg: Any, style: Style) -> Figure:
    """An event without a tensor, as the notebook's view tells it."""
    here = dbg.here
    table = details(here, dbg)
    rows = [[_cell(c) for c in row] for row in table["rows"]]
    head = list(table["columns"])
    line = 1.6 * style.base / 72
    most = max(1, int(min(len(rows), style.room(2, 1) / line - any(head))))
    note = table["note"]
    if most < len(rows):
        note = f"{note} · showing the first {most} rows".removeprefix(" · ")
    about = [f"{here.kind} · event {here.n:,} · step {here.step}"]
    lines = [*([head] if any(head) else []), *rows[:most]]
    canvas = Canvas(
        style, line * max(1, len(lines)) + 0.1, short(here.name, 60), about, [plain(note[:400])]
    )
    ax = canvas.sheet()
    if not lines:
        return canvas.figure
    n = max(len(r) for r in lines)
    digit = style.base * 0.61 / 72
    room = int(canvas.width / digit)
    widths = [max((len(r[i]) for r in lines if i < len(r)), default=0) + 2 for i in range(n)]
    widths = [
        min(w, max(8, room - 2 * n if i == n - 1 else room // 2)) for i, w in enumerate(widths)
    ]
    for y, cells in enumerate(lines):
        is_head = y == 0 and any(head)
        x = 0
        for i, cell in enumerate(cells):
            left = room - x if i == len(cells) - 1 else widths[i] - 1
            ax.text(
                x * digit,
                line * (y + 0.5) + 0.05,
                short(cell, max(1, min(left, room - x))),
                color=style.soft if is_head or (i == 0 and not any(head)) else style.text,
                **mono(style.base, va="center"),
            )
            x += widths[i]
    return canvas.figure


def _cell(cell: dict[str, Any]) -> str:
    if cell.get("piece"):
        return piece(cell["text"])
    if "text" in cell:
        return str(cell["text"])[:400]
    try:
        return number(float(cell["value"]))
    except (KeyError, ValueError):
        return str(cell.get("value", ""))[:400]
