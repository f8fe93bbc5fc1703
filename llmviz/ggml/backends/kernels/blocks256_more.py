"""Row dot products of more types with blocks of 256 values: Q2_K, Q3_K, IQ4_XS.
↔ ggml/src/ggml-cpu/arch/x86/quants.c (ggml_vec_dot_q2_K_q8_K, q3_K, iq4_xs)
"""

from __future__ import annotations

from llvmlite import ir

from llmviz.ggml.backends.kernels.blocks32 import TABLE_IQ4
from llmviz.ggml.backends.kernels.emit import F32, I8, I16, I32, Emitter, Value, vec
from llmviz.ggml.backends.kernels.rows import Columns
from llmviz.ggml.backends.kernels.tile_pack import Parts, twice
from llmviz.ggml.backends.kernels.tiles import Layout

__all__ = ["IQ4_XS", "Q2_K", "Q3_K"]

_V32, _V16, _V16I = vec(I8, 32), vec(I8, 16), vec(I16, 16)


class _Groups:
    """Blocks ``d * scale * code`` with a whole-number scale for each group.

    Class attributes
    ----------------
    d_at : int
        Where the block's scale is.
    n_pieces : int
        Codes come in that many parts.
    """

    name: str
    block_bytes: int
    d_at: int
    n_pieces: int
    layout: Layout

    def pieces(self, e: Emitter, block: Value, part: int) -> list[Value]:
        """Some of the block's groups of 32 codes, as a tile holds them."""
        raise NotImplementedError

    def codes(self, e: Emitter, block: Value, part: int) -> list[Value]:
        """The same less their zero."""
        stored = self.pieces(e, block, part)
        zero = self.layout.zero
        return [e.b.sub(c, e.all_of(zero, _V32)) for c in stored] if zero else stored

    def scales(self, e: Emitter, block: Value) -> Value:
        """int16 for each group."""
        raise NotImplementedError

    def _factor(self, e: Emitter, scales: Value, piece: int) -> Value:
        """The scales of 32 codes, for sums of two neighbours each."""
        if self.layout.group == 32:
            return e.shuffle(scales, scales, [piece] * 16)
        return e.shuffle(scales, scales, [2 * piece] * 8 + [2 * piece + 1] * 8)

    def _whole(self, e: Emitter, block: Value, columns: Columns, k256: Value) -> list[Value]:
        """Each column's whole-number sums of a block: eight int32."""
        b, scales = e.b, self.scales(e, block)
        dot = e.dot_i8 if self.layout.zero or self.layout.signed else e.dot_u8
        sums = [e.all_of(0, vec(I32, 8)) for _ in columns.q]
        for part in range(self.n_pieces):
            codes = self.codes(e, block, part)
            for p, some in enumerate(codes):
                piece = part * len(codes) + p
                factor = self._factor(e, scales, piece)
                for c, q in enumerate(columns.q):
                    x = e.load(e.at(q, k256, 32 * piece), _V32)
                    sums[c] = b.add(sums[c], e.dot_i16(factor, dot(some, x)))
        return sums

    def below(
        self, e: Emitter, block: Value, columns: Columns, k: Value, sums: list[Value]
    ) -> list[Value]:
        """The float sums after what a block's minimums take off: nothing here."""
        return sums

    def emit(self, e: Emitter, row: Value, n_blocks: Value, columns: Columns) -> list[Value]:
        """Dot products of one row with each of the columns."""

        def step(k: Value, values: list[Value]) -> list[Value]:
            block = e.at(row, e.times(k, self.block_bytes))
            d = e.half(e.at(block, self.d_at))
            values = self.below(e, block, columns, k, values)
            whole = self._whole(e, block, columns, e.times(k, 256))
            out = []
            for c, value in enumerate(values):
                xd = e.load(e.at(columns.d[c], e.times(k, 4)), F32)
                both = e.splat(e.b.fmul(xd, d), 8)
                out.append(e.fma(both, e.floats(whole[c]), value))
            return out

        start = [ir.Constant(vec(F32, 8), [0.0] * 8)] * len(columns.q)
        return [e.sum(v) for v in e.accumulate(n_blocks, start, step)]

    def parts(self, e: Emitter, block: Value) -> Parts:
        """Scales for a tile, and times the zero what they take off."""
        scales = self.scales(e, block)
        n, mins = scales.type.count, []
        both = twice(e, scales)
        if self.layout.zero:
            over = e.b.mul(scales, e.all_of(self.layout.zero, scales.type))
            mins = [e.b.bitcast(over, vec(I32, 8))]
        return Parts(
            e.half(e.at(block, self.d_at)), None, [e.part(both, i, 8) for i in range(0, n, 8)], mins
        )


def _two_bits(e: Emitter, address: Value) -> list[Value]:
    """Four groups of 32 codes of two bits: byte i of 32 holds codes i, i+32, i+64 and i+96."""
    raw = e.load(address, _V32)
    return [e.mask(e.shift_right(raw, shift) if shift else raw, 3) for shift in (0, 2, 4, 6)]


class _Q2_K(_Groups):
    """``d * scale * code - dmin * min`` with sixteen groups of 16."""

    name, block_bytes, d_at, n_pieces = "q2_K", 84, 80, 2
    layout = Layout(256, steps=4, group=16, mins=True)

    def pieces(self, e: Emitter, block: Value, part: int) -> list[Value]:
        return _two_bits(e, e.at(block, 16 + 32 * part))

    def scales(self, e: Emitter, block: Value) -> Value:
        return e.b.zext(e.nibbles(block)[0], _V16I)

    def _mins(self, e: Emitter, block: Value) -> Value:
        return e.b.zext(e.nibbles(block)[1], _V16I)

    def below(
        self, e: Emitter, block: Value, columns: Columns, k: Value, sums: list[Value]
    ) -> list[Value]:
        dmin, mins = e.half(e.at(block, 82)), self._mins(e, block)
        out = []
        for c, value in enumerate(sums):
            s = e.load(e.at(columns.s[c], e.times(k, 32)), _V16I)
            xd = e.load(e.at(columns.d[c], e.times(k, 4)), F32)
            minus = e.splat(e.b.fmul(e.b.fneg(xd), dmin), 8)
            out.append(e.fma(minus, e.floats(e.dot_i16(mins, s)), value))
        return out

    def parts(self, e: Emitter, block: Value) -> Parts:
        """Scales and minimums for a tile."""
        both = twice(e, self.scales(e, block))
        mins = e.b.bitcast(self._mins(e, block), vec(I32, 8))
        d, dmin = e.half(e.at(block, 80)), e.half(e.at(block, 82))
        return Parts(d, dmin, [e.part(both, 0, 8), e.part(both, 8, 8)], [mins])


class _Q3_K(_Groups):
    """``d * (scale - 32) * (code - 4)`` with sixteen groups of 16."""

    name, block_bytes, d_at, n_pieces = "q3_K", 110, 108, 2
    layout = Layout(256, steps=4, group=16, zero=4)

    def pieces(self, e: Emitter, block: Value, part: int) -> list[Value]:
        high = e.load(block, _V32)
        made = []
        for i, low in enumerate(_two_bits(e, e.at(block, 32 + 32 * part))):
            bit = e.mask(e.shift_right(high, 4 * part + i), 1)
            made.append(e.b.or_(low, e.b.shl(bit, e.all_of(2, _V32))))
        return made

    def scales(self, e: Emitter, block: Value) -> Value:
        eight = e.load(e.at(block, 96), vec(I8, 8))
        low = e.join(e.mask(eight, 15), e.shift_right(eight, 4))  # four bits of all sixteen
        four = e.load(e.at(block, 104), vec(I8, 4))
        spread = e.shuffle(four, four, [i % 4 for i in range(16)])
        shifts = ir.Constant(_V16, [i // 4 * 2 for i in range(16)])
        high = e.mask(e.b.lshr(spread, shifts), 3)
        scales = e.b.or_(low, e.b.shl(high, e.all_of(4, _V16)))
        return e.b.sub(e.b.zext(scales, _V16I), e.all_of(32, _V16I))


class _IQ4_XS(_Groups):
    """``d * (scale - 32) * table[code]`` with eight groups of 32."""

    name, block_bytes, d_at, n_pieces = "iq4_xs", 136, 0, 8
    layout = Layout(256, steps=1, group=32, signed=True)

    def pieces(self, e: Emitter, block: Value, part: int) -> list[Value]:
        numbers = e.join(*e.nibbles(e.at(block, 8 + 16 * part)))
        return [e.look_up(TABLE_IQ4, numbers)]

    def scales(self, e: Emitter, block: Value) -> Value:
        eight = vec(I16, 8)
        four = e.load(e.at(block, 4), vec(I8, 4))
        low = e.shuffle(e.mask(four, 15), e.shift_right(four, 4), [0, 4, 1, 5, 2, 6, 3, 7])
        word = e.splat(e.load(e.at(block, 2), I16), 8)
        high = e.mask(e.b.lshr(word, ir.Constant(eight, [2 * i for i in range(8)])), 3)
        scales = e.b.or_(e.b.zext(low, eight), e.b.shl(high, e.all_of(4, eight)))
        return e.b.sub(scales, e.all_of(32, eight))


Q2_K, Q3_K, IQ4_XS = _Q2_K(), _Q3_K(), _IQ4_XS()
