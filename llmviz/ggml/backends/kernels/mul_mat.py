"""Products of a quantized matrix with quantized columns: one kernel for each type.
↔ ggml/src/ggml-cpu/ggml-cpu.c (ggml_compute_forward_mul_mat)

A row is computed by one thread from beginning to end, so the number of threads changes no result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

from llmviz.ggml.backends.kernels import blocks32, blocks256, blocks256_more
from llmviz.ggml.backends.kernels.calls import arg
from llmviz.ggml.backends.kernels.rows import chunk_of
from llmviz.ggml.types import GGMLType

__all__ = ["KERNELS"]

_q4_0, _q4_1 = chunk_of(blocks32.Q4_0), chunk_of(blocks32.Q4_1)
_q5_0, _q5_1 = chunk_of(blocks32.Q5_0), chunk_of(blocks32.Q5_1)
_q8_0, _iq4_nl = chunk_of(blocks32.Q8_0), chunk_of(blocks32.IQ4_NL)
_mxfp4 = chunk_of(blocks32.MXFP4)
_q4_k, _q5_k, _q6_k = (chunk_of(k) for k in (blocks256.Q4_K, blocks256.Q5_K, blocks256.Q6_K))

_q2_k, _q3_k = chunk_of(blocks256_more.Q2_K), chunk_of(blocks256_more.Q3_K)
_iq4_xs = chunk_of(blocks256_more.IQ4_XS)


@njit(inline="always")
def _part(a: Any, first: Any, n: Any) -> Any:
    """Rows first .. first + n - 1 of a product, as `rows.ARGS`."""
    return (
        arg(a, 0) + first * arg(a, 1), arg(a, 1), n, arg(a, 3), arg(a, 4), arg(a, 5), arg(a, 6),
        arg(a, 7), arg(a, 8), arg(a, 9), arg(a, 10), arg(a, 11) + 4 * first, arg(a, 12),
    )  # fmt: skip


# numba keeps on disk only what is written out as a function of its own: hence one for each type.


def q4_0(args: int, first: int, n: int) -> None:
    """Q4_0 times Q8_0."""
    _q4_0(_part(args, first, n))


def q4_1(args: int, first: int, n: int) -> None:
    """Q4_1 times Q8_1."""
    _q4_1(_part(args, first, n))


def q5_0(args: int, first: int, n: int) -> None:
    """Q5_0 times Q8_0."""
    _q5_0(_part(args, first, n))


def q5_1(args: int, first: int, n: int) -> None:
    """Q5_1 times Q8_1."""
    _q5_1(_part(args, first, n))


def q8_0(args: int, first: int, n: int) -> None:
    """Q8_0 times Q8_0."""
    _q8_0(_part(args, first, n))


def iq4_nl(args: int, first: int, n: int) -> None:
    """IQ4_NL times Q8_0."""
    _iq4_nl(_part(args, first, n))


def mxfp4(args: int, first: int, n: int) -> None:
    """MXFP4 times Q8_0."""
    _mxfp4(_part(args, first, n))


def q4_k(args: int, first: int, n: int) -> None:
    """Q4_K times Q8_K."""
    _q4_k(_part(args, first, n))


def q5_k(args: int, first: int, n: int) -> None:
    """Q5_K times Q8_K."""
    _q5_k(_part(args, first, n))


def q6_k(args: int, first: int, n: int) -> None:
    """Q6_K times Q8_K."""
    _q6_k(_part(args, first, n))


def q2_k(args: int, first: int, n: int) -> None:
    """Q2_K times Q8_K."""
    _q2_k(_part(args, first, n))


def q3_k(args: int, first: int, n: int) -> None:
    """Q3_K times Q8_K."""
    _q3_k(_part(args, first, n))


def iq4_xs(args: int, first: int, n: int) -> None:
    """IQ4_XS times Q8_K."""
    _iq4_xs(_part(args, first, n))


KERNELS: dict[GGMLType, Callable[..., None]] = {
    GGMLType.Q4_0: q4_0,
    GGMLType.Q4_1: q4_1,
    GGMLType.Q5_0: q5_0,
    GGMLType.Q5_1: q5_1,
    GGMLType.Q8_0: q8_0,
    GGMLType.IQ4_NL: iq4_nl,
    GGMLType.MXFP4: mxfp4,
    GGMLType.Q4_K: q4_k,
    GGMLType.Q5_K: q5_k,
    GGMLType.Q6_K: q6_k,
    GGMLType.Q2_K: q2_k,
    GGMLType.Q3_K: q3_k,
    GGMLType.IQ4_XS: iq4_xs,
}
"""Product kernels by the type of the matrix: items are rows, parameters `rows.ARGS`."""
