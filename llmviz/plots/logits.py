"""The likeliest next tokens: logit, raw probability, and what the sampler chain left of it."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from llmviz.plots._view import NothingToDraw, begin, drawn
from llmviz.plots.bars import bars, note
from llmviz.plots.early import draw_early
from llmviz.plots.style import PLAIN, Canvas, Style, mix, mono
from llmviz.plots.text import number, percent, piece
from llmviz.trace.early import Early, EarlyReader
from llmviz.trace.shares import NotKept
from llmviz.trace.shown import Candidates, candidates

__all__ = ["logits"]

_PIECE = 16
_CONTEXT = 6  # tokens of the text that the title repeats


@drawn
def logits(
    dbg: Any,
    *,
    selected: int = -1,
    lens: bool = False,
    lens_token: int = -1,
    theme: Any = "light",
    size: Any = "page",
    for_print: bool = False,
) -> Figure:
    """What does it want to say? Bars of raw and of final probability, with the logits.

    Parameters
    ----------
    dbg : Debugger or Recorder
    selected : int
        Position of a generated token whose alternatives are shown, -1 for the newest logits.
    lens : bool
        Every layer read early (the logit lens) instead: its likeliest tokens, the rank of one token
        and the entropy. Rows that were not kept are computed again, silently.
    lens_token : int
        Whose rank is drawn; -1 for the chosen one.
    theme, size, for_print
        See `llmviz.plots.style.make_style`.

    Raises
    ------
    NothingToDraw
        There are no logits yet.
    """
    style, recorder = begin(dbg, theme, size, for_print)
    if lens:
        return draw_early(_read(dbg, selected, lens_token), style)
    shown = candidates(recorder, selected)
    if shown is None or not shown.top:
        raise NothingToDraw("there are no logits yet: let the run reach step 14")
    line = 2.1 * style.base / 72
    fits = min(len(shown.top), (style.room(2, 1) - line) / (1.35 * style.base / 72))
    top = shown.top[: max(1, int(fits))]
    final = any(a.p is not None for a in top)
    about = [_context(recorder, shown), _about(shown, len(top))]
    if shown.chosen is None:
        title = f"Next token, position {shown.pos:,}"
    else:
        named = next((piece(k.text, 24) for k in recorder.tokens if k.pos == shown.pos), "")
        title = f"Token {shown.pos:,}: {named}"
    canvas = Canvas(style, line * (len(top) + 1.1), title, about, [note(final)])
    _draw(canvas, top, shown.chosen, final, style)
    return canvas.figure


def _read(dbg: Any, selected: int, token: int) -> Early:
    reader = EarlyReader(dbg)
    try:
        return reader.read(selected, token)
    except NotKept as missing:
        if not reader.can_fetch:
            raise NothingToDraw(f"{missing}, and this run cannot go back to it") from missing
        reader.fetch(selected)
        return reader.read(selected, token)


def _draw(canvas: Canvas, top: Any, chosen: int | None, final: bool, style: Style) -> None:
    """One line per token: piece, bars, and the numbers themselves in columns."""
    ax = canvas.sheet()
    digit = 0.602 * style.base / 72
    room = 11 if style.narrow else _PIECE
    names = (min(room, max(len(_name(a, room, chosen)) for a in top)) + 3) * digit
    titles = ["raw p", *(["final p"] if final else []), "logit"]
    wide = (6.9 if style.narrow else 8) * digit
    long = max(0.3, canvas.width - names - wide * len(titles) - 0.4 * digit)
    most = max(*(a.p_raw for a in top), *((a.p or 0.0) for a in top), 1e-9)
    line = canvas.height / (len(top) + 1.1)
    plain = {"va": "center", "fontsize": style.base, **PLAIN}
    colours = {"raw p": style.now, "final p": style.final, "logit": style.soft}
    for i, title in enumerate(titles):
        x = names + long + wide * (i + 1)
        ax.text(x, 0.5 * line, title, ha="right", color=colours[title], **plain)
    ax.plot([names, names], [line, canvas.height], color=style.line, lw=0.8)
    for row, a in enumerate(top):
        y = line * (row + 1.55)
        taken = a.id == chosen
        if taken:
            fill = mix(style.now, style.background, 0.12)
            box = (0, y - line / 2), canvas.width, line
            ax.add_patch(Rectangle(*box, facecolor=fill, lw=0, zorder=0))
        ax.text(
            names - digit, y, _name(a, room, chosen), color=style.soft if a.cut else style.text,
            **mono(style.base, ha="right", va="center", fontweight="bold" if taken else "normal"),
        )  # fmt: skip
        at, unit = (names, y), (long / most, line)
        bars(ax, a.p_raw, a.p, at, unit, final, a.id, style, faint=a.cut)
        texts = [percent(a.p_raw), *(["cut" if a.cut else percent(a.p)] if final else [])]
        for i, text in enumerate((*texts, number(a.logit))):
            faint = a.cut and i > 0
            x = names + long + wide * (i + 1)
            ax.text(x, y, text, ha="right", color=style.soft if faint else style.text, **plain)


def _name(a: Any, room: int, chosen: int | None) -> str:
    mark = "▸ " if a.id == chosen else ""
    return f"{mark}{piece(a.text, room)}"


def _context(recorder: Any, shown: Candidates) -> str:
    before = recorder.tokens[: shown.pos][-_CONTEXT:]
    if not before:
        return ""
    text = "".join(piece(k.text, 24) for k in before)
    lead = "…" if shown.pos > len(before) else ""
    return f"after {lead}{text}"


def _about(shown: Candidates, n: int) -> str:
    parts = ["logits float32"]
    if shown.n_vocab is not None:
        parts[0] += f" [{shown.n_vocab:,}]"
        parts.append(f"showing {n:,} of {shown.n_vocab:,} tokens")
    else:
        parts.append(f"the {n} likeliest that it was chosen from")
    if shown.entropy is not None:
        parts.append(f"entropy {number(shown.entropy)} nats")
    return " · ".join(parts)
