"""Events: what a stage of the engine shows while it runs.

The engine's long-running functions are generators that yield `Event`; the convenience functions
`drain` them. A pause is a generator that nobody advances. This module imports nothing.

Does not do: threads, callbacks, recording. Those who listen live in `llmviz.trace`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

__all__ = ["Event", "Steps", "drain", "scope"]

T = TypeVar("T")


@dataclass(slots=True)
class Event:
    """One thing that happened.

    Attributes
    ----------
    kind : str
        ``"enter"`` or ``"exit"`` (a scope), ``"node"`` (a computed tensor), ``"data"`` (all else).
    name : str
        llama.cpp's name: ``"process_ubatch"``, ``"kq_soft_max-3"``, ``"top_k"``.
    depth : int
        Nesting. Into = next event; over = next with ``depth <= d``; out = next with ``depth < d``.
        The events inside a scope entered at depth d have depth d + 1; its exit has depth d.
    step : int
        1..16, see `llmviz.steps`.
    value : object
        A tensor's array, the batch, the cells, the candidates: a read-only view that is valid
        until the
        generator moves on (copy to keep). Assigning a new object to it changes the run.
    about : object
        What describes the value where the value alone does not: for a node its `ggml.graph.Tensor`
        (name, op, shape, sources), for a header field its `gguf.Field`.
    """

    kind: str
    name: str
    depth: int
    step: int
    value: Any = None
    about: Any = None


Steps = Generator[Event, None, T]


def drain(events: Steps[T]) -> T:
    """Run a generator of events to its end and return what it returns."""
    try:
        while True:
            next(events)
    except StopIteration as stop:
        return stop.value


def scope(name: str, step: int, depth: int, inner: Steps[T], value: Any = None) -> Steps[T]:
    """Wrap a generator in an enter and an exit event.

    `inner` must yield its events at ``depth + 1``; its return value becomes the exit event's value
    and this generator's return value.
    """
    yield Event("enter", name, depth, step, value)
    result = yield from inner
    yield Event("exit", name, depth, step, result)
    return result


def _is_scope(event: Event) -> bool:
    return event.kind in ("enter", "exit")


def leaves(events: Iterator[Event]) -> Iterator[Event]:
    """Only the events that carry something computed (no scope marks)."""
    return (e for e in events if not _is_scope(e))
