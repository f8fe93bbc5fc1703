"""The KV cache by hand-computed examples: plans, slots, sequence operations, sizes, copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from llmviz.batch import Batch, BatchAllocr
from llmviz.errors import LlmvizError, UnsupportedError
from llmviz.ggml.types import GGMLType
from llmviz.memory import CacheError, KVCache, KVCacheContext, Memory, MemoryContext, MemoryStatus
from llmviz.memory.memory import status_combine


def cache(**kw: Any) -> KVCache:
    return KVCache(**{"layers": [(0, 4, 4), (1, 4, 4)], "kv_size": 16, "n_seq_max": 2, **kw})


def plan(kv: KVCache, batch: Batch, n_ubatch: int = 512) -> KVCacheContext:
    balloc = BatchAllocr()
    balloc.init(batch, n_vocab=1000, n_seq_max=kv.n_seq_max, memory=kv)
    return kv.init_batch(balloc, n_ubatch)


def run(kv: KVCache, batch: Batch, n_ubatch: int = 512) -> KVCacheContext:
    """Plan and apply; K and V of each token become its token id."""
    context = plan(kv, batch, n_ubatch)
    assert context.get_status() is MemoryStatus.SUCCESS, context.reason
    while True:
        context.apply()
        ubatch = context.get_ubatch()
        for layer in kv.layers:
            rows = np.empty(ubatch.n_tokens, np.int64)
            context.set_input_k_idxs(rows)
            layer.k.reshape(-1, 4)[rows] = ubatch.token[:, None]
            where = np.empty(ubatch.n_tokens * (4 if kv.v_trans else 1), np.int64)
            context.set_input_v_idxs(where)
            if kv.v_trans:
                layer.v.reshape(-1)[where.reshape(-1, 4)] = ubatch.token[:, None]
            else:
                layer.v.reshape(-1, 4)[where] = ubatch.token[:, None]
        if not context.next():
            return context


def fill(kv: KVCache, n: int, seq_id: int = 0) -> None:
    first = kv.seq_pos_max(seq_id) + 1
    run(kv, Batch(range(first, first + n), seq_id=[seq_id] * n))


def span(kv: KVCache, seq_id: int) -> tuple[int, int]:
    return kv.seq_pos_min(seq_id), kv.seq_pos_max(seq_id)


def held(kv: KVCache, stream: int = 0) -> list[int]:
    return kv.cells[stream].pos.tolist()


# -- interface -----------------------------------------------------------------------------------


def test_satisfies_the_protocols() -> None:
    kv = cache()
    assert isinstance(kv, Memory)
    assert isinstance(plan(kv, Batch([1])), MemoryContext)


def test_status_combine() -> None:
    ok, nothing, prepare, compute = MemoryStatus
    assert status_combine(ok, nothing) is status_combine(nothing, ok) is ok
    assert status_combine(nothing, nothing) is nothing
    assert status_combine(ok, prepare) is status_combine(prepare, compute) is prepare
    assert status_combine(nothing, compute) is compute
    assert [s.is_fail for s in MemoryStatus] == [False, False, True, True]


# -- plans and slots -----------------------------------------------------------------------------


def test_planning_changes_nothing() -> None:
    kv = cache()
    fill(kv, 3)
    before = repr(kv.snapshot())
    context = plan(kv, Batch.get_one([1] * 7), n_ubatch=3)
    assert [s.idxs[0].tolist() for s in context.sinfos] == [[3, 4, 5], [6, 7, 8], [9]]
    assert repr(kv.snapshot()) == before
    assert kv.heads == [3]


def test_apply_walks_through_the_ubatches() -> None:
    kv = cache()
    context = plan(kv, Batch.get_one([1] * 5), n_ubatch=2)
    seen = []
    while True:
        assert context.apply()
        seen.append((context.get_ubatch().n_tokens, span(kv, 0), context.get_n_kv()))
        if not context.next():
            break
    assert seen == [(2, (0, 1), 16), (2, (0, 3), 16), (1, (0, 4), 16)]
    assert kv.heads == [5]


def test_full_cache_refuses_and_keeps_everything() -> None:
    kv = cache(kv_size=256)
    run(kv, Batch.get_one([1] * 256), n_ubatch=64)
    context = plan(kv, Batch.get_one([1]))
    assert context.get_status() is MemoryStatus.FAILED_PREPARE
    assert "memory slot for batch of size 1: 256 of 256 cells are used" in context.reason
    assert span(kv, 0) == (0, 255)
    with pytest.raises(CacheError, match="failed plan"):
        context.apply()


def test_batch_that_fits_only_in_part_is_refused_whole() -> None:
    kv = cache(kv_size=256)
    run(kv, Batch.get_one([1] * 254))
    assert plan(kv, Batch.get_one([1] * 8), n_ubatch=1).get_status() is MemoryStatus.FAILED_PREPARE
    assert span(kv, 0) == (0, 253)
    assert kv.heads == [254]
    assert kv.cells[0].n_used == 254


def test_shifting_makes_room() -> None:
    kv = cache(kv_size=256)
    run(kv, Batch.get_one([1] * 256))
    assert kv.seq_rm(0, 4, 132)
    kv.seq_add(0, 132, -1, -128)
    assert span(kv, 0) == (0, 127)
    context = run(kv, Batch([1], [128]))
    assert span(kv, 0) == (0, 128)
    assert context.sinfo.idxs[0].tolist() == [4]  # the first cell that became free


def test_search_starts_at_the_head_and_wraps() -> None:
    kv = cache(kv_size=8)
    fill(kv, 6)
    kv.seq_rm(0, 0, 2)  # cells 0, 1: head goes back to 0
    assert kv.heads == [0]
    kv._heads[0] = 6
    assert kv.find_slot(plan(kv, Batch([1] * 4)).get_ubatch()).idxs[0].tolist() == [6, 7, 0, 1]


def test_search_restarts_when_much_before_the_head_is_free() -> None:
    kv = cache()
    fill(kv, 2)
    kv._heads[0] = 4  # 4 <= 2 used + 2 * 1: stays
    assert plan(kv, Batch([1])).sinfo.head == 4
    kv._heads[0] = 5
    assert plan(kv, Batch([1])).sinfo.head == 2


def test_contiguous_slot() -> None:
    kv = cache(kv_size=8)
    fill(kv, 8)
    kv.seq_rm(0, 1, 2)
    kv.seq_rm(0, 4, 7)
    two, three, four = (plan(kv, Batch([1] * n)).ubatches for n in (2, 3, 4))
    assert kv.find_slot(two[0], cont=True).idxs[0].tolist() == [4, 5]
    assert kv.find_slot(three[0], cont=True).idxs[0].tolist() == [4, 5, 6]
    assert kv.find_slot(three[0]).idxs[0].tolist() == [1, 4, 5]
    assert kv.find_slot(four[0], cont=False).idxs[0].tolist() == [1, 4, 5, 6]
    assert kv.find_slot(four[0], cont=True) is None


def test_slots_of_scattered_cells_print_as_runs() -> None:
    kv = cache(kv_size=8)
    fill(kv, 8)
    kv.seq_rm(0, 1, 2)
    kv.seq_rm(0, 4, 6)
    sinfo = plan(kv, Batch([1] * 3)).sinfo
    assert repr(sinfo) == "<SlotInfo stream 0: cells 1, 4..5>"
    assert not sinfo.is_contiguous()


@pytest.mark.parametrize(("used", "n_kv"), [(1, 256), (256, 256), (257, 512), (600, 700)])
def test_n_kv_is_padded(used: int, n_kv: int) -> None:
    kv = cache(kv_size=700)
    assert run(kv, Batch.get_one([1] * used)).get_n_kv() == n_kv


def test_n_kv_follows_the_last_used_cell() -> None:
    kv = cache(kv_size=1024)
    fill(kv, 600)
    kv.seq_rm(0, 100, -1)
    assert run(kv, Batch([1], [100])).get_n_kv() == 256


def test_init_full_is_the_largest_graph() -> None:
    kv = cache(kv_size=512, unified=False)
    context = kv.init_full()
    assert context.get_n_kv() == 512
    assert (context.sinfo.s0, context.sinfo.s1) == (0, 1)
    assert context.get_k(1).shape == (2, 512, 4)
    assert context.get_v(1).shape == (2, 4, 512)


# -- sequence operations -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "seq0", "seq1"),
    [
        ((0, 4, -1), (0, 3), (0, 3)),
        ((0, -1, 3), (3, 7), (0, 3)),
        ((0, 2, 5), (0, 7), (0, 3)),
        ((0, 5, 2), (0, 7), (0, 3)),
        ((0, 3, 3), (0, 7), (0, 3)),
        ((0, 100, -1), (0, 7), (0, 3)),
        ((-1, 2, -1), (0, 1), (0, 1)),
        ((0, -1, -1), (-1, -1), (0, 3)),
        ((1, 0, 2), (0, 7), (2, 3)),
    ],
)
@pytest.mark.parametrize("unified", [True, False])
def test_seq_rm_table(unified: bool, call: tuple, seq0: tuple, seq1: tuple) -> None:
    kv = cache(unified=unified)
    fill(kv, 8)
    fill(kv, 4, seq_id=1)
    assert kv.seq_rm(*call) is True
    assert (span(kv, 0), span(kv, 1)) == (seq0, seq1)


def test_seq_rm_of_the_middle_leaves_a_hole_that_is_used_next() -> None:
    kv = cache()
    fill(kv, 8)
    kv.seq_rm(0, 2, 5)
    assert held(kv)[:8] == [0, 1, -1, -1, -1, 5, 6, 7]
    fill(kv, 4)
    assert held(kv)[:9] == [0, 1, 8, 9, 10, 5, 6, 7, 11]


def test_shared_cells_are_freed_by_the_last_sequence() -> None:
    kv = cache()
    fill(kv, 4)
    kv.seq_cp(0, 1, 1, 3)
    assert span(kv, 1) == (1, 2)
    kv.seq_rm(0)
    assert held(kv)[:4] == [-1, 1, 2, -1]
    assert kv.cells[0].seq_get_all(1) == (1,)
    kv.seq_rm(1)
    assert kv.cells[0].n_used == 0


def test_seq_cp_of_a_sequence_to_itself_does_nothing() -> None:
    kv = cache()
    fill(kv, 4)
    kv.seq_cp(0, 0)
    assert span(kv, 0) == (0, 3)


def test_seq_keep() -> None:
    kv = cache()
    fill(kv, 3)
    kv.seq_cp(0, 1, 0, 2)
    fill(kv, 2, seq_id=1)
    kv.seq_keep(1)
    assert (span(kv, 0), span(kv, 1)) == ((-1, -1), (0, 3))
    assert held(kv)[:5] == [0, 1, -1, 2, 3]
    assert kv.heads == [2]


def test_seq_add_moves_marks_and_drops() -> None:
    kv = cache()
    fill(kv, 4)
    kv.seq_add(0, 1, -1, -2)
    assert held(kv)[:4] == [0, -1, 0, 1]
    assert kv.cells[0].shift[:4].tolist() == [0, 0, -2, -2]
    assert kv.has_shift
    assert kv.heads == [1]
    kv.seq_add(0, 0, -1, 5)
    assert held(kv)[:4] == [5, -1, 5, 6]
    assert kv.cells[0].shift[:4].tolist() == [5, 0, 3, 3]
    assert kv.heads == [0]


@pytest.mark.parametrize("args", [(0, 0, -1, 0), (0, 2, 2, 5), (0, -1, 0, 5), (0, 9, -1, 5)])
def test_seq_add_of_nothing(args: tuple) -> None:
    kv = cache()
    fill(kv, 4)
    kv.seq_add(*args)
    assert held(kv)[:4] == [0, 1, 2, 3]
    assert not kv.has_shift


def test_seq_div() -> None:
    kv = cache()
    fill(kv, 6)
    kv.seq_div(0, 2, 6, 2)
    assert held(kv)[:6] == [0, 1, 1, 1, 2, 2]
    assert span(kv, 0) == (0, 2)
    assert kv.has_shift


def test_a_unified_cache_takes_any_sequence_id() -> None:
    kv = cache()
    fill(kv, 4)
    kv.seq_cp(0, 200)
    assert span(kv, 200) == (0, 3)
    assert span(kv, 255) == (-1, -1)


@pytest.mark.parametrize("unified", [True, False])
def test_out_of_range(unified: bool) -> None:
    kv = cache(unified=unified)
    n = 256 if unified else 2
    for call in (
        lambda s: kv.seq_rm(s),
        lambda s: kv.seq_cp(s, 0),
        lambda s: kv.seq_cp(0, s),
        lambda s: kv.seq_keep(s),
        lambda s: kv.seq_add(s, 0, -1, 1),
        lambda s: kv.seq_div(s, 0, -1, 2),
        lambda s: kv.seq_pos_min(s),
        lambda s: kv.seq_pos_max(s),
        lambda s: kv.state_write(s),
    ):
        for seq_id in (n, -2):
            with pytest.raises(CacheError, match=rf"seq_id = {seq_id} .* sequences 0\.\.{n - 1}"):
                call(seq_id)
    with pytest.raises(CacheError, match="d must be at least 1"):
        kv.seq_div(0, 0, -1, 0)
    with pytest.raises(CacheError, match="does not fit in 32 bits"):
        kv.seq_add(0, 0, -1, 2**31)


# -- streams -------------------------------------------------------------------------------------


def test_one_stream_per_sequence() -> None:
    kv = cache(unified=False)
    batch = Batch([1, 2, 3, 4], [0, 1, 0, 1], [0, 0, 1, 1])
    context = run(kv, batch)
    assert context.sinfo.strm == [0, 1]
    assert [i.tolist() for i in context.sinfo.idxs] == [[0, 1], [0, 1]]
    assert context.get_k(0)[:, :2, 0].tolist() == [[1, 2], [3, 4]]
    assert context.get_v(0)[:, 0, :2].tolist() == [[1, 2], [3, 4]]


def test_only_the_streams_of_the_ubatch_are_looked_at() -> None:
    kv = cache(unified=False, n_seq_max=3)
    context = run(kv, Batch([1, 2], [0, 0], [1, 2]))
    assert (context.sinfo.s0, context.sinfo.s1) == (1, 2)
    assert context.get_k(0).shape == (2, 16, 4)


def test_coupled_sequences_do_not_fit_separate_streams() -> None:
    context = plan(cache(unified=False), Batch([1], [0], [[0, 1]]))
    assert context.get_status() is MemoryStatus.FAILED_PREPARE
    assert "kv_unified=True" in context.reason


def test_copy_between_streams_moves_the_data_at_the_next_update() -> None:
    kv = cache(unified=False)
    fill(kv, 3)
    kv.seq_add(0, 0, -1, 2)
    fill(kv, 5, seq_id=1)
    kv.seq_cp(0, 1)
    assert span(kv, 1) == (2, 4)
    assert kv.cells[1].shift[:4].tolist() == [2, 2, 2, 0]
    assert kv.heads == [0, 0]
    update = kv.init_update(lambda il, shift: None)
    assert update.get_status() is MemoryStatus.SUCCESS
    update.apply()
    for layer in kv.layers:
        assert (layer.k[1] == layer.k[0]).all()
        assert (layer.v[1] == layer.v[0]).all()
    assert kv.init_update().get_status() is MemoryStatus.NO_UPDATE


@pytest.mark.parametrize("p", [(1, -1), (5, -1), (-1, 5), (0, 3)])
def test_copy_of_a_part_between_streams_is_refused(p: tuple) -> None:
    with pytest.raises(CacheError, match="only a full copy"):
        cache(unified=False).seq_cp(0, 1, *p)
    cache(unified=False).seq_cp(0, 1, -1, 15)  # as far as llama.cpp goes


# -- updates -------------------------------------------------------------------------------------


def test_update_rotates_each_layer_once() -> None:
    kv = cache()
    fill(kv, 3)
    assert kv.init_update().get_status() is MemoryStatus.NO_UPDATE
    kv.seq_add(0, 1, -1, 4)
    calls = []
    update = kv.init_update(lambda il, shift: calls.append((il, shift.copy())))
    assert update.apply()
    assert [il for il, _ in calls] == [0, 1]
    assert calls[0][1].shape == (1, 16)
    assert calls[0][1][0, :4].tolist() == [0, 4, 4, 0]
    assert not kv.has_shift
    assert kv.cells[0].shift.tolist() == [0] * 16


def test_update_of_keys_without_positions_only_forgets_the_shift() -> None:
    kv = cache()
    fill(kv, 3)
    kv.seq_add(0, 1, -1, 4)
    assert kv.update(None) is False
    assert not kv.has_shift


def test_update_where_keys_cannot_be_rotated() -> None:
    kv = cache(can_shift=False)
    fill(kv, 3)
    kv.seq_add(0, 1, -1, 4)
    with pytest.raises(CacheError, match="cannot be rotated"):
        kv.init_update(lambda il, shift: None).apply()


# -- sliding window ------------------------------------------------------------------------------


def test_cells_behind_the_window_are_used_again() -> None:
    kv = cache(kv_size=6, n_swa=4, swa_type="standard")
    fill(kv, 6)  # positions 0..5; the next query, 6, sees 3..6
    context = run(kv, Batch([9, 9], [6, 7]))
    assert context.sinfo.idxs[0].tolist() == [0, 1]
    assert held(kv) == [6, 7, 2, 3, 4, 5]
    assert span(kv, 0) == (2, 7)


def test_taking_a_cell_takes_all_earlier_positions_along() -> None:
    kv = cache(kv_size=6, n_swa=2, swa_type="standard")
    fill(kv, 6)
    kv._heads[0] = 3
    run(kv, Batch([9], [6]))  # takes the cell of position 3: 0, 1 and 2 go too
    assert held(kv) == [-1, -1, -1, 6, 4, 5]
    assert span(kv, 0) == (4, 6)


def test_shared_cells_are_not_taken() -> None:
    kv = cache(kv_size=6, n_swa=2, swa_type="standard")
    fill(kv, 6)
    kv.seq_cp(0, 1)
    assert plan(kv, Batch([9], [6])).get_status() is MemoryStatus.FAILED_PREPARE


# -- sizes, types, errors ------------------------------------------------------------------------


@pytest.mark.parametrize("v_trans", [True, False])
@pytest.mark.parametrize(
    ("type_", "dtype"), [(GGMLType.F16, np.float16), (GGMLType.F32, np.float32)]
)
def test_arrays(type_: GGMLType, dtype: type, v_trans: bool) -> None:
    kv = cache(unified=False, type_k=type_, type_v=type_, v_trans=v_trans)
    layer = kv.layer(1)
    assert layer.k.shape == (2, 16, 4)
    assert layer.v.shape == ((2, 4, 16) if v_trans else (2, 16, 4))
    assert layer.k.dtype == layer.v.dtype == dtype
    assert (
        kv.total_size() == kv.size_k_bytes() + kv.size_v_bytes() == 4 * 2 * 16 * 4 * dtype().nbytes
    )


def test_size_formula_states_its_numbers() -> None:
    kv = KVCache(layers=[(i, 192, 192) for i in range(30)], kv_size=512, type_v=GGMLType.F32)
    assert kv.size_formula() == (
        "K (f16): 30 layers x 512 cells x 192 x 2 bytes = 5.62 MiB\n"
        "V (f32): 30 layers x 512 cells x 192 x 4 bytes = 11.25 MiB"
    )
    kv = KVCache(layers=[(0, 8, 8), (1, 16, 16)], kv_size=64, n_seq_max=3, unified=False)
    assert kv.size_formula().splitlines() == [
        "K (f16): 1 layer x 3 streams x 64 cells x 8 x 2 bytes + "
        "1 layer x 3 streams x 64 cells x 16 x 2 bytes = 0.01 MiB",
        # transposed values are as wide as the widest layer
        "V (f16): 2 layers x 3 streams x 64 cells x 16 x 2 bytes = 0.01 MiB",
    ]


def test_layers_without_values() -> None:
    kv = KVCache(layers=[(0, 8, 0)], kv_size=16)
    assert kv.layer(0).v is None
    assert kv.size_v_bytes() == 0
    with pytest.raises(CacheError, match="layer 0 keeps no values"):
        kv.init_full().get_v(0)


def test_refuses_types_and_sizes() -> None:
    with pytest.raises(UnsupportedError, match=r"\(type_k\): 'q4_K'; supported: f32, f16, bf16"):
        cache(type_k=GGMLType.Q4_K)
    with pytest.raises(UnsupportedError, match="sliding-window type: 'round'"):
        cache(swa_type="round")
    with pytest.raises(LlmvizError, match="needs n_swa >= 1"):
        cache(swa_type="standard")
    with pytest.raises(CacheError, match="kv_size = 0"):
        cache(kv_size=0)
    with pytest.raises(CacheError, match="multiple of n_pad = 32"):
        cache(kv_size=48, n_pad=32)
    with pytest.raises(CacheError, match=r"n_seq_max must be 1\.\.256, got 257"):
        cache(n_seq_max=257)
    with pytest.raises(CacheError, match=r"cannot be allocated .* use a smaller n_ctx"):
        KVCache(layers=[(0, 2**40, 2**40)], kv_size=2**20)


def test_clear() -> None:
    kv = cache()
    fill(kv, 5)
    kv.clear(data=False)
    assert (span(kv, 0), kv.heads, kv.cells[0].n_used) == ((-1, -1), [0], 0)
    assert kv.layer(0).k.any()
    kv.clear()
    assert not any(layer.k.any() or layer.v.any() for layer in kv.layers)


# -- copies --------------------------------------------------------------------------------------


@pytest.mark.parametrize("v_trans", [True, False])
@pytest.mark.parametrize("unified", [True, False])
def test_time_travel(unified: bool, v_trans: bool) -> None:
    kv = cache(kv_size=6, unified=unified, v_trans=v_trans, n_swa=3, swa_type="standard")
    fill(kv, 6)
    kv.seq_cp(0, 1)
    kv.seq_rm(1, 0, 2)
    before = kv.state_write(), repr(kv.snapshot()), [layer.v.copy() for layer in kv.layers]
    context = plan(kv, Batch([99, 98], [6, 7], [0, 0]))
    snapshot, rows = kv.snapshot(), kv.save_rows(context.sinfo)
    for layer in kv.layers:
        layer.k[0, context.sinfo.idxs[0]] = 7
        if v_trans:
            layer.v[0][:, context.sinfo.idxs[0]] = 7
        else:
            layer.v[0, context.sinfo.idxs[0]] = 7
    context.apply()
    kv.seq_add(0, 3, -1, 10)
    assert kv.state_write() != before[0]
    kv.restore(snapshot)
    kv.restore_rows(rows)
    assert kv.state_write() == before[0]
    assert repr(kv.snapshot()) == before[1]
    for layer, v in zip(kv.layers, before[2], strict=True):
        assert (layer.v == v).all()


def test_save_rows_of_everything() -> None:
    kv = cache()
    fill(kv, 5)
    rows = kv.save_rows()
    k = kv.layer(0).k.copy()
    kv.layer(0).k[0, :5] *= 2
    kv.restore_rows(rows)
    assert (kv.layer(0).k == k).all()


def test_repr() -> None:
    kv = cache()
    fill(kv, 5)
    assert repr(kv) == ("<KVCache 2 layers, 1 stream x 16 cells (5 used), K f16, V f16, 0.00 MiB>")
    assert repr(kv.cells[0]) == "<KVCells 5 of 16 used; positions of sequence 0: 0..4>"
