"""The sixteen steps: time spent in each, and where the run stands."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from llmviz.plots._view import drawn
from llmviz.plots.style import PLAIN, Canvas, make_style, mix
from llmviz.plots.text import plain, seconds, short
from llmviz.steps import STEPS
from llmviz.trace.timeline import shape_text

__all__ = ["map"]


@drawn
def map(dbg: Any, *, theme: Any = "light", size: Any = "page", for_print: bool = False) -> Figure:
    """Where am I? The sixteen steps, time in each, and the scopes that are open.

    Parameters
    ----------
    dbg : Debugger
    theme, size, for_print
        See `llmviz.plots.style.make_style`.
    """
    style = make_style(theme, size, for_print)
    here, spent = dbg.here, dict(dbg.seconds)
    now = here.step if here is not None else 0
    total = sum(spent.values())
    about = ["" if here is None else _where(here), _scopes(dbg.scope_stack)]
    notes = [f"bars: time measured in each step, {seconds(total)} in all" if spent else ""]
    line = 1.75 * style.base / 72
    title = "Not started" if not now else f"Step {now} of {len(STEPS)}: {STEPS[now - 1].title}"
    canvas = Canvas(style, line * len(STEPS), title, about, notes)
    ax = canvas.sheet()
    line = canvas.height / len(STEPS)
    digit = style.base * 0.62 / 72
    names = 2.8 * digit + 0.08
    bars = names + max(len(s.title) for s in STEPS) * digit + digit
    room = canvas.width - bars - 8 * digit
    longest = max(spent.values(), default=0.0)
    for i, step in enumerate(STEPS):
        y = line * (i + 0.5)
        colour = style.text if step.number in spent or step.number == now else style.soft
        if step.number == now:
            ax.add_patch(
                Rectangle(
                    (0, line * i),
                    canvas.width,
                    line,
                    color=mix(style.now, style.background, 0.14),
                    lw=0,
                    zorder=0,
                )
            )
            ax.add_patch(Rectangle((0, line * i), 0.04, line, color=style.now, lw=0, zorder=1))
        words = {"va": "center", "fontsize": style.base, **PLAIN}
        ax.text(2 * digit + 0.08, y, str(step.number), ha="right", color=style.soft, **words)
        weight = "bold" if step.number == now else "normal"
        ax.text(names, y, step.title, color=colour, fontweight=weight, **words)
        if step.number not in spent:
            continue
        width = room * spent[step.number] / longest if longest else 0.0
        bar = Rectangle((bars, y - 0.28 * line), width, 0.56 * line, color=style.now, lw=0)
        bar.set_gid(f"step-{step.number}")
        ax.add_patch(bar)
        ax.text(bars + width + 0.6 * digit, y, seconds(spent[step.number]), color=colour, **words)
    return canvas.figure


def _where(here: Any) -> str:
    shape = f" {shape_text(here.shape)} {here.dtype}" if here.shape is not None else ""
    return f"event {here.n:,}: {here.kind} {short(here.name, 80)}{shape}"


def _scopes(scopes: Any) -> str:
    names = [plain(s.name[:60]) for s in scopes]
    return "open scopes: " + " › ".join(names) if names else ""
