"""What a run has come past so far: passes, layers, steps and tokens by event number.

The debugger's own records end at the current event, and the recorder goes back with it. A view that
offers the way forward again needs to know what lies ahead: `Journey` remembers it for each branch
until the branch itself is changed. Only reads the debugger; each look costs what is new.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

from llmviz.trace import TokenRecord, Trace

__all__ = ["Journey", "Pass", "Track"]


@dataclass
class Pass:
    """One decode, from its batch to the token that was accepted.

    Attributes
    ----------
    first, last : int
        Numbers of its first event and of the last one known.
    steps : dict of int to int
        First event of each step in it.
    layers : list of (int, int)
        Layer and event number of its begin, in order.
    ubatches : list of int
        Where each ``process_ubatch`` begins.
    """

    first: int
    last: int
    steps: dict[int, int] = field(default_factory=dict)
    layers: list[tuple[int, int]] = field(default_factory=list)
    ubatches: list[int] = field(default_factory=list)


@dataclass
class Track:
    """What is known of one branch.

    Attributes
    ----------
    seen : int
        Number of the last event that was looked at.
    steps : dict of int to int
        First event of the steps that come once in a run (1..9).
    passes : list of Pass
    tokens : list of TokenRecord
        Those ahead of the current event included.
    hits : list of int
        Events at which a breakpoint stopped the run.
    """

    seen: int = -1
    steps: dict[int, int] = field(default_factory=dict)
    passes: list[Pass] = field(default_factory=list)
    tokens: list[TokenRecord] = field(default_factory=list)
    hits: list[int] = field(default_factory=list)

    def cut(self, last: int) -> None:
        """Forget everything after event `last`: the branch has not been there any more."""
        self.seen = min(self.seen, last)
        self.steps = {s: n for s, n in self.steps.items() if n <= last}
        self.passes = [p for p in self.passes if p.first <= last]
        if self.passes:
            p = self.passes[-1]
            p.last = min(p.last, last)
            p.steps = {s: n for s, n in p.steps.items() if n <= last}
            p.layers = [(il, n) for il, n in p.layers if n <= last]
            p.ubatches = [n for n in p.ubatches if n <= last]
        self.tokens = [k for k in self.tokens if k.n <= last]
        self.hits = [n for n in self.hits if n <= last]

    def copy(self, last: int) -> Track:
        """The same way up to event `last`, for a branch of its own."""
        out = Track(self.seen, dict(self.steps), [], list(self.tokens), list(self.hits))
        out.passes = [
            Pass(p.first, p.last, dict(p.steps), list(p.layers), list(p.ubatches))
            for p in self.passes
        ]
        out.cut(last)
        return out

    def pass_at(self, n: int) -> Pass | None:
        """The pass that event n belongs to, None before the first."""
        i = bisect_right([p.first for p in self.passes], n) - 1
        return self.passes[i] if i >= 0 else None


class Journey:
    """The tracks of all branches of one debugger; see the module's docstring.

    Attributes
    ----------
    track : Track
        Of the current branch.
    """

    _of: weakref.WeakKeyDictionary[Any, Journey] = weakref.WeakKeyDictionary()

    def __init__(self) -> None:
        self._tracks: dict[str, Track] = {}
        self.track = Track()

    @classmethod
    def of(cls, dbg: Any) -> Journey:
        """The one journey of a debugger, brought up to date; several views share it."""
        journey = cls._of.get(dbg)
        if journey is None:
            journey = cls._of[dbg] = cls()
        journey._update(dbg)
        return journey

    def _update(self, dbg: Any) -> None:
        branch = dbg.branch
        if dbg.n < 0 and branch.parent is None:  # begun again
            self._tracks.clear()
        track = self._tracks.get(branch.name)
        if track is None:
            parent = self._tracks.get(branch.parent) if branch.parent else None
            track = parent.copy(branch.fork_n) if parent else Track()
            if isinstance(dbg, Trace):  # all of it is known, wherever the cursor stands
                for record in dbg.all_events:
                    _see(track, record)
                track.tokens = list(dbg.all_tokens)
            self._tracks[branch.name] = track
        self.track = track
        if track.seen > branch.furthest:
            track.cut(branch.furthest)
        new = []
        for record in reversed(dbg.events):
            if record.n <= track.seen:
                break
            new.append(record)
        for record in reversed(new):
            _see(track, record)
        now = dbg.tokens
        ahead = [k for k in track.tokens[len(now) :] if k.n > dbg.n]
        if ahead and [k.id for k in now] != [k.id for k in track.tokens[: len(now)]]:
            ahead = []  # another way was taken
        track.tokens = [*now, *ahead]
        hit = dbg.stopped_by == "breakpoint" and dbg.n >= 0
        if hit and (not track.hits or dbg.n not in track.hits):
            track.hits.append(dbg.n)


def _see(track: Track, record: Any) -> None:
    track.seen = record.n
    if record.step <= 9:
        track.steps.setdefault(record.step, record.n)
        return
    last = track.passes[-1] if track.passes else None
    begins = record.kind == "enter" and record.name == "batch" and record.step == 10
    # A run that shows no batches has one pass for each decode.
    begins = begins or (
        record.kind == "enter"
        and record.name == "decode"
        and last is not None
        and 13 in last.steps
        and 16 in last.steps
    )
    if last is None or begins:
        last = Pass(record.n, record.n)
        track.passes.append(last)
    last.last = record.n
    last.steps.setdefault(record.step, record.n)
    if record.kind == "enter" and record.name == "process_ubatch":
        last.ubatches.append(record.n)
    elif record.kind == "enter" and record.name.startswith("layer-"):
        last.layers.append((int(record.name.removeprefix("layer-")), record.n))
