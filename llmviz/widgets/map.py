"""The map: the sixteen steps, the one that runs now, time spent in each, the open scopes."""

from __future__ import annotations

import traitlets as t

from llmviz.steps import STEPS
from llmviz.widgets.follow import DebuggerView

__all__ = ["MapView"]


class MapView(DebuggerView):
    """Where am I?

    Traits
    ------
    steps : list of {number, title, explanation, functions}
    step : int
        The step that runs now, 0 before the first event.
    shown_step : int
        The step whose explanation is open; 0 follows `step`.
    seconds : dict of str to float
        Measured time spent in each step so far.
    scopes : list of {name, depth, step, n}
    """

    view_name = "map"

    steps: t.List = t.List().tag(sync=True)
    step = t.Int(0).tag(sync=True)
    shown_step = t.Int(0).tag(sync=True)
    seconds = t.Dict().tag(sync=True)
    scopes: t.List = t.List().tag(sync=True)

    def draw(self) -> None:
        """Bring the map in line with the run."""
        super().draw()
        if not self.steps:
            self.steps = [
                {
                    "number": s.number,
                    "title": s.title,
                    "explanation": s.explanation,
                    "functions": list(s.functions),
                }
                for s in STEPS
            ]
        dbg = self.dbg
        self.step = dbg.here.step if dbg.here is not None else 0
        self.seconds = {str(step): seconds for step, seconds in dbg.seconds.items()}
        self.scopes = [
            {"name": s.name, "depth": s.depth, "step": s.step, "n": s.n} for s in dbg.scope_stack
        ]
