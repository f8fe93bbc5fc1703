"""What came out: every generated token with its probability, its rank and what else was likely."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from llmviz.plots._view import NothingToDraw, begin, drawn
from llmviz.plots.bars import bars, note
from llmviz.plots.style import PLAIN, Canvas, Style, mono
from llmviz.plots.text import count, percent, piece, short, width

__all__ = ["output"]

LINES = 32
_PIECE = 14


@drawn
def output(
    dbg: Any, *, theme: Any = "light", size: Any = "page", for_print: bool = False
) -> Figure:
    """What came out, and what else could have come out?

    Parameters
    ----------
    dbg : Debugger or Recorder
    theme, size, for_print
        See `llmviz.plots.style.make_style`.

    Raises
    ------
    NothingToDraw
        No token has been chosen yet.
    """
    style, recorder = begin(dbg, theme, size, for_print)
    chosen = [k for k in recorder.tokens if not k.given]
    if not chosen:
        raise NothingToDraw("no token has been chosen yet: let the run reach step 16")
    line = 1.9 * style.base / 72
    most = max(1, int(min(LINES, style.room(2, 1) / line - 1)))
    shown = chosen[-most:]
    final = any(k.p is not None for k in shown)
    told = count(len(shown), len(chosen), "tokens")
    about = [f"{told} · rank 1: the largest of all logits{_stop(recorder)}"]
    text = short("".join(k.text for k in chosen[:60]).strip(), 40)
    canvas = Canvas(style, line * (len(shown) + 1), f"Output: {text}", about, [note(final)])
    _draw(canvas, shown, final, style)
    return canvas.figure


def _stop(recorder: Any) -> str:
    return f" · ended: {short(recorder.stop, 30)}" if recorder.stop else ""


def _draw(canvas: Canvas, shown: Any, final: bool, style: Style) -> None:
    """One line per token: position, piece, bars of its probability, rank, the likeliest others."""
    ax = canvas.sheet()
    digit = 0.602 * style.base / 72
    line = canvas.height / (len(shown) + 1)
    room = 9 if style.narrow else _PIECE
    places = {"pos": 5 * digit, "piece": 6.5 * digit}
    start = places["piece"] + (min(room, max(len(piece(k.text, room)) for k in shown)) + 1) * digit
    others = 0 if style.narrow else 34
    titles = ["raw p", *(["final p"] if final else []), "rank"]
    wide = 7.6 * digit
    long = max(0.3, canvas.width - start - len(titles) * wide - others * digit - 0.5 * digit)
    plain = {"va": "center", "fontsize": style.base, **PLAIN}
    colours = {"raw p": style.now, "final p": style.final}
    ends = {t: start + long + wide * (i + 1) for i, t in enumerate(titles)}
    ends["rank"] -= 2 * digit
    for title, x in {"pos": places["pos"], **ends}.items():
        ax.text(x, line / 2, title, ha="right", color=colours.get(title, style.soft), **plain)
    if others:
        beside = ends["rank"] + 1.5 * digit
        ax.text(beside, line / 2, "else likely (raw p)", color=style.soft, **plain)
    for row, k in enumerate(shown):
        y = line * (row + 1.5)
        ax.text(places["pos"], y, f"{k.pos:,}", ha="right", color=style.soft, **plain)
        ax.text(
            places["piece"], y, piece(k.text, room), color=style.text, gid=f"piece-{k.pos}",
            **mono(style.base, va="center"),
        )  # fmt: skip
        at, unit = (start, y), (long, line)
        bars(ax, k.p_raw or 0.0, k.p, at, unit, final, k.pos, style)
        rank = "–" if k.rank is None else f"{k.rank + 1:,}"
        told = [percent(k.p_raw), *([percent(k.p)] if final else []), rank]
        for x, text in zip(ends.values(), told):
            ax.text(x, y, text, ha="right", color=style.text, **plain)
        if others:
            text = _others(k, others - 2)
            ax.text(beside, y, text, color=style.soft, **mono(style.base, va="center"))


def _others(k: Any, room: int) -> str:
    """The likeliest besides the chosen one, as many as fit whole."""
    out = ""
    for a in [a for a in k.top if a.id != k.id][:3]:
        more = f"{out}  {piece(a.text, 9)} {percent(a.p_raw)}".strip()
        if width(more) > room:
            break
        out = more
    return out
