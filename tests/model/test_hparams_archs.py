"""Hyperparameters that only some architectures have: windows, experts, layers left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_archs import write_arch

import llmviz
from llmviz.errors import GGUFError
from llmviz.model.hparams import HParams

MOE = {"expert_count": 6, "expert_used_count": 2}


def read(tmp_path: Path, arch: str, **keys: Any) -> HParams:
    keys = {k.replace("__", "."): v for k, v in keys.items()}
    return llmviz.load(write_arch(tmp_path / "x.gguf", arch, keys=keys)).hparams


@pytest.mark.parametrize(
    ("period", "dense_first", "swa"),
    [(0, False, [1] * 6), (1, False, [0] * 6), (3, False, [1, 1, 0] * 2), (2, True, [0, 1] * 3)],
)
def test_swa_pattern(period: int, dense_first: bool, swa: list[int]) -> None:
    hp = HParams(n_layer=6, n_layer_all=6)
    hp.set_swa_pattern(period, dense_first=dense_first)
    assert hp.is_swa_arr.tolist() == swa
    hp = HParams(n_layer=4, n_layer_all=6)
    hp.set_swa_pattern(0)
    assert hp.is_swa_arr.tolist() == [1, 1, 1, 1, 0, 0]


def test_what_a_file_does_not_have_is_not_shown(tmp_path: Path) -> None:
    dense = read(tmp_path, "llama").as_dict()
    assert not {"n_swa", "swa_type", "f_logit_scale", "n_ff_exp_arr", "n_layer_all"} & set(dense)
    gemma = read(tmp_path, "gemma2", attention__sliding_window=8).as_dict()
    assert gemma["n_swa"] == (8, "gemma2.attention.sliding_window")
    assert gemma["f_attn_logit_softcapping"] == (50.0, "default")
    assert gemma["swa_type"] == ("standard", "architecture gemma2")
    assert gemma["is_swa_arr"][0] == [1, 0]


def test_layers_for_multi_token_prediction_are_counted_and_left_out(tmp_path: Path) -> None:
    path = write_arch(tmp_path / "x.gguf", "glm4", keys={"nextn_predict_layers": 1})
    model = llmviz.load(path)
    hp = model.hparams
    assert (hp.n_layer, hp.n_layer_all, hp.n_layer_nextn) == (1, 2, 1)
    assert hp.origin["n_layer"] == "n_layer_all - n_layer_nextn"
    assert "blk.1.nextn.eh_proj.weight" in model.tensors
    assert model.weights is not None and len(model.weights.layers) == 1
    assert [layer.il for layer in model.context(n_ctx=256).memory.layers] == [0]


@pytest.mark.parametrize(
    ("arch", "keys", "message"),
    [
        ("qwen3moe", {}, "expert_count: 0"),
        ("llama", {"expert_count": 4}, "none of 4 experts"),
        ("llama", {"expert_count": 2, "expert_used_count": 3}, "3 experts used of only 2"),
        ("llama", {"expert_count": 4000, "expert_used_count": 3}, "at most 1024"),
        ("llama", {**MOE, "expert_group_count": 4, "expert_group_used_count": 1}, "4 groups"),
        ("llama", {**MOE, "expert_group_count": 3, "expert_group_used_count": 3}, "3 groups"),
        ("glm4", {"nextn_predict_layers": 2}, "none are left"),
        ("gemma3", {"attention__sliding_window": 8, "attention__sliding_window_pattern": 1},
         "no layer has a sliding window"),
        ("gemma3", {"attention__sliding_window": 8,
                    "attention__sliding_window_pattern": ["a", "b"]}, "array of str"),
        ("granite", {"logit_scale": 0.0}, "divided"),
        ("mistral3", {"attention__temperature_scale": 0.1,
                      "rope__scaling__original_context_length": 0}, "temperature"),
        ("qwen2", {"rope__dimension_count": 8}, "invalid n_rot"),
        ("phi2", {"rope__dimension_count": 18}, "18 rotary dimensions"),
    ],
)  # fmt: skip
def test_refused(tmp_path: Path, arch: str, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(GGUFError, match=message):
        read(tmp_path, arch, **keys)


def test_positions_of_m_rope_and_temperature(tmp_path: Path) -> None:
    """Text has its position three times, then 0; queries grow once per trained length."""
    inputs = run(tmp_path, "glm4", {"rope.dimension_sections": [2, 3, 3, 0]})
    assert inputs["inp_pos"].reshape(4, -1).tolist() == [[0, 1, 2]] * 3 + [[0, 0, 0]]
    keys = {"attention.temperature_scale": 0.5, "rope.scaling.original_context_length": 2}
    inputs = run(tmp_path, "mistral3", keys)
    grown = 1 + 0.5 * np.log(np.array([1, 1, 2]))
    np.testing.assert_allclose(inputs["inp_attn_scale"].ravel(), grown, rtol=1e-6)
    inputs = run(tmp_path, "gemma3", {"attention.sliding_window": 2})
    assert inputs["inp_scale_rows"].ravel().tolist() == [8.0] * 3
    assert "attn_inp_kq_mask" not in inputs  # both layers have a window
    assert np.isinf(inputs["attn_inp_kq_mask_swa"][2, :3]).tolist() == [True, False, False]


def run(tmp_path: Path, arch: str, keys: dict[str, Any]) -> dict[str, np.ndarray]:
    """The inputs of the graph of three tokens."""
    ctx = llmviz.load(write_arch(tmp_path / "x.gguf", arch, keys=keys)).context(n_ctx=256)
    return {
        e.name: np.array(e.value)
        for e in ctx.decode_steps(llmviz.Batch.get_one([5, 6, 7]))
        if e.kind == "data" and isinstance(e.value, np.ndarray)
    }
