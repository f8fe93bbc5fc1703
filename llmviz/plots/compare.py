"""Where two runs part: relative error of every node along depth, on a scale of powers of ten."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from llmviz.plots._view import NothingToDraw, drawn
from llmviz.plots.style import PLAIN, Canvas, Style, make_style, mono, quiet_axes
from llmviz.plots.text import piece
from llmviz.trace.compare_report import error_text
from llmviz.trace.diff import KINDS, NodeDiff, decades

__all__ = ["compare"]

_MARKS = ("o", "P", "^", "s", "D", "X")  # one for each of `KINDS`: colour is never alone


@drawn
def compare(
    comparison: Any,
    pass_: int | None = None,
    *,
    theme: Any = "light",
    size: Any = "page",
    for_print: bool = False,
) -> Figure:
    """Relative error along depth, coloured by kind of node, the first over the tolerance named.

    Parameters
    ----------
    comparison : Comparison
        As `llmviz.compare` makes it.
    pass_ : int, optional
        By default the pass that it shows.
    theme, size, for_print
        See `llmviz.plots.style.make_style`.

    Raises
    ------
    NothingToDraw
        No pass can be compared.
    """
    style = make_style(theme, size, for_print)
    c = comparison
    if not c.passes:
        raise NothingToDraw("there is no pass that both runs have computed: run them further")
    span = c.span(pass_)
    nodes = c.nodes_of(span.index)
    known = [d for d in nodes if d.error is not None]
    first = next((d for d in nodes if d.over(c.tolerance)), None)
    if first is not None:
        title = f"First node over {c.tolerance:g}: {first.name}"
        verdict = f"relative error {error_text(first)}"
        verdict += f" in layer {first.layer}" if first.layer >= 0 else ""
    else:
        title, verdict = f"No node is over {c.tolerance:g}", "the runs agree in this pass"
    where = "prompt" if span.prompt else f"token {piece(span.text_a, 16)}"
    about = [
        f"a: {c.a.label} · b: {c.b.label}",
        f"{verdict} · pass {span.index}, {where} · {len(known):,} of {len(nodes):,} nodes compared",
    ]
    notes = ["error = |b − a| / |a| over all values of a node"]
    if any(d.bound for d in known):
        notes.append("hollow: the error is at least so large, from statistics")
    canvas = Canvas(style, 3.2 if not style.narrow else 2.9, title, about, notes)
    _draw(canvas, nodes, first, c.tolerance, style)
    return canvas.figure


def _draw(
    canvas: Canvas, nodes: list[NodeDiff], first: NodeDiff | None, tolerance: float, style: Style
) -> None:
    ax = canvas.figure.add_subplot(canvas.grid(1, 1)[0])
    quiet_axes(ax, style)
    colours = _colours(style)
    ax.set_xlim(-1, len(nodes))
    low, high = decades(nodes, tolerance)
    errors = [d.error for d in nodes if d.error is not None]
    step = (high - low) / 10  # what is no power of ten has a line of its own

    def height(error: float) -> float:
        if not error > 0:
            return low - step
        return float(np.clip(np.log10(error), low, high)) if np.isfinite(error) else high + step

    ax.set_ylim(height(0.0) - step / 2, height(np.inf) + step / 2)
    places, names = [], []
    for layer in sorted({d.layer for d in nodes if d.layer >= 0}):
        inside = [d.i for d in nodes if d.layer == layer]
        if layer % 2 == 0:
            ax.axvspan(inside[0] - 0.5, inside[-1] + 0.5, color=style.raised, lw=0)
        places.append((inside[0] + inside[-1]) / 2)
        names.append(str(layer))
    letters = max(1, int(canvas.width / (2.2 * style.base / 72)))
    every = max(1, -(-len(names) // letters))
    ax.set_xticks(places[::every], names[::every])
    ax.set_xlabel("layer")
    powers = list(range(low, high + 1, 1 if high - low <= 8 else 2))
    ticks = {height(float(p)): text for p, text in ((0, "0"), ("inf", "∞")) if float(p) in errors}
    ticks |= {float(p): f"1e{p}".replace("-", "−") for p in powers}
    ax.set_yticks(list(ticks), list(ticks.values()))
    ax.set_ylabel("relative error")
    for y in ticks:
        ax.axhline(y, color=style.line, lw=0.6, zorder=0)
    ax.axhline(height(tolerance), color=style.final, lw=1.2, ls=(0, (5, 3)), gid="tolerance")
    shown = []
    for k, kind in enumerate(KINDS):
        for bound in (False, True):
            mine = [d for d in nodes if d.kind == kind and d.error is not None and d.bound == bound]
            if not mine:
                continue
            ax.scatter(
                [d.i for d in mine],
                [height(d.error) for d in mine if d.error is not None],
                s=11 if len(nodes) > 300 else 20,
                marker=_MARKS[k],
                facecolors="none" if bound else colours[k],
                edgecolors=colours[k] if bound else style.background,
                linewidths=0.9 if bound else 0.3,
                gid=f"nodes-{kind.replace(' ', '-')}{'-bound' if bound else ''}",
                zorder=3,
            )
            if kind not in shown:
                shown.append(kind)
    if first is not None and first.error is not None:
        x, y = first.i, height(first.error)
        ax.scatter([x], [y], s=95, marker="o", facecolors="none", edgecolors=style.final, zorder=4)
        left = x > 0.6 * len(nodes)
        ax.annotate(
            first.name,
            (x, y),
            xytext=(-6 if left else 6, 9),
            textcoords="offset points",
            ha="right" if left else "left",
            color=style.text,
            zorder=5,
            **mono(style.base),
        )
    handles = [
        Line2D([], [], ls="", marker=_MARKS[k], color=colours[k], ms=5, label=kind)
        for k, kind in enumerate(KINDS)
        if kind in shown
    ]
    legend = ax.legend(
        handles=handles,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=3 if style.narrow else len(handles),
        frameon=False,
        fontsize=style.base,
        handletextpad=0.2,
        columnspacing=1.0,
        borderaxespad=0.1,
    )
    for text in legend.get_texts():
        text.set(color=style.soft, **PLAIN)


def _colours(style: Style) -> tuple[str, ...]:
    s = style.sequences
    return s[0], style.soft, s[1], s[2], s[3], style.text
