"""The graph builder: when a built graph serves the next ubatch, and what its blocks refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import llmviz
from llmviz.batch import Batch
from llmviz.context import Context
from llmviz.ggml.graph import new_tensor
from llmviz.ggml.types import GGMLType
from llmviz.model.cparams import CParams
from llmviz.model.graph import GraphContext
from llmviz.model.hparams import HParams


@pytest.fixture(scope="module")
def model(tiny_model: Callable[..., str]) -> llmviz.Model:
    return llmviz.load(tiny_model())


def reused(ctx: Context, *batches: Batch | Sequence[int]) -> list[list[bool]]:
    """For each batch, for each of its ubatches: was the graph used again?"""
    answers = []
    for batch in batches:
        batch = batch if isinstance(batch, Batch) else Batch.get_one(batch)
        seen: list[bool] = []
        for event in ctx.decode_steps(batch, want=lambda name: False):
            if event.name == "can_reuse":
                seen.append(True)
            elif event.name == "build_graph" and event.kind == "enter":
                seen.append(False)
        answers.append(seen)
    return answers


def test_single_tokens_use_one_graph(model: llmviz.Model) -> None:
    ctx = model.context(n_ctx=512)
    assert reused(ctx, [1, 2, 3], [4], [5], [6]) == [[False], [False], [True], [True]]
    assert ctx.n_reused == 2


def test_ubatches_of_one_size_use_one_graph(model: llmviz.Model) -> None:
    """The last one has an output, so it is another graph; a rest of another size, too."""
    ctx = model.context(n_ctx=256, n_ubatch=4)
    assert reused(ctx, range(3, 15)) == [[False, True, False]]
    ctx = model.context(n_ctx=256, n_ubatch=4)
    assert reused(ctx, range(3, 16)) == [[False, True, True, False]]


def test_until_the_padded_window_grows(model: llmviz.Model) -> None:
    """n_kv is a multiple of 256: cell 256 needs a wider graph."""
    ctx = model.context(n_ctx=512)
    ctx.decode(Batch.get_one([3 + i % 300 for i in range(254)]))
    answers = reused(ctx, [4], [5], [6], [7])
    assert answers == [[False], [True], [False], [True]]


def test_another_number_of_outputs_is_another_graph(model: llmviz.Model) -> None:
    ctx = model.context(n_ctx=256)
    two = Batch(token=[4, 5], logits=[True, True])
    one = Batch(token=[4, 5], logits=[True, False])
    other = Batch(token=[4, 5], logits=[False, True])
    assert reused(ctx, two, one, other, two) == [[False], [False], [True], [False]]


def test_a_graph_that_is_used_again_gives_the_same(model: llmviz.Model) -> None:
    """Logits after reuse equal those of a fresh context that builds every graph."""
    ctx = model.context(n_ctx=256)
    for token in (1, 2, 3):
        ctx.decode(Batch.get_one([token]))
    assert ctx.n_reused == 2
    fresh = model.context(n_ctx=256)
    fresh.decode(Batch.get_one([1, 2]))
    fresh.decode(Batch.get_one([3]))
    np.testing.assert_allclose(ctx.get_logits_ith(-1), fresh.get_logits_ith(-1), atol=1e-5)


def test_streams_are_part_of_the_graph(model: llmviz.Model) -> None:
    """Without a unified cache the window's place is built in: another sequence, another graph."""
    ctx = model.context(n_ctx=512, n_seq_max=2)
    batches = [Batch(token=[5], pos=[i // 2], seq_id=[i % 2]) for i in range(4)]
    assert reused(ctx, *batches) == [[False]] * 4
    assert reused(ctx, Batch(token=[5], pos=[2], seq_id=[1])) == [[True]]
    ctx = model.context(n_ctx=512, n_seq_max=2, kv_unified=True)
    assert reused(ctx, *batches) == [[False], [True], [True], [True]]


def test_reuse_counts_are_llama_cpps(
    model: llmviz.Model, llamacpp: object, tiny_model: Callable[..., str]
) -> None:
    steps = [[1, 2, 3], [4], [5], [6, 7], [8, 9], [10], [11]]
    ctx = model.context(n_ctx=256)
    with llamacpp.Reference(tiny_model(), n_ctx=256) as theirs:  # type: ignore[attr-defined]
        for tokens in steps:
            assert theirs.decode(tokens) == ctx.decode(Batch.get_one(tokens)) == 0
        assert ctx.n_reused == theirs.n_reused


def builder(**hp: object) -> GraphContext:
    class Params:
        hparams = HParams(n_embd_head_k=16, **hp)  # type: ignore[arg-type]
        cparams = CParams()
        weights = None

        class ubatch:
            n_tokens = 1

    return GraphContext(Params())  # type: ignore[arg-type]


def test_scores_are_scaled_by_the_root_of_the_head(model: llmviz.Model) -> None:
    assert builder().kq_scale() == 0.25
    assert builder(f_attention_scale=0.2).kq_scale() == 0.2


def test_norms() -> None:
    """RMS with a weight and a bias: three nodes, the last one without a name of its own."""
    g = builder(f_norm_rms_eps=1e-6)
    x, w, b = (new_tensor(GGMLType.F32, 4, name=n) for n in "xwb")
    out = g.build_norm(x, w, b, "rms", 2)
    assert (out.op, out.src[0].op, out.src[0].name) == ("ADD", "MUL", "norm_w-2")
    norm = out.src[0].src[0]
    assert (norm.op, norm.name, norm.params) == ("RMS_NORM", "norm-2", {"eps": 1e-6})
    assert g.build_norm(x, None, None, "rms", 2).op == "RMS_NORM"
    assert g.build_norm(x, None, None, "layer", 2).op == "NORM"
    with pytest.raises(ValueError, match="group"):
        g.build_norm(x, w, None, "group", 0)
