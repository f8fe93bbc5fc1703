"""One block taken apart: the numbers give the values, the bits are those that matter."""

from __future__ import annotations

import numpy as np
import pytest

from llmviz.ggml.quants import QuantType, Span, get, supported
from llmviz.ggml.types import GGMLType

BLOCKS = [t.name for t in supported() if get(t).block_size > 1]


def random_block(quant: type[QuantType], seed: int = 0) -> np.ndarray:
    """Bytes of a block whose floats are small and finite."""
    rng = np.random.default_rng(seed)
    block = quant.blocks(rng.integers(0, 256, quant.type_size, np.uint8)).copy()
    for name in ("d", "m", "dmin", "s"):
        if name in block.dtype.names and block.dtype[name].kind == "f":
            block[name] = rng.uniform(0.01, 0.1)
    if quant.type is GGMLType.MXFP4:
        block["e"] = 120
    if quant.type is GGMLType.IQ1_M:  # the half float lies in the top bits of four words
        block["scales"] &= 0x0FFF
        block["scales"][:, 3] |= 0x2000
    return block.view(np.uint8)


@pytest.mark.parametrize("name", BLOCKS)
def test_the_numbers_give_the_values(name):
    quant = get(name)
    for seed in range(3):
        raw = random_block(quant, seed)
        e = quant.explain(raw)
        assert np.isfinite(e.values).all() and np.ptp(e.values) > 0
        np.testing.assert_array_equal(e.values, quant.dequantize(raw))
        again = e.scale * (e.codes - e.zero) + e.offset
        np.testing.assert_allclose(again, e.values, rtol=1e-5, atol=1e-7)
        allowed = e.table or range(-128 if "8" in name else 0, e.levels)
        assert len(allowed) >= e.levels > 1 and set(e.codes.tolist()) <= set(allowed)
        assert e.formula.startswith("value = ")


@pytest.mark.parametrize("name", BLOCKS)
def test_fields_cover_the_block(name):
    quant = get(name)
    e = quant.explain(random_block(quant))
    assert e.fields[0].start == 0
    ends = [f.start + f.size for f in e.fields]
    assert [f.start for f in e.fields[1:]] + [quant.type_size] == ends
    for f in e.fields:
        one = quant.block_dtype[f.name].shape == ()
        assert (f.value is not None) == one


@pytest.mark.parametrize("name", BLOCKS)
def test_a_flipped_bit_changes_only_what_it_holds(name):
    """Each bit belongs to a code, to a part or to a field that is one number, and acts there."""
    quant = get(name)
    raw = random_block(quant, 5)
    e = quant.explain(raw)
    owners: dict[int, set] = {b: set() for b in range(8 * quant.type_size)}
    for i, spans in enumerate(e.code_bits):
        assert spans
        for s in spans:
            for b in range(s.offset, s.offset + s.width):
                owners[b].add(("code", i))
    for part, numbers in e.parts.items():
        for k, number in enumerate(numbers):
            assert number.bits
            for s in number.bits:
                for b in range(s.offset, s.offset + s.width):
                    owners[b].add((part, k))
    scaling = {"d", "m", "dmin", "s", "scales", "bsums"}  # fields that are numbers themselves
    for f in e.fields:
        for b in range(8 * f.start, 8 * (f.start + f.size)):
            assert owners[b] or f.name in scaling, (f.name, b)
    rng = np.random.default_rng(6)
    for b in rng.choice(8 * quant.type_size, 40, replace=False):
        changed = raw.copy()
        changed[b // 8] ^= 1 << b % 8
        other = quant.explain(changed)
        moved = {("code", int(i)) for i in np.flatnonzero(other.codes != e.codes)}
        for part, numbers in e.parts.items():
            after = other.parts[part]
            moved |= {(part, k) for k, n in enumerate(numbers) if n.value != after[k].value}
        assert moved <= owners[int(b)]


def test_bits_of_known_layouts():
    """A few by hand, from the layouts that the classes document."""
    e = get("q4_0").explain(random_block(get("q4_0")))
    assert e.code_bits[0] == (Span(16, 4),) and e.code_bits[16] == (Span(20, 4),)
    e = get("q5_K").explain(random_block(get("q5_K")))
    assert e.code_bits[33] == (Span(8 * 48 + 8 + 4, 4), Span(8 * 16 + 8 + 1, 1))
    assert e.parts["scale"][4].bits == (Span(8 * 12, 4), Span(8 * 4 + 6, 2))
    e = get("iq2_xxs").explain(random_block(get("iq2_xxs")))
    assert e.code_bits[8] == (Span(24, 8), Span(55, 1))  # the group, and the sign
    assert e.code_bits[7] == (Span(16, 8), Span(48, 7))  # its sign follows from seven others
    e = get("iq1_m").explain(random_block(get("iq1_m")))
    assert e.parts["d_bits"][0].bits == tuple(Span(384 + 16 * i + 12, 4) for i in range(4))
    e = get("tq1_0").explain(random_block(get("tq1_0")))
    assert e.code_bits[0] == e.code_bits[128] == (Span(0, 8),)


def test_plain_types():
    e = get("f16").explain(np.array([1.5, -2], np.float16).view(np.uint8))
    assert [f.value for f in e.fields] == [1.5, -2] and e.code_bits[1] == (Span(16, 16),)
    assert not len(e.codes) and e.levels == 0 and "as it is" in e.formula
    e = get("i64").explain(np.array([-7], np.int64).view(np.uint8))
    assert e.values.tolist() == [-7]


def test_one_block_only():
    with pytest.raises(ValueError, match="one block of Q4_0 takes 18 bytes, not 36"):
        get("q4_0").explain(np.zeros(36, np.uint8))
