"""The vocabulary: tokens, which of them are special, text to ids and back.
↔ src/llama-vocab.cpp (llama_vocab)

Reading order: this file, then `loading` (how it is read from a file), `tokenizer` (what differs
between kinds), `spm`, `bpe`, `pre`.

Over 400 lines: one class with all that a vocabulary is asked, half of it docstrings.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from llmviz.errors import VocabError
from llmviz.events import Event, Steps, drain
from llmviz.vocab.attributes import TokenAttr
from llmviz.vocab.keys import HasKeys
from llmviz.vocab.loading import load_steps
from llmviz.vocab.partition import Fragment, Piece, Search, partition
from llmviz.vocab.special import SPECIAL_NAMES, first_walked
from llmviz.vocab.tables import SpecialIds, TokenTexts, VocabWarning
from llmviz.vocab.tokenizer import Tokenizer
from llmviz.vocab.unicode import encode

if TYPE_CHECKING:
    from llmviz.vocab.chat import ChatTemplate

__all__ = ["Vocab"]


class Vocab:
    """A model's vocabulary. Made by `from_gguf`; nothing changes it afterwards.

    Attributes
    ----------
    type : str
        ``"spm"``, ``"bpe"``, ``"wpm"``, ``"ugm"``, ``"rwkv"``, ``"plamo2"``, or ``"none"`` for a
        model without one.
    model, pre : str
        ``tokenizer.ggml.model`` and, for ``"bpe"``, the pre-tokenizer's name.
    n_tokens : int
        Number of tokens.
    tokens : sequence of str
        Text of each token as the file writes it (``Ġthe``, ``▁the``, ``<0x0A>``).
    scores : float32[n_tokens]
        What SentencePiece goes by; 0 where the file has none.
    attrs : int32[n_tokens]
        `TokenAttr` bits.
    bos, eos, eot, eom, unk, sep, pad, mask, nl : int
        Special ids, -1 where there is none.
    fim_pre, fim_suf, fim_mid, fim_pad, fim_rep, fim_sep : int
        Those of fill-in-the-middle.
    eog_ids : frozenset of int
        Tokens that end a generation.
    add_bos, add_eos, add_sep, add_space_prefix : bool
        What `tokenize` adds.
    clean_spaces, escape_whitespaces, ignore_merges : bool
        How text is rebuilt, written and merged.
    suppress_tokens : list of int
        Ids that the file says must never be sampled.
    chat_templates : dict of str to str
        The file's chat templates by name; the usual one is ``"default"``.
    notes : list of str
        What llama.cpp warns about while loading.
    """

    bos: int
    eos: int
    eom: int
    unk: int
    sep: int
    pad: int
    mask: int
    fim_pre: int
    fim_suf: int
    fim_mid: int
    fim_pad: int
    fim_rep: int
    fim_sep: int

    def __init__(self) -> None:
        self.type = "none"
        self.model = "none"
        self.pre = ""
        self.n_tokens = 0
        self.tokens = TokenTexts([])
        self.token_to_id: dict[bytes, int] = {}
        self.scores = np.zeros(0, np.float32)  # [n_tokens]
        self.attrs = np.zeros(0, np.int32)  # [n_tokens]
        self.eog_ids: frozenset[int] = frozenset()
        self.add_bos = self.add_eos = self.add_sep = self.add_space_prefix = False
        self.clean_spaces = self.escape_whitespaces = self.ignore_merges = False
        self.suppress_tokens: list[int] = []
        self.chat_templates: dict[str, str] = {}
        self.notes: list[str] = []
        self.special_cache: list[int] = []
        self._tokenizer: Tokenizer | None = None
        self._eot: list[int] = []
        self._searches: dict[bool, Search] = {}
        self._pieces: dict[int, bytes] = {}
        self._compiled: dict[str, ChatTemplate] = {}
        self.set_special({}, [])

    def __repr__(self) -> str:
        pre = f", pre={self.pre!r}" if self.pre else ""
        return f"Vocab(type={self.type!r}{pre}, n_tokens={self.n_tokens})"

    @classmethod
    def from_gguf(cls, gguf: HasKeys) -> Vocab:
        """Vocabulary of an opened file.

        Parameters
        ----------
        gguf : llmviz.gguf.GGUF
            Only its ``kv``, ``kv_types``, ``arr_types`` and ``path`` are used.

        Raises
        ------
        GGUFError
            A key is missing, of the wrong type or too short; ``.field`` names it.
        UnsupportedError
            A tokenizer or pre-tokenizer that llmviz does not have.
        """
        return drain(cls.load_steps(gguf))

    @classmethod
    def load_steps(cls, gguf: HasKeys, *, depth: int = 0) -> Steps[Vocab]:
        """`from_gguf` as events of step 5, in the order in which things are found out.

        Yields ``"tokenizer"`` (dict of model, type and pre), ``"vocab_tokens"`` (sequence of str),
        ``"token_attrs"`` (int32[n_tokens]), ``"special_tokens"`` (mapping of name to id),
        ``"eog_ids"`` (sorted list) and ``"vocab_flags"`` (dict of name to bool).
        """
        vocab = cls()
        yield from load_steps(vocab, gguf, depth)
        return vocab

    # --- used while loading ---------------------------------------------------------------------

    def warn(self, message: str) -> None:
        """Warn with `VocabWarning`, and keep the message in `notes`."""
        self.notes.append(message)
        warnings.warn(message, VocabWarning, stacklevel=3)

    def set_special(self, ids: Mapping[str, int], eot_candidates: list[int]) -> None:
        """Set the special ids; several candidates for ``eot`` are told apart when asked for."""
        for name in SPECIAL_NAMES:
            if name != "eot":
                setattr(self, name, ids.get(name, -1))
        self._eot = eot_candidates or [ids.get("eot", -1)]

    def set_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Set what turns text into ids."""
        self._tokenizer = tokenizer
        self.type = tokenizer.type

    # --- looking things up ----------------------------------------------------------------------

    @property
    def tokenizer(self) -> Tokenizer:
        """What turns text into ids; an error for a model that has no vocabulary."""
        if self._tokenizer is None:
            raise VocabError(
                "the model has no vocabulary (tokenizer.ggml.model is 'none'), so it knows ids but "
                "no text. Pass ids"
            )
        return self._tokenizer

    @cached_property
    def eot(self) -> int:
        """The end-of-turn token; where several names fit, the one that llama.cpp takes."""
        return first_walked(self.tokens.raws, self._eot)

    @cached_property
    def nl(self) -> int:
        """The line feed token."""
        token = -1 if self._tokenizer is None else self._tokenizer.newline_id()
        if token < 0 and self._tokenizer is not None:
            self.warn("model vocab missing newline token, using the default padding token instead")
        return token

    @property
    def special_ids(self) -> SpecialIds:
        """Special ids by name, those there are; each is found when it is asked for."""
        return SpecialIds(self)

    @property
    def flags(self) -> dict[str, bool]:
        """The settings that `tokenize` and `detokenize` go by."""
        names = ("add_bos", "add_eos", "add_sep", "add_space_prefix", "clean_spaces")
        return {n: getattr(self, n) for n in (*names, "escape_whitespaces", "ignore_merges")}

    def find(self, text: str | bytes) -> int:
        """Id of the token whose text, as the file writes it, is `text`; -1 if there is none."""
        return self.token_to_id.get(encode(text) if isinstance(text, str) else text, -1)

    def token_text(self, token: int) -> str:
        """A token's text as the file writes it (``Ġthe``)."""
        return self.tokens[self._check(token)]

    def attr(self, token: int) -> TokenAttr:
        """A token's attributes."""
        return TokenAttr(int(self.attrs[self._check(token)]))

    def is_eog(self, token: int) -> bool:
        """Whether a token ends a generation."""
        return token in self.eog_ids

    def is_control(self, token: int) -> bool:
        """Whether a token is a control token."""
        return bool(self.attrs[self._check(token)] & TokenAttr.CONTROL)

    def _check(self, token: int) -> int:
        if self.tokenizer and not 0 <= token < self.n_tokens:
            raise VocabError(
                f"token id {token} is out of range: ids go from 0 to {self.n_tokens - 1}"
            )
        return token

    # --- text to ids (step 9) -------------------------------------------------------------------

    def tokenize(
        self, text: str | bytes, add_special: bool = True, parse_special: bool = False
    ) -> list[int]:
        """Token ids of a text.

        Parameters
        ----------
        text : str or bytes
            The prompt; bytes need not be valid UTF-8.
        add_special : bool
            Whether to add BOS and EOS where the vocabulary wants them.
        parse_special : bool
            Whether the text of a control token, such as ``<|im_end|>``, is taken for the token.

        Raises
        ------
        VocabError
            The model has no vocabulary, or the vocabulary lacks a token that the text needs.
        """
        tokenizer = self.tokenizer
        raw, pieces = self._cut(text, parse_special)
        ids = self._begin(add_special)
        after_special = True
        for token, offset, length in pieces:
            if token < 0:
                ids += tokenizer.encode(raw[offset : offset + length], after_special)
            else:
                ids.append(token)
            after_special = token >= 0
        return self._end(ids, add_special)

    def tokenize_steps(
        self,
        text: str | bytes,
        add_special: bool = True,
        parse_special: bool = False,
        *,
        depth: int = 0,
    ) -> Steps[list[int]]:
        """`tokenize` as events of step 9; returns the same ids.

        Yields ``"special_partition"`` (list of `Fragment`), then for each text fragment
        ``"pre_tokenize"`` (list of `Word`; about: the rules) and how the ids come about:

        * SentencePiece, byte-pair: ``"merge"`` for every join (`Merge`), ``"byte_fallback"`` for
          every symbol that is no token (`ByteFallback`);
        * WordPiece, RWKV: ``"match"`` or ``"unknown"`` for every token (`Match`);
        * Unigram, PLaMo-2: ``"lattice"`` for every place of the text (list of `Choice`), then
          ``"match"``, ``"unknown"`` or ``"byte_fallback"`` along the best path.
        """
        tokenizer = self.tokenizer
        raw, pieces = self._cut(text, parse_special)
        yield Event(
            "data",
            "special_partition",
            depth,
            9,
            [Fragment.of(raw, piece) for piece in pieces],
        )
        ids = self._begin(add_special)
        after_special = True
        for token, offset, length in pieces:
            if token < 0:
                part = raw[offset : offset + length]
                ids += yield from tokenizer.encode_steps(part, after_special, offset, depth)
            else:
                ids.append(token)
            after_special = token >= 0
        return self._end(ids, add_special)

    def _cut(self, text: str | bytes, parse_special: bool) -> tuple[bytes, list[Piece]]:
        """The prompt's bytes, and where special tokens and text lie in them."""
        raw = encode(text) if isinstance(text, str) else bytes(text)
        if parse_special not in self._searches:
            cache, raws = self.special_cache, self.tokens.raws
            self._searches[parse_special] = Search(cache, raws, self.attrs, parse_special)
        return raw, partition(raw, self._searches[parse_special])

    def _begin(self, add_special: bool) -> list[int]:
        names = self.tokenizer.opening() if add_special else []
        return [self._required(name) for name in names]

    def _end(self, ids: list[int], add_special: bool) -> list[int]:
        """Add EOS where wanted; warn where BOS or EOS is there twice."""
        if not add_special:
            return ids
        kind = self.tokenizer
        before_eos = len(ids)
        ids += [self._required(name) for name in kind.closing()]
        # A byte-pair vocabulary is looked at after EOS was added, which matters if it is BOS too.
        seen = len(ids) if kind.warns_double_eos else before_eos
        if kind.warns_double_bos and self.add_bos and seen >= 2 and ids[1] == self.bos:
            self._warn_double("BOS", "starts")
        if kind.warns_double_eos and self.add_eos and seen >= 2 and ids[-2] == self.eos:
            self._warn_double("EOS", "ends")
        return ids

    def _required(self, name: str) -> int:
        """A special token that has to be there if it is to be added."""
        token: int = getattr(self, name)
        if token < 0:
            raise VocabError(
                f"the vocabulary asks for {name.upper()} to be added around a text but names no "
                f"such token (tokenizer.ggml.{name}_token_id, tokenizer.ggml.add_{name}_token). "
                "Pass add_special=False"
            )
        return token

    def _warn_double(self, name: str, does: str) -> None:
        warnings.warn(
            f"{name} was added as the vocabulary asks, but the prompt {does} with {name} already, "
            f"so it is there twice. Pass add_special=False, or leave {name} out of the prompt",
            VocabWarning,
            stacklevel=4,
        )

    # --- ids to text ----------------------------------------------------------------------------

    def token_to_piece(self, token: int, lstrip: int = 0, special: bool = False) -> bytes:
        """The bytes that a token writes; they need not be whole characters.

        Parameters
        ----------
        token : int
            Its id.
        lstrip : int
            How many leading spaces to leave out, at most.
        special : bool
            Whether control and unknown tokens write their text (else nothing).
        """
        attr = int(self.attrs[self._check(token)])
        if not special and attr & (TokenAttr.UNKNOWN | TokenAttr.CONTROL):
            return b""
        piece = self._pieces.get(token)
        if piece is None:
            piece = self._pieces[token] = self.tokenizer.piece(self.tokens.raws[token], attr)
        if lstrip > 0 and piece[:1] == b" ":
            piece = piece[:lstrip].lstrip(b" ") + piece[lstrip:]
        return piece

    def detokenize_bytes(
        self, ids: Iterable[int], remove_special: bool = False, unparse_special: bool = False
    ) -> bytes:
        """`detokenize`, as the bytes that the tokens write."""
        if self._tokenizer is None:
            return b""
        tokens = [int(token) for token in ids]
        lstrip = int(self.add_space_prefix)
        if remove_special and self.add_bos and tokens[:1] == [self.bos]:
            lstrip = 0
            del tokens[0]
        if remove_special and self.add_eos and tokens[-1:] == [self.eos]:
            del tokens[-1]
        out = b"".join(
            self.token_to_piece(token, 0 if i else lstrip, unparse_special)
            for i, token in enumerate(tokens)
        )
        return _clean(out) if self.clean_spaces else out

    def detokenize(
        self, ids: Iterable[int], remove_special: bool = False, unparse_special: bool = False
    ) -> str:
        """Text of some tokens; bytes that are no UTF-8 become U+FFFD.

        Parameters
        ----------
        ids : iterable of int
            The tokens.
        remove_special : bool
            Whether to leave out the BOS and EOS that `tokenize` added.
        unparse_special : bool
            Whether control tokens write their text.
        """
        return self.detokenize_bytes(ids, remove_special, unparse_special).decode(
            "utf-8", "replace"
        )

    # --- chats ----------------------------------------------------------------------------------

    @property
    def chat_template(self) -> str | None:
        """The file's chat template (Jinja), None if it has none."""
        return self.chat_templates.get("default")

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        *,
        template: str = "default",
        **variables: Any,
    ) -> str:
        """The prompt that a chat is for this model.

        Tokenize it with ``parse_special=True``; where it begins with BOS, ``add_special=False``.

        Parameters
        ----------
        messages : sequence of mappings
            Each with ``"role"`` and ``"content"``.
        add_generation_prompt : bool
            Whether the prompt ends where the assistant's answer begins.
        template : str
            Name of one of the file's templates, or the text of one.
        **variables
            Further variables of the template, such as ``tools`` or ``enable_thinking``.

        Raises
        ------
        VocabError
            There is no template, it is not valid, it refuses the messages, or it runs too long.
        """
        text = self.chat_templates.get(template, template)
        if text == "default":
            raise VocabError(
                "the model file has no chat template (key tokenizer.chat_template). Write the "
                "prompt as plain text, or pass the text of a template as template="
            )
        if text not in self._compiled:
            from llmviz.vocab.chat import ChatTemplate  # brings jinja2 along, which takes a while

            self._compiled[text] = ChatTemplate(text)
        given = {
            f"{name}_token": self.token_text(token) if (token := getattr(self, name)) >= 0 else ""
            for name in ("bos", "eos")
        } | variables
        return self._compiled[text].render(
            messages, add_generation_prompt=add_generation_prompt, **given
        )


def _clean(text: bytes) -> bytes:
    """Take out spaces before some punctuation (Hugging Face's clean_up_tokenization_spaces)."""
    text = re.sub(rb" (?=[?!.,])", b"", text)
    text = text.replace(b" ' ", b"'")
    return re.sub(rb" (?='(?:[sm]|re|ve))", b"", text)
