"""Bars of a token's probability, raw and after the sampler chain: of the logits and the output."""

from __future__ import annotations

from typing import Any

from matplotlib.patches import Rectangle

from llmviz.plots.style import Style

__all__ = ["bars", "note"]


def note(final: bool) -> str:
    """What the bars are, for the foot of a figure."""
    after = "; final p: after the sampler chain" if final else ", before any sampler"
    return f"raw p: softmax of all logits{after}"


def bars(
    ax: Any,
    p_raw: float,
    p: float | None,
    at: tuple[float, float],
    unit: tuple[float, float],
    final: bool,
    name: Any,
    style: Style,
    faint: bool = False,
) -> None:
    """One token's bars, the raw one over the final one where a figure has both.

    Parameters
    ----------
    at : (float, float)
        Where they begin, and their middle.
    unit : (float, float)
        Length of probability 1, and height of a line.
    name
        Goes into the ids of the bars: ``p_raw-<name>``, ``p-<name>``.
    """
    (x, y), (per_p, line) = at, unit
    high = (0.34 if final else 0.6) * line
    raw = Rectangle((x, y - (high if final else high / 2)), p_raw * per_p, high)
    raw.set(facecolor=style.now, lw=0, alpha=0.5 if faint else 1, gid=f"p_raw-{name}")
    ax.add_patch(raw)
    if final and p is not None:
        bar = Rectangle((x, y), p * per_p, high, facecolor=style.final, gid=f"p-{name}")
        bar.set(lw=0, edgecolor=style.background, hatch="////" if style.for_print else None)
        ax.add_patch(bar)
