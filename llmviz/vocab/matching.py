"""Tokens that begin a text, and what a tokenizer decides among them: what WordPiece, Unigram, RWKV
and PLaMo-2 have in common. ↔ src/llama-vocab.cpp (naive_trie)

llama.cpp walks a trie byte by byte. `Prefixes` finds the same tokens with a hash table: the first
bytes of a text tell how long its longest token can be, and every length up to that is looked up.
A vocabulary of 250,000 tokens is indexed in a fraction of a second, and a text costs its length
times that of a token.

Does not know which of the tokens is best: a tokenizer decides that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

__all__ = ["Choice", "Match", "Prefixes"]

_HEAD = 3


class Match(NamedTuple):
    """A stretch of text that became one token.

    Attributes
    ----------
    word : int
        Which word of the last ``pre_tokenize`` event it is in.
    text : str
        The stretch as the tokenizer sees it: normalized, with ``▁`` where the vocabulary writes it.
    id : int
        The token.
    offset, length : int
        The bytes of the prompt that it covers.
    shorter : list of (str, int)
        Tokens that begin this stretch too and were passed over because they are shorter.
    """

    word: int
    text: str
    id: int
    offset: int
    length: int
    shorter: list[tuple[str, int]]


class Choice(NamedTuple):
    """One token that could stand at a place of the text, with what the text costs through it.

    Attributes
    ----------
    start, end : int
        Places in the text as the tokenizer sees it: bytes (Unigram) or characters (PLaMo-2).
    text : str
        What lies between.
    id : int
        The token; the unknown token, or -1 for the bytes of a character that is no token.
    score : float
        The token's own score.
    total : float
        Best sum of scores through this token: from the beginning up to `end` (Unigram), or from
        `start` to the end (PLaMo-2). Higher is better.
    best : bool
        Whether it was the best for its place when it was looked at.
    """

    start: int
    end: int
    text: str
    id: int
    score: float
    total: float
    best: bool


class Prefixes:
    """Which of some byte strings begin a text.

    Parameters
    ----------
    ids : mapping of bytes to int
        The strings, none empty, and what they stand for.
    """

    def __init__(self, ids: Mapping[bytes, int]) -> None:
        self.ids = ids
        self._longest = _longest_by_head(ids)

    def at(self, text: bytes, place: int) -> Iterator[tuple[int, int]]:
        """``(length, id)`` of every string that begins ``text[place:]``, shortest first."""
        find = self.ids.get
        for length in range(1, self._bound(text, place) + 1):
            token = find(text[place : place + length])
            if token is not None:
                yield length, token

    def longest_at(self, text: bytes, place: int) -> tuple[int, int] | None:
        """``(length, id)`` of the longest one, None where none begins the text."""
        find = self.ids.get
        for length in range(self._bound(text, place), 0, -1):
            token = find(text[place : place + length])
            if token is not None:
                return length, token
        return None

    def _bound(self, text: bytes, place: int) -> int:
        """Length that no string beginning here exceeds."""
        longest = self._longest.get
        head = text[place : place + _HEAD]
        bound = max(longest(head[:n], 0) for n in range(len(head) + 1))
        return min(bound, len(text) - place)


def _longest_by_head(texts: Iterable[bytes]) -> dict[bytes, int]:
    """Length of the longest text by its first bytes; a short text is its own head."""
    longest: dict[bytes, int] = {}
    for text in texts:
        head = text[:_HEAD]
        if longest.get(head, 0) < len(text):
            longest[head] = len(text)
    return longest
