"""↔ src/llama-sampler.cpp (mirostat, mirostat-v2).

Steers the surprise of the text towards a target: after each draw `mu`, the most surprise allowed,
moves by the error. Both draw a token themselves, so they end a chain in place of dist.
"""

from __future__ import annotations

import math

import numpy as np

from llmviz.sampling._float32 import f32, log2f, logf, powf
from llmviz.sampling._params import INT32_MAX, integer, real
from llmviz.sampling._params import seed as check_seed
from llmviz.sampling.candidates import TokenDataArray
from llmviz.sampling.rng import LLAMA_DEFAULT_SEED, Rng, draw_by_probability
from llmviz.sampling.sampler import Sampler, Why

__all__ = ["Mirostat", "MirostatV2"]


class _Steered(Sampler):
    """What both versions share: the draw, and mu following it."""

    selects = True
    tau: float
    eta: float

    def _start(self, seed: int) -> None:
        self.seed = check_seed(self.name, seed)
        self.rng = Rng(self.seed)
        self.mu = np.float32(2) * f32(self.tau)
        self.last_mu = self.mu

    def _draw(self, cur: TokenDataArray) -> None:
        """Draw by `cur.p` (no number is drawn for a single candidate) and move mu."""
        self.last_mu = self.mu
        cur.selected, self.last_draw = draw_by_probability(cur.p, self.rng)
        surprise = -log2f(cur.p[cur.selected])
        self.mu = self.mu - f32(self.eta) * (surprise - f32(self.tau))

    def reset(self) -> None:
        """Start again: mu = 2 tau, the first random number."""
        self.rng.reset()
        self.mu = self.last_mu = np.float32(2) * f32(self.tau)
        self.last_draw = None

    def clone(self) -> _Steered:
        """Return an independent sampler in the same state."""
        out = super().clone()
        assert isinstance(out, _Steered)
        out.rng = self.rng.clone()
        return out

    def explain(self, before: TokenDataArray, after: TokenDataArray) -> Why:
        """Name mu before and after the draw."""
        return Why(
            f"mu = {self.last_mu:.4g} bits left {after.size} of {before.size} candidates; drew "
            f"token {after.selected_id} (p = {float(after.p[after.selected]):.4g}), mu is now "
            f"{self.mu:.4g} for a target of tau = {self.tau:g}",
            float(self.last_mu),
        )


class Mirostat(_Steered):
    """Mirostat 1.0: a top-k whose k is estimated from the slope of the best `m` probabilities.

    Parameters
    ----------
    n_vocab : int
        Size of the vocabulary, for the estimate.
    seed : int
        As of `Dist`.
    tau : float
        Target surprise in bits.
    eta : float
        How fast mu follows the error.
    m : int
        How many probabilities the slope is estimated from.

    Attributes
    ----------
    mu : float32
        The most surprise allowed at the next token.
    """

    name = "mirostat"

    def __init__(
        self,
        n_vocab: int,
        seed: int = LLAMA_DEFAULT_SEED,
        tau: float = 5.0,
        eta: float = 0.1,
        m: int = 100,
    ) -> None:
        self.n_vocab = integer("mirostat: n_vocab", n_vocab, 1)
        self.tau = real("mirostat: tau", tau)
        self.eta = real("mirostat: eta", eta)
        self.m = integer("mirostat: m", m, 1)
        self._start(seed)

    def apply(self, cur: TokenDataArray) -> None:
        """Cut to the estimated k, draw, and move mu."""
        cur.softmax(True, self.name)
        with np.errstate(all="ignore"):
            n = min(self.m - 1, cur.size - 1)
            rank = np.arange(1, n + 1, dtype=np.float32)  # [n]
            t = logf((rank + 1) / rank)
            b = logf(cur.p[:n] / cur.p[1 : n + 1])
            zero = np.zeros(1, np.float32)
            slope = (
                np.add.accumulate(np.concatenate((zero, t * b)))[-1]
                / np.add.accumulate(np.concatenate((zero, t * t)))[-1]
            )
            epsilon = slope - np.float32(1)
            k = powf(
                (epsilon * powf(2, self.mu)) / (np.float32(1) - powf(self.n_vocab, -epsilon)),
                np.float32(1) / slope,
            )
        # C++ turns a NaN or too large k into the smallest int, which max(k, 1) makes 1.
        fits = math.isfinite(k) and k <= INT32_MAX
        cur.keep(slice(max(int(k), 1) if fits else 1))
        cur.softmax(True, self.name)
        self._draw(cur)


class MirostatV2(_Steered):
    """Mirostat 2.0: drops the tokens with more surprise than mu.

    Parameters
    ----------
    seed : int
        As of `Dist`.
    tau : float
        Target surprise in bits.
    eta : float
        How fast mu follows the error.

    Attributes
    ----------
    mu : float32
        The most surprise allowed at the next token.
    """

    name = "mirostat-v2"

    def __init__(self, seed: int = LLAMA_DEFAULT_SEED, tau: float = 5.0, eta: float = 0.1) -> None:
        self.tau = real("mirostat-v2: tau", tau)
        self.eta = real("mirostat-v2: eta", eta)
        self._start(seed)

    def apply(self, cur: TokenDataArray) -> None:
        """Cut where the surprise passes mu (the best always stays), draw, and move mu."""
        cur.softmax(True, self.name)
        over = np.flatnonzero(-log2f(cur.p) > self.mu)
        if over.size:
            cur.keep(slice(max(int(over[0]), 1)))
        cur.softmax(True, self.name)
        self._draw(cur)
