"""Looking at events that went by: one silent replay from an earlier event to where the run stands.

`Debugger.peek` finds one value; this shows a visitor every event on the way, so that one replay
answers for all layers. The run stands afterwards where it stood.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llmviz.events import Event
from llmviz.trace.working import Job

__all__ = ["can_look_back", "first_unfinished", "look_back", "pass_starts"]


def can_look_back(dbg: Any) -> bool:
    """Whether earlier events can be computed again: not those of a trace or a bare generator."""
    return dbg.ctx is not None and hasattr(dbg, "peek") and dbg.can_restart


def pass_starts(dbg: Any) -> list[int]:
    """Numbers of the events at which the ubatches began, as far as `events` reaches back."""
    return [r.n for r in dbg.events if r.kind == "enter" and r.name == "process_ubatch"]


def first_unfinished(dbg: Any) -> int | None:
    """The first layer that the pass under way has not finished; None where it has finished all.

    None, too, where no pass is under way.
    """
    scope = next((s for s in dbg.scope_stack if s.name == "process_ubatch"), None)
    if scope is None:
        return None
    for record in reversed(dbg.events):
        if record.n <= scope.n:
            break
        if record.name == "graph_compute" and record.kind == "exit":
            return None
        if record.name.startswith("layer-"):
            return int(record.name[6:]) + (record.kind == "exit")
    return 0


def look_back(
    dbg: Any, first: int, wants: Callable[[str], bool], see: Callable[[Event, int], None]
) -> None:
    """Show `see` the events from number `first` up to the current one, in order.

    Parameters
    ----------
    dbg : Debugger
    first : int
        The nearest point before it that can be restored is where the replay begins.
    wants : callable
        Of the nodes, which are shown (by name); scopes and data always are.
    see : callable
        Gets the event and its number. Its value is valid for the moment of the call: copy to keep.

    Raises
    ------
    DebuggerError
        The run cannot go back, has not begun, or is busy.
    """
    here, finished, error = dbg._standing(), dbg.finished, dbg.error
    dbg._refuse_generator()

    def visit(event: Event) -> bool:
        see(event, dbg.here.n)
        return False

    def job() -> Job:
        problem = None
        dbg._restore(first, here.n)
        try:
            yield from dbg._search(first, here.n + 1, visit, wants)
        except Exception as raised:  # the visitor's: the run comes back first
            problem = raised
            dbg._restore(here.n, here.n)
        why: str = yield from dbg._return_to(here.n, finished, error)
        if problem is not None:
            raise problem
        return why

    dbg._now(job())
