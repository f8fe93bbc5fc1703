"""↔ src/llama-sampler.cpp (top-k, top-p, min-p).

Samplers that shorten the list of candidates. Which leave it sorted: top-k and top-p always, min-p
only where it had to sort (too few candidates above its threshold).
"""

from __future__ import annotations

import numpy as np

from llmviz.sampling._float32 import FLT_MAX, f32, logf
from llmviz.sampling._params import integer, real
from llmviz.sampling._params import min_keep as check_min_keep
from llmviz.sampling.candidates import TokenDataArray, largest, softmax
from llmviz.sampling.sampler import Sampler, Why

__all__ = ["MinP", "TopK", "TopP"]

TOP_P_FIRST_LOOK = 256
"""top-p sorts this many of a long list first: they nearly always hold the probability."""
TOP_P_SHORT = 1024


class TopK(Sampler):
    """Keep the `k` largest logits, sorted.

    Parameters
    ----------
    k : int
        0 or less: off.
    """

    name = "top-k"

    def __init__(self, k: int = 40) -> None:
        self.k = integer("top-k: k", k)

    @property
    def off(self) -> bool:
        """Whether k <= 0."""
        return self.k <= 0

    def apply(self, cur: TokenDataArray) -> None:
        """Cut to k candidates, best first."""
        if self.off:
            return
        k = min(self.k, cur.size)
        if cur.sorted:
            cur.keep(slice(k))
        else:
            cur.sort(k)

    def explain(self, before: TokenDataArray, after: TokenDataArray) -> Why:
        """Name the smallest logit kept."""
        if self.off:
            return Why(f"k = {self.k} switches top-k off: all {before.size} candidates stay")
        if after.size == before.size:
            return Why(f"k = {self.k} is not below the {before.size} candidates: none is cut")
        least = float(after.logit[-1])
        return Why(
            f"kept the {after.size} largest of {before.size} logits, down to {least:.4g}",
            least,
        )


class TopP(Sampler):
    """Keep the smallest set of best candidates whose probabilities sum to at least `p`, sorted.

    Parameters
    ----------
    p : float
        1 or more: off; 0 or less: only the best (or `min_keep`).
    min_keep : int
        Keep at least this many.
    """

    name = "top-p"

    def __init__(self, p: float = 0.95, min_keep: int = 0) -> None:
        self.p = real("top-p: p", p)
        self.min_keep = check_min_keep("top-p", min_keep)

    @property
    def off(self) -> bool:
        """Whether p >= 1."""
        return bool(f32(self.p) >= 1)

    def apply(self, cur: TokenDataArray) -> None:
        """Cut behind the candidate where the running sum reaches p."""
        if self.off:
            return
        cur.softmax(False, self.name)
        if not cur.sorted and cur.size > TOP_P_SHORT:
            order = largest(cur.logit, TOP_P_FIRST_LOOK)
            last = self._reached(cur.p[order])
            if last is not None:
                cur.keep(order[:last])
                cur.sorted = True
                return
        if not cur.sorted:
            cur.sort()
        last = self._reached(cur.p)
        if last is not None:
            cur.keep(slice(last))

    def _reached(self, p: np.ndarray) -> int | None:
        """Return how many leading values of p (float32[n]) reach self.p; None if all do not."""
        start = max(self.min_keep - 1, 0)
        hit = np.flatnonzero(np.add.accumulate(p)[start:] >= f32(self.p))
        return start + int(hit[0]) + 1 if hit.size else None

    def explain(self, before: TokenDataArray, after: TokenDataArray) -> Why:
        """Name the sum that reached p."""
        if self.off:
            return Why(
                f"p = {self.p:g} switches top-p off: all {before.size} candidates stay", self.p
            )
        total = float(np.add.accumulate(after.p)[-1])
        kept = f"kept the {after.size} most probable of {before.size} candidates"
        if total < f32(self.p):
            return Why(f"{kept}: even all of them sum to {total:.4g}, below p = {self.p:g}", self.p)
        if after.size > 1 and after.size == self.min_keep:
            return Why(f"{kept} because of min_keep = {self.min_keep}; p = {self.p:g}", self.p)
        return Why(f"{kept}: their sum {total:.4g} is the first to reach p = {self.p:g}", self.p)


class MinP(Sampler):
    """Keep candidates at least `p` times as probable as the best.

    Works on logits (logit >= best + ln p), so it needs no softmax and does not reorder.

    Parameters
    ----------
    p : float
        0 or less: off.
    min_keep : int
        Keep at least this many (then sorted).
    """

    name = "min-p"

    def __init__(self, p: float = 0.05, min_keep: int = 0) -> None:
        self.p = real("min-p: p", p)
        self.min_keep = check_min_keep("min-p", min_keep)

    @property
    def off(self) -> bool:
        """Whether p <= 0."""
        return bool(f32(self.p) <= 0)

    def apply(self, cur: TokenDataArray) -> None:
        """Drop the candidates below the threshold."""
        if self.off or cur.size == 0:
            return
        log_p = logf(f32(self.p))
        if not cur.sorted:
            least = max(f32(-FLT_MAX), cur.logit.max()) + log_p
            fits = np.flatnonzero(cur.logit >= least)
            if fits.size and fits.size >= self.min_keep:
                cur.keep(fits)
                return
            cur.sort()
        least = cur.logit[0] + log_p
        start = max(self.min_keep, 1)  # the best always stays
        below = np.flatnonzero(cur.logit[start:] < least)
        if below.size:
            cur.keep(slice(start + int(below[0])))

    def explain(self, before: TokenDataArray, after: TokenDataArray) -> Why:
        """Name the threshold as a probability and as a logit."""
        if self.off:
            return Why(f"p = {self.p:g} switches min-p off: all {before.size} candidates stay")
        if before.size == 0:
            return Why("no candidates to cut")
        least = float(before.logit.max() + logf(f32(self.p)))
        floor = self.p * float(softmax(before.logit).max())
        more = f" (min_keep = {self.min_keep})" if after.size == self.min_keep > 1 else ""
        return Why(
            f"kept the {after.size} of {before.size} candidates that have at least {self.p:g} "
            f"times the best one's probability: {floor:.4g} or more (logit {least:.4g}){more}",
            least,
        )
