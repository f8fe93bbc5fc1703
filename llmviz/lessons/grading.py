"""What comes of an answer. Knows nothing of widgets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Graded", "NotAnAnswerError", "bare"]


@dataclass(frozen=True, slots=True)
class Graded:
    """How an answer was graded.

    Attributes
    ----------
    right : bool
    reason : str
        Why, in a sentence or two, with numbers from the live state.
    answer : object
        The right answer as it was when this one was submitted; None where it could not be told.
    counted : bool
        Whether it was a try: what cannot be read, or cannot be graded yet, is none.
    """

    right: bool
    reason: str
    answer: Any = None
    counted: bool = True


class NotAnAnswerError(ValueError):
    """What was given cannot be read as an answer; the message says how it should look."""


def bare(text: str) -> str:
    """A question without its marks for code and bold, for places that do not draw them."""
    return text.replace("**", "").replace("`", "")
