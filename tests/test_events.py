"""Events: draining, scopes, and what is a scope and what is not."""

from __future__ import annotations

import pytest

from llmviz.events import Event, Steps, drain, leaves, scope


def two(depth: int) -> Steps[str]:
    yield Event("data", "a", depth, 3, 1)
    yield Event("node", "b", depth, 3, 2)
    return "done"


def test_draining_returns_what_the_generator_returns() -> None:
    assert drain(two(0)) == "done"


def test_draining_passes_errors_on() -> None:
    def failing() -> Steps[None]:
        yield Event("data", "a", 0, 1)
        raise KeyError("no")

    with pytest.raises(KeyError, match="no"):
        drain(failing())


def test_a_scope_encloses_and_carries_the_result() -> None:
    events = []
    steps = scope("outer", 3, 1, two(2), value="in")
    result = None
    while True:
        try:
            events.append(next(steps))
        except StopIteration as stop:
            result = stop.value
            break
    assert [(e.kind, e.name, e.depth, e.step, e.value) for e in events] == [
        ("enter", "outer", 1, 3, "in"),
        ("data", "a", 2, 3, 1),
        ("node", "b", 2, 3, 2),
        ("exit", "outer", 1, 3, "done"),
    ]
    assert result == "done"


def test_a_scope_that_fails_has_no_exit() -> None:
    def failing(depth: int) -> Steps[None]:
        yield Event("data", "a", depth, 1)
        raise ValueError("broken")

    seen = []
    with pytest.raises(ValueError, match="broken"):
        for event in scope("s", 1, 0, failing(1)):
            seen.append(event.kind)
    assert seen == ["enter", "data"]


def test_closing_a_scope_closes_what_is_inside() -> None:
    closed = []

    def inner(depth: int) -> Steps[None]:
        try:
            yield Event("data", "a", depth, 1)
            yield Event("data", "b", depth, 1)
        finally:
            closed.append(True)

    steps = scope("s", 1, 0, inner(1))
    next(steps), next(steps)
    steps.close()
    assert closed == [True]


def test_leaves_are_the_events_without_scopes() -> None:
    assert [e.name for e in leaves(scope("s", 3, 0, two(1)))] == ["a", "b"]


def test_a_misspelled_attribute_is_an_error() -> None:
    """Assigning to `value` changes the run; a typo must not pass silently."""
    event = Event("data", "a", 0, 1)
    event.value = 5
    with pytest.raises(AttributeError):
        event.valeu = 5  # type: ignore[attr-defined]
