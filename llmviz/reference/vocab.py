"""llama.cpp's vocabulary: tokens of a text, text of tokens. ↔ include/llama.h (Vocab)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llmviz.errors import VocabError
from llmviz.reference.capi import api

__all__ = ["ReferenceVocab"]

VOCAB_TYPES = ("none", "spm", "bpe", "wpm", "ugm", "rwkv", "plamo2", "test")
SPECIAL = (
    "bos", "eos", "eot", "sep", "nl", "pad", "mask",
    "fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep",
)  # fmt: skip


class ReferenceVocab:
    """The vocabulary of an open `Reference`; valid as long as that one is open.

    Attributes
    ----------
    n_tokens : int
    type : str
        ``"spm"``, ``"bpe"``, ``"wpm"``, ...
    special : dict of str to int
        Special ids by llama.h's name (``"bos"``, ``"fim_pre"`` ...); -1 where there is none.
    add_bos, add_eos, add_sep : bool
    """

    def __init__(self, pointer: Any) -> None:
        self.pointer = pointer
        lib = api().lib
        self.n_tokens: int = lib.llama_vocab_n_tokens(pointer)
        self.type = VOCAB_TYPES[lib.llama_vocab_type(pointer)]
        self.special: dict[str, int] = {
            s: getattr(lib, f"llama_vocab_{s}")(pointer) for s in SPECIAL
        }
        self.add_bos: bool = lib.llama_vocab_get_add_bos(pointer)
        self.add_eos: bool = lib.llama_vocab_get_add_eos(pointer)
        self.add_sep: bool = lib.llama_vocab_get_add_sep(pointer)

    def _known(self, token: int) -> int:
        if not 0 <= token < self.n_tokens:
            raise VocabError(f"token id {token} is outside the vocabulary: 0..{self.n_tokens - 1}")
        return token

    def text(self, token: int) -> str:
        """The token as the file spells it, not decoded."""
        a = api()
        return a.ffi.string(a.lib.llama_vocab_get_text(self.pointer, self._known(token))).decode(
            errors="replace"
        )

    def score(self, token: int) -> float:
        """The token's score."""
        return api().lib.llama_vocab_get_score(self.pointer, self._known(token))

    def attr(self, token: int) -> int:
        """The token's attribute bits (``enum llama_token_attr``)."""
        return api().lib.llama_vocab_get_attr(self.pointer, self._known(token))

    def is_eog(self, token: int) -> bool:
        """Whether the token ends a generation."""
        return api().lib.llama_vocab_is_eog(self.pointer, self._known(token))

    def is_control(self, token: int) -> bool:
        """Whether the token is a control token."""
        return api().lib.llama_vocab_is_control(self.pointer, self._known(token))

    def tokenize(
        self, text: str | bytes, add_special: bool = True, parse_special: bool = False
    ) -> list[int]:
        """Token ids of `text` (UTF-8, or bytes as they are)."""
        ffi, lib, *_ = api()
        raw = text if isinstance(text, bytes) else text.encode()
        n = lib.llama_tokenize(self.pointer, raw, len(raw), ffi.NULL, 0, add_special, parse_special)
        out = ffi.new("llama_token[]", max(-n, 1))
        n = lib.llama_tokenize(
            self.pointer, raw, len(raw), out, max(-n, 0), add_special, parse_special
        )
        return [out[i] for i in range(n)]

    def token_to_piece(self, token: int, lstrip: int = 0, special: bool = False) -> bytes:
        """The bytes that the token stands for; up to `lstrip` leading spaces left out."""
        ffi, lib, *_ = api()
        n = 64
        while True:
            out = ffi.new("char[]", n)
            got = lib.llama_token_to_piece(
                self.pointer, self._known(token), out, n, lstrip, special
            )
            if got >= 0:
                return bytes(ffi.buffer(out, got))
            n = -got

    def detokenize(
        self, ids: Sequence[int], remove_special: bool = False, unparse_special: bool = False
    ) -> bytes:
        """The text of `ids`, as bytes (a cut character stays cut)."""
        ffi, lib, *_ = api()
        tokens = ffi.new("llama_token[]", [self._known(int(t)) for t in ids])
        n = 64 + 16 * len(ids)
        while True:
            out = ffi.new("char[]", n)
            got = lib.llama_detokenize(
                self.pointer, tokens, len(ids), out, n, remove_special, unparse_special
            )
            if got >= 0:
                return bytes(ffi.buffer(out, got))
            n = -got
