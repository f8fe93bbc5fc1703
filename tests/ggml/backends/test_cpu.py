"""Each CPU kernel against the same formula in plain numpy, float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from llmviz.errors import UnsupportedError
from llmviz.events import drain
from llmviz.ggml import ops
from llmviz.ggml.backends.backend import BindScope
from llmviz.ggml.backends.cpu import CPU
from llmviz.ggml.graph import Tensor, new_tensor
from llmviz.ggml.sched import Sched, never
from llmviz.ggml.types import GGMLType
from tests.ggml.graphs import compute, graph_of, leaf, rms_norm, softmax

RNG = np.random.default_rng(7)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


def close(ours: np.ndarray, exact: np.ndarray, tol: float = 2e-6) -> None:
    """Equal up to float32 rounding of a short sum: error relative to the largest value."""
    assert ours.dtype == np.float32
    assert ours.shape == exact.shape
    assert np.isfinite(ours).all()
    limit = tol * max(1.0, float(np.abs(exact).max(initial=0.0)))
    np.testing.assert_allclose(ours, exact, rtol=0, atol=limit)


def f64(x: np.ndarray) -> np.ndarray:
    return np.asarray(x, np.float64)


# elementwise -------------------------------------------------------------------------------------


@pytest.mark.parametrize("b_shape", [(3, 5, 8), (8,), (1,), (5, 8), (3, 1, 8), (3, 5, 1)])
def test_add_and_mul(b_shape: tuple[int, ...]) -> None:
    a, b = normal(3, 5, 8), normal(*b_shape)
    total, product = compute(ops.add(leaf(a), leaf(b)), ops.mul(leaf(a), leaf(b)))
    close(total, f64(a) + f64(b))
    close(product, f64(a) * f64(b))


def test_scale() -> None:
    a = normal(3, 8)
    close(compute(ops.scale(leaf(a), -0.3))[0], f64(a) * -0.3)


def test_rms_norm_by_hand() -> None:
    """3 and 4 have the mean square 12.5."""
    (out,) = compute(ops.rms_norm(leaf(np.array([[3.0, 4.0]], np.float32)), 0.0))
    close(out, np.array([[3.0, 4.0]]) / 12.5**0.5)


@pytest.mark.parametrize("eps", [1e-6, 1e-5, 0.5])
@pytest.mark.parametrize("shape", [(1, 576), (7, 64), (2, 3, 16)])
def test_rms_norm(shape: tuple[int, ...], eps: float) -> None:
    a = normal(*shape) * 3
    close(compute(ops.rms_norm(leaf(a), eps))[0], rms_norm(a, eps))


def test_the_epsilon_stands_under_the_root() -> None:
    (out,) = compute(ops.rms_norm(leaf(np.zeros((1, 4), np.float32)), 1e-5))
    assert out.tolist() == [[0.0] * 4]
    (out,) = compute(ops.rms_norm(leaf(np.full((1, 4), 1.0, np.float32)), 3.0))
    close(out, np.full((1, 4), 0.5))


def test_swiglu() -> None:
    gate, up = normal(5, 96) * 4, normal(5, 96)
    (out,) = compute(ops.swiglu_split(leaf(gate), leaf(up)))
    close(out, f64(gate) / (1 + np.exp(-f64(gate))) * f64(up))


def test_swiglu_far_out() -> None:
    """exp overflows for very negative gates; silu is 0 there, the gate itself at the other end."""
    gate = np.array([[-500.0, -100.0, 0.0, 100.0, 500.0]], np.float32)
    (out,) = compute(ops.swiglu_split(leaf(gate), leaf(np.ones((1, 5), np.float32))))
    np.testing.assert_allclose(out, [[0.0, 0.0, 0.0, 100.0, 500.0]], atol=1e-30)


# products ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [0, 1, 2, 7, 33])
def test_mul_mat_of_a_weight(m: int) -> None:
    w, x = normal(96, 64), normal(m, 64)
    (out,) = compute(ops.mul_mat(leaf(w), leaf(x)))
    close(out, f64(x) @ f64(w).T)


def test_mul_mat_by_hand() -> None:
    w = np.array([[1, 2, 3], [0, 1, 0]], np.float32)  # two outputs of three inputs
    (out,) = compute(ops.mul_mat(leaf(w), leaf(np.array([[1, 10, 100]], np.float32))))
    assert out.tolist() == [[321.0, 10.0]]


@pytest.mark.parametrize("m", [1, 2, 7])
@pytest.mark.parametrize(("n_head", "n_head_kv"), [(4, 4), (4, 2), (4, 1), (9, 3)])
def test_scores_of_grouped_queries(n_head: int, n_head_kv: int, m: int) -> None:
    """Head h looks at key head h // group."""
    n_kv, k = 32, 16
    keys, queries = normal(n_head_kv, n_kv, k), normal(n_head, m, k)
    (out,) = compute(ops.mul_mat(leaf(keys), leaf(queries)))
    exact = np.stack(
        [f64(queries[h]) @ f64(keys[h // (n_head // n_head_kv)]).T for h in range(n_head)]
    )
    close(out, exact)


@pytest.mark.parametrize("m", [1, 5])
@pytest.mark.parametrize(("n_head", "n_head_kv"), [(4, 4), (4, 2), (6, 1)])
def test_scores_from_permuted_windows(n_head: int, n_head_kv: int, m: int) -> None:
    """As attention reads them: queries and keys lie token by token, heads side by side."""
    n_kv, cells, k = 20, 32, 8
    q, cache = normal(m, n_head, k), normal(cells, n_head_kv * k)
    queries = ops.permute(leaf(q), 0, 2, 1, 3)
    window = ops.view(leaf(cache), (k, n_head_kv, n_kv), (4 * k, 4 * k * n_head_kv))
    (out,) = compute(ops.mul_mat(ops.permute(window, 0, 2, 1, 3), queries))
    keys = f64(cache[:n_kv]).reshape(n_kv, n_head_kv, k)
    exact = np.stack(
        [f64(q[:, h]) @ keys[:, h // (n_head // n_head_kv)].T for h in range(n_head)]
    )  # [n_head, m, n_kv]
    close(out, exact)


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize(("n_head", "n_head_kv"), [(4, 2), (2, 2)])
def test_products_of_several_streams(n_head: int, n_head_kv: int, m: int) -> None:
    n_stream, n_kv, k = 3, 16, 8
    keys = normal(n_stream, n_head_kv, n_kv, k)
    queries = normal(n_stream, m, n_head, k)
    (out,) = compute(ops.mul_mat(leaf(keys), ops.permute(leaf(queries), 0, 2, 1, 3)))
    group = n_head // n_head_kv
    exact = np.einsum("smhk,shnk->shmn", f64(queries), np.repeat(f64(keys), group, axis=1))
    close(out, exact)


@pytest.mark.parametrize("m", [1, 4])
def test_values_from_the_transposed_cache(m: int) -> None:
    """V is kept [n_embd_v, kv_size]; the product with the weights reads whole rows of it."""
    n_head, n_head_kv, n_kv, cells, k = 4, 2, 20, 32, 8
    cache, weights = normal(n_head_kv * k, cells), softmax(normal(n_head, m, n_kv))
    weights32 = weights.astype(np.float32)
    window = ops.view(leaf(cache), (n_kv, n_head_kv, k), (4 * cells * k, 4 * cells))
    (out,) = compute(ops.mul_mat(ops.permute(window, 0, 2, 1, 3), leaf(weights32)))
    values = f64(cache[:, :n_kv]).reshape(n_head_kv, k, n_kv)
    exact = np.stack([f64(weights32[h]) @ values[h // 2].T for h in range(n_head)])
    close(out, exact)


def half_cache(values: np.ndarray) -> Tensor:
    """A float16 leaf with the float32 mirror that its owner keeps."""
    narrow = values.astype(np.float16)
    t = leaf(narrow, "cache")
    t.mirror = narrow.astype(np.float32).reshape(-1)
    return t


@pytest.mark.parametrize("offset_rows", [0, 5])
@pytest.mark.parametrize("m", [1, 3])
def test_windows_of_a_float16_cache(m: int, offset_rows: int) -> None:
    n_head_kv, n_kv, k = 2, 20, 8
    cache = normal(32, n_head_kv * k)
    row = 2 * n_head_kv * k
    window = ops.view(
        half_cache(cache), (k, n_head_kv, n_kv), (2 * k, row), offset=row * offset_rows
    )
    q = normal(4, m, k)
    (out,) = compute(ops.mul_mat(ops.permute(window, 0, 2, 1, 3), leaf(q)))
    rounded = f64(cache.astype(np.float16))[offset_rows : offset_rows + n_kv]
    keys = rounded.reshape(n_kv, n_head_kv, k)
    close(out, np.stack([f64(q[h]) @ keys[:, h // 2].T for h in range(4)]))


def test_a_float16_operand_without_a_mirror_is_refused() -> None:
    out = ops.mul_mat(leaf(np.zeros((4, 8), np.float16)), leaf(normal(2, 8)))
    with pytest.raises(UnsupportedError, match="f16"):
        compute(out)


# softmax -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [1, 6])
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_soft_max_with_a_causal_mask(m: int, scale: float) -> None:
    n_kv = 16
    x = normal(4, m, n_kv) * 5
    mask = np.where(np.arange(n_kv) <= np.arange(m)[:, None] + 3, 0, -np.inf).astype(np.float32)
    (out,) = compute(ops.soft_max_ext(leaf(x), leaf(mask), scale))
    close(out, softmax(f64(x) * scale + mask))
    assert (out[..., np.isinf(mask)] == 0).all()
    np.testing.assert_allclose(out.sum(-1), 1.0, atol=1e-6)


def test_soft_max_without_a_mask_by_hand() -> None:
    x = np.log(np.array([[1.0, 2.0, 5.0]])).astype(np.float32)
    close(compute(ops.soft_max_ext(leaf(x), None, 1.0))[0], np.array([[0.125, 0.25, 0.625]]))


def test_soft_max_of_large_scores_does_not_overflow() -> None:
    x = np.array([[1e4, 1e4 - 1, -1e4]], np.float32)
    (out,) = compute(ops.soft_max_ext(leaf(x), None, 1.0))
    close(out, softmax(x))


def test_soft_max_of_streams() -> None:
    """The mask has one plane per stream, which all heads of the stream share."""
    n_stream, n_head, m, n_kv = 2, 3, 4, 8
    x = normal(n_stream, n_head, m, n_kv)
    mask = np.where(RNG.random((n_stream, 1, m, n_kv)) < 0.5, 0, -np.inf).astype(np.float32)
    mask[..., 0] = 0
    (out,) = compute(ops.soft_max_ext(leaf(x), leaf(mask), 0.5))
    close(out, softmax(f64(x) * 0.5 + mask))


def test_alibi_needs_a_mask() -> None:
    with pytest.raises(ValueError, match="ALiBi"):
        ops.soft_max_ext(leaf(normal(1, 2, 4)), None, 1.0, max_bias=8.0)


# rows --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [[0], [3, 3, 1], [], list(range(5))])
def test_get_rows(ids: list[int]) -> None:
    table = normal(5, 8)
    (out,) = compute(ops.get_rows(leaf(table), leaf(np.array(ids, np.int32))))
    np.testing.assert_array_equal(out, table[ids].reshape(-1, 8))


def test_set_rows() -> None:
    cache, rows = np.zeros((6, 4), np.float32), normal(2, 4)
    compute(ops.set_rows(target := leaf(cache), leaf(rows), leaf(np.array([4, 1], np.int64))))
    assert target.array is not None
    expected = np.zeros((6, 4), np.float32)
    expected[[4, 1]] = rows
    np.testing.assert_array_equal(target.array, expected)


def test_set_rows_rounds_once_and_keeps_the_mirror() -> None:
    target = half_cache(np.zeros((6, 4), np.float32))
    rows = normal(2, 4)
    compute(ops.set_rows(target, leaf(rows), leaf(np.array([5, 0], np.int64))))
    assert target.array is not None and target.mirror is not None
    expected = np.zeros((6, 4), np.float16)
    expected[[5, 0]] = rows.astype(np.float16)
    np.testing.assert_array_equal(target.array, expected)
    np.testing.assert_array_equal(target.mirror.reshape(6, 4), expected.astype(np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_set_rows_of_the_transposed_v_cache(dtype: Any) -> None:
    """V is written value by value: cell j of value i lies at ``i * kv_size + j``."""
    n_embd, kv_size, cells = 4, 8, [6, 2]
    v = normal(2, n_embd)  # two tokens
    store = np.zeros((n_embd, kv_size), dtype)
    target = half_cache(store) if dtype == np.float16 else leaf(store)
    ids = np.array([i * kv_size + c for c in cells for i in range(n_embd)], np.int64)
    flat = ops.reshape(target, 1, n_embd * kv_size)
    compute(ops.set_rows(flat, ops.reshape(leaf(v), 1, 2 * n_embd), leaf(ids)))
    expected = np.zeros((n_embd, kv_size), dtype)
    expected[:, cells] = v.T.astype(dtype)
    assert target.array is not None
    np.testing.assert_array_equal(target.array, expected)
    if target.mirror is not None:
        np.testing.assert_array_equal(target.mirror.reshape(n_embd, kv_size), expected)


def test_what_was_written_is_what_is_read_in_the_same_graph() -> None:
    """Attention reads the window that SET_ROWS has just filled, through the mirror."""
    target = half_cache(np.zeros((8, 4), np.float32))
    rows, q = normal(3, 4), normal(2, 4)
    write = ops.set_rows(target, leaf(rows), leaf(np.arange(3, dtype=np.int64)))
    read = ops.mul_mat(ops.view(target, (4, 3), (8,)), leaf(q))
    sched = Sched([CPU()])
    sched.alloc_graph(graph_of(write, read), [read])
    drain(sched.compute(never))
    assert read.array is not None
    close(read.array, f64(q) @ f64(rows.astype(np.float16)).T)


def test_cont() -> None:
    a = normal(4, 3, 8)  # [n_head, n_tokens, k]
    merged = ops.cont(ops.permute(leaf(a), 0, 2, 1, 3), 32, 3)
    (out,) = compute(merged)
    np.testing.assert_array_equal(out, a.swapaxes(0, 1).reshape(3, 32))


def test_cont_of_a_transpose() -> None:
    a = normal(3, 5)
    np.testing.assert_array_equal(compute(ops.cont(ops.transpose(leaf(a))))[0], a.T)


# no rows at all ----------------------------------------------------------------------------------


def test_graphs_without_outputs_run() -> None:
    """A ubatch in which no token is an output has tensors of zero rows from the last layer on."""
    x = leaf(normal(4, 8))
    ids = leaf(np.zeros(0, np.int32))
    none = ops.get_rows(x, ids)
    w = leaf(normal(6, 8))
    gate = ops.mul_mat(w, ops.mul(ops.rms_norm(ops.add(none, none), 1e-5), leaf(normal(8))))
    out = ops.scale(ops.swiglu_split(gate, ops.mul_mat(w, none)), 2.0)
    assert compute(out)[0].shape == (0, 6)


# the backend -------------------------------------------------------------------------------------


def test_views_have_no_kernel() -> None:
    a = leaf(normal(2, 8))
    for view in (ops.reshape(a, 4, 4), ops.view(a, (4,)), ops.permute(a, 1, 0, 2, 3)):
        assert CPU().supports(view)
        assert CPU().bind(view, BindScope()) is None


def test_an_unknown_op_is_refused() -> None:
    odd = Tensor(GGMLType.F32, (4,), op="FLASH_ATTN_EXT")
    assert not CPU().supports(odd)
    with pytest.raises(UnsupportedError, match="FLASH_ATTN_EXT"):
        CPU().bind(odd, BindScope())


def test_an_unknown_gate_is_refused() -> None:
    out = ops.swiglu_split(leaf(normal(2, 8)), leaf(normal(2, 8)))
    out.params = {"glu": "xielu"}
    with pytest.raises(UnsupportedError, match="xielu"):
        compute(out)


def test_binding_before_allocation_says_so() -> None:
    out = ops.scale(new_tensor(GGMLType.F32, 4, name="x"), 2.0)
    with pytest.raises(RuntimeError, match="x has no memory"):
        CPU().bind(out, BindScope())


def test_kernels_write_only_their_own_memory() -> None:
    """The sources of every op are as before once the graph has run."""
    a, b = normal(4, 3, 8), normal(4, 5, 8)
    la, lb = leaf(a.copy()), leaf(b.copy())
    mask = np.zeros((5, 3), np.float32)
    compute(
        ops.soft_max_ext(ops.mul_mat(la, lb), leaf(mask), 0.3),
        ops.rms_norm(la, 1e-5),
        ops.add(la, la),
        ops.swiglu_split(lb, lb),
    )
    np.testing.assert_array_equal(la.array, a)
    np.testing.assert_array_equal(lb.array, b)
