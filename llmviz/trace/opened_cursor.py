"""Going over the events of a trace: every step moves a cursor, nothing is computed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import numpy as np

from llmviz.trace.breakpoints import looks_like_condition, matches_name
from llmviz.trace.debugger import ACTIONS
from llmviz.trace.opened_parts import HeldHere, HeldRecorder, held_value
from llmviz.trace.records import TokenRecord
from llmviz.trace.storage_log import KINDS
from llmviz.trace.storage_read import Stored
from llmviz.trace.storage_zip import TraceError
from llmviz.trace.timeline import OpenScope

__all__ = ["Cursor"]

_ENTER, _EXIT = KINDS.index("enter"), KINDS.index("exit")


class Cursor:
    """A place among the recorded events, and what was known there.

    Attributes
    ----------
    recorder : HeldRecorder
    here : HeldHere or None
    """

    def __init__(self, stored: Stored) -> None:
        self._stored = stored
        try:
            self.recorder = HeldRecorder(stored)
        except BaseException:
            stored.zip.close()
            raise
        self.here: HeldHere | None = None
        self._i = -1
        self._stack: tuple[OpenScope, ...] | None = None  # once it was asked for
        self._listeners: list[Callable[[], None]] = []
        self._closed = False

    @property
    def n(self) -> int:
        """Number of the event at the cursor, -1 for an empty trace."""
        return self.here.n if self.here is not None else -1

    @property
    def tokens(self) -> list[TokenRecord]:
        """Tokens of the prompt and those chosen up to the cursor."""
        return self.recorder.tokens

    def _at_end(self) -> bool:
        return self._i == len(self._stored.events) - 1

    @property
    def scope_stack(self) -> tuple[OpenScope, ...]:
        """Scopes that are open at the cursor, the outermost first."""
        if self.here is None:
            return ()
        if self._stack is None:
            self._stack = self._scopes()
        return self._stack

    def _scopes(self) -> tuple[OpenScope, ...]:
        assert self.here is not None
        t = self._stored.events
        deepest = self.here.depth + (self.here.kind in ("enter", "exit"))
        upto = slice(0, self._i + 1)
        enters = np.flatnonzero(t.kind[upto] == _ENTER)
        out = []
        for depth in range(deepest):
            hits = enters[t.depth[enters] == depth]
            if hits.size:
                r = t[int(hits[-1])]
                out.append(OpenScope(r.name, r.depth, r.step, r.n))
        return tuple(out)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise TraceError("this trace is closed: open it again")

    def _move(self, i: int) -> HeldHere | None:
        self._i, self._stack = i, None
        table = self._stored.events
        if i < 0:
            self.here = None
            return None
        record = table[i]
        self.recorder.stand_at(record.n, self._at_end())
        value, about = held_value(self._stored, self.recorder, i)
        self.here = HeldHere(record, value, about)
        return self.here

    def _go(self, i: int) -> HeldHere | None:
        self._refuse_closed()
        self._move(i)
        for listener in tuple(self._listeners):
            listener()
        return self.here

    def goto(self, n: int) -> HeldHere | None:
        """Put the cursor on event n, or on the last recorded one before it."""
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0:
            raise TraceError(f"an event has a number from 0 up, not {n!r}")
        return self._go(self._index_of(int(n)))

    def _index_of(self, n: int) -> int:
        i = bisect_right(self._stored.events.n, n) - 1
        if i < 0:
            raise TraceError(f"no event up to {n} was recorded: the first is {self._first()}")
        return i

    def _first(self) -> int:
        n = self._stored.events.n
        return int(n[0]) if len(n) else -1

    def step_into(self) -> HeldHere | None:
        """Go to the next recorded event."""
        return self._do("into")

    def step_over(self) -> HeldHere | None:
        """Go to the next recorded event that is not inside the current one."""
        return self._do("over")

    def step_out(self) -> HeldHere | None:
        """Go to the end of the open scope; outside of all scopes, to the next step."""
        return self._do("out")

    def next_token(self) -> HeldHere | None:
        """Go to where the next token was accepted."""
        return self._do("next-token")

    def run(self, *, max_seconds: float | None = None) -> HeldHere | None:
        """Go to the last recorded event."""
        return self._do("run")

    run_to_end = run

    def step_back(self) -> HeldHere | None:
        """Go to the recorded event before."""
        return self._do("back")

    def back_over(self) -> HeldHere | None:
        """From a scope's end to its begin, else one event back."""
        return self._do("back-over")

    def back_out(self) -> HeldHere | None:
        """Go to the begin of the scope that the cursor is in."""
        return self._do("back-out")

    def prev_token(self) -> HeldHere | None:
        """Go to where the token before the last was accepted."""
        return self._do("prev-token")

    def reverse_to(self, name: str) -> HeldHere | None:
        """Go to the last earlier event of a name or glob.

        Raises
        ------
        TraceError
            There is none; or it is a condition, which needs a run.
        """
        return self._do("reverse-to", name)

    def restart(self) -> HeldHere | None:
        """Go to the first recorded event."""
        return self._go(0 if len(self._stored.events) else -1)

    def _do(self, action: str, argument: Any = None) -> HeldHere | None:
        return self._go(self._goal(action, argument))

    def start(self, action: str, argument: Any = None, *more: Any) -> None:
        """As `Debugger.start`; the cursor moves at once."""
        self._do(action, argument)

    def advance(self, max_seconds: float | None = None) -> bool:
        """As `Debugger.advance`: a trace always stands."""
        return True

    def pause(self) -> None:
        """A trace always stands."""

    stop_here = pause

    def _goal(self, action: str, argument: Any) -> int:
        """Index of the event that an action leads to."""
        if action not in ACTIONS:
            raise TraceError(f"no such action: {action!r}; there are {', '.join(ACTIONS)}")
        if action in ("undo-edit", "edit-logit", "choose-token", "take-token"):
            getattr(self, action.replace("-", "_"))()  # says why not
        if action == "switch":
            raise TraceError("a trace holds one branch: the others were not saved")
        if action == "run-back":
            raise TraceError("there is no breakpoint in a trace to go back to")
        if self.here is None:
            raise TraceError("this trace has no events")
        if action == "goto":
            if isinstance(argument, bool) or not isinstance(argument, (int, np.integer)):
                raise TraceError(f"an event has a number from 0 up, not {argument!r}")
            return self._index_of(int(argument))
        if action == "reverse-to":
            return self._index_before(argument)
        if action in ("back", "back-over", "back-out", "prev-token"):
            return self._goal_back(action)
        if self._at_end():
            raise TraceError("this is the last event that was recorded")
        return self._goal_forward(action)

    def _goal_forward(self, action: str) -> int:
        assert self.here is not None
        t, i, last = self._stored.events, self._i, len(self._stored.events) - 1
        depth, step = self.here.depth, self.here.step
        rest = slice(i + 1, None)
        if action == "into":
            return i + 1
        if action == "over":
            hits = np.flatnonzero(t.depth[rest] <= depth)
        elif action == "out" and depth == 0:
            hits = np.flatnonzero(t.step[rest] != step)
        elif action == "out":
            hits = np.flatnonzero(t.depth[rest] < depth)
        elif action == "next-token":
            n = next((k.n for k in self._stored.tokens if k.n > self.here.n and not k.given), None)
            return last if n is None else self._index_of(n)
        else:  # run, to-end
            return last
        return i + 1 + int(hits[0]) if hits.size else last

    def _goal_back(self, action: str) -> int:
        assert self.here is not None
        here, stack = self.here, self.scope_stack
        if action == "back-over" and here.kind == "exit" and stack:
            return self._index_of(stack[-1].n)
        if action == "back-out":
            around = [s for s in stack if s.depth < here.depth]
            if not around:
                raise TraceError("no scope is open around this event")
            return self._index_of(around[-1].n)
        if action == "prev-token":
            before = [k.n for k in self.tokens if k.n < here.n]
            if not before:
                raise TraceError("there is no token before this event")
            return self._index_of(before[-1])
        if self._i == 0:
            raise TraceError("this is the first event that was recorded")
        return self._i - 1

    def _index_before(self, name: Any) -> int:
        if not isinstance(name, str) or not name.strip() or looks_like_condition(name):
            raise TraceError(
                "in a trace one can go back to a name or glob, such as kq_soft_max-*; a condition "
                "needs a run (llmviz.Debugger)"
            )
        t = self._stored.events
        fits = np.array([matches_name(name.strip(), x) for x in t.names], bool)
        hits = np.flatnonzero(fits[t.name[: self._i]] & (t.kind[: self._i] != _EXIT))
        if not hits.size:
            raise TraceError(f"no event before {self.n} is called {name.strip()[:80]}")
        return int(hits[-1])
