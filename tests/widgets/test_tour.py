"""The debugger's tour runs from top to bottom, says what is true, and is stored without outputs."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

pytest.importorskip("anywidget")

from . import lab
from .test_notebook import outputs

lab.require("nbformat", "nbclient")

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "01-debugger-tour.ipynb"


def test_it_is_stored_without_outputs():
    import nbformat

    nb = nbformat.read(NOTEBOOK, 4)
    nbformat.validate(nb)
    for cell in nb.cells:
        assert not cell.get("outputs") and cell.get("execution_count") is None
    assert NOTEBOOK.stat().st_size < 20_000


def test_a_class_is_asked_before_it_is_told():
    import nbformat

    nb = nbformat.read(NOTEBOOK, 4)
    questions = [c for c in nb.cells if c.source.startswith("**Predict first.**")]
    assert len(questions) >= 7
    for cell in questions:
        asked, told = cell.source.split("<details><summary>Reveal</summary>")
        assert "?" in asked and told.rstrip().endswith("</details>")
    words = sum(len(c.source.split()) for c in nb.cells)
    assert words < 1700, "ten minutes, cells included"


@pytest.mark.slow
def test_run_all(smollm2_path, tmp_path, monkeypatch):
    import nbclient
    import nbformat

    assert os.path.exists(smollm2_path)  # the fixture has put it where the notebook looks
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    nb = nbformat.read(NOTEBOOK, 4)
    nbclient.NotebookClient(nb, timeout=300, resources={"metadata": {"path": tmp_path}}).execute()
    text = "\n".join(outputs(nb, "text/plain"))
    assert "(3575, ' capital')" in text, "five tokens"
    assert "kq_soft_max-11 [9, 5, 256] float32" in text and "layer-11" in text
    assert "stopped before the next word of: The capital of France is Paris.\n" in text
    assert "' Paris' had probability 77.2%" in text
    assert "The capital of France is London" in text and "main: ' Paris" in text
    places = {int(a): int(b.replace(",", "")) for a, b in PLACE.findall(text)}
    assert places[22] > 1000 and places[23] < 0.5 * places[22] and places[24] < 100
    assert places[29] == 1 and max(places[i] for i in range(24, 30)) < 200
    assert "layer 23, head 4: adds 2.82 of 17.37 logits" in text
    assert "(' France', '0.90')" in text
    assert "with it 77.2%, without it 14.1%" in text
    assert text.count("True") == 2 and "' Paris' 77.2% True" in text, "identical, bit for bit"
    assert len(outputs(nb, "application/vnd.jupyter.widget-view+json")) == 2
    assert not [o for c in nb.cells for o in c.get("outputs", ()) if o.output_type == "error"]
    for cell in nb.cells:
        assert len(nbformat.writes(nbformat.v4.new_notebook(cells=[cell]))) < 100_000


PLACE = re.compile(r"after layer (\d+): place ([\d,]+)")
