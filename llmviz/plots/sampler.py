"""The sampler chain as a filmstrip: who was left after each sampler, and the draw."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from llmviz.plots._view import NothingToDraw, drawn
from llmviz.plots.style import PLAIN, Canvas, Style, make_style, mix, mono
from llmviz.plots.text import percent, piece, plain
from llmviz.trace import DebuggerError
from llmviz.trace.filmstrip import Changes, HeldStrip, Strip, moment_of, replay

__all__ = ["sampler"]

_PIECE = 12
_SEGMENTS = 40


@drawn
def sampler(
    dbg: Any,
    *,
    selected: int = -1,
    what_if: Changes | None = None,
    n_rows: int = 10,
    theme: Any = "light",
    size: Any = "page",
    for_print: bool = False,
) -> Figure:
    """How was this token chosen? One column for each sampler, one row for each candidate.

    Parameters
    ----------
    dbg : Debugger or Trace
    selected : int
        Position of a generated token, -1 for the newest logits.
    what_if : mapping of int to {str: value}, optional
        Other parameters, by index of the sampler; nothing is decoded and the run does not move.
    n_rows : int
        How many of the likeliest tokens.
    theme, size, for_print
        See `llmviz.plots.style.make_style`.

    Raises
    ------
    NothingToDraw
        There are no logits yet, or the run does not hold them any more.
    """
    style = make_style(theme, size, for_print)
    try:
        moment = moment_of(dbg, selected)
    except DebuggerError as error:
        raise NothingToDraw(str(error)) from error
    if moment is None:
        raise NothingToDraw("there are no logits yet: let the run reach step 14")
    strip = replay(moment, what_if)
    name = _namer(dbg)
    line = 1.75 * style.base / 72
    rest = 3 + (2.6 if strip.segments(1) else 0)
    fits = int((style.room(2, 1) - rest * line) / line) if style.height is not None else n_rows
    ids = strip.rows(max(1, min(n_rows, fits)), strip.chosen)
    given = [
        f"{s.sampler.name} {', '.join(f'{k} = {v}' for k, v in s.sampler.params.items())}"
        for s in strip.steps
        if not s.sampler.off
    ]
    title = f"How token {moment.pos:,} is chosen: {name(strip.chosen, 24)}"
    shown = f"showing {len(ids):,} of {strip.n_vocab:,} candidates"
    about = [f"probability among those left after each sampler · {shown}"]
    notes = [" · ".join(given)] if not style.narrow else []
    canvas = Canvas(style, line * (len(ids) + rest), title, about, notes)
    _draw(canvas, strip, ids, name, line, style)
    return canvas.figure


def _namer(dbg: Any) -> Any:
    piece_of = dbg.recorder.piece_of

    def name(token: int, room: int = _PIECE) -> str:
        text = piece_of(token).decode("utf-8", "replace") if piece_of is not None else ""
        return piece(text, room)

    return name


def _draw(
    canvas: Canvas, strip: Strip | HeldStrip, ids: list[int], name: Any, line: float, style: Style
) -> None:
    ax = canvas.sheet()
    digit = 0.602 * style.base / 72
    labels = (min(_PIECE, max(len(name(i)) for i in ids)) + 1.5) * digit
    columns = [s for s in strip.steps if not s.sampler.off]  # what is off changes nothing
    rows = [0, *(s.index + 1 for s in columns)]
    wide = (canvas.width - labels) / len(rows)
    p, left_after = strip.shares(ids), strip.left
    most = float(np.nanmax(p))
    room = max(0.15, wide - 7.4 * digit)  # for the bar, beside its number
    text = {"va": "center", "fontsize": style.base, **PLAIN}
    heads = ["raw", *(s.sampler.name for s in columns)]
    for k, (row, head) in enumerate(zip(rows, heads, strict=True)):
        x = labels + k * wide
        left = left_after[row]
        room_for = int(wide / digit)
        ax.text(x + 0.3 * digit, 0.45 * line, plain(head)[:room_for], color=style.text, **text)
        ax.text(x + 0.3 * digit, 1.35 * line, f"{left:,}"[:room_for], color=style.soft, **text)
        ax.plot([x, x], [0, line * (len(ids) + 2)], color=style.line, lw=0.8)
        for r in range(len(ids)):
            before = p[rows[k - 1], r] if k else np.nan
            _cell(ax, (x, line * (r + 2.5)), (p[row, r], before), (room / most, wide, line),
                  k == len(rows) - 1, style)  # fmt: skip
    for r, i in enumerate(ids):
        y, taken = line * (r + 2.5), i == strip.chosen
        if taken:
            fill = mix(style.now, style.background, 0.14)
            box = (0, y - line / 2), canvas.width, line
            ax.add_patch(Rectangle(*box, facecolor=fill, lw=0, zorder=0))
        ax.text(
            labels - 0.6 * digit, y, name(i), color=style.text,
            **mono(style.base, ha="right", va="center", fontweight="bold" if taken else "normal"),
        )  # fmt: skip
    _line(ax, canvas, strip, name, (labels, line * (len(ids) + 3.2), line), style)


def _cell(ax: Any, at: Any, p: Any, unit: Any, last: bool, style: Style) -> None:
    (x, y), (now, before), (per_p, wide, line) = at, p, unit
    high = 0.5 * line
    cut = not now > 0
    if cut and not before > 0:
        return
    colour = style.final if last else mix(style.text, style.background, 0.45)
    bar = Rectangle((x + 0.03, y - high / 2), (before if cut else now) * per_p, high)
    bar.set(facecolor="none" if cut else colour, edgecolor=style.danger, ls="--", lw=0.8 * cut)
    ax.add_patch(bar)
    ax.text(
        x + wide - 0.05, y, "cut" if cut else percent(float(now)), ha="right", va="center",
        color=style.danger if cut else style.text, fontsize=style.base, **PLAIN,
    )  # fmt: skip


def _line(
    ax: Any, canvas: Canvas, strip: Strip | HeldStrip, name: Any, at: Any, style: Style
) -> None:
    """The final probabilities end to end, and the random number on them."""
    segments, draw = strip.segments(_SEGMENTS), strip.draw
    if not segments or draw is None:
        return
    left, y, line = at
    wide = canvas.width - left - 0.02
    digit = 0.602 * style.base / 72
    ax.add_patch(Rectangle((left, y), wide, 1.2 * line, facecolor=style.raised, lw=0))
    for k, s in enumerate(segments):
        chosen = s.id == strip.chosen
        share = 0.34 if k % 2 else 0.18
        colour = style.now if chosen else mix(style.final, style.background, share)
        box = Rectangle((left + s.start * wide, y), (s.end - s.start) * wide, 1.2 * line)
        box.set(facecolor=colour, edgecolor=style.background, lw=0.5, gid=f"draw-{s.id}")
        ax.add_patch(box)
        shown = name(s.id)
        if (s.end - s.start) * wide > (len(shown) + 1) * digit:
            ax.text(
                left + (s.start + s.end) / 2 * wide, y + 0.6 * line, shown, color=style.on(colour),
                **mono(style.base, ha="center", va="center"),
            )  # fmt: skip
    x = left + draw * wide
    ax.plot([x, x], [y - 0.35 * line, y + 1.3 * line], color=style.text, lw=1.6)
    right = draw > 0.5
    ax.text(
        x + (-0.06 if right else 0.06), y - 0.4 * line, f"drew {draw:.6f}", color=style.text,
        ha="right" if right else "left", va="center", fontsize=style.base, **PLAIN,
    )  # fmt: skip
