"""Row dot products of the K-quants: blocks of 256 values in groups with scales of their own.
↔ ggml/src/ggml-cpu/arch/x86/quants.c (ggml_vec_dot_q4_K_q8_K, q5_K, q6_K)

Within a block everything is integer: group scale times code times activation. One float scale for
the block follows. Minimums are multiplied with the sums of the activations.
"""

from __future__ import annotations

from llvmlite import ir

from llmviz.ggml.backends.kernels.emit import F32, I8, I16, I32, Emitter, Value, vec
from llmviz.ggml.backends.kernels.rows import Columns
from llmviz.ggml.backends.kernels.tile_pack import Parts, twice
from llmviz.ggml.backends.kernels.tiles import Layout

__all__ = ["Q4_K", "Q5_K", "Q6_K"]

_V32, _V16I = vec(I8, 32), vec(I16, 16)


def _zero(kind: object, n: int) -> Value:
    return ir.Constant(vec(kind, n), [0] * n)


def _float_zero(n: int) -> Value:
    return ir.Constant(vec(F32, n), [0.0] * n)


class _Mins:
    """``d * scale * code - dmin * min`` with eight groups of 32; Q4_K and Q5_K.

    Class attributes
    ----------------
    scales_at : int
        Where the twelve bytes of 6-bit scales and minimums are; d and dmin are before them.
    """

    name: str
    block_bytes: int
    scales_at = 4
    layout: Layout
    n_pieces = 4

    def pieces(self, e: Emitter, block: Value, part: int) -> list[Value]:
        """Some of the codes for a tile."""
        return list(self.codes(e, block, part))

    def parts(self, e: Emitter, block: Value) -> Parts:
        """Scales and minimums for a tile."""
        scales, mins = self._scales(e, block)
        d, dmin = e.half(block), e.half(e.at(block, 2))
        return Parts(d, dmin, [twice(e, scales)], [twice(e, mins)])

    def codes(self, e: Emitter, block: Value, pair: int) -> tuple[Value, Value]:
        """Codes of groups 2 * pair and 2 * pair + 1."""
        raise NotImplementedError

    def _scales(self, e: Emitter, block: Value) -> tuple[Value, Value]:
        """Eight scales and eight minimums, int16."""
        b = e.b
        words = [e.load(e.at(block, self.scales_at + 4 * i), I32) for i in range(3)]

        def bits(word: Value, shift: int, mask: int) -> Value:
            moved = b.lshr(word, e.const(shift, I32)) if shift else word
            return b.and_(moved, e.const(mask, I32))

        def upper(word: Value, shift: int, high: Value) -> Value:
            low = bits(word, shift, 0x0F0F0F0F)
            return b.or_(low, b.shl(bits(high, 6, 0x03030303), e.const(4, I32)))

        order = [
            bits(words[0], 0, 0x3F3F3F3F),
            upper(words[2], 0, words[0]),
            bits(words[1], 0, 0x3F3F3F3F),
            upper(words[2], 4, words[1]),
        ]
        packed = _zero(I32, 4)
        for i, word in enumerate(order):
            packed = b.insert_element(packed, word, e.const(i, I32))
        wide = b.zext(b.bitcast(packed, vec(I8, 16)), _V16I)
        return e.part(wide, 0, 8), e.part(wide, 8, 8)

    def emit(self, e: Emitter, row: Value, n_blocks: Value, columns: Columns) -> list[Value]:
        """Dot products of one row with each of the columns."""
        n = len(columns.q)

        def step(k: Value, values: list[Value]) -> list[Value]:
            b = e.b
            block = e.at(row, e.times(k, self.block_bytes))
            d, dmin = e.half(block), e.half(e.at(block, 2))
            scales, mins = self._scales(e, block)
            k4, k32, k256 = e.times(k, 4), e.times(k, 32), e.times(k, 256)
            sums = [_zero(I32, 8) for _ in range(n)]
            for pair in range(4):
                for part, codes in enumerate(self.codes(e, block, pair)):
                    group = 2 * pair + part
                    scale = e.shuffle(scales, scales, [group] * 16)
                    for c in range(n):
                        x = e.load(e.at(columns.q[c], k256, 32 * group), _V32)
                        sums[c] = b.add(sums[c], e.dot_i16(scale, e.dot_u8(codes, x)))
            out, out_mins = [], []
            for c in range(n):
                xd = e.load(e.at(columns.d[c], k4), F32)
                both = e.splat(b.fmul(xd, d), 8)
                out.append(e.fma(both, e.floats(sums[c]), values[c]))
                sixteen = e.load(e.at(columns.s[c], k32), _V16I)
                even = e.shuffle(sixteen, sixteen, list(range(0, 16, 2)))
                odd = e.shuffle(sixteen, sixteen, list(range(1, 16, 2)))
                below = e.floats(e.dot_i16(mins, b.add(even, odd)))
                minus = e.splat(b.fmul(b.fneg(xd), dmin), 4)
                out_mins.append(e.fma(minus, below, values[n + c]))
            return out + out_mins

        start = [_float_zero(8)] * n + [_float_zero(4)] * n
        values = e.accumulate(n_blocks, start, step)
        return [e.b.fadd(e.sum(a), e.sum(m)) for a, m in zip(values[:n], values[n:], strict=True)]


class _Q4_K(_Mins):
    name, block_bytes = "q4_K", 144
    layout = Layout(256, steps=8, group=32, mins=True)

    def codes(self, e: Emitter, block: Value, pair: int) -> tuple[Value, Value]:
        return e.nibbles(e.at(block, 16 + 32 * pair), 32)


class _Q5_K(_Mins):
    name, block_bytes = "q5_K", 176
    layout = Layout(256, steps=4, group=32, mins=True)

    def codes(self, e: Emitter, block: Value, pair: int) -> tuple[Value, Value]:
        low = e.nibbles(e.at(block, 48 + 32 * pair), 32)
        high = e.load(e.at(block, 16), _V32)
        made = []
        for part, nibble in enumerate(low):
            bit = e.mask(e.shift_right(high, 2 * pair + part), 1)
            made.append(e.b.or_(nibble, e.b.shl(bit, e.all_of(4, _V32))))
        return made[0], made[1]


class _Q6_K:
    """``d * scale * (code - 32)`` with sixteen groups of 16."""

    name, block_bytes = "q6_K", 210
    layout = Layout(256, steps=2, group=16, zero=32)
    n_pieces = 2

    def pieces(self, e: Emitter, block: Value, part: int) -> list[Value]:
        """Some of the codes for a tile."""
        return self._codes(e, block, part)

    def parts(self, e: Emitter, block: Value) -> Parts:
        """Scales for a tile, and times 32 what they take off."""
        scales = e.b.sext(e.load(e.at(block, 192), vec(I8, 16)), _V16I)
        both = twice(e, scales)
        over = e.b.bitcast(e.b.shl(scales, e.all_of(5, _V16I)), vec(I32, 8))
        d = e.half(e.at(block, 208))
        return Parts(d, None, [e.part(both, 0, 8), e.part(both, 8, 8)], [over])

    def _codes(self, e: Emitter, block: Value, half: int) -> list[Value]:
        b = e.b
        first = e.nibbles(e.at(block, 64 * half), 32)
        second = e.nibbles(e.at(block, 64 * half + 32), 32)
        high = e.load(e.at(block, 128 + 32 * half), _V32)
        made = []
        for i, low in enumerate((first[0], second[0], first[1], second[1])):
            two = e.mask(e.shift_right(high, 2 * i), 3)
            made.append(b.or_(low, b.shl(two, e.all_of(4, _V32))))
        return made

    def emit(self, e: Emitter, row: Value, n_blocks: Value, columns: Columns) -> list[Value]:
        """Dot products of one row with each of the columns."""
        n = len(columns.q)

        def step(k: Value, values: list[Value]) -> list[Value]:
            b = e.b
            block = e.at(row, e.times(k, self.block_bytes))
            d = e.half(e.at(block, 208))
            scales = b.sext(e.load(e.at(block, 192), vec(I8, 16)), _V16I)
            k4, k32, k256 = e.times(k, 4), e.times(k, 32), e.times(k, 256)
            sums = [_zero(I32, 8) for _ in range(n)]
            for half in range(2):
                for i, codes in enumerate(self._codes(e, block, half)):
                    group = 4 * half + i
                    scale = e.shuffle(scales, scales, [2 * group] * 8 + [2 * group + 1] * 8)
                    for c in range(n):
                        x = e.load(e.at(columns.q[c], k256, 32 * group), _V32)
                        sums[c] = b.add(sums[c], e.dot_i16(scale, e.dot_u8(codes, x)))
            out = []
            for c in range(n):
                sixteen = e.load(e.at(columns.s[c], k32), _V16I)
                over = b.shl(e.dot_i16(sixteen, scales), e.all_of(5, vec(I32, 8)))
                whole = e.floats(b.sub(sums[c], over))
                both = b.fmul(e.load(e.at(columns.d[c], k4), F32), d)
                out.append(e.fma(e.splat(both, 8), whole, values[c]))
            return out

        values = e.accumulate(n_blocks, [_float_zero(8)] * n, step)
        return [e.sum(v) for v in values]


Q4_K, Q5_K, Q6_K = _Q4_K(), _Q5_K(), _Q6_K()
