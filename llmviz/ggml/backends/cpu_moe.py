"""CPU kernels of mixtures of experts. ↔ ggml/src/ggml-cpu/{ggml-cpu.c,ops.cpp}"""

from __future__ import annotations

import numpy as np

from llmviz.ggml.backends import cpu_blocks
from llmviz.ggml.backends.backend import BindScope, Kernel
from llmviz.ggml.backends.cpu_base import array_of, float_of, op
from llmviz.ggml.graph import Tensor


@op("ARGSORT")
def _bind_argsort(node: Tensor, scope: BindScope) -> Kernel:
    x, out = float_of(node.src[0]), array_of(node)
    flipped = np.empty(x.shape, np.float32)

    def run() -> None:  # descending: the largest first
        np.negative(x, out=flipped)
        out[...] = np.argsort(flipped, axis=-1, kind="stable")

    return run


@op("MUL_MAT_ID")
def _bind_mul_mat_id(node: Tensor, scope: BindScope) -> Kernel:
    if node.src[0].blocks is not None:
        return cpu_blocks.bind_mul_mat_id(node, scope)
    experts, b, out = float_of(node.src[0]), float_of(node.src[1]), array_of(node)
    ids = array_of(node.src[2])  # [n_tokens, n_used]
    n_rows = b.shape[1]  # one row per token for all its experts, or one per expert

    def run_one() -> None:  # one token
        for j, e in enumerate(ids[0].tolist()):
            np.dot(experts[e], b[0, j % n_rows], out=out[0, j])

    def run() -> None:  # all rows of an expert at once
        for e in np.unique(ids).tolist():
            token, slot = np.nonzero(ids == e)
            out[token, slot] = b[token, slot % n_rows] @ experts[e].T

    return run_one if ids.shape[0] == 1 else run


@op("ADD_ID")
def _bind_add_id(node: Tensor, scope: BindScope) -> Kernel:
    a, b, out = float_of(node.src[0]), float_of(node.src[1]), array_of(node)
    ids = array_of(node.src[2])  # [n_tokens, n_used]
    return lambda: np.add(a, b[ids], out=out)
