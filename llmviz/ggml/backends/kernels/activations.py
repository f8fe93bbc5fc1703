"""Activations quantized to eight bits, as the dot products want them.
↔ ggml/src/ggml-cpu/arch/x86/quants.c (quantize_row_q8_0, q8_1), ggml-quants.c (quantize_row_q8_K)

Codes, scales and sums lie in three arrays instead of ggml's blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit, types
from numba.extending import intrinsic

from llmviz.ggml.backends.kernels.calls import arg, pointer
from llmviz.ggml.backends.kernels.emit import Emitter

__all__ = ["FIELDS", "quantize_q8", "quantize_q8_k"]

FIELDS = ("k", "x", "q", "d", "s")
"""Parameters of a kernel: values in a row, then addresses."""

_SETTINGS: dict[str, Any] = {"cache": True, "nogil": True, "boundscheck": False}


def _half(typingctx: Any, x: Any) -> Any:
    """A float32 rounded to a half float."""
    sig = types.float32(types.float32)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return Emitter(builder).round_half(args[0])

    return sig, codegen


_round_half: Any = intrinsic(_half)


@njit(**_SETTINGS, fastmath={"nnan", "nsz", "reassoc"}, inline="always")
def _largest(x: Any, start: int, n: int) -> Any:
    most = np.float32(0)
    for j in range(start, start + n):
        most = max(most, abs(x[j]))
    return most


@njit(**_SETTINGS, inline="always")
def _any_nan(x: Any, start: int, n: int) -> Any:
    found = 0
    for j in range(start, start + n):
        found |= x[j] != x[j]
    return found != 0


@njit(**_SETTINGS)
def _row_q8(x: Any, q: Any, d: Any, s: Any) -> None:
    for b in range(d.shape[0]):
        start = 32 * b
        if _any_nan(x, start, 32):  # it must not vanish: all that this block touches is none either
            q[start : start + 32] = 0
            d[b] = s[b] = np.nan
            continue
        most = _largest(x, start, 32)
        scale = most / np.float32(127)
        inverse = np.float32(127) / most if most != 0 else np.float32(0)
        total = np.int32(0)
        for j in range(start, start + 32):
            code = np.int32(np.rint(x[j] * inverse))
            q[j] = code
            total += code
        d[b] = _round_half(scale)
        s[b] = _round_half(scale * np.float32(total))


def quantize_q8(args: int, first: int, n: int) -> None:
    """Blocks of 32 with one scale: Q8_0, with s also Q8_1. Items are rows; parameters `FIELDS`.

    x float32[m, k]; q int8[m, k], codes, nearest even; d float32[m, k / 32], scales, and s, of the
    same shape, scale times sum of codes, both rounded to half floats.
    """
    k = arg(args, 0)
    blocks = k // 32
    for r in range(first, first + n):
        _row_q8(
            carray(pointer(arg(args, 1) + 4 * r * k), k, np.float32),
            carray(pointer(arg(args, 2) + r * k), k, np.int8),
            carray(pointer(arg(args, 3) + 4 * r * blocks), blocks, np.float32),
            carray(pointer(arg(args, 4) + 4 * r * blocks), blocks, np.float32),
        )


@njit(**_SETTINGS)
def _row_q8_k(x: Any, q: Any, d: Any, s: Any) -> None:
    for b in range(d.shape[0]):
        start = 256 * b
        if _any_nan(x, start, 256):
            q[start : start + 256] = 0
            s[16 * b : 16 * b + 16] = 0
            d[b] = np.nan
            continue
        most = _largest(x, start, 256)
        if most == 0:
            d[b] = 0
            q[start : start + 256] = 0
            s[16 * b : 16 * b + 16] = 0
            continue
        signed = most
        for j in range(start, start + 256):
            if abs(x[j]) == most:
                signed = x[j]
                break
        inverse = np.float32(-127) / signed
        for g in range(16):
            total = np.int32(0)
            for j in range(start + 16 * g, start + 16 * g + 16):
                code = min(np.int32(127), np.int32(np.rint(inverse * x[j])))
                q[j] = code
                total += code
            s[16 * b + g] = total
        d[b] = np.float32(1) / inverse


def quantize_q8_k(args: int, first: int, n: int) -> None:
    """Blocks of 256 with one scale: Q8_K. Items are rows; parameters `FIELDS`.

    x float32[m, k]; q int8[m, k], codes, the largest value becomes -127; d float32[m, k / 256];
    s int16[m, k / 16], sums of 16 codes.
    """
    k = arg(args, 0)
    for r in range(first, first + n):
        _row_q8_k(
            carray(pointer(arg(args, 1) + 4 * r * k), k, np.float32),
            carray(pointer(arg(args, 2) + r * k), k, np.int8),
            carray(pointer(arg(args, 3) + 4 * r * (k // 256)), k // 256, np.float32),
            carray(pointer(arg(args, 4) + 2 * r * (k // 16)), k // 16, np.int16),
        )
