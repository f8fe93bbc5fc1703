"""Mixtures of experts whose matrices are kept as blocks, beside llama.cpp's, node by node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from test_parity_nodes import PROMPT, Pair
from tiny_archs import write_arch

from llmviz.ggml.types import GGMLType

MOE = {"expert_count": 6, "expert_used_count": 2, "feed_forward_length": 96}


@pytest.mark.parametrize(
    ("arch", "kind"),
    [("llama", "Q4_0"), ("qwen3moe", "Q8_0"), ("qwen2moe", "Q4_1"), ("qwen3moe", "Q5_1")],
)
def test_experts_in_blocks(
    arch: str,
    kind: str,
    tmp_path: Path,
    llamacpp: ModuleType,
    figures: Callable[[str], None],
) -> None:
    """Rows are rounded as ggml rounds them, so nodes differ only in the order of float sums."""
    own = {"expert_feed_forward_length": 32, "expert_shared_feed_forward_length": 64}
    keys = {**MOE, **(own if arch != "llama" else {})}
    optional = ("output.weight", "*_exps.weight")
    path = write_arch(tmp_path / "moe.gguf", arch, keys=keys, optional=optional, weight_type=kind)
    p = Pair(llamacpp, path, "quantized")
    try:
        layer = p.model.weights.layers[0]
        for leaf in (layer.ffn_up_exps, layer.ffn_gate_exps, layer.ffn_down_exps):
            assert (leaf.type, leaf.array) == (GGMLType[kind], None)
        tokens = p.theirs.tokenize(PROMPT)
        p.decode(tokens[:6], limit=2e-3)
        p.decode(tokens[6:7], limit=2e-3)
        figures(p.figures())
        assert np.isfinite(p.ours.get_logits_ith(-1)).all()
        assert p.worst_logits <= 5e-4
    finally:
        p.theirs.close()
