"""CPU kernels of gated activations. ↔ ggml/src/ggml-cpu/ops.cpp (ggml_compute_forward_glu)"""

from __future__ import annotations

import numpy as np

from llmviz.errors import UnsupportedError
from llmviz.ggml.backends import kernels, share
from llmviz.ggml.backends.backend import BindScope, Kernel
from llmviz.ggml.backends.cpu_base import array_of, float_of, op
from llmviz.ggml.backends.cpu_elementwise import gelu_into, silu_into
from llmviz.ggml.graph import Tensor

_ACTIVATIONS = {
    "geglu": gelu_into,
    "reglu": lambda x, out: np.maximum(x, 0, out=out),
    "swiglu": silu_into,
}


@op("GLU")
def _bind_glu(node: Tensor, scope: BindScope) -> Kernel:
    gate, out = float_of(node.src[0]), array_of(node)
    if len(node.src) > 1:
        up = float_of(node.src[1])
    else:  # one tensor: the first half of each row is the gate
        n = out.shape[-1]
        gate, up = gate[..., :n], gate[..., n:]
    kind = node.params["glu"]
    if kind == "swiglu_oai":
        return _swiglu_oai(gate, up, out, node.params["alpha"], node.params["limit"])
    activation = _ACTIVATIONS.get(kind)
    if activation is None:
        raise UnsupportedError("glu", kind, supported=[*_ACTIVATIONS, "swiglu_oai"])

    if scope.compiled and kind == "swiglu" and all(a.flags.c_contiguous for a in (gate, up)):
        compiled, width = kernels.load(), out.shape[-1]
        if out.size > width:
            return compiled.swiglu_all(gate, up, out, scope.n_threads[1])
        one, given = compiled.swiglu, [a.reshape(1, width) for a in (gate, up, out)]
        return lambda: one(*given)

    if out.ndim == 2 and out.size >= share.FEWEST and len(out) >= 16:
        part = -(-len(out) // 16)

        def run_some(item: slice) -> None:
            rows = slice(part * item.start, part * item.stop)
            activation(gate[rows], out[rows])
            np.multiply(out[rows], up[rows], out=out[rows])

        return lambda: share.share(-(-len(out) // part), scope.n_threads[1], run_some)

    def run() -> None:
        activation(gate, out)
        np.multiply(out, up, out=out)

    return run


def _swiglu_oai(
    gate: np.ndarray, up: np.ndarray, out: np.ndarray, alpha: float, limit: float
) -> Kernel:
    """``x * sigmoid(alpha * x) * (y + 1)``: x the gate, at most `limit`; y up, within it."""
    a, top = np.float32(-alpha), np.float32(limit)
    x, y = np.empty_like(gate), np.empty_like(up)

    def run() -> None:
        np.minimum(gate, top, out=x)
        np.clip(up, -top, top, out=y)
        np.multiply(x, a, out=out)
        np.exp(out, out=out)
        np.add(out, 1, out=out)
        np.divide(x, out, out=out)
        np.add(y, 1, out=y)
        np.multiply(out, y, out=out)

    return run
