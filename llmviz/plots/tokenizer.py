"""Why these tokens? A text in boxes with ids, for one tokenizer or several under each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from llmviz.plots._view import NothingToDraw, drawn
from llmviz.plots.style import PLAIN, Canvas, Style, make_style, mix, mono
from llmviz.plots.text import piece, short, width
from llmviz.vocab.tokenized import ADDED, BYTES, SPECIAL, Tokenized, difference, tokenized

__all__ = ["tokenizer"]

_MOST = 400  # tokens
_PIECE = 24


@drawn
def tokenizer(
    tokenizers: Sequence[tuple[str, Any, tuple[bool, bool]]],
    text: str,
    *,
    theme: Any = "light",
    size: Any = "page",
    for_print: bool = False,
) -> Figure:
    """Tokens of a text as boxes with their ids; the first difference is outlined.

    Parameters
    ----------
    tokenizers : sequence of (name, Vocab, (add_special, parse_special))
        One, or two to compare.
    text : str
    theme, size, for_print
        See `llmviz.plots.style.make_style`.

    Raises
    ------
    NothingToDraw
        The text gives no token.
    """
    style = make_style(theme, size, for_print)
    results = [tokenized(vocab, text, *settings) for _, vocab, settings in tokenizers]
    if not any(r.ids for r in results):
        raise NothingToDraw("the text gives no token: write some text")
    found = None
    if len(results) == 2:
        found = difference(results[0], results[1], same_ids=tokenizers[0][1] is tokenizers[1][1])
    line = 2.9 * style.base / 72
    room = style.width - 0.3
    laid = [
        _lay(r, vocab, room, style) for r, (_, vocab, _) in zip(results, tokenizers, strict=True)
    ]
    fits = [len(rows) for rows in laid]
    if style.height is not None:
        most = max(1, int(style.room(1, 1) / line - len(laid) * 0.6) // len(laid))
        fits = [min(n, most) for n in fits]
    lines = sum(fits) + 0.6 * len(laid)
    shown = [sum(len(row) for row in rows[:n]) for rows, n in zip(laid, fits, strict=True)]
    counts = [
        f"{name}: {len(r.ids):,} tokens" + (f", showing {n:,}" if n < len(r.ids) else "")
        for (name, _, _), r, n in zip(tokenizers, results, shown, strict=True)
    ]
    where = f"they part at byte {found.byte:,}" if found else "both give the same tokens"
    about = [where] if len(results) == 2 else []
    canvas = Canvas(style, line * lines, f"Tokens of {short(text, 40)}", about, [])
    ax = canvas.sheet()
    y = 0.0
    for k, rows in enumerate(laid):
        ax.text(0, y + 0.3 * line, counts[k], color=style.text, va="center",
                fontsize=style.base, fontweight="bold", **PLAIN)  # fmt: skip
        y += 0.6 * line
        for row in rows[: fits[k]]:
            for x, wide, i, label in row:
                differs = found is not None and found.index[k] == i
                _box(ax, (x, y, wide, line), results[k], i, label, differs, style)
            y += line
    return canvas.figure


def _lay(r: Tokenized, vocab: Any, room: float, style: Style) -> list[list[Any]]:
    """Rows of (x, width, index, label)."""
    digit = 0.602 * style.base / 72
    rows: list[list[Any]] = [[]]
    x = 0.0
    for i, token in enumerate(r.ids[:_MOST]):
        raw = r.raw[r.starts[i] : r.ends[i]]
        label = (
            raw.hex(" ").upper()
            if r.kinds[i] == BYTES
            else piece(vocab.token_to_piece(token, special=True).decode("utf-8", "replace"), _PIECE)
        )
        wide = (max(width(label), len(str(token))) + 1.2) * digit
        gap = 0.0 if i and r.word_of[i] == r.word_of[i - 1] >= 0 else 0.6 * digit
        if rows[-1] and x + gap + wide > room:
            rows.append([])
            x = gap = 0.0
        rows[-1].append((x + gap, wide, i, label))
        x += gap + wide
    return rows


def _box(ax: Any, at: Any, r: Tokenized, i: int, label: str, differs: bool, style: Style) -> None:
    x, y, wide, line = at
    kind = r.kinds[i]
    face = mix(style.final, style.background, 0.15) if kind == SPECIAL else style.raised
    edge = style.danger if differs else style.final if kind in (SPECIAL, ADDED) else style.soft
    box = Rectangle((x, y + 0.06 * line), wide, 0.84 * line, facecolor=face, edgecolor=edge)
    box.set(lw=1.8 if differs else 0.7, gid=f"token-{i}-{r.ids[i]}", zorder=2 if differs else 1)
    box.set_linestyle("--" if kind in (ADDED, BYTES) and not differs else "-")
    ax.add_patch(box)
    middle = {"ha": "center", "va": "center", "zorder": 3}
    ax.text(x + wide / 2, y + 0.33 * line, label, color=style.text, **mono(style.base, **middle))
    ax.text(x + wide / 2, y + 0.68 * line, str(r.ids[i]), color=style.soft,
            fontsize=style.base, **PLAIN, **middle)  # fmt: skip
