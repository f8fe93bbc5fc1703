"""Moving a run from a page: one click is one bounded piece of work.

A long way (over, next token, run, going back, another branch, an edit taken back) advances in
slices; the page asks for the next slice when it has drawn the last, so that it is never flooded, a
Pause arrives between two slices, and a run ends with the page that watches it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import traitlets as t

from llmviz.trace import DebuggerError
from llmviz.trace.debugger import ACTIONS
from llmviz.widgets.follow import DebuggerView, answers

__all__ = ["DrivingView"]

# Seconds of work between two looks at the messages. A click with a goal mostly reaches it in its
# first slice, so with one message; a run has no end that is near: a Pause must get through.
SLICE, GOAL_SLICE = 0.1, 0.15
ENDLESS = ("run", "to-end", "run-back", "reverse-to")


class DrivingView(DebuggerView):
    """Base of the views whose clicks move the run.

    Traits
    ------
    way : dict
        what (where a replay or a search leads), fraction (how much of it is done, 0 to 1); empty
        where the run goes nowhere in particular. It stays where the way was paused.
    """

    way = t.Dict().tag(sync=True)

    _goal = ""
    _then: tuple[Any, Callable[[], None]] | None = None  # a piece of work, and what comes after it

    def draw(self) -> None:
        """Say where a long way leads."""
        super().draw()
        way = self.dbg.way
        self.way = {} if way is None else {"what": way.what, "fraction": round(way.fraction, 3)}

    @answers("go")
    def _go(self, message: dict[str, Any]) -> None:
        action, to = str(message.get("action")), message.get("to")
        again = action == "goto" and self._goal == "goto"  # a drag: the newest place counts
        if self.dbg.running and not again:
            raise DebuggerError(
                "the run is under way, so this click changed nothing: wait for it to stand, or "
                "press Pause first"
            )
        if action not in ACTIONS:
            raise DebuggerError(f"no such action: {action!r}")
        self.set_out(action, *(() if to is None else (to,)))

    def set_out(self, action: str, *arguments: Any, then: Callable[[], None] | None = None) -> None:
        """Begin an action of `Debugger.start`, and do its first slice.

        Parameters
        ----------
        action, *arguments
            As for `Debugger.start`.
        then : callable, optional
            Called once the goal is reached; it may set out again. Not where the way ends before: at
            a pause, at an error, or because something else was begun.
        """
        self._goal, self._then = action, None
        self.dbg.start(action, *arguments)
        if then is not None:
            self._then = (getattr(self.dbg, "_job", None), then)
        self._slice()

    def go_through(self) -> None:
        """Go on with what was set out for until the run stands: for methods, which are waited for.

        Raises
        ------
        LlmvizError
            What the run stopped with.
        """
        while self.dbg.running:
            self._slice()
        if self.dbg.error is not None and self.dbg.stopped_by == "error":
            raise self.dbg.error

    @property
    def goes_on(self) -> bool:
        """Whether the run stands only for a moment: what follows the way has not been done yet."""
        return self._then is not None and self.dbg.stopped_by == "goal" and not self.dbg.running

    @answers("tick")
    def _tick(self, message: dict[str, Any]) -> None:
        if self.dbg.running:
            self._slice()

    def _slice(self) -> None:
        job, waits = getattr(self.dbg, "_job", None), self._then
        if waits is not None and waits[0] is not job:
            self._then = waits = None  # something else was begun elsewhere
        self.dbg.advance(SLICE if self._goal in ENDLESS else GOAL_SLICE)
        if waits is None or self._then is not waits or self.dbg.running:
            return
        self._then = None
        if self.dbg.stopped_by == "goal":
            waits[1]()

    @answers("pause")
    def _pause(self, message: dict[str, Any]) -> None:
        self.pause()

    def pause(self) -> None:
        """As `Debugger.pause`; also ends a run that stands between two slices."""
        self.dbg.pause()
        self.dbg.stop_here()

    def refuse_busy(self) -> None:
        """Say so where a run is under way and a click would have to interrupt it.

        Raises
        ------
        DebuggerError
        """
        if self.dbg.running:
            raise DebuggerError(
                "the run is under way, so this changed nothing: press Pause first, then try again"
            )
