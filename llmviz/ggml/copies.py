"""Copies between the memories of two backends: what they carry, and the kernel that carries it.

↔ ggml/src/ggml-backend.cpp (ggml_backend_tensor_copy, ggml_backend_sched_compute_splits)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmviz.ggml.backends.backend import Backend, Kernel
from llmviz.ggml.graph import Graph, Tensor
from llmviz.ggml.types import GGMLType

__all__ = ["Copy", "copies_of", "copy_kernel"]


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy that every run of a graph makes.

    Attributes
    ----------
    name : str
        ``"CUDA0#inp_pos#0"``.
    source : str
        ``"inp_pos"``.
    split : int
        Before which split.
    origin, target : str
        Names of the backends.
    nbytes : int
    """

    name: str
    source: str
    split: int
    origin: str
    target: str
    nbytes: int


def copies_of(graph: Graph, backends: Sequence[Backend]) -> list[Copy]:
    """The copies of a divided graph, in the order in which they are made."""
    host = backends[-1].name
    return [
        Copy(copy.name, src.name, i, src.home.name if src.home else host, target, copy.span)
        for i, part in enumerate(graph.splits)
        for target in [backends[part.backend].name]
        for src, copy in zip(part.inputs, part.copies, strict=True)
    ]


def copy_kernel(copy: Tensor) -> Kernel:
    """What fills the copy of a tensor: all bytes from its first value to its last.

    The layout stays, gaps and all, so that a kernel reads the copy exactly as it would have read
    the source.
    """
    (source,) = copy.src
    here, there = copy.home, source.home
    give, take = _bytes_of(source), _bytes_of(copy)

    def run() -> None:
        if here is None:
            assert there is not None
            take[...] = there.get(give)
        elif there is None:
            here.set(take, give)
        elif not here.copy_from(give, take):
            here.set(take, there.get(give))

    in_numpy = here is None or here.is_simulated
    if copy.type != GGMLType.F16 or copy.blocks is not None or not in_numpy:
        return run
    # numpy's kernels read half floats through a float32 mirror (`Tensor.mirror`)
    half = take.view(np.float16)
    mirror = copy.mirror = np.empty(half.shape, np.float32)

    def run_both() -> None:
        run()
        mirror[...] = half

    return run_both


def _bytes_of(tensor: Tensor) -> Any:
    """Its memory, uint8 ``[span]``, in its own backend's arrays."""
    if tensor.blocks is not None:
        return tensor.blocks.reshape(-1)
    assert tensor.buffer is not None
    return tensor.buffer[tensor.view_offs : tensor.view_offs + tensor.span]
