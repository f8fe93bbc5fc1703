"""How a token was chosen, sampler by sampler: the chain run again, or what was recorded of it.

Nothing here decodes and nothing moves the run: a clone of the chain, in the state that it had
before the token, is applied to a copy of the logits. With other parameters it says what would have
been chosen. Where the run does not hold the logits or the chain any more, and in a trace, there is
what every sampler left when it ran (`HeldStrip`), and no other parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmviz.sampling import Chain, SamplerStep, TokenDataArray
from llmviz.trace.edits import SamplerEdit, with_params
from llmviz.trace.filmstrip_held import HeldStrip, Line, Segment, line_of
from llmviz.trace.samplings import SamplerRow
from llmviz.trace.timeline import DebuggerError

__all__ = ["Changes", "HeldStrip", "Line", "Moment", "Segment", "Strip", "moment_of", "replay"]

Changes = Mapping[int, Mapping[str, Any]]
"""Other parameters: index of a sampler in the chain -> parameter -> value."""


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """The state right before a token was (or will be) sampled.

    Attributes
    ----------
    logits : float32 [n_vocab], or None
        None where only `rows` are held.
    chain : Chain or None
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
    rows : tuple of SamplerRow
        What was recorded of each sampler, where the chain cannot run again.
    n_vocab : int
    """

    logits: np.ndarray | None
    chain: Chain | None
    accepted: tuple[int, ...]
    pos: int
    token: int | None
    frame: int = -1
    enter: int = -1
    rows: tuple[SamplerRow, ...] = ()
    n_vocab: int = 0


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
    logit : float32 [n_vocab]
        Before the chain.
    """

    steps: tuple[SamplerStep, ...]
    p: np.ndarray
    chosen: int
    logit: np.ndarray

    @property
    def draw(self) -> float | None:
        """The random number in [0, 1) that chose, None where none was drawn."""
        return next((s.draw for s in reversed(self.steps) if s.sampler.selects), None)

    def line(self, index: int) -> Line | None:
        """The threshold of a sampler, None where it has none that can be drawn."""
        return line_of(self.steps[index])

    @property
    def n_vocab(self) -> int:
        """How many candidates there are at first."""
        return self.p.shape[1]

    @property
    def left(self) -> list[int]:
        """How many are left: at first, then after each sampler."""
        return np.isfinite(self.p).sum(axis=1).tolist()

    def shares(self, ids: Sequence[int]) -> np.ndarray:
        """The columns of `p` of some tokens, float32 [n_steps + 1, n_ids]."""
        return self.p[:, ids]

    def logits(self, ids: Sequence[int]) -> list[float]:
        """Logits of some tokens before the chain."""
        return self.logit[ids].tolist()

    def rest(self, ids: Sequence[int]) -> list[tuple[float, int]]:
        """What all other tokens have together, and how many they are, for each row of `p`."""
        others = np.delete(self.p, ids, axis=1)
        return [(float(np.nansum(x, dtype=np.float64)), int(np.isfinite(x).sum())) for x in others]

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

    Parameters
    ----------
    dbg : Debugger or Trace

    Returns
    -------
    Moment or None
        None where there are no logits yet, or the token was given and not sampled.

    Raises
    ------
    DebuggerError
        Nothing is held of this sampling, or the run has no chain at all.
    """
    recorder, tokens = dbg.recorder, dbg.recorder.tokens
    if recorder.logits_n < 0:
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
    token = newest if picked is None or picked is newest else picked
    found = _runnable(dbg, token, picked is None or picked is newest)
    return found if found is not None else _recorded(dbg, token)


def _runnable(dbg: Any, token: Any, newest: bool) -> Moment | None:
    """The chain and the logits, where the run still holds both."""
    recorder, tokens = dbg.recorder, dbg.recorder.tokens
    points = [p for p in dbg.points if p.stage == "ubatch"]
    if newest:
        logits, logits_n = recorder.logits, recorder.logits_n
    else:
        # The next ubatch's point remembers the logits that were the latest when it began.
        marks = [p.mark for p in points if p.n > token.n and p.mark is not None]
        if not marks or marks[0].logits is None or marks[0].logits_n > token.n:
            return None
        logits, logits_n = marks[0].logits, marks[0].logits_n
    before = [p for p in points if p.n <= logits_n]
    if logits is None or not before or before[-1].saved is None:
        return None
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
        n_vocab=len(logits),
    )


def _recorded(dbg: Any, token: Any) -> Moment:
    """What was recorded of the samplers, where the chain cannot run again."""
    logits_n = dbg.recorder.logits_n
    rows: list[SamplerRow] = []
    if token is not None:  # those since the token before, the last ones first
        earlier = dbg.recorder.tokens[token.pos - 1].n if token.pos > 0 else -1
        for row in reversed(dbg.samplings):
            if earlier < row.n < token.n:
                rows.insert(0, row)
                if row.index <= 0:
                    break
    else:
        for row in dbg.samplings:
            if row.n > logits_n and (not rows or row.index > rows[-1].index):
                rows.append(row)
    if not rows or rows[0].index != 0 or any(r.link is None for r in rows):
        raise DebuggerError(_NOT_SAMPLED if token is None else _GONE)
    here = dbg.n
    return Moment(
        None,
        None,
        (),
        token.pos if token is not None else len(dbg.recorder.tokens),
        token.id if token is not None else None,
        next((r.index for r in rows if r.n == here), -1) if token is None else -1,
        rows=tuple(rows),
        n_vocab=rows[0].before,
    )


_GONE = (
    "nothing was recorded of how this token was chosen, and the run does not hold its logits or "
    "its chain any more: travel to it (click it in the text), then they are here again"
)
_NOT_SAMPLED = "this run ends before anything was chosen from these logits"


def replay(moment: Moment, changes: Changes | None = None) -> Strip | HeldStrip:
    """Run a clone of the chain over the logits, with other parameters where some are given.

    Where only what was recorded is held, that is returned.

    Raises
    ------
    DebuggerError, SamplerError
        For parameters that a sampler does not have or does not take, or where the chain selects
        nothing; for other parameters where the chain cannot run again.
    """
    if moment.chain is None or moment.logits is None:
        if changes:
            raise DebuggerError(
                "only what the samplers did is recorded here, not all logits: another parameter "
                "can be tried in a run (llmviz.Debugger), at the token"
            )
        return HeldStrip(moment.rows)
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
    return Strip(tuple(steps), p, cur.selected_id, moment.logits)
