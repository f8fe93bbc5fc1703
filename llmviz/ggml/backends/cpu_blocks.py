"""CPU kernels that read a weight as the file's own blocks.

↔ ggml/src/ggml-cpu/ggml-cpu.c (ggml_compute_forward_mul_mat), ops.cpp (get_rows)

Activations are quantized to eight bits once for all products that share them. Compiled where that
is possible, else plain numpy; both give the same bits.
"""

from __future__ import annotations

import numpy as np

from llmviz.ggml import dots
from llmviz.ggml.backends import kernels
from llmviz.ggml.backends.backend import BindScope, Kernel
from llmviz.ggml.backends.cpu_base import array_of, float_of
from llmviz.ggml.decode import decoded_rows
from llmviz.ggml.graph import Tensor

__all__ = ["bind_get_rows", "bind_mul_mat"]


def bind_mul_mat(node: Tensor, scope: BindScope) -> Kernel:
    """Blocks times quantized activations."""
    weight, x = node.src
    assert weight.blocks is not None
    out = array_of(node).reshape(-1, weight.ne[1])  # [m, n]
    q, quantize = _activations(x, dots.group_of(weight.type), scope)
    multiply = _product(weight, q, out, scope)
    if quantize is None:
        return multiply
    first = quantize

    def run() -> None:
        first()
        multiply()

    return run


def _activations(x: Tensor, group: int, scope: BindScope) -> tuple[dots.Activations, Kernel | None]:
    """The quantized form of x, and what fills it: None where a product before this one does."""
    key = ("q8", id(x), group)
    if key in scope.shared:
        found = scope.shared[key]
        assert isinstance(found, dots.Activations)
        return found, None
    values = float_of(x)
    k = values.shape[-1]
    q = dots.Activations.empty(values.size // k, k, group)
    scope.shared[key] = q
    if values.flags.c_contiguous:
        rows, copy = values.reshape(-1, k), None
    else:
        rows, copy = np.empty((values.size // k, k), np.float32), values
    if kernels.usable():
        quantize = kernels.load().quantize
    else:
        quantize = dots.quantize_q8 if group == 32 else dots.quantize_q8_k

    def run() -> None:
        if copy is not None:
            rows[...] = copy.reshape(rows.shape)
        quantize(rows, q)

    return q, run


def _product(weight: Tensor, q: dots.Activations, out: np.ndarray, scope: BindScope) -> Kernel:
    raw, type_ = weight.blocks, weight.type
    assert raw is not None
    if kernels.usable():
        n_threads = scope.n_threads[0 if len(out) == 1 else 1]
        return kernels.load().product(type_, raw, q, out, n_threads)
    return lambda: dots.mul_mat(type_, raw, q, out)


def bind_get_rows(node: Tensor, scope: BindScope) -> Kernel:
    """Some rows of blocks, decoded."""
    weight, ids, out = node.src[0], array_of(node.src[1]), array_of(node)

    def run() -> None:
        out[...] = decoded_rows(weight, ids).reshape(out.shape)

    return run
