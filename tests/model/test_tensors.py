"""Tensors in two passes: declared against the file, then read."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import gguf
import numpy as np
import pytest

from llmviz.errors import GGUFError, LoadCancelled, UnsupportedError
from llmviz.events import drain
from llmviz.ggml.quants import base
from llmviz.ggml.types import GGMLType
from llmviz.gguf import open_gguf
from llmviz.model.tensors import TensorLoader

RNG = np.random.default_rng(3)
MATRIX = RNG.standard_normal((3, 64), dtype=np.float32)
Q8 = gguf.quants.quantize(MATRIX, gguf.GGMLQuantizationType.Q8_0)


@pytest.fixture
def loader(tmp_path: Path) -> TensorLoader:
    """A file with a matrix in three types, a vector and a tensor with a trailing 1."""
    w = gguf.GGUFWriter(tmp_path / "t.gguf", "llama")
    w.add_tensor("f32", MATRIX)
    w.add_tensor("f16", MATRIX.astype(np.float16))
    w.add_tensor("q8", Q8, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    w.add_tensor("vector", np.arange(5, dtype=np.float32))
    w.add_tensor("one", MATRIX.reshape(1, 3, 64))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return TensorLoader(open_gguf(tmp_path / "t.gguf"))


def test_declaring(loader: TensorLoader) -> None:
    leaf = loader.create_tensor("f32", 64, 3)
    assert leaf is not None
    assert (leaf.name, leaf.ne, leaf.type.name, leaf.array) == ("f32", (64, 3, 1, 1), "F32", None)


def test_the_same_name_twice_is_the_same_leaf(loader: TensorLoader) -> None:
    """A tied output is the embedding."""
    assert loader.create_tensor("f32", 64, 3) is loader.create_tensor("f32", 64, 3)


def test_missing(loader: TensorLoader) -> None:
    assert loader.create_tensor("gone", 64, required=False) is None
    with pytest.raises(GGUFError, match="tensor 'gone' not found") as caught:
        loader.create_tensor("gone", 64)
    assert caught.value.field == "gone"


@pytest.mark.parametrize("ne", [(3, 64), (64,), (64, 4), (64, 3, 2), (64, 3, 1, 2), (192,)])
def test_another_shape(loader: TensorLoader, ne: tuple[int, ...]) -> None:
    with pytest.raises(GGUFError, match=r"'f32' has wrong shape; expected .*, got 64 x 3"):
        loader.create_tensor("f32", *ne)
    with pytest.raises(GGUFError, match="wrong shape"):  # not required is not any shape
        loader.create_tensor("f32", *ne, required=False)


def test_trailing_ones_do_not_matter(loader: TensorLoader) -> None:
    assert loader.create_tensor("one", 64, 3) is not None
    assert loader.create_tensor("vector", 5, 1) is not None


def write(path: Path, name: str, raw: np.ndarray, **kwargs: object) -> Path:
    w = gguf.GGUFWriter(path, "llama")
    w.add_tensor(name, raw, **kwargs)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def test_a_type_that_cannot_be_decoded_is_refused_when_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(base._REGISTRY, GGMLType.IQ2_XXS)  # as one that ggml adds tomorrow
    blocks = np.zeros((3, 66), np.uint8)  # one block of 256 values a row
    path = write(tmp_path / "t.gguf", "t", blocks, raw_dtype=gguf.GGMLQuantizationType.IQ2_XXS)
    with pytest.raises(UnsupportedError, match=r"IQ2_XXS.*supported: .*Q4_K") as caught:
        TensorLoader(open_gguf(path)).create_tensor("t", 256, 3)
    assert caught.value.supported


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.float64])
def test_tables_of_integers_and_doubles(tmp_path: Path, dtype: type) -> None:
    values = np.arange(-6, 6).reshape(3, 4).astype(dtype)
    tensor = TensorLoader(open_gguf(write(tmp_path / "t.gguf", "t", values))).tensors["t"]
    assert tensor.shape == (3, 4) and tensor.numpy().dtype == np.float32
    np.testing.assert_array_equal(tensor.numpy(), values)


def test_surplus_tensors(loader: TensorLoader) -> None:
    for name in ("f32", "f16", "q8"):
        loader.create_tensor(name, 64, 3)
    with pytest.raises(GGUFError, match=r"expected 5, got 3.*vector, one"):
        loader.done_getting_tensors()
    loader.create_tensor("vector", 5)
    loader.create_tensor("one", 64, 3)
    loader.done_getting_tensors()


def test_loading(loader: TensorLoader) -> None:
    """Everything becomes float32; the leaf and the model's tensor share it."""
    leaves = {name: loader.create_tensor(name, 64, 3) for name in ("f32", "f16", "q8")}
    events = list(loader.load_all_data_steps(depth=2))
    assert [(e.kind, e.name, e.depth, e.step) for e in events] == [
        ("data", name, 2, 6) for name in leaves
    ]
    exact = {
        "f32": MATRIX,
        "f16": MATRIX.astype(np.float16).astype(np.float32),
        "q8": gguf.quants.dequantize(Q8, gguf.GGMLQuantizationType.Q8_0),
    }
    for name, leaf in leaves.items():
        assert leaf is not None and leaf.array is not None
        assert leaf.array.dtype == np.float32
        np.testing.assert_array_equal(leaf.array, exact[name])
        data = loader.tensors[name].data
        assert data is not None and np.shares_memory(leaf.array, data)


def test_only_what_was_declared_is_read(loader: TensorLoader) -> None:
    loader.create_tensor("vector", 5)
    drain(loader.load_all_data_steps())
    assert [n for n, t in loader.tensors.items() if t.data is not None] == ["vector"]


def test_a_tensor_knows_its_place(loader: TensorLoader) -> None:
    t = loader.tensors["q8"]
    assert (t.shape, t.ne, t.type.name, t.nbytes) == ((3, 64), (64, 3, 1, 1), "Q8_0", 3 * 2 * 34)
    assert loader.tensors["one"].shape == (3, 64)
    assert loader.tensors["vector"].shape == (5,)
    assert t.raw.tobytes() == Q8.tobytes()
    assert not t.raw.flags.writeable
    with open(loader.gguf.path, "rb") as file:
        file.seek(t.offset)
        assert file.read(t.nbytes) == Q8.tobytes()


def test_values_before_and_after_loading(loader: TensorLoader) -> None:
    t = loader.tensors["q8"]
    before = t.numpy()
    assert t.data is None
    t.load()
    np.testing.assert_array_equal(t.numpy(), before)
    with pytest.raises(ValueError, match="read-only"):
        t.numpy()[0, 0] = 1


def test_progress_by_bytes(loader: TensorLoader) -> None:
    """The vector has 20 of 788 bytes, the matrix the rest."""
    loader.create_tensor("vector", 5)
    loader.create_tensor("f32", 64, 3)
    seen: list[float] = []

    def progress(fraction: float) -> None:
        seen.append(fraction)

    drain(loader.load_all_data_steps(progress=progress))
    assert seen == [0.0, 20 / 788, 1.0]


def test_cancelling_leaves_the_rest_unread(loader: TensorLoader) -> None:
    loader.create_tensor("vector", 5)
    loader.create_tensor("f32", 64, 3)
    with pytest.raises(LoadCancelled, match="3%"):
        drain(loader.load_all_data_steps(progress=lambda fraction: fraction == 0))
    assert loader.tensors["f32"].data is None


def test_nothing_to_load_is_no_division_by_zero(loader: TensorLoader) -> None:
    seen: list[float] = []
    drain(loader.load_all_data_steps(progress=seen.append))
    assert all(0 <= f <= 1 for f in seen)


def test_values_that_are_asked_for_are_not_kept(loader: TensorLoader) -> None:
    tensor = loader.tensors["q8"]
    values = tensor.numpy()
    gone = weakref.ref(values if values.base is None else values.base)
    assert (tensor.data, tensor.memory) == (None, 0)
    del values
    gc.collect()
    assert gone() is None
