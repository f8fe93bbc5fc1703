"""The CPU backend: every op as one closure over preallocated numpy arrays.

↔ ggml/src/ggml-cpu/ops.cpp

`CPU.bind` is called once per node; what runs per token is only the closure. Arithmetic is float32
(sums of squares and softmax as numpy does them), values agree with ggml's to about 1e-6.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from llmviz.errors import UnsupportedError
from llmviz.ggml.backends.backend import BindScope, Kernel
from llmviz.ggml.backends.rope import RopeTable
from llmviz.ggml.graph import VIEW_OPS, Tensor
from llmviz.ggml.types import TYPES, GGMLType

__all__ = ["CPU"]

Binder = Callable[[Tensor, BindScope], Kernel]
_binders: dict[str, Binder] = {}


def _op(name: str) -> Callable[[Binder], Binder]:
    def add(binder: Binder) -> Binder:
        _binders[name] = binder
        return binder

    return add


class CPU:
    """numpy on the processor; see `backend.Backend`."""

    name = "CPU"

    def supports(self, node: Tensor) -> bool:
        """True where the op has a kernel here."""
        return node.op in VIEW_OPS or node.op in _binders

    def bind(self, node: Tensor, scope: BindScope) -> Kernel | None:
        """The node's kernel, or None for a view."""
        if node.op in VIEW_OPS:
            return None
        binder = _binders.get(node.op)
        if binder is None:
            raise UnsupportedError("op on CPU", node.op, supported=sorted(_binders))
        return binder(node, scope)


def _array(tensor: Tensor) -> np.ndarray:
    if tensor.array is None:
        raise RuntimeError(f"{tensor.name} has no memory: allocate the graph before binding it")
    return tensor.array


def _float(tensor: Tensor) -> np.ndarray:
    """The values as float32: the array itself, or the float32 mirror its cache keeps."""
    array = _array(tensor)
    if tensor.type == GGMLType.F32:
        return array
    window = tensor.mirror_window()
    if window is None:
        raise UnsupportedError("operand type", TYPES[tensor.type].name, supported=["f32"])
    return window


@_op("ADD")
def _bind_add(node: Tensor, scope: BindScope) -> Kernel:
    a, b, out = _float(node.src[0]), _float(node.src[1]), _array(node)
    return lambda: np.add(a, b, out=out)


@_op("MUL")
def _bind_mul(node: Tensor, scope: BindScope) -> Kernel:
    a, b, out = _float(node.src[0]), _float(node.src[1]), _array(node)
    return lambda: np.multiply(a, b, out=out)


@_op("SCALE")
def _bind_scale(node: Tensor, scope: BindScope) -> Kernel:
    a, out, s = _float(node.src[0]), _array(node), np.float32(node.params["scale"])
    return lambda: np.multiply(a, s, out=out)


@_op("RMS_NORM")
def _bind_rms_norm(node: Tensor, scope: BindScope) -> Kernel:
    x, out = _float(node.src[0]), _array(node)  # [n_tokens, n_embd]
    n, eps = np.float32(x.shape[-1]), np.float32(node.params["eps"])
    r = np.empty(x.shape[:-1], np.float32)
    column = r[..., None]

    def run() -> None:
        np.vecdot(x, x, out=r)
        np.divide(r, n, out=r)
        np.add(r, eps, out=r)
        np.sqrt(r, out=r)
        np.reciprocal(r, out=r)
        np.multiply(x, column, out=out)

    return run


@_op("MUL_MAT")
def _bind_mul_mat(node: Tensor, scope: BindScope) -> Kernel:
    a, b, out = _float(node.src[0]), _float(node.src[1]), _array(node)
    if a.ndim == 2:  # a weight [n, k] and rows [..., m, k]
        if b.flags.c_contiguous and b.size == b.shape[-1]:
            vector, result = b.reshape(-1), out.reshape(-1)
            return lambda: np.dot(a, vector, out=result)
        at = a.T
        return lambda: np.matmul(b, at, out=out)

    # attention: a [..., n_head_kv, n_kv, k], b [..., n_head, m, k]; each kv head serves `group`
    # heads
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


def _split_axis(x: np.ndarray, axis: int, outer: int, inner: int) -> np.ndarray:
    """View with one axis of length outer * inner as two; never a copy."""
    axis %= x.ndim
    shape = (*x.shape[:axis], outer, inner, *x.shape[axis + 1 :])
    step = x.strides[axis]
    strides = (*x.strides[:axis], step * inner, step, *x.strides[axis + 1 :])
    return np.lib.stride_tricks.as_strided(x, shape, strides)


@_op("SOFT_MAX")
def _bind_soft_max(node: Tensor, scope: BindScope) -> Kernel:
    if node.params["max_bias"] != 0.0:
        raise UnsupportedError("soft_max option", "max_bias (ALiBi)", supported=["0.0"])
    x, out = _float(node.src[0]), _array(node)  # [n_head, n_tokens, n_kv]
    mask = _float(node.src[1]) if len(node.src) > 1 else None  # [n_tokens, n_kv]
    s = np.float32(node.params["scale"])
    r = np.empty((*x.shape[:-1], 1), np.float32)

    def run() -> None:
        np.multiply(x, s, out=out)
        if mask is not None:
            np.add(out, mask, out=out)
        np.maximum.reduce(out, axis=-1, keepdims=True, out=r)
        np.subtract(out, r, out=out)
        np.exp(out, out=out)
        np.add.reduce(out, axis=-1, keepdims=True, out=r)
        np.divide(out, r, out=out)

    return run


@_op("GLU")
def _bind_glu(node: Tensor, scope: BindScope) -> Kernel:
    if node.params["glu"] != "swiglu":
        raise UnsupportedError("glu", node.params["glu"], supported=["swiglu"])
    gate, up, out = _float(node.src[0]), _float(node.src[1]), _array(node)

    def run() -> None:  # gate / (1 + exp(-gate)) * up
        np.negative(gate, out=out)
        np.exp(out, out=out)
        np.add(out, np.float32(1.0), out=out)
        np.divide(gate, out, out=out)
        np.multiply(out, up, out=out)

    return run


@_op("ROPE")
def _bind_rope(node: Tensor, scope: BindScope) -> Kernel:
    x, out = _float(node.src[0]), _array(node)  # [n_tokens, n_head, n_embd_head]
    key = ("rope", *map(id, node.src[1:]), *sorted(node.params.items()))
    table = scope.shared.get(key)
    first = table is None
    if not isinstance(table, RopeTable):
        factors = _array(node.src[2]) if len(node.src) > 2 else None
        table = RopeTable(_array(node.src[1]), factors, node.params)
        scope.shared[key] = table
    n_rot = node.params["n_rot"]
    rotate = table.rotate_norm if node.params["mode"] == "norm" else table.rotate_neox
    refresh = table.refresh

    def run() -> None:
        if first:  # the graph's first rope computes the angles; positions are the same for all
            refresh()
        rotate(x, out)
        if n_rot < x.shape[-1]:
            out[..., n_rot:] = x[..., n_rot:]

    return run


@_op("GET_ROWS")
def _bind_get_rows(node: Tensor, scope: BindScope) -> Kernel:
    a, ids, out = _float(node.src[0]), _array(node.src[1]), _array(node)
    a = a.reshape(-1, a.shape[-1])
    # clip: the ids were checked when the batch was; "raise" would buffer the whole result
    return lambda: np.take(a, ids, axis=0, out=out, mode="clip")


@_op("SET_ROWS")
def _bind_set_rows(node: Tensor, scope: BindScope) -> Kernel:
    rows, ids, out = _float(node.src[0]), _array(node.src[1]), _array(node)
    out = out.reshape(-1, out.shape[-1])  # streams end to end, as the ids count them
    if out.shape[-1] == 1:  # single values: the transposed V cache
        rows, out = rows[..., 0], out[..., 0]
    if node.root.mirror is None:

        def run() -> None:
            out[ids] = rows

        return run
    mirror = node.root.mirror.reshape(out.shape)
    narrow = np.empty(rows.shape, out.dtype)

    def run_both() -> None:
        narrow[...] = rows  # rounded to the cache's type once
        out[ids] = narrow
        mirror[ids] = narrow

    return run_both


@_op("CONT")
def _bind_cont(node: Tensor, scope: BindScope) -> Kernel:
    x, out = _float(node.src[0]), _array(node)
    target = out.reshape(x.shape)
    return lambda: np.copyto(target, x)
