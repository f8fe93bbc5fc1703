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
from numba import njit, prange, types
from numba.extending import intrinsic

from llmviz.ggml.backends.kernels.emit import F32, I16, I32, Emitter, Value, vec

__all__ = [
    "cos_sin",
    "many_rows_dot",
    "rms_norm",
    "rotate",
    "rows_dot",
    "rows_dot_half",
    "soft_max",
    "store_half",
    "swiglu",
]

_SETTINGS: dict[str, Any] = {"cache": True, "nogil": True, "boundscheck": False}
_SETTINGS["error_model"] = "numpy"


# --- intrinsics -----------------------------------------------------------------------------------


def _float(text: str) -> Value:
    return ir.Constant(F32, float.fromhex(text))


def _emit_exp(e: Emitter, x: Value) -> Value:
    """e^x as ggml's vector code has it: 2^n times a polynomial in what is left, within 2 ulp."""
    b = e.b

    def int_of(v: Value) -> Value:
        return b.bitcast(v, I32)

    def float_of(v: Value) -> Value:
        return b.bitcast(v, F32)

    def i32(v: int) -> Value:
        return ir.Constant(I32, v)

    magic = _float("0x1.8p23")  # adding it rounds to a whole number, in the low bits
    z = e.fma(x, _float("0x1.715476p+0"), magic)
    n = b.fsub(z, magic)
    minus_n = b.fneg(n)
    rest = e.fma(minus_n, _float("0x1.62e4p-1"), x)
    rest = e.fma(minus_n, _float("0x1.7f7d1cp-20"), rest)
    shifted = b.shl(int_of(z), i32(23))
    scale = float_of(b.add(shifted, i32(0x3F800000)))  # 2^n
    square = b.fmul(rest, rest)
    high = e.fma(_float("0x1.0e4020p-7"), rest, _float("0x1.573e2ep-5"))
    low = e.fma(_float("0x1.555e66p-3"), rest, _float("0x1.fffdb6p-2"))
    poly = e.fma(e.fma(high, square, low), square, b.fmul(_float("0x1.ffffecp-1"), rest))
    usual = e.fma(scale, poly, scale)
    # far from zero 2^n is no float by itself: two factors, or nothing at all
    size = float_of(b.and_(int_of(n), i32(0x7FFFFFFF)))
    half = b.select(b.fcmp_ordered("<=", n, _float("0x0p0")), i32(0x82000000), i32(0))
    first = float_of(b.add(half, i32(0x7F000000)))
    second = float_of(b.sub(shifted, half))
    far = b.fmul(e.fma(second, poly, second), first)
    gone = b.fmul(first, first)
    result = b.select(b.fcmp_ordered(">", size, ir.Constant(F32, 126.0)), far, usual)
    return b.select(b.fcmp_ordered(">", size, ir.Constant(F32, 192.0)), gone, result)


def _exp_f32(typingctx: Any, x: Any) -> Any:
    """e^x in float32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _emit_exp(Emitter(builder), args[0])

    return types.float32(types.float32), codegen


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


def _emit_dot(e: Emitter, left: Value, right: Value, n: Value, half: bool) -> Value:
    """Dot product of n values (a multiple of 32): 32 sums, joined at the end.

    `right` holds floats, `left` too or half floats.
    """
    eight, size = vec(F32, 8), 2 if half else 4
    start = [ir.Constant(eight, [0.0] * 8)] * 4

    def step(i: Value, sums: list[Value]) -> list[Value]:
        out = []
        for j, total in enumerate(sums):
            at = e.at(left, e.times(i, 32 * size), 8 * size * j)
            x = e.load(at, vec(ir.HalfType(), 8) if half else eight)
            x = e.b.fpext(x, eight) if half else x
            y = e.load(e.at(right, e.times(i, 128), 32 * j), eight)
            out.append(e.fma(x, y, total))
        return out

    s = e.accumulate(e.b.sdiv(n, e.const(32)), start, step)
    both = e.b.fadd(e.b.fadd(s[0], s[2]), e.b.fadd(s[1], s[3]))
    four = e.b.fadd(e.part(both, 0, 4), e.part(both, 4, 4))
    two = e.b.fadd(e.shuffle(four, four, [0, 2]), e.shuffle(four, four, [1, 3]))  # neighbours
    ends = (e.b.extract_element(two, e.const(k, I32)) for k in (0, 1))
    return e.b.fadd(*ends)


_TILE = 4


def _emit_chains(e: Emitter, lefts: list[Value], right: Value, n: Value, half: bool) -> list[Value]:
    """Dot products of n values (a multiple of 8) with one row: eight sums each. ↔ tinyBLAS"""
    eight, size = vec(F32, 8), 2 if half else 4

    def step(i: Value, sums: list[Value]) -> list[Value]:
        y = e.load(e.at(right, e.times(i, 32)), eight)
        out = []
        for left, total in zip(lefts, sums, strict=True):
            x = e.load(e.at(left, e.times(i, 8 * size)), vec(ir.HalfType(), 8) if half else eight)
            out.append(e.fma(e.b.fpext(x, eight) if half else x, y, total))
        return out

    start = [ir.Constant(eight, [0.0] * 8)] * len(lefts)
    return [e.sum(total) for total in e.accumulate(e.b.sdiv(n, e.const(8)), start, step)]


def _chains_of(half: bool) -> Any:
    def chains(typingctx: Any, a: Any, step: Any, b: Any, n: Any, out: Any) -> Any:
        """Four neighbouring rows times one row: four floats at the address `out`."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            e = Emitter(builder)
            first, step, right, length, result = args
            lefts = [first]
            for _ in range(_TILE - 1):
                lefts.append(builder.add(lefts[-1], step))
            for i, value in enumerate(_emit_chains(e, lefts, right, length, half)):
                e.store(value, e.at(result, 4 * i))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), codegen

    return intrinsic(chains)


def _dot_f16(typingctx: Any, a: Any, b: Any, n: Any) -> Any:
    """Dot product of n half floats at one address and n floats at another."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        left, right, length = args
        return _emit_dot(Emitter(builder), left, right, length, half=True)

    return types.float32(types.int64, types.int64, types.int64), codegen


def _dot_f32(typingctx: Any, a: Any, b: Any, n: Any) -> Any:
    """Dot product of n floats at two addresses."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        left, right, length = args
        return _emit_dot(Emitter(builder), left, right, length, half=False)

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


_exp: Any = intrinsic(_exp_f32)
_fma: Any = intrinsic(_fused)
_float_at: Any = intrinsic(_load_f32)
_half_bits: Any = intrinsic(_half_bits_of)
_half_value: Any = intrinsic(_half_value_of)
_dot: Any = intrinsic(_dot_f32)
_dot_half: Any = intrinsic(_dot_f16)
_chains, _chains_half = _chains_of(False), _chains_of(True)


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


@njit(**_SETTINGS, fastmath={"nnan", "nsz", "reassoc"})
def _largest(row: Any) -> Any:
    most = row[0]
    for i in range(1, row.shape[0]):
        most = max(most, row[i])
    return most


@njit(**_SETTINGS)
def soft_max(x: Any, mask: Any, scale: Any, out: Any) -> None:
    """``softmax(x * scale + mask)`` over the last axis.

    x, out float32[n_head, m, n_kv], n_kv a multiple of 8; mask float32[m, n_kv].
    """
    n = x.shape[2]
    for h in range(x.shape[0]):
        for t in range(x.shape[1]):
            row = out[h, t]
            for i in range(n):
                row[i] = x[h, t, i] * scale + mask[t, i]
            most = _largest(row)
            for i in range(n):
                row[i] = _exp(row[i] - most)
            total = 0.0
            for i in range(0, n, 8):
                a = (row[i + 4] + row[i]) + (row[i + 6] + row[i + 2])
                b = (row[i + 5] + row[i + 1]) + (row[i + 7] + row[i + 3])
                total += np.float64(a + b)
            share = np.float32(1.0 / total)
            for i in range(n):
                row[i] *= share


@njit(**_SETTINGS)
def swiglu(gate: Any, up: Any, out: Any) -> None:
    """``silu(gate) * up``: float32[m, n]."""
    for r in range(gate.shape[0]):
        for i in range(gate.shape[1]):
            x = gate[r, i]
            out[r, i] = x / (np.float32(1) + _exp(-x)) * up[r, i]


@njit(**_SETTINGS)
def rows_dot(a: Any, out: Any) -> None:
    """Rows of each kv head's matrix times the one row of each of its heads: float32[n_head, n].

    a is (address of the matrices, bytes from head to head, from row to row, address of the single
    rows, bytes from head to head, heads that share a matrix, k); k a multiple of 32.
    """
    matrices, per_head, per_row, singles, per_single, group, k = a
    for h in range(out.shape[0]):
        plane = matrices + (h // group) * per_head
        row = singles + h * per_single
        for r in range(out.shape[1]):
            out[h, r] = _dot(plane + r * per_row, row, k)


@njit(**_SETTINGS)
def rows_dot_half(a: Any, rounded: Any, out: Any) -> None:
    """`rows_dot` for matrices of half floats: the single rows are rounded to half floats first.

    `rounded` is room for them, float32[n_head, k].
    """
    matrices, per_head, per_row, singles, per_single, group, k = a
    for h in range(out.shape[0]):
        for i in range(k):
            rounded[h, i] = _half_value(_float_at(singles + h * per_single + 4 * i))
        plane = matrices + (h // group) * per_head
        row = rounded.ctypes.data + h * k * 4
        for r in range(out.shape[1]):
            out[h, r] = _dot_half(plane + r * per_row, row, k)


@njit(**_SETTINGS)
def _head_rows_dot(a: Any, half: bool, chain: bool, h: int, rounded: Any, out: Any) -> None:
    matrices, per_head, per_row, singles, per_single, group, k, per_token = a
    plane = matrices + (h // group) * per_head
    row = rounded.ctypes.data
    for t in range(out.shape[0]):
        for i in range(k):
            x = _float_at(singles + h * per_single + t * per_token + 4 * i)
            rounded[i] = _half_value(x) if half else x
        to = out[t].ctypes.data
        if half:
            for r in range(0, out.shape[1], 4):
                _chains_half(plane + r * per_row, per_row, row, k, to + 4 * r)
        elif chain:
            for r in range(0, out.shape[1], 4):
                _chains(plane + r * per_row, per_row, row, k, to + 4 * r)
        else:
            for r in range(out.shape[1]):
                out[t, r] = _dot(plane + r * per_row, row, k)


@njit(parallel=True, **_SETTINGS)
def many_rows_dot(a: Any, half: bool, chain: bool, rounded: Any, out: Any) -> None:
    """Rows of each kv head's matrix times several rows of each of its heads: float32[n_head, m, n].

    a as for `rows_dot`, then the bytes from one single row to the next; k a multiple of 8, n of 4.
    With `half` the matrices hold half floats and the rows are rounded to them first. `chain` adds
    as ggml's matrix product does, else as for one row (k a multiple of 32). `rounded` is room for a
    row of each head. Heads are shared among threads.
    """
    if out.shape[1] < 16:  # not worth waking another thread
        for h in range(out.shape[0]):
            _head_rows_dot(a, half, chain, h, rounded[h], out[h])
        return
    for h in prange(out.shape[0]):
        _head_rows_dot(a, half, chain, h, rounded[h], out[h])


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
