"""Cutting special tokens out of a text before anything else happens to it.
↔ src/llama-vocab.cpp (tokenizer_st_partition, cache_special_tokens)

The longest special text is looked for first, in the whole prompt; then the next, in what is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from llmviz.vocab.attributes import TokenAttr

__all__ = ["Fragment", "Piece", "Search", "partition", "special_cache"]

_SPACES = b" \t\n\v\f\r"
_CUT_OUT = TokenAttr.CONTROL | TokenAttr.USER_DEFINED | TokenAttr.UNKNOWN
_ONLY_IF_PARSED = TokenAttr.CONTROL | TokenAttr.UNKNOWN


class Fragment(NamedTuple):
    """A stretch of the prompt.

    Attributes
    ----------
    kind : str
        ``"text"`` (still to be tokenized) or ``"token"`` (a special token).
    text : str
        What is written there; bytes that are no UTF-8 as U+FFFD.
    id : int
        The special token's id, -1 for text.
    offset, length : int
        The bytes of the prompt that it covers.
    """

    kind: str
    text: str
    id: int
    offset: int
    length: int

    @classmethod
    def of(cls, raw: bytes, piece: Piece) -> Fragment:
        """The fragment that a piece of the prompt `raw` is."""
        token, offset, length = piece
        text = raw[offset : offset + length].decode("utf-8", "replace")
        return cls("text" if token < 0 else "token", text, token, offset, length)


Piece = tuple[int, int, int]  # id or -1, offset, length
Special = tuple[bytes, int, int]  # text, id, attributes


def special_cache(texts: Sequence[bytes], attrs: np.ndarray) -> list[int]:
    """Ids that are cut out of a text, longest text first, then by id."""
    ids = np.flatnonzero(attrs & _CUT_OUT).tolist()
    return sorted(ids, key=lambda token: -len(texts[token]))


class Search:
    """The special tokens that a text is searched for, in order.

    Parameters
    ----------
    cache : iterable of int
        What `special_cache` gave.
    texts, attrs : sequences
        Text and attributes of each token.
    parse_special : bool
        Whether the texts of control and unknown tokens are taken for these tokens. User-defined
        tokens always are.
    """

    def __init__(
        self,
        cache: Iterable[int],
        texts: Sequence[bytes],
        attrs: np.ndarray,
        parse_special: bool,
    ) -> None:
        specials = ((texts[token], token, int(attrs[token])) for token in cache)
        self.specials = [s for s in specials if parse_special or not s[2] & _ONLY_IF_PARSED]
        self._by_first_byte: dict[int, list[int]] = {}
        for place, (text, _, _) in enumerate(self.specials):
            self._by_first_byte.setdefault(text[0], []).append(place)

    def occurring(self, raw: bytes) -> list[Special]:
        """Those whose text occurs in `raw`, in order."""
        places = (place for byte in set(raw) for place in self._by_first_byte.get(byte, ()))
        found = sorted(place for place in places if self.specials[place][0] in raw)
        return [self.specials[place] for place in found]


def partition(raw: bytes, search: Search) -> list[Piece]:
    """Where special tokens and text lie in a prompt.

    Parameters
    ----------
    raw : bytes
        The prompt.
    search : Search
        What to look for.

    Returns
    -------
    list of (id, offset, length)
        Id -1 is text. White space next to a token that strips it belongs to no piece.
    """
    pieces: list[Piece] = [(-1, 0, len(raw))] if raw else []
    for special in search.occurring(raw):
        pieces = [
            part
            for piece in pieces
            for part in (_cut(raw, piece, special) if piece[0] < 0 else [piece])
        ]
    return pieces


def _cut(raw: bytes, piece: Piece, special: Special) -> list[Piece]:
    """A text piece with every occurrence of one special text cut out."""
    _, start, length = piece
    text, token, attr = special
    end = start + length
    parts: list[Piece] = []
    while (at := raw.find(text, start, end)) >= 0:
        stop = at
        if attr & TokenAttr.LSTRIP:
            stop = start + len(raw[start:at].rstrip(_SPACES))
        if stop > start:
            parts.append((-1, start, stop - start))
        parts.append((token, at, len(text)))
        start = at + len(text)
        if attr & TokenAttr.RSTRIP:
            start = end - len(raw[start:end].lstrip(_SPACES))
    if start < end:
        parts.append((-1, start, end - start))
    return parts
