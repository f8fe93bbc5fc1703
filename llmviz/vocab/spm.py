"""SentencePiece's byte-pair tokenizer: pairs are joined by the score of the token they make.
↔ src/llama-vocab.cpp (llm_tokenizer_spm_session)

Spaces are written ``▁`` and the whole text is one word. A character that is no token falls back
to the tokens of its bytes.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from llmviz.errors import VocabError
from llmviz.events import Event, Steps
from llmviz.vocab.keys import Keys
from llmviz.vocab.merging import join_best, join_steps
from llmviz.vocab.tokenizer import ByteFallback, Tokenizer, Word, byte_name
from llmviz.vocab.unicode import decode_bytes_text, split_chars

if TYPE_CHECKING:
    from llmviz.vocab.vocab import Vocab

__all__ = ["SPM"]

SPACE = "▁".encode()


class SPM(Tokenizer):
    """Tokenizer of ``tokenizer.ggml.model`` = ``llama``."""

    models = ("llama",)
    type = "spm"
    defaults = {"bos": 1, "eos": 2, "unk": 0}

    def __init__(self, vocab: Vocab, keys: Keys) -> None:
        super().__init__(vocab, keys)
        vocab.add_space_prefix = True
        vocab.add_bos = True

    @cached_property
    def _scores(self) -> memoryview:
        return self.vocab.scores.data  # gives floats as a list would, without an object for each

    def _priority(self, left: bytes, right: bytes) -> float | None:
        """Better score first."""
        token = self.vocab.token_to_id.get(left + right)
        return None if token is None else -self._scores[token]

    def _prepare(self, text: bytes, after_special: bool) -> bytes:
        """The text as it is merged: with the prefix space, and with ``▁`` for every space."""
        if self.vocab.add_space_prefix and after_special:
            text = b" " + text
        return text.replace(b" ", SPACE)

    def _ids(self, symbol: bytes) -> list[int]:
        """A symbol's token, or those of its bytes."""
        token = self.vocab.token_to_id.get(symbol)
        return [self.byte_id(byte) for byte in symbol] if token is None else [token]

    def byte_id(self, byte: int) -> int:
        """The token of one byte.

        Raises
        ------
        VocabError
            The vocabulary has neither ``<0xNN>`` nor the byte itself.
        """
        find = self.vocab.token_to_id
        token = find.get(byte_name(byte))
        if token is None and byte:  # the byte's own text would be empty for NUL
            token = find.get(bytes([byte]))
        if token is None:
            raise VocabError(
                f"the vocabulary has no token for byte 0x{byte:02X}: neither '<0x{byte:02X}>' nor "
                "the character itself, so it cannot write this text. The model file is incomplete"
            )
        return token

    def encode(self, text: bytes, after_special: bool) -> list[int]:
        """Ids of a stretch of text."""
        parts = split_chars(self._prepare(text, after_special))
        for _ in join_best(parts, self._priority):
            pass
        return [token for symbol in parts if symbol for token in self._ids(symbol)]

    def encode_steps(
        self, text: bytes, after_special: bool, offset: int, depth: int
    ) -> Steps[list[int]]:
        """`encode` as events: one word, every merge, every fallback to bytes."""
        ready = self._prepare(text, after_special)
        parts = split_chars(ready)
        word = Word(decode_bytes_text(ready), offset, len(text))
        yield Event("data", "pre_tokenize", depth, 9, [word], {"pre": "", "regexes": []})
        yield from join_steps(
            parts, self._priority, self.vocab.find, ranked=False, word=0, depth=depth
        )
        ids: list[int] = []
        for symbol in filter(None, parts):
            own = self._ids(symbol)
            if symbol not in self.vocab.token_to_id:
                fallback = ByteFallback(decode_bytes_text(symbol), symbol, own)
                yield Event("data", "byte_fallback", depth, 9, fallback)
            ids += own
        return ids

    def newline_id(self) -> int:
        """Token of the line feed byte, else the default padding token, which is none."""
        try:
            return self.byte_id(0x0A)
        except VocabError:
            return self.default_ids.get("pad", -1)

    def plain_piece(self, text: bytes) -> bytes:
        """The text with spaces for ``▁``."""
        return text.replace(SPACE, b" ")
