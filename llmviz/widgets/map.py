"""The map: the sixteen steps, the one that runs now, time spent in each, the open scopes."""

from __future__ import annotations

from typing import Any

import traitlets as t

from llmviz.steps import STEPS
from llmviz.trace import DebuggerError
from llmviz.trace.fidelity import fidelity
from llmviz.trace.glossary import marked
from llmviz.trace.shown import short
from llmviz.widgets.drive import SLICE, DrivingView
from llmviz.widgets.follow import answers
from llmviz.widgets.journey import Journey

__all__ = ["MapView"]


class MapView(DrivingView):
    """Where am I?

    Traits
    ------
    steps : list of {number, title, explanation, functions}
        The explanation in parts (text, meaning): of a word of the glossary its meaning, else empty.
    step : int
        The step that runs now, 0 before the first event.
    shown_step : int
        The step whose explanation is open; 0 follows `step`.
    seconds : dict of str to float
        Measured time spent in each step so far.
    scopes : list of {name, depth, step, n}
    step_starts : dict of str to int
        First event of each step that is known, of this pass where it comes with every pass.
    fidelity : {text, title}
        How closely models like this one were measured to agree with llama.cpp (``make parity``);
        empty where none was.
    """

    view_name = "map"

    _tidy: Any = None  # a breakpoint of ours, to be taken away once it has stopped the run

    steps: t.List = t.List().tag(sync=True)
    step = t.Int(0).tag(sync=True)
    shown_step = t.Int(0).tag(sync=True)
    seconds = t.Dict().tag(sync=True)
    scopes: t.List = t.List().tag(sync=True)
    step_starts = t.Dict().tag(sync=True)
    fidelity = t.Dict().tag(sync=True)

    def draw(self) -> None:
        """Bring the map in line with the run."""
        super().draw()
        if self._tidy is not None and not self.dbg.running:
            mine, self._tidy = self._tidy, None
            if mine in self.dbg.breakpoints:
                self.dbg.clear_break(mine)
        if not self.steps:
            self.steps = [
                {
                    "number": s.number,
                    "title": s.title,
                    "explanation": marked(s.explanation),
                    "functions": list(s.functions),
                }
                for s in STEPS
            ]
        dbg = self.dbg
        if not self.fidelity:
            self.fidelity = _fidelity(getattr(dbg, "model", None))
        self.step = dbg.here.step if dbg.here is not None else 0
        self.seconds = {str(step): seconds for step, seconds in dbg.seconds.items()}
        self.scopes = [
            {"name": short(s.name), "depth": s.depth, "step": s.step, "n": s.n}
            for s in dbg.scope_stack
        ]
        track = Journey.of(dbg).track
        now = track.pass_at(dbg.n)
        starts = {**track.steps, **(now.steps if now else {})}
        self.step_starts = {str(step): n for step, n in sorted(starts.items())}

    def goto_step(self, step: int) -> None:
        """Go to where a step begins: in this pass where it has been there, else forward to it.

        Raises
        ------
        DebuggerError
            It is over, and did not run in this debugger.
        """
        if self._start_step(step):
            self.dbg.advance()

    def _start_step(self, step: int) -> bool:
        """Begin to go there; a bounded piece of work."""
        dbg = self.dbg
        n = self.step_starts.get(str(step))
        if n is not None:
            dbg.start("goto", n)
            return True
        if not 1 <= step <= 16:
            raise DebuggerError(f"there is no step {step}: steps are 1..16")
        first = min((int(s) for s in self.step_starts), default=0)
        if step <= 9 and (step < first or (dbg.here is not None and dbg.here.step > step)):
            raise DebuggerError(
                f"step {step} did not run in this debugger: it was given what that step makes"
            )
        point = dbg.break_on(step, once=True)
        try:
            dbg.start("run")
        except DebuggerError:
            dbg.clear_break(point)
            raise
        self._tidy = point
        return True

    @answers("goto-step")
    def _goto_step(self, message: dict[str, Any]) -> None:
        self.refuse_busy()
        self._goal = ""
        if self._start_step(int(message["step"])):
            self.dbg.advance(SLICE)


def _fidelity(model: Any) -> dict[str, str]:
    """The badge: one short line, and the rest for who points at it."""
    found = fidelity(model) if getattr(model, "gguf", None) is not None else None
    if found is None:
        return {}
    graph = "llama.cpp's graph" if found.same_graph else "most of llama.cpp's graph"
    title = f"Random {model.arch} models, float32: nodes within {found.worst:.0e} of llama.cpp's"
    if found.rounding is not None:
        how = "as blocks" if model.keeps_blocks else "decoded"
        title += f"; logits within {found.rounding:.0e} with this file's types kept {how}"
    return {
        "text": f"{model.arch} on test models: {graph}, nodes within {found.worst:.0e}",
        "title": f"{title}. Measured by make parity: {found.measured}",
    }
