"""Files with one thing changed: refused for llama.cpp's reason, or taken."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFValueType as V

import llmviz
from llmviz.errors import GGUFError, LlmvizError, UnsupportedError, VocabError
from llmviz.model.loader import load
from tests.model.files import N_EMBD, N_FF, N_VOCAB, keys, tensors, without, write

Edit = Callable[[dict[str, Any], dict[str, np.ndarray]], tuple[dict[str, Any], dict[str, Any]]]


def key(name: str, kind: V, value: Any) -> Edit:
    return lambda kv, data: ({**kv, name: (kind, value)}, data)


def no_key(name: str) -> Edit:
    return lambda kv, data: (without(kv, name), data)


def no_tensor(name: str) -> Edit:
    return lambda kv, data: (kv, without(data, name))


def tensor(name: str, *shape: int) -> Edit:
    return lambda kv, data: (kv, {**data, name: np.zeros(shape, np.float32)})


def heads(n_head: int, n_head_kv: int, head: int) -> Edit:
    """Another head layout, keys and tensors in step."""

    def edit(kv: dict[str, Any], data: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        more = {
            "llama.attention.head_count": (V.UINT32, n_head),
            "llama.attention.head_count_kv": (V.UINT32, n_head_kv),
            "llama.attention.key_length": (V.UINT32, head),
            "llama.attention.value_length": (V.UINT32, head),
        }
        return {**kv, **more}, tensors(n_head=n_head, n_head_kv=n_head_kv, head=head)

    return edit


def bpe(**changes: Any) -> Edit:
    """A byte-pair vocabulary of the same size; a change of None leaves the key out."""

    def edit(kv: dict[str, Any], data: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        letters = [chr(0x100 + i) for i in range(N_VOCAB)]
        letters[11] = "<|endoftext|>"  # where a byte-pair vocabulary has it unless told otherwise
        made = {
            "model": (V.STRING, "gpt2"),
            "pre": (V.STRING, "gpt-2"),
            "tokens": (V.STRING, letters),
            "token_type": (V.INT32, [1] * 11 + [3] + [1] * (N_VOCAB - 12)),
            "merges": (V.STRING, [f"{letters[0]} {letters[1]}"]),
            **changes,
        }
        kv = {k: v for k, v in kv.items() if not k.startswith("tokenizer.")}
        kv |= {f"tokenizer.ggml.{k}": v for k, v in made.items() if v is not None}
        return kv, data

    return edit


# name -> (edit, error, what the message says). The reasons are those of llama.cpp's own messages.
REFUSED: dict[str, tuple[Edit, type[LlmvizError], str]] = {
    "arch_missing": (no_key("general.architecture"), GGUFError, r"architecture: ''"),
    "arch_unknown": (
        key("general.architecture", V.STRING, "llamazilla"),
        UnsupportedError,
        "'llamazilla'.*supported: .*llama",
    ),
    "arch_wrong_type": (
        key("general.architecture", V.UINT32, 7),
        GGUFError,
        "general.architecture has wrong type u32 but expected type str",
    ),
    "clip": (
        key("general.architecture", V.STRING, "clip"),
        UnsupportedError,
        "CLIP cannot be used as a main model.*projector",
    ),
    "no_context_length": (
        no_key("llama.context_length"), GGUFError, "key not found in model: llama.context_length"
    ),
    "no_embedding_length": (
        no_key("llama.embedding_length"), GGUFError, "not found.*llama.embedding_length"
    ),
    "no_block_count": (no_key("llama.block_count"), GGUFError, "not found.*llama.block_count"),
    "no_rms_eps": (
        no_key("llama.attention.layer_norm_rms_epsilon"),
        GGUFError,
        "not found.*llama.attention.layer_norm_rms_epsilon",
    ),
    "key_type_u64_block_count": (
        key("llama.block_count", V.UINT64, 2),
        GGUFError,
        "llama.block_count has wrong type u64 but expected type u32",
    ),
    "key_type_i32_embedding_length": (
        key("llama.embedding_length", V.INT32, N_EMBD), GGUFError, "wrong type i32.*u32"
    ),
    "key_type_f64_eps": (
        key("llama.attention.layer_norm_rms_epsilon", V.FLOAT64, 1e-5),
        GGUFError,
        "wrong type f64.*f32",
    ),
    "block_count_0": (key("llama.block_count", V.UINT32, 0), GGUFError, "block_count"),
    "block_count_1_of_2": (
        key("llama.block_count", V.UINT32, 1),
        GGUFError,
        "wrong number of tensors; expected 21, got 12",
    ),
    "block_count_3_of_2": (
        key("llama.block_count", V.UINT32, 3), GGUFError, r"'blk\.2\.attn_norm\.weight' not found"
    ),
    "block_count_huge": (key("llama.block_count", V.UINT32, 2**32 - 1), GGUFError, "block_count"),
    "no_token_embd": (
        no_tensor("token_embd.weight"), GGUFError, "'token_embd.weight' not found"
    ),
    "no_output_norm": (
        no_tensor("output_norm.weight"), GGUFError, "'output_norm.weight' not found"
    ),
    "missing_layer_tensor": (
        no_tensor("blk.1.ffn_up.weight"), GGUFError, r"'blk\.1\.ffn_up\.weight' not found"
    ),
    "extra_tensor": (
        tensor("blk.0.surplus.weight", 4),
        GGUFError,
        r"wrong number of tensors; expected 22, got 21.*blk\.0\.surplus\.weight",
    ),
    "wrong_shape_attn_q": (
        tensor("blk.0.attn_q.weight", 64, 16),
        GGUFError,
        r"'blk\.0\.attn_q\.weight' has wrong shape; expected 32 x 32, got 16 x 64",
    ),
    "wrong_shape_norm": (
        tensor("blk.1.ffn_norm.weight", 33), GGUFError, r"ffn_norm.*expected 32, got 33"
    ),
    "embd_vocab_mismatch": (
        tensor("token_embd.weight", N_VOCAB + 15, N_EMBD),
        GGUFError,
        f"'token_embd.weight' has wrong shape; expected 32 x {N_VOCAB}, got 32 x {N_VOCAB + 15}",
    ),
    "head_count_zero": (
        key("llama.attention.head_count", V.UINT32, 0), GGUFError, "attn_q|head_count"
    ),
    "kv_heads_array_short": (
        key("llama.attention.head_count_kv", V.UINT32, [2]),
        GGUFError,
        "llama.attention.head_count_kv has wrong array length; expected 2, got 1",
    ),
    "kv_heads_array_on_llama_arch": (
        key("llama.attention.head_count_kv", V.UINT32, [2, 4]),
        GGUFError,
        r"attention.head_count_kv: \[2, 4\]; in this architecture all layers",
    ),
    "uneven_ff": (
        key("llama.feed_forward_length", V.UINT32, [N_FF, N_FF + 1]), GGUFError, r"\[48, 49\]"
    ),
    # llama.cpp loads these and aborts while decoding
    "head_count_kv_not_divisor": (heads(4, 3, 8), GGUFError, "3 key/value heads.*4 heads"),
    "head_dim_odd": (heads(4, 2, 9), GGUFError, "9 rotary dimensions.*even"),
    "rope_dim_half": (
        key("llama.rope.dimension_count", V.UINT32, 4), GGUFError, "invalid n_rot: 4, expected 8"
    ),
    "rope_dim_16": (
        key("llama.rope.dimension_count", V.UINT32, 16), GGUFError, "n_rot|dimension_count"
    ),
    "rope_scaling_unknown": (
        key("llama.rope.scaling.type", V.STRING, "wavy"), GGUFError, "'wavy'.*yarn"
    ),
    "experts": (key("llama.expert_count", V.UINT32, 4), GGUFError, "none of 4 experts"),
    "experts_used": (key("llama.expert_used_count", V.UINT32, 2), GGUFError, "2 experts.*0"),
    "tok_model_missing": (
        no_key("tokenizer.ggml.model"), LlmvizError, r"tokenizer\.ggml\.model"
    ),
    "tok_model_unknown": (
        key("tokenizer.ggml.model", V.STRING, "sentencefish"), UnsupportedError, "sentencefish"
    ),
    "tok_tokens_missing": (no_key("tokenizer.ggml.tokens"), GGUFError, "tokens"),
    "tok_tokens_wrong_type": (
        key("tokenizer.ggml.tokens", V.UINT32, list(range(N_VOCAB))), GGUFError, "tokens"
    ),
    "tok_scores_short": (
        key("tokenizer.ggml.scores", V.FLOAT32, [0.0] * 100), GGUFError, "scores.*100"
    ),
    "tok_types_short": (
        key("tokenizer.ggml.token_type", V.INT32, [1] * 100), GGUFError, "token_type.*100"
    ),
    "tok_scores_f64": (
        key("tokenizer.ggml.scores", V.FLOAT64, [0.0] * N_VOCAB), GGUFError, "scores.*f64"
    ),
    "tok_bpe_merges_missing": (bpe(merges=None), GGUFError, "merges"),
    "tok_bpe_pre_unknown": (
        bpe(pre=(V.STRING, "no-such-pre")), UnsupportedError, "no-such-pre"
    ),
}  # fmt: skip

ACCEPTED: dict[str, Edit] = {
    "ok_tiny": lambda kv, data: (kv, data),
    "ok_no_head_count_kv": lambda kv, data: (
        without(kv, "llama.attention.head_count_kv"),
        tensors(n_head_kv=4),
    ),
    "ok_tied": no_tensor("output.weight"),
    "ok_head_dim_differs": heads(4, 2, 16),
    "ok_one_kv_head": heads(4, 1, 8),
    "ok_kv_heads_array": key("llama.attention.head_count_kv", V.UINT32, [2, 2]),
    "ok_tok_scores_missing": no_key("tokenizer.ggml.scores"),
    "ok_tok_types_missing": no_key("tokenizer.ggml.token_type"),
    "ok_bpe": bpe(),
    "tok_bpe_pre_missing": bpe(pre=None),
    "ok_no_vocab": lambda kv, data: (
        {
            **{k: v for k, v in kv.items() if not k.startswith("tokenizer.")},
            "tokenizer.ggml.model": (V.STRING, "no_vocab"),
            "llama.vocab_size": (V.UINT32, N_VOCAB),
        },
        data,
    ),
    "ok_biases": lambda kv, data: (
        kv,
        {**data, "blk.0.attn_q.bias": np.ones(32, np.float32)},
    ),
}
WARN = {"tok_bpe_pre_missing", "ok_tok_types_missing"}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path) -> None:
    edit, kind, reason = REFUSED[name]
    path = write(tmp_path / "x.gguf", *edit(keys(), tensors()))
    with pytest.raises(kind, match=reason) as caught, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        load(path)
    if isinstance(caught.value, GGUFError):
        assert caught.value.field
        assert caught.value.path == path


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "x.gguf", *ACCEPTED[name](keys(), tensors()))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = load(path)
        ctx = model.context(n_ctx=256)
        assert ctx.decode(llmviz.Batch.get_one([1, 5, 260])) == 0
    assert np.isfinite(ctx.get_logits_ith(-1)).all()
    assert bool(caught) == (name in WARN), [str(w.message) for w in caught]


# llama.cpp aborts the process over these, while loading or at the first decode
FATAL = {
    "block_count_0", "block_count_huge", "kv_heads_array_on_llama_arch", "rope_scaling_unknown",
    "head_count_kv_not_divisor", "head_dim_odd", "experts", "experts_used", "uneven_ff",
}  # fmt: skip


def test_llama_cpp_says_the_same(llamacpp: Any, tmp_path: Path) -> None:
    """Every edit that it survives: refused by both, or taken by both."""
    edits = {name: edit for name, (edit, _, _) in REFUSED.items()} | ACCEPTED
    for name in edits.keys() - FATAL:
        path = write(tmp_path / f"{name}.gguf", *edits[name](keys(), tensors()))
        try:
            llamacpp.Reference(path, n_ctx=256).close()
            taken = True
        except LlmvizError:
            taken = False
        assert taken == (name in ACCEPTED), name


def test_a_missing_kv_head_count_is_the_head_count(tmp_path: Path) -> None:
    edit = ACCEPTED["ok_no_head_count_kv"]
    model = load(write(tmp_path / "x.gguf", *edit(keys(), tensors())))
    assert model.hparams.n_head_kv() == 4
    assert model.hparams.origin["n_head_kv_arr"] == "default: n_head"


def test_a_tied_output_is_the_embedding(tmp_path: Path) -> None:
    data = without(tensors(), "output.weight")
    model = load(write(tmp_path / "x.gguf", keys(), data))
    assert model.weights is not None
    assert model.weights.output is model.weights.tok_embd


def test_a_bias_is_used(tmp_path: Path) -> None:
    """Only the one that the file has; the others are None."""
    model = load(write(tmp_path / "x.gguf", *ACCEPTED["ok_biases"](keys(), tensors())))
    assert model.weights is not None
    assert model.weights.layers[0].wq_b is not None
    assert model.weights.layers[1].wq_b is None and model.weights.layers[0].wk_b is None


# the folder of cases -----------------------------------------------------------------------------


def test_sweep_over_the_folder_of_cases(cases_dir: Path) -> None:
    """Every file: taken or refused as llama.cpp does when it loads it."""
    verdicts = json.loads((cases_dir / "gguf_verdicts.json").read_text())
    opened = {"split_open_second": "m-00002-of-00002.gguf", "split_renamed": "model.gguf"}
    dies = {"head_count_kv_not_divisor", "head_dim_odd"}  # llama.cpp aborts when it decodes
    wrong = []
    for name, verdict in verdicts.items():
        folder = cases_dir / "gguf" / name
        file = folder / opened[name] if name in opened else min(folder.glob("*.gguf"))
        expected = verdict["load_mmap"]["value"]["accept"] and name not in dies
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                load(file)
            taken = True
        except (GGUFError, UnsupportedError, VocabError):
            taken = False
        if taken != expected:
            wrong.append(name)
    assert wrong == []
    assert len(verdicts) > 80
