"""Products on a file's own blocks, in plain numpy: what the compiled kernels must equal.
↔ ggml/src/ggml-cpu/quants.c (ggml_vec_dot_*), ggml-quants.c (quantize_row_q8_K)

Activations are quantized to eight bits first, 32 (Q8_0, Q8_1) or 256 (Q8_K) of them with one
scale. Within a block the arithmetic is integer and exact. Then the block's scales, floats, are
multiplied and added, block after block, in eight sums that are joined at the end.

A type takes part by an entry in `DOTS`. Types of the same layout share a function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from llmviz.ggml import quants
from llmviz.ggml.quants.k_packing import scales_and_mins
from llmviz.ggml.types import TYPES, GGMLType

__all__ = ["DOTS", "Activations", "group_of", "mul_mat", "quantize_q8", "quantize_q8_k"]

_ROWS = 2048  # rows worked on at a time, so that temporaries stay small


class Activations(NamedTuple):
    """Activations in eight bits.

    Attributes
    ----------
    q : int8[m, k]
        Codes.
    d : float32[m, n_blocks]
        Scales.
    s : ndarray
        Groups of 32: float32[m, k / 32], scale times sum of codes. Groups of 256: int16[m, k / 16],
        sums of 16 codes.
    """

    q: np.ndarray
    d: np.ndarray
    s: np.ndarray

    @classmethod
    def empty(cls, m: int, k: int, group: int) -> Activations:
        """Room for m columns of k values."""
        d = np.empty((m, k // group), np.float32)
        s = np.empty((m, k // 32), np.float32) if group == 32 else np.empty((m, k // 16), np.int16)
        return cls(np.empty((m, k), np.int8), d, s)


def group_of(type_: GGMLType) -> int:
    """How many activations share a scale in products with this type: 32 or 256."""
    return 256 if TYPES[type_].block_size == 256 else 32


def _half(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # beyond 65504 a half float is infinite
        return x.astype(np.float16).astype(np.float32)


def quantize_q8(x: np.ndarray, out: Activations) -> None:
    """Groups of 32: the largest becomes 127; scales and sums are rounded to half floats.

    Parameters
    ----------
    x : float32[m, k]
    out : Activations
    """
    groups = x.reshape(len(x), x.shape[1] // 32, 32)  # [m, n_groups, 32]
    most = np.abs(groups).max(-1)  # [m, n_groups]
    scale = most / np.float32(127)
    with np.errstate(divide="ignore"):
        inverse = np.where(most != 0, np.float32(127) / most, np.float32(0))
    codes = np.rint(groups * inverse[..., None])
    out.q[...] = codes.reshape(x.shape)
    out.d[...] = _half(scale)
    out.s[...] = _half(scale * codes.sum(-1, dtype=np.float32))


def quantize_q8_k(x: np.ndarray, out: Activations) -> None:
    """Groups of 256: the value furthest from zero becomes -127.

    Parameters
    ----------
    x : float32[m, k]
    out : Activations
    """
    groups = x.reshape(len(x), x.shape[1] // 256, 256)  # [m, n_groups, 256]
    at = np.abs(groups).argmax(-1)[..., None]
    most = np.take_along_axis(groups, at, -1)[..., 0]  # [m, n_groups]
    with np.errstate(divide="ignore"):
        inverse = np.where(most != 0, np.float32(-127) / most, np.float32(0))
        out.d[...] = np.where(most != 0, np.float32(1) / inverse, np.float32(0))
    codes = np.minimum(np.rint(groups * inverse[..., None]), 127).astype(np.int8)
    out.q[...] = codes.reshape(x.shape)
    out.s[...] = codes.reshape(len(x), x.shape[1] // 16, 16).sum(-1, dtype=np.int16)


def _fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """``a * b + c`` rounded to float32 once (but for ties that float64 cannot tell)."""
    return (a.astype(np.float64) * b + c).astype(np.float32)


def _join(sums: np.ndarray) -> np.ndarray:
    """The last axis added, upper half to lower half each time."""
    while sums.shape[-1] > 1:
        half = sums.shape[-1] // 2
        sums = sums[..., half:] + sums[..., :half]
    return sums[..., 0]


def _lanes(codes: np.ndarray, q: np.ndarray, n: int) -> np.ndarray:
    """Products of codes and activations, n neighbours added: int32[..., values / n]."""
    both = codes.astype(np.int32) * q.astype(np.int32)
    return both.reshape(*both.shape[:-1], -1, n).sum(-1, dtype=np.int32)


Blocks = np.ndarray  # a QuantType's block_dtype, [n_rows, n_blocks]


def _dot32(kind: type[quants.QuantType], blocks: Blocks, q: Activations) -> np.ndarray:
    """Blocks of 32 with a scale, perhaps a minimum: float32[n_rows] for one column."""
    flat = blocks.reshape(-1)
    n_rows, n_blocks = blocks.shape
    codes = kind.codes(flat).astype(np.int32) - kind.zero
    codes = codes.reshape(n_rows, n_blocks, 32)
    d, m = (
        None if x is None else np.broadcast_to(x, (len(flat), 1)).reshape(n_rows, n_blocks)
        for x in kind.scales(flat)
    )
    assert d is not None
    lanes = _lanes(codes, q.q.reshape(n_blocks, 32), 4)  # [n_rows, n_blocks, 8]
    scale = d * q.d  # [n_rows, n_blocks]
    total = np.zeros((n_rows, 8), np.float32)
    below = np.zeros(n_rows, np.float32)
    for b in range(n_blocks):
        total = _fma(scale[:, b, None], lanes[:, b], total)
        if m is not None:
            below = _fma(m[:, b], q.s[b], below)
    return _join(total) if m is None else _join(total) + below


def _dot_mins(kind: type[quants.QuantType], blocks: Blocks, q: Activations) -> np.ndarray:
    """Q4_K and Q5_K: eight groups of 32 with 6-bit scales and minimums."""
    flat = blocks.reshape(-1)
    n_rows, n_blocks = blocks.shape
    codes = kind.codes(flat).reshape(n_rows, n_blocks, 8, 32)
    scales, mins = (
        x.reshape(n_rows, n_blocks, 8).astype(np.int32) for x in scales_and_mins(flat["scales"])
    )
    d, dmin = (blocks[name].astype(np.float32) for name in ("d", "dmin"))
    lanes = _lanes(codes, q.q.reshape(n_blocks, 8, 32), 4)  # [n_rows, n_blocks, 8, 8]
    whole = (lanes * scales[..., None]).sum(2, dtype=np.int32)  # [n_rows, n_blocks, 8]
    sums = q.s.reshape(n_blocks, 8, 2).sum(-1, dtype=np.int32)  # [n_blocks, 8]
    below = (mins * sums).reshape(n_rows, n_blocks, 4, 2).sum(-1, dtype=np.int32)
    total = np.zeros((n_rows, 8), np.float32)
    total_below = np.zeros((n_rows, 4), np.float32)
    for b in range(n_blocks):
        total = _fma((q.d[b] * d[:, b])[:, None], whole[:, b], total)
        total_below = _fma((-q.d[b] * dmin[:, b])[:, None], below[:, b], total_below)
    return _join(total) + _join(total_below)


def _dot_q6_k(kind: type[quants.QuantType], blocks: Blocks, q: Activations) -> np.ndarray:
    """Q6_K: sixteen groups of 16 with 8-bit scales; the codes' zero is taken off the sums."""
    flat = blocks.reshape(-1)
    n_rows, n_blocks = blocks.shape
    codes = kind.codes(flat).reshape(n_rows, n_blocks, 16, 16)
    scales = blocks["scales"].astype(np.int32)  # [n_rows, n_blocks, 16]
    # four neighbours each, groups of 16 side by side as in 256-bit registers
    lanes = _lanes(codes, q.q.reshape(n_blocks, 16, 16), 4) * scales[..., None]
    whole = lanes.reshape(n_rows, n_blocks, 8, 8).sum(2, dtype=np.int32)
    over = (scales * q.s.reshape(n_blocks, 16)).reshape(n_rows, n_blocks, 8, 2)
    whole -= kind.zero * over.sum(-1, dtype=np.int32)
    total = np.zeros((n_rows, 8), np.float32)
    d = blocks["d"].astype(np.float32)
    for b in range(n_blocks):
        total = _fma((q.d[b] * d[:, b])[:, None], whole[:, b], total)
    return _join(total)


def _groups(kind: type[quants.QuantType], blocks: Blocks, q: Activations) -> np.ndarray:
    """Whole-number sums of blocks of 256 with a scale per group: int32[n_rows, n_blocks, 8]."""
    flat = blocks.reshape(-1)
    n_rows, n_blocks = blocks.shape
    scales = kind.parts(flat)["scale"].astype(np.int32) - (0 if kind.type == GGMLType.Q2_K else 32)
    n = scales.shape[1]  # groups
    scales = scales.reshape(n_rows, n_blocks, n, 1)
    codes = kind.codes(flat).astype(np.int32) - kind.zero
    codes = codes.reshape(n_rows, n_blocks, n, 256 // n)
    # four neighbours each; groups of 16 lie side by side as in 256-bit registers
    lanes = _lanes(codes, q.q.reshape(n_blocks, n, 256 // n), 4) * scales
    return lanes.reshape(n_rows, n_blocks, 8, 8).sum(2, dtype=np.int32)


def _dot_groups(kind: type[quants.QuantType], blocks: Blocks, q: Activations) -> np.ndarray:
    """Q3_K and IQ4_XS: groups with 6-bit scales around 32."""
    whole, d = _groups(kind, blocks, q), blocks["d"].astype(np.float32)
    total = np.zeros((len(blocks), 8), np.float32)
    for b in range(blocks.shape[1]):
        total = _fma((q.d[b] * d[:, b])[:, None], whole[:, b], total)
    return _join(total)


def _dot_q2_k(kind: type[quants.QuantType], blocks: Blocks, q: Activations) -> np.ndarray:
    """Q2_K: sixteen groups of 16 with 4-bit scales and minimums, which are taken off first."""
    whole = _groups(kind, blocks, q)
    n_rows, n_blocks = blocks.shape
    d, dmin = (blocks[name].astype(np.float32) for name in ("d", "dmin"))
    mins = kind.parts(blocks.reshape(-1))["min"].astype(np.int32).reshape(n_rows, n_blocks, 16)
    both = (mins * q.s.reshape(n_blocks, 16)).reshape(n_rows, n_blocks, 8, 2)
    below = both.sum(-1, dtype=np.int32)  # [n_rows, n_blocks, 8]
    total = np.zeros((n_rows, 8), np.float32)
    for b in range(n_blocks):
        total = _fma((-q.d[b] * dmin[:, b])[:, None], below[:, b], total)
        total = _fma((q.d[b] * d[:, b])[:, None], whole[:, b], total)
    return _join(total)


Dot = Callable[[type[quants.QuantType], Blocks, Activations], np.ndarray]

DOTS: dict[GGMLType, Dot] = {
    GGMLType.Q4_0: _dot32,
    GGMLType.Q4_1: _dot32,
    GGMLType.Q5_0: _dot32,
    GGMLType.Q5_1: _dot32,
    GGMLType.Q8_0: _dot32,
    GGMLType.IQ4_NL: _dot32,
    GGMLType.MXFP4: _dot32,
    GGMLType.Q2_K: _dot_q2_k,
    GGMLType.Q3_K: _dot_groups,
    GGMLType.IQ4_XS: _dot_groups,
    GGMLType.Q4_K: _dot_mins,
    GGMLType.Q5_K: _dot_mins,
    GGMLType.Q6_K: _dot_q6_k,
}
"""The plain product of a row with one column, by type."""


def mul_mat(type_: GGMLType, raw: np.ndarray, q: Activations, out: np.ndarray) -> None:
    """Rows of blocks times columns of quantized activations.

    Parameters
    ----------
    type_ : GGMLType
        One of `DOTS`.
    raw : uint8[n_rows, row_bytes]
        The matrix as the file holds it.
    q : Activations
        m columns.
    out : float32[m, n_rows]
    """
    kind, dot = quants.get(type_), DOTS[type_]
    for first in range(0, len(raw), _ROWS):
        rows = np.ascontiguousarray(raw[first : first + _ROWS])
        blocks = rows.view(kind.block_dtype)  # [n_rows, n_blocks]
        for c in range(len(q.q)):
            one = Activations(q.q[c], q.d[c], q.s[c])
            out[c, first : first + len(rows)] = dot(kind, blocks, one)
