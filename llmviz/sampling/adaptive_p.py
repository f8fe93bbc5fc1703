"""↔ src/llama-sampler.cpp (adaptive-p).

Prefers tokens whose probability is near a target, and moves the target so that the probabilities of
what was chosen average out at it. Draws a token itself, so it ends a chain in place of dist.
"""

from __future__ import annotations

import numpy as np

from llmviz.sampling._float32 import Float32, f32
from llmviz.sampling._params import real
from llmviz.sampling._params import seed as check_seed
from llmviz.sampling.candidates import TokenDataArray
from llmviz.sampling.rng import LLAMA_DEFAULT_SEED, Rng, draw_by_probability
from llmviz.sampling.sampler import Sampler, Why

__all__ = ["AdaptiveP"]

_ONE = np.float32(1)
PEAK, SHARPNESS, INV_WIDTH = np.float32(5), np.float32(10), _ONE / np.float32(0.3)


class AdaptiveP(Sampler):
    """Select tokens near a target probability.

    Logits become ``5 - 10 d² / (1 + d)``, d the distance of a token's probability to the adapted
    target in units of 0.3; then a token is drawn. The adapted target lies as far on the other side
    of `target` as the average of the chosen tokens' own probabilities, so that this comes back.

    Parameters
    ----------
    target : float
        Probability to aim at, 0 to 1; negative: draw as `Dist` does from the probabilities.
    decay : float
        How slowly the average forgets, 0 to 0.99: it spans about 1 / (1 - decay) tokens.
    seed : int
        As of `Dist`; no number is drawn where one candidate is left.
    """

    name = "adaptive-p"
    selects = True

    def __init__(
        self, target: float = -1.0, decay: float = 0.9, seed: int = LLAMA_DEFAULT_SEED
    ) -> None:
        self.target = real("adaptive-p: target", target)
        self.decay = real("adaptive-p: decay", decay)
        self.seed = check_seed("adaptive-p", seed)
        self.rng = Rng(self.seed)
        self._forget = f32(min(max(self.decay, 0.0), 0.99))
        self._start()

    def _start(self) -> None:
        rest = _ONE - self._forget
        self.weighted_sum = f32(self.target) / rest
        self.total_weight = _ONE / rest
        self.adapted = f32(self.target)
        self._original: Float32 = np.empty(0, np.float32)
        self._pending = (-1, -1)  # token and its place in `_original`

    def apply(self, cur: TokenDataArray) -> None:
        """Change the logits, fill `p`, draw and select."""
        cur.softmax(False, self.name)
        if f32(self.target) < 0:
            cur.selected, self.last_draw = draw_by_probability(cur.p, self.rng)
            return
        self._original = cur.p
        target = min(max(f32(self.target), np.float32(0)), _ONE)
        adapted = np.float32(2) * target - self.weighted_sum / self.total_weight
        self.adapted = min(max(adapted, np.float32(0)), _ONE)
        distance = np.abs((cur.p - self.adapted) * INV_WIDTH)  # [n]
        with np.errstate(invalid="ignore"):
            near = PEAK - SHARPNESS * distance * distance / (_ONE + distance)
        cur.logit = np.where(cur.logit == -np.inf, cur.logit, near).astype(np.float32)
        # as in llama.cpp, an array that was sorted still counts as sorted
        cur.softmax(False, self.name)
        cur.selected, self.last_draw = draw_by_probability(cur.p, self.rng)
        self._pending = (cur.selected_id, cur.selected)

    def accept(self, token: int) -> None:
        """Take the token's own probability into the average, if it is the one that was drawn."""
        pending, at = self._pending
        if token == pending and at >= 0:
            self.weighted_sum = self._original[at] + self._forget * self.weighted_sum
            self.total_weight = _ONE + self._forget * self.total_weight
        self._pending = (-1, -1)

    def reset(self) -> None:
        """Start again: the first average, the first random number."""
        self.rng.reset()
        self.last_draw = None
        self._start()

    def clone(self) -> AdaptiveP:
        """Return an independent sampler in the same state.

        It draws the same numbers next; llama.cpp's copy starts its random numbers again.
        """
        out = super().clone()
        assert isinstance(out, AdaptiveP)
        out.rng = self.rng.clone()
        return out

    def explain(self, before: TokenDataArray, after: TokenDataArray) -> Why:
        """Name the adapted target and what was drawn."""
        if f32(self.target) < 0:
            return Why(f"adaptive-p is off: drew token {after.selected_id} by probability")
        own = float(self._original[after.selected])
        return Why(
            f"the target of {self.target:g} is adapted to {float(self.adapted):.4g}; drew token "
            f"{after.selected_id}, whose own probability is {own:.4g}",
            float(self.adapted),
        )
