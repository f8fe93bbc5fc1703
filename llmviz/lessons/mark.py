"""A check: mark cells of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from llmviz.errors import LlmvizError
from llmviz.lessons.base import Check
from llmviz.lessons.grading import NotAnAnswerError

__all__ = ["MarkCheck"]

_MOST = 1024


class MarkCheck(Check):
    """Mark cells.

    Parameters
    ----------
    shape : (int, int), optional
        Rows and columns; follows from the labels.
    labels : (sequence of str, sequence of str), optional
        Of rows and of columns.
    values : sequence of sequences of str, optional
        What stands in the cells.
    axes : (str, str), optional
        What rows and columns are.
    """

    kind_name = "mark"

    def __init__(
        self,
        *args: Any,
        shape: tuple[int, int] | None = None,
        labels: tuple[Sequence[str], Sequence[str]] | None = None,
        values: Sequence[Sequence[Any]] | None = None,
        axes: tuple[str, str] = ("row", "column"),
        **kw: Any,
    ) -> None:
        if shape is None and labels is None:
            raise LlmvizError("cells to mark need a shape, or labels of rows and columns")
        rows, columns = labels or tuple([str(i) for i in range(n)] for n in shape or ())
        self.rows, self.columns = [str(r) for r in rows], [str(c) for c in columns]
        self.shape = len(self.rows), len(self.columns)
        if (shape is not None and tuple(shape) != self.shape) or not 0 < np.prod(
            self.shape
        ) <= _MOST:
            raise LlmvizError(f"the labels make {self.shape} cells; at most {_MOST} fit, as shaped")
        texts = [[str(x) for x in row] for row in values] if values is not None else []
        if texts and (len(texts), len(texts[0])) != self.shape:
            raise LlmvizError(f"values are {len(texts)} × {len(texts[0])}, cells {self.shape}")
        form = {"rows": self.rows, "columns": self.columns, "values": texts, "axes": list(axes)}
        super().__init__(*args, form=form, **kw)

    def read(self, given: Any) -> np.ndarray:
        """A boolean array of the grid's shape, or pairs (row, column) of the marked ones."""
        array = np.asarray(given) if given is not None else np.zeros((0, 2), int)
        if array.shape == self.shape and array.dtype == bool:
            return array
        out = np.zeros(self.shape, bool)  # [rows, columns]
        if array.size == 0:
            return out
        if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
            raise NotAnAnswerError(f"Mark cells, or give a boolean array of shape {self.shape}.")
        if (array < 0).any() or (array >= self.shape).any():
            raise NotAnAnswerError(f"There are {self.shape[0]} rows and {self.shape[1]} columns.")
        out[array[:, 0], array[:, 1]] = True
        return out

    def right(self) -> np.ndarray:
        """The right cells as a boolean array; another shape is a fault of the lesson."""
        answer = np.asarray(self._answer())
        if answer.shape == self.shape:
            answer = answer.astype(bool)
        return self.read(answer)

    def agrees(self, given: Any, right: Any) -> bool:
        """Cell by cell."""
        return bool((given == right).all())

    def nearer(self, given: Any, right: Any) -> str:
        """How many are right, too many, missing."""
        good, much, few = (given & right).sum(), (given & ~right).sum(), (right & ~given).sum()
        if not given.any():
            return "Nothing is marked yet."
        parts = [f"{good} marked rightly"]
        parts += [f"{much} too many"] if much else []
        parts += [f"{few} missing"] if few else []
        return ", ".join(parts) + "."

    def written(self, value: Any) -> str:
        """How many there are; the grid shows which."""
        return f"{int(value.sum())} of {value.size} cells"

    def plain(self, value: Any) -> list[list[int]]:
        """Pairs of row and column."""
        return np.argwhere(value).tolist()
