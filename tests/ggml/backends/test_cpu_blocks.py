"""Activations in eight bits: all nodes of one shape use the same room, in any order."""

from __future__ import annotations

import numpy as np
import pytest

from llmviz.events import drain
from llmviz.ggml import dots, ops, quants
from llmviz.ggml.backends.cpu import CPU
from llmviz.ggml.graph import Graph, Tensor
from llmviz.ggml.sched import Sched
from llmviz.ggml.types import GGMLType

RNG = np.random.default_rng(2)
K, M = 64, 5


def weight(n: int) -> Tensor:
    raw = quants.quantize(RNG.standard_normal((n, K), dtype=np.float32), "Q8_0")
    leaf = Tensor(GGMLType.Q8_0, (K, n), name="w")
    return leaf.adopt_blocks(np.ascontiguousarray(raw).reshape(-1).view(np.uint8))


def product(w: Tensor, x: np.ndarray) -> np.ndarray:
    q = dots.Activations.empty(M, K, 32)
    dots.quantize_q8(x, q)
    out = np.empty((M, w.ne[1]), np.float32)
    assert w.blocks is not None
    dots.mul_mat(w.type, w.blocks, q, out)
    return out


@pytest.mark.parametrize("order", ["aabb", "abab", "abba"])
def test_products_of_two_inputs_in_turn(order: str) -> None:
    x = {name: np.empty((M, K), np.float32) for name in "ab"}
    leaf = {name: Tensor(GGMLType.F32, (K, M), name=name).adopt(x[name]) for name in "ab"}
    weights = [weight(7) for _ in order]
    nodes = [ops.mul_mat(w, leaf[name]) for w, name in zip(weights, order, strict=True)]
    graph = Graph()
    for node in nodes:
        graph.build_forward_expand(node)
    sched = Sched([CPU()])
    sched.alloc_graph(graph, nodes)
    for _ in range(2):  # what a first run left in the room is not taken for the second's
        for values in x.values():
            values[...] = RNG.standard_normal((M, K), dtype=np.float32)
        drain(sched.compute(lambda name: False))
        for w, name, node in zip(weights, order, nodes, strict=True):
            np.testing.assert_array_equal(node.array, product(w, x[name]))
