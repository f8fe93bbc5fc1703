"""Indices and masks, against loops over every token and cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from llmviz.batch import Batch, BatchAllocr, Ubatch
from llmviz.memory import KVCache, KVCacheContext
from llmviz.memory.slots import SWA_TYPES, is_masked_swa

from .naive import masked


def plan(kv: KVCache, batch: Batch, n_ubatch: int = 512) -> KVCacheContext:
    balloc = BatchAllocr()
    balloc.init(batch, n_vocab=1000, n_seq_max=kv.n_seq_max, memory=kv)
    return kv.init_batch(balloc, n_ubatch)


def expected_mask(
    kv: KVCache, ubatch: Ubatch, n_kv: int, causal: bool, alibi: bool
) -> list[list[float]]:
    rows = []
    for i in range(ubatch.n_tokens):
        s, p1 = ubatch.seq_id[i][0], int(ubatch.pos[i])
        cells = kv.cells[kv.seq_to_stream[s]]
        row = []
        for j in range(n_kv):
            p0 = int(cells.pos[j])
            see = p0 >= 0 and s in cells.seq_get_all(j) and (p0 <= p1 or not causal)
            see = see and not masked(kv.n_swa, kv.swa_type, p0, p1)
            row.append((float(-abs(p0 - p1)) if alibi else 0.0) if see else -np.inf)
        rows.append(row)
    return rows


BATCHES = {
    "one": Batch([1]),
    "prompt": Batch([1] * 7),
    "two sequences": Batch([1] * 6, seq_id=[0, 1, 0, 1, 2, 0]),
    "shared": Batch([1] * 4, [0, 1, 2, 3], [[2, 3]] * 4),
}


@pytest.mark.parametrize("swa", SWA_TYPES)
@pytest.mark.parametrize("alibi", [False, True])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("scattered", [False, True])
@pytest.mark.parametrize("name", BATCHES)
def test_mask(name: str, scattered: bool, causal: bool, alibi: bool, swa: str) -> None:
    kv = KVCache(
        layers=[], kv_size=64, n_seq_max=4, n_swa=0 if swa == "none" else 4, swa_type=swa,
        use_alibi=alibi,
    )  # fmt: skip
    for seqs in ([0], [1]):
        plan(kv, Batch([1] * 9, seq_id=[seqs] * 9)).apply()
    if scattered:
        kv.seq_rm(0, 1, 4)
        kv.seq_rm(1, 0, 3)
    context = plan(kv, BATCHES[name])
    context.apply()
    ubatch = context.get_ubatch()
    mask = np.full((1, 1, ubatch.n_tokens, 40), np.nan, np.float32)
    context.set_input_kq_mask(mask, causal)
    assert mask[0, 0].tolist() == expected_mask(kv, ubatch, 40, causal, alibi)


@pytest.mark.parametrize("swa", SWA_TYPES)
def test_mask_with_a_stream_per_sequence(swa: str) -> None:
    kv = KVCache(
        layers=[], kv_size=32, n_seq_max=3, unified=False, swa_type=swa,
        n_swa=0 if swa == "none" else 3,
    )  # fmt: skip
    plan(kv, Batch([1] * 5, seq_id=[1] * 5)).apply()
    context = plan(kv, Batch([1] * 6, seq_id=[0, 1, 2] * 2))
    context.apply()
    assert context.get_ubatch().seq_id == [(0,), (0,), (1,), (1,), (2,), (2,)]
    mask = np.full((3, 2, 32), np.nan, np.float32)
    context.set_input_kq_mask(mask)
    expected = expected_mask(kv, context.get_ubatch(), 32, True, False)
    assert mask.reshape(6, 32).tolist() == expected


@pytest.mark.parametrize("swa", SWA_TYPES[1:])
@pytest.mark.parametrize("n_swa", [1, 4, 5])
def test_windows(swa: str, n_swa: int) -> None:
    p = np.arange(20)
    expected = [[masked(n_swa, swa, p0, p1) for p0 in range(20)] for p1 in range(20)]
    assert is_masked_swa(n_swa, swa, p, p[:, None]).tolist() == expected


def context_of(**kw: Any) -> KVCacheContext:
    kv = KVCache(**{"layers": [(0, 2, 2), (1, 3, 3)], "kv_size": 8, "n_seq_max": 2, **kw})
    plan(kv, Batch([1, 1], seq_id=[1, 1])).apply()
    context = plan(kv, Batch([1, 1], seq_id=[0, 1]))
    context.apply()
    return context


def test_indices_in_a_unified_cache() -> None:
    context = context_of()
    k, v = np.empty(2, np.int64), np.empty(2 * 3, np.int64)
    context.set_input_k_idxs(k)
    context.set_input_v_idxs(v)
    assert k.tolist() == [2, 3]
    assert v.tolist() == [2, 10, 18, 3, 11, 19]  # element j of a token is 8 j further


def test_indices_with_a_stream_per_sequence() -> None:
    context = context_of(unified=False)
    k, v = np.empty(2, np.int64), np.empty(2 * 3, np.int64)
    context.set_input_k_idxs(k)
    context.set_input_v_idxs(v)
    assert k.tolist() == [0, 8 + 2]
    assert v.tolist() == [0, 8, 16, 24 + 2, 24 + 10, 24 + 18]


def test_value_indices_are_rows_where_v_is_not_transposed() -> None:
    context = context_of(unified=False, v_trans=False)
    v = np.empty(2, np.int64)
    context.set_input_v_idxs(v)
    assert v.tolist() == [0, 10]


def test_shifts_of_all_streams() -> None:
    context = context_of(unified=False)
    context.kv.seq_add(1, 1, -1, 5)
    shift = np.full((2, 8), -1, np.int32)
    context.set_input_k_shift(shift)
    assert shift.tolist() == [[0] * 8, [0, 5, 5, 0, 0, 0, 0, 0]]


def test_an_array_that_would_be_copied_is_refused() -> None:
    context = context_of()
    with pytest.raises(ValueError, match="contiguous"):
        context.set_input_kq_mask(np.empty((2, 16), np.float32)[:, ::2])
    with pytest.raises(ValueError, match="contiguous"):
        context.set_input_k_idxs(np.empty(4, np.int64)[::2])
