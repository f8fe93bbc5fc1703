"""The compute graph: all blocks in a row of rows, some of them open down to their nodes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch, Rectangle

from llmviz.errors import LlmvizError
from llmviz.plots._view import NothingToDraw, drawn
from llmviz.plots.style import PLAIN, Canvas, Style, make_style, mix
from llmviz.trace.graph_layout import BOX, DOT
from llmviz.trace.graph_view import Block, Progress, Shown, broken, progress, shown
from llmviz.trace.time_shown import milliseconds

__all__ = ["graph"]

_CHIP, _GAP, _PAD, _HEAD = (150.0, 54.0), (30.0, 40.0), 14.0, 34.0
_KINDS: tuple[tuple[str, frozenset[str]], ...] = (
    ("matrix product", frozenset({"MUL_MAT", "MUL_MAT_ID", "OUT_PROD", "FLASH_ATTN_EXT"})),
    ("softmax", frozenset({"SOFT_MAX"})),
    (
        "norm, gate, sum",
        frozenset({"RMS_NORM", "NORM", "MUL", "ADD", "GLU", "UNARY", "SCALE", "SUB", "DIV"}),
    ),
    ("rotation", frozenset({"ROPE"})),
    ("rows, copies", frozenset({"GET_ROWS", "SET_ROWS", "CPY", "CONT", "CONCAT"})),
)

Rect = tuple[float, float, float, float]


@drawn
def graph(
    dbg: Any,
    graph_open: Sequence[int] | None = None,
    graph_colour: str = "op",
    *,
    theme: Any = "light",
    size: Any = "page",
    for_print: bool = False,
) -> Figure:
    """What is computed, in what order? The model as blocks; open ones show their nodes.

    Parameters
    ----------
    dbg : Debugger
    graph_open : sequence of int, optional
        Blocks to open, counted from 0 for the input; by default the one that is computed now, or
        the first layer.
    graph_colour : {"op", "time"}
    theme, size, for_print
        See `llmviz.plots.style.make_style`.

    Raises
    ------
    NothingToDraw
        No graph was built yet.
    LlmvizError
        There is no such block or colouring.
    """
    style = make_style(theme, size, for_print)
    found = shown(dbg)
    if found is None:
        raise NothingToDraw("no graph was built yet: let the run reach step 13")
    if graph_colour not in ("op", "time"):
        raise LlmvizError(f"graph_colour is 'op' or 'time', not {graph_colour!r}")
    at = progress(dbg, found)
    if graph_open is None:
        first = next((k for k, b in enumerate(found.blocks) if b.layer >= 0), 0)
        graph_open = [found.nodes[at.now].block if at.now >= 0 else first]
    bad = [k for k in graph_open if not 0 <= k < len(found.blocks)]
    if bad:
        raise LlmvizError(f"there is no block {bad[0]}; there are {len(found.blocks)}, from 0")
    times = _times(dbg, found) if graph_colour == "time" else None
    if graph_colour == "time" and times is None:
        raise NothingToDraw("the nodes of this graph were not measured yet: let it run once")
    opened = frozenset(graph_open)
    rects, wide, high = _arranged(found, opened, style, _HEAD)
    scale = (style.width - 0.28) / wide
    head = max(_HEAD, 1.6 * style.base / 72 / scale)
    if head > _HEAD:  # titles keep their size
        rects, wide, high = _arranged(found, opened, style, head)
        scale = (style.width - 0.28) / wide
    about = [
        f"{len(found.nodes):,} nodes in {len(found.blocks)} blocks"
        + (f" · at {found.nodes[at.now].name}" if at.now >= 0 else "")
        + {True: " · reused for this ubatch", False: " · built for this ubatch", None: ""}[
            at.reused
        ]
    ]
    if found.arena:
        about.append(
            f"results share {found.arena / 2**10:,.0f} KiB; without reuse they would take "
            f"{found.apart / 2**10:,.0f} KiB"
        )
    notes = ["circles are views, which compute nothing; dashed: read through the cache"]
    swatches: list[tuple[str, str]] = []
    if times is not None:
        notes.append(f"colour: time of each node, up to {milliseconds(float(times.max()))}")
    else:
        swatches = [(_fill(style, k, True), name) for k, (name, _) in enumerate(_KINDS)]
        if style.narrow:
            notes.append("colours: " + ", ".join(n for n, _ in _KINDS))
            swatches = []
    canvas = Canvas(style, high * scale, "Compute graph", about, notes, swatches)
    ax = canvas.sheet()
    ax.set(xlim=(0, wide), ylim=(high, 0), aspect="equal", anchor="N")
    scale = min(canvas.width / wide, canvas.height / high)
    painter = _Painter(ax, found, at, style, scale, times, broken(dbg, found), head)
    painter.draw(rects, opened)
    return canvas.figure


def _times(dbg: Any, found: Shown) -> np.ndarray | None:
    times = getattr(dbg, "times", None)
    last = times.last_computed() if times is not None else None
    if last is None or last.graph.names != tuple(n.name for n in found.nodes):
        return None
    return last.ns


def _arranged(
    found: Shown, open_: frozenset[int], style: Style, head: float
) -> tuple[list[Rect], float, float]:
    """Rectangles of the blocks, side by side in rows, in the shape that leaves them largest."""
    sizes = [
        (b.drawing.width + 2 * _PAD, b.drawing.height + head + _PAD) if k in open_ else _CHIP
        for k, b in enumerate(found.blocks)
    ]
    widest = max(w for w, _ in sizes)
    room = style.room(3, 3)
    best: tuple[float, list[Rect], float, float] | None = None
    for k in range(1, 13):
        row = k * ((widest if open_ else _CHIP[0]) + _GAP[0])
        rects: list[Rect] = []
        x = y = tall = wide = 0.0
        for w, h in sizes:
            if x > 0 and x + w > row:
                x, y, tall = 0.0, y + tall + _GAP[1], 0.0
            rects.append((x, y, w, h))
            x, tall = x + w + _GAP[0], max(tall, h)
            wide = max(wide, x - _GAP[0])
        high = y + tall
        most = room if room != float("inf") else 0.75 * style.width
        scale = min((style.width - 0.28) / (wide + 60), most / (high + 20))
        if best is None or scale > best[0] * 1.02:
            best = (scale, rects, wide, high)
    assert best is not None
    _, rects, wide, high = best
    return [(x + 30, y + 10, w, h) for x, y, w, h in rects], wide + 60, high + 20


def _kind(op: str) -> int:
    return next((k for k, (_, ops) in enumerate(_KINDS) if op in ops), len(_KINDS))


def _fill(style: Style, kind: int, done: bool) -> str:
    return mix(style.sequences[kind % len(style.sequences)], style.background, 0.5 if done else 0.2)


class _Painter:
    """Draws blocks and nodes in world units; `scale` is inches for one of them."""

    def __init__(
        self,
        ax: Any,
        found: Shown,
        at: Progress,
        style: Style,
        scale: float,
        times: np.ndarray | None,
        breaks: tuple[dict[int, bool], dict[int, bool]],
        head: float,
    ) -> None:
        self.ax, self.found, self.at, self.style, self.scale = ax, found, at, style, scale
        self.times, self.breaks, self.head = times, breaks, head
        self.letter = style.base / 72 / scale  # height of a letter in world units
        most = float(np.sqrt(times.max())) if times is not None else 0.0
        self.norm = Normalize(0, max(1.0, most))

    def draw(self, rects: list[Rect], open_: frozenset[int]) -> None:
        style = self.style
        lines = [_between(a, b) for a, b in pairwise(rects)]
        self.ax.add_collection(LineCollection(lines, colors=style.soft, linewidths=0.8))
        for k, (block, rect) in enumerate(zip(self.found.blocks, rects, strict=True)):
            now = self.at.now >= 0 and self.found.nodes[self.at.now].block == k
            x, y, w, h = rect
            self.ax.add_patch(
                FancyBboxPatch(
                    (x + 4, y + 4), w - 8, h - 8, boxstyle="round,pad=4", lw=1.6 if now else 0.8,
                    facecolor=style.raised, edgecolor=style.now if now else style.line,
                    gid=f"block-{k}",
                )
            )  # fmt: skip
            if k in self.breaks[1]:
                self._mark(x + 4, y + 4, self.breaks[1][k])
            if k in open_:
                self._text(x + 12, y + 0.5 * self.head, block.title, w - 20, "bold")
                self._nodes(block, x + _PAD, y + self.head)
            else:
                title = block.title
                if not self._fits(title, w - 10):  # without the devices
                    title = title.partition(" on ")[0]
                if not self._fits(title, w - 10):
                    title = str(block.layer) if block.layer >= 0 else title[:3]
                self._text(x + 8, y + 0.5 * h, title, w - 10)

    def _nodes(self, block: Block, ox: float, oy: float) -> None:
        style, d, found = self.style, block.drawing, self.found
        solid: list[list[tuple[float, float]]] = []
        dashed: list[list[tuple[float, float]]] = []
        for r in d.routes:
            source = block.ports[-1 - r.source] if r.source < 0 else block.first + r.source
            stored = source in found.nodes[block.first + r.target].stored
            (dashed if stored else solid).append([(x + ox, y + oy) for x, y in r.points])
        self.ax.add_collection(LineCollection(solid, colors=style.soft, linewidths=0.8))
        self.ax.add_collection(
            LineCollection(dashed, colors=style.soft, linewidths=0.8, linestyles="dashed")
        )
        dots = []
        for n, (x, y) in zip(
            found.nodes[block.first : block.first + block.count], d.centres, strict=True
        ):
            if n.view:
                dots.append(Circle((ox + x, oy + y), DOT[0] / 2))
                continue
            left, top = ox + x - BOX[0] / 2, oy + y - BOX[1] / 2
            face = self._face(n.index)
            here = n.index == self.at.now
            self.ax.add_patch(
                Rectangle(
                    (left, top), *BOX, facecolor=face, lw=2 if here else 0.8,
                    edgecolor=style.now if here else style.line, gid=f"node-{n.index}",
                )
            )  # fmt: skip
            ink = style.text if self.times is None else style.on(face)
            self._name(_stem(n.name), left, top, ink)
            if n.index in self.breaks[0]:
                self._mark(left, top, self.breaks[0][n.index])
        self.ax.add_collection(
            PatchCollection(dots, facecolor=style.background, edgecolor=style.soft, linewidths=0.8)
        )

    def _face(self, index: int) -> Any:
        if self.times is not None:
            return self.style.magnitude(self.norm(float(np.sqrt(self.times[index]))))
        return _fill(self.style, _kind(self.found.nodes[index].op), index < self.at.done)

    def _name(self, name: str, left: float, top: float, colour: Any) -> None:
        cuts = [i + 1 for i, c in enumerate(name[:-1]) if c in "_ "]
        if not self._fits(name, BOX[0] - 8) and cuts and 2.2 * self.letter < BOX[1]:
            cut = min(cuts, key=lambda i: abs(i - len(name) / 2))
            for part, y in ((name[:cut], 0.3), (name[cut:], 0.72)):
                self._text(left + 5, top + y * BOX[1], part, BOX[0] - 8, colour=colour)
        elif self.letter < BOX[1]:
            self._text(left + 5, top + 0.5 * BOX[1], name, BOX[0] - 8, colour=colour)

    def _fits(self, text: str, room: float) -> bool:
        return len(text) * 0.6 * self.letter <= room

    def _text(
        self, x: float, y: float, text: str, room: float, weight: str = "normal", colour: Any = None
    ) -> None:
        most = int(room / (0.6 * self.letter))
        if most < min(3, len(text)):
            return
        shown_ = text if len(text) <= most else text[: max(1, most - 1)] + "…"
        self.ax.text(
            x, y, shown_, fontsize=self.style.base, fontweight=weight, va="center",
            color=colour or self.style.text, **PLAIN,
        )  # fmt: skip

    def _mark(self, x: float, y: float, enabled: bool) -> None:
        face = self.style.danger if enabled else self.style.background
        self.ax.add_patch(
            Circle(
                (x, y), 0.35 * self.letter, facecolor=face, edgecolor=self.style.danger, zorder=5
            )
        )


def _between(a: Rect, b: Rect) -> list[tuple[float, float]]:
    """From one block to the next: beside it, or around the end of a row."""
    ya, yb = a[1] + min(a[3], _CHIP[1]) / 2, b[1] + min(b[3], _CHIP[1]) / 2
    out = a[0] + a[2]
    if a[1] == b[1]:
        return [(out, ya), (b[0], yb)]
    gap = b[1] - _GAP[1] / 2
    turn = [(out + 12, ya), (out + 12, gap), (b[0] - 12, gap), (b[0] - 12, yb)]
    return [(out, ya), *turn, (b[0], yb)]


def _stem(name: str) -> str:
    """A node's name without its layer, which its block tells."""
    return re.sub(r"-\d+(?= |$)", "", name)
