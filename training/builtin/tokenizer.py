"""A byte-level BPE, trained on the corpus: words first as bytes, then the commonest pair merged.

The pre-tokenizer is GPT-2's, written for ASCII: the corpus has nothing else.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

WORDS = re.compile(
    r"'(?:[stmd]|re|ve|ll)| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+"
)  # fmt: skip
BOS, EOS = "<s>", "</s>"


def byte_characters() -> list[str]:
    """The character that stands for each of the 256 bytes in the vocabulary."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(others)) for b in range(256)]


def train(counts: Counter[str], n_vocab: int) -> list[tuple[str, str]]:
    """Merges, in order, until the vocabulary has `n_vocab` tokens or nothing is left to merge."""
    chars = byte_characters()
    words = [([chars[b] for b in w.encode()], n) for w, n in sorted(counts.items())]
    merges: list[tuple[str, str]] = []
    while len(merges) < n_vocab - 256 - 2:
        pairs: Counter[tuple[str, str]] = Counter()
        for parts, n in words:
            for pair in pairwise(parts):
                pairs[pair] += n
        if not pairs:
            break
        best = max(pairs, key=lambda p: (pairs[p], p))
        merges.append(best)
        for parts, _ in words:
            _merge(parts, best)
    return merges


def _merge(parts: list[str], pair: tuple[str, str]) -> None:
    """Join each occurrence of the pair, in place."""
    at = 0
    while at < len(parts) - 1:
        if (parts[at], parts[at + 1]) == pair:
            parts[at : at + 2] = ["".join(pair)]
        at += 1


class Tokenizer:
    """Text to ids: ``<s>``, ``</s>``, the 256 bytes, then a token for each merge."""

    def __init__(self, merges: list[tuple[str, str]]) -> None:
        self.merges = merges
        self.tokens = [BOS, EOS, *byte_characters(), *("".join(m) for m in merges)]
        self.ids = {text: i for i, text in enumerate(self.tokens)}
        self.bos, self.eos = 0, 1
        self._ranks = {pair: i for i, pair in enumerate(merges)}
        self._chars = byte_characters()
        self._words: dict[str, list[int]] = {}

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Read the merges that `save` wrote."""
        return cls([tuple(m.split(" ")) for m in json.loads(path.read_text("utf-8"))])

    def save(self, path: Path) -> None:
        """Write the merges: all that there is to know."""
        text = json.dumps([" ".join(m) for m in self.merges], ensure_ascii=False)
        path.write_text(text, "utf-8")

    def word(self, word: str) -> list[int]:
        """Ids of one word of the pre-tokenizer."""
        known = self._words.get(word)
        if known is None:
            parts = [self._chars[b] for b in word.encode()]
            while len(parts) > 1:
                best = min(pairwise(parts), key=lambda p: self._ranks.get(p, len(self._ranks)))
                if best not in self._ranks:
                    break
                _merge(parts, best)
            known = self._words[word] = [self.ids[p] for p in parts]
        return known

    def encode(self, text: str) -> tuple[list[int], dict[int, int]]:
        """Ids without ``<s>``, and for each start of a word its index among them."""
        ids: list[int] = []
        starts: dict[int, int] = {}
        for match in WORDS.finditer(text):
            starts[match.start()] = len(ids)
            ids += self.word(match.group())
        return ids, starts

    def decode(self, ids: list[int]) -> str:
        """Text of ids; ``<s>`` and ``</s>`` write nothing."""
        values = {c: b for b, c in enumerate(self._chars)}
        joined = "".join(self.tokens[i] for i in ids if i > 1)
        return bytes(values[c] for c in joined).decode("utf-8", errors="replace")
