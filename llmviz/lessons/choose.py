"""A check: choose one of several, or all that are right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llmviz.errors import LlmvizError
from llmviz.lessons.base import Check
from llmviz.lessons.grading import NotAnAnswerError

__all__ = ["ChooseCheck", "distinct"]


def distinct(texts: Sequence[str], what: str) -> list[str]:
    """The texts as a list, at least two and no two the same.

    Raises
    ------
    LlmvizError
    """
    out = [str(x) for x in texts]
    if len(out) < 2 or len(set(out)) < len(out):
        raise LlmvizError(f"{what} are at least two, and no two the same: {out!r:.200}")
    return out


class ChooseCheck(Check):
    """Choose.

    Parameters
    ----------
    options : sequence of str
    several : bool
        All right ones are to be chosen, and no other; else one is, and the answer may name
        several that are each right.
    """

    kind_name = "choose"

    def __init__(
        self, *args: Any, options: Sequence[str], several: bool = False, **kw: Any
    ) -> None:
        self.options, self.several = distinct(options, "options"), several
        super().__init__(*args, form={"options": self.options, "several": several}, **kw)

    def read(self, given: Any) -> list[str]:
        """The chosen options in their own order."""
        chosen = [given] if isinstance(given, (str, int)) else list(given or ())
        names = [self._option(c) for c in chosen]
        if not names:
            raise NotAnAnswerError("Choose first.")
        if not self.several and len(names) > 1:
            raise NotAnAnswerError("Choose one.")
        return [o for o in self.options if o in names]

    def _option(self, one: Any) -> str:
        if isinstance(one, int) and not isinstance(one, bool) and 0 <= one < len(self.options):
            return self.options[one]
        if one in self.options:
            return str(one)
        raise NotAnAnswerError(f"{one!r:.60} is none of the options: {', '.join(self.options)}.")

    def right(self) -> list[str]:
        """The right options; an answer that is none of them is a fault of the lesson."""
        answer = self._answer()
        answer = [answer] if isinstance(answer, (str, int)) else list(answer)
        names = [self._option(a) for a in answer]
        return [o for o in self.options if o in names]

    def agrees(self, given: Any, right: Any) -> bool:
        """All of them, or one of those that are right."""
        return given == right if self.several else given[0] in right

    def nearer(self, given: Any, right: Any) -> str:
        """How many of the chosen are right."""
        if not self.several:
            return f"Not “{given[0]}”."
        good, missing = len(set(given) & set(right)), len(set(right) - set(given))
        wrong = len(given) - good
        parts = (
            [f"{good} of your {len(given)} belong there"]
            if wrong
            else ["All that you chose belong there"]
        )
        if missing:
            parts.append(f"{missing} more {'does' if missing == 1 else 'do'} as well")
        return "; ".join(parts) + "."

    def written(self, value: Any) -> str:
        """Joined by commas."""
        return ", ".join(value)

    def told(self, value: Any) -> Any:
        """One option as itself, several as a list."""
        return value if self.several or value is None or len(value) > 1 else value[0]

    def choices(self) -> list[str]:
        """The options."""
        return self.options
