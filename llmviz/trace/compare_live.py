"""Looking at a stretch of a live run without moving it: on its own branch or on another one.

The engine goes there and comes back; whoever follows the debugger is told nothing, and what the
recorder holds stays as it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from llmviz.events import Event
from llmviz.trace.branches import Branch
from llmviz.trace.recorder import Recorder
from llmviz.trace.timeline import DebuggerError
from llmviz.trace.working import Job

__all__ = ["look"]

See = Callable[[Event, int, Recorder], None]
_KEPT = ("n", "furthest", "ended", "n_tokens", "text")


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
    dbg._standing()
    dbg._refuse_generator()
    if dbg.running:
        raise DebuggerError("the run is under way: pause it first")
    target = dbg._branches[branch]
    home = dbg._branches.current
    kept = [_keep(b) for b in {id(home): home, id(target): target}.values()]
    recorder, log, times = dbg.recorder, dbg.log, dbg.times
    state = dbg.stopped_by, dbg.hit, dict(dbg.seconds)
    dbg.recorder = Recorder(budget=0, piece_of=recorder.piece_of, only_layer=True, layer=-1)
    dbg.log = _Nothing()
    dbg.times = times.copy()
    onlooker, dbg._onlooker = dbg._onlooker, None
    try:
        dbg._now(_there_and_back(dbg, home, target, first, last, see, wants))
    finally:
        dbg.recorder, dbg.log, dbg.times = recorder, log, times
        dbg._onlooker = onlooker
        dbg.stopped_by, dbg.hit, dbg.seconds = state
        for restore in kept:
            restore()


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


def _there_and_back(
    dbg: Any,
    home: Branch,
    target: Branch,
    first: int,
    last: int,
    see: See,
    wants: Callable[[str], bool],
) -> Job:
    here, finished, error = dbg.here, dbg.finished, dbg.error
    common = here.n if target is home else min(dbg._branches.common(home, target), here.n)

    def test(event: Event) -> bool:
        see(event, dbg.here.n, dbg.recorder)
        return False

    try:
        dbg._branches.current = target
        dbg._restore(max(0, min(first, common)), max(0, common))
        yield from dbg._search(first, last + 1, test, wants)
    finally:
        # Also after an error in `see`: the engine must come back to where the run stands.
        dbg._branches.current = home
        dbg._restore(max(0, min(here.n, common)), max(0, common))
        for _ in dbg._return_to(here.n, finished, error):
            pass
    return "goal"
