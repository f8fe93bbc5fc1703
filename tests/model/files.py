"""Small llama files whose every key and tensor can be changed, added or left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGUFValueType as V
from gguf import TokenType

N_EMBD, N_HEAD, N_HEAD_KV, N_FF, N_LAYER, N_VOCAB = 32, 4, 2, 48, 2, 264
Key = tuple[V, Any]

TOKENS = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), "▁", "a", "b", "▁a", "ab"]
TYPES = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL] + [TokenType.BYTE] * 256
TYPES += [TokenType.NORMAL] * 5


def keys() -> dict[str, Key]:
    """The keys of a correct file."""
    return {
        "general.architecture": (V.STRING, "llama"),
        "llama.context_length": (V.UINT32, 64),
        "llama.embedding_length": (V.UINT32, N_EMBD),
        "llama.block_count": (V.UINT32, N_LAYER),
        "llama.feed_forward_length": (V.UINT32, N_FF),
        "llama.attention.head_count": (V.UINT32, N_HEAD),
        "llama.attention.head_count_kv": (V.UINT32, N_HEAD_KV),
        "llama.attention.layer_norm_rms_epsilon": (V.FLOAT32, 1e-5),
        "tokenizer.ggml.model": (V.STRING, "llama"),
        "tokenizer.ggml.tokens": (V.STRING, TOKENS),
        "tokenizer.ggml.scores": (V.FLOAT32, [0.0] * 259 + [-1.0, -2.0, -3.0, -4.0, -5.0]),
        "tokenizer.ggml.token_type": (V.INT32, [int(t) for t in TYPES]),
        "tokenizer.ggml.bos_token_id": (V.UINT32, 1),
        "tokenizer.ggml.eos_token_id": (V.UINT32, 2),
        "tokenizer.ggml.unknown_token_id": (V.UINT32, 0),
    }


def tensors(
    n_layer: int = N_LAYER, n_head: int = N_HEAD, n_head_kv: int = N_HEAD_KV, head: int = 8
) -> dict[str, np.ndarray]:
    """The tensors of a correct file, in numpy order."""
    rng = np.random.default_rng(5)

    def random(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, dtype=np.float32) * 0.2

    out = {
        "token_embd.weight": random(N_VOCAB, N_EMBD),
        "output_norm.weight": random(N_EMBD) + 1,
        "output.weight": random(N_VOCAB, N_EMBD),
    }
    for i in range(n_layer):
        b = f"blk.{i}."
        out |= {
            b + "attn_norm.weight": random(N_EMBD) + 1,
            b + "attn_q.weight": random(n_head * head, N_EMBD),
            b + "attn_k.weight": random(n_head_kv * head, N_EMBD),
            b + "attn_v.weight": random(n_head_kv * head, N_EMBD),
            b + "attn_output.weight": random(N_EMBD, n_head * head),
            b + "ffn_norm.weight": random(N_EMBD) + 1,
            b + "ffn_gate.weight": random(N_FF, N_EMBD),
            b + "ffn_up.weight": random(N_FF, N_EMBD),
            b + "ffn_down.weight": random(N_EMBD, N_FF),
        }
    return out


def without(some: dict[str, Any], *names: str) -> dict[str, Any]:
    """A copy without these entries."""
    assert set(names) <= set(some)
    return {k: v for k, v in some.items() if k not in names}


def write(
    path: Path, kv: dict[str, Key] | None = None, data: dict[str, np.ndarray] | None = None
) -> str:
    """Write a file; returns its path. A list value becomes an array of the key's type."""
    w = gguf.GGUFWriter(path, "llama")
    w.kv_data[0].clear()  # the writer has put the architecture there
    for name, (kind, value) in (keys() if kv is None else kv).items():
        if isinstance(value, list):
            w.add_key_value(name, value, V.ARRAY, kind)
        else:
            w.add_key_value(name, value, kind)
    for name, a in (tensors() if data is None else data).items():
        w.add_tensor(name, a)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return str(path)
