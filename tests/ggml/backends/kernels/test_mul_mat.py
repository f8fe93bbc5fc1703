"""Compiled kernels equal the plain numpy form bit for bit, however the work is shared out."""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np
import pytest

from llmviz.ggml import dots, quants
from llmviz.ggml.types import TYPES, GGMLType

numba = pytest.importorskip("numba", reason="the kernels need numba")


@pytest.fixture(scope="module")
def kernels():
    from llmviz.ggml.backends import kernels as package

    if not package.supported():
        pytest.skip("this processor has neither AVX2 nor NEON")
    return package.load()


TYPES_TESTED = sorted(dots.DOTS)


def case(type_: GGMLType, rows: int, k: int, m: int):
    """A matrix as a file holds it, and activations with zeros, a small and a large column."""
    rng = np.random.default_rng((int(type_), rows, m))
    w = rng.standard_normal((rows, k)).astype(np.float32)
    raw = quants.quantize(w, TYPES[type_].name).reshape(rows, -1)
    x = rng.standard_normal((m, k)).astype(np.float32)
    x *= np.exp(rng.standard_normal((m, 1)) * 3).astype(np.float32)
    x[0, :256] = 0
    return raw, x


@pytest.mark.parametrize("type_", TYPES_TESTED, ids=lambda t: t.name)
def test_equal(kernels, type_):
    for rows, m in ((1, 1), (33, 1), (20, 4), (7, 21)):
        raw, x = case(type_, rows, 512, m)
        group = dots.group_of(type_)
        plain, fast = (dots.Activations.empty(m, 512, group) for _ in range(2))
        (dots.quantize_q8 if group == 32 else dots.quantize_q8_k)(x, plain)
        kernels.quantize(x, fast)
        for a, b in zip(plain, fast, strict=True):
            np.testing.assert_array_equal(a, b)
        expected, out = np.empty((m, rows), np.float32), np.zeros((m, rows), np.float32)
        dots.mul_mat(type_, raw, plain, expected)
        kernels.mul_mat(type_, raw, fast, out)
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("type_", TYPES_TESTED, ids=lambda t: t.name)
def test_many_columns(kernels, type_):
    """Tiles add in another order than plain numpy: equal to 1e-6, or bit for bit on request."""
    for rows, m in ((37, 35), (16, 32), (7, 33)):
        raw, x = case(type_, rows, 512, m)
        q = dots.Activations.empty(m, 512, dots.group_of(type_))
        kernels.quantize(x, q)
        expected, out = np.empty((m, rows), np.float32), np.zeros((m, rows), np.float32)
        dots.mul_mat(type_, raw, q, expected)
        kernels.mul_mat(type_, raw, q, out)
        for column, exact in zip(out, expected, strict=True):
            assert np.abs(column - exact).max() <= 1e-6 * np.abs(exact).max()
        kernels.mul_mat(type_, raw, q, out, exact=True)
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("type_", TYPES_TESTED, ids=lambda t: t.name)
def test_tiles_hold_the_largest_sums(kernels, type_):
    """Codes and activations as large as they can be: no sum of 16 bits overflows."""
    rng = np.random.default_rng(3)
    w = np.where(rng.random((16, 512)) < 0.5, -1, 1).astype(np.float32)
    w[:8] = [[1], [-1]] * 4
    raw = quants.quantize(w, TYPES[type_].name).reshape(16, -1)
    x = np.where(rng.random((32, 512)) < 0.5, -1, 1).astype(np.float32)
    x[:8] = [[1], [1], [-1], [-1]] * 2
    q = dots.Activations.empty(32, 512, dots.group_of(type_))
    kernels.quantize(x, q)
    expected, out = np.empty((32, 16), np.float32), np.empty((32, 16), np.float32)
    dots.mul_mat(type_, raw, q, expected)
    kernels.mul_mat(type_, raw, q, out)
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("m", [5, 40])
@pytest.mark.parametrize("type_", [GGMLType.Q4_0, GGMLType.Q4_1], ids=lambda t: t.name)
def test_threads_change_nothing(kernels, type_, m):
    raw, x = case(type_, 301, 2048, m)
    q = dots.Activations.empty(m, 2048, 32)
    kernels.quantize(x, q)
    results = []
    for n in (1, 2):
        if n > numba.config.NUMBA_NUM_THREADS:
            continue
        out = np.empty((m, 301), np.float32)
        kernels.product(type_, raw, q, out, n)()
        results.append(out)
    for out in results[1:]:
        np.testing.assert_array_equal(out, results[0])


@pytest.mark.parametrize("m", [1, 32])
@pytest.mark.parametrize("type_", TYPES_TESTED, ids=lambda t: t.name)
def test_odd_scales(kernels, type_, m):
    """Infinite and NaN scales give what numpy gives; tiles, which add otherwise, no number."""
    raw, x = case(type_, 16, 512, m)
    raw = raw.copy()
    at = {GGMLType.Q6_K: 208, GGMLType.Q2_K: 80, GGMLType.Q3_K: 108}.get(type_, 0)
    raw[0, at : at + 2] = [0x00, 0x7C]  # infinity
    raw[1, at : at + 2] = [0x00, 0x7E]  # not a number
    raw[2, at : at + 2] = [0x01, 0x00]  # the smallest half float
    if type_ == GGMLType.MXFP4:
        raw[:3, 0] = [0, 1, 254 if m == 1 else 200]  # sums of 2^126 pass beyond float32
    q = dots.Activations.empty(m, 512, dots.group_of(type_))
    kernels.quantize(x, q)
    expected, out = np.empty((m, 16), np.float32), np.empty((m, 16), np.float32)
    with np.errstate(all="ignore"):
        dots.mul_mat(type_, raw, q, expected)
    kernels.mul_mat(type_, raw, q, out)
    if m == 1:
        np.testing.assert_array_equal(out, expected)
    else:
        finite = np.isfinite(expected)
        np.testing.assert_array_equal(np.isfinite(out), finite)
        largest = np.abs(expected[finite]).max()
        np.testing.assert_allclose(out[finite], expected[finite], rtol=0, atol=1e-6 * largest)


@pytest.mark.skipif(sys.platform == "win32", reason="pages are guarded with mprotect")
@pytest.mark.parametrize(("rows", "m"), [(5, 5), (21, 32)])
@pytest.mark.parametrize("type_", TYPES_TESTED, ids=lambda t: t.name)
def test_last_row_at_the_end_of_memory(kernels, type_, rows, m):
    """Nothing is read beyond the matrix: the page after its last byte may not be touched."""
    raw, x = case(type_, rows, 512, m)
    page = mmap.PAGESIZE
    n = -(-raw.nbytes // page)
    with mmap.mmap(-1, (n + 1) * page) as memory:
        whole = np.frombuffer(memory, np.uint8)
        view = whole[n * page - raw.nbytes : n * page].reshape(raw.shape)
        view[...] = raw
        guard = ctypes.c_void_p(whole.ctypes.data + n * page)
        assert ctypes.CDLL(None).mprotect(guard, page, 0) == 0
        try:
            q = dots.Activations.empty(m, 512, dots.group_of(type_))
            kernels.quantize(x, q)
            out, expected = (np.empty((m, rows), np.float32) for _ in range(2))
            kernels.mul_mat(type_, view, q, out)
            kernels.mul_mat(type_, raw, q, expected)
        finally:
            ctypes.CDLL(None).mprotect(guard, page, mmap.PROT_READ | mmap.PROT_WRITE)
            del view, whole
        np.testing.assert_array_equal(out, expected)
