"""↔ src/llama-sampler.cpp (typical).

Keeps the tokens whose surprise is nearest to the expected one.
"""

from __future__ import annotations

import numpy as np

from llmviz.sampling._float32 import f32, logf
from llmviz.sampling._params import min_keep as check_min_keep
from llmviz.sampling._params import real
from llmviz.sampling.candidates import TokenDataArray
from llmviz.sampling.sampler import Sampler, Why

__all__ = ["Typical"]


class Typical(Sampler):
    """Locally typical sampling.

    Ranks the candidates by how far their surprise (-ln p) is from the entropy and keeps the first
    whose probabilities sum to more than `p`, in that order: the list is no longer sorted by logit.

    Parameters
    ----------
    p : float
        1 or more: off.
    min_keep : int
        Keep at least this many.
    """

    name = "typical"

    def __init__(self, p: float = 1.0, min_keep: int = 0) -> None:
        self.p = real("typical: p", p)
        self.min_keep = check_min_keep("typical", min_keep)

    @property
    def off(self) -> bool:
        """Whether p >= 1."""
        return bool(f32(self.p) >= 1)

    def apply(self, cur: TokenDataArray) -> None:
        """Cut and reorder."""
        if self.off:
            return
        cur.softmax(True, self.name)
        log_p = logf(cur.p)  # [n]
        with np.errstate(invalid="ignore"):  # p = 0: NaN, as in llama.cpp
            entropy = np.add.accumulate(-cur.p * log_p)[-1]
            distance = np.abs(-log_p - entropy)  # [n]
        order = np.argsort(distance, kind="stable")
        start = max(self.min_keep - 1, 0)
        hit = np.flatnonzero(np.add.accumulate(cur.p[order])[start:] > f32(self.p))
        cur.keep(order[: start + int(hit[0]) + 1] if hit.size else order)
        cur.sorted = False

    def explain(self, before: TokenDataArray, after: TokenDataArray) -> Why:
        """Name the sum that passed p."""
        if self.off:
            return Why(f"p = {self.p:g} switches typical off: all {before.size} candidates stay")
        total = float(np.add.accumulate(after.p)[-1])
        return Why(
            f"kept the {after.size} of {before.size} candidates whose surprise is nearest to the "
            f"entropy: their probabilities sum to {total:.4g}, p = {self.p:g}",
            self.p,
        )
