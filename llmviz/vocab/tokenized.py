"""What a tokenizer made of a text: the bytes of each token, its word, how the word was merged.

Read from the events of the tokenizer, for the view, the figure and `compare` to share. The merges
of a word are read when they are asked for: a long text has thousands of words, and one is looked
at.
"""

from __future__ import annotations

import warnings
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

from llmviz.vocab.attributes import TokenAttr
from llmviz.vocab.matching import Choice, Match
from llmviz.vocab.merging import Merge
from llmviz.vocab.partition import Fragment
from llmviz.vocab.tokenizer import ByteFallback
from llmviz.vocab.unicode import encode

__all__ = [
    "ADDED",
    "BYTES",
    "PLAIN",
    "SPECIAL",
    "Difference",
    "Tokenized",
    "WordOf",
    "difference",
    "tokenized",
]

PLAIN, SPECIAL, ADDED, BYTES = range(4)
"""Kinds of tokens: of a word; cut out as special; added around the text; part of a character."""


@dataclass(frozen=True, slots=True, eq=False)
class WordOf:
    """A piece of text that was merged by itself.

    Attributes
    ----------
    text : str
        As the tokenizer merges it.
    start, end : int
        Bytes of the text.
    fragment : int
        Index of the fragment that it is in.
    number : int
        Which word of the fragment it is.
    """

    text: str
    start: int
    end: int
    fragment: int
    number: int


@dataclass(slots=True, eq=False)
class Tokenized:
    """A text and its tokens.

    Attributes
    ----------
    raw : bytes
        The text.
    ids, starts, ends, kinds, word_of : list of int
        For each token: its id, the bytes that it covers, its kind, and the index of its word (-1
        where it has none).
    words : list of WordOf
    fragments : list of Fragment
        Special tokens and what lies between them.
    rules : list of str
        Regular expressions that cut words.
    notes : list of str
        What the tokenizer warned of.
    matches : dict of int to Match
        Of kinds that take whole tokens rather than merge: how each token was found, by its index.
    """

    raw: bytes
    ids: list[int]
    starts: list[int]
    ends: list[int]
    kinds: list[int]
    word_of: list[int]
    words: list[WordOf]
    fragments: list[Fragment]
    rules: list[str]
    notes: list[str]
    matches: dict[int, Match] = field(default_factory=dict)
    vocab: Any = None
    _merges: dict[int, list[Merge]] = field(default_factory=dict)

    def merges(self, word: int) -> list[Merge]:
        """The joins of a word, in the order in which they happened."""
        if word not in self._merges:
            w = self.words[word]
            alone = self._joins(self.raw[w.start : w.end], w.fragment, 0, w.text)
            if alone is None:  # by itself it would be cut, or begin, otherwise
                f = self.fragments[w.fragment]
                part = self.raw[f.offset : f.offset + f.length]
                alone = self._joins(part, w.fragment, w.number, None)
            self._merges[word] = alone or []
        return self._merges[word]

    def _joins(self, part: bytes, at: int, number: int, text: str | None) -> list[Merge] | None:
        """Joins of one word of a stretch of text; None where `text` is not its only word."""
        after_special = at == 0 or self.fragments[at - 1].kind == "token"
        joins: list[Merge] = []
        for event in self.vocab.tokenizer.encode_steps(part, after_special, 0, 0):
            if event.name == "pre_tokenize":
                if text is not None and [w.text for w in event.value] != [text]:
                    return None
            elif event.name == "merge":
                if event.value.word > number:
                    break
                if event.value.word == number:
                    joins.append(event.value)
        return joins

    def choices(self, i: int) -> list[Choice]:
        """What could have stood where token i does, with what the text costs through each.

        Only Unigram and PLaMo-2 weigh choices: every token that could end (PLaMo-2: begin) where
        this one does. Empty for other kinds.
        """
        match = self.matches.get(i)
        if match is None:
            return []
        at = next(
            k
            for k, f in enumerate(self.fragments)
            if f.kind == "text" and f.offset <= match.offset <= f.offset + f.length
        )
        f = self.fragments[at]
        part = self.raw[f.offset : f.offset + f.length]
        after_special = at == 0 or self.fragments[at - 1].kind == "token"
        seen: list[Choice] = []
        forward, start = True, 0
        for event in self.vocab.tokenizer.encode_steps(part, after_special, f.offset, 0):
            if event.name == "lattice":
                seen += event.value
                forward = event.about["forward"]
            elif isinstance(event.value, Match | ByteFallback) and seen:
                size = len(encode(event.value.text)) if forward else len(event.value.text)
                if event.value == match:
                    place = start + size if forward else start
                    return [c for c in seen if (c.end if forward else c.start) == place]
                start += size
        return []

    def tokens_of(self, word: int) -> list[int]:
        """Indices of a word's tokens."""
        return [i for i, w in enumerate(self.word_of) if w == word]


def tokenized(
    vocab: Any, text: str | bytes, add_special: bool = True, parse_special: bool = False
) -> Tokenized:
    """Tokenize a text and keep how; parameters as for ``vocab.tokenize``.

    Raises
    ------
    VocabError
        As ``vocab.tokenize`` raises it.
    """
    raw = encode(text) if isinstance(text, str) else bytes(text)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ids = vocab.tokenize(raw, add_special, parse_special)
        steps = vocab.tokenize_steps(raw, add_special, parse_special)
        fragments: list[Fragment] = next(steps).value
        steps.close()
    words: list[WordOf] = []
    rules: list[str] = []
    for at, f in enumerate(fragments):
        if f.kind != "text":
            continue
        after_special = at == 0 or fragments[at - 1].kind == "token"
        part = raw[f.offset : f.offset + f.length]
        steps = vocab.tokenizer.encode_steps(part, after_special, f.offset, 0)
        event = next(steps)  # the words; what follows is made when it is asked for
        steps.close()
        rules = list(event.about["regexes"])
        words += [
            WordOf(w.text, w.offset, w.offset + w.length, at, k) for k, w in enumerate(event.value)
        ]
    out = Tokenized(raw, ids, [], [], [], [], words, fragments, rules, [], vocab=vocab)
    out.notes = [str(w.message) for w in caught]
    _lay(out, vocab, len(vocab.tokenizer.opening()) if add_special else 0)
    return out


def _lay(out: Tokenized, vocab: Any, n_opening: int) -> None:
    """Lay the tokens along the bytes of the text."""
    at, after_special = 0, True
    for _ in range(n_opening):
        _add(out, 0, 0, ADDED)
        at += 1
    for fragment in out.fragments:
        place, end = fragment.offset, fragment.offset + fragment.length
        if fragment.kind == "token":
            _add(out, place, end, SPECIAL)
            at, after_special = at + 1, True
            continue
        prefixed = vocab.type == "spm" and vocab.add_space_prefix and after_special
        if vocab.tokenizer.takes_whole_tokens:
            at = _lay_matches(out, vocab, fragment, after_special)
            after_special = False
            continue
        after_special = False
        while at < len(out.ids) and place < end:
            token = out.ids[at]
            piece = vocab.token_to_piece(token, special=True)
            if prefixed and piece[:1] == b" ":
                piece = piece[1:]  # the space that the tokenizer puts in front
            prefixed = False
            found = out.raw.find(piece, place, end)  # a byte without a token was dropped
            start = found if found >= 0 else place
            stop = min(end, start + len(piece))
            broken = bool(int(vocab.attrs[token]) & TokenAttr.BYTE) or not _whole(piece)
            _add(out, start, stop, BYTES if broken else PLAIN)
            place, at = stop, at + 1
    while at < len(out.ids):
        _add(out, len(out.raw), len(out.raw), ADDED)
        at += 1
    starts = [w.start for w in out.words]
    for start, kind in zip(out.starts, out.kinds, strict=True):
        inside = kind in (PLAIN, BYTES) and bool(starts)
        out.word_of.append(max(0, bisect_right(starts, start) - 1) if inside else -1)


def _lay_matches(out: Tokenized, vocab: Any, fragment: Fragment, after_special: bool) -> int:
    """Lay one fragment's tokens as the tokenizer tells where it found them."""
    part = out.raw[fragment.offset : fragment.offset + fragment.length]
    place = fragment.offset
    for event in vocab.tokenizer.encode_steps(part, after_special, fragment.offset, 0):
        value = event.value
        if isinstance(value, Match):
            out.matches[len(out.starts)] = value
            place = value.offset + value.length
            _add(out, value.offset, place, PLAIN)
        elif isinstance(value, ByteFallback):  # each of its tokens is one byte
            for _ in value.ids:
                _add(out, place, place + 1, BYTES)
                place += 1
    return len(out.starts)


def _add(out: Tokenized, start: int, end: int, kind: int) -> None:
    out.starts.append(start)
    out.ends.append(end)
    out.kinds.append(kind)


def _whole(piece: bytes) -> bool:
    try:
        piece.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two tokenizations of one text part.

    Attributes
    ----------
    byte : int
        The first byte whose tokens begin or end differently.
    index : tuple of (int, int)
        The first token of each that differs; the number of tokens where one has ended.
    """

    byte: int
    index: tuple[int, int]


def difference(a: Tokenized, b: Tokenized, same_ids: bool = True) -> Difference | None:
    """The first place where the tokens differ, None where they are the same.

    Parameters
    ----------
    same_ids : bool
        Whether ids mean the same in both (one vocabulary), so that other ids are a difference.
    """
    # What is put around the text covers none of it: the text's own tokens are held together first.
    own = [[i for i, kind in enumerate(t.kinds) if kind != ADDED] for t in (a, b)]
    at = _first(a, b, own, same_ids)
    if at is None:
        own = [list(range(len(t.ids))) for t in (a, b)]
        at = _first(a, b, own, same_ids) if same_ids else None
    if at is None:
        return None
    pair = tuple(o[at] if at < len(o) else len(t.ids) for o, t in zip(own, (a, b), strict=True))
    starts = [t.starts[i] for i, t in zip(pair, (a, b), strict=True) if i < len(t.ids)]
    return Difference(min(starts, default=len(a.raw)), (pair[0], pair[1]))


def _first(a: Tokenized, b: Tokenized, own: list[list[int]], same_ids: bool) -> int | None:
    """The first place where two rows of tokens differ, None where they are alike."""
    for at, (i, j) in enumerate(zip(*own, strict=False)):
        one = a.starts[i], a.ends[i], a.ids[i] if same_ids else 0
        if one != (b.starts[j], b.ends[j], b.ids[j] if same_ids else 0):
            return at
    short, long = sorted(map(len, own))
    return None if short == long else short
