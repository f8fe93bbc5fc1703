"""Attention products of many tokens: rows of a kv head's matrix times rows of its heads.
↔ ggml/src/ggml-cpu/llamafile/sgemm.cpp (the order in which it adds)

Each result is eight sums that run along the row and are joined at the end; four rows of the matrix
and three tokens are multiplied at a time, so that all sums and what is loaded stay in registers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.extending import intrinsic

from llmviz.ggml.backends.kernels.calls import arg, pointer
from llmviz.ggml.backends.kernels.emit import F32, I8, I32, Emitter, Value, vec
from llmviz.ggml.backends.kernels.ops import _dot, _float_at, _half_value

__all__ = [
    "FIELDS",
    "TOKENS",
    "attend",
    "attend_apart",
    "multiply",
    "multiply_one",
    "tokens_at_a_time",
]

FIELDS = (
    "matrices",  # address of float32[n_head_kv, n_rows, k]
    "head_bytes",  # from one matrix to the next
    "row_bytes",
    "n_rows",  # a multiple of 4
    "tokens",  # address of float32[n_head, m, k]
    "token_head_bytes",
    "token_bytes",
    "m",
    "k",  # a multiple of 8
    "group",  # heads that share a matrix
    "half",  # whether tokens are rounded to half floats first
    "block",  # tokens that are done together
    "out",  # address of float32[n_head, m, n_rows]
)
"""Parameters of `attend`."""

ROWS, TOKENS = 4, 3
_NEAR = 16 << 10  # bytes of tokens that stay in the first-level cache
_V8 = vec(F32, 8)


def tokens_at_a_time(m: int, k: int) -> int:
    """How many of m tokens make an item of work."""
    most = max(1, _NEAR // (4 * k) // TOKENS)
    return min(TOKENS * most, 96, m)


def _emit_sums(e: Emitter, four: list[Value]) -> Value:
    """Each of four vectors of eight added up, upper half to lower half each time: four floats."""
    b = e.b
    halves = [b.fadd(e.part(v, 4, 4), e.part(v, 0, 4)) for v in four]
    pairs = []
    for x, y in (halves[:2], halves[2:]):
        pairs.append(b.fadd(e.shuffle(x, y, [2, 3, 6, 7]), e.shuffle(x, y, [0, 1, 4, 5])))
    x, y = pairs
    return b.fadd(e.shuffle(x, y, [1, 3, 5, 7]), e.shuffle(x, y, [0, 2, 4, 6]))


def _dots_of(n_tokens: int) -> Any:
    def dots(
        typingctx: Any, rows: Any, row_bytes: Any, tokens: Any, k: Any, out: Any, out_bytes: Any
    ) -> Any:
        """Four rows times some tokens of k contiguous floats each, all given by address."""

        def codegen(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            e = Emitter(builder)
            row, step, token, n, to, out_step = given
            lefts, rights = [row], [token]
            for _ in range(ROWS - 1):
                lefts.append(builder.add(lefts[-1], step))
            for _ in range(n_tokens - 1):
                rights.append(builder.add(rights[-1], e.times(n, 4)))

            def add(i: Value, sums: list[Value]) -> list[Value]:
                at = e.times(i, 32)
                ys = [e.load(e.at(right, at), _V8) for right in rights]
                out = list(sums)
                for r, left in enumerate(lefts):  # one row at a time: all registers are taken
                    x = e.load(e.at(left, at), _V8)
                    for t, y in enumerate(ys):
                        out[ROWS * t + r] = e.fma(x, y, sums[ROWS * t + r])
                return out

            start = [ir.Constant(_V8, [0.0] * 8)] * (ROWS * n_tokens)
            sums = e.accumulate(builder.sdiv(n, e.const(8)), start, add)
            for t in range(n_tokens):
                e.store(_emit_sums(e, sums[ROWS * t : ROWS * (t + 1)]), to)
                to = builder.add(to, out_step)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), codegen

    return intrinsic(dots)


multiply_one, multiply = _dots_of(1), _dots_of(TOKENS)


def _eight_zeros(typingctx: Any, address: Any) -> Any:
    """Whether all eight floats at an address are zero."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e = Emitter(builder)
        eight = e.load(args[0], _V8)
        same = builder.fcmp_ordered("==", eight, ir.Constant(_V8, [0.0] * 8))
        return builder.icmp_unsigned("==", builder.bitcast(same, I8), e.const(255, I8))

    return types.boolean(types.int64), codegen


def _finite_row(typingctx: Any, address: Any, n: Any) -> Any:
    """Whether n floats at an address, a multiple of 8, are all finite."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e = Emitter(builder)
        start = e.all_of(0, vec(I32, 8))

        def step(i: Value, values: list[Value]) -> list[Value]:
            bits = e.load(e.at(args[0], e.times(i, 32)), vec(I32, 8))
            size = e.mask(bits, 0x7FFFFFFF)
            larger = builder.icmp_unsigned(">", size, values[0])
            return [builder.select(larger, size, values[0])]

        (most,) = e.accumulate(builder.sdiv(args[1], e.const(8)), [start], step)
        fine = builder.icmp_unsigned("<", most, e.all_of(0x7F800000, most.type))
        return builder.icmp_unsigned("==", builder.bitcast(fine, I8), e.const(255, I8))

    return types.boolean(types.int64, types.int64), codegen


_are_zero: Any = intrinsic(_eight_zeros)
_are_finite: Any = intrinsic(_finite_row)
_LONG = 128  # values of a row from which on it is worth looking for zeros at its end


@njit(boundscheck=False)
def _used(tokens: int, token_bytes: int, n: int, k: int) -> int:
    """How many values of some tokens come before nothing but zeros, a multiple of 8."""
    used = 8
    for t in range(n):
        end = k
        while end > used and _are_zero(tokens + t * token_bytes + 4 * end - 32):
            end -= 8
        used = max(used, end)
    return used


@njit(boundscheck=False)
def _finite(matrix: int, row_bytes: int, n_rows: int, start: int, end: int) -> bool:
    """Whether a matrix holds only numbers from column `start` on: zero times them is zero."""
    for r in range(n_rows):  # noqa: SIM110  numba compiles no generator here
        if not _are_finite(matrix + r * row_bytes + 4 * start, end - start):
            return False
    return True


def attend(args: int, first: int, n: int) -> None:
    """Attention products; items are blocks of tokens, those of the first head first.

    Where rows of the tokens end in zeros (shares of what is masked), those are not multiplied.
    """
    n_rows, m, k, block = arg(args, 3), arg(args, 7), arg(args, 8), arg(args, 11)
    row_bytes, token_bytes, half = arg(args, 2), arg(args, 6), arg(args, 10)
    room = np.empty(block * k, np.float32)
    n_blocks = (m + block - 1) // block
    checked, start_checked, is_finite = 0, 0, False
    for item in range(first, first + n):
        h = item // n_blocks
        start = min(item % n_blocks * block, m - block)  # the last one may begin earlier
        matrix = arg(args, 0) + h // arg(args, 9) * arg(args, 1)
        tokens = arg(args, 4) + h * arg(args, 5) + start * token_bytes
        out = arg(args, 12) + 4 * (h * m + start) * n_rows
        k = arg(args, 8)
        if k >= _LONG:
            used = _used(tokens, token_bytes, block, k)
            if matrix != checked or used < start_checked:  # else seen to be finite already
                is_finite = _finite(matrix, row_bytes, n_rows, used, k)
                checked, start_checked = matrix, used
            if is_finite:
                k = used
        for t in range(block):
            for i in range(k):
                x = _float_at(tokens + t * token_bytes + 4 * i)
                room[t * k + i] = _half_value(x) if half else x
        row, at = matrix, room.ctypes.data
        for r in range(0, n_rows, ROWS):
            if block < TOKENS:
                for t in range(block):
                    to = out + 4 * (t * n_rows + r)
                    multiply_one(row, row_bytes, at + 4 * t * k, k, to, 4 * n_rows)
            else:
                for begin in range(0, block, TOKENS):
                    t = min(begin, block - TOKENS)
                    to = out + 4 * (t * n_rows + r)
                    multiply(row, row_bytes, at + 4 * t * k, k, to, 4 * n_rows)
            row += ROWS * row_bytes


def attend_apart(args: int, first: int, n: int) -> None:
    """As `attend`, but adds as for one token (k a multiple of 32); items are heads."""
    n_rows, m, k = arg(args, 3), arg(args, 7), arg(args, 8)
    for h in range(first, first + n):
        matrix = arg(args, 0) + h // arg(args, 9) * arg(args, 1)
        tokens = arg(args, 4) + h * arg(args, 5)
        out = carray(pointer(arg(args, 12) + 4 * h * m * n_rows), (m, n_rows), np.float32)
        for t in range(m):
            for r in range(n_rows):
                row = matrix + r * arg(args, 2)
                out[t, r] = _dot(row, tokens + t * arg(args, 6), k)
