"""Breakpoints: where a free run stops.

A breakpoint is made from a name or glob (``"kq_soft_max-3"``, ``"l_out-*"``), from a step's number
(1..16: stops where that step begins), or from a Python callable that gets the event.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from llmviz.events import Event

__all__ = ["Breakpoint", "Where", "matches_name"]

Where = str | int | Callable[[Event], object]


def matches_name(pattern: str, name: str) -> bool:
    """Whether an event's name is the pattern, or fits it as a shell glob."""
    return name == pattern or fnmatchcase(name, pattern)


@dataclass(slots=True)
class Breakpoint:
    """One place or condition to stop at.

    Attributes
    ----------
    id : int
        Counted from 1; what `Debugger.clear_break` takes.
    where : str, int or callable
        Name or glob; step number; or ``predicate(event) -> bool``.
    enabled : bool
        A disabled breakpoint neither stops nor counts.
    hits : int
        How often the run stopped here.
    """

    id: int
    where: Where
    enabled: bool = True
    hits: int = 0

    def wants(self, name: str) -> bool:
        """Whether a node of this name must be yielded for this breakpoint to see it."""
        if not self.enabled or isinstance(self.where, int):
            return False
        return matches_name(self.where, name) if isinstance(self.where, str) else True

    def meets(self, event: Event, previous_step: int) -> bool:
        """Whether to stop at this event; `previous_step` is the step of the event before it."""
        if not self.enabled:
            return False
        if isinstance(self.where, str):
            # A scope is one place, not two: its end does not stop again.
            return event.kind != "exit" and matches_name(self.where, event.name)
        if isinstance(self.where, int):
            return event.step == self.where and previous_step != self.where
        return bool(self.where(event))

    @property
    def label(self) -> str:
        """How a list of breakpoints shows it."""
        if isinstance(self.where, str):
            return self.where
        if isinstance(self.where, int):
            return f"step {self.where}"
        return getattr(self.where, "__name__", type(self.where).__name__)
