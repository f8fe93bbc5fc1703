"""Launches of ops that treat every value alike. ↔ ggml/src/ggml-cuda/{binbcast,unary}.cu"""

from __future__ import annotations

from typing import Any

import numpy as np

from llmviz.ggml.backends.backend import Kernel
from llmviz.ggml.backends.cpu_elementwise import gelu_into
from llmviz.ggml.backends.cuda.base import Binding, flat, floats, memory_of, op, strided
from llmviz.ggml.graph import Tensor


def _binary(name: str) -> None:
    @op(name)
    def bind(b: Binding) -> Kernel:
        x, y = b.node.src
        return b.each(
            f"{name.lower()}_f32",
            b.node.nelements,
            a=memory_of(x),
            b=memory_of(y),
            out=memory_of(b.node),
            a_at=strided(x),
            b_at=strided(y),
            n=b.node.nelements,
            a_is_flat=flat(x),
            b_is_flat=flat(y, like=x),
        )


for _name in ("ADD", "MUL", "DIV"):
    _binary(_name)


def _gelu_table(b: Binding) -> Any:
    """GELU of every half float, float32[65536], on the device; made once."""
    if b.cuda.gelu_table is None:
        bits = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
        values = np.empty(1 << 16, np.float32)
        with np.errstate(all="ignore"):
            gelu_into(bits.view(np.float16).astype(np.float32), values)
        b.cuda.gelu_table = b.upload(values)
    return b.cuda.gelu_table


def _unary(b: Binding, kernel: str, p0: float = 0.0, p1: float = 0.0) -> Kernel:
    x = b.node.src[0]
    return b.each(
        f"{kernel}_f32",
        b.node.nelements,
        a=memory_of(x),
        out=memory_of(b.node),
        table=_gelu_table(b) if kernel == "gelu" else None,
        a_at=strided(x),
        n=b.node.nelements,
        a_is_flat=flat(x),
        p0=p0,
        p1=p1,
    )


@op("SCALE")
def _bind_scale(b: Binding) -> Kernel:
    return _unary(b, "scale", b.node.params["scale"])


@op("SQR")
def _bind_sqr(b: Binding) -> Kernel:
    return _unary(b, "sqr")


@op("CLAMP")
def _bind_clamp(b: Binding) -> Kernel:
    return _unary(b, "clamp", b.node.params["min"], b.node.params["max"])


@op("FILL")
def _bind_fill(b: Binding) -> Kernel:
    n, value = b.node.nelements, b.node.params["value"]
    return b.each("fill_f32", n, out=memory_of(b.node), n=n, value=value)


_UNARY = ("gelu", "relu", "sigmoid", "silu", "tanh")
_GLU = ("geglu", "reglu", "swiglu", "swiglu_oai")


@op("UNARY", lambda node: floats(node) and node.params["unary"] in _UNARY)
def _bind_unary(b: Binding) -> Kernel:
    return _unary(b, b.node.params["unary"])


def _rows_of_floats(node: Tensor) -> bool:
    return floats(node) and all(s.nb[0] == 4 for s in node.src)


@op("GLU", lambda node: _rows_of_floats(node) and node.params["glu"] in _GLU)
def _bind_glu(b: Binding) -> Kernel:
    node = b.node
    gate, up = node.src[0], node.src[-1]
    there: Any = memory_of(up)
    if len(node.src) == 1:  # the first half of each row is the gate
        there = there.data.ptr + 4 * node.ne[0]
    return b.each(
        f"{node.params['glu']}_f32",
        node.nelements,
        gate=memory_of(gate),
        up=there,
        out=memory_of(node),
        table=_gelu_table(b) if node.params["glu"] == "geglu" else None,
        gate_at=strided(gate),
        up_at=strided(up),
        n=node.nelements,
        width=node.ne[0],
        is_flat=len(node.src) == 2 and flat(gate) and flat(up),
        alpha=node.params.get("alpha", 0.0),
        limit=node.params.get("limit", 0.0),
    )
