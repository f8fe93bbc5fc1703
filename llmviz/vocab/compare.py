"""Where two vocabularies, or two settings of one, part on a text, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmviz.vocab.merging import Merge
from llmviz.vocab.tokenized import Tokenized, difference, tokenized

__all__ = ["Parting", "compare", "first_difference"]


@dataclass(frozen=True, slots=True, eq=False)
class Parting:
    """The first place where two tokenizations of a text differ.

    Attributes
    ----------
    byte : int
        First byte of the text whose tokens differ.
    index : tuple of (int, int)
        The first token of each that differs; the number of tokens where one has ended.
    ids, pieces : tuple
        Id (-1) and text ("") of these tokens.
    join : int
        Which join of the word, from 0, was the first to differ; -1 where both have the same joins
        or do not merge.
    merges : tuple of (Merge or None, Merge or None)
        That join in each; None where one has no further join.
    a, b : Tokenized
        Both tokenizations whole.
    """

    byte: int
    index: tuple[int, int]
    ids: tuple[int, int]
    pieces: tuple[str, str]
    join: int
    merges: tuple[Merge | None, Merge | None]
    a: Tokenized
    b: Tokenized

    def __str__(self) -> str:
        first, second = (
            f"{piece!r} ({token})" if token >= 0 else "nothing"
            for piece, token in zip(self.pieces, self.ids, strict=True)
        )
        line = (
            f"byte {self.byte}: {first} against {second} "
            f"(tokens {self.index[0]} and {self.index[1]})"
        )
        if self.join < 0:
            return line
        one, other = (f"joins {m.left!r} + {m.right!r}" if m else "stops" for m in self.merges)
        return f"{line}; at join {self.join + 1} of the word one {one}, the other {other}"


def compare(a: Any, b: Any, text: str | bytes, **settings: Any) -> Parting | None:
    """The first place where two tokenizations of `text` part, None where they are the same.

    Parameters
    ----------
    a, b : Vocab, or (Vocab, dict)
        Two vocabularies; with a dict, settings of ``tokenize`` for this one.
    text : str or bytes
    **settings
        ``add_special`` and ``parse_special`` for both, as for `Vocab.tokenize`.

    Notes
    -----
    Ids count as a difference only where both are one vocabulary; else the bytes that the tokens
    cover do.
    """
    (first, one), (second, other) = (
        (x[0], {**settings, **x[1]}) if isinstance(x, tuple) else (x, settings) for x in (a, b)
    )
    left, right = tokenized(first, text, **one), tokenized(second, text, **other)
    found = difference(left, right, same_ids=first is second)
    if found is None:
        return None
    at = found.index
    joins = [_joins(t, i) for t, i in zip((left, right), at, strict=True)]
    join = first_difference(*([(m.left, m.right) for m in j] for j in joins))
    ids, pieces = [], []
    for t, i in zip((left, right), at, strict=True):
        there = i < len(t.ids)
        ids.append(t.ids[i] if there else -1)
        piece = t.vocab.token_to_piece(t.ids[i], special=True) if there else b""
        pieces.append(piece.decode("utf-8", "replace"))
    return Parting(
        found.byte,
        at,
        (ids[0], ids[1]),
        (pieces[0], pieces[1]),
        join,
        (_at(joins[0], join), _at(joins[1], join)),
        left,
        right,
    )


def first_difference(a: list[Any], b: list[Any]) -> int:
    """Index of the first element in which two lists differ, -1 where they are equal."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return -1 if len(a) == len(b) else min(len(a), len(b))


def _joins(t: Tokenized, i: int) -> list[Merge]:
    word = t.word_of[i] if i < len(t.ids) else -1
    return t.merges(word) if word >= 0 else []


def _at(joins: list[Merge], join: int) -> Merge | None:
    return joins[join] if 0 <= join < len(joins) else None
