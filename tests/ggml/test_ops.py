"""Shapes, strides and names of the ops' results, worked out from ggml.c's rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from llmviz.ggml import ops
from llmviz.ggml.graph import Tensor, new_tensor
from llmviz.ggml.types import GGMLType

F32, F16, I32, I64 = GGMLType.F32, GGMLType.F16, GGMLType.I32, GGMLType.I64
ROPE: dict[str, Any] = {
    "mode": "norm", "n_ctx_orig": 128, "freq_base": 10000.0, "freq_scale": 1.0, "ext_factor": 0.0,
    "attn_factor": 1.0, "beta_fast": 32.0, "beta_slow": 1.0,
}  # fmt: skip


def leaf(*ne: int, type_: GGMLType = F32, name: str = "a") -> Tensor:
    return new_tensor(type_, *ne, name=name)


def test_binary_ops_take_the_first_shape() -> None:
    a = leaf(6, 4, 2)
    for op, name in ((ops.add, "ADD"), (ops.mul, "MUL")):
        for b in (leaf(6, 4, 2), leaf(6), leaf(1), leaf(3, 2, 1)):
            out = op(a, b)
            assert (out.op, out.ne, out.src, out.type) == (name, (6, 4, 2, 1), [a, b], F32)
            assert out.nb == (4, 24, 96, 192)
            assert not out.is_view


@pytest.mark.parametrize("b", [leaf(4), leaf(6, 3), leaf(6, 4, 2, 2), leaf(12)])
def test_binary_ops_refuse_what_cannot_be_repeated(b: Tensor) -> None:
    with pytest.raises(ValueError, match="repeated"):
        ops.add(leaf(6, 4, 2), b)


@pytest.mark.parametrize(
    ("a", "b", "ne"),
    [
        ((64, 96), (64, 7), (96, 7, 1, 1)),
        ((64, 96), (64,), (96, 1, 1, 1)),
        ((16, 256, 2), (16, 7, 4), (256, 7, 4, 1)),  # grouped queries: 4 heads share 2
        ((256, 16, 2, 3), (256, 7, 4, 3), (16, 7, 4, 3)),
        ((64, 96), (64, 0), (96, 0, 1, 1)),
    ],
)
def test_mul_mat(a: tuple[int, ...], b: tuple[int, ...], ne: tuple[int, ...]) -> None:
    out = ops.mul_mat(leaf(*a), leaf(*b))
    assert (out.op, out.ne) == ("MUL_MAT", ne)


@pytest.mark.parametrize(
    ("a", "b"), [((64, 96), (65, 7)), ((16, 256, 3), (16, 7, 4)), ((16, 8, 1, 2), (16, 8, 1, 3))]
)
def test_mul_mat_refuses(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="MUL_MAT"):
        ops.mul_mat(leaf(*a), leaf(*b))


def test_elementwise_ops_keep_the_shape() -> None:
    a = leaf(6, 4, 2)
    assert ops.scale(a, 0.5).params == {"scale": 0.5}
    assert ops.rms_norm(a, 1e-5).params == {"eps": 1e-5}
    assert ops.scale(a, 0.5).ne == ops.rms_norm(a, 1e-5).ne == (6, 4, 2, 1)
    out = ops.soft_max_ext(a, leaf(6, 4), 0.25)
    assert (out.ne, out.params) == ((6, 4, 2, 1), {"scale": 0.25, "max_bias": 0.0})
    assert len(ops.soft_max_ext(a, None, 1.0).src) == 1


def test_get_rows() -> None:
    out = ops.get_rows(leaf(64, 345), leaf(7, type_=I32))
    assert (out.op, out.ne, out.type, out.shape) == ("GET_ROWS", (64, 7, 1, 1), F32, (7, 64))


def test_set_rows_is_a_view_of_all_of_its_target() -> None:
    cache = leaf(32, 256, type_=F16, name="cache_k_l0")
    rows, ids = leaf(32, 7), leaf(7, type_=I64)
    out = ops.set_rows(cache, rows, ids)
    assert (out.op, out.ne, out.nb, out.type) == ("SET_ROWS", cache.ne, cache.nb, F16)
    assert out.view_src is cache and out.name == "cache_k_l0 (view)"
    assert out.src == [rows, ids, cache]
    for bad_rows, bad_ids in ((leaf(31, 7), ids), (rows, leaf(8, type_=I64))):
        with pytest.raises(ValueError, match="SET_ROWS"):
            ops.set_rows(cache, bad_rows, bad_ids)


def test_reshape() -> None:
    a = leaf(64, 7, name="Qcur-0")
    out = ops.reshape(a, 16, 4, 7)
    assert (out.op, out.ne, out.nb) == ("RESHAPE", (16, 4, 7, 1), (4, 64, 256, 1792))
    assert (out.name, out.view_src, out.view_offs) == ("Qcur-0 (reshaped)", a, 0)
    with pytest.raises(ValueError, match="RESHAPE"):
        ops.reshape(a, 16, 4, 8)
    with pytest.raises(ValueError, match="RESHAPE"):
        ops.reshape(ops.transpose(a), 16, 28)


def test_view_windows() -> None:
    cache = leaf(32, 256, type_=F16, name="cache_k_l1")
    out = ops.view(cache, (16, 2, 100), (32, 64), offset=640)
    assert (out.op, out.ne, out.nb) == ("VIEW", (16, 2, 100, 1), (2, 32, 64, 6400))
    assert (out.name, out.view_offs, out.view_src) == ("cache_k_l1 (view)", 640, cache)
    assert not ops.view(cache, (8, 256), (64,)).is_contiguous
    assert ops.view(cache, (32, 10), (64,)).is_contiguous


def test_permute_moves_each_dimension_to_its_place() -> None:
    a = leaf(16, 4, 7, name="q")
    out = ops.permute(a, 0, 2, 1, 3)
    assert (out.op, out.ne) == ("PERMUTE", (16, 7, 4, 1))
    assert out.nb[:3] == (4, 256, 64)
    assert out.name == "q (permuted)" and out.view_src is a
    assert not out.is_contiguous
    cycle = ops.permute(leaf(2, 3, 5, 7), 1, 2, 3, 0)  # 0 -> 1 -> 2 -> 3 -> 0
    assert cycle.ne == (7, 2, 3, 5)
    assert cycle.nb == (120, 4, 8, 24)


def test_transpose() -> None:
    a = leaf(3, 5, name="v")
    out = ops.transpose(a)
    assert (out.op, out.ne, out.nb[:2], out.name) == (
        "TRANSPOSE",
        (5, 3, 1, 1),
        (12, 4),
        "v (transposed)",
    )


def test_cont() -> None:
    a = ops.permute(leaf(16, 7, 4, name="kqv-0"), 0, 2, 1, 3)
    out = ops.cont(a, 64, 7)
    assert (out.op, out.ne, out.nb) == ("CONT", (64, 7, 1, 1), (4, 256, 1792, 1792))
    assert out.name == "kqv-0 (permuted) (cont)" and not out.is_view
    assert ops.cont(a).ne == (16, 4, 7, 1)
    with pytest.raises(ValueError, match="CONT"):
        ops.cont(a, 64, 8)


def test_rope() -> None:
    a, pos, factors = leaf(16, 4, 7), leaf(7, type_=I32), leaf(8)
    out = ops.rope_ext(a, pos, factors, n_dims=16, **ROPE)
    assert (out.op, out.ne, out.src) == ("ROPE", (16, 4, 7, 1), [a, pos, factors])
    assert ops.rope_ext(a, pos, None, n_dims=8, **ROPE).params["n_rot"] == 8


@pytest.mark.parametrize(("n_pos", "n_dims"), [(6, 16), (7, 15), (7, 18)])
def test_rope_refuses(n_pos: int, n_dims: int) -> None:
    with pytest.raises(ValueError, match="ROPE"):
        ops.rope_ext(leaf(16, 4, 7), leaf(n_pos, type_=I32), None, n_dims=n_dims, **ROPE)


def test_swiglu() -> None:
    out = ops.swiglu_split(leaf(96, 7), leaf(96, 7))
    assert (out.op, out.ne) == ("GLU", (96, 7, 1, 1))
    with pytest.raises(ValueError, match="GLU"):
        ops.swiglu_split(leaf(96, 7), leaf(96, 6))


@pytest.mark.parametrize(
    "build",
    [
        lambda a: ops.reshape(a, 2, 3),
        lambda a: ops.view(a, (3,)),
        lambda a: ops.permute(a, 1, 0, 2, 3),
        lambda a: ops.transpose(a),
    ],
)
@pytest.mark.parametrize("type_", [F32, F16])
def test_views_keep_the_type(build: Callable[[Tensor], Tensor], type_: GGMLType) -> None:
    assert build(leaf(3, 2, type_=type_)).type == type_


def test_rows_in_bytes() -> None:
    assert ops.row_stride(leaf(3, type_=F16), 10) == 20
    assert ops.row_stride(leaf(3), 10) == 40
