"""What each sampler of a chain did, as a run keeps it: enough to show the whole film again.

Of every sampler the candidates with the largest logits are kept, those that were the likeliest
before the chain ran, and how many there were; the numbers are those that the engine had.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["MOST", "Link", "SamplerRow", "Samplings"]

N_CANDIDATES = 40  # of each sampler's, those with the largest logits
N_LEADERS = 20  # the likeliest before the chain ran, kept for as long as no sampler cuts them
MOST = N_CANDIDATES + N_LEADERS

_NO_FLOATS = np.empty(0, np.float32)
_NO_IDS = np.empty(0, np.int32)
_NO_PLACES = np.empty(0, np.float64)


@dataclass(frozen=True, slots=True)
class Link:
    """A sampler with its parameters; it cannot run.

    Attributes
    ----------
    name : str
        llama.cpp's name: ``"top-k"``.
    params : dict
    off, selects : bool
        As of a `llmviz.sampling.Sampler`.
    """

    name: str
    params: dict[str, Any] = field(default_factory=dict)
    off: bool = False
    selects: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class SamplerRow:
    """What one sampler left.

    Attributes
    ----------
    n : int
        Event number.
    name : str
    before, after : int
        How many candidates there were, and are.
    selected : int
        Id of the token that it picked, -1 for none.
    why : str
    threshold, draw : float or None
        As in `llmviz.sampling.SamplerStep`.
    id, logit, p : ndarray int32, float32, float32 [<= 60]
        The candidates with the largest logits and those left of the leaders, by logit.
    share : float32 [<= 60]
        Probability of each among all that are left.
    end : float64 [<= 60]
        Where each one's part of the line ends on which the random number falls; NaN where none was
        drawn. Its part is as long as its share.
    raw_id, raw_logit, raw_p : ndarray int32, float32, float32 [<= 20]
        Of a chain's first sampler: the likeliest tokens before it.
    index : int
        Place in the chain, -1 where that is not known.
    link : Link or None
        The sampler, where it is known.
    """

    n: int
    name: str
    before: int
    after: int
    selected: int
    why: str
    threshold: float | None
    draw: float | None
    id: np.ndarray
    logit: np.ndarray
    p: np.ndarray
    share: np.ndarray = field(default_factory=lambda: _NO_FLOATS)
    end: np.ndarray = field(default_factory=lambda: _NO_PLACES)
    raw_id: np.ndarray = field(default_factory=lambda: _NO_IDS)
    raw_logit: np.ndarray = field(default_factory=lambda: _NO_FLOATS)
    raw_p: np.ndarray = field(default_factory=lambda: _NO_FLOATS)
    index: int = -1
    link: Link | None = None


class Samplings:
    """Makes rows of the samplers' events, one chain after the other."""

    def __init__(self) -> None:
        self._leaders = _NO_IDS

    def row(self, event: Any, n: int) -> SamplerRow:
        """The row of one sampler's event."""
        cur, about = event.value, event.about
        given = about.get if isinstance(about, dict) else lambda name: getattr(about, name, None)
        before, sampler, index = given("before"), given("sampler"), given("index")
        ids = np.asarray(cur.id, np.int32)
        logit, p = np.asarray(cur.logit, np.float32), np.asarray(cur.p, np.float32)
        rich: dict[str, Any] = {}
        share = end = None
        if sampler is not None and hasattr(cur, "probabilities"):
            drawn = bool(sampler.selects) and given("draw") is not None
            share = p if drawn else np.asarray(cur.probabilities(), np.float32)
            if drawn and ids.size:
                end = np.cumsum(p.astype(np.float64))
                end /= end[-1]
            rich = {"index": int(index or 0), "link": _link(sampler)}
            if index == 0:
                rich |= self._begin(before)
        best = self._kept(ids, logit)
        size = len(before.id) if before is not None else len(ids)
        return SamplerRow(
            n,
            event.name,
            size,
            len(ids),
            int(ids[cur.selected]) if 0 <= cur.selected < len(ids) else -1,
            str(given("why") or ""),
            given("threshold"),
            given("draw"),
            ids[best],
            logit[best],
            p[best],
            share[best] if share is not None else _NO_FLOATS,
            end[best] if end is not None else np.full(best.size, np.nan),
            **rich,
        )

    def _begin(self, before: Any) -> dict[str, np.ndarray]:
        """A chain begins: who leads."""
        p = np.asarray(before.probabilities(), np.float32)
        best = _largest(np.nan_to_num(p, nan=-1.0), N_LEADERS)
        self._leaders = np.asarray(before.id, np.int32)[best]
        logit = np.asarray(before.logit, np.float32)
        return {"raw_id": self._leaders, "raw_logit": logit[best], "raw_p": p[best]}

    def _kept(self, ids: np.ndarray, logit: np.ndarray) -> np.ndarray:
        rank = np.nan_to_num(logit, nan=-np.inf)
        best = _largest(rank, N_CANDIDATES)
        if len(ids) > N_CANDIDATES:
            best = np.union1d(best, np.flatnonzero(np.isin(ids, self._leaders)))
        return best[np.argsort(-rank[best], kind="stable")]


def _largest(x: np.ndarray, count: int) -> np.ndarray:
    """Indices of the largest numbers, the largest first; equal ones in their order."""
    best = np.arange(len(x))
    if len(x) > count:
        best = np.sort(np.argpartition(-x, count - 1)[:count])
    return best[np.argsort(-x[best], kind="stable")]


def _link(sampler: Any) -> Link:
    numbers = {k: v for k, v in sampler.params.items() if isinstance(v, (bool, int, float))}
    params = {k: v if v == v and abs(v) != np.inf else repr(v) for k, v in numbers.items()}
    return Link(sampler.name, params, bool(sampler.off), bool(sampler.selects))
