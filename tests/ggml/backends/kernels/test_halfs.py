"""Products with F16 and BF16 as the file has them."""

from __future__ import annotations

import numpy as np
import pytest

import llmviz
from llmviz.batch import Batch
from llmviz.ggml import quants
from llmviz.ggml.types import GGMLType

pytest.importorskip("numba", reason="the kernels need numba")

KINDS = [GGMLType.F16, GGMLType.BF16]


@pytest.fixture(scope="module")
def kernels():
    from llmviz.ggml.backends import kernels as package

    if not package.supported():
        pytest.skip("this processor has neither AVX2 nor NEON")
    return package.load()


def rounded(type_: GGMLType, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of the type, and the values they stand for."""
    if type_ == GGMLType.F16:
        with np.errstate(over="ignore"):
            raw = x.astype(np.float16).view(np.uint8)
    else:
        bits = x.view(np.uint32).astype(np.uint64)
        up = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
        up = np.where(np.isnan(x), bits >> 16 | 0x40, up)
        raw = up.astype(np.uint16).view(np.uint8)
    return raw, quants.get(type_).dequantize(raw.reshape(-1)).reshape(x.shape)


@pytest.mark.parametrize("type_", KINDS, ids=lambda t: t.name)
def test_rounding(kernels, type_):
    x = np.random.default_rng(2).standard_normal((3, 64)).astype(np.float32)
    x[0, :8] = [0, -0.0, np.inf, -np.inf, np.nan, 1e-8, 1.00390625, 1.01171875]
    out = np.empty_like(x)
    kernels.half_rounder(type_, x, out)()
    np.testing.assert_array_equal(out, rounded(type_, x)[1])


@pytest.mark.parametrize("type_", KINDS, ids=lambda t: t.name)
def test_product(kernels, type_):
    """Rows that are no multiple of what is widened together, columns no multiple of a tile."""
    rng = np.random.default_rng(1)
    for n_rows, m, k in ((70, 1, 96), (70, 2, 96), (37, 50, 64), (5, 3, 2048)):
        raw, w = rounded(type_, rng.standard_normal((n_rows, k)).astype(np.float32))
        x = rounded(type_, rng.standard_normal((m, k)).astype(np.float32))[1]
        exact = x.astype(np.float64) @ w.astype(np.float64).T
        results = []
        for n_threads in (1, 2):
            out = np.full((m, n_rows), np.nan, np.float32)
            kernels.half_product(type_, raw, x, out, n_threads)()
            results.append(out)
        assert np.abs(results[0] - exact).max() <= 1e-6 * np.abs(exact).max()
        np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("kind", ["F16", "BF16"])
def test_every_bit_is_llama_cpps(kernels, llamacpp, tiny_model, monkeypatch, kind):
    """A prompt and tokens one by one; the matrices stay in the file."""
    from llmviz.ggml.backends.kernels.features import AVX2, AVX512

    monkeypatch.delenv("LLMVIZ_KERNELS", raising=False)
    path = tiny_model(weight_type=kind, n_embd=128)  # heads of 32, as the compiled attention needs
    model = llmviz.load(path, weights="quantized")
    wq = model.weights.layers[0].wq
    assert wq.type.name == kind and wq.array is None
    ctx = model.context(n_ctx=64)
    with llamacpp.Reference(path, n_ctx=64, type_k="f16", type_v="f16", n_threads=1) as reference:
        for tokens in ([5, 6, 7, 8, 9, 10, 11], [3], [4, 12], [9]):
            assert reference.decode(tokens) == 0
            assert ctx.decode(Batch.get_one(tokens)) == 0
            theirs, ours = reference.logits_ith(-1), ctx.get_logits_ith(-1)
            if AVX2 and not AVX512:
                np.testing.assert_array_equal(ours, theirs)
            assert np.abs(ours - theirs).max() <= 1e-3 * np.abs(theirs).max()
    assert wq.array is None
