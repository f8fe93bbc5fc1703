"""Compiled ops against their plain numpy forms."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba", reason="the kernels need numba")

F = np.float32


@pytest.fixture(scope="module")
def kernels():
    from llmviz.ggml.backends import kernels as package

    if not package.supported():
        pytest.skip("this processor has neither AVX2 nor NEON")
    return package.load()


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def close(a: np.ndarray, b: np.ndarray) -> None:
    assert np.abs(a.astype(np.float64) - b).max() <= 1e-6 * np.abs(b).max()


def test_rms_norm(kernels, rng):
    x = (rng.standard_normal((3, 576)) * 4).astype(F)
    out = np.empty_like(x)
    kernels.rms_norm(x, F(1e-5), out)
    wide = x.astype(np.float64)
    close(out, wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-5))


def test_soft_max(kernels, rng):
    """Masked cells are exactly 0, rows sum to 1, far values vanish."""
    x = (rng.standard_normal((9, 2, 256)) * 40).astype(F)
    mask = np.where(np.arange(256) < [[100], [101]], F(0), F(-np.inf))
    out = np.empty_like(x)
    kernels.soft_max(x, mask, F(0.125), out)
    wide = x.astype(np.float64) * 0.125 + mask
    wide = np.exp(wide - wide.max(-1, keepdims=True))
    close(out, wide / wide.sum(-1, keepdims=True))
    assert not out[:, 0, 100:].any() and not out[:, 1, 101:].any()
    kernels.soft_max(np.full((1, 1, 8), np.nan, F), np.zeros((1, 8), F), F(1), out[:1, :1, :8])
    assert np.isnan(out[0, 0, :8]).all()


def test_swiglu(kernels, rng):
    gate, up = ((rng.standard_normal((2, 96)) * 8).astype(F) for _ in range(2))
    gate[0, :5] = [0, -200, 200, -88.5, 60]
    out = np.empty_like(gate)
    kernels.swiglu(gate, up, out)
    wide = gate.astype(np.float64)
    with np.errstate(over="ignore"):
        close(out, wide / (1 + np.exp(-wide)) * up)


def test_attend(kernels, rng):
    """One token's heads, three to a kv head, over a window of a larger cache."""
    k = rng.standard_normal((300, 3, 64)).astype(F)[:256].transpose(1, 0, 2)
    q = rng.standard_normal((9, 1, 64)).astype(F)
    out = np.empty((9, 1, 256), F)
    kernels.attend(k, q, out)()
    expected = np.einsum("hd,hnd->hn", q[:, 0].astype(np.float64), np.repeat(k, 3, 0))
    close(out[:, 0], expected)


def test_attend_half(kernels, rng):
    """A cache of half floats: the query is rounded to them too."""
    k = rng.standard_normal((3, 256, 64)).astype(np.float16)
    q = rng.standard_normal((9, 1, 64)).astype(F)
    out = np.empty((9, 1, 256), F)
    kernels.attend(k, q, out)()
    rounded = q[:, 0].astype(np.float16).astype(np.float64)
    close(out[:, 0], np.einsum("hd,hnd->hn", rounded, np.repeat(k.astype(np.float64), 3, 0)))


@pytest.mark.parametrize("kind", [F, np.float16])
def test_attend_few(kernels, rng, kind):
    """Several tokens, heads interleaved as queries are, or one after the other as shares are."""
    k = rng.standard_normal((3, 128, 64)).astype(kind)
    q = rng.standard_normal((5, 9, 64)).astype(F).transpose(1, 0, 2)
    for b in (q, np.ascontiguousarray(q)):
        out = np.empty((9, 5, 128), F)
        kernels.attend(k, b, out)()
        rounded = b.astype(kind).astype(np.float64)
        close(out, np.einsum("htd,hnd->htn", rounded, np.repeat(k.astype(np.float64), 3, 0)))


@pytest.mark.parametrize("apart", [1, 24])
def test_rotate(kernels, rng, apart):
    """Neighbours, or halves; values beyond the rotated ones stay."""
    x = rng.standard_normal((3, 2, 64)).astype(F)
    theta = (rng.random((3, 24)) * 900).astype(F)
    cis = np.empty((3, 1, 24), np.complex64)
    kernels.cos_sin(theta, F(1.25), cis)
    exact = 1.25 * np.exp(1j * theta.astype(np.float64))[:, None]
    close(cis.real, exact.real)
    close(cis.imag, exact.imag)
    out = np.empty_like(x)
    kernels.rotate(x, cis, apart, out)
    if apart == 1:
        turned = (x[..., 0:48:2] + 1j * x[..., 1:48:2].astype(np.float64)) * cis
        close(out[..., 0:48:2], turned.real)
        close(out[..., 1:48:2], turned.imag)
    else:
        turned = (x[..., :24] + 1j * x[..., 24:48].astype(np.float64)) * cis
        close(out[..., :24], turned.real)
        close(out[..., 24:48], turned.imag)
    np.testing.assert_array_equal(out[..., 48:], x[..., 48:])


def test_store_half(kernels, rng):
    rows = rng.standard_normal((2, 12)).astype(F)
    rows[0, :3] = [1e6, 1e-8, np.inf]
    cache, mirror = np.zeros((5, 12), np.uint16), np.zeros((5, 12), F)
    kernels.store_half(rows, np.array([4, 1]), cache, mirror)
    with np.errstate(over="ignore"):
        half = rows.astype(np.float16)
    np.testing.assert_array_equal(cache.view(np.float16)[[4, 1]], half)
    np.testing.assert_array_equal(mirror[[4, 1]], half.astype(F))
    assert not cache[[0, 2, 3]].any() and not mirror[[0, 2, 3]].any()
