"""CPU kernels of ops that treat every value alike. ↔ ggml/src/ggml-cpu/{binary,unary}-ops.cpp"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from llmviz.ggml.backends.backend import BindScope, Kernel
from llmviz.ggml.backends.cpu_base import array_of, float_of, op
from llmviz.ggml.graph import Tensor

__all__ = ["gelu_into", "silu_into"]

_ONE = np.float32(1.0)


@op("ADD")
def _bind_add(node: Tensor, scope: BindScope) -> Kernel:
    a, b, out = float_of(node.src[0]), float_of(node.src[1]), array_of(node)
    return lambda: np.add(a, b, out=out)


@op("MUL")
def _bind_mul(node: Tensor, scope: BindScope) -> Kernel:
    a, b, out = float_of(node.src[0]), float_of(node.src[1]), array_of(node)
    return lambda: np.multiply(a, b, out=out)


@op("DIV")
def _bind_div(node: Tensor, scope: BindScope) -> Kernel:
    a, b, out = float_of(node.src[0]), float_of(node.src[1]), array_of(node)
    return lambda: np.divide(a, b, out=out)


@op("SCALE")
def _bind_scale(node: Tensor, scope: BindScope) -> Kernel:
    a, out, s = float_of(node.src[0]), array_of(node), np.float32(node.params["scale"])
    return lambda: np.multiply(a, s, out=out)


@op("SQR")
def _bind_sqr(node: Tensor, scope: BindScope) -> Kernel:
    a, out = float_of(node.src[0]), array_of(node)
    return lambda: np.multiply(a, a, out=out)


@op("CLAMP")
def _bind_clamp(node: Tensor, scope: BindScope) -> Kernel:
    a, out = float_of(node.src[0]), array_of(node)
    low, high = np.float32(node.params["min"]), np.float32(node.params["max"])
    return lambda: np.clip(a, low, high, out=out)


@op("FILL")
def _bind_fill(node: Tensor, scope: BindScope) -> Kernel:
    out, value = array_of(node), np.float32(node.params["value"])
    return lambda: out.fill(value)


def silu_into(x: np.ndarray, out: np.ndarray) -> None:
    """``x / (1 + exp(-x))``; out may not be x."""
    np.negative(x, out=out)
    np.exp(out, out=out)
    np.add(out, _ONE, out=out)
    np.divide(x, out, out=out)


def _sigmoid_into(x: np.ndarray, out: np.ndarray) -> None:
    np.negative(x, out=out)
    np.exp(out, out=out)
    np.add(out, _ONE, out=out)
    np.reciprocal(out, out=out)


def _gelu_table() -> np.ndarray:
    """GELU (tanh form) of every float16, rounded to float16: float32 ``[65536]``."""
    x = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(np.float16).astype(np.float32)
    inner = np.float32(0.79788456080286535587989211986876)  # sqrt(2 / pi)
    with np.errstate(all="ignore"):
        y = 0.5 * x * (1 + np.tanh(inner * x * (1 + np.float32(0.044715) * x * x)))
        return y.astype(np.float16).astype(np.float32)


_tables: list[np.ndarray] = []  # made when the first GELU is bound


def gelu_into(x: np.ndarray, out: np.ndarray) -> None:
    """GELU as ggml computes it on a CPU: looked up for x rounded to float16.

    Below -10 it is 0, from 10 on it is x.
    """
    if not _tables:
        _tables.append(_gelu_table())
    index = x.astype(np.float16).view(np.uint16)
    np.take(_tables[0], index, out=out, mode="clip")
    np.copyto(out, 0, where=x <= -10)
    np.copyto(out, x, where=x >= 10)


_UNARY: dict[str, Callable[[np.ndarray, np.ndarray], object]] = {
    "gelu": gelu_into,
    "relu": lambda x, out: np.maximum(x, 0, out=out),
    "sigmoid": _sigmoid_into,
    "silu": silu_into,
    "tanh": lambda x, out: np.tanh(x, out=out),
}


@op("UNARY")
def _bind_unary(node: Tensor, scope: BindScope) -> Kernel:
    x, out, into = float_of(node.src[0]), array_of(node), _UNARY[node.params["unary"]]
    return lambda: into(x, out)
