"""The walk over tensor infos. ↔ ggml/src/gguf.cpp, src/llama-model-loader.h (llama_tensor_weight)

A tensor info is a name, a shape, a type and an offset into the data section; no weight is read.
"""

from __future__ import annotations

from typing import NamedTuple

from llmviz.events import Steps
from llmviz.ggml.types import GGML_TYPE_COUNT, TYPES, GGMLType
from llmviz.gguf import constants as c
from llmviz.gguf.cursor import I32, I64, U32, U64, Cursor, show
from llmviz.gguf.fields import TensorInfo
from llmviz.gguf.header import Header

__all__ = ["Claim", "pad", "place_tensors", "walk_tensor_info"]

_TENSOR_TYPES = {int(t): t for t in GGMLType}


class Claim(NamedTuple):
    """What a tensor info says, before it is known where the data section starts."""

    name: str
    ne: tuple[int, int, int, int]
    n_dims: int
    type: GGMLType
    nbytes: int
    offset: int
    at: int
    """File offset of the info's own offset field."""


def walk_tensor_info(cursor: Cursor, seen: set[str], i: int, depth: int) -> Steps[Claim]:
    """Walk one tensor info."""
    at = cursor.pos
    number = f"tensor info {i}"
    name = cursor.text(f"the name of {number}", number, max_length=c.MAX_NAME - 1)
    n_name = cursor.pos - at - 8
    if name in seen:
        cursor.fail(f"duplicate tensor name '{name}' for tensor {i}", at, name)
    seen.add(name)
    yield show(cursor.field("tensor_name_length", name, at, at + 8, n_name), depth)
    yield show(cursor.field("tensor_name", name, at + 8, cursor.pos, name), depth)

    at = cursor.pos
    n_dims = cursor.number(U32, "the number of dimensions", name)
    if n_dims > c.MAX_DIMS:
        cursor.fail(
            f"tensor '{name}' has invalid number of dimensions: {n_dims} > {c.MAX_DIMS}", at, name
        )
    yield show(cursor.field("n_dims", name, at, cursor.pos, n_dims), depth)

    ne_at = cursor.pos
    ne = [1, 1, 1, 1]
    for j in range(n_dims):
        at = cursor.pos
        ne[j] = cursor.number(I64, f"dimension {j}", name)
        if ne[j] < 0:
            cursor.fail(
                f"tensor '{name}' dimension {j} has invalid number of elements: {ne[j]} < 0",
                at,
                name,
            )
    _check_n_elements(cursor, name, ne, ne_at)
    if n_dims:
        yield show(cursor.field("ne", name, ne_at, cursor.pos, tuple(ne[:n_dims]), 8), depth)

    at = cursor.pos
    type_ = _tensor_type(cursor, name, ne)
    traits = TYPES[type_]
    n_elements = ne[0] * ne[1] * ne[2] * ne[3]
    nbytes = n_elements // traits.block_size * traits.type_size
    if nbytes > c.SIZE_MAX:
        cursor.fail(
            f"tensor '{name}' with shape {tuple(ne)} has a size in bytes > {c.SIZE_MAX}",
            ne_at,
            name,
        )
    yield show(cursor.field("tensor_type", name, at, cursor.pos, type_), depth)

    at = cursor.pos
    offset = cursor.number(U64, "the offset of its data", name)
    yield show(cursor.field("tensor_offset", name, at, cursor.pos, offset), depth)
    return Claim(name, (ne[0], ne[1], ne[2], ne[3]), n_dims, type_, nbytes, offset, at)


def _check_n_elements(cursor: Cursor, name: str, ne: list[int], at: int) -> None:
    """Refuse a shape whose product does not fit in 64 bits; a zero makes all that follows fit."""
    n = ne[0]
    for extent in ne[1:]:
        if extent > 1 and c.INT64_MAX // extent < n:
            cursor.fail(
                f"incorrect shape for tensor '{name}': {tuple(ne)} has more than {c.INT64_MAX} "
                "elements",
                at,
                name,
            )
        n *= extent


def _tensor_type(cursor: Cursor, name: str, ne: list[int]) -> GGMLType:
    at = cursor.pos
    raw = cursor.number(I32, "the tensor's type", name)
    if not 0 <= raw < GGML_TYPE_COUNT:
        cursor.fail(
            f"tensor '{name}' has invalid ggml type {raw}, should be in [0, {GGML_TYPE_COUNT})",
            at,
            name,
        )
    if raw in c.REMOVED_TYPES:
        cursor.fail(
            f"tensor '{name}' has type {raw}, which ggml removed ({c.REMOVED_TYPES[raw]}): "
            f"{ne[0]} elements per row are not a multiple of block size (0); "
            "fetch or convert the model with a current type",
            at,
            name,
        )
    type_ = _TENSOR_TYPES[raw]
    traits = TYPES[type_]
    if ne[0] % traits.block_size:
        cursor.fail(
            f"tensor '{name}' of type {raw} ({traits.name}) has {ne[0]} elements per row, "
            f"not a multiple of block size ({traits.block_size})",
            at,
            name,
        )
    return type_


def pad(n: int, alignment: int) -> int:
    """Round up to a multiple of the alignment (a power of two)."""
    return (n + alignment - 1) & ~(alignment - 1)


def place_tensors(cursor: Cursor, header: Header, claims: list[Claim]) -> None:
    """Check that the tensors' bytes follow each other, padded, and lie within the file.

    ↔ the end of gguf_init_from_reader, and llama_tensor_weight in src/llama-model-loader.h
    """
    expected = 0
    for name, _, _, _, nbytes, offset, at in claims:
        if offset != expected:
            cursor.fail(f"tensor '{name}' has offset {offset}, expected {expected}", at, name)
        expected += pad(nbytes, header.alignment)
        if expected > c.SIZE_MAX:
            cursor.fail(f"tensor '{name}': the data section's size overflows", at, name)
    for name, ne, n_dims, type_, nbytes, offset, at in claims:
        start = header.data_offset + offset
        if start + nbytes > cursor.size:
            cursor.fail(
                f"tensor '{name}' data is not within the file bounds (bytes {start} to "
                f"{start + nbytes} of {cursor.size}); the model is corrupted or incomplete, "
                "fetch it again",
                at,
                name,
            )
        header.tensor_infos[name] = TensorInfo(name, ne, n_dims, type_, offset, start, nbytes)
