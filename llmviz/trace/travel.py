"""Going back, and anywhere: time is the number of the event.

To reach an earlier event the engine is brought back to the nearest point before it (see `history`)
and replayed without anybody looking on: only nodes that the recorder or an edit asks for are shown,
edits act again at their events. The result is the run as it was there, bit for bit.

A replay is a piece of work like any other: it may be paused between two events. The run then stands
at the event that it had come to, which is an event of the same branch like any other; `way` says
where it was going, and what lies ahead is reached by going there again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from llmviz.events import Event
from llmviz.trace.breakpoints import Breakpoint, looks_like_condition, matches_name
from llmviz.trace.stepping import Stepping
from llmviz.trace.timeline import DebuggerError, Here, Way
from llmviz.trace.working import Job

__all__ = ["Travel"]

Test = Callable[[Event], object]
Wants = Callable[[str], bool]


class Travel(Stepping):
    """Going to other events of the same branch; see the module's docstring."""

    # -- the public verbs --------------------------------------------------------------------------

    def step_back(self) -> Here | None:
        """Go to the event before, also where it is a node that nobody watched."""
        self._work(self._travel(self._event_before()))
        return self.here

    def back_over(self) -> Here | None:
        """Go back as `step_over` came: from a scope's end to its begin, else one event."""
        self._work(self._travel(self._place_back_over()))
        return self.here

    def back_out(self) -> Here | None:
        """Go to the begin of the scope that the run is in."""
        self._work(self._travel(self._place_back_out()))
        return self.here

    def prev_token(self) -> Here | None:
        """Go to where the token before the last was accepted; from the first, to the prompt's."""
        self._work(self._travel(self._place_prev_token()))
        return self.here

    def goto(self, n: int) -> Here | None:
        """Go to event `n`, back or forward; breakpoints do not stop it.

        An `n` behind the end of the run goes to its end.
        """
        self._work(self._travel(self._checked_number(n)))
        return self.here

    def reverse_to(self, condition: Any) -> Here | None:
        """Go to the last earlier event where a condition holds.

        Parameters
        ----------
        condition : str, Expression or callable
            Name or glob of an event; an expression such as ``"entropy > 3"``; or
            ``predicate(event) -> bool``. A callable is shown every node, which takes longer.

        Raises
        ------
        DebuggerError
            It holds nowhere before; the run stands where it was.
        """
        self._work(self._reverse(*self._as_test(condition)))
        return self.here

    def run_back(self) -> Here | None:
        """Go back to the last event at which a breakpoint would have stopped the run."""
        self._work(self._reverse(*self._breakpoints_test()))
        return self.here

    def peek(self, name: str, n: int | None = None) -> np.ndarray:
        """The latest value of a node or input at or before event `n`, by a silent replay.

        The run stands where it stood. What the recorder or the current event holds is not
        computed again.

        Parameters
        ----------
        name : str
        n : int, optional
            The current event by default; at most its number.

        Returns
        -------
        ndarray
            A read-only copy.

        Raises
        ------
        DebuggerError
            There is no such value.
        """
        here = self._standing()
        last = here.n if n is None else min(self._checked_number(n), here.n)
        if here.name == name and here.n <= last and isinstance(here.value, np.ndarray):
            return _copy(here.value)
        kept = self.recorder.value(name)
        if kept is not None and last == here.n and kept.pass_ == self.recorder.passes - 1:
            return kept.array
        self._refuse_generator()
        nodes = self._known.nodes
        if nodes and name not in nodes and name not in self._known.names:
            raise DebuggerError(f"there is no node {name!r} in this graph")
        found: list[np.ndarray] = []
        self._now(self._look_back(name, last, found))
        if not found:
            raise DebuggerError(f"no {name!r} was computed up to event {last}")
        return found[0]

    # -- where to ----------------------------------------------------------------------------------

    def _standing(self) -> Here:
        self._refuse_closed()
        if self.here is None:
            raise DebuggerError("nothing has run yet: there is no event to go back from")
        return self.here

    def _refuse_generator(self) -> None:
        if not self._source.can_go_back:
            raise DebuggerError(
                "a generator of events runs once and only forward: give the Debugger a path, a "
                "model or a context to go back in time"
            )

    def _checked_number(self, n: Any) -> int:
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0:
            raise DebuggerError(f"an event has a number from 0 up, not {n!r}")
        return int(n)

    def _event_before(self) -> int:
        here = self._standing()
        if here.n == 0:
            raise DebuggerError("this is the first event: there is none before it")
        return here.n - 1

    def _place_back_over(self) -> int:
        here = self._standing()
        if here.kind == "exit" and self._stack:
            return self._stack[-1].n
        # An event that is no scope's end never follows one that lies deeper.
        return self._event_before()

    def _place_back_out(self) -> int:
        here = self._standing()
        # The scope that here begins or ends is still on the stack: out of it is the one around.
        around = [s for s in self._stack if s.depth < here.depth]
        if not around:
            raise DebuggerError("no scope is open around this event")
        return around[-1].n

    def _place_prev_token(self) -> int:
        here = self._standing()
        before = [t.n for t in self.recorder.tokens if t.n < here.n]
        if not before:
            raise DebuggerError("there is no token before this event")
        return before[-1]

    # -- replay ------------------------------------------------------------------------------------

    @contextmanager
    def _quietly(self, target: int = -1, wants: Wants | None = None) -> Iterator[None]:
        before = self._quiet, self._target, self._filter
        self._quiet, self._target, self._filter = True, target, wants
        try:
            yield
        finally:
            self._quiet, self._target, self._filter = before

    def _leave(self) -> None:
        """Note how far the branch has come before the run goes elsewhere."""
        branch = self._branches.current
        if self.here is not None and self.here.n >= branch.furthest:
            branch.n_tokens, branch.text = len(self.recorder.tokens), self.text

    @property
    def text(self) -> str:
        """The text generated so far."""
        return "".join(t.text for t in self.recorder.tokens if not t.given) + self.recorder.rest

    def _restore(self, n: int, last: int) -> int:
        """Bring everything back to the nearest point before event n; the number it begins with.

        Parameters
        ----------
        n : int
        last : int
            Records of events up to this number stay as they are: a replay will pass the same.
        """
        self._refuse_generator()
        self._events.close()
        events = self._branches.current.events
        logits = (r.n for r in reversed(events) if r.name == "logits" and r.n <= n)
        point = self._source.history.before(n, next(logits, -1))
        clock, mark = point.clock, point.mark
        assert clock is not None and mark is not None
        self._n, self._stack, self._previous_step = clock.n, list(clock.stack), clock.step
        self.seconds = dict(clock.seconds)
        self.times.rewind(clock.times)
        self.recorder.rewind(mark, last)
        self.here = None
        self.error = self.result = None
        self.finished = False
        self._engine_value = self._selected = None
        while events and events[-1].n > last:
            events.pop()
        for edit in self._branches.current.edits:
            edit.forget(last)
        self._events = self._source.back_to(point)
        return clock.n

    def _recover(self) -> None:
        if not self._source.can_go_back:
            return
        if self.here is None:
            self._events.close()
            self._source.history.points.clear()
            self._n = 0
            self._events = self._source.events()
            return
        n = self.here.n
        self._restore(n, n)
        for _ in self._replay(n):
            pass

    def _come_to_rest(self) -> None:
        """Forget of the events behind the current one what a replay had kept to come past again."""
        if self.here is None:
            return
        last, branch = self.here.n, self._branches.current
        while branch.events and branch.events[-1].n > last:
            branch.events.pop()
        for edit in branch.edits:
            edit.forget(last)
        self.recorder.truncate(last)

    def _replay(self, target: int, what: str = "") -> Job:
        """Forward to an event that lies ahead; `what` says where that is."""
        if what:
            self.way = Way(what, self._n, target, self._n)
        way = self.way if what else None
        with self._quietly(target):
            while self.here is None or self.here.n < target:
                if not self._take():
                    return "error" if self.error is not None else "end"
                if way is not None and self.here is not None:
                    way.at = self.here.n
                yield
        return "goal"

    def _travel(self, target: int, what: str = "") -> Job:
        """To any event of this branch."""
        if self.here is not None and self.here.n == target:
            return "goal"
        if self.here is None or self.here.n < target:
            if self.finished and self.error is None:
                return "end"
            self._refuse_end()
        else:
            self._refuse_generator()
            self._leave()
            self._restore(target, target)
        return (yield from self._replay(target, what or f"to event {target:,}"))

    def _return_to(self, n: int, finished: bool, error: Exception | None, what: str = "") -> Job:
        """Back to where the run stood before it looked elsewhere, from an earlier point."""
        why = yield from self._replay(n, what)
        if finished and error is None:
            self._take()  # the end itself: there is no event behind it
        elif finished:
            self.error, self.finished = error, True
        return why

    def _search(self, start: int, end: int, test: Test, wants: Wants | None) -> Job:
        """Look at the events from `start` up to `end`, not included; ``goal`` with `_hit` set."""
        self._hit = -1
        with self._quietly(end - 1, wants):
            while self.here is None or self.here.n < end - 1:
                if not self._take():
                    break
                assert self.here is not None
                if start <= self.here.n < end and test(self.here.event):
                    self._hit = self.here.n
                yield
        return "goal" if self._hit >= 0 else "end"

    def _reverse(self, test: Test, wants: Wants, what: str, keeps: Wants | None = None) -> Job:
        """Back to the last earlier event where `test` holds."""
        here, finished, error = self._standing(), self.finished, self.error
        self._refuse_generator()
        self._leave()
        end = here.n
        way = self.way = Way(f"back to where {what}", end, 0, end)
        problem = None
        asker = object()  # whoever asks a condition needs the values that it reads
        if keeps is not None:
            self.recorder.ask(asker, keeps)
        try:
            while end > 0:
                start = self._restore(end - 1, here.n)
                way.at = end
                yield from self._search(start, end, test, wants)
                if self._hit >= 0:
                    hit = self._hit
                    self._restore(hit, hit)
                    return (yield from self._replay(hit, f"to event {hit:,}"))
                end = start
        except Exception as raised:
            problem = raised
        finally:
            self.recorder.release(asker)
        self._restore(here.n, here.n)
        yield from self._return_to(here.n, finished, error, f"to event {here.n:,}, where it stood")
        if problem is not None:
            raise DebuggerError(f"{what} raised {type(problem).__name__}: {problem}") from problem
        raise DebuggerError(f"no event before {here.n} where {what}")

    def _look_back(self, name: str, last: int, found: list[np.ndarray]) -> Job:
        """Find the latest value of a name up to event `last`, and come back."""
        here, finished, error = self._standing(), self.finished, self.error
        end = last + 1

        def catch(event: Event) -> bool:
            ours = event.name == name and isinstance(event.value, np.ndarray)
            if ours:
                found[:] = [_copy(event.value)]
            return ours

        while end > 0 and not found:
            start = self._restore(end - 1, here.n)
            yield from self._search(start, end, catch, lambda other: other == name)
            end = start
        return (yield from self._return_to(here.n, finished, error))

    # -- conditions --------------------------------------------------------------------------------

    def _as_test(self, condition: Any) -> tuple[Test, Wants, str, Wants | None]:
        """A condition as what `_reverse` takes.

        The test, the nodes it needs, its name, the nodes whose latest values it reads.
        """
        from llmviz.trace.expressions import compile_expression

        if isinstance(condition, str) and not looks_like_condition(condition):
            name = condition.strip()
            if not name:
                raise DebuggerError("reverse_to needs a name, an expression or a callable")
            # As for a breakpoint a scope is one place, where it begins.
            return (
                lambda event: event.kind != "exit" and matches_name(name, event.name),
                lambda other: matches_name(name, other),
                f"an event is called {name}",
                None,
            )
        if isinstance(condition, str):
            condition = compile_expression(condition)
        if hasattr(condition, "holds"):
            point = Breakpoint(0, None, condition=condition)
            return (
                lambda event: point.meets(event, self._previous_step, self.values),
                condition.wants,
                f"{condition.text} holds",
                condition.keeps,
            )
        if not callable(condition):
            raise DebuggerError(
                f"reverse_to takes a name or glob, an expression or a callable, not {condition!r}"
            )
        return condition, lambda other: True, f"{getattr(condition, '__name__', 'it')} holds", None

    def _breakpoints_test(self) -> tuple[Test, Wants, str]:
        points = [b for b in self.breakpoints if b.enabled]
        if not points:
            raise DebuggerError("there is no breakpoint to go back to")
        return (
            lambda e: any(b.meets(e, self._previous_step, self.values) for b in points),
            lambda name: any(b.wants(name) for b in points),
            "a breakpoint would stop",
        )


def _copy(value: np.ndarray) -> np.ndarray:
    out = np.array(value)
    out.flags.writeable = False
    return out
