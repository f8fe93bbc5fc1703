"""The quickstart notebook runs from top to bottom, and is stored without outputs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("anywidget")

from . import lab

lab.require("nbformat", "nbclient")

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "00-quickstart.ipynb"


def outputs(nb, mime: str) -> list[str]:
    found = []
    for cell in nb.cells:
        for output in cell.get("outputs", ()):
            if mime in output.get("data", {}):
                found.append(output.data[mime])
            elif mime == "text/plain" and output.output_type == "stream":
                found.append(output.text)
    return found


def test_it_is_stored_without_outputs():
    import nbformat

    nb = nbformat.read(NOTEBOOK, 4)
    nbformat.validate(nb)
    for cell in nb.cells:
        assert not cell.get("outputs") and cell.get("execution_count") is None
    assert NOTEBOOK.stat().st_size < 20_000


@pytest.mark.slow
def test_run_all(smollm2_path, tmp_path, monkeypatch):
    import nbclient
    import nbformat

    assert os.path.exists(smollm2_path)  # the fixture has put it where the notebook looks
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    nb = nbformat.read(NOTEBOOK, 4)
    nbclient.NotebookClient(nb, timeout=300, resources={"metadata": {"path": tmp_path}}).execute()
    text = "\n".join(outputs(nb, "text/plain"))
    assert "kq_soft_max-5 [9, 5, 256] float32" in text
    assert "' Paris'" in text and "layer-5" in text
    assert len(outputs(nb, "application/vnd.jupyter.widget-view+json")) == 1
    page = "".join(outputs(nb, "text/html"))
    assert "<table>" in page and "<script" not in page, "something is there without a kernel"
    # A saved notebook stays small: the state of the widget is not stored in it.
    for cell in nb.cells:
        assert len(nbformat.writes(nbformat.v4.new_notebook(cells=[cell]))) < 100_000
