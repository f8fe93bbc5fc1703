"""Small graphs for tests: leaves from arrays, running a graph, random graphs with their values."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from llmviz.events import drain
from llmviz.ggml import ops
from llmviz.ggml.backends.cpu import CPU
from llmviz.ggml.graph import Graph, Tensor, new_tensor
from llmviz.ggml.sched import Sched, never
from llmviz.ggml.types import GGMLType

TYPE_OF = {
    "float32": GGMLType.F32,
    "float16": GGMLType.F16,
    "int32": GGMLType.I32,
    "int64": GGMLType.I64,
}


def leaf(array: Any, name: str = "leaf") -> Tensor:
    """A leaf that adopts `array` (numpy order)."""
    array = np.ascontiguousarray(array)
    return new_tensor(TYPE_OF[str(array.dtype)], *array.shape[::-1], name=name).adopt(array)


def graph_of(*outputs: Tensor) -> Graph:
    """The graph that computes `outputs`, in this order."""
    gf = Graph()
    for tensor in outputs:
        gf.build_forward_expand(tensor)
    return gf


def compute(*outputs: Tensor) -> list[np.ndarray]:
    """Run the graph of `outputs` on the CPU; copies of their values."""
    sched = Sched([CPU()])
    sched.alloc_graph(graph_of(*outputs), outputs)
    drain(sched.compute(never))
    return [np.array(t.array) for t in outputs]


class RandomGraph:
    """A random graph over two weights and two inputs, with what each node's value must be.

    ``expected[name]`` is computed eagerly with plain numpy in float32, each node in memory of its
    own.
    """

    N, M = 8, 4

    def __init__(self, seed: int, n_nodes: int = 25) -> None:
        rng = random.Random(seed)
        values = np.random.default_rng(seed)
        self.expected: dict[str, np.ndarray] = {}
        self.inputs: list[Tensor] = []
        self.data: dict[str, np.ndarray] = {}
        made: list[tuple[Tensor, np.ndarray]] = []
        for i in range(4):
            a = values.standard_normal((self.M, self.N), dtype=np.float32)
            if i < 2:
                made.append((leaf(a, f"w{i}"), a))
            else:
                t = new_tensor(GGMLType.F32, self.N, self.M, name=f"inp{i}", is_input=True)
                self.inputs.append(t)
                self.data[t.name] = a
                made.append((t, a))
        for i in range(n_nodes):
            t, value = self._node(rng, made)
            t.set_name(f"n{i}", rng.choice([-1, 0, 0, 1]))
            made.append((t, value))
            self.expected[t.name] = value
        self.nodes = [t for t, _ in made[4:]]
        self.outputs = rng.sample(self.nodes, min(2, n_nodes))
        self.graph = graph_of(*made_roots(self.nodes), *self.outputs)

    def _node(
        self, rng: random.Random, made: list[tuple[Tensor, np.ndarray]]
    ) -> tuple[Tensor, np.ndarray]:
        recent = made[-6:] if rng.random() < 0.7 else made
        (a, x), (b, y) = rng.choice(recent), rng.choice(made)
        kind = rng.choice(["add", "mul", "scale", "norm", "reshape", "cont", "mul_mat"])
        if kind == "add":
            return ops.add(a, b), x + y
        if kind == "mul":
            return ops.mul(a, b), x * y
        if kind == "scale":
            return ops.scale(a, 0.5), x * np.float32(0.5)
        if kind == "norm":
            return ops.rms_norm(a, 1e-5), rms_norm(x, 1e-5).astype(np.float32)
        if kind == "reshape":  # there and back: a view that a later node reads through
            return ops.reshape(ops.reshape(a, self.M, self.N), self.N, self.M), x
        if kind == "cont":  # swap the two halves of each row, through a strided view
            halves = ops.permute(ops.reshape(a, self.N // 2, 2, self.M), 0, 2, 1, 3)
            flat = ops.cont(halves, self.N, self.M)
            return flat, x.reshape(self.M, 2, -1).swapaxes(0, 1).reshape(self.M, self.N)
        square = ops.mul_mat(a, b)  # [M, M]
        wide = ops.mul_mat(ops.cont(ops.transpose(a)), ops.scale(square, 0.1))  # [M, N]
        return wide, ((y @ x.T) * np.float32(0.1)) @ x

    def set_inputs(self) -> None:
        """Write the inputs' data into their allocated memory."""
        for t in self.inputs:
            if t.array is not None:
                t.array[...] = self.data[t.name]


def made_roots(nodes: list[Tensor]) -> list[Tensor]:
    """Nodes that no other node reads: without them the graph would drop them."""
    read = {id(s) for t in nodes for s in t.src} | {id(s.root) for t in nodes for s in t.src}
    return [t for t in nodes if id(t) not in read]


def rms_norm(x: np.ndarray, eps: float) -> np.ndarray:
    """float64, over the last axis."""
    x = np.asarray(x, np.float64)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def softmax(x: np.ndarray) -> np.ndarray:
    """float64, over the last axis."""
    x = np.asarray(x, np.float64)
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
