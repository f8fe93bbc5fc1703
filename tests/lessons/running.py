"""Runs a lesson's notebook from top to bottom in this process, and grades its questions.

    @pytest.fixture(scope="module")
    def run(tmp_path_factory):
        with lesson_run("12-tokens", tmp_path_factory.mktemp("lesson")) as run:
            yield run

    def test_grades(run):
        run.grades({"how-many": (4, 5), "your-turn": (0,)})

A cell is executed as a kernel does it: its last expression is shown, and what shows it is called.
A real kernel runs two of the notebooks in test_notebooks.py.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import io
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from llmviz.lessons.base import Check
from llmviz.lessons.exercise import ExerciseCheck
from llmviz.widgets.base import View

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
UNMADE = "could not be made"  # what a reason says whose own code failed


def lessons() -> list[Path]:
    """The notebooks of the course, in order."""
    return sorted(p for p in NOTEBOOKS.glob("[12][0-9]-*.ipynb"))


def cells(path: Path) -> list[dict[str, Any]]:
    """A notebook's cells; each has its source as one text."""
    found = json.loads(path.read_text("utf-8"))["cells"]
    return [{**c, "source": "".join(c["source"])} for c in found]


@dataclass
class Run:
    """A lesson that was run.

    Attributes
    ----------
    names : dict
        The notebook's own.
    shown : dict of str to list
        Cell id to the objects that it showed.
    printed : dict of str to str
    then : dict of str to object
        Key of a check to the right answer when its cell had run; absent where it could not be told.
    seconds : float
    """

    name: str
    names: dict[str, Any]
    shown: dict[str, list[Any]] = field(default_factory=dict)
    printed: dict[str, str] = field(default_factory=dict)
    then: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def lesson(self) -> Any:
        return self.names["lesson"]

    @property
    def checks(self) -> dict[str, Check]:
        return self.lesson.checks

    def views(self) -> list[View]:
        """The views that were shown, questions left out."""
        every = (v for shown in self.shown.values() for v in shown)
        return [v for v in every if isinstance(v, View) and not isinstance(v, Check)]

    def grades(self, answers: dict[str, tuple[Any, ...]]) -> None:
        """Submit to every check a wrong answer, then the right one, and see that it says so.

        Of an exercise only a wrong value is given; its solution is executed for the right one.
        """
        assert set(answers) == set(self.checks), "every check is graded"
        for key, (wrong, *right) in answers.items():
            check = self.checks[key]
            said = check.submit(wrong)
            assert not said.right and said.counted, (key, said)
            assert said.reason and UNMADE not in said.reason, (key, said)
            if isinstance(check, ExerciseCheck):
                exec(compile(check.solution, f"<solution of {key}>", "exec"), self.names)
                said = check.submit()
            else:
                said = check.submit(*right)
            assert said.right, (key, right, said)
            assert said.reason and UNMADE not in said.reason, f"{key} says why"
            assert check.done and check.attempts == 2, key
            shown = check.show_answer()
            assert UNMADE not in shown.reason and check.verdict["answer"], (key, shown)

    def still_holds(self) -> None:
        """The right answers are those that they were at each check's cell."""
        for key, before in self.then.items():
            now = self.checks[key].right()
            assert np.array_equal(now, before), (key, before, now)


@contextlib.contextmanager
def lesson_run(name: str, folder: Path) -> Iterator[Run]:
    """Run a lesson in a folder of its own; afterwards its views are closed."""
    run = Run(name, {"__name__": "__main__"})
    began = time.perf_counter()
    with contextlib.chdir(folder):
        for cell in cells(NOTEBOOKS / f"{name}.ipynb"):
            if cell["cell_type"] == "code":
                _execute(cell, run)
    run.seconds = time.perf_counter() - began
    try:
        yield run
    finally:
        for shown in run.shown.values():
            for view in shown:
                if isinstance(view, View):
                    view.close()
        run.names.clear()
        run.shown.clear()
        gc.collect()


def _execute(cell: dict[str, Any], run: Run) -> None:
    where = f"<{run.name}, cell {cell['id']}>"
    shown = run.shown.setdefault(cell["id"], [])
    run.names["display"] = lambda *objects, **_: [_show(o, shown) for o in objects]
    tree = ast.parse(cell["source"], where)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    quiet = cell["source"].rstrip().endswith(";")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(tree, where, "exec"), run.names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), where, "eval"), run.names)
            if value is not None and not quiet:
                _show(value, shown)
    run.printed[cell["id"]] = out.getvalue()
    for view in shown:
        if isinstance(view, Check) and not isinstance(view, ExerciseCheck):
            with contextlib.suppress(Exception):  # it is asked before its cell has run
                run.then[view.key] = view.right()


def _show(value: Any, shown: list[Any]) -> None:
    """What a kernel calls to show an object."""
    shown.append(value)
    for name in ("_repr_mimebundle_", "_repr_html_", "_repr_png_"):
        asked = getattr(type(value), name, None)
        if asked is not None:
            asked(value)
            break
    repr(value)
