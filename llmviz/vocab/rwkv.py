"""RWKV's tokenizer: the longest token that begins the rest of the text, byte by byte.
↔ src/llama-vocab.cpp (llm_tokenizer_rwkv_session, llama_unescape_rwkv_token)

Tokens are any bytes; the file writes those that are no text as ``\\n`` or ``\\xff``.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from llmviz.errors import VocabError
from llmviz.events import Event, Steps
from llmviz.vocab.keys import Keys
from llmviz.vocab.matching import Match, Prefixes
from llmviz.vocab.tokenizer import Tokenizer, Word
from llmviz.vocab.unicode import decode_bytes_text

if TYPE_CHECKING:
    from llmviz.vocab.vocab import Vocab

__all__ = ["RWKV", "unescape"]

_ESCAPES = {ord("t"): 0x09, ord("n"): 0x0A, ord("r"): 0x0D}


def unescape(text: bytes) -> bytes:
    """The bytes that a token text stands for; ``\\t \\n \\r \\xNN``, any other ``\\c`` is ``c``.

    A digit that is none counts as its distance from ``0`` or ``a``, as in llama.cpp.
    """
    if b"\\" not in text:
        return text
    out = bytearray()
    at = 0
    while at < len(text):
        byte = text[at]
        at += 1
        if byte != 0x5C:
            out.append(byte)
            continue
        if at == len(text):
            break
        byte = text[at]
        at += 1
        if byte != ord("x"):
            out.append(_ESCAPES.get(byte, byte))
            continue
        digits = text[at : at + 2]
        at += 2
        if len(digits) == 2:
            high, low = (_digit(digit) for digit in digits)
            out.append((high * 16 + low) & 0xFF)
    return bytes(out)


def _digit(byte: int) -> int:
    byte = byte - 256 if byte >= 128 else byte  # C's char is signed
    return (byte - ord("a") + 10 if byte >= ord("a") else byte - ord("0")) & 0xFF


class RWKV(Tokenizer):
    """Tokenizer of ``tokenizer.ggml.model`` = ``rwkv``."""

    models = ("rwkv",)
    type = "rwkv"
    takes_whole_tokens = True
    defaults = {"unk": 0}
    warns_double_bos = False

    def __init__(self, vocab: Vocab, keys: Keys) -> None:
        super().__init__(vocab, keys)
        vocab.escape_whitespaces = True

    def opening(self) -> list[str]:
        """Nothing is added."""
        return []

    def closing(self) -> list[str]:
        """Nothing is added."""
        return []

    @cached_property
    def _prefixes(self) -> Prefixes:
        ids = {}
        for token, raw in enumerate(self.vocab.tokens.raws):
            if text := unescape(raw):
                ids[text] = token  # of equal texts the last counts
        return Prefixes(ids)

    @cached_property
    def _first_bytes(self) -> frozenset[int]:
        return frozenset(text[0] for text in self._prefixes.ids)

    def _matches(self, text: bytes) -> list[tuple[int, int, int]]:
        """(start, end, id) of each token; the unknown token covers one byte."""
        found = []
        at = 0
        while at < len(text):
            match = self._prefixes.longest_at(text, at)
            length, token = match if match is not None else (1, self._dead_end(text, at))
            found.append((at, at + length, token))
            at += length
        return found

    def _dead_end(self, text: bytes, at: int) -> int:
        """What stands for a byte where no token ends.

        No token begins with it: the unknown token. Some do, but none of them is here: llama.cpp
        takes token 0 and begins again at the start of the text, for ever.
        """
        if text[at] in self._first_bytes:
            raise VocabError(
                f"no token fits the text at byte {at} ({decode_bytes_text(text[at : at + 8])!r}): "
                "tokens begin with these bytes, but none ends within them, and the vocabulary has "
                f"no token for byte 0x{text[at]:02X} alone. llama.cpp never returns from such a "
                "text; the model file is incomplete"
            )
        return self.vocab.unk

    def encode(self, text: bytes, after_special: bool) -> list[int]:
        """Ids of a stretch of text."""
        return [token for _, _, token in self._matches(text)]

    def encode_steps(
        self, text: bytes, after_special: bool, offset: int, depth: int
    ) -> Steps[list[int]]:
        """`encode` as events: one word, then ``match`` or ``unknown`` for each token."""
        word = Word(decode_bytes_text(text), offset, len(text))
        yield Event("data", "pre_tokenize", depth, 9, [word], {"pre": "", "regexes": []})
        ids = []
        for start, end, token in self._matches(text):
            shorter = [
                (decode_bytes_text(text[start : start + n]), other)
                for n, other in self._prefixes.at(text[:end], start)
                if start + n < end
            ]
            known = self._prefixes.ids.get(text[start:end]) == token
            piece = decode_bytes_text(text[start:end])
            match = Match(0, piece, token, offset + start, end - start, shorter[::-1])
            yield Event("data", "match" if known else "unknown", depth, 9, match)
            ids.append(token)
        return ids

    def newline_id(self) -> int:
        """First token of a text that is a line feed."""
        return self.encode(b"\n", True)[0]

    def plain_piece(self, text: bytes) -> bytes:
        """The bytes that a token text stands for."""
        return unescape(text)

    def piece(self, text: bytes, attr: int) -> bytes:
        """What a token writes, whatever its attributes."""
        return unescape(text)
