"""A check: pick a token, found by typing text."""

from __future__ import annotations

from typing import Any

from llmviz.errors import LlmvizError
from llmviz.lessons.base import Check
from llmviz.lessons.grading import NotAnAnswerError

__all__ = ["TokenCheck"]

_MOST = 200


class TokenCheck(Check):
    """Pick a token.

    Parameters
    ----------
    vocab : Vocab
        Text that is typed is cut by it.
    """

    kind_name = "token"

    def __init__(self, *args: Any, vocab: Any, **kw: Any) -> None:
        self.vocab = vocab
        super().__init__(*args, **kw)

    def read(self, given: Any) -> int:
        """A token id, or a text that is one token."""
        if isinstance(given, bool) or given is None:
            raise NotAnAnswerError("Type a text, then pick one of its tokens.")
        if isinstance(given, str):
            ids = self._ids(given)
            if len(ids) != 1:
                pieces = " ".join(f"“{self._piece(i)}”" for i in ids[:12])
                raise NotAnAnswerError(
                    f"That is {len(ids)} tokens: {pieces}. Pick one."
                    if ids
                    else "Type a text first."
                )
            return ids[0]
        try:
            token = int(given)
        except (TypeError, ValueError) as error:
            raise NotAnAnswerError("Pick one token.") from error
        if not 0 <= token < self.vocab.n_tokens:
            raise NotAnAnswerError(f"Tokens go from 0 to {self.vocab.n_tokens - 1:,}.")
        return token

    def right(self) -> list[int]:
        """The right tokens: one, or several that are each right."""
        answer = self._answer()
        several = not isinstance(answer, (int, str)) and hasattr(answer, "__iter__")
        return [self.read(a) for a in answer] if several else [self.read(answer)]

    def agrees(self, given: Any, right: Any) -> bool:
        """One of those that are right."""
        return given in right

    def nearer(self, given: Any, right: Any) -> str:
        """Whether it is the same word with other spaces or letters."""
        mine = self._piece(given)
        for token in right:
            other = self._piece(token)
            if mine.strip() == other.strip():
                return "The same letters, but look at the space: it belongs to the token."
            if mine.strip().lower() == other.strip().lower():
                return "The same letters, but large and small ones are different tokens."
        return f"Not “{mine}”."

    def written(self, value: Any) -> str:
        """Piece and id."""
        several = value if isinstance(value, list) else [value]
        return " or ".join(f"“{self._piece(i)}” ({i:,})" for i in several)

    def told(self, value: Any) -> Any:
        """One token as its id, several as a list."""
        return value[0] if isinstance(value, list) and len(value) == 1 else value

    def plain(self, value: Any) -> dict[str, Any]:
        """The typed text that has it, and the id."""
        token = value[0] if isinstance(value, list) else value
        return {"text": self._piece(token), "id": token, "tokens": [self._shown(token)]}

    def reply(self, content: dict[str, Any]) -> dict[str, Any]:
        """The tokens of a text, as it is typed."""
        if content.get("do") != "tokenize":
            return {}
        try:
            ids = self._ids(str(content.get("text", "")))
        except NotAnAnswerError as error:
            return {"tokens": [], "problem": str(error)}
        return {"tokens": [self._shown(i) for i in ids]}

    def _shown(self, token: int) -> dict[str, Any]:
        return {"id": token, "text": self._piece(token)}

    def _ids(self, text: str) -> list[int]:
        try:
            return self.vocab.tokenize(text[:_MOST], add_special=False, parse_special=True)
        except LlmvizError as error:
            raise NotAnAnswerError(str(error)) from error

    def _piece(self, token: int) -> str:
        return self.vocab.token_to_piece(token, special=True).decode("utf-8", "replace")
