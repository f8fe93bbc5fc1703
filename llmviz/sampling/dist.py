"""↔ src/llama-sampler.cpp (dist, greedy).

The two samplers that usually end a chain: draw by probability, or take the largest logit.
"""

from __future__ import annotations

import numpy as np

from llmviz.sampling._float32 import expf
from llmviz.sampling._params import seed as check_seed
from llmviz.sampling.candidates import TokenDataArray
from llmviz.sampling.rng import LLAMA_DEFAULT_SEED, Rng
from llmviz.sampling.sampler import Sampler, Why

__all__ = ["Dist", "Greedy"]


class Greedy(Sampler):
    """Select the largest logit, of equal ones the first. Leaves probabilities alone."""

    name = "greedy"
    selects = True

    def apply(self, cur: TokenDataArray) -> None:
        """Select (nothing, if there is no candidate)."""
        cur.selected = int(cur.logit.argmax()) if cur.size else -1

    def explain(self, before: TokenDataArray, after: TokenDataArray) -> Why:
        """Name the logit taken."""
        if after.selected < 0:
            return Why("no candidates to select from")
        best = float(after.logit[after.selected])
        return Why(
            f"token {after.selected_id} has the largest of {after.size} logits: {best:.4g}", best
        )


class Dist(Sampler):
    """Draw a candidate with its probability.

    One random number in [0, 1) is drawn a token, also where a single candidate is left; the first
    candidate whose running sum of probabilities reaches it is selected. The same seed and logits
    give llama.cpp's tokens.

    Parameters
    ----------
    seed : int
        0 .. 2**32 - 1; `LLAMA_DEFAULT_SEED` (or -1): a random seed, a new one at each reset.
    """

    name = "dist"
    selects = True

    def __init__(self, seed: int = LLAMA_DEFAULT_SEED) -> None:
        self.seed = check_seed("dist", seed)
        self.rng = Rng(self.seed)

    def apply(self, cur: TokenDataArray) -> None:
        """Fill `p`, draw and select."""
        self.last_draw = None
        cur.selected = -1
        if cur.size == 0:
            return
        self.last_draw = self.rng.uniform()
        if cur.size == 1:
            cur.selected = 0
            cur.p = np.ones(1, np.float32)
            return
        with np.errstate(invalid="ignore"):  # all logits -inf
            e = expf(cur.logit - (cur.logit[0] if cur.sorted else cur.logit.max()))  # [n]
            run = np.add.accumulate(e, dtype=np.float64)  # [n]
            target = float(run[-1]) * self.last_draw
            cur.p = (e / run[-1]).astype(np.float32)
        last = cur.size - 1
        cur.selected = last if np.isnan(target) else min(int(np.searchsorted(run, target)), last)

    def reset(self) -> None:
        """Start the stream of random numbers again."""
        self.rng.reset()
        self.last_draw = None

    def clone(self) -> Dist:
        """Return a sampler that draws the same numbers next, independently."""
        out = super().clone()
        assert isinstance(out, Dist)
        out.rng = self.rng.clone()
        return out

    def explain(self, before: TokenDataArray, after: TokenDataArray) -> Why:
        """Name the number drawn and where it fell."""
        if self.last_draw is None:
            return Why("no candidates to draw from")
        if after.size == 1:
            return Why(
                f"token {after.selected_id} is the only candidate left",
                self.last_draw,
            )
        p = float(after.p[after.selected])
        return Why(
            f"drew {self.last_draw:.6f}: the running sum of probabilities reaches it at token "
            f"{after.selected_id}, whose own is {p:.4g}",
            self.last_draw,
        )
