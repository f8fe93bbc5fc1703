"""Every header byte belongs to a field, and every field is an event."""

from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np
import pytest
from gguf_bytes import STR, arr, gguf, kv, tiny

from llmviz.ggml.types import GGMLType
from llmviz.gguf import Field, StringArray, ValueType, open_gguf, open_steps
from llmviz.gguf.constants import KIND_MEANINGS


@pytest.fixture
def tiny_path(tmp_path):
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny())
    return path


def assert_covers(g):
    """Fields follow each other from byte 0 to the data section."""
    assert g.fields[0].offset == 0
    assert all(a.end == b.offset for a, b in pairwise(g.fields))
    assert all(f.size > 0 or f.kind in ("key", "value", "tensor_name") for f in g.fields)
    assert g.fields[-1].end == g.data_offset


@pytest.mark.parametrize("use_mmap", [True, False])
def test_fields_cover_the_header(tiny_path, use_mmap):
    g = open_gguf(tiny_path, use_mmap=use_mmap)
    assert_covers(g)
    raw = b"".join(f.raw for f in g.fields)
    assert raw == tiny()[: g.data_offset]


def test_fields_cover_a_header_without_tensors(tmp_path):
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf([kv("k", STR, ""), arr("a", STR, [])]))
    assert_covers(open_gguf(path))


def test_fields_cover_a_real_header(smollm2_path):
    with open_gguf(smollm2_path) as g:
        assert_covers(g)
        tokens = next(f for f in g.fields if f.name == "tokenizer.ggml.tokens")
        for i in (0, 1, 300, 30_000, 49_151):
            offset, size = tokens.element_span(i)
            assert tokens.element_at(offset) == tokens.element_at(offset + size - 1) == i
            assert g._source.read(offset + 8, size - 8) == tokens.value.raw(i)


def test_names_kinds_and_values(tiny_path):
    g = open_gguf(tiny_path)
    by_name = {f.name: f for f in g.fields}
    assert len(by_name) == len(g.fields)  # every name is there once
    assert {f.kind for f in g.fields} == set(KIND_MEANINGS)  # tiny() has every kind
    expected = {
        "magic": "GGUF",
        "version": 3,
        "n_tensors": 3,
        "n_kv": 6,
        "general.architecture:key_length": 20,
        "general.architecture:key": "general.architecture",
        "general.architecture:value_type": ValueType.STRING,
        "general.architecture:value_length": 5,
        "general.architecture": "llama",
        "x.words:array_type": ValueType.STRING,
        "x.words:array_length": 4,
        "b.weight:tensor_name_length": 8,
        "b.weight:tensor_name": "b.weight",
        "b.weight:n_dims": 1,
        "b.weight:ne": (32,),
        "b.weight:tensor_type": GGMLType.Q4_0,
        "b.weight:tensor_offset": 32,
        "padding": None,
    }
    assert {name: by_name[name].value for name in expected} == expected
    assert by_name["x.words"].value is g.kv["x.words"]
    assert by_name["version"].raw == struct.pack("<I", 3)
    assert by_name["general.architecture"].raw == b"llama"


def test_meanings_are_for_newcomers(tiny_path):
    g = open_gguf(tiny_path)
    by_name = {f.name: f for f in g.fields}
    assert "layers" in by_name["llama.block_count"].meaning
    assert by_name["x.real"].meaning == "the value of the key"
    assert all(f.meaning for f in g.fields)


def test_elements(tiny_path):
    g = open_gguf(tiny_path)
    by_name = {f.name: f for f in g.fields}
    words = by_name["x.words"]  # "a", "", two zeros, "größer"
    spans = [words.element_span(i) for i in range(words.n_elements)]
    assert [size for _, size in spans] == [9, 8, 10, 16]
    owner = [words.element_at(o) for o in range(words.offset, words.end)]
    assert owner == [0] * 9 + [1] * 8 + [2] * 10 + [3] * 16
    numbers = by_name["x.numbers"]
    assert [numbers.element_at(o) for o in range(numbers.offset, numbers.end)] == [0, 0, 1, 1, 2, 2]
    assert numbers.element_span(2) == (numbers.offset + 4, 2)
    dims = by_name["a:ne"]
    assert dims.n_elements == 2
    assert dims.element_at(dims.offset + 8) == 1
    real = by_name["x.real"]
    assert (real.n_elements, real.element_at(real.offset + 7)) == (1, 0)
    assert real.element_span(0) == (real.offset, 8)
    with pytest.raises(IndexError, match="lies outside"):
        words.element_at(words.end)
    with pytest.raises(IndexError, match="element 4 of 4"):
        words.element_span(4)


def test_field_at_every_byte(tiny_path):
    g = open_gguf(tiny_path)
    for offset in range(g.data_offset):
        f = g.field_at(offset)
        assert f.offset <= offset < f.end
    for offset in (-1, g.data_offset):
        with pytest.raises(IndexError, match="outside the header"):
            g.field_at(offset)


def test_one_event_per_field(tiny_path):
    steps = open_steps(tiny_path, depth=2)
    events = []
    while True:
        try:
            events.append(next(steps))
        except StopIteration as stop:
            g = stop.value
            break
    assert [e.about for e in events] == g.fields
    for e in events:
        assert (e.kind, e.depth, e.step) == ("data", 2, 2)
        assert isinstance(e.about, Field)
        assert e.name == e.about.name
        assert e.value is e.about.value


def test_values_of_arrays_are_lazy_or_numpy(tiny_path):
    g = open_gguf(tiny_path)
    assert isinstance(g.kv["x.words"], StringArray)
    assert isinstance(g.kv["x.numbers"], np.ndarray)
    assert not g.kv["x.numbers"].flags.writeable
