"""CPU kernels of matrix products. ↔ ggml/src/ggml-cpu/ggml-cpu.c (ggml_compute_forward_mul_mat)"""

from __future__ import annotations

import numpy as np

from llmviz.ggml.backends import cpu_blocks, cpu_halfs, kernels
from llmviz.ggml.backends.backend import BindScope, Kernel
from llmviz.ggml.backends.cpu_base import array_of, float_of, op
from llmviz.ggml.dots import DOTS
from llmviz.ggml.graph import Tensor

__all__ = ["hadamard"]


@op("MUL_MAT")
def _bind_mul_mat(node: Tensor, scope: BindScope) -> Kernel:
    if node.params.get("hadamard"):
        return _bind_hadamard(node)
    weight = node.src[0]
    if weight.blocks is not None and weight.type in DOTS:
        return cpu_blocks.bind_mul_mat(node, scope)
    if weight.blocks is not None and cpu_halfs.is_product(weight):
        return cpu_halfs.bind_mul_mat(node, scope)
    a, b, out = float_of(node.src[0]), float_of(node.src[1]), array_of(node)
    if a.ndim == 1:  # a single row
        a = a[None]
    if a.ndim == 2:  # a weight [n, k] and rows [..., m, k]
        if b.flags.c_contiguous and b.size == b.shape[-1]:
            vector, result = b.reshape(-1), out.reshape(-1)
            return lambda: np.dot(a, vector, out=result)
        at = a.T
        return lambda: np.matmul(b, at, out=out)

    # attention: a [..., n_head_kv, n_kv, k], b [..., n_head, m, k]; each kv head serves `group`
    # heads
    if scope.compiled and _is_attention(a, b):
        own = array_of(node.src[0])  # half floats themselves, not their float32 mirror
        n_threads = scope.n_threads[0 if b.shape[1] == 1 else 1]
        if own.dtype != np.float16:
            return kernels.load().attend(a, b, out, None, n_threads)
        return kernels.load().attend(own, b, out, a, n_threads)
    n_head, n_head_kv = b.shape[-3], a.shape[-3]
    group = n_head // n_head_kv
    at = a.swapaxes(-1, -2)
    if group == 1:
        return lambda: np.matmul(b, at, out=out)
    lead = b.shape[:-3]
    m, k, n = b.shape[-2], b.shape[-1], out.shape[-1]
    if m == 1:  # one token: a group's heads are the rows of one product
        rows = b.reshape(*lead, n_head_kv, group, k)
        result = out.reshape(*lead, n_head_kv, group, n)
        return lambda: np.matmul(rows, at, out=result)
    per_head = at[..., :, None, :, :]
    rows = _split_axis(b, -3, n_head_kv, group)
    result = out.reshape(*lead, n_head_kv, group, m, n)
    return lambda: np.matmul(rows, per_head, out=result)


def _is_attention(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether these are rows that the compiled form can read."""
    return (
        a.ndim == b.ndim == 3
        and b.shape[2] % 32 == 0
        and (b.shape[1] == 1 or a.shape[1] % 4 == 0)
        and a.strides[2] == b.strides[2] == 4
    )


def _split_axis(x: np.ndarray, axis: int, outer: int, inner: int) -> np.ndarray:
    """View with one axis of length outer * inner as two; never a copy."""
    axis %= x.ndim
    shape = (*x.shape[:axis], outer, inner, *x.shape[axis + 1 :])
    step = x.strides[axis]
    strides = (*x.strides[:axis], step * inner, step, *x.strides[axis + 1 :])
    return np.lib.stride_tricks.as_strided(x, shape, strides)


def _bind_hadamard(node: Tensor) -> Kernel:
    x, out = float_of(node.src[1]), array_of(node)
    return lambda: np.copyto(out, hadamard(x))


def hadamard(x: np.ndarray) -> np.ndarray:
    """Product of rows with the orthonormal Hadamard matrix of their width; twice is nothing.

    Sums and differences of neighbours, then of pairs, and so on. ↔ ggml_compute_forward_fwht

    Parameters
    ----------
    x : float32[..., n]
        n a power of two.

    Returns
    -------
    float32[..., n]
    """
    n = x.shape[-1]
    out = np.ascontiguousarray(x) * (np.float32(1) / np.sqrt(np.float32(n)))
    other = np.empty_like(out)
    length = 1
    while length < n:
        a, b = out.reshape(-1, 2, length), other.reshape(-1, 2, length)
        np.add(a[:, 0], a[:, 1], out=b[:, 0])
        np.subtract(a[:, 0], a[:, 1], out=b[:, 1])
        out, other = other, out
        length *= 2
    return out
