"""The transport: buttons that step the run, and the breakpoints.

Each click is a bounded piece of work. A long one (over, out, next token, run) advances in slices;
the page asks for the next slice when it has drawn the last, so that it is never flooded, a Pause
arrives between two slices, and a run ends with the page that watches it.
"""

from __future__ import annotations

from typing import Any

import traitlets as t

from llmviz.trace.timeline import shape_text
from llmviz.widgets.follow import DebuggerView, answers

__all__ = ["TransportView"]

SLICE = 0.03  # seconds of work between two looks at the messages
_MAX_NAME = 200


class TransportView(DebuggerView):
    """Buttons and breakpoints of a run; a part of the panel."""

    view_name = "transport"

    status = t.Unicode("ready", help="ready, running, paused, end or error").tag(sync=True)
    status_text = t.Unicode("").tag(sync=True)
    can_restart = t.Bool(True).tag(sync=True)
    breakpoints: t.List = t.List(help="id, label, enabled, hits of each.").tag(sync=True)

    def draw(self) -> None:
        """Where the run stands, in a word and in a line."""
        super().draw()
        dbg = self.dbg
        self.can_restart = dbg.can_restart
        self.breakpoints = [
            {"id": b.id, "label": b.label[:_MAX_NAME], "enabled": b.enabled, "hits": b.hits}
            for b in dbg.breakpoints
        ]
        if dbg.running:
            self.status, self.status_text = "running", "running"
        elif dbg.error is not None and dbg.finished:
            self.status, self.status_text = "error", "stopped by an error"
        elif dbg.finished:
            self.status, self.status_text = "end", _ending(dbg)
        elif dbg.here is None:
            self.status, self.status_text = "ready", "ready: nothing has run yet"
        else:
            self.status = "paused"
            why = f"breakpoint {dbg.hit.id}" if dbg.stopped_by == "breakpoint" and dbg.hit else ""
            self.status_text = f"paused{' at ' + why if why else ''}"

    # The same names as the debugger's own methods, so that every button has its Python form.

    def step_into(self) -> None:
        """As `Debugger.step_into`."""
        self.dbg.step_into()

    def step_over(self) -> None:
        """As `Debugger.step_over`."""
        self.dbg.step_over()

    def step_out(self) -> None:
        """As `Debugger.step_out`."""
        self.dbg.step_out()

    def next_token(self) -> None:
        """As `Debugger.next_token`."""
        self.dbg.next_token()

    def run(self) -> None:
        """As `Debugger.run`."""
        self.dbg.run()

    def pause(self) -> None:
        """As `Debugger.pause`; also ends a run that stands between two slices."""
        self.dbg.pause()
        self.dbg.stop_here()

    def restart(self) -> None:
        """As `Debugger.restart`."""
        self.dbg.restart()

    @answers("go")
    def _go(self, message: dict[str, Any]) -> None:
        self.dbg.start(str(message.get("action")))
        self.dbg.advance(SLICE)

    @answers("tick")
    def _tick(self, message: dict[str, Any]) -> None:
        if self.dbg.running:
            self.dbg.advance(SLICE)

    @answers("pause")
    def _pause(self, message: dict[str, Any]) -> None:
        self.pause()

    @answers("restart")
    def _restart(self, message: dict[str, Any]) -> None:
        self.restart()

    @answers("break")
    def _break(self, message: dict[str, Any]) -> None:
        where = str(message.get("where", ""))[:_MAX_NAME].strip()
        number = where.removeprefix("step ").strip()
        self.dbg.break_on(int(number) if number.isdecimal() else where)

    @answers("unbreak")
    def _unbreak(self, message: dict[str, Any]) -> None:
        self.dbg.clear_break(int(message["which"]))

    @answers("toggle-break")
    def _toggle(self, message: dict[str, Any]) -> None:
        for point in self.dbg.breakpoints:
            if point.id == message.get("which"):
                point.enabled = not point.enabled
        self.refresh()


def _ending(dbg: Any) -> str:
    stop = dbg.recorder.stop
    return f"finished: {stop}" if stop else "finished"


def heading(dbg: Any) -> str:
    """The current event in one line, for people who hear the panel instead of seeing it."""
    here = dbg.here
    if here is None:
        return "not started"
    shape = f", {shape_text(here.shape)} {here.dtype}" if here.shape is not None else ""
    return f"event {here.n}, step {here.step}, {here.kind} {here.name}{shape}"
