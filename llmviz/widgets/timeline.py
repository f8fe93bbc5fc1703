"""The timeline: the whole run as a line, and the pass that runs now as a second one."""

from __future__ import annotations

from typing import Any

import traitlets as t

from llmviz.widgets.drive import DrivingView
from llmviz.widgets.journey import Journey

__all__ = ["TimelineView"]

MARKS = 400  # of each kind: more cannot be told apart on a screen


class TimelineView(DrivingView):
    """When am I?

    Traits
    ------
    timeline : dict
        furthest (largest event number this branch has reached), ended; tokens (lists of event
        number, position, text, probability or None), n_tokens; ubatches, hits (event numbers),
        edits (number, text), forks (number, name); first, last, layers, steps of the current pass.
    """

    view_name = "timeline"

    timeline = t.Dict().tag(sync=True)

    def draw(self) -> None:
        """Bring the line in line with the run."""
        super().draw()
        dbg = self.dbg
        track, branch = Journey.of(dbg).track, dbg.branch
        now = track.pass_at(dbg.n)
        chosen = [k for k in track.tokens if not k.given]
        prompt = [k for k in track.tokens if k.given][-1:]
        tokens = [[k.n, k.pos, k.text[:20], k.p_raw] for k in thin([*prompt, *chosen])]
        self.timeline = {
            "furthest": max(branch.furthest, dbg.n, 0),
            "ended": branch.ended,
            "can_back": dbg.can_restart,
            "n_prompt": len(track.tokens) - len(chosen),
            "tokens": tokens,
            "n_tokens": len(chosen),
            "ubatches": thin([n for p in track.passes for n in p.ubatches]),
            "hits": thin(track.hits),
            "edits": thin([[e.n, e.description[:80]] for e in dbg.edits if e.n >= 0]),
            "forks": [
                [b.fork_n, b.name]
                for b in thin(dbg.branches)
                if b.fork_n >= 0 and b.parent == branch.name
            ],
            "first": now.first if now else -1,
            "last": now.last if now else -1,
            "layers": [list(x) for x in now.layers] if now else [],
            "steps": [[s, n] for s, n in now.steps.items()] if now else [],
            "pass_": track.passes.index(now) if now else -1,
            "passes": len(track.passes),
            "n_layer": getattr(getattr(dbg.model, "hparams", None), "n_layer", 0),
        }


def thin(marks: list[Any]) -> list[Any]:
    """At most about `MARKS` of them, evenly, the last one always among them."""
    if len(marks) <= MARKS:
        return marks
    every = -(-len(marks) // MARKS)
    return marks[(len(marks) - 1) % every :: every]
