"""Joining neighbours, best pair first: what SentencePiece and byte-pair tokenizers have in common.
↔ src/llama-vocab.cpp (llm_symbol, llm_tokenizer_spm_session, llm_tokenizer_bpe_session)

A text is a row of symbols. All neighbouring pairs that may be joined wait in a heap; the best one
is joined, which makes two new pairs with the neighbours, and so on until none is left. A pair
whose symbols have changed since it was pushed is thrown away when it comes up. n symbols cost O(n
log n).

Does not know what makes a pair good: a tokenizer passes that in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from llmviz.events import Event, Steps
from llmviz.vocab.unicode import decode_bytes_text

__all__ = ["Film", "Merge", "join_best", "join_steps"]

Priority = Callable[[bytes, bytes], float | None]


def join_best(
    parts: list[bytes], priority: Priority
) -> Iterator[tuple[float, int, int, bytes, bytes]]:
    """Join the symbols in `parts`, in place, one pair each time the iterator is advanced.

    Parameters
    ----------
    parts : list of bytes
        The symbols. A joined pair stays in its left place; its right place becomes empty.
    priority : callable
        Of two neighbouring symbols: lowest is joined first, ties go to the leftmost pair, None
        means that they may not be joined.

    Yields
    ------
    (priority, left, right, a, b)
        After each join: the pair's priority, its places in `parts`, and the two symbols joined.
    """
    n = len(parts)
    before = list(range(-1, n - 1))
    after = [*range(1, n), -1]
    heap = []
    for left in range(n - 1):
        best = priority(parts[left], parts[left + 1])
        if best is not None:
            heap.append((best, left, left + 1, len(parts[left]) + len(parts[left + 1])))
    heapify(heap)
    while heap:
        best, left, right, size = heappop(heap)
        a, b = parts[left], parts[right]
        if not a or not b or len(a) + len(b) != size:
            continue  # one of the two has been joined to something else since
        joined = a + b
        parts[left], parts[right] = joined, b""
        following = after[left] = after[right]
        if following >= 0:
            before[following] = left
        yield best, left, right, a, b
        preceding = before[left]
        if preceding >= 0:
            other = parts[preceding]
            best = priority(other, joined)
            if best is not None:
                heappush(heap, (best, preceding, left, len(other) + size))
        if following >= 0:
            other = parts[following]
            best = priority(joined, other)
            if best is not None:
                heappush(heap, (best, left, following, size + len(other)))


class Film:
    """Everything needed to show one word's symbols as they were after each join.

    Attributes
    ----------
    word : int
        Which word of the last ``pre_tokenize`` event.
    initial : tuple of bytes
        The symbols before any join.
    joins : list of (int, int)
        Left and right place of each join so far, as places in `initial`; grows while the word is
        merged.
    """

    __slots__ = ("initial", "joins", "word")

    def __init__(self, word: int, initial: tuple[bytes, ...]) -> None:
        self.word = word
        self.initial = initial
        self.joins: list[tuple[int, int]] = []

    def symbols(self, n_joins: int) -> list[str]:
        """The symbols after the first `n_joins` joins."""
        inner = {right for _, right in self.joins[:n_joins]}
        symbols: list[bytes] = []
        for place, part in enumerate(self.initial):
            if place in inner:
                symbols[-1] += part
            else:
                symbols.append(part)
        return [decode_bytes_text(symbol) for symbol in symbols]

    def position(self, n_joins: int) -> int:
        """Index that the left symbol of join number `n_joins` (from 1) has, before and after it."""
        left = self.joins[n_joins - 1][0]
        return left - sum(right <= left for _, right in self.joins[: n_joins - 1])


@dataclass(frozen=True, slots=True)
class Merge:
    """One join, as a view shows it.

    Attributes
    ----------
    left, right, result : str
        The two symbols and what they became, as the vocabulary writes them (``Ġ`` or ``▁`` for a
        space); bytes that are no whole character as ``\\xNN``.
    id : int
        Token id of `result`, -1 if it is none.
    rank : int or None
        Byte-pair vocabularies: which line of the merges list; lowest goes first.
    score : float or None
        SentencePiece vocabularies: score of the resulting token; highest goes first.
    n : int
        Which join of its word this is, from 1.
    film : Film
        The word's joins so far.
    """

    left: str
    right: str
    result: str
    id: int
    rank: int | None
    score: float | None
    n: int
    film: Film

    @property
    def word(self) -> int:
        """Which word of the last ``pre_tokenize`` event this join is in."""
        return self.film.word

    @property
    def position(self) -> int:
        """Index of the left symbol before the join, and of the result after it."""
        return self.film.position(self.n)

    @property
    def symbols(self) -> list[str]:
        """The word's symbols after this join; made when asked for, and stays right afterwards."""
        return self.film.symbols(self.n)


def join_steps(
    parts: list[bytes],
    priority: Priority,
    find: Callable[[bytes], int],
    *,
    ranked: bool,
    word: int,
    depth: int,
) -> Steps[None]:
    """`join_best` as events: one ``"merge"`` with a `Merge` per join.

    Parameters
    ----------
    parts, priority
        As for `join_best`.
    find : callable
        Id of a token's text, -1 if it is none.
    ranked : bool
        Whether a priority is a rank; else it is a negated score.
    word : int
        Which word of the last ``pre_tokenize`` event this is.
    """
    film = Film(word, tuple(parts))
    for n, (best, left, right, a, b) in enumerate(join_best(parts, priority), 1):
        film.joins.append((left, right))
        merge = Merge(
            decode_bytes_text(a),
            decode_bytes_text(b),
            decode_bytes_text(a + b),
            find(a + b),
            int(best) if ranked else None,
            None if ranked else -best,
            n,
            film,
        )
        yield Event("data", "merge", depth, 9, merge)
