"""Products on a file's blocks: the plain form against float64, activations against ggml's."""

from __future__ import annotations

import numpy as np
import pytest

from llmviz.ggml import dots, quants
from llmviz.ggml.types import TYPES, GGMLType


def quantized(x: np.ndarray, type_: GGMLType) -> dots.Activations:
    """Activations as products with this type want them."""
    group = dots.group_of(type_)
    out = dots.Activations.empty(*x.shape, group)
    (dots.quantize_q8 if group == 32 else dots.quantize_q8_k)(x, out)
    return out


def values_of(q: dots.Activations) -> np.ndarray:
    """The numbers that quantized activations stand for."""
    m, k = q.q.shape
    group = k // q.d.shape[1]
    return (q.q.reshape(m, -1, group).astype(np.float64) * q.d[..., None]).reshape(m, k)


@pytest.mark.parametrize("type_", dots.DOTS, ids=lambda t: t.name)
def test_product(type_):
    """Equals the product of the decoded blocks with the decoded activations, in float64."""
    rng = np.random.default_rng(type_)
    w = rng.standard_normal((9, 512)).astype(np.float32)
    raw = quants.quantize(w, TYPES[type_].name).reshape(9, -1)
    q = quantized(rng.standard_normal((3, 512)).astype(np.float32) * 3, type_)
    out = np.empty((3, 9), np.float32)
    dots.mul_mat(type_, raw, q, out)
    decoded = quants.get(type_).dequantize(raw.reshape(-1)).reshape(9, 512)
    exact = values_of(q) @ decoded.astype(np.float64).T
    # sums of groups of 32 are kept as half floats, which matters where there is a minimum
    tolerance = 2e-3 if type_ in (GGMLType.Q4_1, GGMLType.Q5_1) else 3e-7
    assert np.abs(out - exact).max() <= tolerance * np.abs(exact).max()


def test_quantize_q8():
    """The largest of 32 becomes 127, half-way cases go to the even code, zeros stay zeros."""
    x = np.zeros((1, 64), np.float32)
    x[0, :4] = [127.0, -63.5, 0.5, 1.5]
    out = dots.Activations.empty(1, 64, 32)
    dots.quantize_q8(x, out)
    assert out.q[0, :5].tolist() == [127, -64, 0, 2, 0]
    assert out.d.tolist() == [[1.0, 0.0]]
    assert out.s.tolist() == [[65.0, 0.0]]


def test_quantize_q8_k():
    """The value furthest from zero becomes -127 whatever its sign; sums are of 16 codes."""
    x = np.zeros((2, 256), np.float32)
    x[0, 3], x[0, 20] = 12.7, -2.0
    out = dots.Activations.empty(2, 256, 256)
    dots.quantize_q8_k(x, out)
    assert (out.q[0, 3], out.q[0, 20]) == (-127, 20)
    assert out.d[0, 0] == np.float32(1) / (np.float32(-127) / np.float32(12.7))
    assert out.s[0, :3].tolist() == [-127, 20, 0]
    assert not out.q[1].any() and out.d[1, 0] == 0


@pytest.mark.parametrize("name", ["q8_0", "q8_1", "q8_K"])
def test_same_codes_as_the_file_format(name):
    """Where the type can stand in a file too, its own quantizer finds the same codes."""
    if name not in [TYPES[t].name for t in quants.quantizable()]:
        pytest.skip(f"{name} is not written by this version")
    kind = quants.get(next(t for t in GGMLType if TYPES[t].name == name))
    x = np.random.default_rng(4).standard_normal((2, 512)).astype(np.float32)
    blocks = quants.quantize(x, name).reshape(-1).view(kind.block_dtype)
    group = kind.block_size
    out = dots.Activations.empty(2, 512, group)
    (dots.quantize_q8 if group == 32 else dots.quantize_q8_k)(x, out)
    codes, scales = out.q.reshape(-1, group), out.d.reshape(-1)
    if name == "q8_0":  # a file is written with nearest-away rounding of x / d
        assert np.abs(blocks["qs"].astype(int) - codes).max() <= 1
    else:
        np.testing.assert_array_equal(blocks["qs"], codes)
    np.testing.assert_array_equal(blocks["d"].astype(np.float32), scales)
