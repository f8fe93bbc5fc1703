"""↔ src/llama-sampler.cpp (temp, temp-ext).

Samplers that flatten or sharpen the distribution. Neither changes the number of candidates.
"""

from __future__ import annotations

import numpy as np

from llmviz.sampling._float32 import f32, logf, powf
from llmviz.sampling._params import real
from llmviz.sampling.candidates import TokenDataArray
from llmviz.sampling.sampler import Sampler, Why

__all__ = ["Temp", "TempExt"]


def divide_logits(cur: TokenDataArray, t: np.float32) -> None:
    """Divide the logits by `t`; with t <= 0 set all but the (first) largest to -inf."""
    if cur.size == 0:
        return
    if t <= 0:
        best = int(cur.logit.argmax())
        logit = np.full(cur.size, -np.inf, np.float32)
        logit[best] = cur.logit[best]
        cur.logit = logit
        return
    with np.errstate(over="ignore", invalid="ignore"):
        cur.logit = cur.logit / t


def entropy_of(p: np.ndarray) -> np.float32:
    """Return the entropy in nats of p (float32[n]), summed left to right; 0 ln 0 counts 0."""
    p = p[p > 0]
    terms = p * logf(p)  # [n]
    return np.subtract.accumulate(np.concatenate((np.zeros(1, np.float32), terms)))[-1]


class Temp(Sampler):
    """Divide every logit by a temperature.

    Parameters
    ----------
    t : float
        1: off. 0 or less: only the largest logit stays, the rest become -inf.
    """

    name = "temp"

    def __init__(self, t: float = 0.8) -> None:
        self.t = real("temp: t", t)

    @property
    def off(self) -> bool:
        """Whether t == 1."""
        return bool(f32(self.t) == 1)

    def apply(self, cur: TokenDataArray) -> None:
        """Divide."""
        if not self.off:
            divide_logits(cur, f32(self.t))

    def explain(self, before: TokenDataArray, after: TokenDataArray) -> Why:
        """Say what the temperature does to the spread."""
        return _explain(self.t, before.size)


class TempExt(Sampler):
    """Dynamic temperature: between t - delta and t + delta, by the entropy of the distribution.

    Parameters
    ----------
    t : float
        Middle of the range.
    delta : float
        Half of the range; 0 or less: plain `Temp`.
    exponent : float
        Power that the normalized entropy is raised to.

    Attributes
    ----------
    last_temp : float or None
        The temperature of the last `apply`.
    """

    name = "temp-ext"
    last_temp: float | None = None

    def __init__(self, t: float = 0.8, delta: float = 0.0, exponent: float = 1.0) -> None:
        self.t = real("temp-ext: t", t)
        self.delta = real("temp-ext: delta", delta)
        self.exponent = real("temp-ext: exponent", exponent)

    @property
    def off(self) -> bool:
        """Whether t == 1 without a range."""
        return bool(f32(self.t) == 1 and f32(self.delta) <= 0)

    def apply(self, cur: TokenDataArray) -> None:
        """Measure the entropy, choose the temperature, divide, and renew the probabilities."""
        self.last_temp = None
        if self.off:
            return
        t, delta = f32(self.t), f32(self.delta)
        if not delta > 0:
            divide_logits(cur, t)
            self.last_temp = float(t)
            return
        if cur.size <= 1:
            return
        low, high = max(np.float32(0), t - delta), t + delta
        most = -logf(float(np.float32(1) / np.float32(cur.size)))  # entropy if all were equal
        cur.softmax(True, self.name)
        share = entropy_of(cur.p) / most
        with np.errstate(invalid="ignore", over="ignore"):
            temp = low + (high - low) * powf(share, f32(self.exponent))
        self.last_temp = float(temp)
        divide_logits(cur, temp)
        with np.errstate(invalid="ignore"):
            e = np.exp(cur.logit.astype(np.float64) - float(cur.logit[0]))  # [n]
            cur.p = (e.astype(np.float32) / np.add.accumulate(e)[-1]).astype(np.float32)

    def explain(self, before: TokenDataArray, after: TokenDataArray) -> Why:
        """Name the temperature chosen."""
        if self.last_temp is None:
            return Why("temp-ext left the logits alone: it is off or there is one candidate only")
        plain = _explain(self.last_temp, before.size)
        if not self.delta > 0:
            return plain
        return Why(
            f"the entropy of {before.size} candidates sets the temperature between "
            f"{max(0.0, self.t - self.delta):g} and {self.t + self.delta:g}: {plain.sentence}",
            plain.threshold,
        )


def _explain(t: float, n: int) -> Why:
    if t <= 0:
        return Why(
            f"temperature {t:g} keeps the largest of {n} logits, the rest become -inf",
            t,
        )
    if t == 1:
        return Why("temperature 1 leaves the logits as they are", t)
    effect = "sharper: likely tokens gain" if t < 1 else "flatter: unlikely tokens gain"
    return Why(f"divided {n} logits by temperature {t:.4g} ({effect})", t)
