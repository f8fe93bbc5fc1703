"""Columns and attributes of a trace file, of the types that they must have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmviz.trace.storage_log import KINDS
from llmviz.trace.storage_zip import TraceError, TraceZip
from llmviz.trace.timeline import Record

__all__ = ["Attributes", "Checked", "RecordTable"]


class Attributes:
    """Named texts and numbers of a file, each of the type that is asked for.

    Parameters
    ----------
    found : dict
    where, path : str
        For messages.
    """

    def __init__(self, found: dict[str, Any], where: str, path: str) -> None:
        self._found, self._where, self._path = found, where, path

    def get(self, name: str, kind: type, default: Any) -> Any:
        """A value of type `kind`; `default` where there is none.

        Raises
        ------
        TraceError
            It is of another type.
        """
        value = self._found.get(name, default)
        if kind is float and type(value) is int:
            value = float(value)
        if value is default or type(value) is kind:
            return value
        raise TraceError(
            f"{name} is {type(value).__name__}, not {kind.__name__}",
            where=self._where,
            path=self._path,
        )

    def texts(self, name: str) -> list[str]:
        """A list of texts."""
        return self._list(name, str)

    def numbers(self, name: str) -> list[int]:
        """A list of whole numbers."""
        return self._list(name, int)

    def parts(self, name: str) -> list[Attributes]:
        """A list of mappings."""
        where = f"{self._where}.{name}"
        return [Attributes(x, where, self._path) for x in self._list(name, dict)]

    def part(self, name: str) -> Attributes:
        """A mapping."""
        return Attributes(self.get(name, dict, {}), f"{self._where}.{name}", self._path)

    def raw(self) -> dict[str, Any]:
        """What was found, unchecked."""
        return self._found

    def _list(self, name: str, kind: type) -> list[Any]:
        found = self.get(name, list, [])
        if not all(type(x) is kind for x in found):
            raise TraceError(
                f"{name} holds other things than {kind.__name__}",
                where=self._where,
                path=self._path,
            )
        return found


@dataclass(frozen=True, eq=False)
class RecordTable(Sequence[Record]):
    """The light records of all events, made when they are looked at.

    Attributes
    ----------
    n, name, kind, step, depth, shape : ndarray [n_events]
        `name` and `shape` are indices into `names` and `shapes`; -1: no shape.
    """

    n: np.ndarray
    name: np.ndarray
    kind: np.ndarray
    step: np.ndarray
    depth: np.ndarray
    shape: np.ndarray
    names: list[str]
    shapes: list[tuple[tuple[int, ...], str]]

    def __len__(self) -> int:
        return len(self.n)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        at = int(self.shape[i])
        shape, dtype = self.shapes[at] if at >= 0 else (None, None)
        return Record(
            int(self.n[i]),
            KINDS[self.kind[i]],
            self.names[self.name[i]],
            int(self.depth[i]),
            int(self.step[i]),
            shape,
            dtype or None,
        )


class Checked:
    """A trace file whose columns are checked when they are read.

    Attributes
    ----------
    zip : TraceZip
    attrs : Attributes
    """

    def __init__(self, path: Any, max_bytes: int) -> None:
        self.zip = TraceZip(path, max_bytes)
        self.attrs = Attributes(self.zip.attrs, "attributes", self.zip.path)

    def error(self, message: str, where: str = "") -> TraceError:
        """An error that names the file."""
        return TraceError(message, where=where, path=self.zip.path)

    def column(self, name: str, kinds: str, ndim: int = 1, length: int | None = None) -> np.ndarray:
        """An array of one of these kinds of numbers ("iu", "f", "b"), of this rank and length."""
        info = self.zip.info(name)
        if info.dtype.kind not in kinds or len(info.shape) != ndim:
            raise self.error(f"{info.dtype} {list(info.shape)} is not what belongs here", name)
        if length is not None and info.shape[0] != length:
            raise self.error(f"{info.shape[0]:,} rows where {length:,} belong", name)
        return self.zip.array(name)

    def table(self, prefix: str, **kinds: str) -> dict[str, np.ndarray]:
        """Columns of one length."""
        out: dict[str, np.ndarray] = {}
        length = None
        for name, kind in kinds.items():
            out[name] = self.column(f"{prefix}_{name}", kind, 1, length)
            length = len(out[name])
        return out

    def within(self, name: str, values: np.ndarray, low: int, high: int) -> np.ndarray:
        """The numbers, all of them in [low, high)."""
        if values.size and not (values.min() >= low and values.max() < high):
            raise self.error(f"a number is not in {low}..{high - 1}", name)
        return values

    def ordered(self, name: str, values: np.ndarray) -> np.ndarray:
        """Numbers of events: growing, and none below 0."""
        if values.size and (values[0] < 0 or (np.diff(values.astype(np.int64)) < 0).any()):
            raise self.error("numbers of events do not grow", name)
        return values
