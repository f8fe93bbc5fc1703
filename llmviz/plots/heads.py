"""Which heads pushed a token: its logit split over layers and heads, and feed-forward networks."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from llmviz.errors import LlmvizError
from llmviz.plots._view import NothingToDraw, drawn
from llmviz.plots.style import PLAIN, Canvas, Style, make_style, quiet_axes
from llmviz.plots.text import percent, piece
from llmviz.trace.shares import NotKept, Split, split, words

__all__ = ["heads"]

TOP = 5


@drawn
def heads(
    dbg: Any,
    token: int = -1,
    *,
    theme: Any = "light",
    size: Any = "page",
    for_print: bool = False,
) -> Figure:
    """Which heads pushed this token? A grid of layers and heads, and bars of the feed-forward.

    Parameters
    ----------
    dbg : Debugger
        Must have kept what the shares need: open `llmviz.show.heads` before the token is computed,
        or call its `measure`.
    token : int
        -1 for the token that was chosen, before that the likeliest.
    theme, size, for_print
        See `llmviz.plots.style.make_style`.

    Raises
    ------
    NothingToDraw
        There are no logits yet, or the values were not kept.
    """
    style = make_style(theme, size, for_print)
    try:
        found = split(dbg, token)
    except NotKept as error:
        raise NothingToDraw(
            f"{error}. llmviz.show.heads(dbg).measure_token() computes the token's pass once more"
        ) from error
    except LlmvizError as error:
        raise NothingToDraw(str(error)) from error
    a = found.shares
    n_layer, n_head = a.heads.shape
    name = piece(found.text, 24)
    sums = {"heads": a.heads.sum(), "feed-forward": a.ffn.sum(), "embedding": a.embedding}
    sums |= {"biases": a.biases} if a.biases else {}
    parts = [f"{_signed(x)} {what}" for what, x in sums.items()]
    about = [
        f"logit {found.logit:.2f} = {' '.join(parts)}",
        f"raw p {percent(found.p)} · position {found.pos:,} · "
        f"{n_layer} layers × {n_head} heads, shares in logits, float32",
    ]
    top = [f"layer {il}, head {h} {words(v, found.logit)}" for il, h, v in a.top_heads(TOP)]
    notes = [
        "most: " + " · ".join(top[: 2 if style.narrow else 3 if style.height is not None else TOP])
    ]
    notes.append("direct path only: what a head writes for a later head to use shows there")
    if not found.whole:
        notes.append(f"the shares add up to {a.logit:.2f} only: the stream is not a plain sum")
    tall = min(5.5, max(1.4, 0.13 * n_layer)) + 1.3
    title = f"Which heads pushed {name}?"
    canvas = Canvas(style, tall, title, about, notes)
    _draw(canvas, found, style)
    return canvas.figure


def _signed(x: float) -> str:
    return f"{x:+.2f}".replace("-", "−")


def _draw(canvas: Canvas, found: Split, style: Style) -> None:
    a = found.shares
    n_layer, n_head = a.heads.shape
    grid = canvas.grid(1, 2, width_ratios=[2.2, 1])
    ax, bars = (canvas.figure.add_subplot(g) for g in grid)
    most = float(np.nanmax(np.abs(a.heads))) or 1.0
    image = ax.imshow(
        np.ma.masked_invalid(a.heads.astype(np.float64)),
        cmap=style.signed,
        norm=Normalize(-most, most),
        aspect="auto",
        interpolation="nearest",
    )
    image.set_gid("shares")
    quiet_axes(ax, style, frame=True)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
    ax.set_xlabel("head")
    ax.set_ylabel("layer")
    letter = style.base / 72
    fits = 0.5 * canvas.width / n_head > 2.4 * letter
    if fits and (canvas.height - 1.2) / n_layer > 0.8 * letter:
        for il, h, value in a.top_heads(TOP):
            if abs(value) < 0.25 * most:
                continue
            colour = style.on(style.signed((value / most + 1) / 2))
            text = f"{value:.1f}"
            small = {"ha": "center", "va": "center", "fontsize": style.base * 0.85, **PLAIN}
            ax.text(h, il, text, color=colour, **small)
    place: dict[str, Any] = {"location": "top", "pad": 0.02, "fraction": 0.04, "aspect": 30}
    bar = canvas.figure.colorbar(image, ax=ax, **place)
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=style.soft, labelsize=style.base, length=3, width=0.8)
    bar.locator = MaxNLocator(5)
    bar.set_label("a head's share (logits)", color=style.soft, fontsize=style.base, **PLAIN)

    colours = [style.signed(0.85 if v >= 0 else 0.12) for v in a.ffn]
    drawn_bars = bars.barh(np.arange(n_layer), a.ffn, color=colours, height=0.7)
    if style.for_print:
        for patch, value in zip(drawn_bars, a.ffn, strict=True):
            patch.set_hatch("////" if value < 0 else None)
    bars.set_ylim(n_layer - 0.5, -0.5)
    bars.axvline(0, color=style.soft, lw=0.8)
    quiet_axes(bars, style)
    bars.set_yticks([])
    bars.xaxis.set_major_locator(MaxNLocator(2 if style.narrow else 4))
    bars.set_xlabel("feed-forward" if style.narrow else "feed-forward (logits)")
