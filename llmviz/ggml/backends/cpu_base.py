"""The register of CPU kernels and how a kernel gets at a tensor's values.

↔ ggml/src/ggml-cpu/ggml-cpu.c (ggml_compute_forward)

A file of kernels decorates one function per op with `op`; importing the file registers them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from llmviz.errors import UnsupportedError
from llmviz.ggml.backends.backend import BindScope, Kernel
from llmviz.ggml.decode import decoded
from llmviz.ggml.graph import Tensor
from llmviz.ggml.types import TYPES, GGMLType

__all__ = ["Binder", "array_of", "binders", "float_of", "op"]

Binder = Callable[[Tensor, BindScope], Kernel]
binders: dict[str, Binder] = {}


def op(name: str) -> Callable[[Binder], Binder]:
    """Register a function that turns a node of op `name` into its kernel."""

    def add(binder: Binder) -> Binder:
        binders[name] = binder
        return binder

    return add


def array_of(tensor: Tensor) -> np.ndarray:
    """The tensor's memory in its own type."""
    if tensor.array is None:
        raise RuntimeError(f"{tensor.name} has no memory: allocate the graph before binding it")
    return tensor.array


def float_of(tensor: Tensor) -> np.ndarray:
    """The values as float32: the array itself, the float32 mirror its cache keeps, or a weight's
    blocks decoded (kept from then on).
    """
    if tensor.blocks is not None:
        if tensor.array is None:
            tensor.array = decoded(tensor)
        return tensor.array
    array = array_of(tensor)
    if tensor.type == GGMLType.F32:
        return array
    window = tensor.mirror_window()
    if window is None:
        raise UnsupportedError("operand type", TYPES[tensor.type].name, supported=["f32"])
    return window
