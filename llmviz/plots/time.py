"""Where the time of a pass went, as bars that sum to its total."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from llmviz.plots._view import NothingToDraw, drawn
from llmviz.plots.style import PLAIN, Canvas, Style, make_style
from llmviz.trace.time_shown import chosen_pass, label_of, milliseconds, rows_of

__all__ = ["time"]

_HATCH = {"kernel": "", "around": "||||", "watching": "////"}
_NAMES = {"kernel": "kernels", "around": "Python around them", "watching": "watching"}


@drawn
def time(
    dbg: Any,
    time_by: str = "work",
    time_pass: int = -1,
    *,
    theme: Any = "light",
    size: Any = "page",
    for_print: bool = False,
) -> Figure:
    """Where does the time go? One bar for each part of a pass.

    Parameters
    ----------
    dbg : Debugger
    time_by : {"work", "scope", "layer", "op", "node"}
    time_pass : int
        Number of the pass: 0 is what comes before the first batch, 1 the prompt; -1 for the newest.
    theme, size, for_print
        See `llmviz.plots.style.make_style`.

    Raises
    ------
    NothingToDraw
        Nothing was measured yet, or there is no such pass.
    """
    style = make_style(theme, size, for_print)
    passes = getattr(getattr(dbg, "times", None), "passes", [])
    this = chosen_pass(passes, time_pass)
    if this is None:
        raise NothingToDraw(
            "no times were measured: let the run come to a token"
            if not passes
            else f"there is no pass {time_pass}; there are {len(passes)}, from 0"
        )
    line = 1.55 * style.base / 72
    rows = [r for r in rows_of(this, time_by, 20) if time_by != "layer" or r["depth"] == 0]
    sums = {"kernel": this.kernels, "around": this.engine - this.kernels, "watching": this.watching}
    about = [" · ".join(f"{_NAMES[g]} {milliseconds(ns)}" for g, ns in sums.items())]
    if this.n_tokens and this.total:
        about.append(
            f"{1e9 * this.n_tokens / this.total:.1f} tokens a second, "
            f"{1e9 * this.n_tokens / max(this.engine, 1):.1f} without watching"
        )
    notes = [f"the parts sum to {milliseconds(this.total)}, all by one clock; pauses not counted"]
    most = int(min(len(rows), max(2.0, style.room(len(about) + 1, 2) / line)))
    if len(rows) > most:
        notes[0] = f"{most} of {len(rows)} lines, the largest; " + notes[0]
        keep = sorted(sorted(range(len(rows)), key=lambda i: -rows[i]["whole"])[:most])
        rows = [rows[i] for i in keep]
    title = f"Where does the time go? {label_of(this)}"
    canvas = Canvas(style, (len(rows) + 0.4) * line, title, about, notes)
    _bars(canvas, rows, this.total, line, style)
    return canvas.figure


def _bars(
    canvas: Canvas, rows: list[dict[str, Any]], total: int, line: float, style: Style
) -> None:
    ax = canvas.sheet()
    letter = 0.6 * style.base / 72
    told = [f"{milliseconds(r['whole'])}  {r['whole'] / max(total, 1):.1%}" for r in rows]
    names = ["  " * r["depth"] + r["name"] for r in rows]
    left = min(0.42 * canvas.width, (max(map(len, names)) + 1) * letter)
    right = max(map(len, told)) * letter + 0.1
    wide = max(0.3, canvas.width - left - right)
    top = max(1, *(r["whole"] for r in rows))
    colours = {
        "kernel": style.sequences[0],
        "around": style.sequences[4],
        "watching": style.sequences[3],
    }
    fits = int(left / letter)
    for i, (row, name, text) in enumerate(zip(rows, names, told, strict=True)):
        y, x = (i + 0.5) * line, left
        small = {"va": "center", "fontsize": style.base, **PLAIN}
        shown = name if len(name) <= fits else name[: fits - 1] + "…"
        ax.text(0, y, shown, color=style.text, **small)
        parts = [(row["group"], row["whole"])]
        if row["kernels"]:
            parts = [("kernel", row["kernels"]), ("around", row["whole"] - row["kernels"])]
        for group, ns in parts:
            long = wide * ns / top
            bar = Rectangle(
                (x, y - 0.3 * line), long, 0.6 * line, lw=0, facecolor=colours[group],
                edgecolor=style.background, hatch=_HATCH[group], gid=f"{row['name']}-{group}",
            )  # fmt: skip
            ax.add_patch(bar)
            x += long
        ax.text(left + wide * row["whole"] / top + 0.06, y, text, color=style.soft, **small)
