"""The text so far, token by token, shaded by the probability each was chosen with."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from llmviz.plots._view import NothingToDraw, drawn, recorder_of
from llmviz.plots.style import PLAIN, Canvas, Style, make_style, mono
from llmviz.plots.text import percent, piece, width

__all__ = ["tokens"]

SHOWN = 200
_PIECE = 28


@drawn
def tokens(
    dbg: Any,
    *,
    selected: int = -1,
    theme: Any = "light",
    size: Any = "page",
    for_print: bool = False,
) -> Figure:
    """What came out? The prompt plain, generated tokens shaded by their raw probability.

    Parameters
    ----------
    dbg : Debugger or Recorder
    selected : int
        Position of a token that is framed and described at the foot; -1 for none.
    theme, size, for_print
        See `llmviz.plots.style.make_style`.

    Raises
    ------
    NothingToDraw
        The prompt has not been tokenized yet.
    """
    style = make_style(theme, size, for_print)
    every = recorder_of(dbg).tokens
    if not every:
        raise NothingToDraw("there are no tokens yet: let the run reach step 9")
    room = style.width - 0.28
    legend = 2.2 * style.base / 72
    most = style.room(1, 2) - legend
    # On a slide, as large as all of it fits.
    for points in (
        *((1.9 * style.base, 1.5 * style.base) if style.height else ()),
        1.15 * style.base,
    ):
        line = 2.0 * points / 72
        lines = _lines(every[-SHOWN:], room, points)
        if len(lines) * line <= most:
            break
    lines = lines[-max(1, int(min(len(lines), most / line))) :]
    shown = [k for row in lines for k, _, _ in row]
    given = sum(k.given for k in every)
    title = f"{len(every):,} tokens: {given:,} of the prompt, {len(every) - given:,} generated"
    part = (
        f"showing the last {len(shown):,} of {len(every):,} tokens"
        if len(shown) < len(every)
        else ""
    )
    picked = every[selected] if 0 <= selected < len(every) else None
    notes = ["" if picked is None else _told(picked)]
    if any(not k.given for k in shown):
        notes.append(
            "probability: softmax of all logits, before any sampler; shaded by its square root"
        )
    canvas = Canvas(style, len(lines) * line + legend, title, [part], list(filter(None, notes)))
    ax = canvas.sheet()
    for y, row in enumerate(lines):
        for k, x, long in row:
            _chip(ax, k, (x, y * line + 0.1 * line, long, 0.8 * line), k is picked, points, style)
    _legend(ax, len(lines) * line + 0.5 * style.base / 72, style)
    return canvas.figure


def _lines(every: Any, room: float, points: float) -> list[list[tuple[Any, float, float]]]:
    """Tokens in lines: each with its left edge and its width in inches."""
    digit = 0.602 * points / 72
    lines: list[list[tuple[Any, float, float]]] = [[]]
    x = 0.0
    for k in every:
        long = (width(piece(k.text, _PIECE)) + 0.9) * digit
        if x + long > room and lines[-1]:
            lines.append([])
            x = 0.0
        lines[-1].append((k, x, long))
        x += long + 0.03
    return lines


def _chip(
    ax: Any,
    k: Any,
    box: tuple[float, float, float, float],
    picked: bool,
    points: float,
    style: Style,
) -> None:
    x, y, long, high = box
    fill = style.background if k.given else style.shade(k.p_raw or 0.0)
    ax.add_patch(
        Rectangle(
            (x, y), long, high, facecolor=fill, gid=f"token-{k.pos}",
            edgecolor=style.text if picked else style.line, lw=1.8 if picked else 0.7,
            zorder=3 if picked else 2,
        )
    )  # fmt: skip
    ax.text(
        x + long / 2, y + high / 2, piece(k.text, _PIECE), color=style.on(fill), zorder=4,
        gid=f"piece-{k.pos}", **mono(points, ha="center", va="center"),
    )  # fmt: skip


def _legend(ax: Any, y: float, style: Style) -> None:
    side = 1.1 * style.base / 72
    x = 0.0
    words = {"va": "center", "color": style.soft, "fontsize": style.base, **PLAIN}
    ax.add_patch(
        Rectangle((x, y), side, side, facecolor=style.background, edgecolor=style.line, lw=0.7)
    )
    x += 1.4 * side
    ax.text(x, y + side / 2, "prompt", **words)
    x += 8 * 0.6 * style.base / 72
    ax.text(x, y + side / 2, "p =", **words)
    x += 3.6 * 0.6 * style.base / 72
    for p in (0.0, 0.01, 0.1, 0.25, 0.5, 1.0):
        text = f"{p:g}"
        long = 4.2 * 0.6 * style.base / 72
        fill = style.shade(p)
        ax.add_patch(Rectangle((x, y), long, side, facecolor=fill, edgecolor=style.line, lw=0.7))
        ax.text(
            x + long / 2, y + side / 2, text, **{**words, "color": style.on(fill), "ha": "center"}
        )
        x += long


def _told(k: Any) -> str:
    text = f"position {k.pos:,}: {piece(k.text, 40)} (token {k.id:,})"
    if k.given:
        return f"{text}, from the prompt"
    parts = [text, f"{percent(k.p_raw)} raw"]
    if k.p is not None:
        parts.append(f"{percent(k.p)} after the chain")
    if k.rank is not None:
        parts.append(f"rank {k.rank + 1:,}")
    return ", ".join(parts)
