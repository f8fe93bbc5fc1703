"""The cells' own bookkeeping: used range, position limits, copies, views."""

from __future__ import annotations

import numpy as np
import pytest

from llmviz.memory import KVCells


def cells(n: int = 5, size: int = 10) -> KVCells:
    """Cells 2..2+n-1 hold positions 0..n-1 of sequence 0 and tokens 100, 101, ..."""
    c = KVCells(size)
    idxs = np.arange(2, 2 + n)
    c.put(idxs, np.arange(n, dtype=np.int32), np.arange(100, 100 + n, dtype=np.int32), [(0,)] * n)
    return c


def test_empty() -> None:
    c = KVCells(4)
    assert (c.n_used, c.used_min, c.used_max_p1, len(c)) == (0, 0, 0, 4)
    assert (c.seq_pos_min(0), c.seq_pos_max(0), c.seq_ids()) == (-1, -1, [])
    assert c.is_empty(0)
    assert not c.seq_has(0, 0)
    assert not c.seq_has(0, 99)
    assert repr(c) == "<KVCells 0 of 4 used; positions of sequence ->"


def test_used_range_follows() -> None:
    c = cells()
    assert (c.n_used, c.used_min, c.used_max_p1) == (5, 2, 7)
    c.rm(np.array([6]))
    assert (c.n_used, c.used_min, c.used_max_p1) == (4, 2, 6)
    c.rm(np.array([2, 3, 4, 5]))
    assert (c.n_used, c.used_min, c.used_max_p1) == (0, 0, 0)
    c.put(np.array([9]), np.array([7], np.int32), np.array([1], np.int32), [(3,)])
    assert (c.n_used, c.used_min, c.used_max_p1) == (1, 9, 10)
    assert c.seq_get_all(9) == (3,)


def test_position_limits_follow() -> None:
    c = cells()
    assert (c.seq_pos_min(0), c.seq_pos_max(0)) == (0, 4)
    c.put(np.array([0, 1]), np.array([9, 8], np.int32), np.zeros(2, np.int32), [(0, 1), (1,)])
    assert (c.seq_pos_min(0), c.seq_pos_max(0)) == (0, 9)
    assert (c.seq_pos_min(1), c.seq_pos_max(1)) == (8, 9)
    assert c.seq_rm(np.array([0, 2]), 0).tolist() == [2]
    assert (c.seq_pos_min(0), c.seq_pos_max(0)) == (1, 4)
    assert c.pos_add(np.array([3, 4]), -2).tolist() == [3]
    assert (c.seq_pos_min(0), c.seq_pos_max(0)) == (0, 4)


def test_a_removed_cell_forgets_everything() -> None:
    c = cells()
    c.pos_add(np.array([4]), 10)
    c.rm(np.array([4]))
    assert (c.pos[4], c.shift[4], c.tok[4], c.seq[:, 4].any()) == (-1, 0, -1, False)


def test_position_at_the_end_of_the_range_does_not_wrap() -> None:
    c = cells()
    top = np.iinfo(np.int32).max
    assert c.pos_add(np.arange(2, 7), top).size == 0
    assert c.seq_pos_max(0) == top


def test_sequence_ids_have_a_limit() -> None:
    c = cells()
    c.seq_add(np.array([2]), 255)
    assert c.seq_get_all(2) == (0, 255)
    with pytest.raises(IndexError, match="seq_id = 256 >= 256"):
        c.seq_add(np.array([2]), 256)


def test_cp_and_set() -> None:
    c = cells()
    saved = c.cp(np.array([3, 4, 8]))
    c.seq_add(np.array([3]), 4)
    c.rm(np.array([4]))
    c.put(np.array([8]), np.array([50], np.int32), np.array([1], np.int32), [(2,)])
    c.set(saved)
    expected = cells()
    assert (c.pos == expected.pos).all()
    assert (c.tok == expected.tok).all()
    assert c.seq_ids() == [0]
    assert (c.n_used, c.used_max_p1, c.seq_pos_max(0), c.seq_pos_max(2)) == (5, 7, 4, -1)


def test_snapshot_and_restore() -> None:
    c = cells()
    c.seq_add(np.array([3]), 4)
    c.pos_add(np.array([3]), 1)
    snapshot = c.snapshot()
    assert len(snapshot["pos"]) == 7
    before = {name: view.copy() for name, view in c.as_arrays().items()}
    c.reset()
    c.put(np.array([9]), np.array([3], np.int32), np.array([1], np.int32), [(7,)])
    c.restore(snapshot)
    for name, view in c.as_arrays().items():
        assert (view[:, :5] if name == "seq" else view).tolist() == before[name].tolist()
    assert c.has_shift
    assert (c.n_used, c.used_max_p1) == (5, 7)
    assert (c.seq_pos_min(4), c.seq_pos_max(7)) == (2, -1)
    with pytest.raises(ValueError, match="snapshot of 10 cells, but here are 3"):
        KVCells(3).restore(snapshot)


def test_views_are_read_only_and_live() -> None:
    c = cells()
    views = c.as_arrays()
    assert views["pos"].tolist() == [-1, -1, 0, 1, 2, 3, 4, -1, -1, -1]
    assert views["tok"][2] == 100
    assert views["seq"].shape == (10, 1)
    for view in views.values():
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 1
    c.rm(np.array([2]))
    assert views["pos"][2] == -1
