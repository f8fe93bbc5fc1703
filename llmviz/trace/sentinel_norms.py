"""What is usual for the size of a layer's values: a median over passes, and how much they spread.

Sizes are compared as logarithms. A value is out of line where it is far from the median of its own
layer, measured by the median deviation of all layers together: so a few tokens are enough. Does not
know of events or debuggers.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from statistics import median

__all__ = ["NormHistory"]

NAMES = re.compile(r"(l_out|ffn_inp|attn_out)-\d+|result_norm")
"""Whose sizes are followed: the stream, and what attention adds to it. What feed-forward networks
add differs by a factor of 30 from token to token in some layers of an ordinary run."""

FEWEST = 6  # passes of one token that must be known before one is judged
KEPT = 64  # passes that are remembered for each node
FAR = 10.0  # median deviations
LEAST = math.log(30.0)  # always allowed: the streams of some tokens are ten times as large
_USUAL = 1.4826  # a median deviation in standard deviations, for a bell curve


class NormHistory:
    """Sizes of nodes by name and event, and a judgement on new ones."""

    def __init__(self) -> None:
        self._held: dict[str, OrderedDict[int, float]] = {}

    def follows(self, name: str) -> bool:
        """Whether the sizes of this node are followed."""
        return NAMES.fullmatch(name) is not None

    def judge(self, name: str, n: int, rms: float, n_tokens: int) -> float | None:
        """The usual size where this one is out of line, else None; it is remembered.

        Parameters
        ----------
        n : int
            Number of the event: only earlier ones are held against it.
        n_tokens : int
            Of the pass: a prompt, whose first token may be huge, is neither judged nor remembered.
        """
        if n_tokens != 1 or not math.isfinite(rms) or rms <= 0:
            return None
        held = self._held.setdefault(name, OrderedDict())
        before = [x for m, x in held.items() if m < n]
        size = math.log(rms)
        usual = None
        if len(before) >= FEWEST:
            middle = median(before)
            if abs(size - middle) > LEAST and abs(size - middle) > FAR * self._spread(name, n):
                usual = math.exp(middle)
        held[n] = size
        while len(held) > KEPT:
            held.popitem(last=False)
        return usual

    def _spread(self, name: str, n: int) -> float:
        """How far values of this kind of node usually are from their layer's median."""
        base = name.rpartition("-")[0] or name
        away: list[float] = []
        for other, held in self._held.items():
            if (other.rpartition("-")[0] or other) != base:
                continue
            before = [x for m, x in held.items() if m < n]
            if len(before) >= FEWEST:
                middle = median(before)
                away += [abs(x - middle) for x in before]
        return _USUAL * median(away) if away else 0.0

    def forget(self, n: int) -> None:
        """Forget what came from event `n` on."""
        for held in self._held.values():
            for m in [m for m in held if m >= n]:
                del held[m]
