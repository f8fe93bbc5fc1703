"""The CPU backend: every op as one closure over preallocated numpy arrays.

↔ ggml/src/ggml-cpu/ops.cpp

`CPU.bind` is called once per node; what runs per token is only the closure. Arithmetic is float32
(sums of squares and softmax as numpy does them), values agree with ggml's to about 1e-6. The
kernels themselves are in ``cpu_*.py``, by kind of op.
"""

from __future__ import annotations

from llmviz.errors import UnsupportedError
from llmviz.ggml.backends import (  # noqa: F401  (importing them registers their kernels)
    cpu_attention,
    cpu_elementwise,
    cpu_glu,
    cpu_matmul,
    cpu_moe,
    cpu_norm,
    cpu_rows,
)
from llmviz.ggml.backends.backend import BindScope, Kernel
from llmviz.ggml.backends.cpu_base import binders
from llmviz.ggml.graph import VIEW_OPS, Tensor

__all__ = ["CPU", "binders"]


class CPU:
    """numpy on the processor; see `backend.Backend`."""

    name = "CPU"

    def supports(self, node: Tensor) -> bool:
        """True where the op has a kernel here."""
        return node.op in VIEW_OPS or node.op in binders

    def bind(self, node: Tensor, scope: BindScope) -> Kernel | None:
        """The node's kernel, or None for a view."""
        if node.op in VIEW_OPS:
            return None
        binder = binders.get(node.op)
        if binder is None:
            raise UnsupportedError("op on CPU", node.op, supported=sorted(binders))
        return binder(node, scope)
