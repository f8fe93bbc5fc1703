"""One quantized block of a tensor, as the file view shows it.

What the bytes mean is said by the type's own class (`llmviz.ggml.quants`, ``explain``); here the
block is found in the file, and bits become the bytes that a reader can point at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from llmviz.ggml.quants import BlockField, Explanation, get

__all__ = ["Block", "Part", "inspect_block", "n_blocks"]

_PLAIN = 32  # values of an unquantized type that are shown together

Part = BlockField
"""A field of a block: ``d``, ``qs`` ... , with its bytes and, where it is one, its number."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """One block of a tensor.

    Attributes
    ----------
    raw : bytes
    parts : list of Part
        Covering `raw`.
    values : float32 [n]
    codes : int32 [n]
        The small integers that are stored; empty for a type that stores the values themselves.
    scale, offset : float32 [n]
        ``value = scale * (code - zero) + offset``.
    zero : int
    levels : int
        How many codes there are.
    table : tuple of int or None
        The codes there are, where these are not 0 to ``levels - 1``.
    holders : list of tuple of int
        For each value, the bytes of `raw` that hold its code, the main one first.
    formula : str
        As the type's documentation writes it.
    explanation : Explanation
        All of it, down to the bits.
    """

    raw: bytes
    parts: list[Part]
    values: np.ndarray
    codes: np.ndarray
    scale: np.ndarray
    offset: np.ndarray
    zero: int
    levels: int
    table: tuple[int, ...] | None
    holders: list[tuple[int, ...]]
    formula: str
    explanation: Explanation


def n_blocks(info: Any) -> int:
    """How many blocks a tensor has, as `inspect_block` counts them."""
    kind = get(info.type)
    n = info.nbytes // kind.type_size
    return -(-n // _PLAIN) if kind.block_size == 1 else n


def inspect_block(gguf: Any, info: Any, index: int) -> Block:
    """Take one block of a tensor apart; reads its bytes and no others.

    Parameters
    ----------
    gguf : GGUF
    info : TensorInfo
    index : int
        0 <= index < `n_blocks`.

    Raises
    ------
    UnsupportedError
        The type's blocks cannot be read; the message lists those that can.
    IndexError
        There is no such block.
    """
    kind = get(info.type)
    if not 0 <= index < n_blocks(info):
        raise IndexError(f"no block {index}: {info.name} has {n_blocks(info)}, from 0")
    size = kind.type_size * (_PLAIN if kind.block_size == 1 else 1)
    raw = np.array(gguf.tensor_bytes(info)[index * size : (index + 1) * size])
    e = kind.explain(raw)
    return Block(
        raw=raw.tobytes(),
        parts=e.fields,
        values=e.values,
        codes=e.codes,
        scale=e.scale,
        offset=e.offset,
        zero=e.zero,
        levels=e.levels,
        table=e.table,
        holders=[_bytes(spans) for spans in e.code_bits],
        formula=e.formula,
        explanation=e,
    )


def _bytes(spans: tuple[Any, ...]) -> tuple[int, ...]:
    """The bytes that spans of bits lie in, in the spans' order."""
    found: dict[int, None] = {}
    for s in spans:
        found |= dict.fromkeys(range(s.offset // 8, (s.offset + s.width - 1) // 8 + 1))
    return tuple(found)
