"""Byte-pair tokenizers: a text is cut into words, pairs are joined by rank in a list of merges.
↔ src/llama-vocab.cpp (llm_tokenizer_bpe_session)

A word's symbols begin as single bytes, written as printable characters (``Ġ`` is a space); Gemma
4 and Sarvam begin with characters instead and write a space ``▁``.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from llmviz.errors import VocabError
from llmviz.events import Event, Steps
from llmviz.gguf.constants import ValueType
from llmviz.vocab.keys import Keys, c_strings
from llmviz.vocab.merging import join_best, join_steps
from llmviz.vocab.pre_names import get_pre
from llmviz.vocab.tokenizer import ByteFallback, Tokenizer, Word, byte_name
from llmviz.vocab.unicode import (
    BYTE_TO_UTF8,
    bytes_of,
    decode,
    decode_bytes_text,
    decode_with_widths,
    encode,
    split_chars,
)

if TYPE_CHECKING:
    from llmviz.vocab.vocab import Vocab

__all__ = ["BPE", "Gemma4"]

MERGES = "tokenizer.ggml.merges"
PRE = "tokenizer.ggml.pre"

_CACHED_WORDS = 1 << 16
_CACHED_LENGTH = 64


class BPE(Tokenizer):
    """Tokenizer of ``tokenizer.ggml.model`` = ``gpt2``."""

    models = ("gpt2",)
    type = "bpe"
    defaults = {"bos": 11, "eos": 11}
    warns_double_eos = True
    fixed_pre = ""
    """Name of the pre-tokenizer where the model implies it."""

    def __init__(self, vocab: Vocab, keys: Keys) -> None:
        super().__init__(vocab, keys)
        name = self.fixed_pre or keys.string(PRE) or ""
        merges = keys.array(MERGES, ValueType.STRING)
        if merges is None and name != "kimi-k2":
            raise keys.error(
                "cannot find tokenizer merges in model file: a byte-pair vocabulary needs the "
                f"list of merges, {MERGES}. Convert the model again",
                MERGES,
            )
        self._merges = [] if merges is None else c_strings(merges.raws())
        if not name:
            vocab.warn(
                f"missing pre-tokenizer type ({PRE}), using 'default': GENERATION QUALITY WILL BE "
                "DEGRADED. Consider regenerating the model file"
            )
        self.pre = get_pre(name or "default")
        vocab.pre = self.pre.name
        vocab.ignore_merges = self.pre.ignore_merges
        vocab.escape_whitespaces = self.pre.escape_whitespaces
        vocab.clean_spaces = self.pre.clean_spaces
        vocab.add_bos = self.pre.add_bos
        vocab.add_sep = self.pre.add_sep
        if not self.pre.has_bos:
            self.default_ids["bos"] = -1
        self._words: dict[str, list[int]] = {}

    def settle(self) -> None:
        """Gemma 4 always begins with BOS, whatever its file says."""
        if self.pre.gemma4 and not self.vocab.add_bos:
            self.vocab.add_bos = True
            self.vocab.notes.append("add_bos_token is overridden to true for Gemma 4")

    @cached_property
    def ranks(self) -> dict[bytes, int]:
        """Rank of each pair, keyed by the merges' own text: left symbol, space, right symbol.

        Symbols hold no space, so the text is as good a key as the pair. Of equal lines the first
        counts.
        """
        n = len(self._merges)
        return dict(zip(reversed(self._merges), range(n - 1, -1, -1), strict=True))

    def _priority(self, left: bytes, right: bytes) -> int | None:
        """Lower rank first."""
        return self.ranks.get(left + b" " + right)

    # --- a word ---------------------------------------------------------------------------------

    def _symbols(self, word: str) -> list[bytes]:
        """A word before any merge: its bytes or characters, or all of it where that is a token."""
        raw = encode(word)
        symbols = [BYTE_TO_UTF8[byte] for byte in raw] if self.pre.byte_encode else split_chars(raw)
        if self.pre.ignore_merges or (self.pre.gemma4 and not raw.strip(b"\n")):
            whole = b"".join(symbols)
            if whole in self.vocab.token_to_id:
                return [whole]
        if not self.pre.byte_encode and len(symbols) > 1 and b" " in raw:
            raise VocabError(
                f"{word!r} would be merged with its spaces, which this kind of vocabulary "
                f"(tokenizer.ggml.pre = {self.pre.name!r}) has no way to write; llama.cpp aborts. "
                "Pass text without runs of spaces, or convert the model again with "
                "tokenizer.ggml.model = 'whitespace'"
            )
        return symbols

    def _ids(self, symbol: bytes) -> list[int]:
        """A symbol's token, or those of its bytes; a byte that has no token is dropped."""
        find = self.vocab.token_to_id
        token = find.get(symbol)
        if token is not None:
            return [token]
        names = (bytes([byte]) if self.pre.byte_encode else byte_name(byte) for byte in symbol)
        return [find[name] for name in names if name in find]

    def _encode_word(self, word: str) -> list[int]:
        parts = self._symbols(word)
        for _ in join_best(parts, self._priority):
            pass
        ids = [token for symbol in parts if symbol for token in self._ids(symbol)]
        if len(word) <= _CACHED_LENGTH:
            if len(self._words) >= _CACHED_WORDS:
                self._words.clear()
            self._words[word] = ids
        return ids

    # --- a text ---------------------------------------------------------------------------------

    def encode(self, text: bytes, after_special: bool) -> list[int]:
        """Ids of a stretch of text."""
        ready = decode(text)
        if self.vocab.escape_whitespaces:
            ready = ready.replace(" ", "▁")
        known = self._words
        ids: list[int] = []
        for word in self.pre.split(ready):
            own = known.get(word)
            ids += self._encode_word(word) if own is None else own
        return ids

    def encode_steps(
        self, text: bytes, after_special: bool, offset: int, depth: int
    ) -> Steps[list[int]]:
        """`encode` as events: the words, every merge of each, every fallback to bytes."""
        ready, widths = decode_with_widths(text)
        if self.vocab.escape_whitespaces:
            ready = ready.replace(" ", "▁")
        words = []
        at = 0
        for word in self.pre.split(ready):
            length = sum(widths[at : at + len(word)])
            words.append(Word(word, offset, length))
            at, offset = at + len(word), offset + length
        about = {"pre": self.pre.name, "regexes": self.pre.regexes}
        yield Event("data", "pre_tokenize", depth, 9, words, about)
        ids: list[int] = []
        for number, (word, _, _) in enumerate(words):
            parts = self._symbols(word)
            yield from join_steps(
                parts, self._priority, self.vocab.find, ranked=True, word=number, depth=depth
            )
            for symbol in filter(None, parts):
                own = self._ids(symbol)
                if symbol not in self.vocab.token_to_id:
                    shown = decode_bytes_text(symbol)
                    value = ByteFallback(shown, symbol, own)
                    yield Event("data", "byte_fallback", depth, 9, value)
                ids += own
        return ids

    def newline_id(self) -> int:
        """First token of a text that is a line feed, -1 if it has none."""
        return next(iter(self.encode(b"\n", True)), -1)

    def plain_piece(self, text: bytes) -> bytes:
        """The bytes that a token text stands for."""
        if self.vocab.escape_whitespaces:
            return text.replace("▁".encode(), b" ")
        return bytes_of(text)


class Gemma4(BPE):
    """Tokenizer of ``tokenizer.ggml.model`` = ``gemma4``."""

    models = ("gemma4",)
    defaults = {}
    fixed_pre = "gemma4"
