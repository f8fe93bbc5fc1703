"""CPU kernels of norms and sums over rows. ↔ ggml/src/ggml-cpu/ops.cpp"""

from __future__ import annotations

import numpy as np

from llmviz.ggml.backends import kernels
from llmviz.ggml.backends.backend import BindScope, Kernel
from llmviz.ggml.backends.cpu_base import array_of, float_of, op
from llmviz.ggml.graph import Tensor


@op("RMS_NORM")
def _bind_rms_norm(node: Tensor, scope: BindScope) -> Kernel:
    x, out = float_of(node.src[0]), array_of(node)  # [n_tokens, n_embd]
    n, eps = np.float32(x.shape[-1]), np.float32(node.params["eps"])
    r = np.empty(x.shape[:-1], np.float32)
    column = r[..., None]
    if scope.compiled and x.flags.c_contiguous:
        compiled, width = kernels.load(), x.shape[-1]
        rows, result = x.reshape(-1, width), out.reshape(-1, width)
        if len(rows) > 1:
            return compiled.norm_rows(rows, eps, result, scope.n_threads[1])
        norm = compiled.rms_norm
        return lambda: norm(rows, eps, result)

    def run() -> None:
        np.multiply(x, x, out=out)  # squares in float32, their sum in float64
        np.divide(np.add.reduce(out, axis=-1, dtype=np.float64), n, out=r, casting="same_kind")
        np.add(r, eps, out=r)
        np.sqrt(r, out=r)
        np.reciprocal(r, out=r)
        np.multiply(x, column, out=out)

    return run


@op("NORM")
def _bind_norm(node: Tensor, scope: BindScope) -> Kernel:
    x, out = float_of(node.src[0]), array_of(node)  # [n_tokens, n_embd]
    n, eps = np.float32(x.shape[-1]), np.float32(node.params["eps"])
    r = np.empty(x.shape[:-1], np.float32)
    column = r[..., None]

    def run() -> None:
        np.add.reduce(x, axis=-1, out=r)
        np.divide(r, n, out=r)  # the mean
        np.subtract(x, column, out=out)
        np.vecdot(out, out, out=r)
        np.divide(r, n, out=r)  # the variance
        np.add(r, eps, out=r)
        np.sqrt(r, out=r)
        np.reciprocal(r, out=r)
        np.multiply(out, column, out=out)

    return run


@op("SUM_ROWS")
def _bind_sum_rows(node: Tensor, scope: BindScope) -> Kernel:
    x, out = float_of(node.src[0]), array_of(node)
    return lambda: np.add.reduce(x, axis=-1, keepdims=True, out=out)
