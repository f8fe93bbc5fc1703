"""Two byte-pair tokenizers that cut the text themselves first.
↔ src/llama-vocab.cpp (llm_tokenizer_hybriddna_session, llm_tokenizer_whitespace_session)

`HybridDNA` reads what stands between ``<dna>`` and ``</dna>`` as pieces of six letters, all else as
byte-pair text. `Whitespace` drops white space and merges what is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmviz.events import Event, Steps
from llmviz.vocab.bpe import BPE
from llmviz.vocab.keys import Keys
from llmviz.vocab.matching import Match
from llmviz.vocab.tokenizer import Word
from llmviz.vocab.unicode import WHITESPACE, decode_bytes_text, decode_with_widths, encode
from llmviz.vocab.wpm import lower, lowercase_of_file

if TYPE_CHECKING:
    from llmviz.vocab.vocab import Vocab

__all__ = ["HybridDNA", "Whitespace"]

OPEN, CLOSE, OTHER = b"<dna>", b"</dna>", b"<oov>"
MARKER = "\ue000".encode()
"""Ends the text of a k-mer's token in the file, which tells it from an ordinary token."""
K = 6


class HybridDNA(BPE):
    """Tokenizer of ``tokenizer.ggml.model`` = ``hybriddna``."""

    models = ("hybriddna",)

    def settle(self) -> None:
        """Take the marker off the k-mers' texts; they are still found with it."""
        super().settle()
        raws = self.vocab.tokens.raws
        first = self.vocab.token_to_id.get(OTHER)
        for token in range(len(raws) if first is None else first + 1, len(raws)):
            if len(raws[token]) > len(MARKER):
                raws[token] = raws[token].removesuffix(MARKER)

    def _parts(self, text: bytes) -> Iterator[tuple[int, int, int | None]]:
        """(start, end, id) in order: a tag or a k-mer with its id, other text with None."""
        find = self.vocab.token_to_id.get
        begin, end, other = find(OPEN), find(CLOSE), find(OTHER)
        if begin is None or end is None or other is None:
            yield 0, len(text), None
            return
        at = 0
        while at < len(text):
            start = text.find(OPEN, at)
            if start < 0:
                yield at, len(text), None
                return
            if start > at:
                yield at, start, None
            at = start + len(OPEN)
            yield start, at, begin
            stop = text.find(CLOSE, at)
            last = len(text) if stop < 0 else stop
            for place in range(at, last, K):
                letters = text[place : min(place + K, last)].upper()
                kmer = letters.ljust(K, b"A") + MARKER
                yield place, min(place + K, last), find(kmer, other)
            if stop < 0:
                return
            at = stop + len(CLOSE)
            yield stop, at, end

    def encode(self, text: bytes, after_special: bool) -> list[int]:
        """Ids of a stretch of text."""
        ids: list[int] = []
        for start, end, token in self._parts(text):
            ids += super().encode(text[start:end], after_special) if token is None else [token]
        return ids

    def encode_steps(
        self, text: bytes, after_special: bool, offset: int, depth: int
    ) -> Steps[list[int]]:
        """`encode` as events: byte-pair text as ever, ``match`` for a tag or k-mer."""
        ids: list[int] = []
        for start, end, token in self._parts(text):
            part = text[start:end]
            if token is None:
                ids += yield from super().encode_steps(part, after_special, offset + start, depth)
                continue
            shown = decode_bytes_text(part)
            word = Word(shown, offset + start, len(part))
            about = {"pre": self.pre.name, "regexes": self.pre.regexes}
            yield Event("data", "pre_tokenize", depth, 9, [word], about)
            match = Match(0, shown, token, offset + start, len(part), [])
            yield Event("data", "match", depth, 9, match)
            ids.append(token)
        return ids


class Whitespace(BPE):
    """Tokenizer of ``tokenizer.ggml.model`` = ``whitespace``."""

    models = ("whitespace",)

    def __init__(self, vocab: Vocab, keys: Keys) -> None:
        super().__init__(vocab, keys)
        self.lowercase = lowercase_of_file(keys, self.pre.name != "whitespace")

    def _segments(self, text: bytes) -> list[tuple[bytes, list[int], int]]:
        """What stands between white space: as it is merged, bytes of each character, where."""
        if self.vocab.escape_whitespaces:
            text = text.replace(b" ", "▁".encode())
        chars, widths = decode_with_widths(text)
        segments: list[tuple[list[str], list[int], int]] = []
        at, inside = 0, False
        for char, width in zip(chars, widths, strict=True):
            if ord(char) in WHITESPACE:
                inside = False
            else:
                if not inside:
                    segments.append(([], [], at))
                inside = True
                segments[-1][0].append(lower(char) if self.lowercase else char)
                segments[-1][1].append(width)
            at += width
        return [(encode("".join(made)), sizes, start) for made, sizes, start in segments]

    def encode(self, text: bytes, after_special: bool) -> list[int]:
        """Ids of a stretch of text."""
        return [
            token
            for segment, _, _ in self._segments(text)
            for token in super(Whitespace, self).encode(segment, after_special)
        ]

    def encode_steps(
        self, text: bytes, after_special: bool, offset: int, depth: int
    ) -> Steps[list[int]]:
        """`encode` as events: for each stretch without white space those of byte-pair text."""
        ids: list[int] = []
        for segment, sizes, start in self._segments(text):
            steps = super().encode_steps(segment, after_special, 0, depth)
            ids += yield from _placed(steps, offset + start, sizes)
        return ids


def _placed(steps: Steps[list[int]], offset: int, sizes: list[int]) -> Steps[list[int]]:
    """The events with words laid along the prompt, whose characters are of these sizes."""
    while True:
        try:
            event = next(steps)
        except StopIteration as stop:
            return stop.value
        if event.name == "pre_tokenize":
            words, at, place = [], 0, offset
            for word in event.value:
                length = sum(sizes[at : at + len(word.text)])
                words.append(Word(word.text, place, length))
                at, place = at + len(word.text), place + length
            event.value = words
        yield event
