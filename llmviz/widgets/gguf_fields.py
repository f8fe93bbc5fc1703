"""Fields of a GGUF header as lines of text: where each key's part begins, and what it says."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np

from llmviz.gguf import Field
from llmviz.gguf.strings import StringArray

__all__ = ["TEXT", "groups", "index_at", "one_line", "shown_text"]

TEXT = 80
"""Characters of one value that are shown."""


def groups(fields: list[Field]) -> list[tuple[int, int]]:
    """First and end of the runs of fields that have one owner."""
    out: list[tuple[int, int]] = []
    start = 0
    for i in range(1, len(fields) + 1):
        if i == len(fields) or _begins(fields[i - 1], fields[i]):
            out.append((start, i))
            start = i
    return out


def _begins(before: Field, f: Field) -> bool:
    starts = f.kind in ("key_length", "tensor_name_length", "padding")
    return starts or (f.owner != before.owner and bool(before.owner))


def index_at(fields: list[Field], offset: int) -> int:
    """Index of the field that holds the byte at an offset."""
    low, high = 0, len(fields)
    while low < high:
        mid = (low + high) // 2
        if fields[mid].end <= offset:
            low = mid + 1
        else:
            high = mid
    return low


def one_line(value: Any) -> str:
    """A value as far as it fits."""
    text = repr(value) if isinstance(value, str) else str(getattr(value, "label", value))
    return text if len(text) <= TEXT else text[: TEXT - 1] + "…"


def shown_text(f: Field) -> str:
    """The value of a field; of an array its first elements."""
    value = f.value
    if f.kind == "padding":
        return f"{f.size} zero bytes"
    if isinstance(value, (StringArray, np.ndarray)):
        n = len(value)
        first = ", ".join(one_line(value[i]) for i in range(min(3, n)))
        return f"[{first}{', …' if n > 3 else ''}]"[: 2 * TEXT]
    return value.name if isinstance(value, Enum) else one_line(value)
