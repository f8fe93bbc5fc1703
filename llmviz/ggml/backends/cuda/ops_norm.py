"""Launches of norms and sums over rows. ↔ ggml/src/ggml-cuda/{norm,sumrows}.cu"""

from __future__ import annotations

from llmviz.ggml.backends.backend import Kernel
from llmviz.ggml.backends.cuda.base import Binding, floats, memory_of, op, strided
from llmviz.ggml.graph import Tensor

__all__ = ["NORMS", "bind_norm"]

NORMS = {"RMS_NORM": "rms_norm_f32", "NORM": "norm_f32", "SUM_ROWS": "sum_rows_f32"}


def bind_norm(b: Binding, weight: Tensor | None = None, out: Tensor | None = None) -> Kernel:
    """A norm; with `weight` [n] also the product that comes after it, whose node is `out`."""
    x = b.node.src[0]
    return b.per_row(
        NORMS[b.node.op],
        x.nelements // x.ne[0],
        x.ne[0],
        x=memory_of(x),
        out=memory_of(b.node if out is None else out),
        weight=None if weight is None else memory_of(weight),
        x_at=strided(x),
        n=x.ne[0],
        eps=b.node.params.get("eps", 0.0),
    )


def _takes(node: Tensor) -> bool:
    return floats(node) and node.src[0].nb[0] == 4


for _name in NORMS:
    op(_name, _takes)(bind_norm)
