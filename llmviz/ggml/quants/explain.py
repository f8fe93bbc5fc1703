"""One block taken apart: its fields, its small integers, and the bits that hold each of them.

Which bits an integer depends on is found out, not written down: every bit of a block is flipped
once, and what changes depends on it. So the answer is right for every layout, also where a sign
follows from seven others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from llmviz.ggml.types import GGMLType

if TYPE_CHECKING:
    from llmviz.ggml.quants.base import QuantType

__all__ = ["BlockField", "Explanation", "Number", "Span", "explain_block"]

_FORMULA = re.compile(r"``(value = [^`]*)``(?: with ([^.\n]*))?")
_CODES = "codes"


class Span(NamedTuple):
    """Neighbouring bits of a block: bit b of byte k has the number 8 k + b, the lowest bit is 0."""

    offset: int
    width: int


class BlockField(NamedTuple):
    """A field of a block's struct.

    ``value`` is its number where it holds just one (``d``), else None.
    """

    name: str
    start: int
    size: int
    value: float | None


class Number(NamedTuple):
    """One small integer of a block, and where its bits stand, the widest span first."""

    value: int
    bits: tuple[Span, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """What one block holds: ``value = scale * (code - zero) + offset``.

    Attributes
    ----------
    fields : list of BlockField
        Covering the block's bytes.
    values : float32 [n]
    codes : int32 [n]
        The integer that each value's bits stand for; empty for a type that stores the values
        themselves (so are `scale` and `offset`).
    scale, offset : float32 [n]
    zero, levels : int
        The code that stands for the offset alone; how many codes there are.
    table : tuple of int or None
        The codes there are, where they do not follow one another.
    code_bits : list of tuple of Span
        For each value, the bits that its code depends on, the widest span first.
    parts : dict of str to list of Number
        The other small integers: scales, minimums, places in a grid.
    formula : str
        As the type's documentation writes it.
    """

    fields: list[BlockField]
    values: np.ndarray
    codes: np.ndarray
    scale: np.ndarray
    offset: np.ndarray
    zero: int
    levels: int
    table: tuple[int, ...] | None
    code_bits: list[tuple[Span, ...]]
    parts: dict[str, list[Number]]
    formula: str


def explain_block(kind: type[QuantType], raw: np.ndarray) -> Explanation:
    """See `QuantType.explain`."""
    raw = np.ascontiguousarray(raw, np.uint8).reshape(-1)
    values = np.array(kind.dequantize(raw))
    if kind.block_size == 1:
        return _plain(kind, values)
    if raw.size != kind.type_size:
        raise ValueError(
            f"one block of {kind.type.name} takes {kind.type_size} bytes, not {raw.size}"
        )
    blocks = kind.blocks(raw)
    with np.errstate(invalid="ignore", over="ignore"):
        scale, offset = kind.scales(blocks)  # [1, m]
    each = kind.block_size // scale.shape[1]
    low = np.zeros_like(scale) if offset is None else offset
    where = _where(kind)
    return Explanation(
        fields=_fields(kind, blocks[0]),
        values=values,
        codes=kind.codes(blocks)[0].astype(np.int32),
        scale=np.repeat(scale[0], each).astype(np.float32),
        offset=np.repeat(low[0], each).astype(np.float32),
        zero=kind.zero,
        levels=kind.levels,
        table=kind.table,
        code_bits=where[_CODES],
        parts={
            name: [Number(int(v), bits) for v, bits in zip(a[0], where[name], strict=True)]
            for name, a in kind.parts(blocks).items()
        },
        formula=_formula(kind),
    )


def _plain(kind: type[QuantType], values: np.ndarray) -> Explanation:
    size = kind.type_size
    none = np.empty(0, np.float32)
    return Explanation(
        fields=[BlockField(f"{i}", i * size, size, float(v)) for i, v in enumerate(values)],
        values=values,
        codes=none.astype(np.int32),
        scale=none,
        offset=none,
        zero=0,
        levels=0,
        table=None,
        code_bits=[(Span(8 * i * size, 8 * size),) for i in range(len(values))],
        parts={},
        formula="every value is stored as it is",
    )


def _fields(kind: type[QuantType], block: Any) -> list[BlockField]:
    fields = kind.block_dtype.fields
    assert fields is not None
    out = []
    for name in kind.block_dtype.names or ():
        dtype, start = fields[name][:2]
        value = None if dtype.shape else float(block[name])
        out.append(BlockField(name, int(start), int(dtype.itemsize), value))
    return out


def _formula(kind: type[QuantType]) -> str:
    found = _FORMULA.search(kind.__doc__ or "")
    if not found:
        return ""
    return " ".join((found[1] + (f" with {found[2]}" if found[2] else "")).split())


_KNOWN: dict[GGMLType, dict[str, list[tuple[Span, ...]]]] = {}


def _where(kind: type[QuantType]) -> dict[str, list[tuple[Span, ...]]]:
    """The bits of each integer of a type's block: of the codes, and of each of the `parts`."""
    if kind.type in _KNOWN:
        return _KNOWN[kind.type]
    n_bits = 8 * kind.type_size
    flipped = np.zeros((1 + n_bits, kind.type_size), np.uint8)  # row 1 + b: only bit b is set
    bit = np.arange(n_bits)
    flipped[1 + bit, bit // 8] = 1 << bit % 8
    base = np.random.default_rng(0).integers(0, 256, kind.type_size, np.uint8)
    blocks = kind.blocks(base ^ flipped)
    breaks = [8 * f.start for f in _fields(kind, blocks[0])]
    changed = {name: a[1:] != a[:1] for name, a in kind.parts(blocks).items()}  # [n_bits, k]
    changed[_CODES] = np.any([a[1:] != a[:1] for a in kind.held_in(blocks)], axis=0)
    _KNOWN[kind.type] = {name: _spans(depends, breaks) for name, depends in changed.items()}
    return _KNOWN[kind.type]


def _spans(depends: np.ndarray, breaks: list[int]) -> list[tuple[Span, ...]]:
    """Turn bool [n_bits, k] into k lists of spans, which end where a field ends."""
    field = np.zeros(len(depends), np.int64)
    field[breaks] = 1
    field = np.cumsum(field)
    out = []
    for column in depends.T:
        bits = np.flatnonzero(column)
        cut = np.flatnonzero((np.diff(bits) != 1) | (np.diff(field[bits]) != 0)) + 1
        groups = np.split(bits, cut) if len(bits) else []
        spans = [Span(int(g[0]), len(g)) for g in groups]
        out.append(tuple(sorted(spans, key=lambda s: (-s.width, s.offset))))
    return out
