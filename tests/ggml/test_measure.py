"""Statistics of nodes: the same however the graph runs, of finite values alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from llmviz.ggml.measure import FIELDS, NodeStatistics, measure


def test_plain() -> None:
    x = np.array([[1.0, -2.0], [4.0, 5.0]], np.float32)
    assert measure(x) == (0, 0, -2.0, 5.0, 2.0, pytest.approx(np.std(x)))


def test_others_are_counted_and_left_out() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 3.0, 5.0], np.float32)
    assert measure(x) == (1, 2, 3.0, 5.0, 4.0, 1.0)
    nothing = measure(np.array([np.nan], np.float32))
    assert nothing[:2] == (1, 0) and all(np.isnan(f) for f in nothing[2:])


@pytest.mark.parametrize("compiled", [False, True])
def test_of_every_node(
    compiled: bool, tiny_model: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unwatched in one stretch, watched one by one, timed: one table, and the nodes' own values."""
    import llmviz
    from llmviz.batch import Batch
    from llmviz.ggml.backends import kernels
    from llmviz.ggml.sched import NodeTimes

    if compiled:
        monkeypatch.delenv("LLMVIZ_KERNELS", raising=False)
        if not kernels.usable():
            pytest.skip("no numba, or a processor without AVX2 and NEON")
    model = llmviz.load(tiny_model(n_embd=128, n_ff=256, weight_type="Q4_0"), weights="quantized")
    tables = []
    for how in ("unwatched", "watched", "timed"):
        ctx = model.context(n_ctx=64, n_threads=1)
        ctx.sched.statistics = stats = NodeStatistics()
        ctx.sched.times = NodeTimes() if how == "timed" else None
        for tokens in ([3, 4, 5], [6]):
            seen = {}
            want = (lambda name: False) if how == "unwatched" else None
            for event in ctx.decode_steps(Batch.get_one(tokens), want):
                if event.kind == "node":
                    seen[event.about] = measure(event.value)
        nodes = ctx.sched.graph.nodes
        for node, row in zip(nodes, stats.table, strict=True):
            if node in seen and not np.isnan(row[0]):
                np.testing.assert_allclose(row, seen[node], rtol=1e-9, atol=1e-12)
        assert np.array_equal(np.isnan(stats.table[:, 0]), [n.is_view for n in nodes])
        tables.append(stats.table)
    for table in tables[1:]:
        np.testing.assert_allclose(table, tables[0], rtol=1e-9, atol=1e-12)
    found = stats.of("result_output")
    assert found is not None and found["max"] == ctx.get_logits_ith(-1).max()
    assert tuple(found) == FIELDS and stats.of("no such node") is None
    if compiled:  # a value that is no number is counted there too
        for event in ctx.decode_steps(Batch.get_one([7]), lambda n: n == "l_out-0"):
            if event.kind == "node":
                event.value = np.full_like(event.value, np.nan)
        assert stats.of("result_output")["nan"] == len(ctx.get_logits_ith(-1))
