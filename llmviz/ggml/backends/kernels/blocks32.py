"""Row dot products of the types whose blocks are 32 values with one scale.
↔ ggml/src/ggml-cpu/arch/x86/quants.c (ggml_vec_dot_q4_0_q8_0 ... ggml_vec_dot_iq4_nl_q8_0)

A block's dot product is eight int32 sums of four neighbours each; they are scaled and added to
eight float sums, which are joined at the end of the row. That is the order in which ggml adds.
"""

from __future__ import annotations

from llvmlite import ir

from llmviz.ggml.backends.kernels.emit import F32, I8, I32, Emitter, Value, vec
from llmviz.ggml.backends.kernels.rows import Columns
from llmviz.ggml.backends.kernels.tile_pack import Parts
from llmviz.ggml.backends.kernels.tiles import Layout

__all__ = ["IQ4_NL", "MXFP4", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TABLE_IQ4"]

_V32 = vec(I8, 32)
TABLE_IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_TABLE_MXFP4 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


class _Block32:
    """Row of blocks ``d * codes``, or ``d * codes + m``.

    Class attributes
    ----------------
    block_bytes : int
    codes_at : int
        Where in a block the codes begin.
    signed : bool
        Whether `codes` gives signed bytes.
    min_at : int or None
        Where the block's minimum m (a half float) is; d is at 0.
    zero : int
        What stands for 0 among the codes as they are stored.
    largest : int
        Largest code as it is stored, of those that are not signed there.
    """

    name: str
    block_bytes: int
    codes_at: int
    signed: bool
    min_at: int | None = None
    zero: int = 0
    largest: int = 15
    n_pieces = 1

    @property
    def layout(self) -> Layout:
        """How the type lies in a tile."""
        if self.largest > 127:
            return Layout(32, steps=1, signed=True)
        steps = 8 if self.largest <= 15 else 4
        return Layout(32, steps=steps, zero=self.zero, mins=self.min_at is not None)

    def stored(self, e: Emitter, block: Value) -> Value:
        """The 32 codes of a block as bytes, as they are stored."""
        raise NotImplementedError

    def codes(self, e: Emitter, block: Value) -> Value:
        """The 32 codes of a block as bytes, less their zero."""
        codes = self.stored(e, block)
        return e.b.sub(codes, e.all_of(self.zero, _V32)) if self.zero else codes

    def pieces(self, e: Emitter, block: Value, part: int) -> list[Value]:
        """The codes for a tile."""
        return [self.stored(e, block)]

    def parts(self, e: Emitter, block: Value) -> Parts:
        """Scale and minimum for a tile."""
        m = None if self.min_at is None else e.half(e.at(block, self.min_at))
        return Parts(self.scale(e, block), m)

    def scale(self, e: Emitter, block: Value) -> Value:
        """The block's scale."""
        return e.half(block)

    def emit(self, e: Emitter, row: Value, n_blocks: Value, columns: Columns) -> list[Value]:
        """Dot products of one row with each of the columns."""
        n = len(columns.q)
        dot = e.dot_i8 if self.signed else e.dot_u8
        zero8 = ir.Constant(vec(F32, 8), [0.0] * 8)
        start = [zero8] * n
        if self.min_at is not None:
            start += [ir.Constant(F32, 0.0)] * n

        def step(k: Value, values: list[Value]) -> list[Value]:
            block = e.at(row, e.times(k, self.block_bytes))
            codes = self.codes(e, block)
            d = e.splat(self.scale(e, block), 8)
            m = None if self.min_at is None else e.half(e.at(block, self.min_at))
            k4, k32 = e.times(k, 4), e.times(k, 32)
            sums, mins = [], []
            for c in range(n):
                x = e.load(e.at(columns.q[c], k32), _V32)
                lanes = e.floats(e.pairs(dot(codes, x)))
                both = e.b.fmul(d, e.splat(e.load(e.at(columns.d[c], k4), F32), 8))
                sums.append(e.fma(both, lanes, values[c]))
                if m is not None:
                    s = e.load(e.at(columns.s[c], k4), F32)
                    mins.append(e.fma(m, s, values[n + c]))
            return sums + mins

        values = e.accumulate(n_blocks, start, step)
        dots = [e.sum(v) for v in values[:n]]
        if self.min_at is None:
            return dots
        return [e.b.fadd(a, b) for a, b in zip(dots, values[n:], strict=True)]


class _Q4_0(_Block32):
    name, block_bytes, codes_at, signed, zero = "q4_0", 18, 2, True, 8

    def stored(self, e: Emitter, block: Value) -> Value:
        return e.join(*e.nibbles(e.at(block, self.codes_at)))


class _Q4_1(_Block32):
    name, block_bytes, codes_at, signed, min_at = "q4_1", 20, 4, False, 2

    def stored(self, e: Emitter, block: Value) -> Value:
        return e.join(*e.nibbles(e.at(block, self.codes_at)))


def _high_bits(e: Emitter, address: Value) -> Value:
    """Bit j of the 32 bits at an address as 16 in byte j, 0 where it is not set."""
    four = e.load(address, vec(I8, 4))
    spread = e.shuffle(four, four, [j // 8 for j in range(32)])
    own = ir.Constant(_V32, [1 << j % 8 for j in range(32)])
    there = e.b.icmp_unsigned("==", e.b.and_(spread, own), own)
    return e.b.select(there, e.all_of(16, _V32), e.all_of(0, _V32))


class _Q5_0(_Block32):
    name, block_bytes, codes_at, signed = "q5_0", 22, 6, True
    zero, largest = 16, 31

    def stored(self, e: Emitter, block: Value) -> Value:
        low = e.join(*e.nibbles(e.at(block, self.codes_at)))
        return e.b.or_(low, _high_bits(e, e.at(block, 2)))


class _Q5_1(_Block32):
    name, block_bytes, codes_at, signed, min_at = "q5_1", 24, 8, False, 2
    largest = 31

    def stored(self, e: Emitter, block: Value) -> Value:
        low = e.join(*e.nibbles(e.at(block, self.codes_at)))
        return e.b.or_(low, _high_bits(e, e.at(block, 4)))


class _Q8_0(_Block32):
    name, block_bytes, codes_at, signed = "q8_0", 34, 2, True
    largest = 255

    def stored(self, e: Emitter, block: Value) -> Value:
        return e.load(e.at(block, self.codes_at), _V32)


class _Table(_Block32):
    """Codes of four bits that number the entries of a table."""

    signed = True
    table: tuple[int, ...]

    def stored(self, e: Emitter, block: Value) -> Value:
        numbers = e.join(*e.nibbles(e.at(block, self.codes_at)))
        return e.look_up(tuple(v + self.zero for v in self.table), numbers)


class _IQ4_NL(_Table):
    name, block_bytes, codes_at, table = "iq4_nl", 18, 2, TABLE_IQ4
    largest = 255


class _MXFP4(_Table):
    """Scale 2^(e - 128) for a byte e, which makes the table's doubled values right."""

    name, block_bytes, codes_at, table = "mxfp4", 17, 1, _TABLE_MXFP4
    zero, largest = 16, 28

    def scale(self, e: Emitter, block: Value) -> Value:
        byte = e.b.zext(e.load(block, I8), I32)
        usual = e.b.shl(e.b.sub(byte, e.const(1, I32)), e.const(23, I32))
        tiny = e.b.shl(e.const(0x00200000, I32), byte)
        small = e.b.icmp_unsigned("<", byte, e.const(2, I32))
        return e.b.bitcast(e.b.select(small, tiny, usual), F32)


Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 = _Q4_0(), _Q4_1(), _Q5_0(), _Q5_1(), _Q8_0()
IQ4_NL, MXFP4 = _IQ4_NL(), _MXFP4()
