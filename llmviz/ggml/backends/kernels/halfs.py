"""Products with matrices of F16 and BF16 (floats cut in half), as the file has them.
↔ ggml/src/ggml-cpu/vec.cpp (ggml_vec_dot_f16, bf16), llamafile/sgemm.cpp

Activations are rounded to the matrix's type first, as ggml does. One column: 32 sums for each row.
Several: rows are widened some at a time and multiplied as attention is, eight sums each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.extending import intrinsic

from llmviz.ggml.backends.kernels.attention import TOKENS, multiply, multiply_one
from llmviz.ggml.backends.kernels.calls import arg, pointer
from llmviz.ggml.backends.kernels.emit import F32, HALF, I16, I32, Emitter, Value, vec
from llmviz.ggml.backends.kernels.ops import dot_half
from llmviz.ggml.types import GGMLType

__all__ = ["FIELDS", "HALFS", "ROWS", "Half"]

_SETTINGS: dict[str, Any] = {"cache": True, "nogil": True, "boundscheck": False}
_SETTINGS["error_model"] = "numpy"

FIELDS = (
    "w",  # address of the first row
    "row_bytes",
    "n_rows",
    "k",  # a multiple of 32
    "x",  # address of the rounded columns, float32[m, k]
    "m",
    "out",  # address of float32[m, n_rows]
)
"""Parameters of a product. A rounding takes the addresses of x and its result, and k."""

ROWS = 32
"""Most rows that are widened together; a product of several columns needs four."""

_NEAR = 16 << 10  # bytes of columns that stay in the first-level cache


def _widen_bf16(e: Emitter, raw: Value) -> Value:
    """int16 as the upper halves of floats."""
    n = raw.type.count
    wide = e.b.zext(raw, vec(I32, n))
    return e.b.bitcast(e.b.shl(wide, e.all_of(16, wide.type)), vec(F32, n))


def _emit_widen(e: Emitter, address: Value, cut: bool) -> Value:
    """Eight values at an address as floats."""
    if cut:
        return _widen_bf16(e, e.load(address, vec(I16, 8)))
    return e.b.fpext(e.load(address, vec(HALF, 8)), vec(F32, 8))


def _emit_round(e: Emitter, x: Value, cut: bool) -> Value:
    """Eight floats rounded, to the nearest and else the even one."""
    b = e.b
    if not cut:
        return b.fpext(b.fptrunc(x, vec(HALF, 8)), x.type)
    bits = b.bitcast(x, vec(I32, 8))
    odd = e.mask(e.shift_right(bits, 16), 1)
    up = b.add(b.add(bits, e.all_of(0x7FFF, bits.type)), odd)
    quiet = b.or_(bits, e.all_of(0x400000, bits.type))
    made = b.select(b.fcmp_unordered("uno", x, x), quiet, up)
    return b.bitcast(e.mask(made, 0xFFFF0000), x.type)


def _convert_of(emit: Callable[[Emitter, Value], Value], size: int) -> Any:
    def convert(typingctx: Any, given: Any, out: Any, n: Any) -> Any:
        """n values, a multiple of 8, from one address to floats at another."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            e = Emitter(builder)
            source, to, length = args
            with e.loop(builder.sdiv(length, e.const(8))) as i:
                value = emit(e, e.at(source, e.times(i, 8 * size)))
                e.store(value, e.at(to, e.times(i, 32)))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), codegen

    return intrinsic(convert)


def _dot_cut(typingctx: Any, row: Any, x: Any, n: Any) -> Any:
    """Dot product of n BF16 at one address and n floats at another, 32 sums."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e = Emitter(builder)
        left, right, length = args
        start = [ir.Constant(vec(F32, 8), [0.0] * 8)] * 4

        def step(i: Value, sums: list[Value]) -> list[Value]:
            out = []
            for j, total in enumerate(sums):
                a = _emit_widen(e, e.at(left, e.times(i, 64), 16 * j), True)
                b = e.load(e.at(right, e.times(i, 128), 32 * j), vec(F32, 8))
                out.append(e.fma(a, b, total))
            return out

        s = e.accumulate(builder.sdiv(length, e.const(32)), start, step)
        both = builder.fadd(builder.fadd(s[0], s[2]), builder.fadd(s[1], s[3]))
        return e.sum(both)

    return types.float32(types.int64, types.int64, types.int64), codegen


_dot_bf16: Any = intrinsic(_dot_cut)
_widen_f16 = _convert_of(lambda e, at: _emit_widen(e, at, False), 2)
_widen_cut = _convert_of(lambda e, at: _emit_widen(e, at, True), 2)
_round_f16 = _convert_of(lambda e, at: _emit_round(e, e.load(at, vec(F32, 8)), False), 4)
_round_cut = _convert_of(lambda e, at: _emit_round(e, e.load(at, vec(F32, 8)), True), 4)


def round_f16(args: int, first: int, n: int) -> None:
    """Rows rounded to half floats; items are rows."""
    k = arg(args, 2)
    at = 4 * first * k
    _round_f16(arg(args, 0) + at, arg(args, 1) + at, n * k)


def round_bf16(args: int, first: int, n: int) -> None:
    """Rows rounded to BF16; items are rows."""
    k = arg(args, 2)
    at = 4 * first * k
    _round_cut(arg(args, 0) + at, arg(args, 1) + at, n * k)


def one_f16(args: int, first: int, n: int) -> None:
    """F16 times one column; items are rows."""
    out = carray(pointer(arg(args, 6)), arg(args, 2), np.float32)
    for r in range(first, first + n):
        out[r] = dot_half(arg(args, 0) + r * arg(args, 1), arg(args, 4), arg(args, 3))


def one_bf16(args: int, first: int, n: int) -> None:
    """BF16 times one column; items are rows."""
    out = carray(pointer(arg(args, 6)), arg(args, 2), np.float32)
    for r in range(first, first + n):
        out[r] = _dot_bf16(arg(args, 0) + r * arg(args, 1), arg(args, 4), arg(args, 3))


@njit(**_SETTINGS)
def _group(args: int) -> int:
    """Rows that are widened at a time."""
    return min(ROWS, arg(args, 2) // 4 * 4)


@njit(**_SETTINGS)
def _multiply_group(args: int, row: int, group: int, room: Any) -> None:
    """Some widened rows times all columns, a few columns at a time that stay near."""
    n_rows, k, m = arg(args, 2), arg(args, 3), arg(args, 5)
    near = max(1, _NEAR // (4 * k) // TOKENS) * TOKENS
    for begin in range(0, m, near):
        end = min(begin + near, m)
        for r in range(0, group, 4):
            at, out = room.ctypes.data + 4 * r * k, arg(args, 6) + 4 * (row + r)
            for t in range(begin, end, TOKENS):
                if m < TOKENS:
                    for c in range(m):
                        x, to = arg(args, 4) + 4 * c * k, out + 4 * c * n_rows
                        multiply_one(at, 4 * k, x, k, to, 4 * n_rows)
                else:
                    c = min(t, m - TOKENS)
                    x, to = arg(args, 4) + 4 * c * k, out + 4 * c * n_rows
                    multiply(at, 4 * k, x, k, to, 4 * n_rows)


def many_f16(args: int, first: int, n: int) -> None:
    """F16 times several columns; items are groups of rows, the last one may begin earlier."""
    n_rows, k, group = arg(args, 2), arg(args, 3), _group(args)
    room = np.empty(group * k, np.float32)
    for item in range(first, first + n):
        row = min(item * group, n_rows - group)
        for r in range(group):
            source = arg(args, 0) + (row + r) * arg(args, 1)
            _widen_f16(source, room.ctypes.data + 4 * r * k, k)
        _multiply_group(args, row, group, room)


def many_bf16(args: int, first: int, n: int) -> None:
    """BF16 times several columns; items are groups of rows, the last one may begin earlier."""
    n_rows, k, group = arg(args, 2), arg(args, 3), _group(args)
    room = np.empty(group * k, np.float32)
    for item in range(first, first + n):
        row = min(item * group, n_rows - group)
        for r in range(group):
            source = arg(args, 0) + (row + r) * arg(args, 1)
            _widen_cut(source, room.ctypes.data + 4 * r * k, k)
        _multiply_group(args, row, group, room)


class Half(NamedTuple):
    """Kernels of one type: rounding columns, a product with one and with several."""

    round: Callable[..., None]
    one: Callable[..., None]
    many: Callable[..., None]


HALFS: dict[GGMLType, Half] = {
    GGMLType.F16: Half(round_f16, one_f16, many_f16),
    GGMLType.BF16: Half(round_bf16, one_bf16, many_bf16),
}
"""Kernels by the type of the matrix."""
