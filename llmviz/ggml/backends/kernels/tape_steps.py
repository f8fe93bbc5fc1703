"""The steps of a tape by name: kernels (see `calls`) that do some items of a node of one token.

Most are the kernels that run the nodes one by one; here are those that have another form there.
Both call the same functions, so they give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import njit

from llmviz.ggml.backends.kernels import activations, many, ops, statistics
from llmviz.ggml.backends.kernels.calls import arg, float_arg, pointer
from llmviz.ggml.backends.kernels.halfs import HALFS
from llmviz.ggml.backends.kernels.mul_mat import KERNELS
from llmviz.ggml.backends.kernels.vector_math import soft_max_row
from llmviz.ggml.types import TYPES

__all__ = ["OPS", "STEPS"]


def add(args: int, first: int, n: int) -> None:
    """x, y and out addresses, width; items are rows, y is the same for all."""
    width = arg(args, 3)
    y = numba.carray(pointer(arg(args, 1)), width, np.float32)
    for r in range(first, first + n):
        x = numba.carray(pointer(arg(args, 0) + 4 * r * width), width, np.float32)
        out = numba.carray(pointer(arg(args, 2) + 4 * r * width), width, np.float32)
        for i in range(width):
            out[i] = x[i] + y[i]


def mul(args: int, first: int, n: int) -> None:
    """x, y and out addresses, width; items are rows, y is the same for all."""
    width = arg(args, 3)
    y = numba.carray(pointer(arg(args, 1)), width, np.float32)
    for r in range(first, first + n):
        x = numba.carray(pointer(arg(args, 0) + 4 * r * width), width, np.float32)
        out = numba.carray(pointer(arg(args, 2) + 4 * r * width), width, np.float32)
        for i in range(width):
            out[i] = x[i] * y[i]


def copy(args: int, first: int, n: int) -> None:
    """x and out addresses; items are values."""
    x = numba.carray(pointer(arg(args, 0) + 4 * first), n, np.float32)
    out = numba.carray(pointer(arg(args, 1) + 4 * first), n, np.float32)
    for i in range(n):
        out[i] = x[i]


@njit(inline="always")
def _attended(args: Any) -> Any:
    """The first parameters, as `ops.rows_dot` takes them."""
    return (
        arg(args, 0), arg(args, 1), arg(args, 2), arg(args, 3), arg(args, 4), arg(args, 5),
        arg(args, 6),
    )  # fmt: skip


def attend_f16(args: int, first: int, n: int) -> None:
    """Parameters of `ops.rows_dot_half`, addresses of the rounded rows and the result, rows of a
    matrix; items are heads.
    """
    last, k, rows = first + n, arg(args, 6), arg(args, 9)
    rounded = numba.carray(pointer(arg(args, 7)), (last, k), np.float32)
    out = numba.carray(pointer(arg(args, 8)), (last, rows), np.float32)
    ops.rows_dot_half(_attended(args), first, last, rounded, out)


def attend_f32(args: int, first: int, n: int) -> None:
    """Parameters of `ops.rows_dot`, the rest and items as for half floats."""
    last, rows = first + n, arg(args, 9)
    out = numba.carray(pointer(arg(args, 8)), (last, rows), np.float32)
    ops.rows_dot(_attended(args), first, last, out)


def soft_max(args: int, first: int, n: int) -> None:
    """x, mask and out addresses, n_kv, scale; items are heads of one token."""
    width = arg(args, 3)
    seen = ops.seen_by(numba.carray(pointer(arg(args, 1)), width, np.float32))
    for h in range(first, first + n):
        at = 4 * h * width
        soft_max_row(arg(args, 0) + at, arg(args, 1), arg(args, 2) + at, width, seen,
                     float_arg(args, 4))  # fmt: skip


OPS: dict[str, Callable[[int, int, int], None]] = {
    "add": add,
    "attend_f16": attend_f16,
    "attend_f32": attend_f32,
    "copy": copy,
    "mul": mul,
    "norm": many.rms_norm,
    "quantize_32": activations.quantize_q8,
    "quantize_256": activations.quantize_q8_k,
    "rotate": many.rotate,
    "soft_max": soft_max,
    "statistics": statistics.statistics,
    "store": many.store_half,
    "swiglu": many.swiglu,
}
"""Steps that are no products with a weight."""

STEPS = OPS | {TYPES[type_].name: kernel for type_, kernel in KERNELS.items()}
STEPS |= {TYPES[type_].name: half.one for type_, half in HALFS.items()}
STEPS |= {f"round_{TYPES[type_].name}": half.round for type_, half in HALFS.items()}
"""All steps; a product has the name of the weight's type and the parameters `rows.ARGS`, one with
halfs `halfs.FIELDS`.
"""
