"""The vocabulary: tokens, which of them are special, text to ids and back.
↔ src/llama-vocab.cpp (llama_vocab)

Reading order: this file, then `tokenizer` (what differs between kinds), `spm`, `bpe`, `pre`.
Opening is quick: the file's token texts are read, what only tokenizing needs is made at first use.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from llmviz.errors import VocabError
from llmviz.events import Event, Steps, drain
from llmviz.gguf.constants import ValueType
from llmviz.vocab import special
from llmviz.vocab.attributes import TokenAttr, attrs_of_types
from llmviz.vocab.chat import ChatTemplate
from llmviz.vocab.keys import HasKeys, Keys
from llmviz.vocab.partition import Fragment, partition, special_cache
from llmviz.vocab.strip import strip_attributes
from llmviz.vocab.tokenizer import Tokenizer, find_tokenizer, require_id
from llmviz.vocab.unicode import encode

__all__ = ["TokenTexts", "Vocab", "VocabWarning"]

_NAME = "tokenizer.ggml.%s"
_ADD = (("add_bos", "add_bos_token"), ("add_eos", "add_eos_token"), ("add_sep", "add_sep_token"))


class VocabWarning(UserWarning):
    """A vocabulary is odd, or a prompt is tokenized in a way that is probably not meant."""


class TokenTexts(Sequence[str]):
    """Token texts as str, decoded when asked for; `raws` holds their bytes."""

    def __init__(self, raws: list[bytes]) -> None:
        self.raws = raws

    def __len__(self) -> int:
        return len(self.raws)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [raw.decode("utf-8", "replace") for raw in self.raws[i]]
        return self.raws[i].decode("utf-8", "replace")


class Vocab:
    """A model's vocabulary. Made by `from_gguf`; nothing changes it afterwards.

    Attributes
    ----------
    type : str
        ``"spm"``, ``"bpe"``, or ``"none"`` for a model without one.
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
    notes : list of str
        What llama.cpp would have warned about while loading.
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
        self.scores = np.zeros(0, np.float32)
        self.attrs = np.zeros(0, np.int32)
        self.eog_ids: frozenset[int] = frozenset()
        self.add_bos = self.add_eos = self.add_sep = self.add_space_prefix = False
        self.clean_spaces = self.escape_whitespaces = self.ignore_merges = False
        self.suppress_tokens: list[int] = []
        self.notes: list[str] = []
        self.chat_templates: dict[str, str] = {}
        self._tokenizer: Tokenizer | None = None
        self.special_cache: list[int] = []
        self._eot = -1
        self._eot_candidates: list[int] = []
        self._pieces: dict[int, bytes] = {}
        self._templates: dict[str, ChatTemplate] = {}
        self._set_ids({})

    def __repr__(self) -> str:
        pre = f", pre={self.pre!r}" if self.pre else ""
        return f"Vocab(type={self.type!r}{pre}, n_tokens={self.n_tokens})"

    def _set_ids(self, ids: Mapping[str, int]) -> None:
        for name in special.SPECIAL_NAMES:
            if name == "eot":
                self._eot = ids.get("eot", -1)
            else:
                setattr(self, name, ids.get(name, -1))

    def warn(self, message: str) -> None:
        """Warn with `VocabWarning`, and keep the message in `notes`."""
        self.notes.append(message)
        warnings.warn(message, VocabWarning, stacklevel=3)

    # --- loading (step 5) -----------------------------------------------------------------------------------

    @classmethod
    def from_gguf(cls, gguf: HasKeys) -> Vocab:
        """Vocabulary of an opened file.

        Parameters
        ----------
        gguf : llmviz.gguf.GGUF
            Only its ``kv``, ``kv_types`` and ``arr_types`` are used.

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

        Yields ``"tokenizer"`` (dict of model, type and pre), ``"tokens"`` (sequence of str),
        ``"token_attrs"`` (int32[n_tokens]), ``"special_tokens"`` (dict of name to id), ``"eog_ids"``
        (sorted list), ``"vocab_flags"`` (dict of name to bool).
        """
        self = cls()
        keys = Keys(gguf)
        name = _NAME % "model"
        self.model = keys.require(
            keys.string(name), name, "It says which tokenizer the vocabulary needs"
        )
        kv = gguf.kv
        self.chat_templates = {
            key.removeprefix("tokenizer.chat_template").lstrip(".") or "default": str(kv[key])
            for key in kv
            if key == "tokenizer.chat_template" or key.startswith("tokenizer.chat_template.")
        }
        if self.model in ("no_vocab", "none"):
            size = keys.uint(f"{kv.get('general.architecture', '')}.vocab_size")
            self.n_tokens = size or 0  # a number the file claims: nothing of that size is made
            yield Event("data", "tokenizer", depth, 5, self._kind())
            return self

        self._tokenizer = find_tokenizer(self.model)(self, keys)
        self.type = self._tokenizer.type
        yield Event("data", "tokenizer", depth, 5, self._kind())
        prefix = keys.boolean(_NAME % "add_space_prefix")
        self.add_space_prefix = self.add_space_prefix if prefix is None else prefix

        self._read_tokens(keys)
        yield Event("data", "tokens", depth, 5, self.tokens)
        self._find_special(keys)
        strip_attributes(self, keys)
        yield Event("data", "token_attrs", depth, 5, self.attrs)
        yield Event("data", "special_tokens", depth, 5, self.special_ids)
        yield Event("data", "eog_ids", depth, 5, sorted(self.eog_ids))
        yield Event("data", "vocab_flags", depth, 5, self.flags)
        return self

    def _kind(self) -> dict[str, str]:
        return {"model": self.model, "type": self.type, "pre": self.pre}

    def _read_tokens(self, keys: Keys) -> None:
        """Texts, scores and attributes."""
        name = _NAME % "tokens"
        texts = keys.array(name, ValueType.STRING)
        if texts is None:
            raise keys.error("cannot find tokenizer vocab in model file: no list of tokens", name)
        raws = texts.raws()
        n = self.n_tokens = len(raws)
        for token, raw in enumerate(raws):
            if not raw:
                self.warn(f"empty token at index {token}")
                raws[token] = b"[EMPTY_%d]" % token
        self.tokens = TokenTexts(raws)
        self.token_to_id = dict(zip(raws, range(n), strict=True))
        if len(self.token_to_id) != n:
            twice = next(i for i, raw in enumerate(raws) if self.token_to_id[raw] != i)
            raise keys.error(
                f"tokens {twice} and {self.token_to_id[raws[twice]]} have the same text "
                f"{self.tokens[twice]!r}; a text must stand for one token",
                name,
            )
        scores = keys.per_token(_NAME % "scores", n, ValueType.FLOAT32, ValueType.INT32)
        self.scores = np.zeros(n, np.float32) if scores is None else np.float32(scores[:n])
        types = keys.per_token(_NAME % "token_type", n, ValueType.INT32)
        self.attrs = attrs_of_types(types, n)

    def _find_special(self, keys: Keys) -> None:
        """Special ids, flags, tokens that end a generation, tokens to be cut out of a text."""
        assert self._tokenizer is not None
        raws = self.tokens.raws
        ids = special.read_ids(keys, self._tokenizer.default_ids, self.n_tokens, self.warn)
        for flag, key in _ADD:
            value = keys.boolean(_NAME % key)
            if value is not None:
                setattr(self, flag, value)
        self._tokenizer.settle()
        suppress = keys.array(_NAME % "suppress_tokens", ValueType.INT32)
        if suppress is not None:
            self.suppress_tokens = [t for t in suppress.tolist() if 0 <= t < self.n_tokens]
        several = special.find_by_text(ids, raws, self.find, self.attrs, self.warn)
        special.mark_unused(raws, self.attrs)
        self.eog_ids = frozenset(
            special.end_of_generation(ids, raws, self.find, self.attrs, self.warn)
        )
        self._set_ids(ids)
        self._eot_candidates = several
        self.special_cache = special_cache(raws, self.attrs)

    # --- looking things up ----------------------------------------------------------------------------------

    @cached_property
    def eot(self) -> int:
        """The end-of-turn token; where several names fit, the one that llama.cpp takes."""
        if self._eot_candidates:
            return special.first_walked(self.tokens.raws, self._eot_candidates)
        return self._eot

    @cached_property
    def nl(self) -> int:
        """The line feed token."""
        if self._tokenizer is None:
            return -1
        token = self._tokenizer.newline_id()
        if token < 0:
            self.warn("model vocab missing newline token, using the default padding token instead")
        return token

    @property
    def special_ids(self) -> dict[str, int]:
        """Special ids by name, those there are."""
        ids = {name: getattr(self, name) for name in (*special.SPECIAL_NAMES, "nl")}
        return {name: token for name, token in ids.items() if token >= 0}

    @property
    def flags(self) -> dict[str, bool]:
        """The settings that `tokenize` and `detokenize` go by."""
        names = ("add_bos", "add_eos", "add_sep", "add_space_prefix", "clean_spaces")
        return {name: getattr(self, name) for name in (*names, "escape_whitespaces", "ignore_merges")}

    def find(self, text: str | bytes) -> int:
        """Id of the token whose text is `text` exactly as the file writes it, -1 if there is none."""
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
        if self._tokenizer is None:
            raise VocabError("the model has no vocabulary (tokenizer.ggml.model is 'none')")
        if not 0 <= token < self.n_tokens:
            raise VocabError(f"token id {token} is out of range: the vocabulary has {self.n_tokens}")
        return token

    # --- text to ids (step 9) -------------------------------------------------------------------------------

    def _pieces_of(self, text: str | bytes, parse_special: bool) -> tuple[bytes, list[Any]]:
        if self._tokenizer is None:
            raise VocabError(
                "the model has no vocabulary (tokenizer.ggml.model is 'none'), so text cannot be "
                "tokenized. Pass token ids"
            )
        raw = encode(text) if isinstance(text, str) else bytes(text)
        raws = self.tokens.raws
        return raw, partition(raw, parse_special, self.special_cache, raws, self.attrs)

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
        raw, pieces = self._pieces_of(text, parse_special)
        tokenizer = self._tokenizer
        assert tokenizer is not None
        ids = [require_id(self, "bos")] if add_special and self.add_bos else []
        after_special = True
        for token, offset, length in pieces:
            if token < 0:
                ids += tokenizer.encode(raw[offset : offset + length], after_special)
            else:
                ids.append(token)
            after_special = token >= 0
        return self._end(ids) if add_special else ids

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
        ``"pre_tokenize"`` (list of `Word`; about: the rules), and for each word a ``"merge"`` for every
        join (`Merge`) and a ``"byte_fallback"`` for every symbol that is no token (`ByteFallback`).
        """
        raw, pieces = self._pieces_of(text, parse_special)
        tokenizer = self._tokenizer
        assert tokenizer is not None
        fragments = [
            Fragment(
                "text" if token < 0 else "token",
                raw[offset : offset + length].decode("utf-8", "replace"),
                token,
                offset,
                length,
            )
            for token, offset, length in pieces
        ]
        yield Event("data", "special_partition", depth, 9, fragments)
        ids = [require_id(self, "bos")] if add_special and self.add_bos else []
        after_special = True
        for token, offset, length in pieces:
            if token < 0:
                part = raw[offset : offset + length]
                ids += yield from tokenizer.encode_steps(part, after_special, offset, depth)
            else:
                ids.append(token)
            after_special = token >= 0
        return self._end(ids) if add_special else ids

    def _end(self, ids: list[int]) -> list[int]:
        """Add EOS where wanted; warn where BOS or EOS is there twice."""
        assert self._tokenizer is not None
        n_given = len(ids)
        if self.add_eos:
            ids.append(require_id(self, "eos"))
        # SentencePiece looks before EOS is added, byte-pair after it: that matters if BOS and EOS are one.
        seen = len(ids) if self._tokenizer.warns_double_eos else n_given
        if self.add_bos and seen >= 2 and ids[1] == self.bos:
            self._warn_double("BOS", "starts")
        if self._tokenizer.warns_double_eos and self.add_eos and seen >= 2 and ids[-2] == self.eos:
            self._warn_double("EOS", "ends")
        return ids

    def _warn_double(self, name: str, does: str) -> None:
        warnings.warn(
            f"{name} was added as the vocabulary asks, but the prompt {does} with {name} already, so it "
            f"is there twice. Pass add_special=False, or leave {name} out of the prompt",
            VocabWarning,
            stacklevel=4,
        )

    # --- ids to text ----------------------------------------------------------------------------------------

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
            assert self._tokenizer is not None
            piece = self._pieces[token] = self._tokenizer.piece(self.tokens.raws[token], attr)
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
        if remove_special and self.add_bos and tokens and tokens[0] == self.bos:
            lstrip = 0
            tokens = tokens[1:]
        if remove_special and self.add_eos and tokens and tokens[-1] == self.eos:
            tokens = tokens[:-1]
        out = b"".join(
            self.token_to_piece(token, 0 if i else lstrip, unparse_special)
            for i, token in enumerate(tokens)
        )
        return _clean(out) if self.clean_spaces else out

    def detokenize(
        self, ids: Iterable[int], remove_special: bool = False, unparse_special: bool = False
    ) -> str:
        """Text of some tokens.

        Parameters
        ----------
        ids : iterable of int
            The tokens.
        remove_special : bool
            Whether to leave out the BOS and EOS that `tokenize` added.
        unparse_special : bool
            Whether control tokens write their text.

        Returns
        -------
        str
            Bytes that are no UTF-8 become U+FFFD.
        """
        return self.detokenize_bytes(ids, remove_special, unparse_special).decode("utf-8", "replace")

    # --- chats ----------------------------------------------------------------------------------------------

    @property
    def chat_template(self) -> str | None:
        """The file's chat template (Jinja), None if it has none."""
        return self.chat_templates.get("default")

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        *,
        template: str | None = None,
        **variables: Any,
    ) -> str:
        """The prompt that a chat is for this model.

        Tokenize it with ``parse_special=True``; where it begins with BOS, with ``add_special=False``.

        Parameters
        ----------
        messages : sequence of mappings
            Each with ``"role"`` and ``"content"``.
        add_generation_prompt : bool
            Whether the prompt ends where the assistant's answer begins.
        template : str, optional
            Name of another of the file's templates, or the text of one.
        **variables
            Further variables of the template, such as ``tools`` or ``enable_thinking``.

        Raises
        ------
        VocabError
            There is no template, it is not valid, it refuses the messages, or it runs too long.
        """
        text = self.chat_templates.get(template or "default", template)
        if text is None:
            raise VocabError(
                "the model file has no chat template (key tokenizer.chat_template). Write the prompt as "
                "plain text, or pass template="
            )
        if text not in self._templates:
            self._templates[text] = ChatTemplate(text)
        names = {
            f"{name}_token": self.token_text(getattr(self, name)) if getattr(self, name) >= 0 else ""
            for name in ("bos", "eos")
        }
        return self._templates[text].render(
            messages, add_generation_prompt=add_generation_prompt, **{**names, **variables}
        )


def _clean(text: bytes) -> bytes:
    """Take out spaces before some punctuation, as Hugging Face's clean_up_tokenization_spaces does."""
    text = re.sub(rb" (?=[?!.,])", b"", text)
    text = text.replace(b" ' ", b"'")
    return re.sub(rb" (?='(?:[sm]|re|ve))", b"", text)
