"""↔ src/llama-sampler.cpp (top-n-sigma).

Masks the tokens far below the best logit, measured in standard deviations of all logits.
"""

from __future__ import annotations

import numpy as np

from llmviz.sampling._float32 import f32
from llmviz.sampling._params import real
from llmviz.sampling.candidates import TokenDataArray
from llmviz.sampling.sampler import Sampler, Why

__all__ = ["TopNSigma"]


class TopNSigma(Sampler):
    """Set logits more than `n` standard deviations below the best to -inf.

    The number of candidates stays. A logit that is -inf already counts neither in the mean nor in
    the deviation.

    Parameters
    ----------
    n : float
        0 or less: off.
    """

    name = "top-n-sigma"

    def __init__(self, n: float = 1.0) -> None:
        self.n = real("top-n-sigma: n", n)

    @property
    def off(self) -> bool:
        """Whether n <= 0."""
        return bool(f32(self.n) <= 0)

    def apply(self, cur: TokenDataArray) -> None:
        """Mask."""
        if not self.off and cur.size > 1:
            masked = cur.logit < self._least(cur.logit)  # [n]
            cur.logit = np.where(masked, np.float32(-np.inf), cur.logit)

    def _least(self, logit: np.ndarray) -> np.float32:
        """Return the smallest logit that stays, for logits float32[n]."""
        valid = logit[logit != -np.inf]  # [n_valid]
        if valid.size == 0:
            return np.float32(-np.inf)
        count = np.float32(valid.size)
        with np.errstate(invalid="ignore", over="ignore"):
            mean = np.add.accumulate(valid)[-1] / count
            squares = (valid - mean).astype(np.float64) ** 2  # [n_valid]
            deviation = np.sqrt(np.add.accumulate(squares.astype(np.float32))[-1] / count)
            return valid.max() - f32(self.n) * deviation

    def explain(self, before: TokenDataArray, after: TokenDataArray) -> Why:
        """Name the threshold and how many tokens it masks."""
        if self.off or before.size <= 1:
            return Why(f"n = {self.n:g}: top-n-sigma leaves the {before.size} candidates alone")
        least = float(self._least(before.logit))
        masked = int(np.count_nonzero(before.logit != after.logit))
        return Why(
            f"set {masked} of {before.size} logits to -inf: below {least:.4g}, which is "
            f"{self.n:g} standard deviations under the best",
            least,
        )
