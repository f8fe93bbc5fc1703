"""Kernels that other architectures than llama need, each against plain numpy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from llmviz.ggml import ops
from llmviz.ggml.backends.cpu_attention import alibi_slopes
from llmviz.ggml.graph import Tensor, new_tensor
from llmviz.ggml.types import GGMLType
from tests.ggml.graphs import compute, leaf, softmax

RNG = np.random.default_rng(11)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


def close(ours: np.ndarray, exact: np.ndarray, tol: float = 2e-6) -> None:
    assert ours.dtype == np.float32
    assert ours.shape == exact.shape
    np.testing.assert_allclose(ours, exact, rtol=0, atol=tol * max(1.0, np.abs(exact).max()))


def gelu(x: np.ndarray) -> np.ndarray:
    x = np.asarray(x, np.float64)
    return 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))


EXACT = {
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


@pytest.mark.parametrize("op", EXACT)
def test_unary(op: str) -> None:
    x = normal(3, 32) * 4
    close(compute(ops.unary(leaf(x), op))[0], EXACT[op](np.float64(x)))


def test_gelu_is_a_float16_table() -> None:
    """ggml's CPU looks GELU up for the value rounded to float16; far out it is 0 or the value."""
    x = np.array([[0.0, 1.0, -1.0, 3.3333, -10.0, -11.0, 10.0, 12.345678, 1e5, -1e5]], np.float32)
    (out,) = compute(ops.unary(leaf(x), "gelu"))
    assert out[0, 4:].tolist() == [0.0, 0.0, 10.0, np.float32(12.345678), 1e5, 0.0]
    near = x[:, :4].astype(np.float16)
    np.testing.assert_array_equal(out[:, :4], gelu(near).astype(np.float16).astype(np.float32))


@pytest.mark.parametrize("op", ["swiglu", "reglu", "geglu"])
def test_gates_in_two_tensors_and_in_halves(op: str) -> None:
    x = normal(5, 48) * 3
    a, b = np.ascontiguousarray(x[:, :24]), np.ascontiguousarray(x[:, 24:])
    split, fused = compute(ops.glu_split(leaf(a), leaf(b), op), ops.glu(leaf(x), op))
    act = gelu if op == "geglu" else EXACT[{"swiglu": "silu", "reglu": "relu"}[op]]
    close(split, act(np.float64(a)) * np.float64(b), 2e-3 if op == "geglu" else 2e-6)
    np.testing.assert_array_equal(split, fused)


def test_swiglu_oai_clamps() -> None:
    gate = np.array([[-9.0, 0.0, 3.0, 7.0, 9.0]], np.float32)
    up = np.array([[1.0, 2.0, -8.0, 8.0, 0.5]], np.float32)
    (out,) = compute(ops.glu_split(leaf(gate), leaf(up), "swiglu_oai", alpha=1.702, limit=7.0))
    x, y = np.minimum(gate, 7).astype(np.float64), np.clip(up, -7, 7).astype(np.float64)
    close(out, x / (1 + np.exp(-1.702 * x)) * (y + 1))


def test_norm_by_hand() -> None:
    """1 and 3 have the mean 2 and the variance 1."""
    (out,) = compute(ops.norm(leaf(np.array([[1.0, 3.0]], np.float32)), 0.0))
    close(out, np.array([[-1.0, 1.0]]))


@pytest.mark.parametrize("shape", [(1, 64), (7, 64), (2, 3, 16)])
def test_norm(shape: tuple[int, ...]) -> None:
    x = normal(*shape) * 3 + 5
    d = np.float64(x) - np.float64(x).mean(-1, keepdims=True)
    close(compute(ops.norm(leaf(x), 1e-5))[0], d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5))


def test_small_ops() -> None:
    x, y = normal(3, 8), np.abs(normal(3, 1)) + 1
    div, sqr, low, total, padded, joined, filled = compute(
        ops.div(leaf(x), leaf(y)), ops.sqr(leaf(x)), ops.clamp(leaf(x), -0.5, np.inf),
        ops.sum_rows(leaf(x)), ops.pad(leaf(x), 2), ops.concat(leaf(x), leaf(y)),
        ops.fill(leaf(x), -np.inf),
    )  # fmt: skip
    close(div, np.float64(x) / y)
    close(sqr, np.float64(x) ** 2)
    close(low, np.maximum(x, -0.5))
    close(total, np.float64(x).sum(-1, keepdims=True))
    np.testing.assert_array_equal(padded, np.pad(x, ((0, 0), (0, 2))))
    np.testing.assert_array_equal(joined, np.concatenate((x, y), -1))
    assert (filled == -np.inf).all()


# experts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_tokens", [1, 6])
@pytest.mark.parametrize("rows", ["one for all", "one for each"])
def test_experts(n_tokens: int, rows: str) -> None:
    n_expert, n_used, n, k = 5, 3, 8, 16
    scores, w = normal(n_tokens, n_expert), normal(n_expert, n, k)
    b, bias = normal(n_tokens, n_used if rows == "one for each" else 1, k), normal(n_expert, n)
    ids = ops.argsort_top_k(leaf(scores), n_used)
    product = ops.mul_mat_id(leaf(w), leaf(b), ids)
    top, out, biased = compute(ids, product, ops.add_id(product, leaf(bias), ids))
    best = np.argsort(-scores, -1)[:, :n_used]
    assert top.tolist() == best.tolist()
    each = np.broadcast_to(np.float64(b), (n_tokens, n_used, k))
    exact = np.einsum("tuk,tunk->tun", each, np.float64(w)[best])
    close(out, exact)
    close(biased, exact + bias[best])


def test_rows_of_each_matrix() -> None:
    """The weights of the chosen experts: each token's own rows."""
    probs = normal(4, 6, 1)
    ids = ops.argsort_top_k(ops.reshape(leaf(probs), 6, 4), 2)
    (out,) = compute(ops.get_rows(leaf(probs), ids))
    np.testing.assert_array_equal(out, -np.sort(-probs, 1)[:, :2])
    back = ops.set_rows(ops.fill(leaf(probs), 0.0), ops.get_rows(leaf(probs), ids), ids)
    (kept,) = compute(back)
    assert (np.count_nonzero(kept, axis=(1, 2)) == 2).all()
    np.testing.assert_array_equal(kept.max(1), probs.max(1))


# attention --------------------------------------------------------------------------------------


def test_alibi_slopes() -> None:
    """8 heads with a bias of 8: halves; heads beyond a power of two lie between them."""
    assert alibi_slopes(8, 8.0).tolist() == [2.0**-i for i in range(1, 9)]
    twelve = alibi_slopes(12, 8.0)
    assert twelve[:8].tolist() == [2.0**-i for i in range(1, 9)]
    np.testing.assert_allclose(twelve[8:], [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5], rtol=1e-6)


@pytest.mark.parametrize("with_sinks", [False, True])
@pytest.mark.parametrize("max_bias", [0.0, 8.0])
def test_soft_max_with_extras(max_bias: float, with_sinks: bool) -> None:
    x, mask, sinks = normal(4, 3, 8), -np.abs(normal(3, 8)), normal(4)
    mask[0, 5:] = -np.inf
    node = ops.soft_max_ext(leaf(x), leaf(mask), 0.5, max_bias, leaf(sinks) if with_sinks else None)
    (out,) = compute(node)
    slopes = alibi_slopes(4, max_bias)[:, None, None] if max_bias else 1.0
    scores = np.float64(x) * 0.5 + slopes * np.float64(mask)
    if with_sinks:
        column = np.broadcast_to(np.float64(sinks)[:, None, None], (4, 3, 1))
        close(out, softmax(np.concatenate((scores, column), -1))[..., :-1])
    else:
        close(out, softmax(scores))


@pytest.mark.parametrize("sections", [(8, 0, 0, 0), (2, 3, 3, 0), (2, 2, 2, 2), (1, 1, 0, 0)])
def test_mrope_takes_each_pair_its_position(sections: tuple[int, ...]) -> None:
    n_tokens, head = 3, 16
    x, pos = normal(n_tokens, 2, head), RNG.integers(0, 50, (4, n_tokens)).astype(np.int32)
    settings = {
        "n_ctx_orig": 128, "freq_base": 1e4, "freq_scale": 1.0, "ext_factor": 0.0,
        "attn_factor": 1.0, "beta_fast": 32.0, "beta_slow": 1.0,
    }  # fmt: skip
    node = ops.rope_ext(
        leaf(x), leaf(pos.reshape(-1)), None, n_dims=head, mode="mrope", sections=sections,
        **settings,
    )  # fmt: skip
    (out,) = compute(node)
    which = np.repeat(np.arange(4), sections)[np.arange(head // 2) % sum(sections)]
    theta = pos[which].T * 1e4 ** (-np.arange(head // 2) / (head // 2))  # [n_tokens, 8]
    a, b = np.float64(x[..., :8]), np.float64(x[..., 8:])
    cos, sin = np.cos(theta)[:, None], np.sin(theta)[:, None]
    close(out, np.concatenate((a * cos - b * sin, a * sin + b * cos), -1), 2e-5)


def bad_shapes() -> list[tuple[str, object]]:
    def t(*ne: int) -> Tensor:
        return new_tensor(GGMLType.F32, *ne)

    return [
        ("UNARY", lambda: ops.unary(t(4), "softplus")),
        ("GLU", lambda: ops.glu(t(5), "swiglu")),
        ("GLU", lambda: ops.glu_split(t(4), t(4), "xielu")),
        ("MUL_MAT_ID", lambda: ops.mul_mat_id(t(4, 3, 2), t(5, 1, 2), t(2, 2))),
        ("ADD_ID", lambda: ops.add_id(t(4, 2, 3), t(4, 5), t(3, 3))),
        ("ARGSORT", lambda: ops.argsort_top_k(t(4, 2), 5)),
        ("GET_ROWS", lambda: ops.get_rows(t(4, 2, 3), t(2, 2))),
        ("CONCAT", lambda: ops.concat(t(4, 2), t(4, 3))),
        ("SOFT_MAX", lambda: ops.soft_max_ext(t(4, 2, 3), None, 1.0, sinks=t(4))),
    ]


@pytest.mark.parametrize(("name", "build"), bad_shapes())
def test_what_does_not_fit_is_refused(name: str, build: object) -> None:
    with pytest.raises(ValueError, match=name):
        build()  # type: ignore[operator]
