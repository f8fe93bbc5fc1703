"""Compiled forms of the ops around the products: norm, softmax, gate, attention, cache.
↔ ggml/src/ggml-cpu/vec.cpp, vec.h, ops.cpp

Each is one call where numpy needs several, which counts when there is one token. Sums are made in
the order in which ggml's AVX2 code makes them. The plain forms are in ``cpu_*.py``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from llmviz.ggml.backends.kernels.emit import F32, I16, I32, Emitter, Value, vec
from llmviz.ggml.backends.kernels.vector_math import soft_max_row, swiglu_row

__all__ = [
    "cos_sin",
    "dot_half",
    "rms_norm",
    "rotate",
    "rows_dot",
    "rows_dot_half",
    "seen_by",
    "soft_max",
    "store_half",
    "swiglu",
]

_SETTINGS: dict[str, Any] = {"cache": True, "nogil": True, "boundscheck": False}
_SETTINGS["error_model"] = "numpy"


# --- intrinsics -----------------------------------------------------------------------------------


def _half_bits_of(typingctx: Any, x: Any) -> Any:
    """The bits of a float32 rounded to a half float."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        half = builder.fptrunc(args[0], ir.HalfType())
        return builder.bitcast(half, I16)

    return types.uint16(types.float32), codegen


def _half_value_of(typingctx: Any, x: Any) -> Any:
    """A float32 rounded to a half float."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return Emitter(builder).round_half(args[0])

    return types.float32(types.float32), codegen


def _emit_dots(e: Emitter, left: Value, rights: list[Value], n: Value, half: bool) -> list[Value]:
    """Dot products of one row of n values (a multiple of 32) with several: 32 sums each, joined at
    the end.

    The others hold floats, `left` too or half floats.
    """
    eight, size = vec(F32, 8), 2 if half else 4
    start = [ir.Constant(eight, [0.0] * 8)] * (4 * len(rights))

    def step(i: Value, sums: list[Value]) -> list[Value]:
        out = list(sums)
        for j in range(4):
            at = e.at(left, e.times(i, 32 * size), 8 * size * j)
            x = e.load(at, vec(ir.HalfType(), 8) if half else eight)
            x = e.b.fpext(x, eight) if half else x
            for r, right in enumerate(rights):
                y = e.load(e.at(right, e.times(i, 128), 32 * j), eight)
                out[4 * r + j] = e.fma(x, y, sums[4 * r + j])
        return out

    sums = e.accumulate(e.b.sdiv(n, e.const(32)), start, step)
    return [_joined(e, sums[4 * r : 4 * r + 4]) for r in range(len(rights))]


def _joined(e: Emitter, s: list[Value]) -> Value:
    """All of four vectors of eight added, as ggml adds them."""
    both = e.b.fadd(e.b.fadd(s[0], s[2]), e.b.fadd(s[1], s[3]))
    four = e.b.fadd(e.part(both, 0, 4), e.part(both, 4, 4))
    two = e.b.fadd(e.shuffle(four, four, [0, 2]), e.shuffle(four, four, [1, 3]))  # neighbours
    ends = (e.b.extract_element(two, e.const(k, I32)) for k in (0, 1))
    return e.b.fadd(*ends)


def _dots_of(count: int, half: bool) -> Any:
    def dots(typingctx: Any, a: Any, b: Any, b_step: Any, n: Any, out: Any, out_step: Any) -> Any:
        """Products of n values at one address with each of a few rows, a step apart; their
        results go to an address, a step apart as well.
        """

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            e = Emitter(builder)
            left, right, step, length, to, to_step = args
            rights, places = [right], [to]
            for _ in range(count - 1):
                rights.append(builder.add(rights[-1], step))
                places.append(builder.add(places[-1], to_step))
            for value, place in zip(_emit_dots(e, left, rights, length, half), places, strict=True):
                e.store(value, place)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), codegen

    return intrinsic(dots)


def _dot_f16(typingctx: Any, a: Any, b: Any, n: Any) -> Any:
    """Dot product of n half floats at one address and n floats at another."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        left, right, length = args
        return _emit_dots(Emitter(builder), left, [right], length, half=True)[0]

    return types.float32(types.int64, types.int64, types.int64), codegen


def _dot_f32(typingctx: Any, a: Any, b: Any, n: Any) -> Any:
    """Dot product of n floats at two addresses."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        left, right, length = args
        return _emit_dots(Emitter(builder), left, [right], length, half=False)[0]

    return types.float32(types.int64, types.int64, types.int64), codegen


def _load_f32(typingctx: Any, address: Any) -> Any:
    """The float at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return Emitter(builder).load(args[0], F32)

    return types.float32(types.int64), codegen


def _fused(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` rounded once."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return Emitter(builder).fma(*args)

    return types.float32(types.float32, types.float32, types.float32), codegen


_fma: Any = intrinsic(_fused)
_float_at: Any = intrinsic(_load_f32)
_half_bits: Any = intrinsic(_half_bits_of)
_half_value: Any = intrinsic(_half_value_of)
_dot: Any = intrinsic(_dot_f32)
dot_half: Any = intrinsic(_dot_f16)
_one, _two, _three = (_dots_of(n, half=False) for n in (1, 2, 3))
_one_half, _two_half, _three_half = (_dots_of(n, half=True) for n in (1, 2, 3))


# --- ops ------------------------------------------------------------------------------------------


@njit(**_SETTINGS)
def rms_norm(x: Any, eps: Any, out: Any) -> None:
    """Rows divided by the root of their mean square: float32[m, n]; the sum is float64."""
    n = x.shape[1]
    for r in range(x.shape[0]):
        total = 0.0
        for i in range(n):
            total += np.float64(x[r, i] * x[r, i])
        scale = np.float32(1) / np.sqrt(np.float32(total / n) + eps)
        for i in range(n):
            out[r, i] = x[r, i] * scale


@njit(**_SETTINGS)
def seen_by(mask: Any) -> Any:
    """How many of a mask's values come before nothing but -inf, up to a multiple of 8.

    All of them where nothing is seen: the softmax of that is not a number.
    """
    n = mask.shape[0]
    while n > 0 and mask[n - 1] == -np.inf:
        n -= 1
    return (n + 7) // 8 * 8 if n else mask.shape[0]


@njit(**_SETTINGS)
def soft_max(x: Any, mask: Any, scale: Any, out: Any) -> None:
    """``softmax(x * scale + mask)`` over the last axis.

    x, out float32[n_head, m, n_kv], n_kv a multiple of 8; mask float32[m, n_kv].
    """
    n = x.shape[2]
    for t in range(x.shape[1]):
        row = mask[t]
        seen = seen_by(row)
        for h in range(x.shape[0]):
            from_, to = x[h, t].ctypes.data, out[h, t].ctypes.data
            soft_max_row(from_, row.ctypes.data, to, n, seen, scale)


@njit(**_SETTINGS)
def swiglu(gate: Any, up: Any, out: Any) -> None:
    """``silu(gate) * up``: float32[m, n]."""
    for r in range(gate.shape[0]):
        a, b, to = gate[r].ctypes.data, up[r].ctypes.data, out[r].ctypes.data
        swiglu_row(a, b, to, gate.shape[1])


@njit(**_SETTINGS)
def rows_dot(a: Any, first: int, last: int, out: Any) -> None:
    """Rows of each kv head's matrix times the one row of each of its heads: float32[n_head, n].

    a is (address of the matrices, bytes from head to head, from row to row, address of the single
    rows, bytes from head to head, heads that share a matrix, k); k a multiple of 32. Heads first ..
    last - 1 are computed; a row of the matrix is read once for up to three of those that share it.
    """
    matrices, per_head, per_row, singles, per_single, group, k = a
    per_out = 4 * out.shape[1]
    h = first
    while h < last:
        n = min(3, group - h % group, last - h)
        row = matrices + (h // group) * per_head
        single, to = singles + h * per_single, out[h].ctypes.data
        for _ in range(out.shape[1]):
            if n == 3:
                _three(row, single, per_single, k, to, per_out)
            elif n == 2:
                _two(row, single, per_single, k, to, per_out)
            else:
                _one(row, single, per_single, k, to, per_out)
            row += per_row
            to += 4
        h += n


@njit(**_SETTINGS)
def rows_dot_half(a: Any, first: int, last: int, rounded: Any, out: Any) -> None:
    """`rows_dot` for matrices of half floats: the single rows are rounded to half floats first.

    `rounded` is room for them, float32[n_head, k].
    """
    matrices, per_head, per_row, singles, per_single, group, k = a
    per_out = 4 * out.shape[1]
    h = first
    while h < last:
        n = min(3, group - h % group, last - h)
        for j in range(h, h + n):
            for i in range(k):
                rounded[j, i] = _half_value(_float_at(singles + j * per_single + 4 * i))
        row = matrices + (h // group) * per_head
        single, to = rounded[h].ctypes.data, out[h].ctypes.data
        for _ in range(out.shape[1]):
            if n == 3:
                _three_half(row, single, 4 * k, k, to, per_out)
            elif n == 2:
                _two_half(row, single, 4 * k, k, to, per_out)
            else:
                _one_half(row, single, 4 * k, k, to, per_out)
            row += per_row
            to += 4
        h += n


@njit(**_SETTINGS)
def cos_sin(theta: Any, mscale: Any, cis: Any) -> None:
    """``(cos + i sin) * mscale`` of float32[n, half], by the C library's own cosf and sinf."""
    for t in range(theta.shape[0]):
        for i in range(theta.shape[1]):
            angle = theta[t, i]
            cis[t, 0, i] = complex(math.cos(angle) * mscale, math.sin(angle) * mscale)


@njit(**_SETTINGS)
def rotate(x: Any, cis: Any, apart: int, out: Any) -> None:
    """Pairs of values turned: float32[n_tokens, n_head, n_embd_head].

    `apart` is 1 where a pair is two neighbours, half of the rotated dimensions where it is not.
    Values beyond the rotated ones are copied.
    """
    half = cis.shape[2]
    step = 2 if apart == 1 else 1
    for t in range(x.shape[0]):
        for h in range(x.shape[1]):
            for i in range(half):
                a, b = x[t, h, step * i], x[t, h, step * i + apart]
                c, s = cis[t, 0, i].real, cis[t, 0, i].imag
                out[t, h, step * i] = _fma(a, c, -(b * s))
                out[t, h, step * i + apart] = _fma(a, s, b * c)
            for i in range(2 * half, x.shape[2]):
                out[t, h, i] = x[t, h, i]


@njit(**_SETTINGS)
def store_half(rows: Any, ids: Any, cache: Any, mirror: Any) -> None:
    """Write float32[m, n] as half floats (uint16[rows, n]) and into their float32 mirror."""
    for r in range(ids.shape[0]):
        at = ids[r]
        for i in range(rows.shape[1]):
            cache[at, i] = _half_bits(rows[r, i])
            mirror[at, i] = _half_value(rows[r, i])
