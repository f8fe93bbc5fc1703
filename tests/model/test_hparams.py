"""Hyperparameters: values, defaults, and where each came from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFValueType as V

from llmviz.errors import GGUFError
from llmviz.events import drain
from llmviz.gguf import open_gguf
from llmviz.model.arch import get_arch
from llmviz.model.hparams import HParams, load_hparams_steps
from llmviz.model.keys import Keys
from tests.model.files import keys, without, write


@pytest.fixture
def read(tmp_path: Path) -> Any:
    """``read(changes)`` writes the keys, changed, and reads the hyperparameters."""

    def read(changes: dict[str, Any] | None = None, *missing: str) -> HParams:
        named = {f"llama.{k}": v for k, v in (changes or {}).items()}
        kv = without({**keys(), **named}, *(f"llama.{k}" for k in missing))
        with open_gguf(write(tmp_path / "x.gguf", kv, {})) as gguf:
            return drain(load_hparams_steps(Keys(gguf, "llama"), get_arch("llama")))

    return read


def test_what_the_file_says(read: Any) -> None:
    hp = read()
    assert (hp.n_ctx_train, hp.n_embd, hp.n_layer) == (64, 32, 2)
    assert hp.n_ff_arr.tolist() == [48, 48]
    assert (hp.n_head(), hp.n_head_kv(), hp.n_ff(1)) == (4, 2, 48)
    assert hp.f_norm_rms_eps == pytest.approx(1e-5)
    assert hp.rope_type == "norm"


def test_what_follows_from_it(read: Any) -> None:
    hp = read()
    assert (hp.n_embd_head_k, hp.n_embd_head_v, hp.n_rot) == (8, 8, 8)
    assert hp.n_gqa() == 2
    assert (hp.n_embd_k_gqa(), hp.n_embd_v_gqa()) == (16, 16)
    assert hp.n_ctx_orig_yarn == 64
    assert (hp.rope_freq_base_train, hp.rope_freq_scale_train) == (10000.0, 1.0)
    assert hp.rope_scaling_type_train == "linear"
    assert hp.causal_attn and hp.rope_attn_factor == 1.0


def test_where_it_came_from(read: Any) -> None:
    origin = read().origin
    assert origin["n_embd"] == "llama.embedding_length"
    assert origin["n_head_arr"] == "llama.attention.head_count"
    assert origin["n_embd_head_k"] == "default: n_embd / n_head"
    assert origin["n_rot"] == "default: n_embd_head_k"
    assert origin["n_ctx_orig_yarn"] == "default: n_ctx_train"
    assert origin["rope_freq_base_train"] == "default"
    assert origin["rope_type"] == "architecture llama"
    assert read({}, "attention.head_count_kv").origin["n_head_kv_arr"] == "default: n_head"
    given = read({"rope.dimension_count": (V.UINT32, 8), "rope.freq_base": (V.FLOAT32, 5e5)})
    assert given.origin["n_rot"] == "llama.rope.dimension_count"
    assert given.origin["rope_freq_base_train"] == "llama.rope.freq_base"
    assert given.rope_freq_base_train == 5e5


def test_every_value_has_an_origin(read: Any) -> None:
    for name, (value, origin) in read().as_dict().items():
        assert origin, name
        assert not isinstance(value, np.ndarray), name


def test_equal_layers_are_shown_as_one_number(read: Any) -> None:
    assert read().as_dict()["n_head_arr"] == (4, "llama.attention.head_count")
    hp = HParams(n_ff_arr=np.array([1, 2]))
    assert hp.as_dict()["n_ff_arr"][0] == [1, 2]


def test_per_layer_arrays(read: Any) -> None:
    hp = read(
        {"attention.head_count_kv": (V.UINT32, [2, 2]), "feed_forward_length": (V.INT32, [48, 48])}
    )
    assert hp.n_head_kv_arr.tolist() == [2, 2]
    assert hp.n_ff_arr.tolist() == [48, 48]


def test_heads_of_another_size(read: Any) -> None:
    sizes = {"attention.key_length": (V.UINT32, 16), "attention.value_length": (V.UINT32, 16)}
    hp = read(sizes)
    assert (hp.n_embd_head_k, hp.n_rot, hp.n_embd_k_gqa()) == (16, 16, 32)
    assert hp.origin["n_embd_head_k"] == "llama.attention.key_length"


@pytest.mark.parametrize("name", ["rope.scaling.factor", "rope.scale_linear"])
def test_a_factor_of_4_scales_frequencies_by_a_quarter(read: Any, name: str) -> None:
    hp = read({name: (V.FLOAT32, 4.0)})
    assert hp.rope_freq_scale_train == 0.25
    assert hp.origin["rope_freq_scale_train"] == f"llama.{name}"


def test_the_newer_factor_wins_and_0_means_none(read: Any) -> None:
    both = {"rope.scaling.factor": (V.FLOAT32, 2.0), "rope.scale_linear": (V.FLOAT32, 4.0)}
    assert read(both).rope_freq_scale_train == 0.5
    assert read({"rope.scaling.factor": (V.FLOAT32, 0.0)}).rope_freq_scale_train == 1.0


def test_yarn_keys(read: Any) -> None:
    hp = read(
        {
            "rope.scaling.type": (V.STRING, "yarn"),
            "rope.scaling.factor": (V.FLOAT32, 8.0),
            "rope.scaling.original_context_length": (V.UINT32, 16),
            "rope.scaling.attn_factor": (V.FLOAT32, 1.25),
            "rope.scaling.finetuned": (V.BOOL, True),
        }
    )
    assert (hp.rope_scaling_type_train, hp.rope_freq_scale_train) == ("yarn", 0.125)
    assert (hp.n_ctx_orig_yarn, hp.rope_attn_factor, hp.rope_finetuned) == (16, 1.25, True)


@pytest.mark.parametrize("n", [0, 513, 2**32 - 1])
def test_the_number_of_layers_is_bounded(read: Any, n: int) -> None:
    """Nothing of a claimed size is made."""
    with pytest.raises(GGUFError, match=r"llama\.block_count.*1\.\.512"):
        read({"block_count": (V.UINT32, n)})


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"attention.head_count": (V.UINT32, 0)}, "attention.head_count"),
        ({"attention.head_count_kv": (V.UINT32, 0)}, "attention.head_count_kv"),
        ({"attention.head_count_kv": (V.UINT32, 3)}, "attention.head_count_kv"),
        ({"attention.head_count_kv": (V.UINT32, 8)}, "attention.head_count_kv"),
        ({"rope.dimension_count": (V.UINT32, 7)}, "rope.dimension_count"),
        ({"rope.dimension_count": (V.UINT32, 16)}, "rope.dimension_count"),
        ({"attention.value_length": (V.UINT32, 16)}, "attention.value_length"),
        ({"rope.scaling.type": (V.STRING, "wavy")}, "rope.scaling.type"),
        ({"expert_used_count": (V.UINT32, 2)}, "expert_used_count"),
    ],
)
def test_what_cannot_be(read: Any, changes: dict[str, Any], field: str) -> None:
    with pytest.raises(GGUFError) as caught:
        read(changes)
    assert caught.value.field == f"llama.{field}"


def test_events(tmp_path: Path) -> None:
    with open_gguf(write(tmp_path / "x.gguf")) as gguf:
        steps = load_hparams_steps(Keys(gguf, "llama"), get_arch("llama"), depth=4)
        events = list(steps)
    assert [(e.kind, e.name, e.depth) for e in (events[0], events[-1])] == [
        ("enter", "load_hparams", 4),
        ("exit", "load_hparams", 4),
    ]
    assert {e.depth for e in events[1:-1]} == {5} and {e.step for e in events} == {4}
    hp = events[-1].value
    assert {e.name: (e.value, e.about) for e in events[1:-1]} == hp.as_dict()
