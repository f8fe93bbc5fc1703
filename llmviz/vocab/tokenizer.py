"""What a tokenizer is, and the registry of them by ``tokenizer.ggml.model``.
↔ src/llama-vocab.cpp (llama_vocab::impl::load, llama_vocab::impl::tokenize)

A new type is one file with a subclass of `Tokenizer`, imported in ``vocab/__init__.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from llmviz.errors import UnsupportedError
from llmviz.events import Steps
from llmviz.vocab.attributes import TokenAttr

if TYPE_CHECKING:
    from llmviz.vocab.keys import Keys
    from llmviz.vocab.vocab import Vocab

__all__ = ["TOKENIZERS", "ByteFallback", "Tokenizer", "Word", "find_tokenizer"]

TOKENIZERS: dict[str, type[Tokenizer]] = {}
"""Tokenizer classes by the value of ``tokenizer.ggml.model``."""

_NOT_BUILT = {"test": "llama.cpp's test tokenizer"}


class Word(NamedTuple):
    """A piece of text that is merged by itself.

    Attributes
    ----------
    text : str
        As it is in the prompt, but with the prefix space and with ``▁`` where the vocabulary
        writes it.
    offset, length : int
        The bytes of the prompt that it covers.
    """

    text: str
    offset: int
    length: int


class ByteFallback(NamedTuple):
    """A symbol that is no token and is written byte by byte.

    Attributes
    ----------
    text : str
        The symbol.
    bytes : bytes
        Its bytes.
    ids : list of int
        Their tokens; fewer than bytes where the vocabulary has no token for a byte (which drops
        it).
    """

    text: str
    bytes: bytes
    ids: list[int]


class Tokenizer(ABC):
    """Turns text into ids and ids into bytes, for one kind of vocabulary.

    Made by `Vocab`, whose flags it sets to its own defaults; reads the vocabulary, never changes it
    afterwards. Subclasses name the ``tokenizer.ggml.model`` values they stand for in `models`.
    """

    models: ClassVar[tuple[str, ...]] = ()
    type: ClassVar[str] = ""
    defaults: ClassVar[Mapping[str, int]] = {}
    """Special ids that hold unless the file says otherwise, by name (``"bos"``, ``"eos"`` ...)."""
    takes_whole_tokens: ClassVar[bool] = False
    """Whether `encode_steps` tells of every token where it was found, instead of merging."""
    warns_double_bos: ClassVar[bool] = True
    warns_double_eos: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        for model in cls.models:
            TOKENIZERS[model] = cls

    def __init__(self, vocab: Vocab, keys: Keys) -> None:
        self.vocab = vocab
        self.default_ids = dict(self.defaults)

    def settle(self) -> None:
        """Correct the vocabulary's flags once the file's own have been read."""
        return

    def opening(self) -> list[str]:
        """Names of the special tokens put before a text."""
        return ["bos"] if self.vocab.add_bos else []

    def closing(self) -> list[str]:
        """Names of the special tokens put after a text."""
        return ["eos"] if self.vocab.add_eos else []

    @abstractmethod
    def encode(self, text: bytes, after_special: bool) -> list[int]:
        """Ids of a stretch of text that has no special token in it.

        Parameters
        ----------
        text : bytes
            Not empty; need not be valid UTF-8.
        after_special : bool
            Whether it begins the prompt or follows a special token.
        """

    @abstractmethod
    def encode_steps(
        self, text: bytes, after_special: bool, offset: int, depth: int
    ) -> Steps[list[int]]:
        """`encode` as events; `offset` is where `text` begins in the prompt."""

    @abstractmethod
    def newline_id(self) -> int:
        """Id of the token for a line feed, -1 if there is none."""

    @abstractmethod
    def plain_piece(self, text: bytes) -> bytes:
        """What a normal token with this text writes."""

    def piece(self, text: bytes, attr: int) -> bytes:
        """What a token writes when special tokens are shown.

        Parameters
        ----------
        text : bytes
            The token's text.
        attr : int
            Its attributes.
        """
        if attr & (TokenAttr.UNKNOWN | TokenAttr.CONTROL | TokenAttr.USER_DEFINED):
            return text
        if attr & TokenAttr.NORMAL:
            return self.plain_piece(text)
        if attr & TokenAttr.BYTE:
            return bytes([byte_value(text)])
        return b""


def byte_value(text: bytes) -> int:
    """The byte that a token called ``<0xNN>`` stands for; 0 where there is no number."""
    digits = text[3:5]
    while digits:
        try:
            return int(digits, 16)
        except ValueError:
            digits = digits[:-1]
    return 0


def byte_name(byte: int) -> bytes:
    """Text of the token for one byte."""
    return b"<0x%02X>" % byte


def find_tokenizer(model: str) -> type[Tokenizer]:
    """The class for a value of ``tokenizer.ggml.model``.

    Raises
    ------
    UnsupportedError
        There is none; the message says which kind it is, if it is known, and lists those there are.
    """
    if model in TOKENIZERS:
        return TOKENIZERS[model]
    known = _NOT_BUILT.get(model)
    raise UnsupportedError(
        "tokenizer" if known else "(unknown) tokenizer",
        model,
        supported=sorted({*TOKENIZERS, "none"}),
        hint=f"This is {known}, which llmviz does not have"
        if known
        else "The key is tokenizer.ggml.model",
    )
