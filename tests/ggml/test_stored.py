"""Rows behind a float32 tensor: what is read is always what the blocks decode to."""

from __future__ import annotations

import numpy as np
import pytest

from llmviz.ggml import ops, quants
from llmviz.ggml.backends.cpu_matmul import hadamard
from llmviz.ggml.graph import Tensor, new_tensor
from llmviz.ggml.stored import StoredRows
from llmviz.ggml.types import GGMLType
from tests.ggml.graphs import compute


def leaf(type_: GGMLType, n_rows: int = 6, width: int = 64) -> Tensor:
    quant = quants.get(type_)
    blocks = np.zeros((1, n_rows, width // quant.block_size), quant.block_dtype)
    values = np.zeros((1, n_rows, width), np.float32)
    out = Tensor(GGMLType.F32, (width, n_rows, 1), name="cache").adopt(values)
    out.stored = StoredRows(type_, blocks, values)
    return out


def agree(t: Tensor) -> bool:
    return np.array_equal(t.stored.values, t.stored.decode(t.stored.blocks))


@pytest.mark.parametrize("name", ["Q8_0", "Q4_1", "IQ4_NL", "BF16"])
def test_set_rows_stores_blocks(name: str) -> None:
    cache = leaf(GGMLType[name])
    rng = np.random.default_rng(0)
    x, ids = new_tensor(GGMLType.F32, 64, 3), new_tensor(GGMLType.I64, 3)
    rows = rng.normal(0, 1, (3, 64)).astype(np.float32)
    x.adopt(rows)
    ids.adopt(np.array([4, 0, 5], np.int64))
    out = ops.set_rows(cache, x, ids)
    compute(out)
    quant = quants.get(name)
    expected = quant.quantize(rows, store=True)
    assert cache.stored.blocks[0, [4, 0, 5]].tobytes() == expected.tobytes()
    assert not cache.array[0, 1:4].any() and agree(cache)
    np.testing.assert_array_equal(out.array[0, 4], quant.dequantize(expected[0]))


def test_single_values_of_a_transposed_cache() -> None:
    cache = leaf(GGMLType.BF16, 4, 8)
    flat = ops.reshape(cache, 1, 32)
    x, ids = new_tensor(GGMLType.F32, 1, 2), new_tensor(GGMLType.I64, 2)
    x.adopt(np.array([[1.00390625], [-3.0]], np.float32))
    ids.adopt(np.array([9, 31], np.int64))
    compute(ops.set_rows(flat, x, ids))
    assert cache.array[0, 1, 1] == 1.0 and cache.array[0, 3, 7] == -3.0 and agree(cache)


def test_an_edit_reaches_the_blocks_of_the_rows_it_changes() -> None:
    cache = leaf(GGMLType.Q4_0)
    rng = np.random.default_rng(1)
    cache.stored.store(np.arange(6), rng.normal(0, 1, (6, 64)).astype(np.float32))
    before = cache.stored.blocks.copy()
    window = ops.view(cache, (64, 2), (256,), offset=256)  # rows 1 and 2
    window.bind(cache.buffer)
    value = window.array.copy()
    value[1] = 7.0
    window.write(value)
    assert agree(cache) and (cache.array[0, 2] == 7.0).all()
    changed = [i for i in range(6) if before[0, i].tobytes() != cache.stored.blocks[0, i].tobytes()]
    assert changed == [2]


def test_refresh_decodes_a_window() -> None:
    cache = leaf(GGMLType.Q8_0)
    cache.stored.blocks["d"] = 0.5
    cache.stored.blocks["qs"] = 2
    cache.stored.refresh((slice(None), slice(4)))
    assert (cache.array[0, :4] == 1).all() and not cache.array[0, 4:].any()


@pytest.mark.parametrize("n", [1, 2, 64, 256])
def test_hadamard(n: int) -> None:
    matrix = np.ones((1, 1))
    while len(matrix) < n:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    x = np.random.default_rng(2).normal(0, 1, (3, n)).astype(np.float32)
    np.testing.assert_allclose(hadamard(x), x @ matrix / np.sqrt(n), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(hadamard(hadamard(x)), x, rtol=1e-5, atol=1e-5)
