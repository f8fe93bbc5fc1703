"""PLaMo-2's tokenizer: the cheapest way to cut the text, found from its end.
↔ src/llama-vocab.cpp (llm_tokenizer_plamo2)

Scores are rounded to ten-thousandths and added as whole numbers. llama.cpp walks a table of all
suffixes of all tokens (an Aho-Corasick automaton read backwards); `_rows` gives the rows that the
table would hold, from two dictionaries. A character that is no token costs 1,000 and is written as
bytes.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING

from llmviz.errors import GGUFError
from llmviz.events import Event, Steps, drain
from llmviz.vocab.attributes import TokenAttr
from llmviz.vocab.keys import Keys
from llmviz.vocab.matching import Choice, Match
from llmviz.vocab.tokenizer import ByteFallback, Tokenizer, Word
from llmviz.vocab.unicode import decode, decode_bytes_text, decode_with_widths, encode

if TYPE_CHECKING:
    from llmviz.vocab.vocab import Vocab

__all__ = ["Plamo2"]

INVALID, UNKNOWN = -20_000_000, -10_000_000
"""Scores of a suffix that is no token, and of a character that is none."""
FARTHEST = 1 << 60


class Plamo2(Tokenizer):
    """Tokenizer of ``tokenizer.ggml.model`` = ``plamo2``."""

    models = ("plamo2",)
    type = "plamo2"
    takes_whole_tokens = True
    defaults = {"bos": 1, "eos": 2, "unk": 0, "pad": 3}
    warns_double_bos = False

    def __init__(self, vocab: Vocab, keys: Keys) -> None:
        super().__init__(vocab, keys)
        vocab.escape_whitespaces = True
        self._path_of_file = getattr(keys.gguf, "path", None)
        self._bytes: list[int] = []

    def opening(self) -> list[str]:
        """Nothing is added."""
        return []

    def closing(self) -> list[str]:
        """Nothing is added."""
        return []

    def settle(self) -> None:
        """Find the tokens of the 256 bytes, which all have to be there."""
        found = [0] * 256
        self._is_byte = (self.vocab.attrs & TokenAttr.BYTE) != 0  # [n_tokens]
        raws = self.vocab.tokens.raws
        for token in self._is_byte.nonzero()[0].tolist():
            byte = _byte_of(raws[token])
            if byte is not None:
                found[byte] = token
        if 0 in found:
            byte = found.index(0)
            raise GGUFError(
                f"Byte token for <0x{byte}> is not set: a PLaMo-2 vocabulary needs a token of type "
                "byte, other than token 0, for each of the 256 bytes; "
                f"'<0x{byte:02X}>' is missing. Convert the model again",
                field="tokenizer.ggml.tokens",
                path=self._path_of_file,
            )
        self._bytes = found

    # --- the table ------------------------------------------------------------------------------

    @cached_property
    def _scores(self) -> dict[str, int]:
        """Whole-number score of every token that is no byte."""
        scores = self.vocab.scores.tolist()
        texts = zip(self._texts, scores, strict=True)
        return {text: _whole(score) for text, score in texts if text is not None}

    @cached_property
    def _texts(self) -> list[str | None]:
        raws = self.vocab.tokens.raws
        return [
            None if byte else decode(raw)
            for raw, byte in zip(raws, self._is_byte.tolist(), strict=True)
        ]

    @cached_property
    def _suffixes(self) -> frozenset[str]:
        """Every token and everything that ends one."""
        texts = [text for text in self._texts if text is not None]
        return frozenset(text[i:] for text in texts for i in range(len(text)))

    def _rows(self, text: str, at: int, length: int) -> list[tuple[int, int]]:
        """(length, score) of what the table holds for ``text[at:at+length]``, longest first.

        Suffixes that are no token are there too, as `INVALID`; the row of the single unknown
        character ends it. A token that scores as much as that row hides what is below it.
        """
        rows = []
        for n in range(length, 0, -1):
            piece = text[at : at + n]
            score = self._scores.get(piece)
            if score is None and piece not in self._suffixes:
                continue
            rows.append((n, INVALID if score is None else score))
            if score == UNKNOWN:
                return rows
        rows.append((0, UNKNOWN))
        return rows

    def _longest(self, text: str, at: int, rows: list[tuple[int, int]]) -> int:
        """Characters of the longest suffix that begins at `at`; `rows` are of the place after."""
        for n, score in rows:
            if text[at : at + 1 + n] in self._suffixes:
                return n + 1
            if score == UNKNOWN:
                break
        return 0

    # --- the best path --------------------------------------------------------------------------

    def _best_steps(self, text: str, depth: int | None) -> Steps[list[tuple[int, int, int]]]:
        """Fill the table of costs from the end; returns the path as (start, end, id or -1).

        `depth` None yields nothing.
        """
        n = len(text)
        cost = [FARTHEST] * n + [0]
        token_of, length_of = [-1] * n, [1] * n
        find = self.vocab.token_to_id.get
        rows: list[tuple[int, int]] = [(0, UNKNOWN)]
        for at in range(n - 1, -1, -1):
            rows = self._rows(text, at, self._longest(text, at, rows))
            seen = []
            for length, score in rows:
                if score <= INVALID:
                    continue
                piece = text[at : at + (length or 1)]
                token = find(encode(piece), -1) if length else -1
                total = cost[at + len(piece)] - score
                better = total < cost[at]
                if better:
                    cost[at], token_of[at], length_of[at] = total, token, len(piece)
                if depth is not None:
                    end = at + len(piece)
                    seen.append(Choice(at, end, piece, token, score / 1e4, -total / 1e4, better))
            if depth is not None:
                yield Event("data", "lattice", depth, 9, seen, {"forward": False})
        path = []
        at = 0
        while at < n:
            path.append((at, at + length_of[at], token_of[at]))
            at += length_of[at]
        return path

    def _ids(self, piece: str, token: int) -> list[int]:
        """The token, or those of the bytes of the piece's first character."""
        return [token] if token >= 0 else [self._bytes[byte] for byte in encode(piece[:1])]

    def encode(self, text: bytes, after_special: bool) -> list[int]:
        """Ids of a stretch of text."""
        ready = decode(text).removeprefix("\ufeff")
        path = drain(self._best_steps(ready, None))
        return [i for start, end, token in path for i in self._ids(ready[start:end], token)]

    def encode_steps(
        self, text: bytes, after_special: bool, offset: int, depth: int
    ) -> Steps[list[int]]:
        """`encode` as events: the choices at each place from the last on, then the best path."""
        ready, widths = decode_with_widths(text)
        if ready[:1] == "\ufeff":
            ready, offset, widths = ready[1:], offset + widths[0], widths[1:]
        word = Word(ready, offset, sum(widths))
        about = {"pre": "", "regexes": []}
        yield Event("data", "pre_tokenize", depth, 9, [word] if ready else [], about)
        ids: list[int] = []
        for start, end, token in (yield from self._best_steps(ready, depth)):
            piece, length = ready[start:end], sum(widths[start:end])
            own = self._ids(piece, token)
            if token >= 0:
                shorter = [
                    (piece[:n], self.vocab.token_to_id[encode(piece[:n])])
                    for n in range(len(piece) - 1, 0, -1)
                    if piece[:n] in self._scores
                ]
                value: Match | ByteFallback = Match(0, piece, token, offset, length, shorter)
                yield Event("data", "match", depth, 9, value)
            else:
                value = ByteFallback(decode_bytes_text(encode(piece)), encode(piece), own)
                yield Event("data", "byte_fallback", depth, 9, value)
            offset += length
            ids += own
        return ids

    def newline_id(self) -> int:
        """First token of a text that is a line feed."""
        return self.encode(b"\n", True)[0]

    def plain_piece(self, text: bytes) -> bytes:
        """The text itself."""
        return text

    def piece(self, text: bytes, attr: int) -> bytes:
        """A byte for a byte token, else the text, whatever the token's other attributes."""
        byte = _byte_of(text) if attr & TokenAttr.BYTE else None
        return text if byte is None else bytes([byte])


def _byte_of(text: bytes) -> int | None:
    """The byte that ``<0xNN>`` names; None of other texts."""
    if len(text) != 6 or text[:3] != b"<0x" or text[5:] != b">":
        return None
    try:
        return int(text[3:5].decode("ascii"), 16) if text[3:5].isalnum() else None
    except ValueError:
        return None


def _whole(score: float) -> int:
    """A score in ten-thousandths, halves away from zero; `INVALID` for what is no 32-bit number."""
    if not math.isfinite(score):
        return INVALID
    scaled = score * 1e4
    whole = math.floor(abs(scaled) + 0.5)
    return INVALID if whole > 0x7FFFFFFF else whole if scaled > 0 else -whole
