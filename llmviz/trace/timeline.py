"""The light side of a trace: what is remembered of every event, whatever its size.

A `Record` holds an event's number, name and shape and never its value. `Here` is the one event the
run stands at, with its live value. `OpenScope` is one line of the scope stack, `Way` where a long
replay leads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmviz.errors import LlmvizError
from llmviz.events import Event

__all__ = ["DebuggerError", "Here", "OpenScope", "Record", "Way", "record_of", "shape_text"]


class DebuggerError(LlmvizError):
    """A debugger was asked for something that its state does not allow."""


@dataclass(frozen=True, slots=True)
class Record:
    """What stays of an event after the run moved on.

    Attributes
    ----------
    n : int
        Event number, counted from 0. Nodes that nobody watched are counted too, so a number means
        the same event whether the run was stepped or ran freely.
    kind, name, depth, step
        As in `llmviz.events.Event`.
    shape : tuple of int, or None
        numpy order, for array values.
    dtype : str or None
        For array values.
    """

    n: int
    kind: str
    name: str
    depth: int
    step: int
    shape: tuple[int, ...] | None = None
    dtype: str | None = None


@dataclass(frozen=True, slots=True)
class OpenScope:
    """A scope that was entered and not yet left."""

    name: str
    depth: int
    step: int
    n: int


@dataclass(slots=True)
class Way:
    """Where a replay or a search leads, and how far it has come.

    Attributes
    ----------
    what : str
        Goes on from "on the way": ``"to event 5,021"``.
    first, last : int
        Event numbers between which it works; `last` lies before `first` for a search backwards.
    at : int
        The event it has come to.
    """

    what: str
    first: int
    last: int
    at: int

    @property
    def fraction(self) -> float:
        """How much of it is done, 0 to 1."""
        length = self.last - self.first
        return max(0.0, min(1.0, (self.at - self.first) / length)) if length else 1.0


class Here:
    """The event at which the run stands: the event's fields, and its number `n`.

    `value` is the engine's own object, valid until the run moves on. It cannot be assigned: a
    change goes through `Debugger.edit`, which checks and logs it.
    """

    __slots__ = ("_event", "n")

    def __init__(self, n: int, event: Event) -> None:
        self.n = n
        self._event = event

    @property
    def event(self) -> Event:
        """The engine's event itself."""
        return self._event

    @property
    def kind(self) -> str:
        return self._event.kind

    @property
    def name(self) -> str:
        return self._event.name

    @property
    def depth(self) -> int:
        return self._event.depth

    @property
    def step(self) -> int:
        return self._event.step

    @property
    def value(self) -> Any:
        return self._event.value

    @property
    def about(self) -> Any:
        return self._event.about

    @property
    def shape(self) -> tuple[int, ...] | None:
        return _shape(self._event.value)

    @property
    def dtype(self) -> str | None:
        return _dtype(self._event.value)

    def __repr__(self) -> str:
        text = f"#{self.n} {self.kind} {self.name}"
        if self.shape is not None:
            text += f" {shape_text(self.shape)} {self.dtype}"
        return text + f" (step {self.step}, depth {self.depth})"


def _shape(value: Any) -> tuple[int, ...] | None:
    shape = getattr(value, "shape", None)
    return tuple(int(n) for n in shape) if isinstance(shape, tuple) else None


def _dtype(value: Any) -> str | None:
    return str(value.dtype) if _shape(value) is not None and hasattr(value, "dtype") else None


def record_of(n: int, event: Event) -> Record:
    """The light record of an event."""
    value = event.value
    return Record(n, event.kind, event.name, event.depth, event.step, _shape(value), _dtype(value))


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape as people write it: ``[9, 5, 256]``, and ``scalar`` for none."""
    return f"[{', '.join(str(n) for n in shape)}]" if shape else "scalar"
