"""One node of two runs side by side: both values, and what they differ by."""

from __future__ import annotations

from typing import Any

import numpy as np
import traitlets as t

from llmviz.errors import LlmvizError
from llmviz.trace import Comparison
from llmviz.trace.diff import NodeDiff
from llmviz.trace.glossary import gloss
from llmviz.trace.shown import short, window
from llmviz.trace.summary import as_matrix
from llmviz.widgets.base import View
from llmviz.widgets.compare_rows import TEXT
from llmviz.widgets.picture import picture

__all__ = ["ComparedNode"]

ROWS, COLUMNS = 24, 96  # of one of three windows that stand side by side
_BLOCK = 8


class ComparedNode(View):
    """The node of a comparison that is laid side by side.

    Traits
    ------
    chosen : int
        The node that is laid side by side, by its place along depth; settable. -1 for none.
    slice, origin : list of int
        Of the chosen node: which 2-D slice, and the window's upper left corner; settable.
    node : dict
        name, op, nth, layer, gloss, axes, shapes, numbers (of the events), at, note, patches (why a
        value cannot be put into a, and into b; empty where it can) of the chosen one.
    window : dict
        row, column, rows, columns, n_rows, n_columns, lead, index, low, high, signed, clipped of
        the two values, and d_low, d_high, d_clipped of their difference; or why (there is none).
    picture_a, picture_b, picture_d : bytes
        uint8[rows, columns].
    """

    comparison: Comparison

    chosen = t.Int(-1).tag(sync=True)
    slice = t.List(t.Int()).tag(sync=True)
    origin = t.List(t.Int(), default_value=[0, 0]).tag(sync=True)
    node = t.Dict().tag(sync=True)
    window = t.Dict().tag(sync=True)
    picture_a = t.Bytes(b"").tag(sync=True)
    picture_b = t.Bytes(b"").tag(sync=True)
    picture_d = t.Bytes(b"").tag(sync=True)

    _values: tuple[np.ndarray, np.ndarray, str] | None = None

    def _show_node(self) -> None:
        self._go_to_largest()
        self._draw_node()

    def _go_to_largest(self) -> None:
        """Begin with the window that holds the largest difference."""
        self.slice, self.origin = [], [0, 0]
        nodes = self.comparison.nodes
        d = nodes[self.chosen] if 0 <= self.chosen < len(nodes) else None
        place = d.difference.at if d is not None and d.difference is not None else None
        shape = d.shape_a if d is not None else None
        if not place or not shape or len(place) != len(shape):
            return
        *before, column = place
        long = [axis for axis in range(len(before)) if shape[axis] > 1]
        row = before[long.pop()] if long else 0
        self.slice = [before[axis] for axis in long]
        self.origin = [row // ROWS * ROWS, column // COLUMNS * COLUMNS]

    def _draw_node(self) -> None:
        c = self.comparison
        nodes = c.nodes
        self._values = None
        self.picture_a = self.picture_b = self.picture_d = b""
        if not 0 <= self.chosen < len(nodes):
            self.node, self.window = {}, {}
            return
        d = nodes[self.chosen]
        shapes = [d.shape_a, d.shape_b]
        text, axes = gloss(d.name, d.op, d.shape_a or d.shape_b or ())
        place = d.difference.at if d.difference is not None else None
        self.node = {
            "i": d.i,
            "name": short(d.name, TEXT),
            "op": d.op,
            "nth": d.nth,
            "layer": d.layer,
            "kind": d.kind,
            "gloss": text,
            "axes": list(axes),
            "shapes": [list(s) if s is not None else None for s in shapes],
            "numbers": [d.n_a, d.n_b],
            "at": list(place) if place is not None else None,
            "note": d.note,
            "patches": [self._why_not(d, 0), self._why_not(d, 1)],
        }
        try:
            self._values = c.fitted(d) if None not in shapes else None
        except LlmvizError as error:
            self.window = {"why": str(error)}
            return
        if self._values is None:
            self.window = {"why": d.note or "The values were not kept."}
            return
        self._draw_window()

    def _why_not(self, d: NodeDiff, into: int) -> str:
        """Why the other run's value cannot be put into a run; empty where it can."""
        run = (self.comparison.a, self.comparison.b)[into]
        if not run.live:
            return "a recording cannot be changed"
        if d.shape_a != d.shape_b:
            return "the shapes differ"
        span = self.comparison.span()
        if len(span.a) > 1 or len(span.b) > 1:
            return "this part of the prompt took several ubatches"
        return ""

    def _draw_window(self) -> None:
        assert self._values is not None
        a, b, _ = self._values
        if not a.size:
            self.window = {"why": "No row of this node is computed in this pass."}
            return
        cut_a, cut_b = (as_matrix(x, tuple(self.slice)) for x in (a, b))
        row, column, part_a, _rest = window(cut_a.matrix, self.origin, ROWS, COLUMNS)
        part_b = cut_b.matrix[row : row + part_a.shape[0], column : column + part_a.shape[1]]
        with np.errstate(invalid="ignore"):
            part_d = part_b.astype(np.float64) - part_a.astype(np.float64)
        # What is the same infinity in both differs by nothing.
        part_d[(part_a == part_b)] = 0.0
        _, scale = picture(np.concatenate([part_a, part_b]))
        ends = (scale["low"], scale["high"])
        self.picture_a, _ = picture(part_a, *ends)
        self.picture_b, _ = picture(part_b, *ends)
        size = np.abs(part_d[np.isfinite(part_d)])
        most = float(size.max()) if size.size else 0.0
        self.picture_d, of_d = picture(part_d, -most, most)
        self.window = {
            "row": row,
            "column": column,
            "rows": part_a.shape[0],
            "columns": part_a.shape[1],
            "n_rows": cut_a.matrix.shape[0],
            "n_columns": cut_a.matrix.shape[1],
            "lead": [[axis, a.shape[axis]] for axis in cut_a.lead],
            "index": list(cut_a.index),
            **scale,
            "d_low": of_d["low"],
            "d_high": of_d["high"],
        }

    def _numbers(self, message: dict[str, Any]) -> dict[str, Any]:
        """A block of both values and of what they differ by, in full precision."""
        if self._values is None or message.get("node") != self.chosen:
            return {"a": [], "b": [], "refs": []}
        cuts = [as_matrix(x, tuple(self.slice)) for x in self._values[:2]]
        row, column = (max(0, int(message[k])) for k in ("row", "column"))
        rows, columns = (min(_BLOCK, max(1, int(message[k]))) for k in ("rows", "columns"))
        part = np.s_[row : row + rows, column : column + columns]
        a, b = cuts[0].matrix[part], cuts[1].matrix[part]
        name = self.node["name"]
        with np.errstate(invalid="ignore"):
            d = b.astype(np.float64) - a.astype(np.float64)
        return {
            "row": row,
            "column": column,
            "a": [[str(x) for x in line.tolist()] for line in a],
            "b": [[str(x) for x in line.tolist()] for line in b],
            "d": [[str(x) for x in line.tolist()] for line in d],
            "refs": [
                [
                    f"{name}[{','.join(map(str, cuts[0].place(row + i, column + j)))}]"
                    for j in range(a.shape[1])
                ]
                for i in range(a.shape[0])
            ],
        }
