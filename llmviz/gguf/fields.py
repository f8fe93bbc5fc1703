"""What the header consists of: `Field` (a run of header bytes with a meaning) and `TensorInfo`.

Fields follow each other without gap from byte 0 to the start of the data section.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from llmviz.ggml.types import GGMLType
from llmviz.gguf.constants import KIND_MEANINGS, key_meaning
from llmviz.gguf.source import Source
from llmviz.gguf.strings import StringArray

__all__ = ["Field", "TensorInfo"]


@dataclass(slots=True, eq=False)
class Field:
    """A run of header bytes that belongs together.

    Attributes
    ----------
    kind : str
        Which part of the header, one of `constants.KIND_MEANINGS`: ``"magic"``, ``"ne"`` ...
    owner : str
        The key or tensor that it describes; empty for the file's own fields.
    offset, size : int
        Where the bytes lie in the file, and how many there are.
    value : object
        What they say: int, float, bool, str, tuple (dimensions), `ValueType`, `GGMLType`, numpy
        array or `StringArray`; None for padding.
    item_size : int
        Bytes per element of an array or dimension list; 0 where the field is one element.
    """

    kind: str
    owner: str
    offset: int
    size: int
    value: Any
    item_size: int = 0
    source: Source | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The key itself for a value, ``"<key or tensor>:<kind>"`` for the parts around it."""
        if self.kind == "value":
            return self.owner
        return f"{self.owner}:{self.kind}" if self.owner else self.kind

    @property
    def meaning(self) -> str:
        """One sentence for a newcomer."""
        if self.kind == "value" and (text := key_meaning(self.owner)):
            return text
        return KIND_MEANINGS[self.kind]

    @property
    def end(self) -> int:
        """Offset of the first byte after the field."""
        return self.offset + self.size

    @property
    def raw(self) -> bytes:
        """The bytes, read now."""
        assert self.source is not None
        return self.source.read(self.offset, self.size)

    @property
    def n_elements(self) -> int:
        """Number of elements that the bytes divide into (1 for a single value)."""
        if isinstance(self.value, StringArray):
            return len(self.value)
        return self.size // self.item_size if self.item_size else 1

    def element_at(self, offset: int) -> int:
        """Return the index of the element that the byte at a file offset belongs to.

        For an array of strings a string's length word belongs to the string.

        Raises
        ------
        IndexError
            The byte lies outside this field.
        """
        if not self.offset <= offset < self.end:
            raise IndexError(f"byte {offset} lies outside {self.name} [{self.offset}, {self.end})")
        if isinstance(self.value, StringArray):
            return int(np.searchsorted(self.value.positions, offset, side="right")) - 1
        return (offset - self.offset) // self.item_size if self.item_size else 0

    def element_span(self, i: int) -> tuple[int, int]:
        """Return file offset and size of element ``i``."""
        if not 0 <= i < self.n_elements:
            raise IndexError(f"element {i} of {self.n_elements} in {self.name}")
        if isinstance(self.value, StringArray):
            begin, end = self.value.positions[i : i + 2].tolist()
            return begin, end - begin
        if not self.item_size:
            return self.offset, self.size
        return self.offset + i * self.item_size, self.item_size


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """What the header says about one tensor.

    Attributes
    ----------
    name : str
        The tensor's name.
    ne : tuple of int
        Four numbers of elements, fastest-running dimension first, padded with 1 (ggml's order).
    n_dims : int
        How many dimensions the file states.
    type : GGMLType
        How its numbers are stored.
    offset : int
        Start of its bytes, from the start of the data section.
    abs_offset : int
        Start of its bytes in the file.
    nbytes : int
        Size of its bytes.
    part : int
        Which file of a split model holds it, from 0.
    """

    name: str
    ne: tuple[int, int, int, int]
    n_dims: int
    type: GGMLType
    offset: int
    abs_offset: int
    nbytes: int
    part: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """The numpy shape: stated dimensions in reverse, ``(n_rows, row length)`` for a matrix."""
        return self.ne[: self.n_dims][::-1]

    @property
    def n_elements(self) -> int:
        """Number of values."""
        return self.ne[0] * self.ne[1] * self.ne[2] * self.ne[3]
