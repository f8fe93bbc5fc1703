"""Shares of a logit: they sum to it, and they are what leaving the head out shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_archs import write_arch

import llmviz
from llmviz.errors import LlmvizError
from llmviz.sampling import Chain, Greedy
from llmviz.trace import Debugger
from llmviz.trace.attribution import attribute, attribution_names
from llmviz.trace.shares import split


def _run(model: Any, prompt: Any, n: int) -> Debugger:
    dbg = Debugger(model, prompt, Chain([Greedy()]), n_predict=n, n_ctx=256)
    dbg.recorder.ask(model, attribution_names(model).__contains__)
    for _ in range(n):
        dbg.next_token()
    return dbg


@pytest.mark.parametrize("variant", ["dense", "tied", "gqa_1", "qkv_bias"])
@pytest.mark.parametrize("n", [1, 3])
def test_shares_sum_to_the_logit(tiny_model: Any, variant: str, n: int) -> None:
    model = llmviz.load(tiny_model(variant=variant))
    dbg = _run(model, [1, 262, 270, 281], n)
    logits = dbg.ctx.get_logits_ith(-1)
    for token in (dbg.tokens[-1].id, 5, 200):
        share = attribute(model, dbg.recorder, token)
        assert share.logit == pytest.approx(float(logits[token]), rel=1e-4, abs=1e-4)
        assert share.heads.shape == (model.hparams.n_layer, model.hparams.n_head())


MOE: dict[str, Any] = {
    "expert_count": 4,
    "expert_used_count": 2,
    "expert_feed_forward_length": 32,
    "expert_shared_count": 1,
    "leading_dense_block_count": 1,
    "attention.sliding_window": 8,
}


@pytest.mark.parametrize("arch", ["llama", "deepseek", "gpt-oss", "qwen3moe", "exaone"])
def test_experts_have_a_share(tmp_path: Path, arch: str) -> None:
    """With a shared expert, dense layers and sinks: where the stream is a plain sum."""
    model = llmviz.load(write_arch(tmp_path / "x.gguf", arch, keys=MOE, optional=("*gate_exps*",)))
    dbg = _run(model, [1, 262, 270, 281], 2)
    token = dbg.tokens[-1].id
    share = attribute(model, dbg.recorder, token)
    logit = float(dbg.ctx.get_logits_ith(-1)[token])
    assert share.logit == pytest.approx(logit, rel=1e-4, abs=1e-4)
    assert np.abs(share.ffn).min() > 0


def test_the_bias_of_the_logits_counts(tmp_path: Path) -> None:
    model = llmviz.load(write_arch(tmp_path / "x.gguf", "qwen2", optional=("output*", "*.bias")))
    dbg = _run(model, [1, 262, 270], 1)
    share = attribute(model, dbg.recorder, 17)
    assert share.logit == pytest.approx(float(dbg.ctx.get_logits_ith(-1)[17]), rel=1e-4, abs=1e-4)
    assert share.biases != 0


def test_layers_without_a_half_are_refused(tmp_path: Path) -> None:
    for keys, why in (
        ({"attention.head_count_kv": [2, 0]}, "layer 1 of this model lacks the 4 heads"),
        ({"attention.head_count": [4, 2]}, "layer 1 of this model lacks the 4 heads"),
        ({"block_count": 3, "feed_forward_length": [96, 0, 96]}, "layer 1 .* a feed-forward"),
    ):
        model = llmviz.load(write_arch(tmp_path / "x.gguf", "deci", keys=keys))
        dbg = _run(model, [1, 262, 270, 281], 1)
        with pytest.raises(LlmvizError, match=why):
            split(dbg)


def test_the_last_layers_heads_are_exact(tiny_model: Any) -> None:
    """A head of the last layer has only the direct path: without it the unscaled sum falls by its
    share."""
    model = llmviz.load(tiny_model())
    dbg = _run(model, [1, 262, 270, 281], 1)
    token = dbg.tokens[-1].id
    share = attribute(model, dbg.recorder, token)
    last = model.hparams.n_layer - 1
    kept = dbg.recorder.value(f"l_out-{last}")
    assert kept is not None
    final = kept.array[-1].astype(np.float64)
    weights = model.weights
    assert weights is not None
    wo, norm, out = weights.layers[last].wo, weights.output_norm, weights.output
    assert wo is not None and norm is not None and out is not None
    kqv = dbg.recorder.value(f"kqv_out-{last}")
    assert kqv is not None
    width = model.hparams.n_embd_head_v
    for head in range(model.hparams.n_head()):
        part = np.zeros_like(kqv.array[-1])
        part[head * width : (head + 1) * width] = kqv.array[-1][head * width : (head + 1) * width]
        wrote = wo.array @ part  # what this head added to the residual stream
        scale = 1 / np.sqrt((final**2).mean() + model.hparams.f_norm_rms_eps)
        want = float((wrote * scale * norm.array) @ out.array[token])
        assert share.heads[last, head] == pytest.approx(want, rel=1e-4, abs=1e-5)


def test_what_is_missing_is_named(tiny_model: Any) -> None:
    model = llmviz.load(tiny_model())
    dbg = Debugger(model, [1, 262], Chain([Greedy()]), n_predict=1, n_ctx=256)
    dbg.next_token()
    with pytest.raises(LlmvizError, match=r"l_out-\d+ was not kept"):
        attribute(model, dbg.recorder, 5)
    with pytest.raises(LlmvizError, match="no token 99999"):
        attribute(model, dbg.recorder, 99999)


def test_the_head_that_says_paris(smollm2_path: Path, figures: Any) -> None:
    """The head with the largest share is the one without which the answer is lost."""
    model = llmviz.load(smollm2_path)
    dbg = _run(model, "The capital of France is", 1)
    paris = dbg.tokens[-1]
    assert paris.text == " Paris"
    share = attribute(model, dbg.recorder, paris.id)
    assert share.logit == pytest.approx(float(dbg.ctx.get_logits_ith(-1)[paris.id]), rel=1e-3)
    layer, head, value = share.top_heads(1)[0]
    figures(f"' Paris' 17.37: layer {layer} head {head} gives {value:.2f}")
    assert (layer, head) == (23, 4)
