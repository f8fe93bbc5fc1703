"""Loading: the model, overrides, checks, progress, settings, events of steps 1 to 6."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFValueType as V

import llmviz
from llmviz.errors import GGUFError, LlmvizError, LoadCancelled, UnsupportedError
from llmviz.events import Event, drain
from llmviz.model.loader import load, load_steps
from llmviz.model.model import Model
from tests.model import files
from tests.model.files import N_EMBD, N_FF, N_VOCAB, keys, tensors, write

# what a model is ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("model") / "x.gguf")


def test_a_model(path: str) -> None:
    model = load(path)
    assert isinstance(model, Model)
    assert (model.arch, model.path, model.vocab_only) == ("llama", path, False)
    exact = tensors()
    assert list(model.tensors) == list(exact)
    for name, a in exact.items():
        t = model.tensors[name]
        assert (t.shape, t.nbytes, t.type.name) == (a.shape, a.nbytes, "F32")
        np.testing.assert_array_equal(t.numpy(), a)
        with open(path, "rb") as file:
            file.seek(t.offset)
            assert file.read(a.nbytes) == a.tobytes()
    assert model.n_params == sum(a.size for a in exact.values())
    assert model.hparams.n_vocab == model.vocab.n_tokens == N_VOCAB
    assert model.devices[0].name == "CPU"


def test_the_description_is_llama_cpps(path: str, llamacpp: Any) -> None:
    with llamacpp.Reference(path, n_ctx=256) as theirs:
        assert load(path).desc == theirs.desc


def test_sizes_by_depth_are_llama_cpps(llamacpp: Any, tmp_path: Path) -> None:
    for n_layer in (22, 26):
        kv = {**keys(), "llama.block_count": (V.UINT32, n_layer)}
        path = write(tmp_path / f"{n_layer}.gguf", kv, tensors(n_layer=n_layer))
        with llamacpp.Reference(path, n_ctx=256) as theirs:
            assert load(path).desc == theirs.desc


def test_values_handed_out_are_read_only(path: str) -> None:
    for vocab_only in (False, True):
        values = load(path, vocab_only=vocab_only).tensors["output_norm.weight"].numpy()
        if not vocab_only:
            with pytest.raises(ValueError, match="read-only"):
                values[0] = 1.0


def test_vocab_only(path: str) -> None:
    model = load(path, vocab_only=True)
    assert model.vocab_only and model.weights is None
    assert model.vocab.tokenize("ab") == load(path).vocab.tokenize("ab")
    np.testing.assert_array_equal(
        model.tensors["token_embd.weight"].numpy(), tensors()["token_embd.weight"]
    )
    with pytest.raises(LlmvizError, match="vocab_only"):
        model.hparams  # noqa: B018
    with pytest.raises(LlmvizError, match="vocab_only"):
        model.context()


def test_vocab_only_needs_no_other_keys_and_no_tensors(tmp_path: Path) -> None:
    kv = {k: v for k, v in keys().items() if not k.startswith("llama.")}
    assert load(write(tmp_path / "x.gguf", kv, {}), vocab_only=True).vocab.n_tokens == N_VOCAB


# overrides ---------------------------------------------------------------------------------------


def test_overrides_replace_what_the_file_says(path: str) -> None:
    eps = "llama.attention.layer_norm_rms_epsilon"
    model = load(path, kv_overrides={eps: 0.5, "llama.context_length": 128})
    assert model.hparams.f_norm_rms_eps == 0.5
    assert model.hparams.n_ctx_train == 128
    assert model.hparams.origin["f_norm_rms_eps"] == f"override: {eps}"
    assert model.gguf.kv["llama.context_length"] == 128


def test_an_override_has_the_effect_of_the_file(path: str, tmp_path: Path) -> None:
    eps = "llama.attention.layer_norm_rms_epsilon"
    written = write(tmp_path / "x.gguf", {**keys(), eps: (V.FLOAT32, 0.5)})
    logits = []
    for model in (load(path, kv_overrides={eps: 0.5}), load(written), load(path)):
        ctx = model.context(n_ctx=256)
        assert ctx.decode(llmviz.Batch.get_one([1, 5, 260])) == 0
        logits.append(np.array(ctx.get_logits_ith(-1)))
    np.testing.assert_array_equal(logits[0], logits[1])
    assert np.abs(logits[0] - logits[2]).max() > 0.01


def test_an_override_may_name_a_key_that_the_file_lacks(path: str) -> None:
    model = load(path, kv_overrides={"llama.rope.freq_base": 5e5})
    assert model.hparams.rope_freq_base_train == 5e5
    assert model.hparams.origin["rope_freq_base_train"] == "override: llama.rope.freq_base"


def test_the_vocabulary_is_overridden_too(path: str) -> None:
    assert load(path).vocab.tokenize("a")[0] == 1
    model = load(path, kv_overrides={"tokenizer.ggml.add_bos_token": False})
    assert 1 not in model.vocab.tokenize("a")
    model = load(path, kv_overrides={"tokenizer.ggml.add_eos_token": True})
    assert model.vocab.tokenize("a")[-1] == 2
    model = load(path, kv_overrides={"tokenizer.ggml.bos_token_id": 2})
    assert model.vocab.bos == model.vocab.tokenize("a")[0] == 2


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ({"llama.block_count": "two"}, "llama.block_count.*str.*u32"),
        ({"llama.block_count": 2.0}, "llama.block_count.*float.*u32"),
        ({"llama.block_count": True}, "llama.block_count.*bool.*u32"),
        ({"general.architecture": 3}, "general.architecture.*int.*str"),
        ({"llama.context_length": [1, 2]}, "llama.context_length.*list"),
        ({"llama.context_length": None}, "llama.context_length.*NoneType"),
        ({"tokenizer.ggml.tokens": "x"}, "tokenizer.ggml.tokens.*array"),
        ({"tokenizer.ggml.add_bos_token": 1}, "tokenizer.ggml.add_bos_token.*u32.*bool"),
        ({"tokenizer.ggml.bos_token_id": "<s>"}, "tokenizer.ggml.bos_token_id.*str.*u32"),
    ],
)
def test_an_override_of_another_type_is_refused(
    path: str, override: dict[str, Any], reason: str
) -> None:
    with pytest.raises(LlmvizError, match=reason):
        load(path, kv_overrides=override)


def test_an_override_that_cannot_be_is_refused_like_the_files(path: str) -> None:
    with pytest.raises(GGUFError, match="attn_norm"):
        load(path, kv_overrides={"llama.block_count": 3})


# tensors' data -----------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_check_tensors(bad: float, tmp_path: Path) -> None:
    data = tensors()
    data["blk.1.ffn_up.weight"][3, 7] = bad
    path = write(tmp_path / "x.gguf", keys(), data)
    load(path)  # as in llama.cpp, only looked at when asked for
    with pytest.raises(GGUFError, match=r"blk\.1\.ffn_up\.weight.*invalid data") as caught:
        load(path, check_tensors=True)
    assert caught.value.field == "blk.1.ffn_up.weight"
    assert str(3 * N_EMBD + 7) in str(caught.value)


def test_check_tensors_of_a_sound_file(path: str) -> None:
    load(path, check_tensors=True)


# progress ----------------------------------------------------------------------------------------


def test_progress_rises_from_0_to_1(path: str) -> None:
    seen: list[float] = []

    def progress(fraction: float) -> None:
        seen.append(fraction)

    load(path, progress=progress)
    assert (seen[0], seen[-1]) == (0.0, 1.0)
    assert seen == sorted(seen)
    assert len(seen) > 10


@pytest.mark.parametrize("after", [0, 1, 5])
def test_cancel(path: str, after: int) -> None:
    seen: list[float] = []

    def progress(fraction: float) -> bool:
        seen.append(fraction)
        return len(seen) <= after

    with pytest.raises(LoadCancelled, match="cancel"):
        load(path, progress=progress)
    assert len(seen) == after + 1


def test_a_cancelled_load_lets_go_of_the_file(path: str) -> None:
    opened: list[Any] = []
    steps = load_steps(path, progress=lambda fraction: fraction < 0.5)
    with pytest.raises(LoadCancelled):
        for event in steps:
            if event.kind == "exit" and event.step == 2:
                opened.append(event.value)
    assert opened and opened[-1].closed


def test_a_load_given_up_in_the_middle_lets_go_of_the_file(path: str) -> None:
    steps = load_steps(path)
    for event in steps:
        if event.kind == "exit" and event.step == 2:
            opened = event.value
        if event.step == 6:
            break
    steps.close()
    assert opened.closed


# settings ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [{"n_gpu_layers": 99}, {"tensor_split": [1.0, 2.0]}])
def test_a_gpu_that_is_not_there_is_a_warning(path: str, asked: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match="no GPU"):
        load(path, **asked)


def test_no_warning_without_asking(path: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(path)


@pytest.mark.parametrize("asked", [{"weights": "quantised"}, {"weights": "q4"}, {"load_mode": "x"}])
def test_unknown_modes_are_refused_with_what_there_is(path: str, asked: dict[str, str]) -> None:
    with pytest.raises(UnsupportedError, match=f"{next(iter(asked.values()))}.*supported: auto"):
        load(path, **asked)


def test_an_unknown_parameter_is_refused(path: str) -> None:
    with pytest.raises(TypeError, match="n_gpu_layer"):
        load(path, n_gpu_layer=3)


@pytest.mark.parametrize("weights", ["auto", "f32"])
def test_weights_are_float32(path: str, weights: str) -> None:
    model = load(path, weights=weights)
    assert all(t.data is not None and t.data.dtype == np.float32 for t in model.tensors.values())


def test_the_public_load_takes_a_path(path: str) -> None:
    assert llmviz.load(Path(path)).arch == "llama"


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(LlmvizError, match="nothing-here"):
        load(tmp_path / "nothing-here.gguf")


# events ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def events(path: str) -> list[Event]:
    return list(load_steps(path, depth=1))


def test_the_first_six_steps_in_order(events: list[Event]) -> None:
    steps = [e.step for e in events]
    assert steps == sorted(steps)
    assert set(steps) == {1, 2, 3, 4, 5, 6}


def test_scopes(events: list[Event]) -> None:
    """Each step is one scope at the depth that was asked for; what is inside lies deeper."""
    stack: list[Event] = []
    outer = []
    for e in events:
        if e.kind == "exit":
            start = stack.pop()
            assert (start.name, start.depth, start.step) == (e.name, e.depth, e.step)
        assert e.depth == 1 + len(stack)
        if e.kind == "enter":
            if not stack:
                outer.append((e.step, e.name))
            stack.append(e)
    assert stack == []
    assert outer == [
        (1, "backends"),
        (2, "gguf_init_from_file"),
        (3, "llm_arch_from_string"),
        (4, "load_hparams"),
        (5, "load_vocab"),
        (6, "load_tensors"),
    ]


def values(events: list[Event], step: int) -> dict[str, Any]:
    return {e.name: e.value for e in events if e.step == step and e.kind == "data"}


def test_what_the_events_show(events: list[Event]) -> None:
    assert values(events, 1)["CPU"].type == "cpu"
    header = values(events, 2)
    assert (header["magic"], header["version"]) in {(b"GGUF", 3), ("GGUF", 3)}
    assert (header["n_tensors"], header["n_kv"]) == (21, 15)
    assert list(header["weights_map"]) == list(tensors())
    assert values(events, 3) == {"general.architecture": "llama"}
    hparams = values(events, 4)
    assert (hparams["n_embd"], hparams["n_layer"], hparams["n_ff_arr"]) == (N_EMBD, 2, N_FF)
    assert len(values(events, 5)["vocab_tokens"]) == N_VOCAB


def test_origins_stand_beside_the_hyperparameters(events: list[Event]) -> None:
    origin = {e.name: e.about for e in events if e.step == 4 and e.kind == "data"}
    assert origin["n_embd"] == "llama.embedding_length"
    assert origin["n_head_kv_arr"] == "llama.attention.head_count_kv"
    assert origin["rope_freq_base_train"] == "default"
    assert origin["n_rot"] == "default: n_embd_head_k"
    assert origin["n_embd_head_k"] == "default: n_embd / n_head"


def test_tensors_are_declared_and_then_loaded(events: list[Event]) -> None:
    shown = [e for e in events if e.step == 6]
    names = [e.name for e in shown if e.kind != "data"]
    assert names == [
        "load_tensors", "create_tensors", "create_tensors", "load_all_data", "load_all_data",
        "load_tensors",
    ]  # fmt: skip
    mode, *data = (e for e in shown if e.kind == "data")
    assert (mode.name, mode.value) == ("load_mode", "mmap")
    assert [e.name for e in data[:21]] == [e.name for e in data[21:]]
    assert set(e.name for e in data) == set(tensors())
    declared = {e.name: e.value for e in data[:21]}
    assert declared["blk.0.attn_k.weight"][:2] == (N_EMBD, 16)
    for e in data[21:]:
        np.testing.assert_array_equal(e.value.numpy(), tensors()[e.name])


def test_the_header_of_the_file_has_no_gaps(events: list[Event], path: str) -> None:
    fields = [e.about for e in events if e.step == 2 and hasattr(e.about, "offset")]
    with open(path, "rb") as file:
        assert file.read(4) == b"GGUF"
    end = 0
    for f in fields:
        if f.size and f.offset == end:
            end = f.offset + f.size
    assert end == load(path).gguf.data_offset


def test_draining_gives_the_model(path: str) -> None:
    assert isinstance(drain(load_steps(path)), Model)


def test_the_files_builder_is_what_it_says() -> None:
    assert len(files.TOKENS) == len(files.TYPES) == N_VOCAB
