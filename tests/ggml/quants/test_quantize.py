"""Writing: the same bytes as llama.cpp's quantizers, for files and for caches."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from llmviz.errors import UnsupportedError
from llmviz.ggml import quants
from llmviz.ggml.types import TYPES, GGMLType

WRITTEN = [
    "F32",
    "F16",
    "Q4_0",
    "Q4_1",
    "Q5_0",
    "Q5_1",
    "Q8_0",
    "Q8_1",
    "Q2_K",
    "Q3_K",
    "Q4_K",
    "Q5_K",
    "Q6_K",
    "Q8_K",
    "IQ4_NL",
    "IQ4_XS",
    "BF16",
    "TQ1_0",
    "TQ2_0",
    "MXFP4",
    "NVFP4",
    "Q1_0",
    "Q2_0",
]
CACHE = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL"]
N = 24


def rows(kind: str, seed: int = 0) -> np.ndarray:
    """float32[N, 512] of one sort."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 1, (N, 512))
    if kind == "sizes":
        x *= 10.0 ** rng.integers(-6, 4, (N, 1))
    elif kind == "ties":  # many equal values, and halves to round
        x = np.round(x * 4) / 4
    elif kind == "positive":
        x = np.abs(x)
    elif kind == "negative":
        x = -np.abs(x) * np.exp(rng.normal(0, 3, x.shape))
    elif kind == "sparse":
        x *= rng.random(x.shape) < 0.1
    elif kind == "small":
        x *= 1e-7
        x[:, :300] = 0
    elif kind == "signed zeros":
        x[:, 40:] = np.where(rng.random((N, 472)) < 0.5, -0.0, 0.0)
    elif kind == "constant":
        x = np.repeat(rng.normal(0, 1, (N, 16)), 32, axis=1)
    return np.ascontiguousarray(x, np.float32)


KINDS = [
    "normal",
    "sizes",
    "ties",
    "positive",
    "negative",
    "sparse",
    "small",
    "constant",
    "signed zeros",
]


def different_blocks(a: np.ndarray, b: np.ndarray, type_: GGMLType) -> int:
    size = TYPES[type_].type_size
    return int((a.reshape(-1, size) != b.reshape(-1, size)).any(axis=1).sum())


def test_which():
    assert [t.name for t in quants.quantizable()] == WRITTEN


@pytest.mark.parametrize("name", [n for n in WRITTEN if n != "F32"])
def test_as_llama_cpp_writes_files(ggml, name):
    for kind in KINDS:
        x = rows(kind)
        got = quants.quantize(x, name.lower())
        assert got.dtype == np.uint8
        assert different_blocks(got, ggml.quantize(x, GGMLType[name]), GGMLType[name]) == 0, kind


@pytest.mark.parametrize("name", CACHE)
def test_as_llama_cpp_writes_its_cache(ggml, name):
    quant = quants.get(name)
    for kind in KINDS:
        x = rows(kind, seed=1)
        got, expected = quant.quantize(x, store=True), ggml.store(x, quant.type)
        if name == "IQ4_NL":  # the codes of a block of zeros are chance there; its scale is 0
            got, expected = quant.blocks(got).copy(), quant.blocks(expected).copy()
            got["qs"][got["d"] == 0] = expected["qs"][got["d"] == 0]
            got, expected = got.view(np.uint8), expected.view(np.uint8)
        assert different_blocks(got, expected, quant.type) == 0, kind


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "BF16", "TQ2_0", "MXFP4"])
def test_as_gguf_py_writes(name):
    x = rows("normal", seed=2)
    theirs = gguf.quants.quantize(x, gguf.GGMLQuantizationType[name])
    assert different_blocks(quants.quantize(x, name), theirs.view(np.uint8), GGMLType[name]) == 0


@pytest.mark.parametrize("name", WRITTEN)
def test_there_and_back(name):
    """More bits, less error; a row of zeros comes back as zeros; shapes are kept."""
    x = rows("normal").reshape(4, -1, 512)
    raw = quants.quantize(x, name)
    assert raw.shape == (
        4,
        N // 4,
        TYPES[GGMLType[name]].type_size * 512 // quants.get(name).block_size,
    )
    back = quants.get(name).dequantize(raw).reshape(x.shape)
    bits = 8 * raw.size / x.size
    error = float(np.sqrt(np.mean((back - x) ** 2)))
    assert error < (1.0 if bits < 3 else 9 * 2.0 ** -min(bits, 9)), (bits, error)
    zeros = np.zeros((2, 512), np.float32)
    assert not quants.get(name).dequantize(quants.quantize(zeros, name)).any()


def test_refused():
    x = np.zeros((2, 512), np.float32)
    with pytest.raises(UnsupportedError, match="'IQ2_XS'; supported: F32, F16, Q4_0"):
        quants.quantize(x, "iq2_xs")
    with pytest.raises(UnsupportedError, match="tensor type: 'q9_9'"):
        quants.quantize(x, "q9_9")
    with pytest.raises(ValueError, match=r"whole blocks of 256 values, got \(2, 500\)"):
        quants.quantize(x[:, :500], "q4_K")
    with pytest.raises(ValueError, match="whole blocks"):
        quants.quantize(np.float32(1), "q8_0")
    for bad in (np.nan, np.inf):
        x[1, 7] = bad
        with pytest.raises(ValueError, match=rf"cannot hold {bad}, which is value \(1, 7\)"):
            quants.quantize(x, "q4_0")
    assert quants.get("q4_0").quantize(x, store=True).shape == (2, 288)  # a cache must take it


def test_nothing_is_quantized_to_nothing():
    assert quants.quantize(np.zeros((0, 256), np.float32), "q4_K").shape == (0, 144)
    assert quants.quantize(np.zeros((3, 0), np.float32), "q4_0").shape == (3, 0)
