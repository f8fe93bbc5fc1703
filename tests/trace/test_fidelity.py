"""The agreement with llama.cpp that a view may speak of: as measured, or nothing."""

from __future__ import annotations

import json

import llmviz
from llmviz.trace import Debugger, fidelity
from llmviz.widgets import MapView

ROW = {"part": "architecture", "same_graph": True, "logits": 0.0}
TABLE = {
    "versions": {"llmviz": "1", "xllamacpp": "2", "date": "2026-01-01"},
    "rows": [
        {**ROW, "arch": "llama", "worst": 6e-7},
        {**ROW, "arch": "llama", "worst": 9e-7},
        {**ROW, "arch": "qwen2", "worst": 0.5, "same_graph": False},
        {"part": "type", "name": "Q4_1", "weights": "f32", "logits": 0.014},
        {"part": "type", "name": "Q4_1", "weights": "quantized", "logits": 0.0},
        {"part": "type", "name": "Q8_0", "weights": "f32", "logits": 0.5},
    ],
}


def test_as_measured(tiny_model, monkeypatch):
    monkeypatch.setattr(fidelity, "_table", lambda: TABLE)
    model = llmviz.load(tiny_model(weight_type="Q4_1"))
    found = fidelity.fidelity(model)
    assert found[:3] == (True, 9e-7, 0.014)
    assert found.measured == "llmviz 1, xllamacpp 2, 2026-01-01"
    dbg = Debugger(model, "the")
    dbg.step_into()
    with MapView(dbg) as view:
        assert (
            view.fidelity["text"] == "llama on test models: llama.cpp's graph, nodes within 9e-07"
        )
        assert "logits within 1e-02" in view.fidelity["title"]


def test_nothing_is_said_where_nothing_was_measured(tiny_model, monkeypatch):
    monkeypatch.setattr(fidelity, "_table", lambda: {**TABLE, "rows": TABLE["rows"][2:]})
    model = llmviz.load(tiny_model())
    assert fidelity.fidelity(model) is None
    monkeypatch.setattr(fidelity, "_table", lambda: None)
    assert fidelity.fidelity(model) is None


def test_the_table_in_the_package():
    """What `make parity` wrote covers every architecture, each with llama.cpp's graph."""
    table = fidelity._table()
    assert table is not None and json.dumps(table)
    rows = [r for r in table["rows"] if r["part"] == "architecture"]
    from llmviz.model.arch import supported_archs

    assert {r["arch"] for r in rows} == set(supported_archs())
    assert all(r["same_graph"] and r["worst"] < 1e-3 for r in rows)
