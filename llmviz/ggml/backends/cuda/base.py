"""The register of launches, and how one gets at its node's operands.

↔ ggml/src/ggml-cuda/ggml-cuda.cu (ggml_cuda_compute_forward)

A file of ops decorates one function per op with `op`; importing the file registers them. Which
types an op takes is asked before the graph has memory, so it looks only at types and shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from llmviz.ggml.backends.backend import BindScope, Kernel
from llmviz.ggml.graph import Tensor
from llmviz.ggml.types import GGMLType

if TYPE_CHECKING:
    from llmviz.ggml.backends.cuda.device import CUDA
    from llmviz.ggml.backends.cuda.library import Launch

__all__ = ["Binder", "Binding", "Steps", "binders", "flat", "floats", "memory_of", "op", "strided"]

THREADS = 256
MAX_GRID = 65535


@dataclass(frozen=True)
class Binding:
    """A node that is being bound.

    Attributes
    ----------
    node : Tensor
    cuda : CUDA
    scope : BindScope
    """

    node: Tensor
    cuda: CUDA
    scope: BindScope

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Memory for something between two launches; it lives as long as who keeps it."""
        return self.cuda.cupy.ndarray(shape, dtype)

    def upload(self, values: np.ndarray) -> Any:
        """A constant."""
        array = self.empty(values.shape, values.dtype)
        self.cuda.set(array, values)
        return array

    def each(self, name: str, count: int, keep: tuple[Any, ...] = (), **fields: Any) -> Launch:
        """A kernel that walks over `count` values."""
        grid = min(max(-(-count // THREADS), 1), MAX_GRID)
        return self.cuda.library.launch(name, (grid,), (THREADS,), keep, **fields)

    def per_row(
        self, name: str, rows: int, width: int, keep: tuple[Any, ...] = (), **fields: Any
    ) -> Launch:
        """A kernel of one block of threads a row."""
        threads = 32
        while threads < min(width, 1024):
            threads *= 2
        return self.cuda.library.launch(name, (rows,), (threads,), keep, **fields)


class Steps:
    """Several callables as one."""

    __slots__ = ("steps",)

    def __init__(self, *steps: Any) -> None:
        self.steps = steps

    @property
    def recordable(self) -> bool:
        """Whether all of them are."""
        return all(step.recordable for step in self.steps)

    def __call__(self) -> None:
        for step in self.steps:
            step()

    def wait(self) -> None:
        """Until all of them have run."""
        for step in self.steps[-1:]:
            step.wait()


@dataclass(frozen=True)
class Binder:
    """How one op is launched.

    Attributes
    ----------
    bind : callable
        Binding -> the kernel.
    takes : callable
        Node -> whether these types and shapes have kernels.
    """

    bind: Callable[[Binding], Kernel]
    takes: Callable[[Tensor], bool]


binders: dict[str, Binder] = {}


def floats(node: Tensor) -> bool:
    """Whether the node and all its sources are float32."""
    return all(t.type == GGMLType.F32 for t in (node, *node.src))


def op(
    name: str, takes: Callable[[Tensor], bool] = floats
) -> Callable[[Callable[[Binding], Kernel]], Callable[[Binding], Kernel]]:
    """Register a function that turns a node of op `name` into its launches."""

    def add(bind: Callable[[Binding], Kernel]) -> Callable[[Binding], Kernel]:
        binders[name] = Binder(bind, takes)
        return bind

    return add


def memory_of(tensor: Tensor) -> Any:
    """The device's array of a tensor: its blocks where it is kept as the file has it."""
    found = tensor.array if tensor.blocks is None else tensor.blocks
    if found is None:
        raise RuntimeError(f"{tensor.name} has no memory: allocate the graph before binding it")
    return found


def strided(tensor: Tensor) -> dict[str, Any]:
    """The fields of a `Strided`."""
    return {"ne": tensor.ne, "nb": tensor.nb}


def flat(tensor: Tensor, like: Tensor | None = None) -> bool:
    """Whether the values lie one after the other (and have another tensor's shape)."""
    return tensor.is_contiguous and (like is None or like.ne == tensor.ne)
