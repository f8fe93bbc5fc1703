"""LLVM instructions that numba has no words for: byte dot products, half floats, vectors.

A kernel's inner loop is written here as a few vector operations. On x86 with AVX2 they become the
multiply-add instructions that ggml's own kernels use; elsewhere the same arithmetic is spelled out
and LLVM picks the instructions. Nothing here knows a quantization type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from llmviz.ggml.backends.kernels.features import AVX2

__all__ = ["F32", "HALF", "I8", "I16", "I32", "I64", "Emitter", "vec"]

I8, I16, I32, I64 = (ir.IntType(n) for n in (8, 16, 32, 64))
F32, HALF = ir.FloatType(), ir.HalfType()

Value = Any  # llvmlite's values have no common public type


def vec(kind: Any, n: int) -> Any:
    """Vector of n elements of a type."""
    return ir.VectorType(kind, n)


class Emitter:
    """Emits vector code at a builder's position.

    Parameters
    ----------
    builder : llvmlite.ir.IRBuilder
    """

    def __init__(self, builder: Any) -> None:
        self.b = builder

    # --- numbers and addresses ------------------------------------------------------------------

    @staticmethod
    def const(value: int, kind: Any = I64) -> Value:
        """An integer constant."""
        return ir.Constant(kind, value)

    def at(self, base: Value, *offsets: Value | int) -> Value:
        """The address `base` moved by bytes."""
        for offset in offsets:
            if isinstance(offset, int):
                offset = self.const(offset)
            base = self.b.add(base, offset)
        return base

    def times(self, a: Value, n: int) -> Value:
        """`a` times a constant."""
        return self.b.mul(a, self.const(n))

    def load(self, address: Value, kind: Any) -> Value:
        """What lies at an address, which need not be aligned."""
        value = self.b.load(self.b.inttoptr(address, kind.as_pointer()))
        value.align = 1
        return value

    def store(self, value: Value, address: Value) -> None:
        """Write a value to an address, which need not be aligned."""
        self.b.store(value, self.b.inttoptr(address, value.type.as_pointer())).align = 1

    def half(self, address: Value) -> Value:
        """The half float at an address, as float."""
        return self.b.fpext(self.b.bitcast(self.load(address, I16), HALF), F32)

    def round_half(self, value: Value) -> Value:
        """A float rounded to a half float."""
        return self.b.fpext(self.b.fptrunc(value, HALF), F32)

    # --- vectors --------------------------------------------------------------------------------

    def splat(self, value: Value, n: int) -> Value:
        """A vector of n times one value."""
        one = ir.Constant(vec(value.type, n), ir.Undefined)
        one = self.b.insert_element(one, value, self.const(0, I32))
        return self.shuffle(one, one, [0] * n)

    def all_of(self, value: int, kind: Any) -> Value:
        """A constant vector of one value."""
        return ir.Constant(kind, [value] * kind.count)

    def shuffle(self, a: Value, b: Value, order: list[int]) -> Value:
        """Elements of a, then b, picked by index."""
        return self.b.shuffle_vector(a, b, ir.Constant(vec(I32, len(order)), order))

    def join(self, a: Value, b: Value) -> Value:
        """Two vectors as one of twice the length."""
        return self.shuffle(a, b, list(range(2 * a.type.count)))

    def part(self, a: Value, start: int, n: int) -> Value:
        """Some neighbouring elements."""
        return self.shuffle(a, a, list(range(start, start + n)))

    def shift_right(self, a: Value, n: int) -> Value:
        """Each element shifted right, zeros coming in."""
        return self.b.lshr(a, self.all_of(n, a.type))

    def mask(self, a: Value, bits: int) -> Value:
        """The given bits of each element."""
        return self.b.and_(a, self.all_of(bits, a.type))

    def nibbles(self, address: Value, n: int = 16) -> tuple[Value, Value]:
        """Low and high halves of n bytes: two vectors of n codes 0..15."""
        raw = self.load(address, vec(I8, n))
        return self.mask(raw, 15), self.shift_right(raw, 4)

    def look_up(self, table: tuple[int, ...], numbers: Value) -> Value:
        """Bytes of a table of 16 picked by a vector of 32 numbers 0..15."""
        n = numbers.type.count
        bytes_ = ir.Constant(vec(I8, n), [table[i % 16] & 0xFF for i in range(n)])
        if AVX2 and n == 32:
            return self._call("llvm.x86.avx2.pshuf.b", numbers.type, bytes_, numbers)
        picked = self.all_of(0, numbers.type)
        for i, value in enumerate(table):
            here = self.b.icmp_unsigned("==", numbers, self.all_of(i, numbers.type))
            picked = self.b.select(here, self.all_of(value & 0xFF, numbers.type), picked)
        return picked

    def transpose8(self, rows: list[Value]) -> list[Value]:
        """Eight vectors of eight elements as the columns of what they were the rows of."""
        for distance in (1, 2, 4):  # exchange elements that far apart, between such rows
            low = [i + (i & distance and 8 - distance) for i in range(8)]
            high = [(i | distance) + (8 if i & distance else 0) for i in range(8)]
            made = list(rows)
            for i in range(8):
                if i & distance:
                    continue
                a, b = rows[i], rows[i | distance]
                made[i] = self.shuffle(a, b, low)
                made[i | distance] = self.shuffle(a, b, high)
            rows = made
        return rows

    # --- multiply-add ---------------------------------------------------------------------------

    def _call(self, name: str, result: Any, *args: Value) -> Value:
        kind = ir.FunctionType(result, [a.type for a in args])
        fn = cgutils.get_or_insert_function(self.b.module, kind, name)
        return self.b.call(fn, args)

    def _add_neighbours(self, a: Value) -> Value:
        n = a.type.count
        even = self.shuffle(a, a, list(range(0, n, 2)))
        return self.b.add(even, self.shuffle(a, a, list(range(1, n, 2))))

    def dot_u8(self, codes: Value, x: Value) -> Value:
        """Unsigned codes times signed x, neighbours added: int16[n/2]. Codes up to 128."""
        n = codes.type.count
        half = vec(I16, n // 2)
        if AVX2 and n == 32:
            return self._call("llvm.x86.avx2.pmadd.ub.sw", half, codes, x)
        wide = vec(I16, n)
        return self._add_neighbours(self.b.mul(self.b.zext(codes, wide), self.b.sext(x, wide)))

    def dot_i8(self, codes: Value, x: Value) -> Value:
        """Signed codes times signed x, neighbours added: int16[n/2]. x within -127..127."""
        n = codes.type.count
        if AVX2 and n == 32:
            return self.dot_u8(self.abs_i8(codes), self.with_sign(x, codes))
        wide = vec(I16, n)
        return self._add_neighbours(self.b.mul(self.b.sext(codes, wide), self.b.sext(x, wide)))

    def dot_i16(self, a: Value, b: Value) -> Value:
        """Signed 16-bit products, neighbours added: int32[n/2]."""
        n = a.type.count
        half = vec(I32, n // 2)
        if AVX2 and n == 16:
            return self._call("llvm.x86.avx2.pmadd.wd", half, a, b)
        if AVX2 and n == 8:
            return self._call("llvm.x86.sse2.pmadd.wd", half, a, b)
        wide = vec(I32, n)
        return self._add_neighbours(self.b.mul(self.b.sext(a, wide), self.b.sext(b, wide)))

    def abs_i8(self, codes: Value) -> Value:
        """Sizes of signed bytes, -128 as 128."""
        zero = self.all_of(0, codes.type)
        below = self.b.icmp_signed("<", codes, zero)
        return self.b.select(below, self.b.sub(zero, codes), codes)

    def with_sign(self, x: Value, codes: Value) -> Value:
        """x times the sign of each code: byte vectors."""
        if AVX2 and codes.type.count == 32:
            return self._call("llvm.x86.avx2.psign.b", codes.type, x, codes)
        zero = self.all_of(0, codes.type)
        turned = self.b.select(self.b.icmp_signed("<", codes, zero), self.b.sub(zero, x), x)
        return self.b.select(self.b.icmp_signed("==", codes, zero), zero, turned)

    def pairs(self, a: Value) -> Value:
        """Neighbouring 16-bit values added: int32[n/2]."""
        return self.dot_i16(a, self.all_of(1, a.type))

    def floats(self, a: Value) -> Value:
        """Integers as floats."""
        return self.b.sitofp(a, vec(F32, a.type.count))

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """``a * b + c`` rounded once; scalar or vector."""
        suffix = f"v{a.type.count}f32" if isinstance(a.type, ir.VectorType) else "f32"
        return self._call(f"llvm.fma.{suffix}", a.type, a, b, c)

    def sum(self, a: Value) -> Value:
        """All elements of a float vector added, upper half to lower half each time."""
        n = a.type.count
        while n > 1:
            n //= 2
            a = self.b.fadd(self.part(a, n, n), self.part(a, 0, n))
        return self.b.extract_element(a, self.const(0, I32))

    def pin(self, values: list[Value]) -> list[Value]:
        """The same values; nothing that makes them is moved behind, nothing that uses them before.

        LLVM would load early whatever is loaded twice, and then has no register for it.
        """
        if not AVX2:
            return values
        result = ir.LiteralStructType([v.type for v in values])
        n = len(values)
        outs = ",".join(["=x"] * n + [str(i) for i in range(n)])
        signature = ir.FunctionType(result, [v.type for v in values])
        asm = ir.InlineAsm(signature, "", outs, side_effect=True)
        made = self.b.call(asm, values)
        return [self.b.extract_value(made, i) for i in range(n)]

    # --- loops ----------------------------------------------------------------------------------

    @contextmanager
    def loop(self, n: Value) -> Iterator[Value]:
        """Counts from 0 to n - 1."""
        with cgutils.for_range(self.b, n) as loop:
            yield loop.index

    def accumulate(
        self, n: Value, start: list[Value], step: Callable[[Value, list[Value]], list[Value]]
    ) -> list[Value]:
        """Values carried through a loop over 0..n-1 in registers.

        Parameters
        ----------
        start : list of Value
            What they are before.
        step : callable
            ``step(i, values)`` gives what they are after pass i.
        """
        b = self.b
        before = b.block
        head = b.append_basic_block("head")
        body = b.append_basic_block("body")
        after = b.append_basic_block("after")
        b.branch(head)
        b.position_at_end(head)
        index = b.phi(I64)
        index.add_incoming(self.const(0), before)
        values = [b.phi(v.type) for v in start]
        for phi, value in zip(values, start, strict=True):
            phi.add_incoming(value, before)
        b.cbranch(b.icmp_signed("<", index, n), body, after)
        b.position_at_end(body)
        made = step(index, list(values))
        following = b.add(index, self.const(1))
        end = b.block
        index.add_incoming(following, end)
        for phi, value in zip(values, made, strict=True):
            phi.add_incoming(value, end)
        b.branch(head)
        b.position_at_end(after)
        return list(values)
