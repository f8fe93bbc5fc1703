"""Two caches in step: sizes, slots behind the window, sequences, coming back."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from llmviz.batch import Batch, BatchAllocr
from llmviz.ggml.types import GGMLType
from llmviz.memory import CacheError, KVCacheISWA, Memory, MemoryContext, MemoryStatus
from llmviz.memory.kv_cache_iswa import swa_cells

LAYERS = [(0, 4, 4), (1, 4, 4), (2, 4, 4)]


def make(**params: Any) -> KVCacheISWA:
    settings = {
        "layers": LAYERS, "is_swa": [True, True, False], "kv_size": 512, "n_swa": 8,
        "swa_type": "standard", "n_ubatch": 8, "type_k": GGMLType.F32, "type_v": GGMLType.F32,
    }  # fmt: skip
    return KVCacheISWA(**(settings | params))  # type: ignore[arg-type]


def plan(kv: KVCacheISWA, n: int, seq: int = 0, n_ubatch: int = 8) -> Any:
    balloc = BatchAllocr()
    batch = Batch(token=[5] * n, seq_id=[seq] * n)
    n_seq_max = kv.base.n_seq_max
    balloc.init(batch, n_vocab=10, n_seq_max=n_seq_max, memory=kv, output_all=False)
    return kv.init_batch(balloc, n_ubatch)


def feed(kv: KVCacheISWA, n: int, seq: int = 0) -> None:
    mctx = plan(kv, n, seq)
    assert mctx.get_status() == MemoryStatus.SUCCESS
    while True:
        mctx.apply()
        if not mctx.next():
            return


@pytest.mark.parametrize(
    ("kv_size", "n_swa", "n_seq", "n_ubatch", "unified", "cells"),
    [
        (512, 8, 1, 8, True, 256),
        (512, 250, 1, 8, True, 512),
        (256, 4096, 1, 512, True, 256),
        (4096, 512, 4, 512, True, 2560),
        (4096, 512, 4, 512, False, 1024),
    ],
)
def test_the_window_s_cache_holds_a_window_and_a_ubatch(
    kv_size: int, n_swa: int, n_seq: int, n_ubatch: int, unified: bool, cells: int
) -> None:
    assert swa_cells(kv_size, n_swa, n_seq, n_ubatch, unified) == cells


def test_it_is_a_memory() -> None:
    kv = make()
    assert isinstance(kv, Memory)
    assert isinstance(kv.init_full(), MemoryContext)
    assert [layer.il for layer in kv.layers] == [0, 1, 2]
    assert (kv.base.kv_size, kv.swa.kv_size, kv.kv_size) == (512, 256, 512)
    assert kv.total_size() == kv.size_k_bytes() + kv.size_v_bytes() == 4 * 8 * (512 + 2 * 256)
    assert "2 layers x 256 cells" in kv.size_formula()
    assert make(swa_full=True).swa.kv_size == 512
    assert not kv.can_shift and make(swa_full=True).can_shift
    assert list(kv.caches) == ["", "_swa"]


def test_old_cells_are_taken_once_the_window_has_passed() -> None:
    kv = make()
    for _ in range(40):
        feed(kv, 10)
    assert (kv.base.seq_pos_min(0), kv.base.seq_pos_max(0)) == (0, 399)
    assert kv.seq_pos_max(0) == 399
    assert kv.seq_pos_min(0) == kv.swa.seq_pos_min(0) > 0
    assert kv.swa.cells[0].n_used <= 256


def test_a_batch_that_fits_only_one_changes_nothing() -> None:
    kv = make(n_swa=300, n_ubatch=128, kv_size=512)
    for _ in range(5):
        feed(kv, 100)
    before = kv.base.seq_pos_max(0), kv.swa.cells[0].n_used
    mctx = plan(kv, 50)
    assert mctx.get_status() == MemoryStatus.FAILED_PREPARE
    assert "failed to find a memory slot" in mctx.reason
    with pytest.raises(CacheError):
        mctx.apply()
    assert (kv.base.seq_pos_max(0), kv.swa.cells[0].n_used) == before


def test_sequence_operations_reach_both() -> None:
    kv = make(n_seq_max=2)
    feed(kv, 6)
    kv.seq_cp(0, 1)
    kv.seq_rm(0, 4, -1)
    assert [c.seq_pos_max(0) for c in kv.caches.values()] == [3, 3]
    assert [c.seq_pos_max(1) for c in kv.caches.values()] == [5, 5]
    kv.seq_add(1, 0, -1, 2)
    kv.seq_div(1, 0, -1, 2)
    assert [c.seq_pos_max(1) for c in kv.caches.values()] == [3, 3]
    kv.seq_keep(1)
    assert [c.seq_pos_max(0) for c in kv.caches.values()] == [-1, -1]
    assert kv.init_update().get_status() == MemoryStatus.SUCCESS
    assert not kv.update(None)
    kv.clear()
    assert kv.seq_pos_max(1) == -1


def test_coming_back() -> None:
    kv = make()
    feed(kv, 8)
    for layer in kv.layers:
        layer.k[...] = layer.il + 1
    mctx = plan(kv, 8)
    saved, rows, again = kv.snapshot(), mctx.save_rows(), copy.copy(mctx)
    assert {r.il for r in rows} == {0, 1, 2}
    mctx.apply()
    for layer in kv.layers:
        layer.k[...] = 9
    kv.restore(saved)
    kv.restore_rows(rows)
    assert kv.seq_pos_max(0) == 7
    for layer in kv.layers:
        cells = (again.base if layer.il == 2 else again.swa).sinfo.idxs[0]
        assert (layer.k[0, cells] == layer.il + 1).all()
    assert again.apply() and kv.seq_pos_max(0) == 15
    with pytest.raises(CacheError, match="plan"):
        kv.save_rows(again.sinfo)
    assert len(kv.save_rows()) == 3


def test_a_state_can_be_saved_and_restored() -> None:
    kv = make()
    feed(kv, 8)
    for layer in kv.layers:
        layer.k[...] = np.arange(layer.k.size).reshape(layer.k.shape)
    data = kv.state_write(0)
    other = make()
    assert other.state_read(data, 0) == len(data)
    assert other.seq_pos_max(0) == 7
    np.testing.assert_array_equal(other.layer(2).k[0, :8], kv.layer(2).k[0, :8])
