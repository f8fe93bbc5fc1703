"""CPU kernels that read a weight of half floats as the file has it; compiled only.

↔ ggml/src/ggml-cpu/ggml-cpu.c (ggml_compute_forward_mul_mat)
"""

from __future__ import annotations

import numpy as np

from llmviz.ggml.backends import kernels
from llmviz.ggml.backends.backend import BindScope, Kernel
from llmviz.ggml.backends.cpu_base import array_of, float_of
from llmviz.ggml.graph import Tensor

__all__ = ["bind_mul_mat", "is_product"]


def is_product(weight: Tensor) -> bool:
    """Whether there is a compiled product with this weight's own halfs."""
    k, n_rows = weight.ne[:2]
    return kernels.usable() and weight.type in kernels.HALFS and k % 32 == 0 and n_rows >= 4


def bind_mul_mat(node: Tensor, scope: BindScope) -> Kernel:
    """Halfs times activations that are rounded to them."""
    weight, x = node.src
    raw = weight.blocks
    assert raw is not None
    out = array_of(node).reshape(-1, weight.ne[1])  # [m, n]
    values = float_of(x)
    k, m = values.shape[-1], len(out)
    key = ("halfs", weight.type, m, k)  # room that all nodes of one shape use in turn
    rounded = scope.shared.get(key)
    if not isinstance(rounded, np.ndarray):
        rounded = scope.shared[key] = np.empty((m, k), np.float32)
    n_threads = scope.n_threads[0 if m == 1 else 1]
    compiled = kernels.load()
    multiply = compiled.half_product(weight.type, raw, rounded, out, n_threads)
    if values.flags.c_contiguous:
        rows = values.reshape(-1, k)
        convert = compiled.half_rounder(weight.type, rows, rounded, n_threads)
    else:
        convert = compiled.half_rounder(weight.type, rounded, rounded, n_threads)

    def run() -> None:
        if not values.flags.c_contiguous:
            rounded[...] = values.reshape(m, k)
        convert()
        multiply()

    return run
