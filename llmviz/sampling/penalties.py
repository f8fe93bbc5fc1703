"""↔ src/llama-sampler.cpp (penalties).

Lowers the logits of tokens seen among the last `penalty_last_n` accepted ones.
"""

from __future__ import annotations

from collections import Counter, deque

import numpy as np

from llmviz.sampling._float32 import f32
from llmviz.sampling._params import integer, real
from llmviz.sampling.candidates import TokenDataArray
from llmviz.sampling.sampler import Sampler, Why

__all__ = ["Penalties"]


class Penalties(Sampler):
    """Penalize repetition.

    Parameters
    ----------
    penalty_last_n : int
        How many accepted tokens are remembered; 0 or less: off.
    penalty_repeat : float
        > 0. Divides positive logits and multiplies others; 1: none.
    penalty_freq : float
        Finite. Subtracted once per occurrence; 0: none.
    penalty_present : float
        Finite. Subtracted once if the token occurs at all; 0: none.

    Attributes
    ----------
    prev : deque of int
        The remembered tokens, oldest first.
    token_count : Counter
        How often each of them occurs in `prev`.
    """

    name = "penalties"

    def __init__(
        self,
        penalty_last_n: int = 64,
        penalty_repeat: float = 1.0,
        penalty_freq: float = 0.0,
        penalty_present: float = 0.0,
    ) -> None:
        self.penalty_last_n = integer("penalties: penalty_last_n", penalty_last_n)
        self.penalty_repeat = real("penalties: penalty_repeat", penalty_repeat, above=0.0)
        self.penalty_freq = real("penalties: penalty_freq", penalty_freq, finite=True)
        self.penalty_present = real("penalties: penalty_present", penalty_present, finite=True)
        self.prev: deque[int] = deque(maxlen=max(self.penalty_last_n, 0))
        self.token_count: Counter[int] = Counter()

    @property
    def off(self) -> bool:
        """Whether nothing is remembered, or all three penalties are neutral."""
        neutral = f32(self.penalty_repeat) == 1 and not (
            f32(self.penalty_freq) or f32(self.penalty_present)
        )
        return self.penalty_last_n <= 0 or bool(neutral)

    def accept(self, token: int) -> None:
        """Remember a token, forgetting the oldest when full."""
        if self.off:
            return
        if len(self.prev) == self.prev.maxlen:
            oldest = self.prev[0]
            self.token_count[oldest] -= 1
            if not self.token_count[oldest]:
                del self.token_count[oldest]
        self.prev.append(token)
        self.token_count[token] += 1

    def apply(self, cur: TokenDataArray) -> None:
        """Lower the logits of remembered tokens; the candidates no longer count as sorted."""
        if self.off:
            return
        if self.token_count:
            tokens = np.fromiter(self.token_count.keys(), np.int64)  # [m]
            counts = np.fromiter(self.token_count.values(), np.float32)  # [m]
            at, which = cur.positions_of(tokens)
            repeat = f32(self.penalty_repeat)
            logit = cur.logit.copy()  # [n]
            seen = logit[at]  # [h]
            with np.errstate(over="ignore", invalid="ignore"):
                seen = np.where(seen <= 0, seen * repeat, seen / repeat)
                seen -= counts[which] * f32(self.penalty_freq) + f32(self.penalty_present)
            logit[at] = seen
            cur.logit = logit
        cur.sorted = False

    def reset(self) -> None:
        """Forget every token."""
        self.prev.clear()
        self.token_count.clear()

    def clone(self) -> Penalties:
        """Return an independent sampler that remembers the same tokens."""
        out = super().clone()
        assert isinstance(out, Penalties)
        out.prev, out.token_count = self.prev.copy(), self.token_count.copy()
        return out

    def explain(self, before: TokenDataArray, after: TokenDataArray) -> Why:
        """Count the logits changed."""
        if self.off:
            return Why(
                f"penalties are off (last_n {self.penalty_last_n}, repeat {self.penalty_repeat:g}, "
                f"freq {self.penalty_freq:g}, present {self.penalty_present:g})"
            )
        changed = int(np.count_nonzero(before.logit != after.logit))
        return Why(
            f"changed {changed} logits of tokens among the last {len(self.prev)} (of at most "
            f"{self.penalty_last_n}): repeat {self.penalty_repeat:g}, freq {self.penalty_freq:g}, "
            f"present {self.penalty_present:g}",
            self.penalty_repeat,
        )
