"""Context parameters: llama.h's names and defaults, clamps, padding, RoPE settings."""

from __future__ import annotations

import math
from typing import Any

import pytest

from llmviz.context_params import ContextParams, resolve
from llmviz.errors import LlmvizError, UnsupportedError
from llmviz.model.cparams import CParams
from llmviz.model.hparams import HParams


def settle(hp: dict[str, Any] | None = None, **params: Any) -> CParams:
    hparams = HParams(**{"n_ctx_train": 2048, "n_ctx_orig_yarn": 2048, **(hp or {})})
    return resolve(ContextParams.from_kwargs(params), hparams)


def test_defaults() -> None:
    """llama_context_default_params, but n_ctx 0 and one sequence's worth of threads."""
    p = ContextParams()
    assert (p.n_ctx, p.n_batch, p.n_ubatch, p.n_seq_max) == (0, 2048, 512, 1)
    assert (p.rope_freq_base, p.rope_freq_scale, p.yarn_orig_ctx) == (0.0, 0.0, 0)
    assert p.yarn_ext_factor == p.yarn_attn_factor == p.yarn_beta_fast == p.yarn_beta_slow == -1.0
    assert (p.type_k, p.type_v, p.embeddings, p.kv_unified) == ("f16", "f16", False, False)
    assert p.abort_callback is p.rope_scaling_type is p.attention_type is None


def test_defaults_and_names_are_llama_cpps(llamacpp: Any) -> None:
    theirs = llamacpp.capi.api()[3]
    for name in (
        "n_batch", "n_ubatch", "n_seq_max", "n_outputs_max", "rope_freq_base", "rope_freq_scale",
        "yarn_ext_factor", "yarn_attn_factor", "yarn_beta_fast", "yarn_beta_slow", "yarn_orig_ctx",
        "embeddings", "kv_unified",
    ):  # fmt: skip
        assert getattr(ContextParams(), name) == getattr(theirs, name), name


@pytest.mark.parametrize(
    ("asked", "got"),
    [((8, 16), (8, 8)), ((16, 8), (16, 8)), ((16, 0), (16, 16)), ((2048, 512), (256, 256)),
     ((512, 2048), (256, 256))],
)  # fmt: skip
def test_batch_sizes(asked: tuple[int, int], got: tuple[int, int]) -> None:
    """What llama.cpp b11739 made of them at n_ctx 256."""
    c = settle(n_ctx=256, n_batch=asked[0], n_ubatch=asked[1])
    assert (c.n_batch, c.n_ubatch) == got


@pytest.mark.parametrize("asked", [(0, 0), (0, 16)])
def test_no_batch_size(asked: tuple[int, int]) -> None:
    with pytest.raises(LlmvizError, match="n_batch"):
        settle(n_ctx=256, n_batch=asked[0], n_ubatch=asked[1])


@pytest.mark.parametrize(
    ("params", "n_ctx", "n_ctx_seq"),
    [
        ({}, 2048, 2048),
        ({"n_ctx": 1}, 256, 256),
        ({"n_ctx": 256}, 256, 256),
        ({"n_ctx": 257}, 512, 512),
        ({"n_ctx": 1024, "n_seq_max": 4}, 1024, 256),
        ({"n_ctx": 300, "n_seq_max": 2}, 512, 256),
        ({"n_ctx": 256, "n_seq_max": 3}, 768, 256),
        ({"n_ctx": 300, "n_seq_max": 2, "kv_unified": True}, 512, 512),
    ],
)
def test_cells_are_padded_to_256(params: dict[str, Any], n_ctx: int, n_ctx_seq: int) -> None:
    c = settle(**params)
    assert (c.n_ctx, c.n_ctx_seq) == (n_ctx, n_ctx_seq)


def test_no_size_of_the_context_anywhere() -> None:
    with pytest.raises(LlmvizError, match="n_ctx"):
        settle({"n_ctx_train": 0})


@pytest.mark.parametrize(("n", "ok"), [(0, True), (1, True), (256, True), (257, False)])
def test_number_of_sequences(n: int, ok: bool) -> None:
    if ok:
        assert settle(n_ctx=256, n_seq_max=n, kv_unified=True).n_seq_max == max(1, n)
    else:
        with pytest.raises(LlmvizError, match=r"n_seq_max = 257.*256"):
            settle(n_ctx=256, n_seq_max=n)


def test_threads() -> None:
    c = settle(n_threads=3)
    assert (c.n_threads, c.n_threads_batch) == (3, 3)
    assert settle(n_threads=3, n_threads_batch=5).n_threads_batch == 5
    assert settle().n_threads >= 1


def test_attention() -> None:
    assert settle().causal_attn and settle(attention_type="causal").causal_attn
    assert not settle(attention_type="non-causal").causal_attn
    assert not settle({"causal_attn": False}).causal_attn
    # a batch of an encoder is not bounded by the context
    assert settle(n_ctx=256, n_batch=512, attention_type="non-causal").n_batch == 512


# RoPE --------------------------------------------------------------------------------------------


def test_rope_follows_the_model() -> None:
    hp = {"rope_freq_base_train": 5e5, "rope_freq_scale_train": 0.25, "rope_attn_factor": 1.25}
    c = settle(hp)
    assert (c.rope_freq_base, c.rope_freq_scale, c.rope_scaling_type) == (5e5, 0.25, "linear")
    assert (c.yarn_ext_factor, c.yarn_attn_factor) == (0.0, 1.25)
    assert (c.yarn_beta_fast, c.yarn_beta_slow, c.n_ctx_orig_yarn) == (32.0, 1.0, 2048)


def test_what_the_user_says_comes_first() -> None:
    hp = {"rope_freq_base_train": 5e5, "rope_freq_scale_train": 0.25}
    c = settle(hp, rope_freq_base=1e4, rope_freq_scale=0.5, yarn_orig_ctx=64, yarn_beta_fast=16.0)
    assert (c.rope_freq_base, c.rope_freq_scale) == (1e4, 0.5)
    assert (c.n_ctx_orig_yarn, c.yarn_beta_fast, c.yarn_beta_slow) == (64, 16.0, 1.0)


def test_no_scaling_means_a_factor_of_1() -> None:
    assert settle({"rope_freq_scale_train": 0.25}, rope_scaling_type="none").rope_freq_scale == 1.0
    hp = {"rope_freq_scale_train": 0.25, "rope_scaling_type_train": "none"}
    assert settle(hp).rope_freq_scale == 1.0
    assert settle(hp, rope_scaling_type="linear").rope_freq_scale == 0.25


def test_yarn() -> None:
    """Extrapolation on; the magnitude 1 + 0.1 ln 4 is taken out, for the rotation puts it in."""
    hp = {"rope_scaling_type_train": "yarn", "rope_freq_scale_train": 0.25}
    c = settle(hp)
    assert c.yarn_ext_factor == 1.0
    assert c.yarn_attn_factor == pytest.approx(1.0)
    assert settle({**hp, "rope_attn_factor": 1.25}).yarn_attn_factor == pytest.approx(1.25)
    assert settle(hp, yarn_ext_factor=0.5).yarn_ext_factor == 0.5
    assert settle(hp, yarn_ext_factor=0.0).yarn_attn_factor == 1.0


def test_yarn_that_stretches_nothing() -> None:
    """A frequency scale of 2 is a factor of one half: no magnitude, but ln(1/2) is taken out."""
    c = settle(rope_scaling_type="yarn", rope_freq_scale=2.0)
    assert c.yarn_attn_factor == pytest.approx(1 / (1 + 0.1 * math.log(0.5)))


# refusals ----------------------------------------------------------------------------------------


def test_unknown_names() -> None:
    with pytest.raises(LlmvizError, match=r"'n_cxt'.*known: n_ctx, n_batch"):
        settle(n_cxt=256)


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"n_ctx": "many"}, "n_ctx.*'many'.*int"),
        ({"n_ctx": 256.5}, r"n_ctx.*256\.5"),
        ({"n_ctx": -1}, "n_ctx.*negative"),
        ({"n_batch": True}, "n_batch.*True.*int"),
        ({"n_ubatch": None}, "n_ubatch.*None"),
        ({"rope_freq_base": "x"}, "rope_freq_base.*float"),
        ({"rope_freq_scale": math.nan}, "rope_freq_scale.*finite"),
        ({"rope_freq_base": math.inf}, "rope_freq_base.*finite"),
        ({"embeddings": 1}, "embeddings.*bool"),
        ({"kv_unified": "yes"}, "kv_unified.*bool"),
        ({"type_k": 1}, "type_k.*str"),
    ],
)
def test_values_of_the_wrong_kind(params: dict[str, Any], reason: str) -> None:
    with pytest.raises(LlmvizError, match=reason):
        settle(**params)


@pytest.mark.parametrize(
    ("params", "supported"),
    [
        ({"type_k": "q4_K"}, "f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0, q5_1"),
        ({"type_v": "i8"}, "f32, f16, bf16"),
        ({"flash_attn_type": "enabled"}, "auto, disabled"),
        ({"attention_type": "sideways"}, "causal, non-causal"),
        ({"rope_scaling_type": "wavy"}, "none, linear, yarn, longrope"),
    ],
)
def test_kinds_that_are_not_there(params: dict[str, Any], supported: str) -> None:
    with pytest.raises(UnsupportedError, match=f"{next(iter(params))}.*supported: {supported}"):
        settle(**params)


def test_quantized_caches() -> None:
    wide = {"n_embd_head_k": 64, "n_embd_head_v": 64}
    c = settle(type_k="q8_0", type_v="q4_1", hp=wide)
    assert (c.type_k, c.type_v, c.flash_attn) == ("q8_0", "q4_1", True)
    assert not settle(type_k="q8_0", type_v="bf16", hp=wide).flash_attn
    with pytest.raises(LlmvizError, match="quantized V cache requires flash_attn"):
        settle(type_v="q8_0", flash_attn_type="disabled", hp=wide)
    for name, what in (("type_k", "n_embd_head_k = 48"), ("type_v", "n_embd_head_v = 48")):
        with pytest.raises(LlmvizError, match=f"block size 32 does not divide {what}"):
            settle(**{name: "iq4_nl"}, hp={"n_embd_head_k": 48, "n_embd_head_v": 48})


def test_an_int_may_stand_for_a_float_and_a_whole_float_for_an_int() -> None:
    assert settle(rope_freq_base=50000).rope_freq_base == 50000
    assert settle(n_ctx=512.0).n_ctx == 512
