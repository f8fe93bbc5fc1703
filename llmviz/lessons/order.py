"""A check: put in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llmviz.lessons.base import Check
from llmviz.lessons.choose import distinct
from llmviz.lessons.grading import NotAnAnswerError

__all__ = ["OrderCheck"]


class OrderCheck(Check):
    """Put in order.

    Parameters
    ----------
    items : sequence of str
        As the reader meets them: shuffled.
    """

    kind_name = "order"

    def __init__(self, *args: Any, items: Sequence[str], **kw: Any) -> None:
        self.items = distinct(items, "items")
        super().__init__(*args, form={"items": self.items}, **kw)
        self.given = self.items

    def read(self, given: Any) -> list[str]:
        """All items once."""
        out = [str(x) for x in given or ()] if not isinstance(given, str) else [given]
        if sorted(out) != sorted(self.items):
            raise NotAnAnswerError(f"All {len(self.items)} of them once: {', '.join(self.items)}.")
        return out

    def right(self) -> list[str]:
        """All items, rightly; another answer is a fault of the lesson."""
        return self.read(list(self._answer()))

    def nearer(self, given: Any, right: Any) -> str:
        """How many stand where they belong."""
        fits = [a == b for a, b in zip(given, right)]
        first = fits.index(False)
        if not first:
            return f"{sum(fits)} of {len(right)} are in their place; the first one is not."
        begins = "The first is" if first == 1 else f"The first {first} are"
        return f"{begins} in place, of {len(right)}."

    def written(self, value: Any) -> str:
        """One after the other."""
        return " → ".join(value)

    def choices(self) -> list[str]:
        """The items."""
        return self.items
