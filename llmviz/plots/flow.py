"""The whole pass: tokens as rows, one layer open, the others folded, to the next token."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path

from llmviz.plots._view import NothingToDraw, drawn
from llmviz.plots.style import PLAIN, Canvas, Style, make_style, mono
from llmviz.plots.text import count, percent, piece
from llmviz.trace.flow import NOW, Flow, Strip
from llmviz.trace.flow_graph import Column, stem
from llmviz.trace.flow_numbers import newest_positions

__all__ = ["flow"]

SHOWN = 24  # rows that are still legible on a page
_BINS = 48
_TOP = 6

# Space after a column, in its own units; a strip is 1 wide.
_GAP = {"Kcur": 1.7, "Vcur": 3.2, "Qcur": 0.35, "ffn_gate": 0.35}


@drawn
def flow(
    dbg: Any,
    *,
    layer: int = 0,
    head: int = 0,
    query: int = -1,
    theme: Any = "light",
    size: Any = "page",
    for_print: bool = False,
) -> Figure:
    """What happens to my words? The pass that the run stands in, as far as it has come.

    Parameters
    ----------
    dbg : Debugger
        What its recorder does not hold of this pass is computed again, silently.
    layer, head : int
        The open layer, and the head that is shown of it.
    query : int
        Position of the token whose attention is drawn, -1 for the newest.
    theme, size, for_print
        See `llmviz.plots.style.make_style`.

    Raises
    ------
    NothingToDraw
        No pass has begun.
    """
    style = make_style(theme, size, for_print)
    state = Flow(dbg, layer, head)
    try:
        state.update()
        state.fetch()
        state.update()
        if not state.columns or not state.rows or state.pass_ < 0:
            raise NothingToDraw(
                "this run kept no values of nodes; to have them, ask its recorder for them first"
                if dbg.recorder.passes and not dbg.can_restart
                else "no pass has begun: let the run come to step 13"
            )
        return _Drawing(state, query, style).figure
    finally:
        state.close()


class _Drawing:
    """One figure; x in strip widths, y in rows from the top."""

    def __init__(self, state: Flow, query: int, style: Style) -> None:
        self.state, self.style = state, style
        live = [i for i, r in enumerate(state.rows) if r.state != "next"][-SHOWN:]
        self.rows = live
        newest = live[-1]
        self.query = next((i for i in live if state.rows[i].pos == query), newest)
        n = len(live)
        self.x = self._places()
        self.small = max(9.0, style.base * 0.85)
        total = state.n_tokens - sum(r.state == "next" for r in state.rows)
        notes = [
            f"a line of a strip is the strongest of its neighbours; each strip has its own scale; "
            f"pale scores are masked; blue below zero, orange above; {count(n, total, 'tokens')}",
        ]
        about = [
            f"layer {state.layer} of {state.n_layer} open, head {state.head} of {state.n_head} · "
            f"pass {state.pass_ + 1} · float32"
        ]
        row = 0.42 if n <= 8 else 0.24 if n <= 14 else 0.16
        canvas = Canvas(style, 0.9 + row * (n + 1), "The whole pass", about, notes)
        grid = canvas.grid(1, 2, width_ratios=[4.2, 1])
        self.figure = canvas.figure
        self.ax = canvas.figure.add_subplot(grid[0])
        self._frame(n)
        for i, c in enumerate(state.columns):
            self._column(i, c)
        self._ribbons()
        self._labels()
        self._next(canvas.figure.add_subplot(grid[1]))

    def _places(self) -> list[tuple[float, float]]:
        """Left end and width of each column."""
        places, x = [], 0.0
        n = len(self.rows)
        columns = self.state.columns
        for i, c in enumerate(columns):
            folded = _folded(c)
            wide = 0.3 if folded else max(1.6, 0.3 * n) if c.kind == "matrix" else 1.0
            wide = min(wide, 4.5)
            places.append((x, wide))
            close = folded and i + 1 < len(columns) and _folded(columns[i + 1])
            x += wide + (0.05 if close else _GAP.get(stem(c.id), 0.6))
        return places

    def _frame(self, n: int) -> None:
        end = self.x[-1][0] + self.x[-1][1]
        self.ax.set(xlim=(-0.4, end + 0.4), ylim=(n + 0.15, -0.15))
        self.ax.set_axis_off()
        inside = [i for i, c in enumerate(self.state.columns) if c.layer == self.state.layer]
        x0 = self.x[inside[0]][0] - 0.35
        x1 = sum(self.x[inside[-1]]) + 0.35
        self.ax.add_patch(
            Rectangle(
                (x0, -0.15), x1 - x0, n + 0.3, fc=self.style.raised, ec=self.style.line, lw=0.6
            )
        )

    def _column(self, i: int, c: Column) -> None:
        x, w = self.x[i]
        if c.kind == "matrix":
            self._matrix(c, x, w)
            return
        strip = self.state.strip(c, _BINS)
        for k, r in enumerate(self.rows):
            if strip.state[r]:
                self._line(strip, r, k, x, w)
            elif not self.state.done(c):
                box = Rectangle((x, k + 0.08), w, 0.84, fill=False, ec=self.style.line, lw=0.5)
                self.ax.add_patch(box)

    def _line(self, strip: Strip, r: int, k: int, x: float, w: float) -> None:
        high = float(strip.high[r]) or 1.0
        self.ax.imshow(
            strip.bins[r][:, None],
            cmap=self.style.signed,
            vmin=-high,
            vmax=high,
            extent=(x, x + w, k + 0.92, k + 0.08),
            aspect="auto",
            interpolation="nearest",
            alpha=1.0 if strip.state[r] == NOW else 0.4,
            zorder=2,
        )

    def _matrix(self, c: Column, x: float, w: float) -> None:
        values = self.state.matrix(c)[np.ix_(self.rows, self.rows)]
        weights = c.op == "SOFT_MAX"
        shown = np.ma.masked_invalid(np.sqrt(values) if weights else values)
        if weights:
            shown = np.ma.masked_where(values == 0, shown)
        high = 1.0 if weights or not shown.count() else float(np.abs(shown).max()) or 1.0
        # what the mask shuts was computed too, and counts for nothing
        shut = np.isneginf(self.state.mask()[np.ix_(self.rows, self.rows)])
        seen = np.where(shut, 0.25, 1.0)
        for k in range(len(self.rows)):
            self.ax.imshow(
                shown[k][None],
                cmap=_weights(self.style) if weights else self.style.signed,
                vmin=0 if weights else -high,
                vmax=high,
                extent=(x, x + w, k + 0.92, k + 0.08),
                aspect="auto",
                interpolation="nearest",
                alpha=seen[k][None],
                zorder=2,
            )
            if not self.state.done(c):
                box = Rectangle((x, k + 0.08), w, 0.84, fill=False, ec=self.style.line, lw=0.5)
                self.ax.add_patch(box)

    def _ribbons(self) -> None:
        """The softmax row of the chosen token, from the values to their mix."""
        state = self.state
        places = {stem(c.id): i for i, c in enumerate(state.columns) if c.layer == state.layer}
        soft = places.get("kq_soft_max")
        if soft is None or "Vcur" not in places or "kqv" not in places:
            return
        if not state.done(state.columns[soft]):
            return
        row = state.matrix(state.columns[soft])[self.query]
        x0, x1 = sum(self.x[places["Vcur"]]), self.x[places["kqv"]][0]
        to = self.rows.index(self.query) + 0.5
        for k, r in enumerate(self.rows):
            w = float(np.nan_to_num(row[r]))
            if w < 0.002:
                continue
            mid = (x0 + x1) / 2
            points = [(x0, k + 0.5), (mid, k + 0.5), (mid, to), (x1, to)]
            codes = [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]
            line = PathPatch(
                Path(points, codes), fill=False, ec=_violet(self.style), lw=0.4 + 5 * w, alpha=0.7,
                capstyle="round", zorder=3,
            )  # fmt: skip
            line.set_gid("weight")
            self.ax.add_patch(line)
            if w >= 0.05 and len(self.rows) <= 12:
                self.ax.text(
                    x0 + 0.12, k + 0.5, f"{w:.2f}".removeprefix("0"), fontsize=self.small,
                    va="center", color=self.style.text, zorder=4, **PLAIN,
                )  # fmt: skip

    def _labels(self) -> None:
        state, style = self.state, self.style
        for k, r in enumerate(self.rows):
            row = state.rows[r]
            bold = "bold" if r == self.query else "normal"
            self.ax.text(
                -0.45, k + 0.5, piece(row.text, 12), ha="right", va="center", fontweight=bold,
                color=style.text if row.state == "now" else style.soft, **mono(self.small),
            )  # fmt: skip
        told: set[str] = set()
        for i, c in enumerate(state.columns):
            name = c.label if not _folded(c) else ""
            if _folded(c) and c.group not in told:
                told.add(c.group)
                layers = [b.layer for b in state.columns if b.group == c.group]
                name = f"{layers[0]}–{layers[-1]}"
            if name:
                x, w = self.x[i]
                if _folded(c):  # over the middle of its group
                    w = 0.35 * len(layers)
                self.ax.text(
                    x + w / 2, -0.25, "⊕" if name == "+" else name,
                    rotation=60, ha="left", va="bottom", fontsize=self.small,
                    color=style.text if state.done(c) else style.soft, **PLAIN,
                )  # fmt: skip

    def _next(self, ax: Any) -> None:
        """The likeliest next tokens."""
        ax.set_axis_off()
        recorder, style = self.state.dbg.recorder, self.style
        kept = newest_positions(recorder)
        ax.set(xlim=(0, 1), ylim=(_TOP + 0.5, -0.9))
        ax.text(0, -0.5, "next token", fontsize=style.base, color=style.soft, va="center", **PLAIN)
        if kept is None or recorder.logits_n < kept.n:
            ax.text(0, 0.5, "not yet", fontsize=style.base, color=style.soft, **PLAIN)
            return
        best = recorder.top[:_TOP]
        most = max((a.p_raw for a in best), default=1.0)
        for i, a in enumerate(best):
            text = piece(a.text, 9)
            ax.text(0.0, i + 0.3, text, va="center", color=style.text, **mono(self.small))
            bar = Rectangle((0.0, i + 0.62), 0.98 * a.p_raw / most, 0.2, fc=style.now, lw=0)
            bar.set_gid("p_raw")
            ax.add_patch(bar)
            ax.text(
                1.0, i + 0.3, percent(a.p_raw), ha="right", va="center", fontsize=self.small,
                color=style.text, **PLAIN,
            )  # fmt: skip


def _folded(c: Column) -> bool:
    return c.group in ("before", "after")


def _violet(style: Style) -> str:
    return "#c9a6f5" if style.dark else "#6b3fa0"


def _weights(style: Style) -> LinearSegmentedColormap:
    """Attention's own colour, from nothing to one."""
    stops = (
        [style.raised, "#705298", "#dec4ff"] if style.dark else ["#f6f3fa", "#b296d6", "#54278f"]
    )
    return LinearSegmentedColormap.from_list("llmviz_weights", stops)
