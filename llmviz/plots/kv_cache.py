"""The cells of the KV cache: which position and sequence each holds, and what was just written."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle

from llmviz.errors import LlmvizError
from llmviz.plots._view import NothingToDraw, begin, drawn
from llmviz.plots.style import PLAIN, Canvas, Style, mix, mono
from llmviz.plots.text import piece
from llmviz.trace.kv_shown import KVStrip, strips
from llmviz.trace.records import CellsRecord
from llmviz.trace.shown import cells_window

__all__ = ["kv_cache"]

SHOWN = 256
_FEW_ROWS = 8  # as many are drawn wide, with the pieces of their tokens
_HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----")


@drawn
def kv_cache(
    dbg: Any,
    *,
    strip: int = 0,
    theme: Any = "light",
    size: Any = "page",
    for_print: bool = False,
) -> Figure:
    """What does the model remember? One square per cell.

    Parameters
    ----------
    dbg : Debugger or Recorder
    strip : int
        Which cache, where the memory is several (layers with a sliding window have their own).
    theme, size, for_print
        See `llmviz.plots.style.make_style`.

    Raises
    ------
    NothingToDraw
        No ubatch has been given cells yet.
    """
    style, recorder = begin(dbg, theme, size, for_print)
    parts = strips(dbg, SHOWN, 8)
    if not parts:
        raise NothingToDraw("no cell has been given to a token yet: let the run reach step 13")
    if not 0 <= strip < len(parts):
        raise LlmvizError(f"strip is 0..{len(parts) - 1}: this memory is {len(parts)} caches")
    part, record = parts[strip], parts[strip].record
    per_row = 8 if cells_window(record, SHOWN, 8)[1] <= 8 * _FEW_ROWS else 16
    first, end = cells_window(record, SHOWN, per_row)
    side = (style.width - 0.28 - _gutter(style)) / per_row
    high = min(side, (2.8 if style.height is None else 4.0) * style.base / 72)
    legend = 2.4 * style.base / 72
    most = max(1.0, min(SHOWN / per_row, (style.room(1, 1) - legend) / high))
    first = max(first, end - int(most) * per_row)
    rows = -(-(end - first) // per_row)
    total = len(record.pos)
    title = f"KV cache: {record.used:,} of {total:,} cells used"
    about = [
        f"event {record.n:,} · position int32, token int32 and sequences of each cell",
        " · ".join(filter(None, (part.title, _sizes(part)))),
    ]
    window = f"showing cells {first:,}–{end - 1:,} of {total:,}" if end - first < total else ""
    words = _words_that_fit(record, (side, high), style)
    inside = f"in each cell: {' and '.join(words)}" if words else ""
    canvas = Canvas(
        style, rows * high + legend, title, about, [" · ".join(filter(None, (window, inside)))]
    )
    ax = canvas.sheet()
    for cell in range(first, end):
        row, column = divmod(cell - first, per_row)
        if column == 0:
            ax.text(
                _gutter(style) - 0.06, (row + 0.5) * high, f"{cell:,}", ha="right", va="center",
                color=style.soft, fontsize=style.base, **PLAIN,
            )  # fmt: skip
        _cell(ax, record, cell, _gutter(style) + column * side, row * high, (side, high), style)
        if cell in part.heads:
            _search(ax, _gutter(style) + (column + 1) * side, row * high, style)
        if words and record.pos[cell] >= 0:
            at = _gutter(style) + (column + 0.5) * side, row * high
            _tell(ax, record, recorder.piece_of, cell, at, (side, high), len(words) == 2, style)
    _legend(ax, part, rows * high, style)
    return canvas.figure


def _gutter(style: Style) -> float:
    return 4.2 * style.base * 0.62 / 72


def _words_that_fit(
    record: CellsRecord, size: tuple[float, float], style: Style
) -> tuple[str, ...]:
    digit = 0.62 * style.base
    if len(f"{record.pos.max():,}") * digit > size[0] * 72 - 4:
        return ()
    both = size[0] * 72 > 4.5 * digit and size[1] * 72 > 2.4 * style.base
    return ("position", "piece of its token") if both else ("position",)


def _colour(style: Style, sequence: int) -> str:
    # A tint: what is written on it must stay legible.
    return mix(style.sequences[sequence % len(style.sequences)], style.background, 0.5)


def _cell(
    ax: Any,
    record: CellsRecord,
    cell: int,
    x: float,
    y: float,
    size: tuple[float, float],
    style: Style,
) -> None:
    gap = 0.02
    width, height = size[0] - 2 * gap, size[1] - 2 * gap
    used, held = record.pos[cell] >= 0, record.sequences(cell)
    for i, sequence in enumerate(held if used else ()):  # a shared cell is split between its owners
        ax.add_patch(
            Rectangle(
                (x + gap + width * i / len(held), y + gap), width / len(held), height,
                facecolor=_colour(style, sequence), lw=0,
                edgecolor=style.background if style.for_print else "none",
                hatch=_HATCHES[sequence % len(_HATCHES)] if style.for_print else None,
                gid=f"cell-{cell}-seq-{sequence}",
            )
        )  # fmt: skip
    fresh = cell in record.fresh
    ax.add_patch(
        Rectangle(
            (x + gap, y + gap), width, height, fill=not used, facecolor=style.raised,
            edgecolor=style.text if fresh else style.line, lw=1.8 if fresh else 0.6,
            gid=f"cell-{cell}",
        )
    )  # fmt: skip


def _tell(
    ax: Any,
    record: CellsRecord,
    piece_of: Any,
    cell: int,
    at: tuple[float, float],
    size: tuple[float, float],
    both: bool,
    style: Style,
) -> None:
    """Position and piece inside a cell."""
    (x, y), colour = at, style.text
    ax.text(
        x, y + size[1] * (0.31 if both else 0.5), f"{record.pos[cell]:,}", ha="center",
        va="center", color=colour, fontsize=style.base, gid=f"pos-{cell}", **PLAIN,
    )  # fmt: skip
    token = int(record.tok[cell])
    if both and piece_of is not None and token >= 0:
        room = int((size[0] * 72 - 4) / (0.602 * style.base))
        told = piece(piece_of(token).decode("utf-8", "replace"), room)
        ax.text(
            x, y + size[1] * 0.7, told, color=colour, gid=f"piece-{cell}",
            **mono(style.base, ha="center", va="center"),
        )  # fmt: skip


def _sizes(part: KVStrip) -> str:
    """What the cache takes, where the run has an engine."""
    if part.sizes is None:
        return ""
    used, read, total = (
        f"{n / 2**20:.2f}" for n in (part.sizes.used, part.sizes.read, part.sizes.total)
    )
    return (
        f"used {used}, read by attention {read} ({part.sizes.n_read:,} cells), in all {total} MiB"
    )


def _search(ax: Any, x: float, y: float, style: Style) -> None:
    """A corner that marks where the next search for free cells begins."""
    side = 0.8 * style.base / 72
    corner = Polygon([(x - side, y + 0.02), (x - 0.03, y + 0.02), (x - 0.03, y + side)])
    corner.set(facecolor=style.now, lw=0, gid="search", zorder=3)
    ax.add_patch(corner)


def _legend(ax: Any, part: KVStrip, top: float, style: Style) -> None:
    """Squares that say what the colours mean, each with how many cells there are."""
    record = part.record
    counts = [(s, int((record.seq[s] & (record.pos >= 0)).sum())) for s in range(len(record.seq))]
    there = [(s, n) for s, n in counts if n]
    entries: list[tuple[dict[str, Any], str]] = [
        (
            {
                "facecolor": _colour(style, s),
                "lw": 0,
                "edgecolor": style.background if style.for_print else "none",
                "hatch": _HATCHES[s % len(_HATCHES)] if style.for_print else None,
            },
            f"sequence {s}: {n:,}",
        )
        for s, n in there[:6]
    ]
    if len(there) > 6:
        entries.append(({"fill": False, "lw": 0}, f"and {len(there) - 6} more sequences"))
    empty = len(record.pos) - record.used
    entries.append(
        ({"facecolor": style.raised, "edgecolor": style.line, "lw": 0.6}, f"empty: {empty:,}")
    )
    if record.fresh:
        entries.append(
            (
                {"fill": False, "edgecolor": style.text, "lw": 1.8},
                f"just written: {len(record.fresh):,}",
            )
        )
    if part.heads:
        cells = ", ".join(f"{c:,}" for c in part.heads[:3])
        entries.append(({"facecolor": style.now, "lw": 0}, f"next search: cell {cells}"))
    x, y = _gutter(style), top + 1.0 * style.base / 72
    side = 0.9 * style.base / 72
    end = ax.get_xlim()[1]
    for look, text in entries:
        long = len(text) * 0.58 * style.base / 72
        if x + 1.4 * side + long > end:
            break
        ax.add_patch(Rectangle((x, y), side, side, **look))
        ax.text(
            x + 1.4 * side, y + side / 2, text, va="center", color=style.soft, fontsize=style.base,
            **PLAIN,
        )  # fmt: skip
        x += 1.4 * side + long + 0.18
