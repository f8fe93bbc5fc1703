"""Split models: the parts are found by name, checked, and read as one."""

from __future__ import annotations

import shutil

import pytest
from gguf_bytes import I32, STR, U16, U32, gguf, kv, tensor

from llmviz.errors import GGUFError
from llmviz.events import drain
from llmviz.gguf import open_gguf, open_steps

FILL = {"a": 1, "b": 2, "c": 3}


def part(no, count, *names, total=3, kvs=()):
    infos = [tensor(n, (4,), 0, 32 * i) for i, n in enumerate(names)]
    data = b"".join(bytes([FILL.get(n, 9)]) * 16 + bytes(16) for n in names)
    keys = [kv("split.no", U16, no), kv("split.count", U16, count)]
    if total is not None:
        keys.append(kv("split.tensors.count", I32, total))
    return gguf([*kvs, *keys], infos, data)


@pytest.fixture
def split(tmp_path):
    """A folder with a model in three parts."""
    first = part(0, 3, "a", kvs=[kv("general.architecture", STR, "llama")])
    (tmp_path / "m-00001-of-00003.gguf").write_bytes(first)
    (tmp_path / "m-00002-of-00003.gguf").write_bytes(part(1, 3, "b"))
    (tmp_path / "m-00003-of-00003.gguf").write_bytes(part(2, 3, "c"))
    return tmp_path


@pytest.mark.parametrize("use_mmap", [True, False], ids=["mmap", "read"])
def test_all_parts_are_read_as_one(split, use_mmap):
    with open_gguf(split / "m-00001-of-00003.gguf", use_mmap=use_mmap) as g:
        assert list(g.tensor_infos) == ["a", "b", "c"]
        assert [i.part for i in g.tensor_infos.values()] == [0, 1, 2]
        for name, info in g.tensor_infos.items():
            assert g.tensor_bytes(info).tobytes() == bytes([FILL[name]]) * 16
        assert g.kv["general.architecture"] == "llama"
        assert g.type_counts() == {0: 3}
        assert [p.path.rpartition("m-")[2] for p in g.parts] == [
            "00001-of-00003.gguf", "00002-of-00003.gguf", "00003-of-00003.gguf",
        ]  # fmt: skip
        assert all(p.fields[-1].end == p.data_offset for p in g.parts)
    assert all(p.closed for p in g.parts)


def test_one_part_alone(split):
    g = open_gguf(split / "m-00002-of-00003.gguf", follow_splits=False)
    assert list(g.tensor_infos) == ["b"]
    assert len(g.parts) == 1


def test_further_parts_are_scopes(split):
    events = []
    steps = open_steps(split / "m-00001-of-00003.gguf", depth=1)

    def record():
        result = yield from steps
        return result

    generator = record()
    try:
        while True:
            events.append(next(generator))
    except StopIteration as stop:
        g = stop.value
    scopes = [(e.kind, e.depth) for e in events if e.name == "gguf_split"]
    assert scopes == [("enter", 1), ("exit", 1)] * 2
    data = [e for e in events if e.kind == "data"]
    assert {e.depth for e in data} == {1, 2}
    assert len(data) == sum(len(p.fields) for p in g.parts)


def refused(path, message):
    with pytest.raises(GGUFError, match=message) as caught:
        drain(open_steps(path))
    return caught.value


def test_missing_part_names_its_path(split):
    (split / "m-00002-of-00003.gguf").unlink()
    error = refused(split / "m-00001-of-00003.gguf", "part 2 of 3 is missing")
    assert error.path == str(split / "m-00002-of-00003.gguf")


def test_second_part_opened(split):
    error = refused(
        split / "m-00002-of-00003.gguf", "illegal split file idx: 1.*with the first split"
    )
    assert "m-00001-of-00003.gguf" in str(error)
    assert error.field == "split.no"


def test_renamed_first_part(split):
    (split / "m-00001-of-00003.gguf").rename(split / "model.gguf")
    refused(split / "model.gguf", "invalid split file name.*'<name>-00001-of-00003.gguf'")


def test_parts_swapped(split):
    shutil.copy(split / "m-00003-of-00003.gguf", split / "m-00002-of-00003.gguf")
    refused(split / "m-00001-of-00003.gguf", "invalid split file idx: 2, expected 1")


def test_part_without_its_number(split):
    (split / "m-00002-of-00003.gguf").write_bytes(gguf([], [tensor("b")], bytes(16)))
    refused(split / "m-00001-of-00003.gguf", "key not found in model: split.no")


def test_tensor_in_two_parts(split):
    (split / "m-00003-of-00003.gguf").write_bytes(part(2, 3, "a"))
    error = refused(split / "m-00001-of-00003.gguf", "tensor 'a' is duplicated in part 3 of 3")
    assert error.field == "a"


def test_tensor_missing(split):
    (split / "m-00003-of-00003.gguf").write_bytes(part(2, 3))
    refused(split / "m-00001-of-00003.gguf", "3 tensors expected but 2 found")


def test_total_missing(split):
    (split / "m-00001-of-00003.gguf").write_bytes(part(0, 3, "a", total=None))
    refused(split / "m-00001-of-00003.gguf", r"key not found in model: split\.tensors\.count")


def test_count_of_the_wrong_type(tmp_path):
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf([kv("split.count", U32, 2)]))
    refused(path, r"split\.count has wrong type u32 but expected type u16")


def test_damaged_part(split):
    path = split / "m-00003-of-00003.gguf"
    path.write_bytes(path.read_bytes()[:40])
    error = refused(split / "m-00001-of-00003.gguf", "it is cut off or damaged|exceeds remaining")
    assert error.path == str(path)


def test_a_count_of_one_is_not_a_split(tmp_path):
    path = tmp_path / "x.gguf"
    path.write_bytes(part(0, 1, "a"))
    assert list(open_gguf(path).tensor_infos) == ["a"]
