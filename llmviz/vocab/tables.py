"""Two small views of a vocabulary, and its warning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, overload

from llmviz.vocab.special import SPECIAL_NAMES

if TYPE_CHECKING:
    from llmviz.vocab.vocab import Vocab

__all__ = ["SpecialIds", "TokenTexts", "VocabWarning"]

_NAMES = (*SPECIAL_NAMES, "nl")


class VocabWarning(UserWarning):
    """A vocabulary is odd, or a prompt is tokenized in a way that is probably not meant."""


class TokenTexts(Sequence[str]):
    """Token texts as str, each decoded when asked for; `raws` holds their bytes."""

    def __init__(self, raws: list[bytes]) -> None:
        self.raws = raws

    def __len__(self) -> int:
        return len(self.raws)

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        if isinstance(i, slice):
            return [raw.decode("utf-8", "replace") for raw in self.raws[i]]
        return self.raws[i].decode("utf-8", "replace")

    def __repr__(self) -> str:
        more = ", ..." if len(self) > 3 else ""
        return f"TokenTexts([{', '.join(map(repr, self[:3]))}{more}], n={len(self)})"


class SpecialIds(Mapping[str, int]):
    """The special ids that a vocabulary has, by name (``"bos"``, ``"eot"``, ``"nl"`` ...)."""

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab

    def __getitem__(self, name: str) -> int:
        token = getattr(self._vocab, name) if name in _NAMES else -1
        if token < 0:
            raise KeyError(name)
        return token

    def __iter__(self) -> Iterator[str]:
        return (name for name in _NAMES if getattr(self._vocab, name) >= 0)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))
