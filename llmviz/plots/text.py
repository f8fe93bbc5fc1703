"""Text that comes from a prompt, a vocabulary or a file, made safe and legible for a figure.

Whatever it holds is drawn as characters: controls and bidirectional overrides by their number, and
characters that no font at hand can draw by theirs. Numbers are formatted as in the notebook.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

from matplotlib import font_manager
from matplotlib.ft2font import FT2Font

__all__ = [
    "MONO",
    "SANS",
    "count",
    "number",
    "percent",
    "piece",
    "plain",
    "seconds",
    "short",
    "width",
]

# Fonts that people have for the world's scripts; of these the ones that are installed are used.
_MORE = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Noto Sans JP", "Noto Sans KR"),
    *("Source Han Sans SC", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "PingFang SC"),
    *("Hiragino Sans", "Apple SD Gothic Neo", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic"),
    *("Noto Sans Devanagari", "Noto Sans Bengali", "Noto Sans Tamil", "Noto Sans Thai"),
    *("Noto Sans Hebrew", "Noto Sans Arabic", "Noto Emoji", "Symbola", "Segoe UI Symbol"),
)


def _installed() -> list[str]:
    have = {font.name for font in font_manager.fontManager.ttflist}
    return [name for name in _MORE if name in have]


# Both come with matplotlib: a figure looks the same on every machine.
SANS = ["DejaVu Sans", *_installed()]
MONO = ["DejaVu Sans Mono", *SANS]

_UNSEEN = re.compile(
    "[\u0000-\u001f\u007f-\u00a0\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202f\u205f-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000e0000-\U000e0fff]"
)
_PIECE = 40


@cache
def _drawable() -> frozenset[int]:
    """Code points that some font of `SANS` has a shape for."""
    found: set[int] = set()
    for name in SANS:
        path = font_manager.findfont(name, fallback_to_default=True)
        found.update(FT2Font(path).get_charmap())
    return frozenset(found)


def _number_of(c: str) -> str:
    return f"‹U+{ord(c):04X}›"


def plain(text: str) -> str:
    """Any text in one line of characters that can be seen and drawn."""
    text = text.replace("\r\n", "⏎").replace("\n", "⏎").replace("\t", "⇥")
    text = _UNSEEN.sub(lambda m: _number_of(m[0]), text)
    if text.isascii():
        return text
    have = _drawable()
    return "".join(c if ord(c) in have else _number_of(c) for c in text)


def short(text: str, room: int) -> str:
    """`plain` text of at most `room` columns, its end cut off with an ellipsis.

    Only the beginning is looked at: a text of megabytes costs no more than a word.
    """
    room = max(1, room)
    limit = 4 * room + 16  # combining characters take no column, but somewhere is the end
    out, used = "", 0.0
    for c in text[:limit]:
        shown = plain(c)
        used += width(shown)
        if used > room:
            break
        out += shown
    else:
        if len(text) <= limit:
            return out
    while out and width(out) > room - 1:
        out = out[:-1]
    return out + "…"


def width(text: str) -> float:
    """Columns that a text takes in a fixed-width font: wide characters two, combining ones none."""
    return sum(_columns(c) for c in text)


def _columns(c: str) -> float:
    if c.isascii():
        return 1
    if unicodedata.combining(c):
        return 0
    return 2 if unicodedata.east_asian_width(c) in "WF" else 1


def piece(text: str, room: int = _PIECE) -> str:
    """A token as it can be read: leading spaces as dots, so that `` is`` and ``is`` differ."""
    text = text[: room + 1]
    rest = text.lstrip(" ")
    return short("·" * (len(text) - len(rest)) + rest, room) or "∅"


# -- numbers -------------------------------------------------------------------------------------


def number(x: float | None) -> str:
    """A value in four digits."""
    if x is None:
        return "–"
    if x != x:
        return "NaN"
    if x in (float("inf"), float("-inf")):
        return "+inf" if x > 0 else "−inf"
    if x == 0:
        return "0"
    size = abs(x)
    if size >= 1e5 or size < 1e-3:
        text = f"{x:.2e}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
    elif x == int(x):
        text = f"{int(x):,}"
    else:
        text = f"{x:#.4g}"
    return text.replace("-", "−")


def percent(p: float | None) -> str:
    """A probability; ``<0.1 %`` where it would round to nothing."""
    if p is None:
        return "–"
    return "<0.1 %" if 0 < p < 0.0005 else f"{100 * p:.1f} %"


def seconds(s: float) -> str:
    """A duration in the unit that fits."""
    if s >= 1:
        return f"{s:.1f} s"
    ms = s * 1000
    return "<0.1 ms" if ms < 0.1 else f"{ms:.1f} ms" if ms < 10 else f"{ms:.0f} ms"


def count(shown: int, of: int, what: str) -> str:
    """``64 of 2,000 cells`` with "showing" before it, or just how many there are."""
    what = what if of != 1 else what.removesuffix("s")
    return f"showing {shown:,} of {of:,} {what}" if shown < of else f"{of:,} {what}"
