"""Lesson 11: what it asks is graded by what gguf-py's quantizers make of the same weights."""

from __future__ import annotations

import numpy as np
import pytest

from .running import lesson_run

gguf = pytest.importorskip("gguf")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with lesson_run("11-quantization", tmp_path_factory.mktemp("lesson")) as run:
        yield run


def there_and_back(values, name):
    kind = gguf.GGMLQuantizationType[name]
    return gguf.quants.dequantize(gguf.quants.quantize(values, kind), kind)


def test_grades(run):
    run.still_holds()
    x, table = run.names["x"], run.names["model"].tensors[run.names["NAME"]].numpy()
    sign = int(np.sign(x[np.abs(x).argmax()]))
    lost = {
        name: np.square(there_and_back(table, name) - table).mean()
        for name in ("Q8_0", "Q5_0", "Q4_1", "Q4_0")
    }
    order = run.checks["which-is-closest"].items
    closest = sorted(order, key=lambda item: lost[item[:4]])
    chances = {name: np.array(c) for name, c in run.names["chances"].items()}
    away = {n: np.abs(c - chances["F16"]).mean() for n, c in chances.items()}
    spoilt = run.names["four"] + 8 * float(run.names["block"]["d"])
    assert "8 stands for zero" in run.checks["read-a-block"].submit(spoilt).reason
    run.checks["read-a-block"].attempts = 0
    assert run.checks["biggest-code"].submit(-127 * sign).reason == "Mind the sign."
    run.checks["biggest-code"].attempts = 0
    run.grades(
        {
            "biggest-code": (8, 127 * sign),
            "largest-error": (1, "1/2"),
            "bits-per-weight": (8, "8.5"),
            "coarser": (2, 127 / 8),
            "outlier": ("nothing", "their errors grow about tenfold"),
            "which-is-closest": (closest[::-1], closest),
            "who-notices": ("Q8_0", max(away, key=away.get)),
            "read-a-block": (np.zeros(32),),
        }
    )
    assert np.allclose(run.names["answer"], there_and_back(x, "Q4_0"))


def test_the_files_it_writes_are_read_by_others(run):
    for name in ("Q8_0", "Q4_1", "Q4_0"):
        made = run.names["versions"][name]
        assert max(made.gguf.type_counts(), key=made.gguf.type_counts().get).name == name
        table = run.names["model"].tensors[run.names["NAME"]].numpy()
        other = next(
            t for t in gguf.GGUFReader(made.gguf.path).tensors if t.name == run.names["NAME"]
        )
        read = gguf.quants.dequantize(other.data, other.tensor_type)
        assert np.array_equal(read, made.tensors[other.name].numpy())
        assert np.abs(read - table).max() < 0.2 * np.abs(table).max()


def test_what_it_shows(run):
    assert [v.view_name for v in run.views()] == ["gguf", "compare"]
    assert (
        "the others differ by 1" in run.printed["quant-11"]
        or "32 of 32" in (run.printed["quant-11"])
    )
