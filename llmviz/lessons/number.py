"""A check: guess a number."""

from __future__ import annotations

import math
import re
from typing import Any

from llmviz.lessons.base import Check
from llmviz.lessons.grading import NotAnAnswerError

__all__ = ["NumberCheck", "number_of"]

_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_HEX = re.compile(r"[+-]?0x[0-9a-f]+", re.IGNORECASE)
_FRACTION = re.compile(r"([+-]?[\d.]+)\s*/\s*([\d.]+)")


class NumberCheck(Check):
    """Guess a number.

    Parameters
    ----------
    tolerance : float
        How far off is still right.
    relative : float
        The same as a part of the right answer: 0.1 takes ten percent more or less.
    unit : str
        Shown behind the field; may be typed or left out.
    """

    kind_name = "number"

    def __init__(
        self, *args: Any, tolerance: float = 0.0, relative: float = 0.0, unit: str = "", **kw: Any
    ) -> None:
        self.tolerance, self.relative, self.unit = tolerance, relative, unit
        super().__init__(*args, form={"unit": unit}, **kw)

    def read(self, given: Any) -> int | float:
        """A number, or a text that is one: ``49,152``, ``0x1f``, ``1e6``, ``1/8``, ``25 %``."""
        return number_of(given, self.unit)

    def right(self) -> Any:
        """The right number; a numpy scalar becomes Python's."""
        return number_of(self._answer(), self.unit)

    def agrees(self, given: Any, right: Any) -> bool:
        """Whether it is near enough."""
        if isinstance(given, int) and isinstance(right, int) and not self.relative:
            return abs(given - right) <= self.tolerance
        off = max(self.tolerance, self.relative * abs(right), 1e-9 * abs(right))
        return abs(given - right) <= off

    def nearer(self, given: Any, right: Any) -> str:
        """Too large or too small, and whether by far."""
        way = "large" if given > right else "small"
        far = right and given and (given / right > 10 or 0 <= given / right < 0.1)
        return (
            f"{self.written(given)} is too {way}, by more than ten times."
            if far
            else (f"{self.written(given)} is too {way}.")
        )

    def written(self, value: Any) -> str:
        """With its unit."""
        text = f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
        return f"{text} {self.unit}".strip()

    def plain(self, value: Any) -> str:
        """Without its unit."""
        return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def number_of(given: Any, unit: str = "") -> int | float:
    """Read a number as people write it.

    Raises
    ------
    NotAnAnswerError
        It is none, or not finite.
    """
    if hasattr(given, "item") and getattr(given, "size", 1) == 1:
        given = given.item()  # numpy's
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        if not math.isfinite(given):
            raise NotAnAnswerError("A finite number is asked for.")
        return given
    text = str(given if given is not None else "").strip()
    if not text:
        raise NotAnAnswerError("Type a number first.")
    bare = text.removesuffix(unit).strip() if unit else text
    percent = bare.endswith("%")
    bare = re.sub(r"(?<=\d)[ _\u00a0\u202f](?=\d)", "", bare.rstrip("%").strip())
    bare = bare.replace("\u2212", "-")
    if _THOUSANDS.fullmatch(bare):
        bare = bare.replace(",", "")
    elif bare.count(",") == 1 and "." not in bare:
        bare = bare.replace(",", ".")
    try:
        if _HEX.fullmatch(bare):
            return int(bare, 16)
        fraction = _FRACTION.fullmatch(bare)
        value: int | float
        if fraction:
            value = float(fraction[1]) / float(fraction[2])
        else:
            value = int(bare) if re.fullmatch(r"[+-]?\d{1,300}", bare) else float(bare)
    except (ValueError, ZeroDivisionError) as error:
        raise NotAnAnswerError(
            f"“{text[:40]}” is not a number: write it like 49,152 or 0.25."
        ) from error
    if not math.isfinite(value):
        raise NotAnAnswerError("A finite number is asked for.")
    return value / 100 if percent and unit != "%" else value
