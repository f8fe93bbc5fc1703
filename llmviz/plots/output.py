"""What came out: every generated token with its probability, its rank and what else was likely."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from llmviz.plots._view import NothingToDraw, drawn, recorder_of
from llmviz.plots.style import PLAIN, Canvas, Style, make_style, mono
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
    style = make_style(theme, size, for_print)
    recorder = recorder_of(dbg)
    chosen = [k for k in recorder.tokens if not k.given]
    if not chosen:
        raise NothingToDraw("no token has been chosen yet: let the run reach step 16")
    line = 1.9 * style.base / 72
    most = max(1, int(min(LINES, style.room(2, 1) / line - 1)))
    shown = chosen[-most:]
    final = any(k.p is not None for k in shown)
    told = count(len(shown), len(chosen), "tokens")
    about = [f"{told} · rank 1: the largest of all logits{_stop(recorder)}"]
    note = "raw p: softmax of all logits"
    note += "; final p: after the sampler chain" if final else ", before any sampler"
    text = short("".join(k.text for k in chosen[:60]).strip(), 40)
    canvas = Canvas(style, line * (len(shown) + 1), f"Output: {text}", about, [note])
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
    at = {"pos": 5 * digit, "piece": 6.5 * digit}
    bars = at["piece"] + (min(room, max(len(piece(k.text, room)) for k in shown)) + 1) * digit
    others = 0 if style.narrow else 34
    titles = ["raw p", *(["final p"] if final else []), "rank"]
    wide = 7.6 * digit
    long = max(0.3, canvas.width - bars - len(titles) * wide - others * digit - 0.5 * digit)
    plain = {"va": "center", "fontsize": style.base, **PLAIN}
    colours = {"raw p": style.now, "final p": style.final}
    ends = {t: bars + long + wide * (i + 1) for i, t in enumerate(titles)}
    ends["rank"] -= 2 * digit
    for title, x in {"pos": at["pos"], **ends}.items():
        ax.text(x, line / 2, title, ha="right", color=colours.get(title, style.soft), **plain)
    if others:
        start = ends["rank"] + 1.5 * digit
        ax.text(start, line / 2, "else likely (raw p)", color=style.soft, **plain)
    for row, k in enumerate(shown):
        y = line * (row + 1.5)
        ax.text(at["pos"], y, f"{k.pos:,}", ha="right", color=style.soft, **plain)
        ax.text(
            at["piece"], y, piece(k.text, room), color=style.text, gid=f"piece-{k.pos}",
            **mono(style.base, va="center"),
        )  # fmt: skip
        high = (0.34 if final else 0.6) * line
        raw = Rectangle((bars, y - (high if final else high / 2)), (k.p_raw or 0) * long, high)
        raw.set(facecolor=style.now, lw=0, gid=f"p_raw-{k.pos}")
        ax.add_patch(raw)
        if final and k.p is not None:
            bar = Rectangle((bars, y), k.p * long, high, facecolor=style.final, gid=f"p-{k.pos}")
            bar.set(lw=0, edgecolor=style.background, hatch="////" if style.for_print else None)
            ax.add_patch(bar)
        rank = "–" if k.rank is None else f"{k.rank + 1:,}"
        told = [percent(k.p_raw), *([percent(k.p)] if final else []), rank]
        for x, text in zip(ends.values(), told):
            ax.text(x, y, text, ha="right", color=style.text, **plain)
        if others:
            text = _others(k, others - 2)
            ax.text(start, y, text, color=style.soft, **mono(style.base, va="center"))


def _others(k: Any, room: int) -> str:
    """The likeliest besides the chosen one, as many as fit whole."""
    out = ""
    for a in [a for a in k.top if a.id != k.id][:3]:
        more = f"{out}  {piece(a.text, 9)} {percent(a.p_raw)}".strip()
        if width(more) > room:
            break
        out = more
    return out
