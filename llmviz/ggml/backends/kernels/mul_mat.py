"""Products of a quantized matrix with quantized columns, rows shared among threads.
↔ ggml/src/ggml-cpu/ggml-cpu.c (ggml_compute_forward_mul_mat)

One compiled function for each type, made when it is first called and kept on disk for the next
process. A row is computed by one thread from beginning to end, so the number of threads changes no
result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit, prange

from llmviz.ggml.backends.kernels import blocks32, blocks256
from llmviz.ggml.backends.kernels.rows import chunk_of
from llmviz.ggml.types import GGMLType

__all__ = ["KERNELS"]

_SETTINGS: dict[str, Any] = {"cache": True, "nogil": True, "boundscheck": False}

_q4_0, _q4_1 = chunk_of(blocks32.Q4_0), chunk_of(blocks32.Q4_1)
_q5_0, _q5_1 = chunk_of(blocks32.Q5_0), chunk_of(blocks32.Q5_1)
_q8_0, _iq4_nl = chunk_of(blocks32.Q8_0), chunk_of(blocks32.IQ4_NL)
_mxfp4 = chunk_of(blocks32.MXFP4)
_q4_k, _q5_k, _q6_k = (chunk_of(k) for k in (blocks256.Q4_K, blocks256.Q5_K, blocks256.Q6_K))


@njit(inline="always")
def _part(a: Any, first: Any, n_rows: Any) -> Any:
    """The chunk of a product that begins at row `first`."""
    n = min(n_rows, a[2] - first)
    # w, row_bytes, n_rows, n_blocks, q, d, s, strides, n_cols, out, out_bytes
    return (
        a[0] + first * a[1], a[1], n, a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10],
        a[11] + 4 * first, a[12],
    )  # fmt: skip


# numba keeps on disk only what is written out as a function of its own: hence one for each type.


@njit(parallel=True, **_SETTINGS)
def q4_0(a: Any, n_rows: int) -> None:
    """Q4_0 times Q8_0."""
    if n_rows >= a[2]:  # one chunk: no other thread is woken
        _q4_0(a)
        return
    for i in prange((a[2] + n_rows - 1) // n_rows):
        _q4_0(_part(a, i * n_rows, n_rows))


@njit(parallel=True, **_SETTINGS)
def q4_1(a: Any, n_rows: int) -> None:
    """Q4_1 times Q8_1."""
    if n_rows >= a[2]:  # one chunk: no other thread is woken
        _q4_1(a)
        return
    for i in prange((a[2] + n_rows - 1) // n_rows):
        _q4_1(_part(a, i * n_rows, n_rows))


@njit(parallel=True, **_SETTINGS)
def q5_0(a: Any, n_rows: int) -> None:
    """Q5_0 times Q8_0."""
    if n_rows >= a[2]:  # one chunk: no other thread is woken
        _q5_0(a)
        return
    for i in prange((a[2] + n_rows - 1) // n_rows):
        _q5_0(_part(a, i * n_rows, n_rows))


@njit(parallel=True, **_SETTINGS)
def q5_1(a: Any, n_rows: int) -> None:
    """Q5_1 times Q8_1."""
    if n_rows >= a[2]:  # one chunk: no other thread is woken
        _q5_1(a)
        return
    for i in prange((a[2] + n_rows - 1) // n_rows):
        _q5_1(_part(a, i * n_rows, n_rows))


@njit(parallel=True, **_SETTINGS)
def q8_0(a: Any, n_rows: int) -> None:
    """Q8_0 times Q8_0."""
    if n_rows >= a[2]:  # one chunk: no other thread is woken
        _q8_0(a)
        return
    for i in prange((a[2] + n_rows - 1) // n_rows):
        _q8_0(_part(a, i * n_rows, n_rows))


@njit(parallel=True, **_SETTINGS)
def iq4_nl(a: Any, n_rows: int) -> None:
    """IQ4_NL times Q8_0."""
    if n_rows >= a[2]:  # one chunk: no other thread is woken
        _iq4_nl(a)
        return
    for i in prange((a[2] + n_rows - 1) // n_rows):
        _iq4_nl(_part(a, i * n_rows, n_rows))


@njit(parallel=True, **_SETTINGS)
def mxfp4(a: Any, n_rows: int) -> None:
    """MXFP4 times Q8_0."""
    if n_rows >= a[2]:  # one chunk: no other thread is woken
        _mxfp4(a)
        return
    for i in prange((a[2] + n_rows - 1) // n_rows):
        _mxfp4(_part(a, i * n_rows, n_rows))


@njit(parallel=True, **_SETTINGS)
def q4_k(a: Any, n_rows: int) -> None:
    """Q4_K times Q8_K."""
    if n_rows >= a[2]:  # one chunk: no other thread is woken
        _q4_k(a)
        return
    for i in prange((a[2] + n_rows - 1) // n_rows):
        _q4_k(_part(a, i * n_rows, n_rows))


@njit(parallel=True, **_SETTINGS)
def q5_k(a: Any, n_rows: int) -> None:
    """Q5_K times Q8_K."""
    if n_rows >= a[2]:  # one chunk: no other thread is woken
        _q5_k(a)
        return
    for i in prange((a[2] + n_rows - 1) // n_rows):
        _q5_k(_part(a, i * n_rows, n_rows))


@njit(parallel=True, **_SETTINGS)
def q6_k(a: Any, n_rows: int) -> None:
    """Q6_K times Q8_K."""
    if n_rows >= a[2]:  # one chunk: no other thread is woken
        _q6_k(a)
        return
    for i in prange((a[2] + n_rows - 1) // n_rows):
        _q6_k(_part(a, i * n_rows, n_rows))


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
}
"""Product kernels by the type of the matrix: ``kernel(args, rows_in_a_chunk)``, see `rows.ARGS`."""
