"""Graphs on the CUDA backend over the shim, and the same on the CPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from llmviz.events import drain
from llmviz.ggml.alloc import Allocator
from llmviz.ggml.backends.backend import BindScope
from llmviz.ggml.backends.cpu import CPU
from llmviz.ggml.graph import Tensor, new_tensor
from llmviz.ggml.sched import Sched, never
from llmviz.ggml.types import GGMLType
from tests.ggml import graphs

ON_GPU = bool(os.environ.get("LLMVIZ_GPU"))
"""Whether the same tests run on a real device; ``make test-gpu`` sets it."""

SLACK = 20 if ON_GPU else 1
"""A device joins products and sums, and has functions of its own: so many times the rounding."""

Leaf = Callable[[Any], Tensor]
Build = Callable[[Leaf], Sequence[Tensor]]


def leaf_on(cuda: Any, array: Any) -> Tensor:
    """A leaf in the device's memory with the values of `array`."""
    array = np.ascontiguousarray(array)
    type_ = graphs.TYPE_OF[str(array.dtype)]
    leaf = new_tensor(type_, *array.shape[::-1], name="leaf")
    leaf.home = cuda
    buffer = cuda.alloc(array.nbytes, "weights")
    cuda.set(buffer, array.reshape(-1).view(np.uint8))
    leaf.bind(buffer)
    return leaf


def blocks_on(cuda: Any, type_: GGMLType, raw: np.ndarray, k: int) -> Tensor:
    """A weight in the device's memory: blocks uint8[n, row_bytes] of rows of k values."""
    leaf = new_tensor(type_, k, len(raw), name=f"weight of {type_.name}")
    leaf.home, leaf.is_weight = cuda, True
    buffer = cuda.alloc(raw.nbytes, "weights")
    cuda.set(buffer, raw.reshape(-1))
    return leaf.adopt_blocks(buffer)


def compute_on(cuda: Any, outputs: Sequence[Tensor], unseen: bool = False) -> list[np.ndarray]:
    """Run the graph of `outputs` on the device alone.

    With `unseen` as when nobody watches; the graph then runs three times.
    """
    gf = graphs.graph_of(*outputs)
    for node in gf.nodes:
        node.home = cuda
    allocator = Allocator(cuda)
    allocator.alloc(gf, outputs)
    scope = BindScope()
    for node in gf.nodes:
        assert cuda.supports(node), node
    kernels = [cuda.bind(node, scope) for node in gf.nodes]
    run = cuda.bind_unseen(gf.nodes, kernels, gf) if unseen else [k for k in kernels if k]
    for _ in range(3 if unseen else 1):
        for kernel in run:
            kernel()
    return [t.read() for t in outputs]


def both(cuda: Any, build: Build) -> list[tuple[np.ndarray, np.ndarray]]:
    """(on the device, on the CPU) for every output of `build(leaf)`."""
    there = compute_on(cuda, build(lambda array: leaf_on(cuda, array)))
    outputs = build(graphs.leaf)
    sched = Sched([CPU()])
    sched.alloc_graph(graphs.graph_of(*outputs), outputs)
    drain(sched.compute(never))
    return list(zip(there, (np.array(t.array) for t in outputs), strict=True))
