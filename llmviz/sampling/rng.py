"""↔ std::mt19937 and libstdc++'s uniform_real_distribution, as src/llama-sampler.cpp uses them.

numpy's legacy seeding of MT19937 is the C++ seeding, so the stream of 32-bit words is the same;
this module turns words into the same real numbers. Does not do: other generators.
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LLAMA_DEFAULT_SEED", "Rng", "draw_by_probability"]

LLAMA_DEFAULT_SEED = 0xFFFFFFFF
"""This seed asks for a random one, drawn anew at each reset."""


class Rng:
    """A seeded stream of random numbers.

    Parameters
    ----------
    seed : int
        0 .. 2**32 - 1; `LLAMA_DEFAULT_SEED` for a random one.

    Attributes
    ----------
    seed_cur : int
        The seed really used.
    draws : int
        Numbers drawn since the last reset.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._bits = np.random.MT19937(0)
        self.reset()

    def reset(self) -> None:
        """Start the stream again; with `LLAMA_DEFAULT_SEED`, a new one."""
        self.seed_cur = secrets.randbits(32) if self.seed == LLAMA_DEFAULT_SEED else self.seed
        self.draws = 0
        state: Any = np.random.RandomState(self.seed_cur).get_state(legacy=False)
        self._bits.state = state

    def uniform(self) -> float:
        """Draw a double in [0, 1): two words, the first the low half."""
        self.draws += 1
        low, high = self._bits.random_raw(2)
        return min((float(low) + float(high) * 2.0**32) / 2.0**64, 1.0 - 2.0**-53)

    def uniform_float(self) -> float:
        """Draw a float32 in [0, 1): one word."""
        self.draws += 1
        r = np.float32(self._bits.random_raw()) / np.float32(2.0**32)
        return min(float(r), 1.0 - 2.0**-24)

    def clone(self) -> Rng:
        """Return a generator that goes on with the same numbers, independently."""
        out = Rng.__new__(Rng)
        out.seed, out.seed_cur, out.draws = self.seed, self.seed_cur, self.draws
        out._bits = np.random.MT19937(0)
        out._bits.state = self._bits.state
        return out


def draw_by_probability(p: NDArray[np.float32], rng: Rng) -> tuple[int, float | None]:
    """Draw a place by its probability, as ``std::discrete_distribution`` does.

    Parameters
    ----------
    p : float32[n]
        n > 0.
    rng : Rng
        Gives one number, none where n is 1.

    Returns
    -------
    place : int
    draw : float or None
        The number drawn.
    """
    if p.size < 2:
        return 0, None
    draw = rng.uniform()
    wide = p.astype(np.float64)  # [n]
    run = np.add.accumulate(wide / np.add.accumulate(wide)[-1])
    run[-1] = 1.0
    return int(np.searchsorted(run, draw)), draw
