"""What goes in at once: the batch cut into ubatches, the cell of each token, and one mask."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from llmviz.plots._view import NothingToDraw, drawn
from llmviz.plots.style import PLAIN, Canvas, Style, make_style, mix, mono
from llmviz.plots.text import piece
from llmviz.trace.batches import MASK, Batched, Mask, batched_of

__all__ = ["batch"]

_HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----")
_SOURCE = {
    "input": "the graph's own input",
    "planned": "what the graph will be given, worked out in advance",
    "again": "worked out again on the cells as they are now",
}


@drawn
def batch(
    source: Any,
    ctx: Any = None,
    *,
    ubatch: int = 0,
    selected: int = -1,
    cache: str = "",
    theme: Any = "light",
    size: Any = "page",
    for_print: bool = False,
) -> Figure:
    """The tokens of a batch by ubatch with their cells, and the mask of one ubatch.

    Parameters
    ----------
    source, ctx
        See `llmviz.show.batch`.
    ubatch : int
        Whose mask is drawn.
    selected : int
        Index of a token of the batch that is marked.
    cache : str
        ``"_swa"`` for the cells of layers with a window.
    theme, size, for_print
        See `llmviz.plots.style.make_style`.

    Raises
    ------
    NothingToDraw
        There is no batch yet.
    """
    style = make_style(theme, size, for_print)
    b = source if isinstance(source, (Batched, str)) else batched_of(source, ctx)
    if isinstance(b, str):
        raise NothingToDraw(b)
    selected = selected if selected < len(b) else -1
    if selected >= 0 and b.ubatch_of[selected] >= 0:
        ubatch = int(b.ubatch_of[selected])
    ubatch = max(0, min(ubatch, len(b.ubatches) - 1))
    mask = b.mask(ubatch, cache) if b.ubatches else None
    line = 1.75 * style.base / 72
    fixed = style.height is not None
    room = style.room(2, 3) / line if fixed else 40.0
    n_cuts = min(len(b.ubatches), 6, max(1, int(room / 3)))
    first = max(0, min(ubatch - n_cuts // 2, len(b.ubatches) - n_cuts))
    u = b.ubatches[ubatch] if b.ubatches else None
    left = int(room - n_cuts - 2.6) if fixed else 24
    n_rows = max(1, min(u.n_tokens, left)) if u is not None else 0
    at = 0
    if u is not None and selected >= 0:
        at = max(0, min(int(b.row_of[selected]) - n_rows // 2, u.n_tokens - n_rows))
    height = line * (n_cuts + (n_rows + 2.6 if mask is not None else 0.4))
    about, notes = _words(b, mask, u, ubatch, n_rows, n_cuts, cache)
    canvas = Canvas(style, height, "What goes in at once", about, notes, _swatches(b, style))
    ax = canvas.sheet()
    for k in range(first, first + n_cuts):
        _cut(ax, b, k, cache, (k - first) * line, canvas.width, line, selected, ubatch, style)
    if mask is not None and u is not None:
        top = (n_cuts + 0.6) * line
        _mask(ax, b, u, mask, (at, n_rows), cache, top, canvas.width, line, selected, style)
    return canvas.figure


def _words(
    b: Batched, mask: Mask | None, u: Any, ubatch: int, n_rows: int, n_cuts: int, cache: str
) -> tuple[list[str], list[str]]:
    many = "es" * (len(b.ubatches) != 1)
    about = [
        f"{len(b):,} tokens of {len(b.sequences)} sequence{'s' * (len(b.sequences) != 1)} · "
        f"{len(b.ubatches):,} ubatch{many} of at most {b.n_ubatch:,} · {b.how}"
    ]
    if b.say or b.reason:
        about.append(b.reason or b.say)
    notes = []
    if n_cuts < len(b.ubatches):
        notes.append(f"showing {n_cuts} of {len(b.ubatches):,} ubatches")
    if mask is not None:
        part = f", showing {n_rows} of {u.n_tokens:,} tokens" if n_rows < u.n_tokens else ""
        notes.append(
            f"{MASK}{cache} of ubatch {ubatch}, float32 "
            f"[{u.n_tokens}, {mask.rows.shape[1]}]{part}: "
            f"coloured where a token may look, a dot on its own cell; {_SOURCE[mask.source]}"
        )
    return about, notes


def _swatches(b: Batched, style: Style) -> list[tuple[str, str]]:
    shown = b.sequences[: 3 if style.narrow else 6]
    return [(style.sequences[s % len(style.sequences)], f"sequence {s}") for s in shown]


def _piece(b: Batched, token: int, room: int) -> str:
    raw = b.ctx.model.vocab.token_to_piece(token, special=True)
    return piece(raw.decode("utf-8", "replace"), room)


def _cut(
    ax: Any, b: Batched, k: int, cache: str, y: float, wide: float, line: float, selected: int,
    ubatch: int, style: Style,
) -> None:  # fmt: skip
    u, em = b.ubatches[k], style.base / 72
    look = {"va": "center", "fontsize": style.base, **PLAIN}
    ax.text(0, y + line / 2, f"ubatch {k}", color=style.text,
            weight="bold" if k == ubatch else "normal", **look)  # fmt: skip
    x, end = (5.8 + 0.3 * style.narrow) * em, wide
    if cache in b.sinfos:
        cells = "; ".join(
            (f"stream {s}: " if len(b.ctx.memory.caches[cache].cells) > 1 else "") + _ends(idxs)
            for s, idxs in zip(b.sinfos[cache][k].strm, b.sinfos[cache][k].idxs, strict=True)
        )
        told = f"→ cells {cells}"
        if not style.narrow:
            ax.text(wide, y + line / 2, told, color=style.soft, ha="right", **look)
            end = wide - (len(told) * 0.56 + 1) * em
    for n, i in enumerate(u.batch_idxs.tolist()):
        text = _piece(b, int(b.token[i]), 12)
        long = (len(text) * 0.62 + 0.8) * em
        if x + long > end - 3 * em and n + 1 < u.n_tokens:
            ax.text(x, y + line / 2, f"… {u.n_tokens - n}", color=style.soft, **look)
            break
        colour = style.sequences[b.seq_id[i][0] % len(style.sequences)]
        tint = mix(colour, style.background, 0.25)
        ax.add_patch(
            Rectangle(
                (x, y + 0.1 * line), long, 0.8 * line, facecolor=tint,
                edgecolor=style.text if i == selected else "none", lw=1.4 if i == selected else 0,
                gid=f"token-{i}",
            )
        )  # fmt: skip
        ax.add_patch(Rectangle((x, y + 0.1 * line), 0.04, 0.8 * line, facecolor=colour, lw=0))
        ax.text(x + 0.5 * em, y + line / 2, text, color=style.text, **mono(style.base, va="center"))
        x += long + 0.25 * em


def _ends(idxs: np.ndarray) -> str:
    runs = np.split(idxs, np.flatnonzero(np.diff(idxs) != 1) + 1)
    shown = [str(r[0]) if len(r) == 1 else f"{r[0]}–{r[-1]}" for r in runs[:3]]
    return ", ".join(shown) + (f" and {len(runs) - 3} more" if len(runs) > 3 else "")


def _mask(
    ax: Any, b: Batched, u: Any, m: Mask, part: tuple[int, int], cache: str, top: float,
    wide: float, line: float, selected: int, style: Style,
) -> None:  # fmt: skip
    em = style.base / 72
    left = 9.5 * em
    used = max(1, min(m.used, m.rows.shape[1]))
    side = min(line, (wide - left) / used)
    first = 0
    if side < 0.05:  # as many of the newest cells as can be told apart
        n = max(1, int((wide - left) / 0.05))
        first, side = used - n, 0.05
    for r in range(part[0], part[0] + part[1]):
        i, y = int(u.batch_idxs[r]), top + (r - part[0] + 1) * line
        colour = style.sequences[u.seq_id[r][0] % len(style.sequences)]
        ax.text(left - 0.5 * em, y + line / 2, _piece(b, int(u.token[r]), 13), ha="right",
                color=style.text, weight="bold" if i == selected else "normal",
                **mono(style.base, va="center"))  # fmt: skip
        own = b.slot(i, cache)[1]
        for c in range(first, used):
            see = not np.isneginf(m.rows[r, c])
            ax.add_patch(
                Rectangle(
                    (left + (c - first) * side, y + 0.03 * line), side * 0.94, 0.94 * line,
                    facecolor=colour if see else style.raised, lw=0,
                    edgecolor=style.background if style.for_print else "none",
                    hatch=_HATCHES[u.seq_id[r][0] % 6] if style.for_print and see else None,
                    gid=f"mask-{r}-{c}" if see else None,
                )
            )  # fmt: skip
            if c == own:
                ax.plot([left + (c - first + 0.47) * side], [y + line / 2], "o",
                        color=style.background, ms=min(4, 30 * side))  # fmt: skip
        if i == selected:
            box = (left - 0.02, y), (used - first) * side + 0.02, line
            ax.add_patch(Rectangle(*box, fill=False, edgecolor=style.text, lw=1.4))
    look = {"va": "center", "ha": "center", "fontsize": style.base, "color": style.soft, **PLAIN}
    step = max(1, round(2.2 * em / side)) if side < 1.6 * em else 1
    for c in range(first, used, step):
        ax.text(left + (c - first + 0.47) * side, top + line / 2, f"{c:,}", **look)
    ax.text(left - 0.5 * em, top + line / 2, "cell", **{**look, "ha": "right"})
