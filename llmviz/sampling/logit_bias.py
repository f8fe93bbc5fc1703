"""↔ src/llama-sampler.cpp (logit-bias).

Adds a fixed number to the logits of chosen tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from llmviz.errors import SamplerError
from llmviz.sampling._float32 import f32
from llmviz.sampling._params import integer, real
from llmviz.sampling.candidates import TokenDataArray
from llmviz.sampling.sampler import Sampler, Why

__all__ = ["LogitBias"]


class LogitBias(Sampler):
    """Add a bias to the logits of tokens; -inf forbids a token.

    Parameters
    ----------
    logit_bias : mapping or iterable of (token, bias)
        Empty: off. An id that is no candidate is passed over. Given twice, a token gets both biases
        while the candidates are the whole vocabulary in order, and the first one otherwise.
    """

    name = "logit-bias"

    def __init__(self, logit_bias: Mapping[int, float] | Iterable[tuple[int, float]] = ()) -> None:
        pairs = logit_bias.items() if isinstance(logit_bias, Mapping) else logit_bias
        self.logit_bias: list[tuple[int, float]] = []
        try:
            for token, bias in pairs:
                where = f"logit-bias: entry {len(self.logit_bias)}"
                self.logit_bias.append(
                    (integer(f"{where}: token", token), real(f"{where}: bias", bias))
                )
        except (TypeError, ValueError):
            raise SamplerError(
                "logit-bias: logit_bias must be a dict or pairs of (token, bias), "
                f"not {logit_bias!r}"
            ) from None
        self._token = np.array([token for token, _ in self.logit_bias], np.int64)  # [m]
        self._bias = np.array([f32(bias) for _, bias in self.logit_bias], np.float32)  # [m]

    @property
    def off(self) -> bool:
        """Whether there is no bias."""
        return not self.logit_bias

    def apply(self, cur: TokenDataArray) -> None:
        """Add the biases. The flag `sorted` is left as it is, as in llama.cpp."""
        if self.off or cur.size == 0:
            return
        inside = (self._token >= 0) & (self._token < cur.size)
        place = np.where(inside, self._token, 0)
        at_home = inside & (cur.id[place] == self._token)
        logit = cur.logit.copy()  # [n]
        with np.errstate(invalid="ignore", over="ignore"):
            np.add.at(logit, place[at_home], self._bias[at_home])
            tokens, first = np.unique(self._token[~at_home], return_index=True)
            at, which = cur.positions_of(tokens)
            logit[at] += self._bias[~at_home][first[which]]
        cur.logit = logit

    def explain(self, before: TokenDataArray, after: TokenDataArray) -> Why:
        """Count the logits changed."""
        changed = int(np.count_nonzero(before.logit != after.logit))
        return Why(
            f"changed {changed} of {before.size} logits (biases given: {len(self.logit_bias)})"
        )
