"""What the recorder keeps, how attention is put together, and that the budget holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiny_archs import write_arch

import llmviz
from llmviz.trace import Debugger, Recorder, statistics
from llmviz.trace.flow import Flow
from llmviz.trace.summary import as_matrix, probabilities

from . import toy


def finished(**kwargs) -> tuple[Debugger, dict[str, list[np.ndarray]]]:
    """A finished toy run, and the attention that passed, copied by hand."""
    passed: dict[str, list[np.ndarray]] = {}

    def keep():
        for event in toy.run(n_predict=3):
            if event.kind == "node" and event.name.startswith("kq_soft_max"):
                passed.setdefault(event.name, []).append(np.array(event.value))
            yield event

    dbg = Debugger(keep(), **kwargs)
    dbg.run()
    return dbg, passed


def test_attention_rows_are_the_engines_rows():
    dbg, passed = finished()
    matrix = dbg.recorder.attention_matrix(1, 1, range(7))
    prompt, *later = passed["kq_soft_max-1"]
    low = np.tril_indices(5)
    assert np.array_equal(matrix[:5, :5][low], prompt[1][:, :5][low])
    for i, block in enumerate(later):
        assert np.array_equal(matrix[5 + i, : 6 + i], block[1, 0, : 6 + i])
    assert np.isnan(matrix[np.triu_indices(7, 1)]).all(), "a key after its query is never looked at"
    assert np.allclose(np.nansum(matrix, 1), 1, atol=1e-6)


def test_a_window_of_positions():
    dbg, _ = finished()
    whole = dbg.recorder.attention_matrix(0, 0, range(7))
    part = dbg.recorder.attention_matrix(0, 0, [3, 4, 5])
    assert np.array_equal(part, whole[3:6, 3:6], equal_nan=True)
    assert dbg.recorder.attention_matrix(9, 0, [0]) is None
    assert dbg.recorder.attention_matrix(0, 9, [0]) is None


def test_the_budget_holds_and_the_chosen_layer_stays_longest():
    budget = 500
    recorder = Recorder(budget=budget, layer=1)
    dbg = Debugger(toy.run(n_predict=8))
    dbg.recorder = recorder
    dbg.run()
    held = sum(b.p.nbytes for blocks in recorder.attention.values() for b in blocks)
    assert held == recorder.used <= budget
    assert recorder.layers() == [1] and recorder.dropped > 0
    assert recorder.wants("kq_soft_max-1") and not recorder.wants("kq_soft_max-0")


def test_cells_know_what_was_just_written():
    dbg, _ = finished()
    cells = dbg.recorder.cells
    assert cells.used == 7 and cells.fresh == {6} and cells.sequences(0) == (0,)
    assert cells.sequences(12) == () and cells.pos[12] == -1


def test_copies_do_not_alias_the_engine():
    logits = np.arange(8, dtype=np.float32)[None, :]
    from llmviz.events import Event

    recorder = Recorder()
    recorder.see(Event("data", "logits", 0, 14, logits), 0)
    logits[:] = 0
    assert recorder.logits[7] == 7 and recorder.top[0].id == 7


def test_statistics_count_what_is_not_a_number():
    x = np.array([[1.0, -2.0, np.nan], [np.inf, 3.0, -np.inf]], np.float32)
    s = statistics(x)
    assert (s.count, s.nan, s.inf, s.min, s.max) == (6, 1, 2, -2.0, 3.0)
    assert s.mean == pytest.approx(2 / 3) and s.std == pytest.approx(np.std([1, -2, 3]))
    empty = statistics(np.full(3, np.nan))
    assert empty.min is None and empty.nan == 3
    with pytest.raises(TypeError):
        statistics(np.array(["a"]))


def test_slices_of_any_rank():
    x = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    part = as_matrix(x, (1, 99))
    assert part.index == (1, 2) and np.array_equal(part.matrix, x[1, 2])
    assert np.shares_memory(part.matrix, x) and x[part.place(3, 4)] == part.matrix[3, 4]
    assert as_matrix(np.float32(3).reshape(())).matrix.shape == (1, 1)
    assert as_matrix(np.arange(6)).matrix.shape == (1, 6)
    assert as_matrix(np.arange(6)).place(0, 5) == (5,)


def test_axes_of_length_one_are_not_rows():
    x = np.arange(9 * 256).reshape(9, 1, 256)
    part = as_matrix(x)
    assert part.matrix.shape == (9, 256) and part.lead == () and part.place(8, 3) == (8, 0, 3)
    y = np.arange(2 * 3 * 4).reshape(2, 1, 3, 1, 4)
    part = as_matrix(y, (1,))
    assert part.matrix.shape == (3, 4) and part.lead == (0,) and y[part.place(2, 3)] == 23
    assert as_matrix(np.arange(5).reshape(1, 1, 5)).matrix.shape == (1, 5)


def test_probabilities_of_odd_logits():
    assert probabilities(np.array([0, 0], np.float32)).tolist() == [0.5, 0.5]
    assert probabilities(np.array([np.nan, 1, -np.inf], np.float32)).tolist() == [0, 1, 0]
    assert probabilities(np.array([np.inf, 1], np.float32)).tolist() == [1, 0]


def test_values_are_kept_for_whoever_asks():
    dbg = Debugger(toy.run(n_predict=3))
    me, you = object(), object()
    dbg.recorder.ask(me, lambda name: name == "l_out-1")
    dbg.recorder.ask(you, lambda name: name in ("l_out-1", "inp_pos"))
    dbg.run()
    held = dbg.recorder.values("l_out-1")
    assert [k.pass_ for k in held] == [0, 1, 2] and held[-1] is dbg.recorder.value("l_out-1")
    assert held[0].array.shape == (5, toy.N_EMBD) and not held[0].array.flags.writeable
    assert held[0].tensor.op == "ADD" and held[0].n < held[1].n
    assert dbg.recorder.value("inp_pos").array.tolist() == [6]
    assert dbg.recorder.stats("l_out-1").max == float(held[-1].array.max())
    assert dbg.recorder.value("l_out-0") is None and dbg.recorder.stats("l_out-0") is None
    used = dbg.recorder.bytes_used
    dbg.recorder.release(me)
    assert dbg.recorder.value("l_out-1") is not None
    dbg.recorder.release(you)
    assert dbg.recorder.value("l_out-1") is None and dbg.recorder.values("inp_pos") == []
    assert dbg.recorder.bytes_used < used


def test_the_oldest_values_go_first_and_it_says_so():
    dbg = Debugger(toy.run(n_predict=8), budget=1200)
    dbg.recorder.ask(dbg, lambda name: name.startswith("l_out"))
    dbg.run()
    recorder = dbg.recorder
    assert recorder.bytes_used <= 1200 and recorder.dropped > 0
    kept = recorder.values("l_out-0") + recorder.values("l_out-1")
    assert kept and min(k.pass_ for k in kept) > 0
    assert f"{recorder.dropped} older values" in recorder.dropped_text
    assert "to stay within" in recorder.dropped_text
    small = Debugger(toy.run(), budget=10)
    small.recorder.ask(small, lambda name: name == "l_out-0")
    small.run()
    assert small.recorder.bytes_used == 0 and small.recorder.stats("l_out-0") is not None


def test_statistics_of_what_was_watched():
    box = {}
    dbg = Debugger(toy.run(want=lambda name: box["dbg"]._want(name)), want="attn_norm-*")
    box["dbg"] = dbg
    dbg.run()
    assert dbg.recorder.stats("attn_norm-1").count == toy.N_EMBD
    assert dbg.recorder.stats("kq_soft_max-1") is None, "seen for the attention view alone"


def test_of_four_positions_the_first_is_the_querys(tmp_path: Path) -> None:
    """M-RoPE's input holds four of each token; the flow's rows find theirs too."""
    sections = {"rope.dimension_sections": [2, 3, 3, 0]}
    dbg = Debugger(llmviz.load(write_arch(tmp_path / "x.gguf", "glm4", keys=sections)), [1, 5, 6])
    flow = Flow(dbg, layer=1)
    flow.update()
    for _ in range(2):
        dbg.next_token()
    assert [b.q_pos.tolist() for b in dbg.recorder.attention[1]] == [[0, 1, 2], [3]]
    flow.update()
    assert [r.pos for r in flow.rows if r.state == "now"] == [3]
    assert np.isfinite(flow.mask()[3, :4]).all()
