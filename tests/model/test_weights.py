"""Weights kept as the file's blocks: what stays, what it computes, when it is chosen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import llmviz
from llmviz.batch import Batch
from llmviz.ggml.backends import kernels
from llmviz.ggml.decode import decoded, decoded_rows
from llmviz.ggml.types import GGMLType
from llmviz.model.weights import keeps_blocks

TOKENS = [5, 9, 17, 30, 2, 11]


@pytest.fixture
def compiled(monkeypatch):
    monkeypatch.delenv("LLMVIZ_KERNELS")
    if not kernels.usable():
        pytest.skip("no numba, or a processor without AVX2 and NEON")


def logits(model, chunks, **params):
    ctx = model.context(n_ctx=64, **params)
    for chunk in chunks:
        ctx.decode(Batch.get_one(chunk))
    return ctx.get_logits_ith(-1).copy()


@pytest.mark.filterwarnings("ignore:weights='quantized' is computed by numpy")
def test_plain_numpy(tiny_model):
    """Matrices stay blocks, vectors are floats; logits are those of f32 but for the rounding."""
    path = tiny_model(weight_type="Q4_1")
    kept, exact = (llmviz.load(path, weights=w) for w in ("quantized", "f32"))
    layer = kept.weights.layers[0]
    assert layer.wq.type == GGMLType.Q4_1 and layer.wq.array is None
    assert layer.wq.blocks.base is not None  # the file's own bytes
    assert layer.attn_norm.type == GGMLType.F32
    np.testing.assert_array_equal(decoded(layer.wq), exact.weights.layers[0].wq.array)
    rows = decoded_rows(layer.wq, [3, 0])
    np.testing.assert_array_equal(rows, decoded(layer.wq)[[3, 0]])
    a, b = (logits(m, [TOKENS]) for m in (kept, exact))
    error = np.linalg.norm(a - b) / np.linalg.norm(b)
    assert 1e-5 < error < 0.05


@pytest.mark.filterwarnings("ignore:weights='quantized' is computed by numpy")
@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0", "Q6_K"])
def test_compiled_is_plain_numpy(tiny_model, compiled, monkeypatch, kind):
    """In one batch and token by token; with any number of threads the same bits.

    The products are equal bit for bit (`tests/ggml/backends/kernels`); norms and softmax add in
    another order, and where that turns a rounding over, what follows differs by some 1e-3.
    """
    model = llmviz.load(tiny_model(weight_type=kind), weights="quantized")
    assert model.keeps_blocks
    each = [[t] for t in TOKENS]
    exact = {"type_k": "f32", "type_v": "f32"}  # with half floats the compiled form rounds queries
    fast = [logits(model, chunks, n_threads=1, **exact) for chunks in ([TOKENS], each)]
    for chunks, found in zip(([TOKENS], each), fast, strict=True):
        np.testing.assert_array_equal(found, logits(model, chunks, n_threads=2, **exact))
    monkeypatch.setenv("LLMVIZ_KERNELS", "off")
    for chunks, found in zip(([TOKENS], each), fast, strict=True):
        plain = logits(model, chunks, **exact)
        assert np.linalg.norm(found - plain) <= 5e-3 * np.linalg.norm(plain)


def test_auto(tiny_model, compiled, monkeypatch, tmp_path):
    """float32 until the kernels are there, which are compiled meanwhile; quantized from then on."""
    asked = []
    monkeypatch.setattr(kernels, "warm_up", asked.append)
    monkeypatch.setattr(kernels, "warm", lambda types: False)
    path = tiny_model(weight_type="Q4_1")
    model = llmviz.load(path)
    assert model.weights.layers[0].wq.type == GGMLType.F32
    assert asked == [[GGMLType.Q4_1]]
    monkeypatch.setattr(kernels, "warm", lambda types: True)
    assert llmviz.load(path).weights.layers[0].wq.type == GGMLType.Q4_1
    monkeypatch.setenv("LLMVIZ_KERNELS", "off")
    assert llmviz.load(path).weights.layers[0].wq.type == GGMLType.F32
    assert len(asked) == 1


def test_nothing_to_keep(tiny_model):
    with llmviz.open_gguf(tiny_model(weight_type="F16")) as gguf:
        assert not keeps_blocks(gguf, "quantized")


def test_check_tensors_looks_into_blocks(tiny_model, tmp_path):
    raw = bytearray(Path(tiny_model(weight_type="Q8_0")).read_bytes())
    with llmviz.open_gguf(tiny_model(weight_type="Q8_0")) as gguf:
        info = gguf.tensor_infos["blk.0.attn_q.weight"]
        raw[info.abs_offset : info.abs_offset + 2] = b"\x00\x7e"  # a scale that is not a number
    path = tmp_path / "nan.gguf"
    path.write_bytes(raw)
    with (
        pytest.warns(UserWarning, match="computed by numpy"),
        pytest.raises(llmviz.GGUFError, match="invalid data"),
    ):
        llmviz.load(path, weights="quantized", check_tensors=True)
