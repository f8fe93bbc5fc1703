"""Every architecture's graph against llama.cpp's, node by node, on random tiny models.

A case is one line of `CASES`: which keys the file has besides the usual ones, and which optional
tensors (see `tiny_archs`). A prompt goes in ubatches of 8, then single tokens, then two sequences
in one batch; weights and cache are float32.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from parity import decode_watched, first_difference
from test_parity_nodes import LOGITS_LIMIT, NODE_LIMIT, PROMPT, Pair
from tiny_archs import write_arch

from llmviz.batch import Batch

MOE: dict[str, Any] = {"expert_count": 6, "expert_used_count": 2}
SIX_HEADS: dict[str, Any] = {
    "embedding_length": 96, "attention.head_count": 6, "attention.head_count_kv": 6,
}  # fmt: skip
GRANITE: dict[str, Any] = {
    "logit_scale": 6.0, "residual_scale": 0.22, "embedding_scale": 12.0, "attention.scale": 0.05,
}  # fmt: skip
GROUPS: dict[str, Any] = {"expert_group_count": 3, "expert_group_used_count": 2}
DECI: dict[str, Any] = {
    "block_count": 5, "attention.head_count": [4, 4, 0, 4, 2],
    "attention.head_count_kv": [2, 0, 0, 1, 2], "feed_forward_length": [96, 64, 32, 0, 48],
}  # fmt: skip
DEEPSEEK: dict[str, Any] = {
    "leading_dense_block_count": 1, "expert_feed_forward_length": 40, "expert_shared_count": 2,
    "expert_weights_scale": 2.5,
}  # fmt: skip
YARN: dict[str, Any] = {
    "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.yarn_beta_fast": 16.0,
    "rope.scaling.original_context_length": 16, "rope.scaling.yarn_log_multiplier": 0.7,
}  # fmt: skip
# ggml looks GELU up for a value rounded to float16. One in a thousand rounds the other way here and
# is then off by 5e-4: so are the nodes of a single token, and what follows from them.
GELU_LIMITS = (5e-4, 5e-4)  # of a node, of the logits


def case(arch: str, optional: tuple[str, ...] = ("output.weight",), **keys: Any) -> dict[str, Any]:
    """A case: the architecture, its optional tensors, and keys with ``__`` for a dot."""
    return {
        "arch": arch,
        "optional": optional,
        "keys": {k.replace("__", "."): v for k, v in keys.items()},
    }


def heads(n: int) -> dict[str, Any]:
    """Heads of `n`."""
    return {"attention.key_length": n, "attention.value_length": n}


def swa(n: int, pattern: Any = None) -> dict[str, Any]:
    """Windows of `n` tokens."""
    keys = {"attention.sliding_window": n, "attention.sliding_window_pattern": pattern}
    return {k: v for k, v in keys.items() if v is not None}


def shared_expert(n: int) -> dict[str, Any]:
    """An expert for all tokens, `n` wide."""
    return {"expert_shared_feed_forward_length": n}


def orig_ctx(n: int) -> dict[str, Any]:
    """Trained on `n` tokens before it was extended."""
    return {"rope.scaling.original_context_length": n, "rope.scaling.attn_factor": 1.2}


# fmt: off
CASES = {
    "llama": case("llama"),
    "qwen2": case("qwen2", ("output.weight", "*.bias")),
    "qwen2-fused": case("qwen2", ("*attn_qkv.weight", "*attn_?.bias")),
    "olmo2-fused": case("olmo2", ("*attn_qkv.weight",)),
    "llama-longrope": case("llama", ("rope_f*",), rope__scaling__type="longrope", **orig_ctx(128)),
    "qwen2-tied": case("qwen2", ("*attn_?.bias",)),
    "qwen3": case("qwen3", **heads(24)),
    "mistral3": case("mistral3", attention__temperature_scale=0.3, **YARN),
    "mistral3-moe": case("mistral3", ("*gate_exps*",), **MOE),
    "smollm3": case("smollm3", block_count=5),
    "gemma": case("gemma", **heads(32)),
    "gemma2": case("gemma2", **swa(8), block_count=3),
    "gemma2-capped": case("gemma2", attn_logit_softcapping=1.5, final_logit_softcapping=2.0),
    "gemma3": case("gemma3", **swa(8, 2), rope__freq_base=1e6, **heads(32)),
    "gemma3-pattern": case("gemma3", (), **swa(5, [True, True]), rope__freq_base_swa=500.0),
    "gemma3-dense": case("gemma3", final_logit_softcapping=3.0),
    "phi2": case("phi2", ("*attn_?.bias",), rope__dimension_count=8),
    "phi2-fused": case("phi2", ("*attn_qkv*",), rope__dimension_count=6),
    "phi3": case("phi3", ("*attn_qkv.weight", "rope_*"), rope__dimension_count=12, **orig_ctx(600)),
    "phi3-long": case("phi3", ("output.weight", "rope_*"), **orig_ctx(128), **swa(8)),
    "gpt2": case("gpt2", ()),
    "gptneox": case("gptneox", use_parallel_residual=True, rope__dimension_count=4),
    "gptneox-sequential": case("gptneox", use_parallel_residual=False),
    "starcoder2": case("starcoder2", ("*attn_?.bias",)),
    "falcon": case("falcon", ()),
    "falcon-40b": case("falcon", ("output.weight", "*attn_norm_2*")),
    "stablelm": case("stablelm", ("*attn_?.bias", "*ffn_norm*"), rope__dimension_count=4),
    "stablelm-12b": case("stablelm", ("*attn_[qk]_norm*",), rope__dimension_count=8),
    "bloom": case("bloom", **SIX_HEADS),
    "mpt": case("mpt", ("*.bias",), attention__clamp_kqv=0.5, attention__max_alibi_bias=8.0),
    "mpt-positions": case("mpt", ("position*", "*scales")),
    "olmo2": case("olmo2"),
    "olmo3": case("olmo2", **swa(8, 2), **YARN),
    "command-r": case("command-r", logit_scale=0.0625, rope__dimension_count=8),
    "granite": case("granite", ("*bias",), **GRANITE),
    "granite-moe": case("granite", ("*gate_exps*",), **GRANITE, **MOE, **shared_expert(40)),
    "granite-nope": case("granite", logit_scale=2.0, rope__scaling__finetuned=False),
    "qwen2moe": case("qwen2moe", ("*.bias",), **MOE, **shared_expert(40)),
    "qwen3moe": case("qwen3moe", **MOE, expert_feed_forward_length=48, **heads(32)),
    "glm4": case("glm4", rope__dimension_count=8),
    "glm4-mrope": case("glm4", rope__dimension_sections=[2, 3, 3, 0], nextn_predict_layers=1),
    "internlm2": case("internlm2"),
    "minicpm": case("minicpm", ()),
    "exaone": case("exaone", ("rope_freqs.weight", "output.weight")),
    "deci": case("deci", **DECI),
    "gpt-oss": case("gpt-oss", ("*bias",), **MOE, **swa(8), expert_feed_forward_length=48),
    "deepseek": case("deepseek", **MOE, **DEEPSEEK),
    "deepseek-groups": case("deepseek", **MOE, **DEEPSEEK, **GROUPS),
    "mixtral": case("llama", ("output.weight", "*gate_exps*"), **MOE),
}
# fmt: on


@pytest.mark.parametrize("name", CASES)
def test_every_node_is_llama_cpps(
    name: str, llamacpp: ModuleType, tmp_path: Path, figures: Callable[[str], None]
) -> None:
    path = write_arch(tmp_path / "x.gguf", **CASES[name])
    settings = {"n_ctx": 512, "n_seq_max": 2, "kv_unified": True, "swa_full": False}
    pair = Pair(llamacpp, path, **settings)
    prompt = pair.theirs.tokenize(PROMPT)[:23]
    pair.decode(prompt[:1], limit=GELU_LIMITS[0])
    gelu = any(n.desc in ("GELU", "GEGLU") for n in pair.theirs.nodes)
    node_limit, logits_limit = GELU_LIMITS if gelu else (NODE_LIMIT, LOGITS_LIMIT)
    pair.decode(prompt[1:], limit=node_limit)
    for token in (17, 300):
        pair.decode([token], limit=node_limit)
    two_sequences(pair, prompt[:12], node_limit)
    pair.theirs.close()
    figures(pair.figures())
    assert pair.worst_logits <= logits_limit


def two_sequences(pair: Pair, tokens: list[int], limit: float) -> None:
    """Sequence 0 goes on, sequence 1 begins, in one batch."""
    n = len(tokens) // 2
    at = pair.ours.memory.seq_pos_max(0) + 1
    batch = {
        "pos": [at + i for i in range(n)] + list(range(n)),
        "seq_id": [0] * n + [1] * n,
        "logits": [i % n == n - 1 for i in range(2 * n)],
    }
    pair.theirs.nodes.clear()
    assert pair.theirs.decode(tokens[: 2 * n], **batch) == 0
    nodes = decode_watched(pair.ours, Batch(token=tokens[: 2 * n], **batch))
    assert first_difference(nodes, pair.theirs.nodes, limit) == ""
    for i in (n - 1, 2 * n - 1):
        pair.worst_logits = max(pair.worst_logits, pair.logits_error(i))


@pytest.mark.parametrize("settings", [
    {"n_seq_max": 2, "kv_unified": False, "swa_full": False},
    {"n_seq_max": 2, "kv_unified": True, "swa_full": True},
    {"n_seq_max": 1, "kv_unified": True, "swa_full": False},
], ids=["streams", "full", "window"])  # fmt: skip
def test_cells_behind_the_window_are_taken_again(
    settings: dict[str, Any], llamacpp: ModuleType, tmp_path: Path
) -> None:
    """More tokens than the windows' cache has cells; then the last ones are taken back."""
    path = write_arch(tmp_path / "x.gguf", **CASES["gpt-oss"])
    pair = Pair(llamacpp, path, n_ctx=1024, n_ubatch=64, **settings)
    for start in (0, 200):
        pair.decode([3 + (7 * i) % 340 for i in range(start, start + 200)])
        assert pair.ours.memory.seq_pos_min(0) == pair.theirs.seq_pos_min(0)
    for memory in (pair.ours.memory, pair.theirs):
        assert memory.seq_rm(0, 397, -1)
    pair.decode([5, 6])
    if settings["n_seq_max"] > 1:
        two_sequences(pair, list(range(20, 32)), NODE_LIMIT)
    pair.theirs.close()
    assert pair.worst_logits <= LOGITS_LIMIT


@pytest.mark.parametrize("name", ["gemma3", "smollm3", "phi3-long", "gpt2"])
def test_moved_positions(name: str, llamacpp: ModuleType, tmp_path: Path) -> None:
    """The first half is removed and the rest moved down; keys are turned as each layer needs."""
    path = write_arch(tmp_path / "x.gguf", **CASES[name])
    pair = Pair(llamacpp, path, n_ctx=512, swa_full=True)
    pair.decode(list(range(20, 40)), limit=GELU_LIMITS[0])
    for memory in (pair.ours.memory, pair.theirs):
        memory.seq_rm(0, 0, 10)
        memory.seq_add(0, 10, -1, -10)
    assert pair.theirs.decode([7, 8]) == pair.ours.decode(Batch.get_one([7, 8])) == 0
    error = pair.logits_error(1)
    pair.theirs.close()
    assert error <= GELU_LIMITS[1]
