"""Launches that move rows: fetch, store, copy, pad, join, sort. ↔ ggml/src/ggml-cuda/{getrows,
set-rows,cpy,pad,concat,argsort,add-id}.cu
"""

from __future__ import annotations

from llmviz.ggml.backends.backend import Kernel
from llmviz.ggml.backends.cuda.base import (
    MAX_GRID,
    THREADS,
    Binding,
    memory_of,
    op,
    strided,
)
from llmviz.ggml.backends.cuda.library import BLOCK_TYPES
from llmviz.ggml.graph import Tensor
from llmviz.ggml.types import TYPES, GGMLType, row_size

__all__ = ["PLAIN"]

PLAIN = {GGMLType.F32: "f32", GGMLType.F16: "f16", GGMLType.BF16: "bf16"}
"""Types of plain floats -> what the kernels for them are called."""


def _takes_get_rows(node: Tensor) -> bool:
    a, ids = node.src
    if ids.type != GGMLType.I32:
        return False
    if a.type in BLOCK_TYPES:
        return a.ne[2] == a.ne[3] == 1 and ids.ne[1] == ids.ne[2] == 1 and ids.is_contiguous
    return a.type in PLAIN and a.nb[0] == TYPES[a.type].type_size


@op("GET_ROWS", _takes_get_rows)
def _bind_get_rows(b: Binding) -> Kernel:
    a, ids = b.node.src
    n = b.node.nelements
    if a.type in PLAIN:
        return b.each(
            f"get_rows_{PLAIN[a.type]}",
            n,
            a=memory_of(a),
            ids=memory_of(ids),
            out=memory_of(b.node),
            a_at=strided(a),
            ids_at=strided(ids),
            n=n,
        )
    grid = min(max(-(-n // THREADS), 1), MAX_GRID)
    return b.cuda.library.launch(
        f"decode_{a.type.name}",
        (grid,),
        (THREADS,),
        type_=a.type,
        w=memory_of(a),
        out=memory_of(b.node),
        ids=memory_of(ids),
        row_bytes=row_size(a.type, a.ne[0]),
        n=n,
        k=a.ne[0],
    )


def _takes_set_rows(node: Tensor) -> bool:
    rows, ids = node.src[:2]
    return (
        rows.type == GGMLType.F32
        and rows.ne[2] == rows.ne[3] == 1
        and node.type in PLAIN
        and node.is_contiguous
        and node.root.stored is None  # a cache in blocks is written by the CPU
        and ids.type in (GGMLType.I64, GGMLType.I32)
        and ids.is_contiguous
    )


@op("SET_ROWS", _takes_set_rows)
def _bind_set_rows(b: Binding) -> Kernel:
    rows, ids = b.node.src[:2]
    return b.each(
        f"set_rows_{PLAIN[b.node.type]}",
        rows.nelements,
        x=memory_of(rows),
        ids=memory_of(ids),
        out=memory_of(b.node),
        x_at=strided(rows),
        n=rows.nelements,
        wide_ids=ids.type == GGMLType.I64,
    )


def _takes_cont(node: Tensor) -> bool:
    return node.type == node.src[0].type and TYPES[node.type].type_size in (2, 4)


@op("CONT", lambda node: node.type not in BLOCK_TYPES and _takes_cont(node))
def _bind_cont(b: Binding) -> Kernel:
    x = b.node.src[0]
    bits = 8 * TYPES[x.type].type_size
    n = x.nelements
    return b.each(f"copy_{bits}", n, x=memory_of(x), out=memory_of(b.node), x_at=strided(x), n=n)


@op("PAD")
def _bind_pad(b: Binding) -> Kernel:
    return _join(b, None)


@op("CONCAT")
def _bind_concat(b: Binding) -> Kernel:
    return _join(b, b.node.src[1])


def _join(b: Binding, behind: Tensor | None) -> Kernel:
    x, n = b.node.src[0], b.node.nelements
    return b.each(
        "join_f32",
        n,
        a=memory_of(x),
        b=None if behind is None else memory_of(behind),
        out=memory_of(b.node),
        a_at=strided(x),
        b_at=None if behind is None else strided(behind),
        n=n,
        width=b.node.ne[0],
    )


@op("ARGSORT", lambda node: node.src[0].type == GGMLType.F32 and node.src[0].nb[0] == 4)
def _bind_argsort(b: Binding) -> Kernel:
    x = b.node.src[0]
    return b.per_row(
        "argsort_f32",
        x.nelements // x.ne[0],
        x.ne[0],
        x=memory_of(x),
        out=memory_of(b.node),
        x_at=strided(x),
        n=x.ne[0],
    )


def _takes_add_id(node: Tensor) -> bool:
    a, b, ids = node.src
    values = a.type == b.type == GGMLType.F32 and b.is_contiguous
    return values and ids.type == GGMLType.I32 and ids.nb[0] == 4


@op("ADD_ID", _takes_add_id)
def _bind_add_id(b: Binding) -> Kernel:
    a, rows, ids = b.node.src
    return b.each(
        "add_id_f32",
        a.nelements,
        a=memory_of(a),
        b=memory_of(rows),
        ids=memory_of(ids),
        out=memory_of(b.node),
        a_at=strided(a),
        ids_nb=ids.nb[1],
        total=a.nelements,
    )
