"""Random tiny GGUF models for comparing engines: seeded, nothing is trained, one trait each.

A file of a few hundred kB is written with the `gguf` package; block types that it cannot quantize
get random blocks of the right scale. `write_tiny` takes the traits as keywords, `VARIANTS` names
the sets in use.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import cache
from itertools import pairwise
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Q
from gguf import RopeScalingType, TokenType

from llmviz.ggml import quants
from llmviz.ggml.types import TYPES, GGMLType

CORPUS = """The cat sat on the mat and the other cat ran to the house in the rain. There is a river
near the town where an old man is fishing for his dinner. He said that the water was cold, then he
went home again and sat near the fire. One and two and three are numbers; first the sun, then the
moon, then the stars over there."""

# name -> traits. All weights are float32 unless a trait says otherwise.
VARIANTS: dict[str, dict[str, Any]] = {
    "dense": {},
    "tied": {"tied": True},
    "one_layer": {"n_layer": 1},
    "gqa_1": {"n_head_kv": 1},
    "mha": {"n_head_kv": 4},
    "head_dim_32": {"head_dim": 32},
    "head_dim_8": {"head_dim": 8},
    "freq_base": {"freq_base": 500000.0},
    "linear": {"scaling": "linear", "factor": 4.0},
    "legacy_linear": {"scaling": "legacy", "factor": 4.0},
    "scaling_none": {"scaling": "none", "factor": 4.0},
    "yarn": {"scaling": "yarn", "factor": 4.0, "orig_ctx": 128},
    "yarn_tuned": {
        "scaling": "yarn", "factor": 8.0, "orig_ctx": 64, "attn_factor": 1.25, "freq_base": 1e6,
        "yarn": {"ext_factor": 0.5, "attn_factor": 1.1, "beta_fast": 16.0, "beta_slow": 2.0},
    },
    "rope_freqs": {"rope_freqs": True, "freq_base": 500000.0},
    "rope_freqs_linear": {"rope_freqs": True, "scaling": "linear", "factor": 2.0},
    "qkv_bias": {"qkv_bias": True},
    "all_biases": {"qkv_bias": True, "out_bias": True, "ffn_bias": True},
    "fused_qkv": {"fused_qkv": True},
    "fused_qkv_bias": {"fused_qkv": True, "qkv_bias": True},
    "large_eps": {"norm_eps": 0.5},
    "attention_scale": {"attention_scale": 0.2},
    "bpe": {"vocab": "bpe"},
    "embd_f16": {"embd_type": "F16"},
    "embd_bf16": {"embd_type": "BF16"},
    "embd_q8_0": {"embd_type": "Q8_0"},
    "embd_q4_1": {"embd_type": "Q4_1"},
    "embd_q6_k": {"embd_type": "Q6_K", "n_embd": 256},
}  # fmt: skip

# Matrices in these types: llama.cpp rounds the activations it multiplies them with, so exact
# arithmetic differs from it by about a percent.
WEIGHT_TYPES = ("F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K",
                "IQ2_XS", "MXFP4")  # fmt: skip


def write_tiny(
    path: str | os.PathLike[str],
    *,
    arch: str = "llama",
    seed: int = 0,
    n_layer: int = 2,
    n_embd: int = 64,
    n_head: int = 4,
    n_head_kv: int = 2,
    n_ff: int = 96,
    head_dim: int | None = None,
    rope_dim: int | None = None,
    n_ctx_train: int = 512,
    norm_eps: float = 1e-5,
    freq_base: float = 10000.0,
    scaling: str | None = None,
    factor: float = 1.0,
    orig_ctx: int | None = None,
    attn_factor: float | None = None,
    yarn: dict[str, float] | None = None,
    rope_freqs: bool = False,
    attention_scale: float | None = None,
    tied: bool = False,
    qkv_bias: bool = False,
    out_bias: bool = False,
    ffn_bias: bool = False,
    fused_qkv: bool = False,
    vocab: str = "spm",
    more_tokens: int = 0,
    weight_type: str = "F32",
    embd_type: str | None = None,
    output_type: str | None = None,
) -> str:
    """Write a random model and return its path.

    Parameters
    ----------
    head_dim
        Size of a head; default ``n_embd / n_head``.
    rope_dim
        How much of it is rotated; default all.
    scaling
        ``"linear"``, ``"yarn"``, ``"none"`` (a factor that must be ignored) or ``"legacy"`` (the
        old key ``rope.scale_linear``), each with `factor`.
    yarn
        Values of the keys ``rope.scaling.yarn_<name>``.
    rope_freqs
        Frequency factors as Llama 3 has them.
    more_tokens
        How many tokens that no text has a SentencePiece vocabulary gets besides.
    weight_type, embd_type, output_type
        Type of the matrices, of the token embeddings and of the output matrix (both default to
        `weight_type`); vectors stay float32.
    """
    if arch != "llama":
        raise ValueError(f"no tiny model of architecture {arch!r} yet")
    rng = np.random.default_rng(seed)
    w = gguf.GGUFWriter(os.fspath(path), arch)
    head = head_dim or n_embd // n_head
    if TYPES[GGMLType[weight_type]].block_size == 256:  # a row must be whole blocks
        n_embd, n_ff = max(n_embd, 256), max(n_ff, 256)
        head = head_dim or n_embd // n_head

    w.add_name(f"tiny {arch}")
    w.add_context_length(n_ctx_train)
    w.add_embedding_length(n_embd)
    w.add_block_count(n_layer)
    w.add_feed_forward_length(n_ff)
    w.add_head_count(n_head)
    w.add_head_count_kv(n_head_kv)
    w.add_layer_norm_rms_eps(norm_eps)
    w.add_rope_dimension_count(rope_dim or head)
    w.add_rope_freq_base(freq_base)
    if head != n_embd // n_head:
        w.add_key_length(head)
        w.add_value_length(head)
    if attention_scale is not None:
        w.add_attention_scale(attention_scale)
    if scaling == "legacy":
        w.add_float32(f"{arch}.rope.scale_linear", factor)
    elif scaling is not None:
        w.add_rope_scaling_type(RopeScalingType(scaling))
        w.add_rope_scaling_factor(factor)
    if orig_ctx is not None:
        w.add_rope_scaling_orig_ctx_len(orig_ctx)
    if attn_factor is not None:
        w.add_rope_scaling_attn_factors(attn_factor)
    for name, value in (yarn or {}).items():
        w.add_float32(f"{arch}.rope.scaling.yarn_{name}", value)
    n_vocab = add_spm(w, more=more_tokens) if vocab == "spm" else add_bpe(w)
    w.add_vocab_size(n_vocab)

    def matrix(name: str, n_out: int, n_in: int, kind: str | None = None, std: float = 0.0) -> None:
        a = rng.standard_normal((n_out, n_in), dtype=np.float32) * (std or n_in**-0.5)
        add_tensor(w, name, a.astype(np.float32), kind or weight_type, rng)

    def vector(name: str, n: int, mean: float = 0.0, std: float = 0.1) -> None:
        w.add_tensor(name, (mean + std * rng.standard_normal(n)).astype(np.float32))

    matrix("token_embd.weight", n_vocab, n_embd, embd_type, std=1.0)
    vector("output_norm.weight", n_embd, mean=1.0)
    if not tied:
        matrix("output.weight", n_vocab, n_embd, output_type)
    if rope_freqs:
        w.add_tensor("rope_freqs.weight", np.geomspace(1, 8, head // 2).astype(np.float32))
    n_q, n_kv = n_head * head, n_head_kv * head
    for i in range(n_layer):
        b = f"blk.{i}."
        vector(b + "attn_norm.weight", n_embd, mean=1.0)
        sizes = {"attn_qkv": n_q + 2 * n_kv} if fused_qkv else {
            "attn_q": n_q, "attn_k": n_kv, "attn_v": n_kv
        }  # fmt: skip
        for name, n in sizes.items():
            matrix(b + name + ".weight", n, n_embd)
            if qkv_bias:
                vector(b + name + ".bias", n, std=0.2)
        matrix(b + "attn_output.weight", n_embd, n_q)
        vector(b + "ffn_norm.weight", n_embd, mean=1.0)
        matrix(b + "ffn_gate.weight", n_ff, n_embd)
        matrix(b + "ffn_up.weight", n_ff, n_embd)
        matrix(b + "ffn_down.weight", n_embd, n_ff)
        if out_bias:
            vector(b + "attn_output.bias", n_embd)
        if ffn_bias:
            vector(b + "ffn_gate.bias", n_ff)
            vector(b + "ffn_up.bias", n_ff)
            vector(b + "ffn_down.bias", n_embd)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return os.fspath(path)


def add_tensor(
    w: gguf.GGUFWriter, name: str, a: np.ndarray, kind: str, rng: np.random.Generator
) -> None:
    """Add matrix `a` in type `kind`.

    Q4_K to Q6_K, and types that only an importance matrix makes good, get random blocks of the same
    scale instead.
    """
    q = Q[kind]
    if kind == "F32":
        w.add_tensor(name, a)
    elif kind == "F16":
        w.add_tensor(name, a.astype(np.float16))
    elif kind in ("Q4_K", "Q5_K", "Q6_K"):
        w.add_tensor(name, random_blocks(kind, a.shape, float(a.std()), rng), raw_dtype=q)
    elif GGMLType[kind] in quants.quantizable():
        w.add_tensor(name, quants.quantize(a, kind), raw_dtype=q)
    else:
        raw = rng.integers(0, 256, (a.size // 256, quants.get(kind).type_size), dtype=np.uint8)
        w.add_tensor(name, scaled(kind, raw, float(a.std())).reshape(len(a), -1), raw_dtype=q)


def scaled(kind: str, raw: np.ndarray, std: float) -> np.ndarray:
    """Random bytes uint8[n_blocks, type_size] of an IQ type, with the scale that gives `std`."""
    quant = quants.get(kind)
    blocks = quant.blocks(raw)
    for d in (1.0, None):
        if d is None:
            d = std / float(quant.dequantize(raw).std())
        half = np.full(len(raw), d, np.float16)
        if kind == "IQ1_M":  # in four nibbles
            nibbles = half.view(np.uint16)[:, None] >> np.arange(0, 16, 4, dtype=np.uint16) & 15
            blocks["scales"] = blocks["scales"] & 0x0FFF | nibbles << 12
        else:
            blocks["d"] = half
    return raw


def random_blocks(
    kind: str, shape: tuple[int, int], std: float, rng: np.random.Generator
) -> np.ndarray:
    """Random K-quant bytes, ``uint8[n_out, n_bytes]``, with values of about deviation `std`."""
    n_out, n_in = shape
    n_blocks = n_out * n_in // 256
    size = gguf.GGML_QUANT_SIZES[Q[kind]][1]
    raw = rng.integers(0, 256, (n_blocks, size), dtype=np.uint8)  # [n_blocks, size]
    spread = std * rng.uniform(0.5, 1.5, n_blocks)
    if kind == "Q6_K":  # value = d * scale * (q - 32), scale int8, q in 0..63
        d = spread / (74 * 18.5)
        raw[:, -2:] = d.astype(np.float16).view(np.uint8).reshape(-1, 2)
    else:  # value = d * scale * q - dmin * min, scales and mins in 0..63, q in 0..15 or 0..31
        top = 15 if kind == "Q4_K" else 31
        d = spread / (36 * top * 0.45)
        raw[:, :2] = d.astype(np.float16).view(np.uint8).reshape(-1, 2)
        raw[:, 2:4] = (d * top / 2).astype(np.float16).view(np.uint8).reshape(-1, 2)
    return raw.reshape(n_out, -1)


# vocabularies ----------------------------------------------------------------------------------


@cache
def learn_merges(words: tuple[str, ...], n: int) -> list[tuple[str, str]]:
    """The `n` most frequent pairs, merged one after another: byte-pair encoding's training loop."""
    pieces = [list(word) for word in words]
    merges = []
    for _ in range(n):
        pairs = Counter(pair for p in pieces for pair in pairwise(p))
        if not pairs:
            break
        (left, right), _ = max(pairs.items(), key=lambda kv: (kv[1], kv[0]))
        merges.append((left, right))
        for p in pieces:
            i = 0
            while i < len(p) - 1:
                if p[i] == left and p[i + 1] == right:
                    p[i : i + 2] = [left + right]
                i += 1
    return merges


def add_spm(w: gguf.GGUFWriter, n_merges: int = 60, more: int = 0) -> int:
    """A SentencePiece vocabulary: specials, 256 bytes, characters, merges scored by rank."""
    merges = learn_merges(tuple("▁" + word for word in CORPUS.split()), n_merges)
    characters = sorted(set(CORPUS.replace(" ", "▁").replace("\n", "▁")))
    pieces = [left + right for left, right in merges] + characters
    pieces = [*dict.fromkeys(pieces), *(f"<unused{i}>" for i in range(more))]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *pieces]
    w.add_tokenizer_model("llama")
    w.add_tokenizer_pre("default")
    w.add_token_list(tokens)
    w.add_token_scores([0.0] * 259 + [-float(i) for i in range(len(pieces))])
    w.add_token_types(
        [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL]
        + [TokenType.BYTE] * 256
        + [TokenType.NORMAL] * len(pieces)
    )
    w.add_unk_token_id(0)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_add_bos_token(True)
    w.add_add_eos_token(False)
    return len(tokens)


def byte_letters() -> list[str]:
    """The letter that stands for each byte in GPT-2's byte-level vocabulary."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [b for b in range(256) if b not in visible]
    code = {b: b for b in visible} | {b: 256 + i for i, b in enumerate(hidden)}
    return [chr(code[b]) for b in range(256)]


def add_bpe(w: gguf.GGUFWriter, n_merges: int = 60) -> int:
    """A byte-level BPE vocabulary with chat tokens and a chat template."""
    letters = byte_letters()
    words = tuple(
        "".join(letters[b] for b in (" " * (i > 0) + word).encode())
        for i, word in enumerate(CORPUS.split())
    )
    merges = learn_merges(words, n_merges)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens = list(dict.fromkeys([*special, *letters, *(left + right for left, right in merges)]))
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(tokens)
    w.add_token_types([TokenType.CONTROL] * 3 + [TokenType.NORMAL] * (len(tokens) - 3))
    w.add_token_merges([f"{left} {right}" for left, right in merges])
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_add_bos_token(False)
    w.add_chat_template(
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
        "{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    return len(tokens)
