"""Looking at a stretch of a live run without moving it: on its own branch or on another one.

The engine goes there and comes back; whoever follows the debugger is told nothing, and what the
recorder holds stays as it was. Several looks inside `away` come back once, at the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from llmviz.events import Event
from llmviz.trace.branches import Branch
from llmviz.trace.recorder import Recorder
from llmviz.trace.stepping import Job
from llmviz.trace.timeline import DebuggerError

__all__ = ["away", "look"]

See = Callable[[Event, int, Recorder], None]
_KEPT = ("n", "furthest", "ended", "n_tokens", "text")


class _Trip:
    """A debugger that is elsewhere, and all that it needs to be as it was."""

    def __init__(self, dbg: Any) -> None:
        self.here = dbg._standing()
        dbg._refuse_generator()
        if dbg.running:
            raise DebuggerError("the run is under way: pause it first")
        self.dbg = dbg
        self.home: Branch = dbg._branches.current
        self.end = dbg.finished, dbg.error
        names = ("recorder", "log", "times", "_onlooker", "stopped_by", "hit")
        self.state = {name: getattr(dbg, name) for name in names}
        self.seconds = dict(dbg.seconds)
        self.kept: dict[str, Callable[[], None]] = {}
        piece_of = dbg.recorder.piece_of
        dbg.recorder = Recorder(budget=0, piece_of=piece_of, only_layer=True, layer=-1)
        dbg.log, dbg.times, dbg._onlooker = _Nothing(), dbg.times.copy(), None
        self.keep(self.home)

    def keep(self, branch: Branch) -> None:
        """Remember a branch's own account of itself."""
        if branch.name not in self.kept:
            self.kept[branch.name] = _keep(branch)

    def common(self, target: Branch) -> int:
        """The last event that another branch has in common with the one that the engine is on."""
        branches = self.dbg._branches
        return max(0, branches.common(branches.current, target))

    def there(
        self, target: Branch, first: int, last: int, see: See, wants: Callable[[str], bool]
    ) -> Job:
        dbg, common = self.dbg, self.common(target)

        def test(event: Event) -> bool:
            see(event, dbg.here.n, dbg.recorder)
            return False

        dbg._branches.current = target
        dbg._restore(min(first, common), common)
        return (yield from dbg._search(first, last + 1, test, wants))

    def back(self) -> Job:
        dbg, common = self.dbg, min(self.common(self.home), self.here.n)
        dbg._branches.current = self.home
        dbg._restore(common, common)
        return (yield from dbg._return_to(self.here.n, *self.end))

    def over(self) -> None:
        """Come back, and let everything be as it was."""
        try:
            self.dbg._now(self.back())
        finally:
            for name, value in self.state.items():
                setattr(self.dbg, name, value)
            self.dbg.seconds = self.seconds
            for restore in self.kept.values():
                restore()


_TRIPS: WeakKeyDictionary[Any, _Trip] = WeakKeyDictionary()


@contextmanager
def away(*debuggers: Any) -> Iterator[None]:
    """Let debuggers come back from `look` only once, at the end of the block.

    Inside it they are elsewhere: nothing else may be asked of them.
    """
    with ExitStack() as stack:
        for dbg in debuggers:
            if dbg not in _TRIPS:
                trip = _TRIPS[dbg] = _Trip(dbg)
                stack.callback(trip.over)
                stack.callback(_TRIPS.pop, dbg)
        yield


def look(
    dbg: Any, branch: str, first: int, last: int, see: See, wants: Callable[[str], bool]
) -> None:
    """Show the events `first` to `last` of a branch to ``see(event, n, recorder)``.

    Parameters
    ----------
    dbg : Debugger
        Must be able to go back, and stand.
    branch : str
    first, last : int
        Of the current branch at most the number of the current event; of another one up to its
        furthest.
    see : callable
        The recorder holds tokens and logits as they were known at that event.
    wants : callable
        ``wants(name)``: which nodes are shown. An event's value is valid only during the call.

    Raises
    ------
    DebuggerError
        Nothing has run yet, or it is busy, or a bare generator cannot go back.
    """
    target = dbg._branches[branch]
    with away(dbg):
        trip = _TRIPS[dbg]
        trip.keep(target)
        dbg._now(trip.there(target, first, last, see, wants))


def _keep(branch: Branch) -> Callable[[], None]:
    """What brings a branch's own account of itself back."""
    values = {name: getattr(branch, name) for name in _KEPT}
    events = deque(branch.events, maxlen=branch.events.maxlen)
    acted = [(edit, edit.applied_at, edit.note) for edit in branch.edits]

    def restore() -> None:
        branch.events = events
        for name, value in values.items():
            setattr(branch, name, value)
        for edit, at, note in acted:
            edit.applied_at, edit.note = at, note

    return restore


class _Nothing:
    """A log that notes nothing."""

    def see(self, here: Any, recorder: Any) -> None:
        pass

    def forget(self, last: int) -> None:
        pass

    def measured(self, recorder: Any) -> None:
        pass
