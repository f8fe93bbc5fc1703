"""Tiny models with one trait each and known logits: a sweep over the folder of cases.

The same traits are built and compared with llama.cpp in ``test_parity_nodes.py``, without that
folder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llmviz
from llmviz.batch import Batch
from llmviz.errors import LlmvizError, UnsupportedError

NAMES = (
    "all_f16", "attn_q_bias", "base", "deci_kv_array", "embd_bf16", "embd_f16", "embd_q4_0",
    "embd_q4_1_tied", "embd_q8_0", "gqa_1kv", "head_dim_16", "mha_4kv", "norm_eps_large",
    "one_layer", "rope_dim_half", "rope_dim_wrong_16", "rope_freq_base_500000", "rope_linear_4",
    "rope_scale_linear_legacy_4", "rope_scaling_none_ignores_factor", "tied",
)  # fmt: skip
LATER: dict[str, str] = {}
EXACT = 1e-5  # largest difference of a logit where llama.cpp rounds nothing


@pytest.fixture(scope="module")
def values(cases_dir: Path) -> dict[str, Any]:
    return json.loads((cases_dir / "graph_values.json").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_logits_of_a_case(name: str, cases_dir: Path, values: dict[str, Any]) -> None:
    case = values["models"][name]
    path = cases_dir / "graph" / f"{name}.gguf"
    if not case["accept"]:
        with pytest.raises(LlmvizError, match=r"n_rot|rope\.dimension_count"):
            llmviz.load(path)
        return
    try:
        model = llmviz.load(path, weights="f32")
    except UnsupportedError as error:
        assert error.what == "architecture" and error.name == LATER.get(name)
        pytest.skip(str(error))
    ctx = model.context(n_ctx=256, type_k="f32", type_v="f32")
    ids = values["tokens"]
    assert ctx.decode(Batch(token=ids, logits=[True] * len(ids))) == 0
    logits = np.stack([ctx.get_logits_ith(i) for i in range(len(ids))])  # [n_tokens, n_vocab]
    # where llama.cpp rounds activations, exact arithmetic was measured to be this far off
    limit = max(EXACT, 1.2 * case["numpy_maxdiff"]) if "numpy_maxdiff" in case else EXACT
    np.testing.assert_allclose(logits[-1, :8], case["last_first8"], rtol=0, atol=limit)
    np.testing.assert_allclose(logits[0, :4], case["row0_first4"], rtol=0, atol=limit)
    np.testing.assert_allclose(
        np.abs(logits[-1]).sum(), case["abs_sum_last"], rtol=0, atol=limit * logits.shape[1]
    )
    if case.get("numpy_argmax_same", True):
        assert logits.argmax(1).tolist() == case["argmax"]


def test_no_case_is_left_out(cases_dir: Path, values: dict[str, Any]) -> None:
    assert set(NAMES) <= set(values["models"])
    assert {p.stem for p in (cases_dir / "graph").glob("*.gguf")} == set(NAMES)


def test_linear_scaling_has_two_keys(cases_dir: Path) -> None:
    """The legacy key means what the new one means; scaling type "none" ignores its factor."""
    ids = [5, 60, 7, 61, 8, 9]

    def last(name: str) -> np.ndarray:
        model = llmviz.load(cases_dir / "graph" / f"{name}.gguf", weights="f32")
        ctx = model.context(n_ctx=256, type_k="f32", type_v="f32")
        assert ctx.decode(Batch.get_one(ids)) == 0
        return np.array(ctx.get_logits_ith(-1))

    np.testing.assert_array_equal(last("rope_scale_linear_legacy_4"), last("rope_linear_4"))
    np.testing.assert_array_equal(last("rope_scaling_none_ignores_factor"), last("base"))
