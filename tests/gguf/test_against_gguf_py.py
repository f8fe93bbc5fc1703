"""The same file through gguf-py's reader and ours."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf_bytes import tiny

from llmviz.gguf import StringArray, ValueType, open_gguf


def assert_same(path):
    theirs = gguf.GGUFReader(path)
    with open_gguf(path) as ours:
        assert [n for n in theirs.fields if not n.startswith("GGUF.")] == list(ours.kv)
        for key, value in ours.kv.items():
            field = theirs.fields[key]
            assert ours.kv_types[key] == field.types[0]
            if isinstance(value, StringArray):
                assert value.raws() == [bytes(field.parts[i]) for i in field.data]
            elif isinstance(value, np.ndarray):
                assert value.tolist() == field.contents()
            else:
                assert value == field.contents()
            if ours.kv_types[key] is ValueType.ARRAY:
                assert ours.arr_types[key] == field.types[-1]
        assert len(theirs.tensors) == len(ours.tensor_infos)
        for tensor, info in zip(theirs.tensors, ours.tensor_infos.values(), strict=True):
            assert tensor.name == info.name
            assert tuple(tensor.shape.tolist()) == info.ne[: info.n_dims]
            assert tensor.tensor_type == info.type
            assert (tensor.data_offset, tensor.n_bytes) == (info.abs_offset, info.nbytes)
        assert theirs.data_offset == ours.data_offset


def test_tiny(tmp_path):
    path = tmp_path / "x.gguf"
    path.write_bytes(tiny())
    assert_same(path)


def test_smollm2(smollm2_path):
    assert_same(smollm2_path)
    with open_gguf(smollm2_path) as g:
        assert g.ftype_name() == "Q4_1"
        assert {t.name: n for t, n in g.type_counts().items()} == {
            "F32": 61,
            "Q4_1": 210,
            "Q8_0": 1,
        }


def test_a_file_of_gguf_writer(tmp_path):
    path = tmp_path / "w.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_token_list(["a", "ß", b"\xff"])
    writer.add_array("llama.attention.head_count", [4, 8])
    writer.add_bool("x.flag", False)
    rng = np.random.default_rng(0)
    for name, shape in (("token_embd.weight", (3, 32)), ("output_norm.weight", (32,))):
        writer.add_tensor(name, rng.random(shape, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    g = open_gguf(path)
    assert g.kv["llama.block_count"] == 2
    assert g.kv["tokenizer.ggml.tokens"].raws() == [b"a", "ß".encode(), b"\xff"]
    assert g.kv["llama.attention.head_count"].tolist() == [4, 8]
    assert g.kv["x.flag"] is False
    assert g.tensor_infos["token_embd.weight"].shape == (3, 32)


@pytest.mark.parametrize("file_type", [t for t in gguf.LlamaFileType if t != 1024])
def test_every_file_type_has_a_name(file_type):
    from llmviz.gguf.constants import FTYPE_NAMES

    removed = {"MOSTLY_Q4_1_SOME_F16", "MOSTLY_Q4_2", "MOSTLY_Q4_3"}
    if file_type.name in removed or "Q4_0_" in file_type.name:
        pytest.skip("removed from llama.cpp")
    assert int(file_type) in FTYPE_NAMES
