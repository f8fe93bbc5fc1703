"""e^x, and what is made of it, eight floats at a time. ↔ ggml/src/ggml-cpu/vec.h, vec.cpp"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from llmviz.ggml.backends.kernels.emit import F32, I8, I32, Emitter, Value, vec

__all__ = ["soft_max_row", "swiglu_row"]

_V8 = vec(F32, 8)
_LOG2 = "0x1.715476p+0"
_MINUS_INF = float("-inf")


def _like(x: Value, value: float | str) -> Value:
    """A float constant of x's type, scalar or vector."""
    number = float.fromhex(value) if isinstance(value, str) else value
    n = x.type.count if isinstance(x.type, ir.VectorType) else 0
    return ir.Constant(x.type, [number] * n if n else number)


def _emit_exp(e: Emitter, x: Value) -> Value:
    """e^x as ggml's vector code has it: 2^n times a polynomial in what is left, within 2 ulp."""
    b = e.b
    n_lanes = x.type.count if isinstance(x.type, ir.VectorType) else 0
    whole = vec(I32, n_lanes) if n_lanes else I32

    def f(value: float | str) -> Value:
        return _like(x, value)

    def i(value: int) -> Value:
        return ir.Constant(whole, [value] * n_lanes if n_lanes else value)

    magic = f("0x1.8p23")  # adding it rounds to a whole number, in the low bits
    z = e.fma(x, f(_LOG2), magic)
    n = b.fsub(z, magic)
    minus_n = b.fneg(n)
    rest = e.fma(minus_n, f("0x1.62e4p-1"), x)
    rest = e.fma(minus_n, f("0x1.7f7d1cp-20"), rest)
    shifted = b.shl(b.bitcast(z, whole), i(23))
    scale = b.bitcast(b.add(shifted, i(0x3F800000)), x.type)  # 2^n
    square = b.fmul(rest, rest)
    high = e.fma(f("0x1.0e4020p-7"), rest, f("0x1.573e2ep-5"))
    low = e.fma(f("0x1.555e66p-3"), rest, f("0x1.fffdb6p-2"))
    poly = e.fma(e.fma(high, square, low), square, b.fmul(f("0x1.ffffecp-1"), rest))
    usual = e.fma(scale, poly, scale)
    # far from zero 2^n is no float by itself: two factors, or nothing at all
    size = b.bitcast(b.and_(b.bitcast(n, whole), i(0x7FFFFFFF)), x.type)
    is_far = b.fcmp_ordered(">", size, f(126.0))
    any_far = b.icmp_unsigned("!=", b.bitcast(is_far, I8), e.const(0, I8)) if n_lanes else is_far
    near = b.block
    with b.if_then(any_far, likely=False):
        half = b.select(b.fcmp_ordered("<=", n, f(0.0)), i(0x82000000), i(0))
        first = b.bitcast(b.add(half, i(0x7F000000)), x.type)
        second = b.bitcast(b.sub(shifted, half), x.type)
        far = b.fmul(e.fma(second, poly, second), first)
        gone = b.fmul(first, first)
        made = b.select(is_far, far, usual)
        made = b.select(b.fcmp_ordered(">", size, f(192.0)), gone, made)
        end = b.block
    result = b.phi(x.type)
    result.add_incoming(usual, near)
    result.add_incoming(made, end)
    return result


def _emit_sum(e: Emitter, x: Value) -> Value:
    """Eight floats added in the order in which ggml's softmax adds them."""
    four = e.b.fadd(e.part(x, 4, 4), e.part(x, 0, 4))
    two = e.b.fadd(e.part(four, 0, 2), e.part(four, 2, 2))
    a, b = (e.b.extract_element(two, e.const(i, I32)) for i in (0, 1))
    return e.b.fadd(a, b)


def _larger(e: Emitter, a: Value, b: Value) -> Value:
    return e.b.select(e.b.fcmp_ordered(">", a, b), a, b)


def _emit_soft_max_row(e: Emitter, given: Any) -> None:
    x, mask, out, n, seen, scale = given
    b = e.b
    double = ir.DoubleType()
    scales = e.splat(scale, 8)
    chunks, n_seen = b.sdiv(n, e.const(8)), b.sdiv(seen, e.const(8))
    low = ir.Constant(_V8, [_MINUS_INF] * 8)
    zero = ir.Constant(_V8, [0.0] * 8)

    def scaled(i: Value) -> Value:
        at = e.times(i, 32)
        product = b.fmul(e.load(e.at(x, at), _V8), scales)
        return b.fadd(product, e.load(e.at(mask, at), _V8))

    def look(i: Value, values: list[Value]) -> list[Value]:
        value = scaled(i)
        e.store(value, e.at(out, e.times(i, 32)))
        return [_larger(e, value, values[0])]

    (lanes,) = e.accumulate(n_seen, [low], look)
    n_hidden = b.sub(chunks, n_seen)

    def look_behind(i: Value, values: list[Value]) -> list[Value]:
        value = scaled(b.add(n_seen, i))
        e.store(value, e.at(out, e.times(b.add(n_seen, i), 32)))
        odd = b.fcmp_unordered("!=", value, low)  # what a mask cannot hide: not a number
        return [_larger(e, value, values[0]), b.or_(values[1], b.bitcast(odd, I8))]

    lanes, odd = e.accumulate(n_hidden, [lanes, e.const(0, I8)], look_behind)
    n_used = b.select(b.icmp_unsigned("==", odd, e.const(0, I8)), n_seen, chunks)
    for step in (4, 2, 1):
        lanes = _larger(e, e.part(lanes, step, step), e.part(lanes, 0, step))
    most = e.splat(b.extract_element(lanes, e.const(0, I32)), 8)

    def power(i: Value, values: list[Value]) -> list[Value]:
        at = e.at(out, e.times(i, 32))
        value = _emit_exp(e, b.fsub(e.load(at, _V8), most))
        e.store(value, at)
        return [b.fadd(values[0], b.fpext(_emit_sum(e, value), double))]

    (total,) = e.accumulate(n_used, [ir.Constant(double, 0.0)], power)
    share = e.splat(b.fptrunc(b.fdiv(ir.Constant(double, 1.0), total), F32), 8)
    with e.loop(n_used) as i:
        at = e.at(out, e.times(i, 32))
        e.store(b.fmul(e.load(at, _V8), share), at)
    nothing = b.fmul(zero, share)  # not a number where the seen ones are none
    with e.loop(b.sub(chunks, n_used)) as i:
        e.store(nothing, e.at(out, e.times(b.add(n_used, i), 32)))


def _emit_swiglu_row(e: Emitter, given: Any) -> None:
    gate, up, out, n = given
    b = e.b

    def one(at: Value, kind: Any) -> None:
        x = e.load(e.at(gate, at), kind)
        below = b.fadd(_like(x, 1.0), _emit_exp(e, b.fneg(x)))
        e.store(b.fmul(b.fdiv(x, below), e.load(e.at(up, at), kind)), e.at(out, at))

    chunks = b.sdiv(n, e.const(8))
    with e.loop(chunks) as i:
        one(e.times(i, 32), _V8)
    done = e.times(chunks, 8)
    with e.loop(b.sub(n, done)) as i:
        one(e.times(b.add(done, i), 4), F32)


def _soft_max_row(
    typingctx: Any, x: Any, mask: Any, out: Any, n: Any, seen: Any, scale: Any
) -> Any:
    """``softmax(x * scale + mask)`` of n floats, a multiple of 8; the arrays as addresses.

    From `seen`, a multiple of 8, on the mask is -inf: the result is 0 there.
    """

    def codegen(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        _emit_soft_max_row(Emitter(builder), given)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5, types.float32), codegen


def _swiglu_row(typingctx: Any, gate: Any, up: Any, out: Any, n: Any) -> Any:
    """``silu(gate) * up`` of n floats at addresses."""

    def codegen(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        _emit_swiglu_row(Emitter(builder), given)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), codegen


soft_max_row: Any = intrinsic(_soft_max_row)
swiglu_row: Any = intrinsic(_swiglu_row)
