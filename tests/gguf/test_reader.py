"""Correct files: what the reader makes of them."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from gguf_bytes import (
    BOOL,
    F32,
    F64,
    FORMATS,
    I8,
    I16,
    I32,
    I64,
    STR,
    U8,
    U16,
    U32,
    U64,
    arr,
    gguf,
    kv,
    string,
    tensor,
    tiny,
)  # fmt: skip

from llmviz.errors import GGUFError
from llmviz.ggml.types import GGMLType
from llmviz.gguf import StringArray, ValueType, open_gguf

BOTH = pytest.mark.parametrize("use_mmap", [True, False], ids=["mmap", "read"])


@pytest.fixture
def write(tmp_path):
    def write(data: bytes, name: str = "x.gguf") -> Path:
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


@BOTH
def test_tiny_file(write, use_mmap):
    data = tiny()
    path = write(data)
    with open_gguf(path, use_mmap=use_mmap) as g:
        assert g.path == str(path)
        assert (g.version, g.alignment, g.byte_order) == (3, 32, "little")
        assert (g.file_size, g.data_offset) == (len(data), len(data) - 96)
        assert g.is_mapped is use_mmap
        assert list(g.kv) == [
            "general.architecture", "llama.block_count", "x.flag", "x.real", "x.words", "x.numbers",
        ]  # fmt: skip
        assert g.kv["general.architecture"] == "llama"
        assert g.kv["llama.block_count"] == 1
        assert g.kv["x.flag"] is True
        assert g.kv["x.real"] == 0.5
        assert list(g.kv["x.words"]) == ["a", "", "\0\0", "größer"]
        assert g.kv["x.numbers"].tolist() == [1, -2, 3]
        assert g.kv_types["x.numbers"] is ValueType.ARRAY
        assert g.arr_types["x.numbers"] is ValueType.INT16
        assert g.arr_types["x.real"] is None
        a, b, c = g.tensor_infos.values()
        assert (a.name, a.ne, a.n_dims, a.shape, a.type) == (
            "a", (2, 2, 1, 1), 2, (2, 2), GGMLType.F32,
        )  # fmt: skip
        assert (b.nbytes, b.offset, b.abs_offset) == (18, 32, g.data_offset + 32)
        assert (c.type, c.shape, c.part, c.n_elements) == (GGMLType.F16, (1, 4), 0, 4)
        assert g.tensor_bytes(b).tobytes() == bytes(range(18))
        assert (g.n_elements, g.n_bytes) == (4 + 32 + 4, 16 + 18 + 8)
        assert g.type_label("x.words") == "arr[str,4]"
        assert g.type_label("x.real") == "f64"
        assert "3 tensors" in repr(g)


def test_version_2_reads_the_same(write):
    data = tiny()
    old = data[:4] + struct.pack("<I", 2) + data[8:]
    g3, g2 = open_gguf(write(data)), open_gguf(write(old, "old.gguf"))
    assert g2.version == 2
    assert g2.tensor_infos == g3.tensor_infos


@pytest.mark.parametrize("kind", sorted(FORMATS))
@BOTH
def test_every_scalar_and_array_type(write, kind, use_mmap):
    low = {U8: 0, U16: 0, U32: 0, U64: 0, BOOL: 0}.get(kind, -3)
    high = {
        U8: 255, I8: 127, U16: 65535, I16: 32767, U32: 2**32 - 1, I32: 2**31 - 1, F32: 1.5,
        BOOL: 1, U64: 2**64 - 1, I64: 2**63 - 1, F64: 1e300,
    }[kind]  # fmt: skip
    path = write(gguf([kv("s", kind, high), arr("a", kind, [low, high]), arr("e", kind, [])]))
    g = open_gguf(path, use_mmap=use_mmap)
    assert g.kv["s"] == high
    assert g.kv["a"].tolist() == [low, high]
    assert g.kv["a"].dtype == (bool if kind == BOOL else np.dtype("<" + FORMATS[kind]))
    assert len(g.kv["e"]) == 0
    assert g.kv_types["s"] == kind
    assert g.arr_types["a"] == kind


def test_any_nonzero_byte_is_true(write):
    g = open_gguf(write(gguf([string("b") + struct.pack("<ib", BOOL, -1)])))
    assert g.kv["b"] is True


def test_no_tensors_and_no_keys(write):
    g = open_gguf(write(gguf()))
    assert (len(g.kv), len(g.tensor_infos), g.data_offset) == (0, 0, 24)
    assert g.ftype_name() == "(guessed) all F32"


def test_keys_without_tensors_need_no_padding(write):
    data = gguf([kv("general.architecture", STR, "llama")])
    g = open_gguf(write(data))
    assert g.data_offset == len(data)


def test_alignment_key(write):
    data = gguf(
        [kv("general.alignment", U32, 64)],
        [tensor("a", (1,), 0, 0), tensor("b", (1,), 0, 64)],
        bytes(68),
        alignment=64,
    )
    g = open_gguf(write(data))
    assert g.alignment == 64
    assert g.data_offset % 64 == 0
    assert g.tensor_infos["b"].abs_offset == g.data_offset + 64


def test_empty_tensor_takes_no_bytes(write):
    g = open_gguf(write(gguf([], [tensor("a", (0, 5), 0, 0), tensor("b", (1,), 0, 0)], bytes(4))))
    assert g.tensor_bytes(g.tensor_infos["a"]).size == 0
    assert g.tensor_infos["b"].nbytes == 4


def test_scalar_tensor_has_no_dimensions(write):
    g = open_gguf(write(gguf([], [tensor("a", (), 0, 0)], bytes(4))))
    assert g.tensor_infos["a"].shape == ()
    assert g.tensor_infos["a"].ne == (1, 1, 1, 1)


def test_last_padding_may_be_missing(write):
    assert open_gguf(write(tiny()[:-24])).tensor_infos["c"].nbytes == 8


@BOTH
def test_string_value_that_is_not_utf8_is_kept(write, use_mmap):
    raw = b"caf\xe9 \xff"
    path = write(gguf([kv("s", STR, raw), arr("a", STR, [raw, "ok"])]))
    g = open_gguf(path, use_mmap=use_mmap)
    assert g.kv["s"].encode("utf-8", "surrogateescape") == raw
    assert g.kv["a"].raw(0) == raw
    assert g.kv["a"][0] == g.kv["s"]
    assert g.kv["a"][1] == "ok"


@BOTH
@pytest.mark.parametrize("seed", range(4))
def test_string_arrays_of_all_sorts(write, seed, use_mmap):
    """Short, long and empty strings, and strings of zeros: the quick walk finds them all."""
    rng = np.random.default_rng(seed)
    sizes = [rng.integers(1, 12, 3000), rng.integers(0, 3, 500), rng.integers(200, 400, 300)]
    sizes = np.concatenate([*sizes, [70_000, 0, 255, 256, 257], rng.integers(1, 12, 3000)])
    top = 2 if seed % 2 else 256  # seeds 1 and 3: half of all bytes are zero
    words = [rng.integers(0, top, n, dtype=np.uint8).tobytes() for n in sizes]
    g = open_gguf(write(gguf([arr("a", STR, words), kv("z", U8, 7)])), use_mmap=use_mmap)
    a = g.kv["a"]
    assert isinstance(a, StringArray)
    assert a.raws() == words
    assert [a.raw(i) for i in (0, -1, 3499, 3802)] == [words[i] for i in (0, -1, 3499, 3802)]
    assert g.kv["z"] == 7


def test_string_array_is_a_sequence(write):
    a = open_gguf(write(gguf([arr("a", STR, list("abcde"))]))).kv["a"]
    assert len(a) == 5
    assert a[1] == "b"
    assert a[-1] == "e"
    assert a[1:3] == ["b", "c"]
    assert a[::-2] == ["e", "c", "a"]
    assert "c" in a
    assert list(a) == list("abcde")
    assert "n=5" in repr(a)
    with pytest.raises(IndexError, match="string 5 of an array of 5"):
        a[5]


@BOTH
def test_closing(write, use_mmap):
    path = write(tiny())
    g = open_gguf(path, use_mmap=use_mmap)
    view = g.tensor_bytes(g.tensor_infos["b.weight"])
    assert not view.flags.writeable
    words = g.kv["x.words"]
    g.close()
    g.close()
    assert g.closed
    assert view.tobytes() == bytes(range(18))  # the view keeps what it looks at
    with pytest.raises(GGUFError, match="closed"):
        g.tensor_bytes(g.tensor_infos["a"])
    with pytest.raises(GGUFError, match="closed"):
        words.raw(0)


def test_nothing_stays_open(write):
    """Neither a closed file, nor a refused one, nor one abandoned half way holds a descriptor."""
    descriptors = Path("/proc/self/fd")
    if not descriptors.exists():
        pytest.skip("no /proc/self/fd on this system")
    good, bad = write(tiny()), write(tiny()[:100], "bad.gguf")
    from llmviz.gguf import open_steps

    def targets():
        links = []
        for link in descriptors.iterdir():
            try:
                links.append(str(link.readlink()))
            except FileNotFoundError:
                continue
        return [x for x in links if x.startswith(str(Path(good).parent))]

    for how in ({"use_mmap": True}, {"use_mmap": False}, {"direct": True}):
        open_gguf(good, **how).close()
        with pytest.raises(GGUFError):
            open_gguf(bad, **how)
        steps = open_steps(good, **how)
        next(steps)
        steps.close()
    assert targets() == []


def test_mapping_is_zero_copy(write):
    g = open_gguf(write(tiny()))
    info = g.tensor_infos["b.weight"]
    a, b = g.tensor_bytes(info), g.tensor_bytes(info)
    assert a.__array_interface__["data"][0] == b.__array_interface__["data"][0]


def test_falls_back_to_reading_where_mapping_fails(write, monkeypatch):
    from llmviz.gguf import source

    def refuse(*_, **__):
        raise OSError("no mapping here")

    monkeypatch.setattr(source.mmap, "mmap", refuse)
    g = open_gguf(write(tiny()))
    assert not g.is_mapped
    assert g.tensor_bytes(g.tensor_infos["a"]).tobytes() == bytes(range(16))


def test_works_without_the_mmap_module(write, monkeypatch):
    from llmviz.gguf import source

    monkeypatch.setattr(source, "mmap", None)
    assert not open_gguf(write(tiny())).is_mapped


def test_stated_file_type(write):
    def name(value, kind=U32):
        return open_gguf(write(gguf([kv("general.file_type", kind, value)]))).ftype_name()

    assert name(3) == "Q4_1"
    assert name(15) == "Q4_K - Medium"
    assert name(4) == "unknown, may not work"
    assert name(1024 + 1) == "(guessed) F16"
    with pytest.raises(GGUFError, match="wrong type i32 but expected type u32") as caught:
        name(3, I32)
    assert caught.value.field == "general.file_type"
    assert caught.value.offset == 24 + 8 + len("general.file_type")


def test_guessed_file_type(write):
    def guess(*kinds):
        infos, data = [], b""
        for i, (name, kind, size) in enumerate(kinds):
            infos.append(tensor(name or f"t{i}", (32,), kind, len(data)))
            data += bytes(size + -size % 32)
        return open_gguf(write(gguf([], infos, data)))

    f32, f16, q4_0, q8_1 = (0, 128), (1, 64), (2, 18), (9, 36)
    g = guess((None, *f32), (None, *q4_0), (None, *q4_0))
    assert g.ftype_name() == "(guessed) Q4_0"
    assert g.ftype == 1024 + 2
    assert g.type_counts() == {GGMLType.F32: 1, GGMLType.Q4_0: 2}
    # of equals, the first in llama.cpp's order: names outside layers, then by layer number
    assert guess(("blk.10.a", *f16), ("blk.9.a", *q4_0)).ftype_name() == "(guessed) Q4_0"
    assert guess(("blk.0.a", *f16), ("output", *q4_0)).ftype_name() == "(guessed) Q4_0"
    # a type that no file type is named after
    assert guess((None, *q8_1)).ftype_name() == "(guessed) all F32"


def test_expect(write):
    g = open_gguf(write(tiny()))
    assert g.expect("llama.block_count", ValueType.UINT32) == 1
    with pytest.raises(GGUFError, match=r"key not found in model: llama\.nothing"):
        g.expect("llama.nothing", ValueType.UINT32)
    with pytest.raises(GGUFError, match="wrong type arr but expected type str"):
        g.expect("x.words", ValueType.STRING)


def test_big_number_arrays_are_not_copied(tmp_path):
    """An array that reaches far into a (sparse) file costs address space, not memory."""
    import tracemalloc

    n = 200_000_000
    path = tmp_path / "sparse.gguf"
    head = gguf([arr("a", U8, [], n=n)])
    with open(path, "wb") as f:
        f.write(head)
        f.truncate(len(head) + n)
    tracemalloc.start()
    try:
        g = open_gguf(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert g.kv["a"].shape == (n,)
    assert peak < 1 << 20
