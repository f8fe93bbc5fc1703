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


@pytest.mark.parametrize("m", [2, 5, 50])
@pytest.mark.parametrize("kind", [F, np.float16])
def test_attend_several(kernels, rng, kind, m):
    """Several tokens, heads interleaved as queries are, or one after the other as shares are."""
    k = rng.standard_normal((3, 128, 64)).astype(kind)
    q = rng.standard_normal((m, 9, 64)).astype(F).transpose(1, 0, 2)
    for b in (q, np.ascontiguousarray(q)):
        out = np.empty((9, m, 128), F)
        kernels.attend(k, b, out, k.astype(F))()
        rounded = b.astype(kind).astype(np.float64)
        close(out, np.einsum("htd,hnd->htn", rounded, np.repeat(k.astype(np.float64), 3, 0)))


def test_attend_masked(kernels, rng):
    """Shares that end in zeros: the rest is not multiplied, unless zero times it is no number."""
    v = rng.standard_normal((3, 8, 256)).astype(F)
    shares = rng.random((9, 40, 256)).astype(F)
    for t in range(40):
        shares[:, t, 5 * t + 1 :] = 0
    whole = np.einsum("htn,hdn->htd", shares.astype(np.float64), np.repeat(v, 3, 0))
    out = np.empty((9, 40, 8), F)
    kernels.attend(v, shares, out)()
    close(out, whole)
    v[1, 3, 250] = np.inf
    kernels.attend(v, shares, out)()
    assert np.isnan(out[3:6, :, 3]).all() and np.isfinite(out[:3]).all()


def test_soft_max_hides_what_the_mask_hides(kernels, rng):
    """Nothing behind the mask is computed, but what is not a number there is not hidden."""
    x = rng.standard_normal((2, 5, 32)).astype(F)
    mask = np.full((5, 32), -np.inf, F)
    for t, n in enumerate((1, 9, 32, 0, 17)):
        mask[t, :n] = 0
    x[1, 1, 20], x[1, 0, 0] = np.nan, np.nan
    out = np.empty_like(x)
    kernels.soft_max(x, mask, F(0.5), out)
    with np.errstate(invalid="ignore"):
        wide = x.astype(np.float64) * 0.5 + mask
        wide = np.exp(wide - wide.max(-1, keepdims=True))
        wide /= wide.sum(-1, keepdims=True)
    np.testing.assert_allclose(out, wide, rtol=1e-6, atol=1e-7)
    assert np.isnan(out[1, :2]).all() and np.isnan(out[:, 3]).all()


def test_many_rows(kernels, rng):
    """Ops on many rows give the bits of the same op on one, however many threads share them."""
    x = (rng.standard_normal((70, 9, 64)) * 8).astype(F)
    flat = x.reshape(70, -1)
    up = rng.standard_normal(flat.shape).astype(F)
    cis = np.exp(1j * rng.standard_normal((70, 1, 32))).astype(np.complex64)
    scores = (rng.standard_normal((3, 70, 72)) * 4).astype(F)
    mask = np.where(np.arange(72) <= np.arange(70)[:, None], F(0), F(-np.inf))
    ids = rng.permutation(90)[:70]
    results = []
    for n_threads in (1, 2):
        norm, gated, turned = np.empty_like(flat), np.empty_like(flat), np.empty_like(x)
        shares = np.empty_like(scores)
        cache, mirror = np.zeros((90, 576), np.uint16), np.zeros((90, 576), F)
        kernels.norm_rows(flat, F(1e-5), norm, n_threads)()
        kernels.swiglu_all(flat, up, gated, n_threads)()
        kernels.rotate_rows(x, cis, 32, turned, n_threads)()
        kernels.soft_max_rows(scores, mask, F(0.3), shares, n_threads)()
        kernels.store_rows(flat, ids, cache, mirror, n_threads)()
        results.append((norm, gated, turned, shares, cache, mirror))
    norm, gated, turned = np.empty_like(flat), np.empty_like(flat), np.empty_like(x)
    shares = np.empty_like(scores)
    cache, mirror = np.zeros((90, 576), np.uint16), np.zeros((90, 576), F)
    kernels.rms_norm(flat, F(1e-5), norm)
    kernels.swiglu(flat, up, gated)
    kernels.rotate(x, cis, 32, turned)
    kernels.soft_max(scores, mask, F(0.3), shares)
    kernels.store_half(flat, ids, cache, mirror)
    for many in results:
        for a, b in zip(many, (norm, gated, turned, shares, cache, mirror), strict=True):
            np.testing.assert_array_equal(a, b)


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
