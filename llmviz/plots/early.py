"""Every layer read early: likeliest tokens, the rank of one token, entropy, layer by layer."""

from __future__ import annotations

from math import ceil
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from llmviz.plots.style import PLAIN, Canvas, Style, mix, mono, quiet_axes
from llmviz.plots.text import number, piece
from llmviz.trace.early import Early

__all__ = ["draw_early"]

_PIECE = 9
_LEAST = 9.0  # points of the many small pieces; where they do not fit, not every layer has one


def draw_early(early: Early, style: Style) -> Figure:
    """One line per layer, the first on top."""
    n = len(early.layers)
    text = piece(early.text, 20)
    title = f"Every layer read early: {text}"
    where = "never the likeliest"
    if early.settled is not None:
        where = f"the likeliest from layer {early.settled} on"
    about = [
        f"logit lens: final norm and output matrix applied to l_out of each layer · position "
        f"{early.pos:,} · {text} is {where}"
    ]
    note = "shaded by probability · rank by logarithm · entropy in nats, "
    note += f"of a blind guess {number(early.most_entropy)}"
    line = 1.5 * style.base / 72
    canvas = Canvas(style, n * line + 0.9, title, about, [note])
    columns = 1 if style.narrow else 3
    grid = canvas.grid(1, 3, width_ratios=[0.6 * columns + 0.4, 1.5, 0.8])
    room = (canvas.height - 0.7) / n * 72  # points of one line
    points = max(_LEAST, min(style.base, room / 1.25))
    every = max(1, ceil(1.2 * points / room))
    words, ranks, entropies = (canvas.figure.add_subplot(grid[i]) for i in range(3))
    _words(words, early, columns, points, every, style)
    _ranks(ranks, early, text, style)
    _entropies(entropies, early, style)
    for ax in (words, ranks, entropies):
        ax.set_ylim(n - 0.5, -0.5)
    for ax in (ranks, entropies):
        ax.set_yticks([])
    return canvas.figure


def _words(ax: Any, early: Early, columns: int, points: float, every: int, style: Style) -> None:
    quiet_axes(ax, style)
    ax.set(xlim=(0, columns), xticks=[])
    last = len(early.layers) - 1
    told = [i for i in range(len(early.layers)) if (last - i) % every == 0]
    ax.set_yticks(told, [f"{early.layers[i].layer}" for i in told], fontsize=points, **PLAIN)
    ax.tick_params(length=0, labelsize=points)
    ax.set_ylabel("layer")
    for i, layer in enumerate(early.layers):
        for k, token in enumerate(layer.top[:columns]):
            box = Rectangle((k + 0.03, i - 0.44), 0.94, 0.88, lw=0)
            box.set(facecolor=mix(style.now, style.background, 0.5 * token.p**0.5))
            ax.add_patch(box)
            if i not in told:
                continue
            name = piece(token.piece.decode("utf-8", "replace"), _PIECE)
            ax.text(
                k + 0.08, i, name, color=style.text, gid=f"top-{layer.layer}-{k}", clip_on=True,
                **mono(
                    points, va="center", fontweight="bold" if token.id == early.token else "normal"
                ),
            )  # fmt: skip
    ax.set_title("likeliest", loc="left", fontsize=style.base, color=style.soft, **PLAIN)


def _ranks(ax: Any, early: Early, text: str, style: Style) -> None:
    quiet_axes(ax, style)
    ax.spines["bottom"].set_visible(True)
    ranks = [layer.rank + 1 for layer in early.layers]
    (line,) = ax.plot(ranks, range(len(ranks)), "o-", color=style.now, lw=1.4, ms=3.2)
    line.set_gid("rank")
    ax.set_xscale("log")
    ax.set_xlim(early.n_vocab, 0.6)
    ticks = [x for x in (1, 100, 10_000) if x < early.n_vocab]
    ax.set_xticks(ticks, [f"{x:,}" for x in ticks], **PLAIN)
    ax.minorticks_off()
    ax.grid(axis="x", color=style.line, lw=0.6)
    title = f"rank of {text}"
    ax.set_title(title, loc="left", fontsize=style.base, color=style.now, **PLAIN)


def _entropies(ax: Any, early: Early, style: Style) -> None:
    quiet_axes(ax, style)
    ax.spines["bottom"].set_visible(True)
    values = [layer.entropy for layer in early.layers]
    for bar in ax.barh(range(len(values)), values, 0.7, color=style.soft, linewidth=0):
        bar.set_gid("entropy")
    ax.set_xlim(0, early.most_entropy)
    ax.set_title("entropy", loc="left", fontsize=style.base, color=style.soft, **PLAIN)
