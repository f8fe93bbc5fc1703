"""What was answered is kept in the notebook's folder, reported, and never lost in silence."""

from __future__ import annotations

import json
import os

import pytest

import llmviz
from llmviz.lessons import progress as kept
from llmviz.lessons.progress import FILE_NAME, Progress


def ask(lesson, key="n", right=5):
    return lesson.number(key, f"How many {key}?", answer=lambda: right)


def again(folder):
    """As another kernel finds the folder."""
    kept._open.clear()
    return llmviz.lessons.begin("99-tests", folder)


def stored(folder):
    return json.loads((folder / FILE_NAME).read_text("utf-8"))["lessons"]


def test_it_is_kept(tmp_path):
    lesson = again(tmp_path)
    check = ask(lesson)
    assert not os.listdir(tmp_path), "looking leaves nothing behind"
    check.submit(4)
    check.submit("x")
    entry = stored(tmp_path)["99-tests"]["n"]
    assert (entry["attempts"], entry["right_at"], entry["shown"]) == (1, None, False)
    assert entry["kind"] == "number" and entry["question"] == "How many n?"
    later = ask(again(tmp_path))
    assert later.attempts == 1 and later.note == "You tried this 1× before."
    later.submit(5)
    assert stored(tmp_path)["99-tests"]["n"]["right_at"] == 2
    done = ask(again(tmp_path))
    assert done.done and "right before, at the second try" in done.note
    done.submit(4)
    assert stored(tmp_path)["99-tests"]["n"]["right_at"] == 2 and done.attempts == 2
    assert os.listdir(tmp_path) == [FILE_NAME], "and nothing besides"


def test_the_current_folder_is_the_notebooks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lesson = llmviz.lessons.begin("99-tests")
    monkeypatch.chdir("/")
    ask(lesson).submit(5)
    assert (tmp_path / FILE_NAME).exists() and "1 of 1 answered" in repr(lesson)


def test_two_kernels_write_one_file(tmp_path):
    here, there = Progress(tmp_path / FILE_NAME), Progress(tmp_path / FILE_NAME)
    here.expect("a", "x", "number", "?")
    there.expect("b", "y", "number", "?")
    here.record("a", "x", attempts=1, right_at=1, shown=False)
    there.record("b", "y", attempts=2, right_at=None, shown=True)
    here.record("a", "x", attempts=1, right_at=1, shown=False)
    assert set(stored(tmp_path)) == {"a", "b"} == set(here.lessons())


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"version": 1}',
        '{"version": 2, "lessons": {}}',
        '{"version": 1, "lessons": {"a": []}}',
        '{"version": 1, "lessons": {"a": {"k": {"attempts": "many"}}}}',
        '{"version": 1, "lessons": {"a": {"k": 3}}}',
        "\ud800",
        "[" * 100_000,
    ],
)
def test_a_broken_file_is_told_and_left_alone(tmp_path, text):
    file = tmp_path / FILE_NAME
    file.write_text(text, "utf-8", "surrogatepass")
    before = file.read_bytes()
    lesson = again(tmp_path)
    check = ask(lesson)
    assert check.submit(5).right and check.done
    assert "kept in memory only" in check.note and "cannot be read" in check.note
    assert file.read_bytes() == before
    said = llmviz.lessons.report(tmp_path)
    assert "right at the first try" in repr(said) and "cannot be read" in repr(said)
    assert "cannot be read" in said._repr_html_() and "cannot be read" in repr(lesson)
    file.unlink()
    ask(lesson, "m").submit(4)
    assert set(stored(tmp_path)["99-tests"]) == {"n", "m"}, "nothing was lost"
    assert lesson.progress.problem == ""


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    lesson = again(tmp_path)
    check = ask(lesson)

    def full(*a, **k):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kept.os, "replace", full)
    assert check.submit(5).right
    assert "cannot be written (No space left on device)" in check.note
    assert os.listdir(tmp_path) == [], "half a file is taken away"
    out = tmp_path / "out.json"
    llmviz.lessons.report(tmp_path).to_json(out)
    assert json.loads(out.read_text("utf-8"))["right"] == 1
    monkeypatch.undo()
    check.submit(5)
    assert check.note == "" and stored(tmp_path)["99-tests"]["n"]["right_at"] == 1
    gone = llmviz.lessons.begin("99-tests", tmp_path / "not there")
    assert ask(gone).submit(5).right and "cannot be written" in gone.progress.problem


def test_report(tmp_path):
    empty = llmviz.lessons.report(tmp_path)
    assert repr(empty) == "No lesson was begun in this folder." in empty._repr_html_()
    lesson = again(tmp_path)
    first, shown, late = ask(lesson, "first"), ask(lesson, "<shown>"), ask(lesson, "late")
    ask(lesson, "open")
    first.submit(5)
    shown.submit(1)
    shown.show_answer()
    late.submit(1)
    late.submit(1)
    late.show_answer()
    late.submit(5)
    report = llmviz.lessons.report(tmp_path)
    assert [r.key for r in report.rows] == ["first", "<shown>", "late", "open"], "as asked"
    text = repr(report)
    assert "99-tests: 2 of 4 right" in text and "first    right at the first try" in text
    assert "late     right at try 3, after it was shown" in text and "open     open" in text
    page = report._repr_html_()
    assert "&lt;shown&gt;" in page and "<shown>" not in page and "2 of 4 right" in page
    report.to_json(tmp_path / "hand-in.json")
    data = json.loads((tmp_path / "hand-in.json").read_text("utf-8"))
    assert (data["questions"], data["right"], data["right_at_first"]) == (4, 2, 1)
    assert data["rows"][1] | {"when": ""} == {
        "lesson": "99-tests",
        "key": "<shown>",
        "kind": "number",
        "question": "How many <shown>?",
        "attempts": 1,
        "right_at": None,
        "shown": True,
        "when": "",
    }


def test_start_over(tmp_path):
    lesson = again(tmp_path)
    ask(lesson).submit(5)
    other = llmviz.lessons.begin("98-other", tmp_path)
    ask(other, "o").submit(5)
    lesson.start_over()
    assert ask(lesson).attempts == 0 and not ask(lesson).done
    assert stored(tmp_path)["98-other"]["o"]["right_at"] == 1
    assert stored(tmp_path)["99-tests"]["n"]["attempts"] == 0


def test_glossary():
    assert llmviz.lessons.meaning("KV Cache") == llmviz.lessons.meaning("kv caches")
    assert "token" in repr(llmviz.lessons.GLOSSARY)
    assert "<dt><b>KV cache</b></dt>" in llmviz.lessons.GLOSSARY._repr_html_()
    with pytest.raises(KeyError, match="not in the glossary"):
        llmviz.lessons.meaning("nonsense")
