"""Every type decodes to gguf-py's and llama.cpp's bits; the plain formula gives the same."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from llmviz.errors import UnsupportedError
from llmviz.ggml.quants import QuantType, get, supported
from llmviz.ggml.types import TYPES, GGMLType
from llmviz.gguf import open_gguf

NAMES = [t.name for t in GGMLType]
NOT_IN_GGUF_PY = {"Q8_1", "Q8_K", "I8", "I16", "I32", "I64", "F64", "Q1_0", "Q2_0"}
NOT_IN_GGML = {"F32", "Q8_1", "I8", "I16", "I32", "I64", "F64"}
EACH = pytest.mark.parametrize("name", NAMES)
BOTH = pytest.mark.parametrize("name", [n for n in NAMES if n not in NOT_IN_GGUF_PY])


def theirs(raw: np.ndarray, type_: GGMLType) -> np.ndarray:
    rows = raw.reshape(1, -1)
    with np.errstate(invalid="ignore", over="ignore"):
        return gguf.quants.dequantize(rows, gguf.GGMLQuantizationType(int(type_))).reshape(-1)


def assert_same_bits(a: np.ndarray, b: np.ndarray) -> None:
    np.testing.assert_array_equal(a.view(np.uint32), b.view(np.uint32))


def random_bytes(quant: type[QuantType], n_blocks: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, n_blocks * quant.type_size, dtype=np.uint8)


def assert_same_numbers(a: np.ndarray, b: np.ndarray) -> None:
    """The same bits, but any NaN for a NaN: C may give it another sign."""
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
    assert_same_bits(np.nan_to_num(a, nan=0.0, posinf=np.inf, neginf=-np.inf),
                     np.nan_to_num(b, nan=0.0, posinf=np.inf, neginf=-np.inf))  # fmt: skip


def test_supported():
    """Every type that may stand in a file."""
    assert [t.name for t in supported()] == NAMES
    for t in supported():
        quant = get(t)
        assert quant.type is t
        assert (quant.block_size, quant.type_size) == (TYPES[t].block_size, TYPES[t].type_size)
        assert quant.block_dtype.itemsize == quant.type_size
        assert quant.__doc__


@BOTH
def test_random_bytes(name):
    """Every bit pattern, so scales of inf and NaN too; several chunks and an odd rest."""
    quant = get(GGMLType[name])
    n = 3 * (1 << 15) // quant.block_size + 7
    raw = random_bytes(quant, n)
    got = quant.dequantize(raw)
    assert got.dtype == np.float32
    assert got.shape == (n * quant.block_size,)
    assert_same_bits(got, theirs(raw, quant.type))


@pytest.mark.parametrize("name", [n for n in NAMES if n not in NOT_IN_GGML])
def test_random_bytes_as_llama_cpp(ggml, name):
    quant = get(GGMLType[name])
    raw = random_bytes(quant, (1 << 15) // quant.block_size + 7, seed=1)
    assert_same_numbers(quant.dequantize(raw), ggml.dequantize(raw, quant.type))


@EACH
def test_sizes_and_names_are_ggmls(ggml, name):
    traits = TYPES[GGMLType[name]]
    assert ggml.facts(GGMLType[name]) == (traits.name, traits.block_size, traits.type_size)


@EACH
def test_a_block_of_zero_bytes(name):
    """Scales of zero: every value is 0 (of MXFP4, whose scale is a power of two, tiny)."""
    quant = get(GGMLType[name])
    values = quant.dequantize(np.zeros(quant.type_size * 2, np.uint8))
    assert np.abs(values).max() == 0


def test_integers_and_doubles_become_floats():
    for name, values in (("I8", [-128, 127]), ("I16", [-32768, 5]), ("I32", [-(2**31), 2**24 + 1]),
                         ("I64", [2**40, -1]), ("F64", [0.1, -1e300])):  # fmt: skip
        quant = get(name)
        stored = np.array(values, quant.block_dtype)
        with np.errstate(over="ignore"):
            expected = stored.astype(np.float32)
        assert_same_bits(quant.dequantize(stored.view(np.uint8)), expected)


SPECIAL = [0x0000, 0x8000, 0x0001, 0x83FF, 0x7BFF, 0x7C00, 0xFC00, 0x7C01, 0x7E00, 0xFFFF]


HALVES = [
    n for n in NAMES if (get(n).block_dtype.fields or {}).get("d", (None,))[0] == np.dtype("<f2")
]


@pytest.mark.parametrize("name", [n for n in HALVES if n not in NOT_IN_GGUF_PY])
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
    if quant.type_size > 1:
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


def test_special_scales_as_llama_cpp(ggml):
    """Where gguf-py has no answer, and where the scale is no half float."""
    for name in ("Q1_0", "Q2_0", "Q8_K", "IQ1_M", "MXFP4", "NVFP4"):
        quant = get(name)
        blocks = quant.blocks(random_bytes(quant, 256)).copy()
        if name == "Q8_K":
            blocks["d"][:4] = np.inf, -np.inf, np.nan, 1e-45
        elif name == "IQ1_M":
            for k, half in enumerate(SPECIAL):
                nibbles = half >> np.arange(0, 16, 4) & 15
                blocks["scales"][k] = blocks["scales"][k] & 0x0FFF | nibbles << 12
        elif name == "MXFP4":
            blocks["e"] = np.arange(256)
        elif name == "NVFP4":
            blocks["d"] = np.arange(256)[:, None]
        else:
            blocks["d"][: len(SPECIAL)] = np.array(SPECIAL, "<u2").view("<f2")
        raw = blocks.view(np.uint8)
        assert_same_numbers(quant.dequantize(raw), ggml.dequantize(raw, quant.type))


def test_unsupported_type():
    with pytest.raises(UnsupportedError, match="'q4_2'; supported: F32, F16, Q4_0") as caught:
        get("q4_2")
    assert "IQ4_NL" in caught.value.supported
    with pytest.raises(UnsupportedError, match="tensor type: '31'"):
        get(31)
    assert get("q4_K") is get("Q4_K") is get(GGMLType.Q4_K) is get(12)


def test_a_wrong_class_is_refused():
    with pytest.raises(TypeError, match="must take 84 bytes"):
        type("Q2_K", (QuantType,), {"type": GGMLType.Q2_K, "block_dtype": np.dtype("u1")})
    with pytest.raises(TypeError, match="registered already"):
        type("Again", (QuantType,), {"type": GGMLType.F16, "block_dtype": np.dtype("<f2")})


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
        chosen = ("output_norm.weight", "blk.0.attn_q.weight", "blk.7.ffn_down.weight",
                  "blk.29.attn_norm.weight")  # fmt: skip
        for name in chosen:
            info = g.tensor_infos[name]
            raw = g.tensor_bytes(info)
            got = get(info.type).dequantize(raw)
            assert got.size == info.n_elements
            assert np.isfinite(got).all()
            assert_same_bits(got, theirs(raw, info.type))
