"""The transport: buttons that step the run, in both directions."""

from __future__ import annotations

from typing import Any

import traitlets as t

from llmviz.trace.shown import short
from llmviz.trace.timeline import shape_text
from llmviz.widgets.drive import DrivingView
from llmviz.widgets.follow import answers

__all__ = ["TransportView"]


class TransportView(DrivingView):
    """Buttons of a run; a part of the panel. Each has a method of the debugger's own name.

    Traits
    ------
    status, status_text : str
        ready, running, paused, end or error; and why.
    can_forward, can_back, can_prev, can_restart : bool
        What the buttons may do now.
    """

    view_name = "transport"

    status = t.Unicode("ready").tag(sync=True)
    status_text = t.Unicode("").tag(sync=True)
    can_forward = t.Bool(True).tag(sync=True)
    can_back = t.Bool(False).tag(sync=True)
    can_prev = t.Bool(False).tag(sync=True)
    can_restart = t.Bool(True).tag(sync=True)

    def draw(self) -> None:
        """Where the run stands, in a word and in a line."""
        super().draw()
        dbg = self.dbg
        self.can_restart = dbg.can_restart
        self.can_forward = not dbg.finished
        self.can_back = dbg.can_go_back and dbg.n > 0
        self.can_prev = self.can_back and any(k.n < dbg.n for k in dbg.tokens)
        if dbg.running:
            self.status, self.status_text = "running", _going(self.way)
        elif dbg.error is not None and dbg.finished:
            self.status, self.status_text = "error", "stopped by an error"
        elif dbg.finished:
            self.status, self.status_text = "end", _ending(dbg)
        elif dbg.here is None:
            self.status, self.status_text = "ready", "ready: nothing has run yet"
        else:
            self.status = "paused"
            hit = dbg.hit if dbg.stopped_by == "breakpoint" else None
            why = f"breakpoint {hit.id}" if hit is not None and hit in dbg.breakpoints else ""
            on_the_way = f" on the way {self.way['what']}" if self.way else ""
            self.status_text = f"paused{' at ' + why if why else on_the_way}"

    def step_into(self) -> None:
        """As `Debugger.step_into`."""
        self.dbg.step_into()

    def step_over(self) -> None:
        """As `Debugger.step_over`."""
        self.dbg.step_over()

    def step_out(self) -> None:
        """As `Debugger.step_out`."""
        self.dbg.step_out()

    def step_back(self) -> None:
        """As `Debugger.step_back`."""
        self.dbg.step_back()

    def next_token(self) -> None:
        """As `Debugger.next_token`."""
        self.dbg.next_token()

    def prev_token(self) -> None:
        """As `Debugger.prev_token`."""
        self.dbg.prev_token()

    def goto(self, n: int) -> None:
        """As `Debugger.goto`."""
        self.dbg.goto(n)

    def run(self) -> None:
        """As `Debugger.run`."""
        self.dbg.run()

    def restart(self) -> None:
        """As `Debugger.restart`."""
        self.dbg.restart()

    @answers("restart")
    def _restart(self, message: dict[str, Any]) -> None:
        self.refuse_busy()
        self.restart()


def _going(way: dict[str, Any]) -> str:
    return f"going {way['what']}" if way else "running"


def _ending(dbg: Any) -> str:
    stop = dbg.recorder.stop
    return f"finished: {stop}" if stop else "finished"


def heading(dbg: Any) -> str:
    """The current event in one line, for people who hear the panel instead of seeing it."""
    here = dbg.here
    if here is None:
        return "not started"
    shape = f", {shape_text(here.shape)} {here.dtype}" if here.shape is not None else ""
    return f"event {here.n}, step {here.step}, {here.kind} {short(here.name)}{shape}"
