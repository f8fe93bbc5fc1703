"""The walk over one key-value pair: a scalar, a string, or an array of either. ↔ ggml/src/gguf.cpp

Arrays of numbers become numpy arrays, arrays of strings a `StringArray`; both are one field.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from llmviz.events import Steps
from llmviz.gguf import constants as c
from llmviz.gguf.constants import ValueType
from llmviz.gguf.cursor import I32, U64, Cursor, show
from llmviz.gguf.header import Header
from llmviz.gguf.strings import StringArray, decode, walk_strings

__all__ = ["read_alignment", "walk_kv"]

_COPY_LIMIT = 64 << 20
_VALUE_TYPES = {int(t): t for t in ValueType}


def walk_kv(cursor: Cursor, header: Header, i: int, depth: int) -> Steps[None]:
    """Walk one key-value pair."""
    at = cursor.pos
    number = f"key-value pair {i}"
    key = cursor.text(f"the key of {number}", number)
    if not key:
        cursor.fail(f"key {i} is empty", at, number)
    if key in header.kv:
        cursor.fail(f"duplicate key '{key}' for KV pair {i}", at, key)
    yield show(cursor.field("key_length", key, at, at + 8, cursor.pos - at - 8), depth)
    yield show(cursor.field("key", key, at + 8, cursor.pos, key), depth)

    at = cursor.pos
    kind = _value_type(cursor, key, "value")
    yield show(cursor.field("value_type", key, at, cursor.pos, kind), depth)
    header.kv_types[key] = kind
    header.arr_types[key] = None
    if kind is ValueType.ARRAY:
        header.kv[key] = yield from _walk_array(cursor, header, key, depth)
        return

    at = cursor.pos
    value: Any
    if kind is ValueType.STRING:
        value = decode(cursor.string("the value", key))
        yield show(cursor.field("value_length", key, at, at + 8, cursor.pos - at - 8), depth)
        at += 8
    else:
        value = cursor.number(c.SCALARS[kind], f"the value (type {kind.label})", key)
        if kind is ValueType.BOOL:
            value = value != 0
    header.kv[key] = value
    yield show(cursor.field("value", key, at, cursor.pos, value), depth)


def _value_type(cursor: Cursor, key: str, what: str) -> ValueType:
    at = cursor.pos
    raw = cursor.number(I32, f"the type of the {what}", key)
    kind = _VALUE_TYPES.get(raw)
    if kind is None or (kind is ValueType.ARRAY and what == "array's elements"):
        cursor.fail(
            f"key '{key}' has invalid GGUF type {raw}"
            + (" (arrays cannot hold arrays)" if raw == ValueType.ARRAY else "")
            + f"; valid are 0 to {len(ValueType) - 1}",
            at,
            key,
        )
    return kind


def _walk_array(cursor: Cursor, header: Header, key: str, depth: int) -> Steps[Any]:
    """Walk an array's element type, length and data; the data are one field."""
    at = cursor.pos
    kind = _value_type(cursor, key, "array's elements")
    yield show(cursor.field("array_type", key, at, cursor.pos, kind), depth)
    header.arr_types[key] = kind

    at = cursor.pos
    n = cursor.number(U64, "the length of the array", key)
    item = 8 if kind is ValueType.STRING else c.ARRAY_DTYPES[kind].itemsize
    if n > c.MAX_ARRAY_ELEMENTS:
        cursor.fail(f"array length {n} exceeds maximum {c.MAX_ARRAY_ELEMENTS}", at, key)
    if n * item > cursor.remaining:
        cursor.fail(
            f"array length {n} needs at least {n * item} bytes, but only {cursor.remaining} remain "
            "in the file; it is cut off or damaged",
            at,
            key,
        )
    yield show(cursor.field("array_length", key, at, cursor.pos, n), depth)

    at = cursor.pos
    value: Any
    if kind is ValueType.STRING:
        value = _string_array(cursor, key, n)
        item = 0
    else:
        value = _number_array(cursor, kind, n)
    yield show(cursor.field("value", key, at, cursor.pos, value, item), depth)
    return value


def _string_array(cursor: Cursor, key: str, n: int) -> StringArray:
    positions, found = walk_strings(cursor.source, cursor.pos, n)
    lengths = np.diff(positions) - 8
    if found < n:
        cursor.pos = int(positions[-1])
        cursor.string(f"string {found} of {n}", key)  # says why it does not fit
    if found and int(lengths.max()) > c.MAX_STRING_LENGTH:
        i = int(lengths.argmax())
        cursor.pos = int(positions[i])
        cursor.string(f"string {i} of {n}", key)
    cursor.pos = int(positions[-1])
    return StringArray(cursor.source, positions)


def _number_array(cursor: Cursor, kind: ValueType, n: int) -> np.ndarray:
    dtype = c.ARRAY_DTYPES[kind]
    at, nbytes = cursor.pos, n * dtype.itemsize
    cursor.pos += nbytes
    # a copy is aligned and does not hold the mapping; beyond any real vocabulary a view will do
    raw = (
        cursor.source.read(at, nbytes) if nbytes <= _COPY_LIMIT else cursor.source.view(at, nbytes)
    )
    array = np.frombuffer(raw, dtype)
    return array != 0 if kind is ValueType.BOOL else array


def read_alignment(cursor: Cursor, header: Header) -> int:
    """Read the alignment from its key, or the default."""
    key = c.KEY_ALIGNMENT
    if key not in header.kv:
        return c.DEFAULT_ALIGNMENT
    at = next(f.offset for f in header.fields if f.owner == key and f.kind == "value_type")
    kind = header.kv_types[key]
    if kind is not ValueType.UINT32:
        cursor.fail(f"key '{key}' must be of type u32 but is {kind.label}", at, key)
    alignment = header.kv[key]
    if alignment == 0 or alignment & (alignment - 1):
        cursor.fail(f"alignment {alignment} is not a power of 2", at + 4, key)
    return alignment
