"""Products of many columns: weights unpacked into tiles of sixteen rows, used for every column.
↔ ggml/src/ggml-cpu/repack.cpp (the idea: rows interleaved so that one instruction serves eight)

A tile holds, block after block, the codes of sixteen rows interleaved by four, so that one
multiply-add of bytes takes four neighbours of eight rows. Up to `Layout.steps` such products are
added as int16 before they are scaled and widened: with codes and activations as small as they are
that cannot overflow. Whole numbers are exact; the float sums of a row run over its blocks in order,
one sum for each row instead of ggml's eight, so the last bits differ from those of one column.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from llvmlite import ir

from llmviz.ggml.backends.kernels.emit import F32, I8, I16, I32, Emitter, Value, vec

__all__ = ["COLUMNS", "ROWS", "Layout", "emit_multiply"]

ROWS = 16
"""Rows of a tile."""

COLUMNS = 4
"""Columns multiplied at a time."""

_V8I, _V8F = vec(I32, 8), vec(F32, 8)
_HALVES = ROWS // 8


@dataclass(frozen=True)
class Layout:
    """How a type's blocks lie in a tile.

    Attributes
    ----------
    values : int
        Values in a block.
    steps : int
        Products of two neighbours that an int16 can hold the sum of: 8, 4, 2 or 1.
    group : int
        Values with one whole-number scale; 0 where a block has none.
    signed : bool
        Codes are signed bytes; only with one step.
    zero : int
        What stands for 0 among unsigned codes: a power of two, or 0.
    mins : bool
        Whether a minimum is taken off: per block (groups of 32) or per group of 16 values.
    """

    values: int
    steps: int
    group: int = 0
    signed: bool = False
    zero: int = 0
    mins: bool = False

    @cached_property
    def scales_at(self) -> int:
        """Where in a block's tile the whole-number scales are: int16[values / group][16][2]."""
        return self.values * ROWS

    @cached_property
    def mins_at(self) -> int:
        """Whole numbers to take off, for two groups of 16 values each: int16[8][16][2]."""
        return self.scales_at + (self.values // self.group * ROWS * 4 if self.group else 0)

    @cached_property
    def d_at(self) -> int:
        """Float scale of each row, then its minimum."""
        below = self.group and (self.mins or self.zero)
        return self.mins_at + (self.values // 32 * ROWS * 4 if below else 0)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of one block of sixteen rows."""
        return self.d_at + 2 * ROWS * 4


class _Column:
    """Addresses of one column's activations at a block."""

    def __init__(self, e: Emitter, layout: Layout, a: dict[str, Value], c: Value) -> None:
        b = e.b
        self.q, self.d, self.s = (
            b.add(a[name], b.mul(c, a[f"{name}_bytes"])) for name in ("q", "d", "s")
        )
        self.out = b.add(a["out"], b.mul(c, a["out_bytes"]))
        self.layout = layout


def emit_multiply(e: Emitter, layout: Layout, tile: Value, a: dict[str, Value], row: Value) -> None:
    """Multiply one tile with all columns.

    Parameters
    ----------
    tile : Value
        Address of the tile.
    a : dict
        The parameters of `rows.ARGS`, ``s`` sums of codes (int32) where `layout` has groups of 32
        and a zero.
    row : Value
        First row of the tile: where its results go.
    """
    b = e.b
    n_cols = a["n_cols"]
    n = b.sdiv(b.add(n_cols, e.const(COLUMNS - 1)), e.const(COLUMNS))
    last = b.sub(n_cols, e.const(COLUMNS))
    with e.loop(n) as i:
        first = e.times(i, COLUMNS)
        first = b.select(b.icmp_signed("<", first, last), first, last)
        columns = [_Column(e, layout, a, e.at(first, c)) for c in range(COLUMNS)]
        results = _emit_columns(e, layout, tile, a["n_blocks"], columns)
        for column, halves in zip(columns, results, strict=True):
            for half, value in enumerate(halves):
                e.store(value, e.at(column.out, e.times(row, 4), 32 * half))


def _emit_columns(
    e: Emitter, layout: Layout, tile: Value, n_blocks: Value, columns: list[_Column]
) -> list[list[Value]]:
    """Sums of a tile's rows with some columns, eight rows in a vector: [columns][halves]."""
    zero = ir.Constant(_V8F, [0.0] * 8)

    def step(k: Value, sums: list[Value]) -> list[Value]:
        block = e.at(tile, e.times(k, layout.nbytes))
        make = _emit_block256 if layout.group else _emit_block32
        return make(e, layout, block, k, columns, sums)

    flat = e.accumulate(n_blocks, [zero] * (_HALVES * len(columns)), step)
    return [flat[_HALVES * c : _HALVES * (c + 1)] for c in range(len(columns))]


def _emit_piece(
    e: Emitter,
    layout: Layout,
    codes: Value,
    xs: list[Value],
    scales: list[list[Value]] | None,
    sums: list[Value | None],
) -> list[Value]:
    """32 values of sixteen rows with some columns: int32 sums, [columns * halves].

    Parameters
    ----------
    codes : Value
        Address of the codes.
    xs : list of Value
        Addresses of the columns' activations.
    scales : list of list of Value or None
        For each run of `layout.steps` the two halves' scales.
    """
    b = e.b
    one = e.all_of(1, vec(I16, 16))
    sums = list(sums)
    for run in range(8 // layout.steps):
        part: list[Value | None] = [None] * len(sums)
        for j in range(run * layout.steps, (run + 1) * layout.steps):
            w = [e.load(e.at(codes, 64 * j, 32 * h), vec(I8, 32)) for h in range(_HALVES)]
            size = [e.abs_i8(v) for v in w] if layout.signed else w
            for c, x in enumerate(xs):
                four = e.splat(e.load(e.at(x, 4 * j), I32), 8)
                four = b.bitcast(four, vec(I8, 32))
                for h in range(_HALVES):
                    i = _HALVES * c + h
                    signed = e.with_sign(four, w[h]) if layout.signed else four
                    made = e.dot_u8(size[h], signed)
                    part[i] = made if part[i] is None else b.add(part[i], made)
            part = e.pin(part)
        for i, value in enumerate(part):
            factor = one if scales is None else scales[run][i % _HALVES]
            wide = e.dot_i16(value, factor)
            sums[i] = wide if sums[i] is None else b.add(sums[i], wide)
    return sums


def _emit_block32(
    e: Emitter, layout: Layout, block: Value, k: Value, columns: list[_Column], sums: list[Value]
) -> list[Value]:
    b = e.b
    k4 = e.times(k, 4)
    xs = [e.at(column.q, e.times(k, 32)) for column in columns]
    whole = _emit_piece(e, layout, block, xs, None, [None] * len(sums))
    d = [e.load(e.at(block, layout.d_at, 32 * h), _V8F) for h in range(_HALVES)]
    m = [e.load(e.at(block, layout.d_at, 64 + 32 * h), _V8F) for h in range(_HALVES)]
    out = []
    for c, column in enumerate(columns):
        xd = e.splat(e.load(e.at(column.d, k4), F32), 8)
        if layout.mins:
            s = e.splat(e.load(e.at(column.s, k4), F32), 8)
        elif layout.zero:
            over = e.splat(e.load(e.at(column.s, k4), I32), 8)
            over = b.shl(over, e.all_of(layout.zero.bit_length() - 1, _V8I))
        for h in range(_HALVES):
            i = _HALVES * c + h
            number = whole[i]
            if layout.zero:
                number = b.sub(number, over)
            total = e.fma(b.fmul(d[h], xd), e.floats(number), sums[i])
            if layout.mins:
                total = e.fma(m[h], s, total)
            out.append(total)
    return out


def _emit_block256(
    e: Emitter, layout: Layout, block: Value, k: Value, columns: list[_Column], sums: list[Value]
) -> list[Value]:
    b = e.b
    n = len(sums)
    per_piece = 32 // layout.group
    runs = 8 // layout.steps
    none = e.all_of(0, _V8I)
    below = bool(layout.mins or layout.zero)

    def piece(g: Value, values: list[Value]) -> list[Value]:
        codes = e.at(block, e.times(g, 32 * ROWS))
        xs = [e.at(column.q, e.times(k, 256), e.times(g, 32)) for column in columns]
        scales = []
        for run in range(runs):
            which = run * per_piece // runs
            at = e.at(block, layout.scales_at + 64 * which, e.times(g, 64 * per_piece))
            scales.append([e.load(e.at(at, 32 * h), vec(I16, 16)) for h in range(_HALVES)])
        out = _emit_piece(e, layout, codes, xs, scales, list(values[:n]))
        if below:
            at = e.at(block, layout.mins_at, e.times(g, 64))
            m = [e.load(e.at(at, 32 * h), vec(I16, 16)) for h in range(_HALVES)]
            for c, column in enumerate(columns):
                two = e.load(e.at(column.s, e.times(k, 32), e.times(g, 4)), I32)
                pair = b.bitcast(e.splat(two, 8), vec(I16, 16))
                for h in range(_HALVES):
                    i = n + _HALVES * c + h
                    out.append(b.add(values[i], e.dot_i16(m[h], pair)))
        return out

    whole = e.accumulate(e.const(8), [none] * (2 * n if below else n), piece)
    d = [e.load(e.at(block, layout.d_at, 32 * h), _V8F) for h in range(_HALVES)]
    dmin = [e.load(e.at(block, layout.d_at, 64 + 32 * h), _V8F) for h in range(_HALVES)]
    out = []
    for c, column in enumerate(columns):
        xd = e.splat(e.load(e.at(column.d, e.times(k, 4)), F32), 8)
        for h in range(_HALVES):
            i = _HALVES * c + h
            number = whole[i]
            if layout.zero:
                number = b.sub(number, whole[n + i])
            total = e.fma(b.fmul(d[h], xd), e.floats(number), sums[i])
            if layout.mins:
                minus = b.fmul(b.fneg(dmin[h]), xd)
                total = e.fma(minus, e.floats(whole[n + i]), total)
            out.append(total)
    return out
