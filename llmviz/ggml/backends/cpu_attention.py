"""CPU kernels of attention: softmax over scores, rotary positions. ↔ ggml/src/ggml-cpu/ops.cpp"""

from __future__ import annotations

from functools import partial
from math import floor, log2

import numpy as np

from llmviz.ggml.backends import kernels, share
from llmviz.ggml.backends.backend import BindScope, Kernel
from llmviz.ggml.backends.cpu_base import array_of, float_of, op
from llmviz.ggml.backends.rope import RopeTable
from llmviz.ggml.graph import Tensor

__all__ = ["alibi_slopes"]


def alibi_slopes(n_head: int, max_bias: float) -> np.ndarray:
    """How steeply each head's scores fall with the distance: float32 ``[n_head]``.

    Heads up to a power of two get a geometric series from ``2 ** (-max_bias / n)``, the rest the
    odd members of a series twice as dense.
    """
    n = 1 << floor(log2(n_head))
    m0, m1 = (np.float32(2) ** np.float32(-bias / n) for bias in (max_bias, max_bias / 2))
    h = np.arange(n_head)
    return np.where(h < n, m0 ** (h + 1), m1 ** (2 * (h - n) + 1)).astype(np.float32)


@op("SOFT_MAX")
def _bind_soft_max(node: Tensor, scope: BindScope) -> Kernel:
    x, out = float_of(node.src[0]), array_of(node)  # [n_head, n_tokens, n_kv]
    has_sinks = node.params.get("sinks", False)
    masks = node.src[1 : len(node.src) - has_sinks]
    mask = float_of(masks[0]) if masks else None  # [n_tokens, n_kv]
    s = np.float32(node.params["scale"])
    r = np.empty((*x.shape[:-1], 1), np.float32)
    max_bias = node.params["max_bias"]
    if max_bias > 0:
        slopes = alibi_slopes(x.shape[-3], max_bias)[:, None, None]  # [n_head, 1, 1]
        biases = np.empty(x.shape, np.float32)
    if has_sinks:
        sinks = float_of(node.src[-1])[:, None, None]  # [n_head, 1, 1]
        extra = np.empty(r.shape, np.float32)

    plain = mask is not None and mask.ndim == 2 and x.ndim == 3 and max_bias == 0 and not has_sinks
    if scope.compiled and plain and x.flags.c_contiguous and x.shape[-1] % 8 == 0:
        assert mask is not None
        return _compiled_soft_max(x, mask, s, out, scope)

    def run_some(heads: slice) -> None:
        y, z = out[heads], r[heads]
        np.multiply(x[heads], s, out=y)
        if mask is not None:
            np.add(y, mask, out=y)
        np.maximum.reduce(y, axis=-1, keepdims=True, out=z)
        np.subtract(y, z, out=y)
        np.exp(y, out=y)
        np.add.reduce(y, axis=-1, keepdims=True, out=z)
        np.divide(y, z, out=y)

    several = plain and x.size >= share.FEWEST  # head by head also with one thread: near memory

    def run() -> None:
        if several:
            share.share(len(x), scope.n_threads[1], run_some)
        else:
            run_some(slice(None))

    def run_with_extras() -> None:
        np.multiply(x, s, out=out)
        if mask is not None and max_bias > 0:
            np.multiply(mask, slopes, out=biases)
            np.add(out, biases, out=out)
        elif mask is not None:
            np.add(out, mask, out=out)
        np.maximum.reduce(out, axis=-1, keepdims=True, out=r)
        if has_sinks:  # as if one more column stood in every row
            np.maximum(r, sinks, out=r)
            np.subtract(sinks, r, out=extra)
            np.exp(extra, out=extra)
        np.subtract(out, r, out=out)
        np.exp(out, out=out)
        np.add.reduce(out, axis=-1, keepdims=True, out=r)
        if has_sinks:
            np.add(r, extra, out=r)
        np.divide(out, r, out=out)

    return run_with_extras if has_sinks or max_bias > 0 else run


def _compiled_soft_max(
    x: np.ndarray, mask: np.ndarray, s: np.float32, out: np.ndarray, scope: BindScope
) -> Kernel:
    compiled = kernels.load()
    rows = np.ascontiguousarray(mask)
    if x.shape[1] > 1:
        several: Kernel = compiled.soft_max_rows(x, rows, s, out, scope.n_threads[1])
    else:
        several = partial(compiled.soft_max, x, rows, s, out)
    if rows is mask or np.may_share_memory(rows, mask):
        return several

    def run() -> None:
        np.copyto(rows, mask)
        several()

    return run


@op("ROPE")
def _bind_rope(node: Tensor, scope: BindScope) -> Kernel:
    x, out = float_of(node.src[0]), array_of(node)  # [n_tokens, n_head, n_embd_head]
    key = ("rope", *map(id, node.src[1:]), *sorted(node.params.items()))
    table = scope.shared.get(key)
    first = table is None
    if not isinstance(table, RopeTable):
        factors = array_of(node.src[2]) if len(node.src) > 2 else None
        table = RopeTable(array_of(node.src[1]), factors, node.params)
        scope.shared[key] = table
    n_rot = node.params["n_rot"]
    rotate = table.rotate_norm if node.params["mode"] == "norm" else table.rotate_neox
    refresh = table.refresh
    if scope.compiled and x.ndim == 3 and x.flags.c_contiguous and out.flags.c_contiguous:
        compiled = kernels.load()
        table.compiled, cis, turn = compiled.cos_sin, table.cis, compiled.rotate
        apart = 1 if node.params["mode"] == "norm" else cis.shape[-1]
        if len(x) > 1:
            turn_all: Kernel = compiled.rotate_rows(x, cis, apart, out, scope.n_threads[1])
        else:
            turn_all = partial(turn, x, cis, apart, out)
        if not first:
            return turn_all

        def run_compiled() -> None:
            refresh()
            turn_all()

        return run_compiled

    def run() -> None:
        if first:  # the graph's first rope computes the angles; positions are the same for all
            refresh()
        rotate(x, out)
        if n_rot < x.shape[-1]:
            out[..., n_rot:] = x[..., n_rot:]

    return run
