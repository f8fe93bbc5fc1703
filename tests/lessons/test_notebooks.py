"""What all lessons have in common: their shape, the glossary's words, and a real kernel for two."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from llmviz.lessons.gloss import main, notebook_filled
from llmviz.trace.glossary import WORDS

from .running import NOTEBOOKS, cells, lessons

ROOT = NOTEBOOKS.parent
EVERY = pytest.mark.parametrize("path", lessons(), ids=lambda p: p.stem)


def text_of(path: Path, kind: str) -> str:
    return "\n".join(c["source"] for c in cells(path) if c["cell_type"] == kind)


@EVERY
def test_it_is_stored_without_outputs(path):
    nbformat = pytest.importorskip("nbformat")
    nb = nbformat.read(path, 4)
    nbformat.validate(nb)
    assert nb.nbformat_minor == 5 and nb.metadata.kernelspec.name == "python3"
    assert len({c.id for c in nb.cells}) == len(nb.cells)
    for cell in nb.cells:
        assert not cell.get("outputs") and cell.get("execution_count") is None
    stored = json.dumps(json.loads(path.read_text("utf-8")), indent=1, ensure_ascii=False) + "\n"
    assert path.read_text("utf-8") == stored, "written as nbformat writes it"
    assert path.stat().st_size < 40_000


@EVERY
def test_it_begins_with_a_question(path):
    first = cells(path)[0]
    assert first["cell_type"] == "markdown" and first["source"].startswith("# Lesson ")
    assert first["source"].startswith(f"# Lesson {path.stem[:2]}:")
    minutes = re.search(r"bout (\d+) minutes", first["source"])
    assert minutes and 8 <= int(minutes[1]) <= 15
    assert "?" in first["source"]


@EVERY
def test_it_asks(path):
    code = text_of(path, "code")
    assert f'lessons.begin("{path.stem}"' in code and "lessons.report()" in code
    asked = re.findall(r"^lesson\.(number|choose|order|mark|token)\(", code, re.MULTILINE)
    tasks = re.findall(r"^lesson\.exercise\(", code, re.MULTILINE)
    assert len(asked) >= 3 and len(tasks) >= 1
    test = next(Path(__file__).parent.glob(f"test_{path.stem[:2]}_*.py"), None)
    assert test is not None, "its grades are tested"


@EVERY
def test_answers_are_folded_away(path):
    for cell in cells(path):
        if cell["cell_type"] == "code" and "\nlesson." in "\n" + cell["source"]:
            assert cell["metadata"].get("jupyter", {}).get("source_hidden"), cell["id"]


@EVERY
def test_it_shows_live_views(path):
    code = text_of(path, "code")
    assert re.search(r"lv\.show\.\w+\(|lv\.Debugger\(", code)
    assert "<img" not in text_of(path, "markdown")


@EVERY
def test_it_points_to_where_things_live(path):
    text = text_of(path, "markdown")
    where = text.split("## Where this lives", 1)[1]
    ours = re.findall(r"`(llmviz/[\w/.-]+)`", where)
    assert ours and "llama.cpp" in where
    for name in ours:
        assert (ROOT / name).exists(), name
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (NOTEBOOKS / target).exists() or _comes(target), target
    last = [c for c in cells(path) if c["cell_type"] == "markdown"][-1]["source"]
    assert re.search(r"Next:?\*{0,2}:? ?\[", last)


def _comes(target: str) -> bool:
    """The next lesson may be written later than this one."""
    return bool(re.fullmatch(r"(1\d|2[01])-[\w-]+\.ipynb", target))


@EVERY
def test_words_mean_what_the_glossary_says(path):
    before, after = notebook_filled(path)
    assert before == after, f"python -m llmviz.lessons.gloss notebooks/{path.name}"
    assert len(re.findall("<abbr ", before)) >= 3


def test_gloss_fills_in_and_refuses(tmp_path, capsys):
    nbformat = pytest.importorskip("nbformat")
    words = 'A <abbr>Token</abbr> and <abbr title="old">top-k</abbr> & <abbr>KV cache</abbr>'
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(words)])
    path = tmp_path / "a.ipynb"
    nbformat.write(nb, path)
    assert main(["--check", str(path)]) == 1 and words.split()[1] in path.read_text("utf-8")
    assert main([str(path)]) == 0 and main(["--check", str(path)]) == 0
    text = nbformat.read(path, 4).cells[0].source
    assert f'<abbr title="{WORDS["token"]}">Token</abbr>' in text and "old" not in text
    path.write_text(path.read_text("utf-8").replace(">Token<", ">Nonsense<"), "utf-8")
    with pytest.raises(Exception, match=r"a\.ipynb, cell .*'Nonsense' is not in the glossary"):
        main([str(path)])
    path.write_text("{}", "utf-8")
    with pytest.raises(Exception, match="is no notebook"):
        main([str(path)])
    assert main([]) == 2
    capsys.readouterr()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["10-the-file", "16-the-kv-cache"])
def test_in_a_real_kernel(name, tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    path = NOTEBOOKS / f"{name}.ipynb"
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    nb = nbformat.read(path, 4)
    nbclient.NotebookClient(nb, timeout=110, resources={"metadata": {"path": tmp_path}}).execute()
    shown = [o for c in nb.cells for o in c.get("outputs", ())]
    assert not [o for o in shown if o.output_type == "error"]
    views = [o for o in shown if "application/vnd.jupyter.widget-view+json" in o.get("data", {})]
    assert len(views) >= 5
    assert not os.path.exists(tmp_path / ".llmviz-lessons.json"), "nothing was answered"
