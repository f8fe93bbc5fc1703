"""Products of a quantized matrix with many quantized columns: one kernel for each type.

Items of work are tiles of sixteen rows. The last tile of a matrix whose rows are no multiple of
sixteen begins earlier and computes some rows again, to the same values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

from llmviz.ggml.backends.kernels import blocks32, blocks256, blocks256_more
from llmviz.ggml.backends.kernels.calls import arg, pointer
from llmviz.ggml.backends.kernels.emit import Emitter
from llmviz.ggml.backends.kernels.rows import ARGS, parameters
from llmviz.ggml.backends.kernels.tile_pack import Packed, emit_pack
from llmviz.ggml.backends.kernels.tiles import ROWS, emit_multiply
from llmviz.ggml.types import GGMLType

__all__ = ["TILES", "sums_of_codes", "wants_sums"]

_KINDS: dict[GGMLType, Packed] = {
    GGMLType.Q4_0: blocks32.Q4_0,
    GGMLType.Q4_1: blocks32.Q4_1,
    GGMLType.Q5_0: blocks32.Q5_0,
    GGMLType.Q5_1: blocks32.Q5_1,
    GGMLType.Q8_0: blocks32.Q8_0,
    GGMLType.IQ4_NL: blocks32.IQ4_NL,
    GGMLType.MXFP4: blocks32.MXFP4,
    GGMLType.Q4_K: blocks256.Q4_K,
    GGMLType.Q5_K: blocks256.Q5_K,
    GGMLType.Q6_K: blocks256.Q6_K,
    GGMLType.Q2_K: blocks256_more.Q2_K,
    GGMLType.Q3_K: blocks256_more.Q3_K,
    GGMLType.IQ4_XS: blocks256_more.IQ4_XS,
}
_N_ROWS, _N_BLOCKS = ARGS.index("n_rows"), ARGS.index("n_blocks")


def wants_sums(type_: GGMLType) -> bool:
    """Whether the columns' `s` must be sums of 32 codes: codes are stored with a zero above 0."""
    layout = _KINDS[type_].layout
    return bool(layout.zero) and not layout.group


def _tile_of(kind: Packed) -> Any:
    """An intrinsic ``tile(args, row, room)`` that computes sixteen rows for all columns."""

    @intrinsic
    def tile(typingctx: Any, args: Any, row: Any, room: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            e = Emitter(builder)
            address, first, to = given
            a = parameters(e, address)
            rows = builder.add(a["w"], builder.mul(first, a["row_bytes"]))
            emit_pack(e, kind, rows, a["row_bytes"], a["n_blocks"], to)
            emit_multiply(e, kind.layout, to, a, first)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), codegen

    return tile


_tiles = {type_: _tile_of(kind) for type_, kind in _KINDS.items()}
_sizes = {type_: kind.layout.nbytes for type_, kind in _KINDS.items()}

_tile_q4_0, _size_q4_0 = _tiles[GGMLType.Q4_0], _sizes[GGMLType.Q4_0]


def q4_0(args: int, first: int, n: int) -> None:
    """Q4_0 times Q8_0."""
    room = np.empty(arg(args, _N_BLOCKS) * _size_q4_0, np.uint8)
    last = arg(args, _N_ROWS) - ROWS
    for t in range(first, first + n):
        _tile_q4_0(args, min(t * ROWS, last), room.ctypes.data)


_tile_q4_1, _size_q4_1 = _tiles[GGMLType.Q4_1], _sizes[GGMLType.Q4_1]


def q4_1(args: int, first: int, n: int) -> None:
    """Q4_1 times Q8_1."""
    room = np.empty(arg(args, _N_BLOCKS) * _size_q4_1, np.uint8)
    last = arg(args, _N_ROWS) - ROWS
    for t in range(first, first + n):
        _tile_q4_1(args, min(t * ROWS, last), room.ctypes.data)


_tile_q5_0, _size_q5_0 = _tiles[GGMLType.Q5_0], _sizes[GGMLType.Q5_0]


def q5_0(args: int, first: int, n: int) -> None:
    """Q5_0 times Q8_0."""
    room = np.empty(arg(args, _N_BLOCKS) * _size_q5_0, np.uint8)
    last = arg(args, _N_ROWS) - ROWS
    for t in range(first, first + n):
        _tile_q5_0(args, min(t * ROWS, last), room.ctypes.data)


_tile_q5_1, _size_q5_1 = _tiles[GGMLType.Q5_1], _sizes[GGMLType.Q5_1]


def q5_1(args: int, first: int, n: int) -> None:
    """Q5_1 times Q8_1."""
    room = np.empty(arg(args, _N_BLOCKS) * _size_q5_1, np.uint8)
    last = arg(args, _N_ROWS) - ROWS
    for t in range(first, first + n):
        _tile_q5_1(args, min(t * ROWS, last), room.ctypes.data)


_tile_q8_0, _size_q8_0 = _tiles[GGMLType.Q8_0], _sizes[GGMLType.Q8_0]


def q8_0(args: int, first: int, n: int) -> None:
    """Q8_0 times Q8_0."""
    room = np.empty(arg(args, _N_BLOCKS) * _size_q8_0, np.uint8)
    last = arg(args, _N_ROWS) - ROWS
    for t in range(first, first + n):
        _tile_q8_0(args, min(t * ROWS, last), room.ctypes.data)


_tile_iq4_nl, _size_iq4_nl = _tiles[GGMLType.IQ4_NL], _sizes[GGMLType.IQ4_NL]


def iq4_nl(args: int, first: int, n: int) -> None:
    """IQ4_NL times Q8_0."""
    room = np.empty(arg(args, _N_BLOCKS) * _size_iq4_nl, np.uint8)
    last = arg(args, _N_ROWS) - ROWS
    for t in range(first, first + n):
        _tile_iq4_nl(args, min(t * ROWS, last), room.ctypes.data)


_tile_mxfp4, _size_mxfp4 = _tiles[GGMLType.MXFP4], _sizes[GGMLType.MXFP4]


def mxfp4(args: int, first: int, n: int) -> None:
    """MXFP4 times Q8_0."""
    room = np.empty(arg(args, _N_BLOCKS) * _size_mxfp4, np.uint8)
    last = arg(args, _N_ROWS) - ROWS
    for t in range(first, first + n):
        _tile_mxfp4(args, min(t * ROWS, last), room.ctypes.data)


_tile_q4_k, _size_q4_k = _tiles[GGMLType.Q4_K], _sizes[GGMLType.Q4_K]


def q4_k(args: int, first: int, n: int) -> None:
    """Q4_K times Q8_K."""
    room = np.empty(arg(args, _N_BLOCKS) * _size_q4_k, np.uint8)
    last = arg(args, _N_ROWS) - ROWS
    for t in range(first, first + n):
        _tile_q4_k(args, min(t * ROWS, last), room.ctypes.data)


_tile_q5_k, _size_q5_k = _tiles[GGMLType.Q5_K], _sizes[GGMLType.Q5_K]


def q5_k(args: int, first: int, n: int) -> None:
    """Q5_K times Q8_K."""
    room = np.empty(arg(args, _N_BLOCKS) * _size_q5_k, np.uint8)
    last = arg(args, _N_ROWS) - ROWS
    for t in range(first, first + n):
        _tile_q5_k(args, min(t * ROWS, last), room.ctypes.data)


_tile_q6_k, _size_q6_k = _tiles[GGMLType.Q6_K], _sizes[GGMLType.Q6_K]


def q6_k(args: int, first: int, n: int) -> None:
    """Q6_K times Q8_K."""
    room = np.empty(arg(args, _N_BLOCKS) * _size_q6_k, np.uint8)
    last = arg(args, _N_ROWS) - ROWS
    for t in range(first, first + n):
        _tile_q6_k(args, min(t * ROWS, last), room.ctypes.data)


_tile_q2_k, _size_q2_k = _tiles[GGMLType.Q2_K], _sizes[GGMLType.Q2_K]


def q2_k(args: int, first: int, n: int) -> None:
    """Q2_K times Q8_K."""
    room = np.empty(arg(args, _N_BLOCKS) * _size_q2_k, np.uint8)
    last = arg(args, _N_ROWS) - ROWS
    for t in range(first, first + n):
        _tile_q2_k(args, min(t * ROWS, last), room.ctypes.data)


_tile_q3_k, _size_q3_k = _tiles[GGMLType.Q3_K], _sizes[GGMLType.Q3_K]


def q3_k(args: int, first: int, n: int) -> None:
    """Q3_K times Q8_K."""
    room = np.empty(arg(args, _N_BLOCKS) * _size_q3_k, np.uint8)
    last = arg(args, _N_ROWS) - ROWS
    for t in range(first, first + n):
        _tile_q3_k(args, min(t * ROWS, last), room.ctypes.data)


_tile_iq4_xs, _size_iq4_xs = _tiles[GGMLType.IQ4_XS], _sizes[GGMLType.IQ4_XS]


def iq4_xs(args: int, first: int, n: int) -> None:
    """IQ4_XS times Q8_K."""
    room = np.empty(arg(args, _N_BLOCKS) * _size_iq4_xs, np.uint8)
    last = arg(args, _N_ROWS) - ROWS
    for t in range(first, first + n):
        _tile_iq4_xs(args, min(t * ROWS, last), room.ctypes.data)


def sums_of_codes(args: int, first: int, n: int) -> None:
    """Sums of 32 codes; items are columns. q address, k, out address (int32)."""
    k = arg(args, 1)
    for c in range(first, first + n):
        q = numba.carray(pointer(arg(args, 0) + c * k), k, np.int8)
        out = numba.carray(pointer(arg(args, 2) + c * (k // 32) * 4), k // 32, np.int32)
        for b in range(k // 32):
            total = np.int32(0)
            for j in range(32 * b, 32 * b + 32):
                total += np.int32(q[j])
            out[b] = total


TILES: dict[GGMLType, Callable[..., None]] = {
    GGMLType.Q4_0: q4_0,
    GGMLType.Q4_1: q4_1,
    GGMLType.Q5_0: q5_0,
    GGMLType.Q5_1: q5_1,
    GGMLType.Q8_0: q8_0,
    GGMLType.IQ4_NL: iq4_nl,
    GGMLType.MXFP4: mxfp4,
    GGMLType.Q4_K: q4_k,
    GGMLType.Q5_K: q5_k,
    GGMLType.Q6_K: q6_k,
    GGMLType.Q2_K: q2_k,
    GGMLType.Q3_K: q3_k,
    GGMLType.IQ4_XS: iq4_xs,
}
"""Product kernels by the type of the matrix, see `calls`: items are tiles, parameters `rows.ARGS`.

Where `wants_sums` says so, ``s`` are int32 sums of codes.
"""
