"""A check: write a few lines of code, and have what they give looked at."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

from llmviz.lessons.base import Check
from llmviz.lessons.grading import Graded, NotAnAnswerError

__all__ = ["ExerciseCheck"]

_MISSING = object()


class ExerciseCheck(Check):
    """Write code.

    Parameters
    ----------
    solution : str
        Python source that sets `name`; shown on request, never run here.
    check : callable
        Of the reader's value: a bool, or a bool and a sentence. It is read from the notebook's
        own names, those that this function sees.
    name : str
        The name that the reader's cell sets. While it is ``...`` there is no answer yet.
    """

    kind_name = "exercise"

    def __init__(
        self,
        *args: Any,
        solution: str,
        check: Callable[[Any], bool | tuple[bool, str]],
        name: str = "answer",
        **kw: Any,
    ) -> None:
        self.solution = textwrap.dedent(solution).strip()
        self.name, self._judge = name, check
        self._judgement: tuple[bool, str] = (False, "")
        super().__init__(
            *args, answer=lambda: None, form={"solution": self.solution, "name": name}, **kw
        )

    def submit(self, given: Any = _MISSING) -> Graded:
        """Grade a value, or, without one, what the reader's cell has set."""
        return super().submit(self._found() if given is _MISSING or given is None else given)

    def _found(self) -> Any:
        return getattr(self._judge, "__globals__", {}).get(self.name, _MISSING)

    def read(self, given: Any) -> Any:
        """What the reader's cell has set."""
        if given is _MISSING:
            raise NotAnAnswerError(f"There is no `{self.name}` yet: run your cell first.")
        if given is ...:
            raise NotAnAnswerError(
                f"`{self.name}` is still `...`: put your own code in its place, run the cell, "
                "and press again."
            )
        return given

    def agrees(self, given: Any, right: Any) -> bool:
        """What the lesson's own function says; what it raises is told as a reason."""
        try:
            said = self._judge(given)
            right_, reason = said if isinstance(said, tuple) else (said, "")
            self._judgement = bool(right_), str(reason)
        except Exception as error:  # a value of any type meets the lesson's code
            what = f"{type(error).__name__}: {str(error)[:200]}"
            self._judgement = False, f"`{self.name}` cannot be used like this: {what}"
        return self._judgement[0]

    def nearer(self, given: Any, right: Any) -> str:
        """The lesson's own reason."""
        return self._judgement[1] or f"`{self.name}` is not it yet."

    def _sentence(self, say: Any, given: Any, right: Any) -> str:
        told = self._judgement[1] if say is self._because and self._judgement[0] else ""
        return told or super()._sentence(say, given, right)

    def _tell(self, earlier: bool = False) -> None:
        super()._tell(earlier)
        self.can_show = True  # somebody who does not know how to begin has nothing to try

    def written(self, value: Any) -> str:
        """The solution."""
        return self.solution

    def plain(self, value: Any) -> None:
        """The page has no field for it."""
        return None
