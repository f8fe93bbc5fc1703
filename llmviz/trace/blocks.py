"""What the bytes of one quantized block mean: scales, codes, and the values they stand for.

Values are those of `llmviz.ggml.quants`; here they are taken apart as
``value = scale * (code - zero) + offset``, which every type that is built comes down to.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmviz.ggml.quants import QuantType, get
from llmviz.ggml.quants.k_quants import scales_and_mins

__all__ = ["Block", "Part", "inspect_block", "n_blocks"]

_PLAIN = 32  # values of an unquantized type that are shown together
_FORMULA = re.compile(r"``(value = [^`]*)``(?: with ([^.\n]*))?")


@dataclass(frozen=True, slots=True)
class Part:
    """A field of a block: ``d``, ``qs`` ... , with its bytes and, where it is one, its number."""

    name: str
    start: int
    size: int
    value: float | None = None


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
    holders : list of tuple of int
        For each value, the bytes of `raw` that hold its code, the main one first.
    formula : str
        As the type's documentation writes it.
    """

    raw: bytes
    parts: list[Part]
    values: np.ndarray
    codes: np.ndarray
    scale: np.ndarray
    offset: np.ndarray
    zero: int
    levels: int
    holders: list[tuple[int, ...]]
    formula: str


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
    values = kind.dequantize(raw).reshape(-1)
    if kind.block_size == 1:
        each = kind.type_size
        holders = [tuple(range(i * each, (i + 1) * each)) for i in range(len(values))]
        parts = [Part(f"{i}", i * each, each, float(v)) for i, v in enumerate(values)]
        none = np.empty(0, np.float32)
        return Block(raw.tobytes(), parts, values, none.astype(np.int32), none, none, 0, 0,
                     holders, "every value is stored as it is")  # fmt: skip
    block = raw.view(kind.block_dtype)[0]
    codes, scale, offset, zero, levels = _apart(kind, block)
    found = _FORMULA.search(kind.__doc__ or "")
    formula = " ".join(
        ((found[1] + (f" with {found[2]}" if found[2] else "")) if found else "").split()
    )
    return Block(
        raw.tobytes(),
        _parts(kind, block),
        values,
        codes,
        scale,
        offset,
        zero,
        levels,
        _holders(kind),
        formula,
    )


def _parts(kind: type[QuantType], block: Any) -> list[Part]:
    fields = kind.block_dtype.fields
    assert fields is not None
    out = []
    for name in kind.block_dtype.names or ():
        dtype, start = fields[name][:2]
        value = None if dtype.shape else float(block[name])
        out.append(Part(name, int(start), int(dtype.itemsize), value))
    return out


def _apart(
    kind: type[QuantType], block: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int, int]:
    """Codes, scale and offset of each value, the zero code and the number of levels."""
    name, n = kind.__name__, kind.block_size
    ones = np.ones(n, np.float32)
    d = ones * np.float32(block["d"])
    if name == "Q8_0":
        return block["qs"].astype(np.int32), d, 0 * ones, 0, 256
    if name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1"):
        qs = block["qs"].astype(np.int32)
        codes = np.concatenate([qs & 15, qs >> 4])
        bits = 4
        if "qh" in (kind.block_dtype.names or ()):
            codes |= np.unpackbits(block["qh"], bitorder="little").astype(np.int32) << 4
            bits = 5
        if name.endswith("_1"):
            return codes, d, ones * np.float32(block["m"]), 0, 1 << bits
        return codes, d, 0 * ones, 1 << (bits - 1), 1 << bits
    if name == "Q6_K":
        ql = block["ql"].reshape(2, 64).astype(np.int32)
        qh = block["qh"].reshape(2, 32).astype(np.int32)
        low = np.concatenate([ql & 15, ql >> 4], axis=1)  # [2, 128]
        high = np.concatenate([qh >> 2 * s & 3 for s in range(4)], axis=1)  # [2, 128]
        codes = (low | high << 4).reshape(-1)
        return codes, d * np.repeat(block["scales"].astype(np.float32), 16), 0 * ones, 32, 64
    qs = block["qs"].reshape(4, 32).astype(np.int32)
    codes = np.stack([qs & 15, qs >> 4], axis=1).reshape(8, 32)
    bits = 4
    if name == "Q5_K":
        qh = block["qh"].astype(np.int32)
        codes |= np.stack([qh >> s & 1 for s in range(8)]) << 4
        bits = 5
    scales, mins = scales_and_mins(block["scales"][None, :])
    scale = d * np.repeat(scales[0].astype(np.float32), 32)
    offset = -np.float32(block["dmin"]) * np.repeat(mins[0].astype(np.float32), 32)
    return codes.reshape(-1), scale, offset, 0, 1 << bits


def _holders(kind: type[QuantType]) -> list[tuple[int, ...]]:
    """Which bytes of a block hold each value's code."""
    fields = kind.block_dtype.fields
    assert fields is not None
    at = {name: int(fields[name][1]) for name in kind.block_dtype.names or ()}
    out: list[tuple[int, ...]] = []
    for i in range(kind.block_size):
        if kind.__name__ == "Q8_0":
            out.append((at["qs"] + i,))
        elif kind.block_size == 32:
            high = (at["qh"] + i // 8,) if "qh" in at else ()
            out.append((at["qs"] + i % 16, *high))
        elif kind.__name__ == "Q6_K":
            half, j = divmod(i, 128)
            out.append((at["ql"] + 64 * half + j % 64, at["qh"] + 32 * half + j % 32))
        else:
            high = (at["qh"] + i % 32,) if "qh" in at else ()
            out.append((at["qs"] + 32 * (i // 64) + i % 32, *high))
    return out
