"""Every type decodes to the same bits as gguf-py's; the plain formula gives the same numbers."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from llmviz.errors import UnsupportedError
from llmviz.ggml.quants import QuantType, get, supported
from llmviz.ggml.types import TYPES, GGMLType
from llmviz.gguf import open_gguf

NAMES = ["F32", "F16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "BF16"]
EACH = pytest.mark.parametrize("name", NAMES)


def theirs(raw: np.ndarray, type_: GGMLType) -> np.ndarray:
    rows = raw.reshape(1, -1)
    with np.errstate(invalid="ignore"):
        return gguf.quants.dequantize(rows, gguf.GGMLQuantizationType(int(type_))).reshape(-1)


def assert_same_bits(a: np.ndarray, b: np.ndarray) -> None:
    np.testing.assert_array_equal(a.view(np.uint32), b.view(np.uint32))


def random_bytes(quant: type[QuantType], n_blocks: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, n_blocks * quant.type_size, dtype=np.uint8)


def test_supported():
    assert [t.name for t in supported()] == NAMES
    for t in supported():
        quant = get(t)
        assert quant.type is t
        assert (quant.block_size, quant.type_size) == (TYPES[t].block_size, TYPES[t].type_size)
        assert quant.block_dtype.itemsize == quant.type_size
        assert quant.__doc__


@EACH
def test_random_bytes(name):
    """Every bit pattern, so scales of inf and NaN too; several chunks and an odd rest."""
    quant = get(GGMLType[name])
    n = 3 * (1 << 15) // quant.block_size + 7
    raw = random_bytes(quant, n)
    got = quant.dequantize(raw)
    assert got.dtype == np.float32
    assert got.shape == (n * quant.block_size,)
    assert_same_bits(got, theirs(raw, quant.type))


SPECIAL = [0x0000, 0x8000, 0x0001, 0x83FF, 0x7BFF, 0x7C00, 0xFC00, 0x7C01, 0x7E00, 0xFFFF]


@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith("Q")])
@pytest.mark.parametrize("d", SPECIAL, ids=hex)
def test_special_scales(name, d):
    """Zeros, subnormals, the largest half, infinities and NaNs in every half float of a block."""
    quant = get(GGMLType[name])
    for other in SPECIAL:
        blocks = quant.blocks(random_bytes(quant, 50, seed=d)).copy()
        blocks["d"] = np.array(d, "<u2").view("<f2")
        for second in ("m", "dmin"):
            if second in (blocks.dtype.names or ()):
                blocks[second] = np.array(other, "<u2").view("<f2")
        raw = blocks.view(np.uint8)
        assert_same_bits(quant.dequantize(raw), theirs(raw, quant.type))


@EACH
def test_out_and_shapes(name):
    quant = get(GGMLType[name])
    raw = random_bytes(quant, 12)
    expected = quant.dequantize(raw)
    out = np.zeros((12, quant.block_size), np.float32)
    result = quant.dequantize(raw.reshape(3, -1), out)  # rows of bytes are fine
    assert np.shares_memory(result, out)
    assert_same_bits(out.reshape(-1), expected)
    assert quant.dequantize(raw[:0]).shape == (0,)
    odd = np.concatenate([np.zeros(1, np.uint8), raw])[1:]  # not aligned to anything
    assert_same_bits(quant.dequantize(odd), expected)
    raw.flags.writeable = False
    assert_same_bits(quant.dequantize(raw), expected)


@EACH
def test_wrong_arguments(name):
    quant = get(GGMLType[name])
    raw = random_bytes(quant, 4)
    with pytest.raises(ValueError, match=f"blocks of {quant.type_size} bytes"):
        quant.dequantize(raw[:-1])
    with pytest.raises(ValueError, match="needs uint8"):
        quant.dequantize(raw.view(np.int8))
    with pytest.raises(ValueError, match="contiguous"):
        quant.dequantize(random_bytes(quant, 8).reshape(4, -1)[:, : quant.type_size])
    for out in (
        np.empty(4 * quant.block_size + 1, np.float32),
        np.empty(4 * quant.block_size, np.float64),
        np.empty(8 * quant.block_size, np.float32)[::2],
    ):
        with pytest.raises(ValueError, match="out must be contiguous float32"):
            quant.dequantize(raw, out)


def test_f32_is_not_copied():
    raw = np.arange(4, dtype=np.float32).view(np.uint8)
    assert np.shares_memory(get(GGMLType.F32).dequantize(raw), raw)


def test_unsupported_type():
    with pytest.raises(UnsupportedError, match="'IQ4_NL'; supported: F32, F16, Q4_0") as caught:
        get(GGMLType.IQ4_NL)
    assert "Q6_K" in caught.value.supported


def test_a_wrong_class_is_refused():
    with pytest.raises(TypeError, match="must take 84 bytes"):
        type("Q2_K", (QuantType,), {"type": GGMLType.Q2_K, "block_dtype": np.dtype("u1")})
    with pytest.raises(TypeError, match="registered already"):
        type("Again", (QuantType,), {"type": GGMLType.F16, "block_dtype": np.dtype("<f2")})
    assert GGMLType.Q2_K not in supported()


def halves(blocks, field):
    return [float(x) for x in blocks[field]]


def bits(value: int, at: int, n: int) -> int:
    return value >> at & (1 << n) - 1


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_the_formula_of_the_docstring(name):
    """One value at a time, in plain Python, as the class docstring says."""
    quant = get(GGMLType[name])
    rng = np.random.default_rng(3)
    blocks = quant.blocks(random_bytes(quant, 5)).copy()
    for field in set(blocks.dtype.names) & {"d", "m"}:
        blocks[field] = rng.normal(0, 1, 5)
    got = quant.dequantize(blocks.view(np.uint8)).reshape(5, 32)
    for b, block in enumerate(blocks):
        for i in range(32):
            if name == "Q8_0":
                q = int(block["qs"][i])
            else:
                q = bits(int(block["qs"][i % 16]), 4 * (i // 16), 4)
            if name.startswith("Q5"):
                q |= bits(int(block["qh"][i // 8]), i % 8, 1) << 4
            q -= {"Q4_0": 8, "Q5_0": 16}.get(name, 0)
            value = float(block["d"]) * q + (float(block["m"]) if name.endswith("_1") else 0)
            assert got[b, i] == pytest.approx(value, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_round_trip_through_gguf_py(name):
    """What gguf-py quantizes comes back close to what it was."""
    rng = np.random.default_rng(5)
    x = rng.normal(0, 1, (4, 256)).astype(np.float32)
    raw = gguf.quants.quantize(x, gguf.GGMLQuantizationType[name])
    got = get(GGMLType[name]).dequantize(raw).reshape(4, 256)
    worst = {"Q4": 0.4, "Q5": 0.2, "Q8": 0.03}[name[:2]]
    assert np.abs(got - x).max() < worst


def test_real_tensors(smollm2_path):
    """Tensors of a real file, as gguf-py decodes them."""
    with open_gguf(smollm2_path) as g:
        chosen = ("token_embd.weight", "output_norm.weight", "blk.0.attn_q.weight",
                  "blk.7.ffn_down.weight", "blk.29.attn_norm.weight")  # fmt: skip
        for name in chosen:
            info = g.tensor_infos[name]
            raw = g.tensor_bytes(info)
            got = get(info.type).dequantize(raw)
            assert got.size == info.n_elements
            assert np.isfinite(got).all()
            assert_same_bits(got, theirs(raw, info.type))
