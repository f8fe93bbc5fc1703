"""Kernels for a file's own blocks, run on the processor: decoding, products, experts, edges."""

from __future__ import annotations

import ctypes
import mmap
import sys
from typing import Any

import numpy as np
import pytest

from llmviz.ggml import dots, ops, quants
from llmviz.ggml.backends.cuda.library import BLOCK_TYPES, structs, type_source
from llmviz.ggml.graph import Tensor, new_tensor
from llmviz.ggml.types import GGMLType
from tests.ggml.backends.cuda_shim import build
from tests.ggml.backends.cuda_shim.device import SLACK, blocks_on, compute_on, leaf_on

ALL = pytest.mark.parametrize("type_", BLOCK_TYPES, ids=lambda t: t.name)


def random_blocks(type_: GGMLType, n: int, k: int, seed: int = 3) -> np.ndarray:
    """Rows of blocks whose bytes are random, but for scales that are of a size: uint8[n, bytes]."""
    rng = np.random.default_rng(seed)
    kind = quants.get(type_)
    blocks = rng.integers(0, 256, (n * k // kind.block_size, kind.type_size), np.uint8)
    blocks = blocks.view(kind.block_dtype)[:, 0]
    for name in ("d", "m", "dmin"):
        if name in kind.block_dtype.names:
            blocks[name] = rng.uniform(-0.1, 0.1, len(blocks))
    if "e" in kind.block_dtype.names:
        blocks["e"] = rng.integers(110, 130, len(blocks))
    return blocks.view(np.uint8).reshape(n, -1)


def activations(m: int, k: int) -> np.ndarray:
    x = np.random.default_rng(m).standard_normal((m, k), dtype=np.float32)
    x[0, 32:64] = 0  # a group without a scale
    return x


def rounded(type_: GGMLType, x: np.ndarray) -> np.ndarray:
    """What the eight-bit codes of x stand for, as the CPU rounds them."""
    group = BLOCK_TYPES[type_]
    q = dots.Activations.empty(*x.shape, group)
    (dots.quantize_q8 if group == 32 else dots.quantize_q8_k)(x, q)
    return q.q * q.d.repeat(group, axis=1)


def decode(type_: GGMLType, raw: np.ndarray) -> np.ndarray:
    return quants.get(type_).dequantize(np.ascontiguousarray(raw).reshape(-1)).reshape(len(raw), -1)


def product(cuda: Any, type_: GGMLType, raw: np.ndarray, x: np.ndarray) -> np.ndarray:
    weight = blocks_on(cuda, type_, raw, x.shape[1])
    return compute_on(cuda, [ops.mul_mat(weight, leaf_on(cuda, x))])[0]


@ALL
def test_rows_are_decoded_bit_for_bit(cuda: Any, type_: GGMLType) -> None:
    raw, ids = random_blocks(type_, 6, 512), np.int32([5, 0, 3])
    weight = blocks_on(cuda, type_, raw, 512)
    (found,) = compute_on(cuda, [ops.get_rows(weight, leaf_on(cuda, ids))])
    np.testing.assert_array_equal(found, decode(type_, raw)[ids])


@ALL
@pytest.mark.parametrize("m", [1, 3, 8])
def test_few_columns(cuda: Any, type_: GGMLType, m: int) -> None:
    """As the CPU's plain form, whose integers are the same; floats are added in another order."""
    raw, x = random_blocks(type_, 5, 768), activations(m, 768)
    found = product(cuda, type_, raw, x)
    weights, codes = decode(type_, raw).astype(float), rounded(type_, x).astype(float)
    size = np.abs(codes) @ np.abs(weights).T  # what the terms of a sum add up to
    if type_ in dots.DOTS:
        q = dots.Activations.empty(m, 768, BLOCK_TYPES[type_])
        (dots.quantize_q8 if BLOCK_TYPES[type_] == 32 else dots.quantize_q8_k)(x, q)
        plain = np.empty((m, 5), np.float32)
        dots.mul_mat(type_, raw, q, plain)
    else:
        plain = codes @ weights.T
    assert (np.abs(found - plain) <= 2e-6 * SLACK * size).all()


@ALL
def test_many_columns_give_the_same_numbers(cuda: Any, type_: GGMLType) -> None:
    raw, x = random_blocks(type_, 5, 512), activations(20, 512)
    few = np.concatenate([product(cuda, type_, raw, x[i : i + 4]) for i in range(0, 20, 4)])
    many = product(cuda, type_, raw, x)
    size = np.abs(rounded(type_, x)) @ np.abs(decode(type_, raw)).T
    assert (np.abs(many - few) <= 2e-6 * SLACK * size).all()


def test_a_matrix_larger_than_a_tile(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from llmviz.ggml.backends.cuda import ops_matmul

    raw, x = random_blocks(GGMLType.Q5_1, 11, 64), activations(10, 64)
    whole = product(cuda, GGMLType.Q5_1, raw, x)
    monkeypatch.setattr(ops_matmul, "TILE_BYTES", 4 * 64 * 4)
    np.testing.assert_allclose(product(cuda, GGMLType.Q5_1, raw, x), whole, atol=1e-5)


def test_without_cublas(cuda: Any, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    raw, x = random_blocks(GGMLType.Q4_1, 40, 96), activations(35, 96)
    with_it = product(cuda, GGMLType.Q4_1, raw, x)
    monkeypatch.delattr(cupy.cuda, "cublas")
    np.testing.assert_allclose(product(cuda, GGMLType.Q4_1, raw, x), with_it, atol=1e-4)


@pytest.mark.parametrize("group", [32, 256])
def test_activations_are_rounded_as_on_the_cpu(cuda: Any, group: int) -> None:
    """All bits, of rows that lie apart; ties between two values that are furthest from zero."""
    x = np.random.default_rng(0).standard_normal((6, 1024), dtype=np.float32)
    x[0, :512] = 0
    x[1, 3], x[1, 100], x[1, 200] = 9, -9, 9
    x[2, 7], x[2, 255] = -9, 9
    x[3] *= 1e-30
    x[4] = np.float32(3e38) * np.sign(x[4])
    x[5, :256] = np.arange(256) - 127.5
    there = leaf_on(cuda, x)
    window = ops.view(there, (768, 6), (4096,), 1024)
    expected = dots.Activations.empty(6, 768, group)
    with np.errstate(all="ignore"):
        (dots.quantize_q8 if group == 32 else dots.quantize_q8_k)(x[:, 256:].copy(), expected)
    q, d = cuda.cupy.ndarray((6, 768), np.int8), cuda.cupy.ndarray((6, 768 // group), np.float32)
    s = cuda.cupy.ndarray(expected.s.shape, expected.s.dtype)
    window.home = cuda
    window.bind(there.buffer)
    n = 6 * 768 // group
    at = {"ne": window.ne, "nb": window.nb}
    launch = cuda.library.launch(
        f"quantize_{group}", (-(-n // 4),), (32, 4), x=window.array, x_at=at, q=q, d=d, s=s,
        k=768, n_groups=n,
    )  # fmt: skip
    launch()
    for ours, plain in zip((q, d, s), expected, strict=True):
        np.testing.assert_array_equal(cuda.get(ours), plain)


@ALL
def test_experts_in_blocks(cuda: Any, type_: GGMLType) -> None:
    raw, ids = random_blocks(type_, 12, 256), np.int32([[2, 0], [1, 2], [0, 1]])
    for n_rows in (1, 2):
        x = np.random.default_rng(1).standard_normal((3, n_rows, 256), dtype=np.float32)
        weight = new_tensor(type_, 256, 4, 3, name="experts")
        weight.home, weight.is_weight = cuda, True
        buffer = cuda.alloc(raw.nbytes, "weights")
        cuda.set(buffer, raw.reshape(-1))
        weight.adopt_blocks(buffer)
        node = ops.mul_mat_id(weight, leaf_on(cuda, x), leaf_on(cuda, ids))
        (found,) = compute_on(cuda, [node])
        w = decode(type_, raw).reshape(3, 4, 256).astype(float)
        r = rounded(type_, x.reshape(-1, 256)).reshape(x.shape).astype(float)
        for t, e in np.ndindex(3, 2):
            exact = w[ids[t, e]] @ r[t, e % n_rows]
            np.testing.assert_allclose(found[t, e], exact, atol=1e-3 * np.abs(exact).max())


@pytest.mark.usefixtures("cupy")
@pytest.mark.skipif(sys.platform == "win32", reason="pages are guarded with mprotect")
@ALL
def test_last_row_at_the_end_of_memory(cuda: Any, type_: GGMLType) -> None:
    """Nothing is read beyond the matrix: the page after its last byte may not be touched."""
    raw, x = random_blocks(type_, 5, 256), activations(2, 256)
    expected = product(cuda, type_, raw, x)
    page = mmap.PAGESIZE
    n = -(-raw.nbytes // page)
    with mmap.mmap(-1, (n + 1) * page) as memory:
        whole = np.frombuffer(memory, np.uint8)
        end = n * page - raw.nbytes
        # a type that is read in words begins at one: its blocks are whole words
        whole[end : n * page] = raw.reshape(-1)
        guard = ctypes.c_void_p(whole.ctypes.data + n * page)
        assert ctypes.CDLL(None).mprotect(guard, page, 0) == 0
        try:
            weight = new_tensor(type_, 256, 5, name="at the end")
            weight.home, weight.is_weight = cuda, True
            from tests.ggml.backends.cuda_shim.fake_cupy import Array, Pointer

            at = Pointer(whole, whole.ctypes.data + end)
            weight.adopt_blocks(Array((raw.nbytes,), np.uint8, at))
            nodes = [
                ops.mul_mat(weight, leaf_on(cuda, x)),
                ops.get_rows(weight, leaf_on(cuda, np.int32([4]))),
            ]
            found, row = compute_on(cuda, nodes)
        finally:
            ctypes.CDLL(None).mprotect(guard, page, mmap.PROT_READ | mmap.PROT_WRITE)
            del weight, nodes, at, whole
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(row[0], decode(type_, raw)[4])


def test_blocks_that_are_not_a_weight_alone(cuda: Any) -> None:
    """Matrices of blocks in several planes have no kernel: the scheduler gives them to the CPU."""
    several = Tensor(GGMLType.Q4_0, (64, 4, 2))
    assert not cuda.supports(ops.mul_mat(several, Tensor(GGMLType.F32, (64, 1, 2))))


@pytest.mark.usefixtures("cupy")
def test_structs_are_laid_out_as_the_compiler_does(cuda: Any) -> None:
    layouts = {**structs(build.everything()), **structs(type_source())}
    for kernel, struct in build.all_kernels().items():
        assert build.size(kernel) == layouts[struct].itemsize, struct


@pytest.mark.usefixtures("cupy")
def test_every_kernel_is_in_the_list(cuda: Any) -> None:
    assert build.names_in_source() == set(build.all_kernels())
