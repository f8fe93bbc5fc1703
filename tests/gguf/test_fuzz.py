"""Damaged files of any kind: refused with the error family, or read; never anything else."""

from __future__ import annotations

import tracemalloc

import pytest
from gguf_bytes import tiny
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmviz.errors import GGUFError, UnsupportedError
from llmviz.ggml.quants import get
from llmviz.gguf import StringArray, open_gguf

DATA = tiny()
INTERESTING = [b"\0" * 8, b"\xff" * 8, b"\xff" * 4, (1 << 30).to_bytes(8, "little"), b"\x7f"]


@pytest.fixture(scope="module")
def damaged_path(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz") / "x.gguf"


def read_all(path, use_mmap):
    """Open a file and look at everything in it."""
    with open_gguf(path, use_mmap=use_mmap) as g:
        assert g.fields[-1].end == g.data_offset
        for value in g.kv.values():
            if isinstance(value, StringArray):
                assert len(list(value)) == len(value)
        for field in g.fields:
            assert len(field.raw) == field.size
            assert field.meaning
        g.ftype_name()
        for info in g.tensor_infos.values():
            raw = g.tensor_bytes(info)
            assert get(info.type).dequantize(raw).size == info.n_elements


@settings(
    max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    cut=st.one_of(st.just(len(DATA)), st.integers(0, len(DATA))),
    flips=st.lists(
        st.tuples(st.integers(0, len(DATA) - 1), st.integers(0, 7)), max_size=4, unique=True
    ),
    patch=st.one_of(
        st.none(), st.tuples(st.integers(0, len(DATA) - 1), st.sampled_from(INTERESTING))
    ),
    use_mmap=st.booleans(),
)
def test_flipped_bits_and_cut_files(damaged_path, cut, flips, patch, use_mmap):
    data = bytearray(DATA)
    for at, bit in flips:
        data[at] ^= 1 << bit
    if patch:
        at, new = patch
        data[at : at + len(new)] = new[: len(data) - at]
    damaged_path.write_bytes(data[:cut])
    tracemalloc.start()
    try:
        read_all(damaged_path, use_mmap)
    except (GGUFError, UnsupportedError) as error:
        assert str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 1 << 20


def test_every_byte_of_the_header_set_to_255(damaged_path):
    for i in range(len(DATA) - 96):
        damaged_path.write_bytes(DATA[:i] + b"\xff" + DATA[i + 1 :])
        try:
            read_all(damaged_path, True)
        except (GGUFError, UnsupportedError):
            continue
