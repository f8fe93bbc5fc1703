"""↔ src/llama-sampler.cpp (dry).

"Don't repeat yourself": lowers the tokens that would continue a sequence that was already said, the
more the longer the repetition has become. Sequence breakers (a line end, a quote) end a repetition.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from llmviz.errors import SamplerError
from llmviz.sampling._float32 import f32, logf
from llmviz.sampling._params import integer, real
from llmviz.sampling.candidates import TokenDataArray
from llmviz.sampling.sampler import Sampler, Why

__all__ = ["DRY"]

FLOAT_MAX_LOG = np.float32(88.7228391)
MAX_BREAKER_BYTES = 40
MAX_BREAKER_TAIL = 20


class BreakerVocab(Protocol):
    """What text breakers need of a vocabulary."""

    @property
    def n_tokens(self) -> int:
        """Number of tokens."""
        ...

    def token_to_piece(self, token: int, lstrip: int = 0, special: bool = False) -> bytes:
        """Return the text of a token."""
        ...

    def tokenize(
        self, text: bytes, add_special: bool = True, parse_special: bool = False
    ) -> list[int]:
        """Return the tokens of a text."""
        ...


class DRY(Sampler):
    """Penalize tokens that would prolong a repetition.

    A token that would continue a repetition of length n >= `dry_allowed_length` loses
    ``dry_multiplier * dry_base ** (n - dry_allowed_length)``.

    Parameters
    ----------
    dry_multiplier : float
        0: off.
    dry_base : float
        Less than 1: off.
    dry_allowed_length : int
        Repetitions shorter than this cost nothing.
    dry_penalty_last_n : int
        How many accepted tokens are searched; 0 or less: off.
    seq_breakers : iterable of str, bytes or sequence of int
        Text (needs `vocab`) or token ids.
    vocab : Vocab
        Turns text breakers into tokens.

    Raises
    ------
    SamplerError
        For text breakers without a vocabulary.
    """

    name = "dry"

    def __init__(
        self,
        dry_multiplier: float = 0.0,
        dry_base: float = 1.75,
        dry_allowed_length: int = 2,
        dry_penalty_last_n: int = 64,
        seq_breakers: Iterable[str | bytes | Sequence[int]] = (),
        vocab: BreakerVocab | None = None,
    ) -> None:
        self.dry_multiplier = real("dry: dry_multiplier", dry_multiplier)
        self.dry_base = real("dry: dry_base", dry_base)
        self.dry_allowed_length = integer("dry: dry_allowed_length", dry_allowed_length)
        self.dry_penalty_last_n = integer("dry: dry_penalty_last_n", dry_penalty_last_n)
        if isinstance(seq_breakers, str | bytes):
            raise SamplerError(
                "dry: seq_breakers must be a list, such as ['\\n', ':'], not one text"
            )
        self.seq_breakers = list(seq_breakers)
        self.vocab = vocab
        self.last_tokens: deque[int] = deque(maxlen=max(self.dry_penalty_last_n, 0))
        self._breakers: dict[int, list[list[int]]] = {}  # first token -> what must follow it
        for breaker in () if self.off else self.seq_breakers:
            self._add_breaker(breaker)
        self._repeats: dict[int, int] = {}  # token -> length of the repetition it would prolong

    @property
    def params(self) -> dict[str, Any]:
        """Parameters by name, without the vocabulary."""
        return {key: value for key, value in super().params.items() if key != "vocab"}

    @property
    def off(self) -> bool:
        """Whether the multiplier is 0, the base below 1 or nothing is remembered."""
        return bool(
            f32(self.dry_multiplier) == 0 or f32(self.dry_base) < 1 or self.dry_penalty_last_n <= 0
        )

    def _add_breaker(self, breaker: str | bytes | Sequence[int]) -> None:
        if not isinstance(breaker, str | bytes):
            ids = [integer("dry: seq_breakers: token", token) for token in breaker]
            if ids:
                self._breakers.setdefault(ids[0], []).append(ids[1:])
            return
        if self.vocab is None:
            raise SamplerError(
                f"dry: the text breaker {breaker!r} needs vocab=model.vocab; "
                "or give it as token ids"
            )
        text = (breaker.encode() if isinstance(breaker, str) else breaker)[:MAX_BREAKER_BYTES]
        if text:
            for head, tail in _overlaps(text, self.vocab):
                tails = self._breakers.setdefault(head, [])
                if not tail or tail not in tails:
                    tails.append(tail)

    def accept(self, token: int) -> None:
        """Remember a token."""
        if not self.off:
            self.last_tokens.append(token)

    def apply(self, cur: TokenDataArray) -> None:
        """Lower the logits; the candidates no longer count as sorted."""
        self._repeats = {}
        n = len(self.last_tokens)
        if self.off or n <= self.dry_allowed_length:
            return
        recent = list(reversed(self.last_tokens))  # newest first
        limit = self._unbroken(recent)
        if limit < self.dry_allowed_length:
            return
        for start, length in enumerate(_prefix_lengths(recent, limit)):
            # recent[start:] begins like the newest tokens: recent[start - 1] came next back then.
            if start > 0 and length >= self.dry_allowed_length:
                token = recent[start - 1]
                self._repeats[token] = max(length, self._repeats.get(token, length))
        self._repeats = {
            token: length
            for token, length in self._repeats.items()
            if [] not in self._breakers.get(token, ())
        }
        if self._repeats:
            tokens = np.fromiter(self._repeats.keys(), np.int64)  # [m]
            penalty = np.array([self._penalty(x) for x in self._repeats.values()], np.float32)
            at, which = cur.positions_of(tokens)
            logit = cur.logit.copy()  # [n]
            logit[at] -= penalty[which]
            cur.logit = logit
        cur.sorted = False

    def _unbroken(self, recent: list[int]) -> int:
        """Return how many of the newest tokens come after the last breaker (newest first)."""
        for i, token in enumerate(recent):
            fits = [
                len(tail)
                for tail in self._breakers.get(token, ())
                if len(tail) <= i and tail == recent[i - len(tail) : i][::-1]
            ]
            if fits:
                return i - max(fits)
        return len(recent)

    def _penalty(self, length: int) -> np.float32:
        base = f32(self.dry_base)
        exponent = length - self.dry_allowed_length
        if base > np.float32(1.000001):  # keep base ** exponent within float32
            exponent = min(exponent, int(FLOAT_MAX_LOG / logf(base)))
        return f32(float(f32(self.dry_multiplier)) * math.pow(float(base), exponent))

    def reset(self) -> None:
        """Forget every token."""
        self.last_tokens.clear()
        self._repeats = {}

    def clone(self) -> DRY:
        """Return an independent sampler that remembers the same tokens."""
        out = super().clone()
        assert isinstance(out, DRY)
        out.last_tokens = self.last_tokens.copy()
        return out

    def explain(self, before: TokenDataArray, after: TokenDataArray) -> Why:
        """Name the longest repetition and its penalty."""
        if not self._repeats:
            return Why(
                "dry is off"
                if self.off
                else f"no repetition of {self.dry_allowed_length} or more tokens could go on"
            )
        token, length = max(self._repeats.items(), key=lambda item: item[1])
        penalty = float(self._penalty(length))
        return Why(
            f"lowered what would continue a repetition ({len(self._repeats)} ids); the longest is "
            f"{length} tokens before token {token}: {self.dry_multiplier:g} * {self.dry_base:g}^"
            f"{length - self.dry_allowed_length} = {penalty:.4g}",
            penalty,
        )


def _prefix_lengths(recent: list[int], limit: int) -> list[int]:
    """Return for each k how far recent[k:] agrees with recent, at most `limit` (the Z-algorithm).

    The limit is applied to stored lengths, which later ones are copied from: as in llama.cpp.
    """
    n = len(recent)
    lengths = [0] * n
    left = right = 0  # recent[left:right + 1] is the match that reaches furthest
    for k in range(1, n):
        if k <= right and lengths[k - left] < right - k + 1:
            lengths[k] = min(lengths[k - left], limit)
            continue
        end = right + 1 if k <= right else k
        inside = k <= right
        while end < n and recent[end] == recent[end - k]:
            end += 1
        lengths[k] = min(end - k, limit)
        if inside or end > k:
            left, right = k, end - 1
    return lengths


def _overlaps(text: bytes, vocab: BreakerVocab) -> Iterable[tuple[int, list[int]]]:
    """Yield (token, tokens that must follow it) for each place where `text` can begin."""
    lstrip = int(bool(getattr(vocab, "add_space_prefix", False)))
    for token in range(vocab.n_tokens):
        word = vocab.token_to_piece(token, lstrip=lstrip, special=True)
        if text in word:
            yield token, []
            continue
        at = word.find(text[:1])
        while at >= 0:
            have = len(word) - at
            if text.startswith(word[at:]):
                tail = vocab.tokenize(text[have:], add_special=False, parse_special=False)
                yield token, tail[:MAX_BREAKER_TAIL]
            at = word.find(text[:1], at + 1)
