"""The current event's value: statistics and a windowed heatmap, or a table of what is no tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import traitlets as t

from llmviz.trace import Intervention, statistics
from llmviz.trace.details import details
from llmviz.trace.glossary import gloss
from llmviz.trace.shown import short, window
from llmviz.trace.summary import as_matrix
from llmviz.widgets.edits import EditsView
from llmviz.widgets.follow import answers
from llmviz.widgets.picture import picture

__all__ = ["TensorView"]

ROWS, COLUMNS = 48, 160  # the window: what fits on a screen and can still be pointed at
_BLOCK = 12  # rows and columns of numbers that one question may ask for


class TensorView(EditsView):
    """What is in this tensor?

    Traits
    ------
    event : dict
        n, kind, name, depth, step; for a node op and sources; for an array shape, dtype, axes (what
        each counts), gloss (one sentence) and statistics; for anything else a small table.
    picture : bytes
        uint8[rows, columns] of the window, see `picture.picture`.
    window : dict
        row, column, rows, columns, n_rows, n_columns, row_axis, rest (the one value
        that all columns after the window hold, left out), lead ([axis, length] of the axes to
        choose on), index (the slice shown), and the scale: low, high, signed, clipped.
    slice : list of int
        Which 2-D slice of a tensor of three or more dimensions; settable.
    origin : [row, column]
        Upper left corner of the window; settable.
    """

    view_name = "tensor"

    event = t.Dict().tag(sync=True)
    picture = t.Bytes(b"").tag(sync=True)
    window = t.Dict().tag(sync=True)
    slice = t.List(t.Int()).tag(sync=True)
    origin = t.List(t.Int(), default_value=[0, 0]).tag(sync=True)

    _drawn = -1

    def draw(self) -> None:
        """Describe the event at which the run stands; a run in full flight is not described."""
        super().draw()
        here = self.dbg.here
        if self.dbg.running and here is not None and here.n != self._drawn:
            return
        if here is None:
            self.event, self.picture, self.window = {}, b"", {}
            self._drawn = -1
            return
        self._drawn = here.n
        event: dict[str, Any] = {
            "n": here.n,
            "kind": here.kind,
            "name": short(here.name),
            "depth": here.depth,
            "step": here.step,
            "op": getattr(here.about, "op", None) if here.kind == "node" else None,
            "sources": _sources(here.about) if here.kind == "node" else [],
            "edited": any(here.n in (e.n, e.applied_at) or _acts(e, here) for e in self.dbg.edits),
        }
        array = self._array()
        if array is None:
            event["details"] = details(here, self.dbg)
            self.event, self.picture, self.window = event, b"", {}
            return
        text, axes = gloss(here.name, event["op"] or "", array.shape)
        event.update(shape=list(array.shape), dtype=str(array.dtype), gloss=text, axes=list(axes))
        if not self.shows("tensor"):
            self.event, self.picture, self.window = event, b"", {}
            return
        s = self.dbg.recorder.stats(here.name, here.n) or statistics(array)
        event.update(
            statistics={
                "min": _finite(s.min),
                "max": _finite(s.max),
                "mean": _finite(s.mean),
                "std": _finite(s.std),
                "nan": s.nan,
                "inf": s.inf,
                "count": s.count,
            },
        )
        self.event = event
        self._draw_window(array)

    def _array(self) -> np.ndarray | None:
        here = self.dbg.here
        value = here.value if here is not None else None
        if isinstance(value, np.ndarray) and value.dtype.kind in "fiub" and value.size:
            return value
        return None

    def _draw_window(self, array: np.ndarray) -> None:
        cut = as_matrix(array, tuple(self.slice))
        matrix = cut.matrix
        n_rows, n_columns = matrix.shape
        row, column, part, rest = window(matrix, self.origin, ROWS, COLUMNS)
        self.picture, scale = picture(part)
        self.window = {
            "row": row,
            "column": column,
            "rows": part.shape[0],
            "columns": part.shape[1],
            "n_rows": n_rows,
            "n_columns": n_columns,
            "lead": [[axis, array.shape[axis]] for axis in cut.lead],
            "index": list(cut.index),
            "row_axis": cut.row_axis,
            "rest": number(rest) if rest is not None else None,
            **scale,
        }

    @t.observe("slice", "origin")
    def _moved(self, change: Any) -> None:
        if self.dbg.here is None or self.dbg.here.n != self._drawn or self.dbg.running:
            return
        if not self.shows("tensor"):
            return
        array = self._array()
        if array is not None:
            with self.hold_sync():
                self._draw_window(array)
                self.rev += 1

    @answers("values")
    def _values(self, message: dict[str, Any]) -> dict[str, Any]:
        """Full-precision values of a small block, with the names they have in the engine."""
        here, array = self.dbg.here, self._array()
        if here is None or array is None or here.n != message.get("n"):
            return {"n": here.n if here is not None else -1, "values": []}
        cut = as_matrix(array, tuple(self.slice))
        row, column = max(0, int(message["row"])), max(0, int(message["column"]))
        rows = max(1, min(int(message.get("rows", 1)), _BLOCK))
        columns = max(1, min(int(message.get("columns", 1)), _BLOCK))
        part = cut.matrix[row : row + rows, column : column + columns]
        return {
            "n": here.n,
            "row": row,
            "column": column,
            "values": [[number(x) for x in line] for line in part],
            "refs": [
                [
                    f"{short(here.name)}[{','.join(map(str, cut.place(row + r, column + c)))}]"
                    for c in range(part.shape[1])
                ]
                for r in range(part.shape[0])
            ],
        }


def _acts(edit: Any, here: Any) -> bool:
    return isinstance(edit, Intervention) and edit.due(here.event, here.n)


def number(x: Any) -> str:
    """A value in as many digits as tell it from its neighbours of the same type."""
    return repr(x.item()) if x.dtype.kind in "iub" or x.dtype.itemsize == 8 else str(x)


def _finite(x: float | None) -> float | None:
    return None if x is None or not np.isfinite(x) else float(x)


def _sources(tensor: Any) -> list[str]:
    return [short(str(s.name)) for s in getattr(tensor, "src", ()) if s is not None][:10]
