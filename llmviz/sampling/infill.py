"""↔ src/llama-sampler.cpp (infill).

For filling a gap in a text: stops early rather than late, and takes tokens that begin alike for
one. Comes after top-k and top-p.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from llmviz.errors import SamplerError
from llmviz.sampling._float32 import Float32
from llmviz.sampling.candidates import TokenDataArray
from llmviz.sampling.sampler import Sampler, Why

__all__ = ["Infill"]


class InfillVocab(Protocol):
    """What infill needs of a vocabulary."""

    eot: int
    eos: int

    def is_eog(self, token: int) -> bool:
        """Whether a token ends generation."""
        ...

    def token_to_piece(self, token: int, lstrip: int = 0, special: bool = False) -> bytes:
        """Return the text of a token."""
        ...


class Infill(Sampler):
    """Fill-in-the-middle: end where the end is likely enough, else join what begins alike.

    1. Where three times the end's probability, times the number of candidates, is more than all
       others' together, only tokens that end generation are left.
    2. The probability of a token whose text begins with another's goes to the likelier of the two.
    3. Of the others those below 0.2 are dropped; where none is left, the end of turn is the only
       candidate. Then those below 1 / (their number + 1).

    `p` is used and renewed; logits stay, but for -inf where a token was joined to another.

    Parameters
    ----------
    vocab : Vocab
    """

    name = "infill"

    def __init__(self, vocab: InfillVocab) -> None:
        if not hasattr(vocab, "is_eog"):
            raise SamplerError(f"infill needs a vocabulary, such as model.vocab, not {vocab!r}")
        self.vocab = vocab
        self._did = ""

    @property
    def params(self) -> dict[str, Any]:
        """No parameters but the vocabulary."""
        return {}

    def apply(self, cur: TokenDataArray) -> None:
        """Cut and join the candidates.

        Raises
        ------
        SamplerError
            There is no candidate; or only the end is left and the vocabulary has none.
        """
        cur.softmax(True, self.name)
        eog = np.array([self.vocab.is_eog(int(t)) for t in cur.id])  # [n]
        text_sum, eog_sum = _sum(cur.p[~eog]), _sum(cur.p[eog])
        if np.float32(3) * eog_sum * np.float32(cur.size) > text_sum:
            cur.keep(eog)
            cur.p = cur.p / _sum(cur.p)
            self._did = f"the end has a probability of {float(eog_sum):.4g}: only it is left"
            return
        n_joined = self._join(cur)
        first = cur.copy()
        kept = ~(cur.p < np.float32(0.2)) | eog  # a NaN stays
        n_text = int(np.count_nonzero(kept & ~eog))
        cur.keep(kept)
        eog = eog[kept]
        if n_text == 0:
            self._only_the_end(cur if cur.size else first, cur)
            self._did = f"{n_joined} joined; no text has 0.2 or more: only the end is left"
            return
        cur.p = cur.p / _sum(cur.p)
        limit = np.float32(1.0 / (n_text + 1))
        cur.keep(~(cur.p < limit) | eog)
        cur.p = cur.p / _sum(cur.p)
        self._did = f"{n_joined} joined to tokens that begin alike; those below {limit:.4g} dropped"

    def _join(self, cur: TokenDataArray) -> int:
        """Give the probability of tokens to those that begin alike; how many were joined."""
        pieces = [bytes(self.vocab.token_to_piece(int(t), 0, False)) for t in cur.id]
        known = set(pieces)
        begins: dict[bytes, list[int]] = {}  # text -> candidates whose text begins with it
        for i, piece in enumerate(pieces):
            for n in range(1, len(piece) + 1):
                if piece[:n] in known:
                    begins.setdefault(piece[:n], []).append(i)
        p, logit = cur.p.copy(), cur.logit.copy()
        n_joined = 0
        for i, piece in enumerate(pieces):
            for j in begins.get(piece, ()):
                if logit[i] == -np.inf:
                    break
                if i == j or logit[j] == -np.inf:
                    continue
                to, of = (j, i) if p[j] > p[i] else (i, j)
                p[to] += p[of]
                logit[of], p[of] = -np.inf, 0
                n_joined += 1
        cur.p, cur.logit = p, logit
        return n_joined

    def _only_the_end(self, first: TokenDataArray, cur: TokenDataArray) -> None:
        token = self.vocab.eot if self.vocab.eot != -1 else self.vocab.eos
        if token == -1:
            raise SamplerError("infill: only the end is left, and the vocabulary has no eot or eos")
        cur.id = np.array([token], np.int32)
        cur.logit = np.ones(1, np.float32)
        cur.p = first.p[:1]

    def explain(self, before: TokenDataArray, after: TokenDataArray) -> Why:
        """Say what was cut and joined."""
        return Why(f"infill: {self._did}; {after.size} of {before.size} candidates are left")


def _sum(p: Float32) -> np.float32:
    """From left to right, as in C."""
    return np.add.accumulate(p, dtype=np.float32)[-1] if p.size else np.float32(0)
