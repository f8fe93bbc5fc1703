"""How a token was chosen: the sampler chain run again over recorded logits, sampler by sampler.

Nothing here decodes and nothing moves the run: a clone of the chain, in the state that it had
before the token, is applied to a copy of the logits. With other parameters it says what would have
been chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmviz.sampling import Chain, SamplerStep, TokenDataArray
from llmviz.trace.edits import SamplerEdit, with_params
from llmviz.trace.timeline import DebuggerError

__all__ = ["Changes", "Line", "Moment", "Segment", "Strip", "moment_of", "replay"]

Changes = Mapping[int, Mapping[str, Any]]
"""Other parameters: index of a sampler in the chain -> parameter -> value."""


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """The state right before a token was (or will be) sampled.

    Attributes
    ----------
    logits : float32 [n_vocab]
    chain : Chain
        In the state before; to be cloned, never used.
    accepted : tuple of int
        Generated tokens that the chain had been told of.
    pos : int
        Position of the token.
    token : int or None
        The token that the run took; None while it has not.
    frame : int
        Index of the sampler at whose event the run stands, -1 elsewhere.
    enter : int
        Number of the event at which the sampling began, -1 where it has not.
    """

    logits: np.ndarray
    chain: Chain
    accepted: tuple[int, ...]
    pos: int
    token: int | None
    frame: int = -1
    enter: int = -1


@dataclass(frozen=True, slots=True)
class Line:
    """Where a sampler's threshold lies.

    Attributes
    ----------
    kind : str
        ``"p"``: on the probabilities before it; ``"sum"``: on their running sum; ``"rank"``:
        after so many candidates.
    at : float
    """

    kind: str
    at: float


@dataclass(frozen=True, slots=True)
class Segment:
    """A candidate's part of the cumulative line: from, to, in 0..1."""

    id: int
    start: float
    end: float


@dataclass(frozen=True, slots=True, eq=False)
class Strip:
    """What every sampler of a chain did.

    Attributes
    ----------
    steps : tuple of SamplerStep
    p : float32 [n_steps + 1, n_vocab]
        Probability of every token among those that were left: row 0 of all tokens (raw), then
        after each sampler. NaN where a token was cut.
    chosen : int
        Token id, -1 where the chain selects nothing.
    """

    steps: tuple[SamplerStep, ...]
    p: np.ndarray
    chosen: int

    @property
    def draw(self) -> float | None:
        """The random number in [0, 1) that chose, None where none was drawn."""
        return next((s.draw for s in reversed(self.steps) if s.sampler.selects), None)

    def line(self, index: int) -> Line | None:
        """The threshold of a sampler, None where it has none that can be drawn."""
        return _line(self.steps[index])

    def rows(self, count: int, *also: int | None) -> list[int]:
        """Ids of the `count` likeliest tokens by raw probability, and of some others."""
        raw = np.nan_to_num(self.p[0], nan=-1.0)
        count = min(count, raw.size)
        best = np.argpartition(-raw, count - 1)[:count] if count else np.empty(0, np.intp)
        best = best[np.lexsort((best, -raw[best]))]
        more = sorted(
            {i for i in also if i is not None and i >= 0} - set(best.tolist()),
            key=lambda i: -raw[i],
        )
        return [*best.tolist(), *more]

    def segments(self, count: int) -> list[Segment]:
        """The widest parts of the line that the random number falls on, in their order there."""
        step = next((s for s in reversed(self.steps) if s.sampler.selects), None)
        if step is None or step.draw is None or step.after.size == 0:
            return []
        ends = np.cumsum(step.after.p.astype(np.float64))
        ends = ends / ends[-1]
        widest = np.argsort(-step.after.p, kind="stable")[:count]
        if step.after.selected >= 0:
            widest = np.union1d(widest, [step.after.selected])
        return [
            Segment(int(step.after.id[i]), float(ends[i - 1]) if i else 0.0, float(ends[i]))
            for i in sorted(widest.tolist())
        ]


def moment_of(dbg: Any, pos: int = -1) -> Moment | None:
    """The state before the token at a position was sampled; -1 for the newest logits.

    Returns
    -------
    Moment or None
        None where there are no logits yet, or the token was given and not sampled.

    Raises
    ------
    DebuggerError
        The run does not hold this state any more, or has no chain at all.
    """
    recorder = dbg.recorder
    tokens = recorder.tokens
    if recorder.logits is None:
        return None
    picked = tokens[pos] if 0 <= pos < len(tokens) else None
    if picked is not None and picked.given:
        return None
    last = tokens[-1] if tokens and not tokens[-1].given else None
    newest = last if last is not None and last.n > recorder.logits_n else None
    if dbg.generation is None:
        raise DebuggerError(
            "this run is a bare stream of events: it has no sampler chain that could be run again"
        )
    points = [p for p in dbg._source.history.points if p.stage == "ubatch"]
    if picked is None or picked is newest:
        logits, logits_n, token = recorder.logits, recorder.logits_n, newest
    else:
        # The next ubatch's point remembers the logits that were the latest when it began.
        marks = [p.mark for p in points if p.n > picked.n and p.mark is not None]
        if not marks or marks[0].logits is None or marks[0].logits_n > picked.n:
            raise DebuggerError(_GONE)
        logits, logits_n, token = marks[0].logits, marks[0].logits_n, picked
    before = [p for p in points if p.n <= logits_n]
    if not before or before[-1].saved is None:
        raise DebuggerError(_GONE)
    end = token.n if token is not None else dbg.n + 1
    accepted = tuple(k.id for k in tokens if not k.given and k.n < logits_n)
    enter = next(
        (r.n for r in dbg.events if (r.kind, r.name) == ("enter", "sample") and r.n > logits_n), -1
    )
    if enter > end:
        enter = -1
    chain = before[-1].saved.chain.clone()
    for edit in dbg.edits:
        if isinstance(edit, SamplerEdit) and before[-1].n <= edit.n < end:
            # One that was made while the chain ran came too late for the samplers before it.
            if 0 <= enter < edit.n and edit.index <= edit.n - enter - 1:
                continue
            chain.samplers[edit.index] = with_params(
                chain.samplers[edit.index], edit.params, list(accepted)
            )
    about = dbg.here.about if dbg.here is not None and token is None else None
    return Moment(
        logits,
        chain,
        accepted,
        token.pos if token is not None else len(tokens),
        token.id if token is not None else None,
        about.index if isinstance(about, SamplerStep) else -1,
        enter,
    )


_GONE = (
    "the run does not hold the logits or the chain of this token any more: travel to it "
    "(click it in the text), then they are here again"
)


def replay(moment: Moment, changes: Changes | None = None) -> Strip:
    """Run a clone of the chain over the logits, with other parameters where some are given.

    Raises
    ------
    DebuggerError, SamplerError
        For parameters that a sampler does not have or does not take, or where the chain selects
        nothing.
    """
    chain = moment.chain.clone()
    for index, params in (changes or {}).items():
        if not 0 <= index < len(chain.samplers):
            raise DebuggerError(f"no sampler {index}: the chain has {len(chain.samplers)}, from 0")
        chain.samplers[index] = with_params(
            chain.samplers[index], dict(params), list(moment.accepted)
        )
    cur = TokenDataArray.from_logits(moment.logits)
    p = np.full((len(chain) + 1, cur.size), np.nan, np.float32)  # [n_steps + 1, n_vocab]
    p[0] = cur.probabilities()
    steps = []
    for row, event in enumerate(chain.apply_steps(cur), 1):
        step = event.about
        steps.append(step)
        after = step.after
        drawn = step.sampler.selects and step.draw is not None
        p[row, after.id] = after.p if drawn else after.probabilities()
    return Strip(tuple(steps), p, cur.selected_id)


def _line(step: SamplerStep) -> Line | None:
    sampler, before = step.sampler, step.before
    if sampler.off or before.size == 0 or step.threshold is None:
        return None
    if sampler.name == "top-k":
        return Line("rank", float(step.after.size))
    if sampler.name == "top-p":
        return Line("sum", float(step.threshold))
    if sampler.name in ("min-p", "top-n-sigma"):  # a logit: the probability that belongs to it
        best = float(before.logit.max())
        share = float(before.probabilities().max()) * np.exp(float(step.threshold) - best)
        return Line("p", float(share))
    if sampler.name == "xtc" and step.after.size < before.size:
        return Line("p", float(step.threshold))
    return None
