"""Files of single architectures that llama.cpp loads and then aborts with, or that it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_archs import write_arch

import llmviz
from llmviz.errors import GGUFError

MOE: dict[str, Any] = {
    "expert_count": 4,
    "expert_used_count": 2,
    "expert_feed_forward_length": 32,
    "expert_shared_count": 1,
    "leading_dense_block_count": 1,
    "attention.sliding_window": 8,
}
NO_EXPERTS = {**MOE, "expert_count": None, "expert_used_count": None}
WIDE = {"attention.key_length": 24, "attention.value_length": 24}


@pytest.mark.parametrize(
    ("arch", "keys", "message"),
    [
        ("deepseek", NO_EXPERTS, r"deepseek\.expert_count: 0; this architecture needs experts"),
        ("deepseek", {**MOE, "expert_shared_count": None}, r"deepseek\.expert_shared_count"),
        ("deepseek", {**MOE, "expert_used_count": [1, 2]}, r"layers differ in expert_used_count"),
        ("deepseek", {**MOE, "expert_used_count": 5}, r"5 experts used of only 4"),
        ("gpt-oss", NO_EXPERTS, r"gpt-oss\.expert_count: 0; this architecture needs experts"),
        ("gpt-oss", {**MOE, "expert_feed_forward_length": None}, "expert_feed_forward_length"),
        (
            "gpt-oss",
            {**MOE, "attention.sliding_window": None},
            r"gpt-oss\.attention\.sliding_window",
        ),
        ("gpt-oss", {**MOE, "attention.sliding_window": 0}, r"sliding_window: 0; a window sees"),
        ("gpt-oss", {**MOE, "rope.dimension_count": 8}, r"invalid n_rot: 8, expected 16"),
        ("deci", {"feed_forward_length": [96, 0]}, r"the last layer, 1, has no feed-forward"),
        ("deci", {"attention.head_count": [0, 4]}, r"layer 0 has 0 heads"),
        ("deci", {"attention.head_count_kv": [2, 3]}, r"layer 1: 3 key/value heads do not divide"),
        ("minicpm", {"logit_scale": 0.0}, r"minicpm\.logit_scale: 0; the logits are divided"),
        ("exaone", {"rope.dimension_count": 8}, r"invalid n_rot: 8, expected 16"),
        ("deepseek", {**MOE, **WIDE}, r"blk\.0\.attn_q\.weight' makes rows of 64; .* need 96"),
        ("internlm2", WIDE, r"4 query and 2 key/value heads of 24 need 96"),
        ("falcon", WIDE, r"attn_qkv\.weight' makes rows of 160; .* of 24 need 192"),
    ],
)
def test_refused(tmp_path: Path, arch: str, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(GGUFError, match=message):
        llmviz.load(write_arch(tmp_path / "x.gguf", arch, keys=keys))
