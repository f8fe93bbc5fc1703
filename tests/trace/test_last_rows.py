"""Last rows: of a long prompt one row is kept where that is enough; it outlives what is large."""

from __future__ import annotations

import numpy as np

from llmviz.events import Event
from llmviz.trace.kept import N_ROWS
from llmviz.trace.recorder import Recorder


def see(recorder: Recorder, name: str, n: int, value: np.ndarray) -> None:
    recorder.see(Event("node", name, 0, 13, value), n)


def test_the_last_row_alone_is_kept_under_its_own_name() -> None:
    recorder = Recorder()
    recorder.ask("me", lambda name: name == "l_out-3[-1]")
    assert recorder.wants("l_out-3") and not recorder.wants("l_out-4")
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    see(recorder, "l_out-3", 7, x)
    kept = recorder.value("l_out-3[-1]")
    assert kept is not None and kept.n == 7 and kept.array.tolist() == [[9, 10, 11]]
    assert recorder.value("l_out-3") is None and recorder.bytes_used == 12
    recorder.ask("you", lambda name: name == "l_out-3")
    see(recorder, "l_out-3", 8, x)
    whole = recorder.value("l_out-3")
    assert whole is not None and whole.array.shape == (4, 3)
    assert recorder.value("l_out-3[-1]") is kept, "its last row is part of it"
    recorder.truncate(7)
    assert recorder.value("l_out-3") is None and recorder.value("l_out-3[-1]") is kept
    recorder.release("me")
    assert recorder.bytes_used == 0


def test_rows_outlive_large_values_and_stay_few() -> None:
    recorder = Recorder(budget=4096)
    recorder.ask("me", lambda name: name.endswith("[-1]") or name == "big")
    for n in range(0, 60, 3):
        see(recorder, "small", n, np.ones((2, 4), np.float32))
        see(recorder, "big", n + 1, np.ones((2, 256), np.float32))
        see(recorder, "kq_soft_max-0", n + 2, np.ones((1, 16, 16), np.float32))
        assert recorder.bytes_used <= 4096
    assert [k.n for k in recorder.values("small[-1]")] == list(range(36, 60, 3))
    assert len(recorder.values("small[-1]")) == N_ROWS and recorder.dropped > 0
    assert "small[-1]" not in recorder.dropped_text


def test_where_nothing_else_is_left_rows_go_too() -> None:
    recorder = Recorder(budget=64)
    recorder.ask("me", lambda name: name.endswith("[-1]"))
    for n in range(6):
        see(recorder, f"x-{n}", n, np.ones((3, 4), np.float32))
        assert recorder.bytes_used <= 64
    assert recorder.value("x-0[-1]") is None and recorder.value("x-5[-1]") is not None
    assert "x-1[-1]" in recorder.dropped_text
