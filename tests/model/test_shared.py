"""Two models of one file share what was decoded, and nothing once one of them is all there is."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest

import llmviz
from llmviz.ggml.types import GGMLType
from llmviz.model import shared
from llmviz.trace import Debugger


@pytest.fixture
def path(tiny_model, tmp_path: Path) -> Path:
    """A file of its own, whose matrices are quantized."""
    import shutil

    return Path(shutil.copy(tiny_model(weight_type="Q8_0"), tmp_path / "a.gguf"))


def weights(model) -> dict[str, np.ndarray]:
    """What was decoded; F32 tensors are looked at in the file itself."""
    return {n: t.data for n, t in model.tensors.items() if t.type != GGMLType.F32}


def test_an_array_is_decoded_once_while_somebody_holds_it() -> None:
    calls = []

    def decode() -> np.ndarray:
        calls.append(1)
        return np.arange(6, dtype=np.float32).reshape(2, 3)[:]

    first = shared.decoded("k", decode).reshape(2, 3)
    again = shared.decoded("k", decode)
    assert np.shares_memory(first, again) and len(calls) == 1
    assert not first.flags.writeable and first.tolist() == [[0, 1, 2], [3, 4, 5]]
    del first, again
    gc.collect()
    assert "k" not in shared._held
    shared.decoded("k", decode)
    assert len(calls) == 2
    assert shared.decoded(None, decode).flags.writeable, "nobody else has it"


def test_a_part_of_something_larger_is_not_shared() -> None:
    whole = np.arange(10, dtype=np.float32)
    part = shared.decoded("part", lambda: whole[:4])
    assert whole.flags.writeable and part.tolist() == [0, 1, 2, 3] and "part" not in shared._held


def test_two_debuggers_of_one_path_have_one_copy(path: Path) -> None:
    first = Debugger(str(path), [1, 262], n_predict=1, n_ctx=64)
    first.break_on(7)
    first.run()
    second = Debugger(str(path), [1, 263], n_predict=1, n_ctx=64)
    second.break_on(7)
    second.run()
    a, b = weights(first.model), weights(second.model)
    assert a.keys() == b.keys() and len(a) > 10
    assert all(np.shares_memory(a[name], b[name]) for name in a)
    leaf = second.model.weights.layers[0].wq
    assert np.shares_memory(leaf.array, a["blk.0.attn_q.weight"])
    key = next(k for k, held in shared._held.items() if np.shares_memory(held, leaf.array))
    second.run()
    tokens = len(second.tokens)
    first.close()
    second.close()
    del first, second, a, b, leaf
    gc.collect()
    assert tokens == 3 and key not in shared._held, "with the last model they are gone"


def test_a_changed_file_is_another_one(path: Path) -> None:
    before = shared.file_key(str(path))
    os.utime(path, ns=(1, 1))
    after = shared.file_key(str(path))
    assert before != after and after == shared.file_key(os.path.relpath(path))
    path.unlink()
    assert shared.file_key(str(path)) is None


def test_a_model_whose_file_was_replaced_keeps_its_weights(path: Path) -> None:
    model = llmviz.load(str(path))
    ids = [1, 262, 263]
    text = "".join(llmviz.generate(model.context(n_ctx=64), ids, n_predict=2))
    os.utime(path, ns=(1, 1))
    other = llmviz.load(str(path))
    assert "".join(llmviz.generate(other.context(n_ctx=64), ids, n_predict=2)) == text
    assert not any(np.shares_memory(x, weights(other)[n]) for n, x in weights(model).items())
