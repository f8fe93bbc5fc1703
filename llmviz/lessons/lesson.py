"""One lesson: its questions by key, and where their answers are kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from llmviz.errors import LlmvizError
from llmviz.lessons.progress import Progress, at

if TYPE_CHECKING:
    from llmviz.lessons.base import Check, Say
    from llmviz.lessons.choose import ChooseCheck
    from llmviz.lessons.exercise import ExerciseCheck
    from llmviz.lessons.mark import MarkCheck
    from llmviz.lessons.number import NumberCheck
    from llmviz.lessons.order import OrderCheck
    from llmviz.lessons.token import TokenCheck

__all__ = ["Lesson", "begin"]


def begin(
    name: str, folder: str | os.PathLike[str] | None = None, *, projector: bool = False
) -> Lesson:
    """Begin a lesson, or go on with it: what was answered before is known.

    Parameters
    ----------
    name : str
        The notebook's, without its ending: ``"12-tokens"``.
    folder : path, optional
        Where the progress is kept; the notebook's own.
    projector : bool
        Every question at 1.5 times the size.
    """
    return Lesson(name, at(folder), projector=projector)


class Lesson:
    """A lesson.

    Attributes
    ----------
    name : str
    progress : Progress
    checks : dict of str to Check
        The questions asked so far, by key.
    """

    def __init__(self, name: str, progress: Progress, *, projector: bool = False) -> None:
        self.name, self.progress, self.projector = name, progress, projector
        self.checks: dict[str, Check] = {}

    def _ask(self, kind: str, key: str, question: str, **kw: Any) -> Any:
        import importlib

        try:
            module = importlib.import_module(f"llmviz.lessons.{kind}")
        except ImportError as error:
            raise LlmvizError(
                f"questions need anywidget and ipywidgets ({error}): "
                "install them with  pip install 'llmviz-debugger[lab]'"
            ) from error
        made = getattr(module, f"{kind.capitalize()}Check")(
            self, key, question, projector=kw.pop("projector", self.projector), **kw
        )
        self.checks[key] = made
        return made

    def number(
        self,
        key: str,
        question: str,
        *,
        answer: Callable[[], Any],
        tolerance: float = 0.0,
        relative: float = 0.0,
        unit: str = "",
        because: Say = "",
        hint: Say = "",
        **traits: Any,
    ) -> NumberCheck:
        """Guess a number; right within `tolerance`, or within `relative` times the answer."""
        more = {"tolerance": tolerance, "relative": relative, "unit": unit}
        return self._ask(
            "number", key, question, answer=answer, because=because, hint=hint, **more, **traits
        )

    def choose(
        self,
        key: str,
        question: str,
        *,
        options: Sequence[str],
        answer: Callable[[], Any],
        several: bool = False,
        because: Say = "",
        hint: Say = "",
        **traits: Any,
    ) -> ChooseCheck:
        """Choose one option, or with `several` all that are right.

        The answer is an option (its text or its index) or a list of them.
        """
        more = {"options": options, "several": several}
        return self._ask(
            "choose", key, question, answer=answer, because=because, hint=hint, **more, **traits
        )

    def order(
        self,
        key: str,
        question: str,
        *,
        items: Sequence[str],
        answer: Callable[[], Sequence[str]],
        because: Say = "",
        hint: Say = "",
        **traits: Any,
    ) -> OrderCheck:
        """Put the items, given shuffled, in order."""
        return self._ask(
            "order",
            key,
            question,
            items=items,
            answer=answer,
            because=because,
            hint=hint,
            **traits,
        )

    def mark(
        self,
        key: str,
        question: str,
        *,
        answer: Callable[[], Any],
        shape: tuple[int, int] | None = None,
        labels: tuple[Sequence[str], Sequence[str]] | None = None,
        values: Sequence[Sequence[Any]] | None = None,
        axes: tuple[str, str] = ("row", "column"),
        because: Say = "",
        hint: Say = "",
        **traits: Any,
    ) -> MarkCheck:
        """Mark cells of a grid; the answer is a boolean array ``[rows, columns]``."""
        more = {"shape": shape, "labels": labels, "values": values, "axes": axes}
        return self._ask(
            "mark", key, question, answer=answer, because=because, hint=hint, **more, **traits
        )

    def token(
        self,
        key: str,
        question: str,
        *,
        vocab: Any,
        answer: Callable[[], Any],
        because: Say = "",
        hint: Say = "",
        **traits: Any,
    ) -> TokenCheck:
        """Pick a token of a text that the reader types; the answer is an id, or several ids."""
        return self._ask(
            "token",
            key,
            question,
            vocab=vocab,
            answer=answer,
            because=because,
            hint=hint,
            **traits,
        )

    def exercise(
        self,
        key: str,
        task: str,
        *,
        solution: str,
        check: Callable[[Any], bool | tuple[bool, str]],
        name: str = "answer",
        because: Say = "",
        hint: Say = "",
        **traits: Any,
    ) -> ExerciseCheck:
        """A task for the cell below, which sets `name`; `check` looks at what it set."""
        more = {"solution": solution, "check": check, "name": name}
        return self._ask("exercise", key, task, because=because, hint=hint, **more, **traits)

    def start_over(self) -> None:
        """Forget the tries of this lesson, also those of earlier days; run its cells again."""
        self.progress.forget(self.name)

    def __repr__(self) -> str:
        known = self.progress.lessons().get(self.name, {})
        done = sum(e["right_at"] is not None for e in known.values())
        where = self.progress.problem or f"kept in {self.progress.path.name}"
        return f"Lesson {self.name}: {done} of {len(known)} answered; {where}"

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>"
