"""What was recorded of a sampler chain, shown as if it ran again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmviz.trace.samplings import Link, SamplerRow

__all__ = ["HeldStrip", "Line", "Segment", "line_of"]


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
class Held:
    """Candidates of which the most important ones are held.

    Attributes
    ----------
    size : int
        How many there were.
    id, logit, p : ndarray
        Of those that are held; `p` among all that there were.
    """

    size: int
    id: np.ndarray
    logit: np.ndarray
    p: np.ndarray

    def probabilities(self) -> np.ndarray:
        """As `p`."""
        return self.p


@dataclass(frozen=True, slots=True, eq=False)
class HeldStep:
    """What was recorded of one sampler; see `llmviz.sampling.SamplerStep`."""

    sampler: Link
    index: int
    before: Held
    after: Held
    why: str
    threshold: float | None
    draw: float | None


class HeldStrip:
    """What was recorded of every sampler of a chain; offers what `Strip` does.

    Only the likeliest tokens are known by name; of all others, how many they were.

    Parameters
    ----------
    rows : sequence of SamplerRow
        Of one token, in order.
    """

    def __init__(self, rows: Sequence[SamplerRow]) -> None:
        first = rows[0]
        self._rows = rows
        before = Held(first.before, first.raw_id, first.raw_logit, first.raw_p)
        self._stages = [before]
        steps = []
        for row in rows:
            assert row.link is not None
            after = Held(row.after, row.id, row.logit, row.share)
            steps.append(
                HeldStep(row.link, row.index, before, after, row.why, row.threshold, row.draw)
            )
            self._stages.append(after)
            before = after
        self.steps = tuple(steps)
        self.chosen = next((r.selected for r in reversed(rows) if r.selected >= 0), -1)

    @property
    def draw(self) -> float | None:
        """The random number in [0, 1) that chose, None where none was drawn."""
        return next((s.draw for s in reversed(self.steps) if s.sampler.selects), None)

    @property
    def n_vocab(self) -> int:
        """How many candidates there were at first."""
        return self._stages[0].size

    @property
    def left(self) -> list[int]:
        """How many were left: at first, then after each sampler."""
        return [stage.size for stage in self._stages]

    def line(self, index: int) -> Line | None:
        """As `Strip.line`."""
        return line_of(self.steps[index])

    def rows(self, count: int, *also: int | None) -> list[int]:
        """Ids of the likeliest tokens by raw probability, and of those of `also` that are known."""
        raw = self._stages[0]
        best = raw.id[:count].tolist()
        known = dict(zip(raw.id.tolist(), raw.p.tolist(), strict=True))
        more = {i for i in also if i is not None and i in known} - set(best)
        return [*best, *sorted(more, key=lambda i: -known[i])]

    def shares(self, ids: Sequence[int]) -> np.ndarray:
        """As `Strip.shares`; NaN for a token that a sampler has cut."""
        out = np.full((len(self._stages), len(ids)), np.nan, np.float32)
        for line, stage in zip(out, self._stages, strict=True):
            known = dict(zip(stage.id.tolist(), stage.p, strict=True))
            line[:] = [known.get(i, np.nan) for i in ids]
        return out

    def logits(self, ids: Sequence[int]) -> list[float]:
        """As `Strip.logits`; NaN for a token that is not held."""
        known = dict(zip(self._stages[0].id.tolist(), self._stages[0].logit.tolist(), strict=True))
        return [known.get(i, float("nan")) for i in ids]

    def rest(self, ids: Sequence[int]) -> list[tuple[float, int]]:
        """What all other tokens had together: what is missing to 1; and how many they were."""
        shares = self.shares(ids).astype(np.float64)
        shown = np.isfinite(shares).sum(axis=1)
        others = [size - int(n) for size, n in zip(self.left, shown, strict=True)]
        sums = np.clip(1.0 - np.nansum(shares, axis=1), 0.0, 1.0)
        return [(float(p) if n else 0.0, n) for p, n in zip(sums, others, strict=True)]

    def segments(self, count: int) -> list[Segment]:
        """As `Strip.segments`."""
        row = next((r for r in reversed(self._rows) if r.link and r.link.selects), None)
        if row is None or row.draw is None or row.id.size == 0:
            return []
        widest = np.argsort(-row.share, kind="stable")[:count]
        picked = np.flatnonzero(row.id == row.selected)
        parts = [
            Segment(int(row.id[i]), max(0.0, float(row.end[i]) - float(row.share[i])), end)
            for i in np.union1d(widest, picked).tolist()
            if (end := float(row.end[i])) == end
        ]
        return sorted(parts, key=lambda s: s.end)


def line_of(step: Any) -> Line | None:
    """The threshold of what a sampler did, None where it has none that can be drawn."""
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
