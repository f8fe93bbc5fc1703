"""Moving a run from a page: one click is one bounded piece of work.

A long way (over, next token, run, going back, another branch, an edit taken back) advances in
slices; the page asks for the next slice when it has drawn the last, so that it is never flooded, a
Pause arrives between two slices, and a run ends with the page that watches it.
"""

from __future__ import annotations

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

    def set_out(self, action: str, *arguments: Any) -> None:
        """Begin an action of `Debugger.start`, and do its first slice."""
        self._goal = action
        self.dbg.start(action, *arguments)
        self._slice()

    @answers("tick")
    def _tick(self, message: dict[str, Any]) -> None:
        if self.dbg.running:
            self._slice()

    def _slice(self) -> None:
        self.dbg.advance(SLICE if self._goal in ENDLESS else GOAL_SLICE)

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
