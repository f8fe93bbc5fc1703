"""Sixteen rows of a file's blocks, unpacked into a tile; see `tiles`."""

from __future__ import annotations

from typing import Protocol

from llvmlite import ir

from llmviz.ggml.backends.kernels.emit import F32, I32, Emitter, Value, vec
from llmviz.ggml.backends.kernels.tiles import ROWS, Layout

__all__ = ["Packed", "Parts", "emit_pack", "twice"]

_V8I = vec(I32, 8)


class Parts:
    """What a block of one row puts into a tile besides its codes.

    Attributes
    ----------
    d, m : Value or None
        The block's float scale and minimum.
    scales : list of Value
        Whole-number scales, each twice in an int32; eight in a vector.
    mins : list of Value
        Whole numbers to take off, for two groups of 16 values in an int32; one vector of eight.
    """

    def __init__(
        self,
        d: Value,
        m: Value | None = None,
        scales: list[Value] | None = None,
        mins: list[Value] | None = None,
    ) -> None:
        self.d, self.m = d, m
        self.scales, self.mins = scales or [], mins or []


class Packed(Protocol):
    """What a quantization type contributes."""

    name: str
    block_bytes: int
    n_pieces: int

    @property
    def layout(self) -> Layout:
        """How the type lies in a tile."""
        ...

    def pieces(self, e: Emitter, block: Value, part: int) -> list[Value]:
        """Some of the block's groups of 32 codes as bytes; `n_pieces` times that is all."""
        ...

    def parts(self, e: Emitter, block: Value) -> Parts:
        """Scales and minimums."""
        ...


def twice(e: Emitter, values: Value) -> Value:
    """int16 values, each twice in an int32."""
    wide = e.b.zext(values, vec(I32, values.type.count))
    return e.b.mul(wide, e.all_of(0x10001, wide.type))


def emit_pack(
    e: Emitter, kind: Packed, rows: Value, row_bytes: Value, n_blocks: Value, tile: Value
) -> None:
    """Unpack sixteen neighbouring rows from the address `rows` on to the address `tile`."""
    b, layout = e.b, kind.layout
    with e.loop(n_blocks) as k:
        to_block = e.at(tile, e.times(k, layout.nbytes))
        from_block = e.at(rows, e.times(k, kind.block_bytes))
        with e.loop(e.const(ROWS // 8)) as half:
            to = b.add(to_block, e.times(half, 32))
            blocks = [b.add(from_block, b.mul(e.times(half, 8), row_bytes))]
            for _ in range(7):
                blocks.append(b.add(blocks[-1], row_bytes))
            for part in range(kind.n_pieces):
                made = [kind.pieces(e, block, part) for block in blocks]  # [8 rows][pieces]
                n = len(made[0])
                for p in range(n):
                    eight = [b.bitcast(codes[p], _V8I) for codes in made]
                    _store(e, eight, to, 32 * ROWS * (part * n + p))
            parts = [kind.parts(e, block) for block in blocks]
            for i in range(len(parts[0].scales)):
                _store(e, [p.scales[i] for p in parts], to, layout.scales_at + 512 * i)
            for i in range(len(parts[0].mins)):
                _store(e, [p.mins[i] for p in parts], to, layout.mins_at + 512 * i)
            for at, name in ((layout.d_at, "d"), (layout.d_at + 64, "m")):
                values = [getattr(p, name) for p in parts]
                if values[0] is None:
                    continue
                eight = ir.Constant(vec(F32, 8), ir.Undefined)
                for i, value in enumerate(values):
                    eight = b.insert_element(eight, value, e.const(i, I32))
                e.store(eight, e.at(to, at))


def _store(e: Emitter, rows: list[Value], to: Value, at: int) -> None:
    """Eight int32 of eight rows: column j to ``at + 64 * j``, where half a tile's rows lie."""
    for j, column in enumerate(e.transpose8(rows)):
        e.store(column, e.at(to, at + 4 * ROWS * j))
