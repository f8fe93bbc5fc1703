"""CPU kernels that move rows: fetch, store, copy, pad, join. ↔ ggml/src/ggml-cpu/ops.cpp"""

from __future__ import annotations

import numpy as np

from llmviz.ggml.backends import cpu_blocks, kernels
from llmviz.ggml.backends.backend import BindScope, Kernel
from llmviz.ggml.backends.cpu_base import array_of, float_of, op
from llmviz.ggml.graph import Tensor


@op("GET_ROWS")
def _bind_get_rows(node: Tensor, scope: BindScope) -> Kernel:
    if node.src[0].blocks is not None:
        return cpu_blocks.bind_get_rows(node, scope)
    a, ids, out = float_of(node.src[0]), array_of(node.src[1]), array_of(node)
    if ids.ndim > 1:  # each matrix of a has ids of its own
        where = ids[..., None]  # [..., n_ids, 1]

        def run() -> None:
            out[...] = np.take_along_axis(a, where, axis=-2)

        return run
    a = a.reshape(-1, a.shape[-1])
    # clip: the ids were checked when the batch was; "raise" would buffer the whole result
    return lambda: np.take(a, ids, axis=0, out=out, mode="clip")


@op("SET_ROWS")
def _bind_set_rows(node: Tensor, scope: BindScope) -> Kernel:
    rows, ids, out = float_of(node.src[0]), array_of(node.src[1]), array_of(node)
    if ids.ndim > 1:  # each matrix of out has ids of its own
        where = ids[..., None]  # [..., n_ids, 1]
        return lambda: np.put_along_axis(out, where, rows, axis=-2)
    out = out.reshape(-1, out.shape[-1])  # streams end to end, as the ids count them
    if out.shape[-1] == 1:  # single values: the transposed V cache
        rows, out = rows[..., 0], out[..., 0]
    stored = node.root.stored
    if stored is not None:
        where, width = ids, out.shape[-1] if out.ndim > 1 else 1
        return lambda: stored.store(where, rows.reshape(-1, width))
    if node.root.mirror is None:

        def run() -> None:
            out[ids] = rows

        return run
    mirror = node.root.mirror.reshape(out.shape)
    if scope.compiled and out.dtype == np.float16 and rows.flags.c_contiguous:
        compiled, width = kernels.load(), out.shape[-1] if out.ndim > 1 else 1
        given = rows.reshape(-1, width)
        cache = out.view(np.uint16).reshape(-1, width)
        floats = mirror.reshape(-1, width)
        if len(given) > 1 and ids.flags.c_contiguous and np.may_share_memory(cache, out):
            return compiled.store_rows(given, ids, cache, floats, scope.n_threads[1])
        return lambda: compiled.store_half(given, ids, cache, floats)
    narrow = np.empty(rows.shape, out.dtype)

    def run_both() -> None:
        narrow[...] = rows  # rounded to the cache's type once
        out[ids] = narrow
        mirror[ids] = narrow

    return run_both


@op("CONT")
def _bind_cont(node: Tensor, scope: BindScope) -> Kernel:
    x, out = float_of(node.src[0]), array_of(node)
    target = out.reshape(x.shape)
    return lambda: np.copyto(target, x)


@op("PAD")
def _bind_pad(node: Tensor, scope: BindScope) -> Kernel:
    x, out = float_of(node.src[0]), array_of(node)
    n = x.shape[-1]

    def run() -> None:
        out[..., :n] = x
        out[..., n:] = 0

    return run


@op("CONCAT")
def _bind_concat(node: Tensor, scope: BindScope) -> Kernel:
    a, b, out = float_of(node.src[0]), float_of(node.src[1]), array_of(node)
    return lambda: np.concatenate((a, b), axis=-1, out=out)
