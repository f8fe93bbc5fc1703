"""Ops around the products, for many tokens: rows shared among threads.

Each kernel (see `calls`) does what a function of `ops` does, on some of its rows.
"""

from __future__ import annotations

import numba
import numpy as np

from llmviz.ggml.backends.kernels import ops
from llmviz.ggml.backends.kernels.calls import arg, float_arg, pointer
from llmviz.ggml.backends.kernels.vector_math import soft_max_row, swiglu_row

__all__ = ["rms_norm", "rotate", "soft_max", "store_half", "swiglu"]


def rms_norm(args: int, first: int, n: int) -> None:
    """x address, out address, width, eps; items are rows."""
    width = arg(args, 2)
    at = 4 * first * width
    x = numba.carray(pointer(arg(args, 0) + at), (n, width), np.float32)
    out = numba.carray(pointer(arg(args, 1) + at), (n, width), np.float32)
    eps = float_arg(args, 3)
    whole = n // 4 * 4
    for r in range(0, whole, 4):  # a sum waits for its last step: four rows take turns
        a = b = c = d = 0.0
        for i in range(width):
            a += np.float64(x[r, i] * x[r, i])
            b += np.float64(x[r + 1, i] * x[r + 1, i])
            c += np.float64(x[r + 2, i] * x[r + 2, i])
            d += np.float64(x[r + 3, i] * x[r + 3, i])
        for k, total in enumerate((a, b, c, d)):
            scale = np.float32(1) / np.sqrt(np.float32(total / width) + eps)
            for i in range(width):
                out[r + k, i] = x[r + k, i] * scale
    ops.rms_norm(x[whole:], eps, out[whole:])


def soft_max(args: int, first: int, n: int) -> None:
    """x, mask and out addresses, n_head, m, n_kv, scale; items are tokens, of all heads."""
    n_head, m, width = arg(args, 3), arg(args, 4), arg(args, 5)
    scale = float_arg(args, 6)
    for t in range(first, first + n):
        mask = arg(args, 1) + 4 * t * width
        seen = ops.seen_by(numba.carray(pointer(mask), width, np.float32))
        for h in range(n_head):
            at = 4 * (h * m + t) * width
            soft_max_row(arg(args, 0) + at, mask, arg(args, 2) + at, width, seen, scale)


def swiglu(args: int, first: int, n: int) -> None:
    """gate, up and out addresses; items are values."""
    at = 4 * first
    swiglu_row(arg(args, 0) + at, arg(args, 1) + at, arg(args, 2) + at, n)


def rotate(args: int, first: int, n: int) -> None:
    """x, cis and out addresses, n_head, n_embd_head, pairs, apart; items are tokens."""
    shape = (n, arg(args, 3), arg(args, 4))
    at = 4 * first * arg(args, 3) * arg(args, 4)
    x = numba.carray(pointer(arg(args, 0) + at), shape, np.float32)
    out = numba.carray(pointer(arg(args, 2) + at), shape, np.float32)
    half = arg(args, 5)
    cis = numba.carray(pointer(arg(args, 1) + 8 * first * half), (n, 1, half), np.complex64)
    ops.rotate(x, cis, arg(args, 6), out)


def store_half(args: int, first: int, n: int) -> None:
    """rows, ids, cache and mirror addresses, width, rows of the cache; items are rows."""
    width, n_cells = arg(args, 4), arg(args, 5)
    rows = numba.carray(pointer(arg(args, 0) + 4 * first * width), (n, width), np.float32)
    ids = numba.carray(pointer(arg(args, 1) + 8 * first), n, np.int64)
    cache = numba.carray(pointer(arg(args, 2)), (n_cells, width), np.uint16)
    mirror = numba.carray(pointer(arg(args, 3)), (n_cells, width), np.float32)
    ops.store_half(rows, ids, cache, mirror)
