"""The loops around a row's dot product: rows of a weight times columns of activations.

A quantization type gives one function, `RowDot.emit`, that multiplies one row of blocks with
several columns at once; the weights are unpacked once for all of them.
"""

from __future__ import annotations

from typing import Any, Protocol

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from llmviz.ggml.backends.kernels.emit import I64, Emitter, Value

__all__ = ["ARGS", "Columns", "RowDot", "chunk_of", "parameters"]

ARGS = (
    "w",  # address of the first row
    "row_bytes",
    "n_rows",  # of this chunk
    "n_blocks",  # in a row
    "q",  # address of the activations' codes, int8
    "d",  # of their scales, float32
    "s",  # of their scaled sums (float32), or sums of 16 codes (int16)
    "q_bytes",  # from one column to the next
    "d_bytes",
    "s_bytes",
    "n_cols",
    "out",  # address of the result for the first row and column
    "out_bytes",  # from one column to the next
)
"""Parameters of a chunk, all int64."""

_TILE = 4
_NEAR = 16  # columns whose activations stay in the first-level cache while rows go by


class Columns:
    """Addresses of the activations of neighbouring columns.

    Attributes
    ----------
    q, d, s : list of Value
        One address for each column.
    """

    def __init__(self, e: Emitter, a: dict[str, Value], first: Value, n: int) -> None:
        def addresses(name: str) -> list[Value]:
            step = a[f"{name}_bytes"]
            start = e.b.add(a[name], e.b.mul(first, step))
            made = [start]
            for _ in range(n - 1):
                made.append(e.b.add(made[-1], step))
            return made

        self.q, self.d, self.s = (addresses(name) for name in "qds")


class RowDot(Protocol):
    """What a quantization type contributes."""

    name: str

    def emit(self, e: Emitter, row: Value, n_blocks: Value, columns: Columns) -> list[Value]:
        """Dot products (float) of one row with each of the columns."""
        ...


def parameters(e: Emitter, address: Value) -> dict[str, Value]:
    """The parameters of a chunk that lie at an address."""
    return {name: e.load(e.at(address, 8 * i), I64) for i, name in enumerate(ARGS)}


def chunk_of(dot: RowDot) -> Any:
    """An intrinsic ``chunk((w, row_bytes, ...))`` that computes some rows for all columns."""

    @intrinsic
    def chunk(typingctx: Any, given: Any) -> Any:
        sig = types.void(types.UniTuple(types.int64, len(ARGS)))

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            values = cgutils.unpack_tuple(builder, args[0], len(ARGS))
            _emit_chunk(Emitter(builder), dot, dict(zip(ARGS, values, strict=True)))
            return context.get_dummy_value()

        return sig, codegen

    return chunk


def _emit_chunk(e: Emitter, dot: RowDot, a: dict[str, Value]) -> None:
    b = e.b
    near = e.const(_NEAR)
    n_groups = b.sdiv(b.add(a["n_cols"], e.const(_NEAR - 1)), near)
    with e.loop(n_groups) as group:
        start = b.mul(group, near)
        left = b.sub(a["n_cols"], start)
        n = b.select(b.icmp_signed("<", left, near), left, near)
        n_tiles = b.sdiv(n, e.const(_TILE))
        n_single = b.srem(n, e.const(_TILE))
        with e.loop(a["n_rows"]) as r:
            row = b.add(a["w"], b.mul(r, a["row_bytes"]))
            out = b.add(a["out"], b.mul(r, e.const(4)))
            with e.loop(n_tiles) as tile:
                _emit_columns(e, dot, a, row, out, b.add(start, e.times(tile, _TILE)), _TILE)
            after = b.add(start, e.times(n_tiles, _TILE))
            with e.loop(n_single) as one:
                _emit_columns(e, dot, a, row, out, b.add(after, one), 1)


def _emit_columns(
    e: Emitter, dot: RowDot, a: dict[str, Value], row: Value, out: Value, first: Value, n: int
) -> None:
    results = dot.emit(e, row, a["n_blocks"], Columns(e, a, first, n))
    for i, value in enumerate(results):
        column = e.b.add(first, e.const(i, I64))
        e.store(value, e.b.add(out, e.b.mul(column, a["out_bytes"])))
