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


def test_threads_change_nothing(kernels):
    raw, x = case(GGMLType.Q4_1, 301, 512, 5)
    q = dots.Activations.empty(5, 512, 32)
    kernels.quantize(x, q)
    results = []
    for n in (1, 2):
        if n > numba.config.NUMBA_NUM_THREADS:
            continue
        kernels.set_threads(n)
        out = np.empty((5, 301), np.float32)
        kernels.mul_mat(GGMLType.Q4_1, raw, q, out)
        results.append(out)
    for out in results[1:]:
        np.testing.assert_array_equal(out, results[0])


@pytest.mark.parametrize("type_", TYPES_TESTED, ids=lambda t: t.name)
def test_odd_scales(kernels, type_):
    """Infinite and NaN scales give what numpy gives."""
    raw, x = case(type_, 4, 512, 1)
    raw = raw.copy()
    at = 208 if type_ == GGMLType.Q6_K else 0
    raw[0, at : at + 2] = [0x00, 0x7C]  # infinity
    raw[1, at : at + 2] = [0x00, 0x7E]  # not a number
    raw[2, at : at + 2] = [0x01, 0x00]  # the smallest half float
    if type_ == GGMLType.MXFP4:
        raw[:3, 0] = [0, 1, 254]
    q = dots.Activations.empty(1, 512, dots.group_of(type_))
    kernels.quantize(x, q)
    expected, out = np.empty((1, 4), np.float32), np.empty((1, 4), np.float32)
    with np.errstate(all="ignore"):
        dots.mul_mat(type_, raw, q, expected)
    kernels.mul_mat(type_, raw, q, out)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.skipif(sys.platform == "win32", reason="pages are guarded with mprotect")
@pytest.mark.parametrize("type_", TYPES_TESTED, ids=lambda t: t.name)
def test_last_row_at_the_end_of_memory(kernels, type_):
    """Nothing is read beyond the matrix: the page after its last byte may not be touched."""
    raw, x = case(type_, 5, 512, 5)
    page = mmap.PAGESIZE
    n = -(-raw.nbytes // page)
    with mmap.mmap(-1, (n + 1) * page) as memory:
        whole = np.frombuffer(memory, np.uint8)
        view = whole[n * page - raw.nbytes : n * page].reshape(raw.shape)
        view[...] = raw
        guard = ctypes.c_void_p(whole.ctypes.data + n * page)
        assert ctypes.CDLL(None).mprotect(guard, page, 0) == 0
        try:
            q = dots.Activations.empty(5, 512, dots.group_of(type_))
            kernels.quantize(x, q)
            out, expected = (np.empty((5, 5), np.float32) for _ in range(2))
            kernels.mul_mat(type_, view, q, out)
            kernels.mul_mat(type_, raw, q, expected)
        finally:
            ctypes.CDLL(None).mprotect(guard, page, mmap.PROT_READ | mmap.PROT_WRITE)
            del view, whole
        np.testing.assert_array_equal(out, expected)
