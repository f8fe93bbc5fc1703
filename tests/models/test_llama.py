"""The llama architecture: its graph node by node, its logits by a plain float64 forward pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFValueType as V

import llmviz
from llmviz.batch import Batch
from llmviz.errors import GGUFError
from llmviz.ggml.graph import VIEW_OPS, Graph
from llmviz.model.hparams import HParams
from llmviz.model.loader import load
from llmviz.models.llama import Llama
from tests.model.files import keys, tensors, without, write

# What llama.cpp b11549 computes for 3 tokens of a model with one layer (64 wide, 4 heads of 16,
# 2 key/value heads, 96 wide feed-forward, 345 tokens): name, op, ne. Read with its cb_eval.
LAYER = [
    ("embd", "GET_ROWS", (64, 3)),
    ("norm-0", "RMS_NORM", (64, 3)),
    ("attn_norm-0", "MUL", (64, 3)),
    ("Qcur-0", "MUL_MAT", (64, 3)),
    ("Qcur-0", "ROPE", (16, 4, 3)),
    ("Vcur-0", "MUL_MAT", (32, 3)),
    ("Kcur-0", "MUL_MAT", (32, 3)),
    ("Kcur-0", "ROPE", (16, 2, 3)),
    ("cache_k_l0 (view)", "SET_ROWS", (32, 256)),
    ("cache_v_l0 (reshaped) (view)", "SET_ROWS", (1, 8192)),
    ("kq-0", "MUL_MAT", (256, 3, 4)),
    ("kq_soft_max-0", "SOFT_MAX", (256, 3, 4)),
    ("kqv-0", "MUL_MAT", (16, 3, 4)),
    ("kqv_out-0", "CONT", (64, 3)),
    ("attn_out-0", "MUL_MAT", (64, 3)),
    (None, "GET_ROWS", (64, 1)),
    (None, "GET_ROWS", (64, 1)),
    ("ffn_inp-0", "ADD", (64, 1)),
    ("norm-0", "RMS_NORM", (64, 1)),
    ("ffn_norm-0", "MUL", (64, 1)),
    ("ffn_gate-0", "MUL_MAT", (96, 1)),
    ("ffn_up-0", "MUL_MAT", (96, 1)),
    ("ffn_swiglu-0", "GLU", (96, 1)),
    ("ffn_out-0", "MUL_MAT", (64, 1)),
    ("l_out-0", "ADD", (64, 1)),
    ("norm", "RMS_NORM", (64, 1)),
    ("result_norm", "MUL", (64, 1)),
    ("result_output", "MUL_MAT", (345, 1)),
]


def graph_of(path: str, n_tokens: int = 3, **params: Any) -> Graph:
    ctx = llmviz.load(path).context(n_ctx=256, **params)
    for event in ctx.decode_steps(Batch.get_one(range(3, 3 + n_tokens))):
        if event.kind == "exit" and event.name == "build_graph":
            graph: Graph = event.value
    return graph


def test_the_graph_of_one_layer(tiny_model: Callable[..., str]) -> None:
    nodes = [t for t in graph_of(tiny_model(variant="one_layer")).nodes if t.op not in VIEW_OPS]
    assert [t.op for t in nodes] == [op for _, op, _ in LAYER]
    for t, (name, _, ne) in zip(nodes, LAYER, strict=True):
        assert t.name == name or (name is None and t.name.startswith("node_"))
        assert t.ne == (*ne, *(1,) * (4 - len(ne))), t.name


def test_layers_but_the_last_compute_all_rows(tiny_model: Callable[..., str]) -> None:
    gf = graph_of(tiny_model())
    rows = {t.name: t.ne[1] for t in gf.nodes}
    assert (rows["ffn_inp-0"], rows["l_out-0"]) == (3, 3)
    assert (rows["ffn_inp-1"], rows["l_out-1"], rows["result_output"]) == (1, 1, 1)


def test_every_node_belongs_to_its_layer(tiny_model: Callable[..., str]) -> None:
    gf = graph_of(tiny_model())
    runs = [(il, nodes[-1].name) for il, nodes in gf.by_layer()]
    assert runs == [(-1, "embd"), (0, "l_out-0"), (1, "l_out-1"), (-1, "result_output")]


def test_biases_are_nodes(tiny_model: Callable[..., str]) -> None:
    ops = [(t.name, t.op) for t in graph_of(tiny_model(variant="all_biases")).nodes]
    for name in ("Qcur-0", "Kcur-0", "Vcur-0", "ffn_up_b-0", "ffn_gate_b-0"):
        assert (name, "ADD") in ops


# a forward pass by hand --------------------------------------------------------------------------


def rms(x: np.ndarray, w: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def rope(x: np.ndarray, base: float) -> np.ndarray:
    """x: [n_tokens, n_head, n_embd_head], neighbours turned by position 0, 1, 2 ..."""
    n, _, d = x.shape
    angle = np.outer(np.arange(n), base ** (-np.arange(0, d, 2) / d))[:, None]
    z = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angle)
    out = np.empty_like(x)
    out[..., 0::2], out[..., 1::2] = z.real, z.imag
    return out


def forward(
    w: dict[str, np.ndarray],
    ids: list[int],
    n_head: int,
    n_layer: int = 2,
    eps: float = 1e-5,
    kept: type = np.float64,
) -> np.ndarray:
    """Logits of every token, float64 [n_tokens, n_vocab]; no cache, no batches, no graph.

    Keys and values are rounded to `kept`.
    """
    w = {k: v.astype(np.float64) for k, v in w.items()}
    x = w["token_embd.weight"][ids]
    n = len(ids)
    for i in range(n_layer):
        p = {k.removeprefix(f"blk.{i}."): v for k, v in w.items() if k.startswith(f"blk.{i}.")}
        h = rms(x, p["attn_norm.weight"], eps)
        q, k, v = (
            (h @ p[f"attn_{c}.weight"].T + p.get(f"attn_{c}.bias", 0)).reshape(n, -1, 8)
            for c in "qkv"
        )
        q, k = rope(q, 10000.0), rope(k, 10000.0)
        k, v = (np.asarray(t, kept).astype(np.float64) for t in (k, v))
        group = n_head // k.shape[1]
        k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
        scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(q.shape[-1])
        scores[:, np.triu(np.ones((n, n), bool), 1)] = -np.inf
        a = np.exp(scores - scores.max(-1, keepdims=True))
        a /= a.sum(-1, keepdims=True)
        x = x + np.einsum("hij,jhd->ihd", a, v).reshape(n, -1) @ p["attn_output.weight"].T
        h = rms(x, p["ffn_norm.weight"], eps)
        gate = h @ p["ffn_gate.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ p["ffn_up.weight"].T)) @ p["ffn_down.weight"].T
    return rms(x, w["output_norm.weight"], eps) @ w.get("output.weight", w["token_embd.weight"]).T


IDS = [1, 60, 261, 7, 262, 259, 100, 263, 3]


@pytest.mark.parametrize("n_ubatch", [512, 4, 1])
@pytest.mark.parametrize("trait", ["base", "tied", "q_bias", "one_kv_head", "mha", "large_eps"])
def test_logits_are_those_of_a_plain_forward_pass(
    trait: str, n_ubatch: int, tmp_path: Path
) -> None:
    kv, data, eps = keys(), tensors(), 1e-5
    if trait == "tied":
        data = without(data, "output.weight")
    elif trait == "q_bias":
        data["blk.0.attn_q.bias"] = np.linspace(-1, 1, 32, dtype=np.float32)
    elif trait in ("one_kv_head", "mha"):
        n_kv = 1 if trait == "one_kv_head" else 4
        kv["llama.attention.head_count_kv"] = (V.UINT32, n_kv)
        data = tensors(n_head_kv=n_kv)
    elif trait == "large_eps":
        eps = 0.5
        kv["llama.attention.layer_norm_rms_epsilon"] = (V.FLOAT32, eps)
    model = load(write(tmp_path / "x.gguf", kv, data))
    ctx = model.context(n_ctx=256, n_ubatch=n_ubatch, type_k="f32", type_v="f32")
    assert ctx.decode(Batch(token=IDS, logits=[True] * len(IDS))) == 0
    ours = np.stack([ctx.get_logits_ith(i) for i in range(len(IDS))])
    exact = forward(data, IDS, n_head=4, eps=eps)
    np.testing.assert_allclose(ours, exact, rtol=0, atol=1e-5)


def test_a_float16_cache_rounds_keys_and_values_only(tmp_path: Path) -> None:
    data = tensors()
    ctx = load(write(tmp_path / "x.gguf", keys(), data)).context(n_ctx=256)
    assert ctx.decode(Batch(token=IDS, logits=[True] * len(IDS))) == 0
    ours = np.stack([ctx.get_logits_ith(i) for i in range(len(IDS))])
    rounded = forward(data, IDS, n_head=4, kept=np.float16)
    np.testing.assert_allclose(ours, rounded, rtol=0, atol=5e-4)  # a tie may round the other way
    assert np.abs(ours - forward(data, IDS, n_head=4)).max() > 1e-3


# hyperparameters and names -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_layer", "n_vocab", "n_head", "n_head_kv", "name"),
    [
        (22, 32000, 32, 4, "1B"),
        (26, 32000, 32, 32, "3B"),
        (30, 49152, 9, 3, "256M"),
        (32, 32000, 32, 32, "7B"),
        (32, 128256, 32, 8, "8B"),
        (40, 32000, 40, 40, "13B"),
        (80, 32000, 64, 64, "65B"),
        (80, 32000, 64, 8, "70B"),
        (2, 345, 4, 2, "?B"),
    ],
)
def test_size_names(n_layer: int, n_vocab: int, n_head: int, n_head_kv: int, name: str) -> None:
    """As llama.cpp's model description guesses them."""
    hp = HParams(
        n_layer=n_layer,
        n_vocab=n_vocab,
        n_head_arr=np.full(n_layer, n_head),
        n_head_kv_arr=np.full(n_layer, n_head_kv),
    )
    assert Llama.size_name(hp) == name


def test_frequency_factors_are_shared_by_all_layers(tiny_model: Callable[..., str]) -> None:
    model = llmviz.load(tiny_model(variant="rope_freqs"))
    assert model.weights is not None
    factors = [layer.rope_freqs for layer in model.weights.layers]
    assert factors[0] is not None and all(f is factors[0] for f in factors)
    assert factors[0].array is not None
    np.testing.assert_allclose(factors[0].array, np.geomspace(1, 8, 8), rtol=1e-6)


def test_uneven_layers_are_refused(tmp_path: Path) -> None:
    kv = {**keys(), "llama.attention.head_count_kv": (V.UINT32, [2, 4])}
    with pytest.raises(GGUFError, match=r"head_count_kv.*\[2, 4\]"):
        load(write(tmp_path / "x.gguf", kv))
