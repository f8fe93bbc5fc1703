"""Products with experts kept as blocks: each chosen expert's rows, exactly as one matrix's."""

from __future__ import annotations

import numpy as np
import pytest

from llmviz.events import drain
from llmviz.ggml import dots, ops, quants
from llmviz.ggml.backends import kernels
from llmviz.ggml.backends.cpu import CPU
from llmviz.ggml.graph import Graph, Tensor
from llmviz.ggml.sched import Sched
from llmviz.ggml.types import GGMLType

RNG = np.random.default_rng(11)
N_EXPERT, N, K = 5, 7, 256


def leaf(array: np.ndarray) -> Tensor:
    """A float32 or int32 leaf with these values."""
    kind = GGMLType.F32 if array.dtype == np.float32 else GGMLType.I32
    return Tensor(kind, array.shape[::-1], name="x").adopt(np.ascontiguousarray(array))


@pytest.mark.parametrize("compiled", [False, True], ids=["numpy", "compiled"])
@pytest.mark.parametrize("kind", ["Q4_0", "Q4_K"])
def test_each_row_meets_its_experts(
    monkeypatch: pytest.MonkeyPatch, kind: str, compiled: bool
) -> None:
    monkeypatch.setenv("LLMVIZ_KERNELS", "on" if compiled else "off")
    if compiled and not kernels.usable():
        pytest.skip("no compiled kernels here")
    w = RNG.standard_normal((N_EXPERT, N, K), dtype=np.float32)
    raw = np.ascontiguousarray(quants.quantize(w, kind)).reshape(-1).view(np.uint8)
    experts = Tensor(GGMLType[kind], (K, N, N_EXPERT), name="experts").adopt_blocks(raw)
    assert experts.blocks is not None
    group = dots.group_of(experts.type)
    for n_tokens, n_used, n_rows in ((1, 2, 1), (1, 2, 2), (6, 3, 1), (6, 2, 2)):
        x = RNG.standard_normal((n_tokens, n_rows, K), dtype=np.float32)
        chosen = np.array([RNG.permutation(N_EXPERT)[:n_used] for _ in range(n_tokens)], np.int32)
        node = ops.mul_mat_id(experts, leaf(x), leaf(chosen))
        graph = Graph()
        graph.build_forward_expand(node)
        sched = Sched([CPU()])
        sched.alloc_graph(graph, [node])
        drain(sched.compute(lambda name: False))
        for t in range(n_tokens):
            for j, e in enumerate(chosen[t]):
                q = dots.Activations.empty(1, K, group)
                (dots.quantize_q8 if group == 32 else dots.quantize_q8_k)(x[t, [j % n_rows]], q)
                wanted = np.empty((1, N), np.float32)
                dots.mul_mat(experts.type, experts.blocks[e * N : (e + 1) * N], q, wanted)
                assert node.array is not None
                np.testing.assert_array_equal(node.array[t, j], wanted[0])
    assert experts.array is None  # nothing was decoded
