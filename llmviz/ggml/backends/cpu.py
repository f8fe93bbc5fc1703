"""The CPU backend: every op as one closure over preallocated numpy arrays.

↔ ggml/src/ggml-cpu/ops.cpp

`CPU.bind` is called once per node; what runs per token is only the closure. Arithmetic is float32
(sums of squares and softmax as numpy does them), values agree with ggml's to about 1e-6. The
kernels themselves are in ``cpu_*.py``, by kind of op.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from llmviz.errors import UnsupportedError
from llmviz.ggml.backends import (  # noqa: F401  (importing them registers their kernels)
    cpu_attention,
    cpu_elementwise,
    cpu_glu,
    cpu_matmul,
    cpu_moe,
    cpu_norm,
    cpu_rows,
    cpu_tape,
)
from llmviz.ggml.backends.backend import BindScope, Device, Kernel, Taped, cpu_device
from llmviz.ggml.backends.cpu_base import binders
from llmviz.ggml.graph import VIEW_OPS, Tensor

__all__ = ["CPU", "binders"]


def _nothing() -> None:
    """What computes no values."""


class CPU:
    """numpy on the processor; see `backend.Backend`."""

    name = "CPU"
    is_host = True
    is_simulated = False

    @property
    def device(self) -> Device:
        """The processor."""
        return cpu_device()

    def supports(self, node: Tensor) -> bool:
        """True where the op has a kernel here."""
        return node.op in VIEW_OPS or node.op in binders

    def offload_op(self, node: Tensor) -> bool:
        """Never: what lies on the host is here already."""
        return False

    def bind(self, node: Tensor, scope: BindScope) -> Kernel | None:
        """The node's kernel, or None for a view."""
        if node.op in VIEW_OPS:
            return None
        binder = binders.get(node.op)
        if binder is None:
            raise UnsupportedError("op on CPU", node.op, supported=sorted(binders))
        if node.nelements == 0:  # after the last layer where no token's logits are wanted
            return _nothing
        rows = cpu_tape.rows_of(node, scope) if scope.compiled else None
        return binder(node, scope) if rows is None else Taped(partial(binder, node, scope), rows)

    def alloc(self, nbytes: int, usage: str) -> np.ndarray:
        """See `backend.Backend`."""
        return (np.zeros if usage == "kv" else np.empty)(nbytes, np.uint8)

    def view(
        self,
        buffer: Any,
        shape: tuple[int, ...],
        dtype: np.dtype[Any] | type,
        offset: int = 0,
        strides: tuple[int, ...] | None = None,
    ) -> np.ndarray:
        """See `backend.Backend`."""
        return np.ndarray(shape, dtype, buffer=buffer.data, offset=offset, strides=strides)

    def set(self, array: np.ndarray, value: np.ndarray) -> None:
        """See `backend.Backend`."""
        array[...] = value

    def get(self, array: np.ndarray) -> np.ndarray:
        """The array itself."""
        return array

    def take(self, array: np.ndarray, where: tuple[Any, ...]) -> np.ndarray:
        """See `backend.Backend`."""
        return array[where]

    def put(self, array: np.ndarray, where: tuple[Any, ...], value: np.ndarray) -> None:
        """See `backend.Backend`."""
        array[where] = value

    def copy_from(self, source: Any, array: Any) -> bool:
        """Never: another backend's values come through `get`."""
        return False

    def synchronize(self) -> None:
        """Nothing to wait for."""
