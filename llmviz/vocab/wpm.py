"""WordPiece, BERT's tokenizer: the longest token that fits, again and again, word by word.
↔ src/llama-vocab.cpp (llm_tokenizer_wpm_session)

A text is normalized (accents off, lower case), cut at white space, punctuation and Chinese
characters, and each word begins with ``▁``. A word in which some part is no token becomes the
unknown token as a whole.
"""

from __future__ import annotations

import unicodedata
from functools import cached_property
from typing import TYPE_CHECKING

from llmviz.errors import VocabError
from llmviz.events import Event, Steps
from llmviz.vocab.attributes import TokenAttr
from llmviz.vocab.keys import Keys
from llmviz.vocab.matching import Match
from llmviz.vocab.tokenizer import Tokenizer, Word
from llmviz.vocab.unicode import WHITESPACE, category, decode_bytes_text, decode_with_widths, encode

if TYPE_CHECKING:
    from llmviz.vocab.vocab import Vocab

__all__ = ["WPM", "lower", "lowercase_of_file"]

LOWERCASE = "tokenizer.ggml.normalizer.lowercase"
STRIP_ACCENTS = "tokenizer.ggml.normalizer.strip_accents"
SPACE = "▁"

_CHINESE = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),  # begins at 2B820 in Unicode; llama.cpp follows Hugging Face here
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def lowercase_of_file(keys: Keys, otherwise: bool) -> bool:
    """Whether the file asks for lower case."""
    value = keys.boolean(LOWERCASE)
    return otherwise if value is None else value


def lower(char: str) -> str:
    """Lower case of a character that Unicode 15.1 has; one character always."""
    return char.lower()[0] if category(ord(char)) != "-" else char


def without_accent(char: str) -> str:
    """First character of the canonical decomposition (NFD): ``é`` is ``e``."""
    return unicodedata.normalize("NFD", char)[0] if category(ord(char)) != "-" else char


class WPM(Tokenizer):
    """Tokenizer of ``tokenizer.ggml.model`` = ``bert``."""

    models = ("bert",)
    type = "wpm"
    takes_whole_tokens = True
    defaults = {"bos": 101, "unk": 100, "sep": 102, "pad": 0, "mask": 103}
    warns_double_bos = False

    def __init__(self, vocab: Vocab, keys: Keys) -> None:
        super().__init__(vocab, keys)
        vocab.clean_spaces = vocab.add_bos = vocab.add_sep = True
        vocab.escape_whitespaces = True
        self.lowercase = lowercase_of_file(keys, True)
        accents = keys.boolean(STRIP_ACCENTS)
        self.strip_accents = self.lowercase if accents is None else accents

    def opening(self) -> list[str]:
        """BOS (BERT's ``[CLS]``), whatever the file's flag says."""
        return ["bos"]

    def closing(self) -> list[str]:
        """The separator, whatever the file's flag says."""
        return ["sep"]

    @cached_property
    def _longest(self) -> int:
        """Bytes of the longest token."""
        return max(map(len, self.vocab.token_to_id), default=0)

    # --- a text ---------------------------------------------------------------------------------

    def _words(self, text: bytes) -> list[list[tuple[str, int, int]]]:
        """Words as characters, each with the bytes of `text` it comes from: (char, start, end)."""
        chars, widths = decode_with_widths(text)
        words: list[list[tuple[str, int, int]]] = [[]]
        at = 0
        for char, width in zip(chars, widths, strict=True):
            start, at = at, at + width
            if self.strip_accents:
                char = without_accent(char)
            point = ord(char)
            if point in WHITESPACE:
                if words[-1]:
                    words.append([])
                continue
            kind = category(point)
            if point in (0, 0xFFFD) or kind == "C" or (self.strip_accents and kind == "M"):
                continue
            written = (lower(char) if self.lowercase else char, start, at)
            if kind == "P" or (kind == "S" and point < 0x7F) or _is_chinese(point):
                if words[-1]:
                    words.append([])
                words[-1] = [written]
                words.append([])
            else:
                words[-1].append(written)
        return words if words[-1] else words[:-1]

    def _match(self, word: bytes) -> list[tuple[int, int, int]] | None:
        """(start, end, id) of each token of a word; None where a part of it is no token."""
        find = self.vocab.token_to_id.get
        found = []
        at = 0
        while at < len(word):
            for end in range(min(len(word), at + self._longest + 1), at, -1):
                token = find(word[at:end])
                if token is not None:
                    break
            else:
                return None
            found.append((at, end, token))
            at = end
        return found

    def encode(self, text: bytes, after_special: bool) -> list[int]:
        """Ids of a stretch of text."""
        ids = []
        for word in self._words(text):
            found = self._match(encode(SPACE + "".join(char for char, _, _ in word)))
            ids += [self.vocab.unk] if found is None else [token for _, _, token in found]
        return ids

    def encode_steps(
        self, text: bytes, after_special: bool, offset: int, depth: int
    ) -> Steps[list[int]]:
        """`encode` as events: the words, then a ``match`` for each token or ``unknown``."""
        words = self._words(text)
        shown = [
            Word(SPACE + "".join(c for c, _, _ in w), offset + w[0][1], w[-1][2] - w[0][1])
            for w in words
        ]
        about = {
            "pre": "bert",
            "regexes": [],
            "lowercase": self.lowercase,
            "strip_accents": self.strip_accents,
        }
        yield Event("data", "pre_tokenize", depth, 9, shown, about)
        ids: list[int] = []
        for number, (word, item) in enumerate(zip(words, shown, strict=True)):
            raw = encode(item.text)
            found = self._match(raw)
            if found is None:
                unk = self.vocab.unk
                match = Match(number, item.text, unk, item.offset, item.length, [])
                yield Event("data", "unknown", depth, 9, match)
                ids.append(unk)
                continue
            places = _byte_places(word, item.offset - word[0][1])
            for start, end, token in found:
                first, last = places[start][0], places[end - 1][1]
                match = Match(
                    number,
                    decode_bytes_text(raw[start:end]),
                    token,
                    first,
                    last - first,
                    self._shorter(raw, start, end),
                )
                yield Event("data", "match", depth, 9, match)
                ids.append(token)
        return ids

    def _shorter(self, raw: bytes, start: int, end: int) -> list[tuple[str, int]]:
        """Tokens shorter than ``raw[start:end]`` that begin it, longest first."""
        find = self.vocab.token_to_id.get
        return [
            (decode_bytes_text(raw[start:stop]), token)
            for stop in range(end - 1, start, -1)
            if (token := find(raw[start:stop])) is not None
        ]

    def newline_id(self) -> int:
        """The default padding token: white space is no token here."""
        return self.default_ids["pad"]

    def plain_piece(self, text: bytes) -> bytes:
        """The text with spaces for ``▁``."""
        return text.replace(SPACE.encode(), b" ")

    def piece(self, text: bytes, attr: int) -> bytes:
        """What a token writes; this kind of vocabulary knows no byte tokens."""
        special = TokenAttr.UNKNOWN | TokenAttr.CONTROL | TokenAttr.USER_DEFINED | TokenAttr.NORMAL
        if attr & TokenAttr.BYTE and not attr & special:
            raise VocabError(
                f"token {decode_bytes_text(text)!r} is marked as a byte, which a WordPiece "
                "vocabulary does not have. Convert the model again"
            )
        return super().piece(text, attr)


def _byte_places(word: list[tuple[str, int, int]], shift: int) -> list[tuple[int, int]]:
    """For each byte of ``▁`` and the word, where its character lies in the prompt."""
    places = [(word[0][1] + shift, word[0][1] + shift)] * len(SPACE.encode())
    for char, start, end in word:
        places += [(start + shift, end + shift)] * len(encode(char))
    return places


def _is_chinese(point: int) -> bool:
    return any(first <= point <= last for first, last in _CHINESE)
