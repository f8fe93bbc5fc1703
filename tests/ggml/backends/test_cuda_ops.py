"""Each launch of the CUDA backend, run on the processor, against the CPU backend's plain form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from llmviz.ggml import ops
from llmviz.ggml.graph import Tensor
from llmviz.ggml.types import GGMLType
from tests.ggml.backends.cuda_shim.device import SLACK, Build, Leaf, both, compute_on, leaf_on

RNG = np.random.default_rng(11)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


def check(cuda: Any, build: Build, tol: float = 2e-6) -> list[np.ndarray]:
    found = both(cuda, build)
    for ours, plain in found:
        assert ours.dtype == plain.dtype and ours.shape == plain.shape
        limit = tol * SLACK * max(1.0, float(np.abs(plain[np.isfinite(plain)]).max(initial=0.0)))
        np.testing.assert_allclose(ours, plain, rtol=0, atol=limit)
    return [ours for ours, _ in found]


@pytest.mark.parametrize("shape", [(3, 5, 8), (8,), (1,), (5, 8), (3, 1, 8), (3, 5, 1)])
def test_binary(cuda: Any, shape: tuple[int, ...]) -> None:
    a, b = normal(3, 5, 8), normal(*shape) + 3
    check(cuda, lambda x: [f(x(a), x(b)) for f in (ops.add, ops.mul, ops.div)])


def test_binary_of_a_window(cuda: Any) -> None:
    """Rows that do not lie one after the other, and a transposed operand."""
    a, b = normal(6, 16), normal(6, 5)

    def build(x: Leaf) -> list[Tensor]:
        window = ops.view(x(a), (5, 6), (64,), 8)
        return [ops.add(window, x(b)), ops.mul(x(b), window), ops.sqr(window)]

    check(cuda, build)


@pytest.mark.parametrize("name", ops.UNARY_OPS)
def test_unary(cuda: Any, name: str) -> None:
    a = np.concatenate([normal(300) * 4, np.float32([0, -0.0, 9.99, 10, -10, 80, -80])])
    check(cuda, lambda x: [ops.unary(x(a), name)])


def test_scale_clamp_fill(cuda: Any) -> None:
    a = normal(7, 33)
    check(cuda, lambda x: [ops.scale(x(a), -0.3), ops.clamp(x(a), -0.5, 0.25), ops.fill(x(a), 2)])


@pytest.mark.parametrize("name", ops.GLU_OPS)
def test_glu(cuda: Any, name: str) -> None:
    gate, up = normal(5, 96) * 4, normal(5, 96)
    params = {"alpha": 1.702, "limit": 7.0} if name == "swiglu_oai" else {}
    check(cuda, lambda x: [ops.glu_split(x(gate), x(up), name, **params)])
    if not params:
        check(cuda, lambda x: [ops.glu(x(gate), name)])


@pytest.mark.parametrize("shape", [(1, 576), (7, 64), (2, 3, 16), (3, 1100), (2, 5)])
def test_norms(cuda: Any, shape: tuple[int, ...]) -> None:
    a = normal(*shape) * 3 + 1
    check(cuda, lambda x: [ops.rms_norm(x(a), 1e-5), ops.norm(x(a), 1e-5), ops.sum_rows(x(a))])


def test_norm_of_heads_inside_wider_rows(cuda: Any) -> None:
    a = normal(4, 48)  # three heads of 16 a token, the middle one's

    def build(x: Leaf) -> list[Tensor]:
        return [ops.rms_norm(ops.view(x(a), (16, 1, 4), (64, 192), 64), 1e-6)]

    check(cuda, build)


@pytest.mark.parametrize("n_kv", [1, 31, 256, 1500])
def test_soft_max(cuda: Any, n_kv: int) -> None:
    a, mask = normal(3, 2, n_kv) * 5, np.zeros((2, n_kv), np.float32)
    mask[0, n_kv // 2 + 1 :] = -np.inf
    check(cuda, lambda x: [ops.soft_max_ext(x(a), x(mask), 0.4), ops.soft_max_ext(x(a), None, 1)])


def test_soft_max_with_alibi_sinks_and_streams(cuda: Any) -> None:
    a, sinks = normal(2, 6, 3, 40), normal(6)
    mask = -np.abs(normal(2, 1, 3, 40))
    mask[:, :, 0, 9:] = -np.inf

    def build(x: Leaf) -> list[Tensor]:
        m = x(mask)
        return [
            ops.soft_max_ext(x(a), m, 0.3, max_bias=8.0),
            ops.soft_max_ext(x(a), m, 0.3, sinks=x(sinks)),
            ops.soft_max_ext(x(a), m, 0.3, max_bias=4.0, sinks=x(sinks)),
        ]

    check(cuda, build)


ROPE: dict[str, Any] = dict(
    n_ctx_orig=4096, freq_base=10000.0, freq_scale=1.0, ext_factor=0.0, attn_factor=1.0,
    beta_fast=32.0, beta_slow=1.0,
)  # fmt: skip


@pytest.mark.parametrize("mode", ["norm", "neox"])
@pytest.mark.parametrize("n_rot", [16, 10])
@pytest.mark.parametrize(
    "settings", [{}, {"freq_scale": 0.25}, {"freq_scale": 0.25, "ext_factor": 1.0}]
)
@pytest.mark.parametrize("has_factors", [False, True])
def test_rope(cuda: Any, mode: str, n_rot: int, settings: Any, has_factors: bool) -> None:
    a, pos = normal(5, 3, 16), np.array([0, 1, 17, 900, 8000], np.int32)
    factors = RNG.uniform(1, 8, n_rot // 2).astype(np.float32)

    def build(x: Leaf) -> list[Tensor]:
        at, f = x(pos), x(factors) if has_factors else None
        params = {**ROPE, **settings, "n_dims": n_rot, "mode": mode}
        first = ops.rope_ext(x(a), at, f, **params)
        window = ops.view(x(a), (16, 2, 5), (64, 192), 64)
        return [first, ops.rope_ext(window, at, f, **params)]  # shares the angles

    check(cuda, build)


def test_rope_with_four_positions(cuda: Any) -> None:
    a, pos = normal(3, 2, 16), np.arange(12, dtype=np.int32) * 7
    params = {**ROPE, "n_dims": 16, "mode": "mrope", "sections": (2, 3, 3, 0)}
    check(cuda, lambda x: [ops.rope_ext(x(a), x(pos), None, **params)])


@pytest.mark.parametrize("m", [1, 3, 8, 9, 40])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("n_kv", [32, 37])
def test_attention_products(cuda: Any, m: int, dtype: Any, n_kv: int) -> None:
    """Heads share keys, rows lie apart; float16 keys as a cache has them."""
    k, q = normal(n_kv, 2, 16).astype(dtype), normal(m, 6, 16)
    v, p = normal(2, 16, n_kv + 3).astype(dtype), np.abs(normal(6, m, n_kv))

    def build(x: Leaf) -> list[Tensor]:
        rows = ops.permute(x(k), 0, 2, 1, 3)
        columns = ops.view(x(v), (n_kv, 16, 2), (x(v).nb[1], x(v).nb[2]))
        return [ops.mul_mat(rows, ops.permute(x(q), 0, 2, 1, 3)), ops.mul_mat(columns, x(p))]

    ours = compute_on(cuda, build(lambda a: leaf_on(cuda, a)))
    k64, q64 = k.astype(float).swapaxes(0, 1).repeat(3, 0), q.astype(float).swapaxes(0, 1)
    v64 = v.astype(float)[..., :n_kv].repeat(3, 0)
    exact = [q64 @ k64.swapaxes(1, 2), p.astype(float) @ v64.swapaxes(1, 2)]
    for found, right in zip(ours, exact, strict=True):
        np.testing.assert_allclose(found, right, atol=2e-5)


def test_attention_products_of_streams(cuda: Any) -> None:
    k, q = normal(2, 2, 33, 16), normal(2, 4, 3, 16)
    (found,) = compute_on(cuda, [ops.mul_mat(leaf_on(cuda, k), leaf_on(cuda, q))])
    np.testing.assert_allclose(found, q @ k.repeat(2, 1).swapaxes(2, 3), atol=1e-5)


@pytest.mark.parametrize("m", [1, 2, 8, 9, 33])
@pytest.mark.parametrize("shape", [(7, 12), (65, 96), (4, 33)])
def test_product_with_a_float_matrix(cuda: Any, m: int, shape: tuple[int, int]) -> None:
    w, a = normal(*shape), normal(m, shape[1])
    check(cuda, lambda x: [ops.mul_mat(x(w), x(a))], 5e-6)


def test_rows(cuda: Any) -> None:
    a, ids = normal(9, 12), np.array([8, 0, 3, 3], np.int32)
    each, which = normal(3, 5, 4), np.array([[4, 0], [1, 1], [2, 3]], np.int32)

    def build(x: Leaf) -> list[Tensor]:
        wide = ops.view(x(a), (7, 9), (48,), 8)
        return [
            ops.get_rows(x(a), x(ids)),
            ops.get_rows(x(each), x(which)),
            ops.pad(wide, 3),
            ops.concat(wide, x(a)),
            ops.cont(ops.transpose(x(a))),
            ops.cont(wide, 63),
        ]

    for ours, plain in both(cuda, build):
        np.testing.assert_array_equal(ours, plain)


def test_half_floats_are_fetched_and_copied(cuda: Any) -> None:
    a, ids = normal(6, 10).astype(np.float16), np.array([5, 0], np.int32)
    fetched, turned = compute_on(
        cuda,
        [
            ops.get_rows(leaf_on(cuda, a), leaf_on(cuda, ids)),
            ops.cont(ops.transpose(leaf_on(cuda, a))),
        ],
    )
    np.testing.assert_array_equal(fetched, a[ids].astype(np.float32))
    np.testing.assert_array_equal(turned, a.T)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("ids_dtype", [np.int64, np.int32])
def test_rows_are_stored(cuda: Any, dtype: Any, ids_dtype: Any) -> None:
    cache, new = normal(6, 8).astype(dtype), normal(2, 12) * 1000
    there = leaf_on(cuda, cache)
    rows = ops.view(leaf_on(cuda, new), (8, 2), (48,), 16)
    (after,) = compute_on(cuda, [ops.set_rows(there, rows, leaf_on(cuda, ids_dtype([4, 1])))])
    cache[[4, 1]] = new[:, 4:]
    np.testing.assert_array_equal(after, cache)


def test_single_values_are_stored(cuda: Any) -> None:
    """A transposed cache: one value a row."""
    there = leaf_on(cuda, np.zeros((10, 1), np.float16))
    rows = leaf_on(cuda, np.float32([[1.5], [-2.5], [3e5]]))
    (after,) = compute_on(cuda, [ops.set_rows(there, rows, leaf_on(cuda, np.int64([7, 0, 3])))])
    assert after[:, 0].tolist() == [-2.5, 0, 0, np.inf, 0, 0, 0, 1.5, 0, 0]


def test_experts(cuda: Any) -> None:
    w, a, bias = normal(5, 7, 12), normal(4, 1, 12), normal(5, 7)
    probs = normal(4, 5)
    probs[1, 3] = probs[1, 0]  # of equals the first wins

    def build(x: Leaf) -> list[Tensor]:
        chosen = ops.argsort_top_k(x(probs), 2)
        first = ops.mul_mat_id(x(w), x(a), chosen)
        again = ops.mul_mat_id(ops.reshape(x(w), 12, 7, 5), x(normal(4, 2, 12) * 0 + 1), chosen)
        return [chosen, first, ops.add_id(first, x(bias), chosen), again]

    check(cuda, build, 1e-5)


def test_argsort_puts_what_is_no_number_last(cuda: Any) -> None:
    a = np.float32([[1, np.nan, 3, -np.inf, 3]])
    (order,) = compute_on(cuda, [ops.argsort_top_k(leaf_on(cuda, a), 5)])
    assert order.tolist() == [[2, 4, 0, 3, 1]]


def test_unsupported_ops_are_not_taken(cuda: Any) -> None:
    a, b = (Tensor(GGMLType.F32, (8, 4)) for _ in "ab")
    half = Tensor(GGMLType.F16, (8, 4))
    assert cuda.supports(ops.add(a, b))
    assert not cuda.supports(ops.add(a, half))
    assert not cuda.supports(Tensor(GGMLType.F32, (8, 4), op="IM2COL", src=(a,)))
    strange = Tensor(GGMLType.IQ1_S, (256, 4))
    assert not cuda.supports(ops.mul_mat(strange, Tensor(GGMLType.F32, (256, 1))))
    assert not cuda.supports(ops.sum_rows(ops.transpose(a)))


@pytest.mark.usefixtures("cupy")
def test_norms_are_joined_with_their_weights(cuda: Any) -> None:
    a, w, other = normal(3, 16), normal(16), normal(3, 16)

    def build(x: Leaf) -> list[Tensor]:
        normed = ops.rms_norm(x(a), 1e-5)
        plain = ops.norm(x(a), 1e-5)  # read twice: stays
        return [ops.mul(normed, x(w)), ops.mul(plain, x(w)), ops.add(plain, x(other))]

    leaf = lambda array: leaf_on(cuda, array)  # noqa: E731
    seen = compute_on(cuda, build(leaf))
    before = cuda.stream.n_launches
    unseen = compute_on(cuda, build(leaf), unseen=True)
    # four launches the first time, then one for each of the two runs of the recorded graph
    assert cuda.stream.n_launches - before == 4 + 1 + 1
    for x, y in zip(seen, unseen, strict=True):
        np.testing.assert_array_equal(x, y)
