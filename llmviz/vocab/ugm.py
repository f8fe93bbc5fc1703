"""Unigram, SentencePiece's other tokenizer: of all ways to cut a text, the one whose tokens have
the highest sum of scores. ↔ src/llama-vocab.cpp (llm_tokenizer_ugm_session)

A score is a log probability, so the sum is that of the cut. At each place of the text only the
best way to get there is kept (Viterbi); the path is read back from the end.
"""

from __future__ import annotations

import sys
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from llmviz.events import Event, Steps, drain
from llmviz.gguf.constants import ValueType
from llmviz.vocab.attributes import TokenAttr
from llmviz.vocab.charsmap import CharsMap
from llmviz.vocab.keys import Keys
from llmviz.vocab.matching import Choice, Match, Prefixes
from llmviz.vocab.tokenizer import Tokenizer, Word
from llmviz.vocab.unicode import code_point, decode_bytes_text, width_of

if TYPE_CHECKING:
    from llmviz.vocab.vocab import Vocab

__all__ = ["UGM"]

CHARSMAP = "tokenizer.ggml.precompiled_charsmap"
REMOVE_SPACES = "tokenizer.ggml.remove_extra_whitespaces"
SPACE = "▁".encode()
REPLACEMENT = "\ufffd".encode()
UNKNOWN_PENALTY = np.float32(10.0)

_IN_TRIE = TokenAttr.NORMAL | TokenAttr.USER_DEFINED | TokenAttr.UNUSED


class UGM(Tokenizer):
    """Tokenizer of ``tokenizer.ggml.model`` = ``t5``."""

    models = ("t5",)
    type = "ugm"
    takes_whole_tokens = True
    defaults = {"eos": 1, "unk": 2, "pad": 0}

    def __init__(self, vocab: Vocab, keys: Keys) -> None:
        super().__init__(vocab, keys)
        vocab.add_eos = vocab.escape_whitespaces = True
        self.remove_extra_whitespaces = bool(keys.boolean(REMOVE_SPACES))
        self._attrs = np.zeros(0, np.int32)
        self._map = None
        blob = keys.array(CHARSMAP, ValueType.INT8, ValueType.UINT8)
        if blob is not None:
            try:
                self._map = CharsMap(np.asarray(blob).tobytes())
            except ValueError as error:
                raise keys.error(
                    f"{CHARSMAP} is damaged: {error}. Convert the model again", CHARSMAP
                ) from None

    def settle(self) -> None:
        """Remember the attributes as the file gives them: the trie is made of these."""
        self._attrs = self.vocab.attrs.copy()

    # --- the vocabulary -------------------------------------------------------------------------

    @cached_property
    def _prefixes(self) -> Prefixes:
        raws = self.vocab.tokens.raws
        return Prefixes({raws[t]: t for t in np.flatnonzero(self._attrs & _IN_TRIE).tolist()})

    @cached_property
    def _user_defined(self) -> frozenset[bytes]:
        """Every beginning of a user-defined token: such a stretch is not normalized."""
        raws = self.vocab.tokens.raws
        tokens = np.flatnonzero(self._attrs & TokenAttr.USER_DEFINED).tolist()
        return frozenset(raws[t][:n] for t in tokens for n in range(1, len(raws[t]) + 1))

    @cached_property
    def _scores(self) -> list[float]:
        """Score of each token as it counts: a user-defined one costs nothing."""
        user = (self.vocab.attrs & TokenAttr.USER_DEFINED) != 0  # [n_tokens]
        return np.where(user, np.float32(0), self.vocab.scores).tolist()

    @cached_property
    def _unknown_score(self) -> float:
        """Ten below the worst normal token."""
        scores = self.vocab.scores[(self._attrs & TokenAttr.NORMAL) != 0]
        worst = np.fmin.reduce(scores, initial=np.finfo(np.float32).max)
        return float(np.float32(worst) - UNKNOWN_PENALTY)

    # --- normalizing ----------------------------------------------------------------------------

    def _normal_prefix(self, text: bytes, at: int) -> tuple[bytes, int]:
        """What the text from `at` on begins with, normalized, and how many bytes that replaces."""
        user, known = self._user_defined, 0
        while at + known < len(text) and text[at : at + known + 1] in user:
            known += 1
        if known:
            return text[at : at + known], known
        replaced = self._map.longest(text, at) if self._map is not None else None
        if replaced is not None:
            return replaced[1], replaced[0]
        point, width = code_point(text, at)
        if point == 0xFFFD and width == 1:  # starts no character
            return REPLACEMENT, 1
        return text[at : at + width], width

    def _normalize(self, text: bytes) -> tuple[bytes, list[tuple[int, int]]]:
        """The text as it is looked up, and for each of its bytes those of `text` it comes from."""
        space = SPACE if self.vocab.escape_whitespaces else b" "
        prefix, merge = self.vocab.add_space_prefix, self.remove_extra_whitespaces
        out = bytearray()
        places: list[tuple[int, int]] = []
        in_word = prefixed = False
        at = 0
        while at < len(text):
            normal, used = self._normal_prefix(text, at)
            where = at, at + used
            for byte in normal:
                if byte != 0x20:
                    if not in_word:
                        in_word = True
                        if (prefix and not prefixed) or merge:
                            prefixed = True
                            out += space
                            places += [(at, at)] * len(space)
                    out.append(byte)
                    places.append(where)
                else:
                    in_word = False
                    if not merge:
                        out += space
                        places += [where] * len(space)
            at += used
        return bytes(out), places

    # --- the best path --------------------------------------------------------------------------

    def _choices(self, normal: bytes, at: int, unk: int) -> list[tuple[int, int, float]]:
        """(end, id, score) of the tokens that begin at `at`; `unk` if none is one character."""
        end = min(at + width_of(normal[at]), len(normal))
        scores = self._scores
        found = [(at + n, token, scores[token]) for n, token in self._prefixes.at(normal, at)]
        if not any(stop == end for stop, _, _ in found):
            found.append((end, unk, self._unknown_score))
        return found

    def _best_steps(self, normal: bytes, unk: int, depth: int | None) -> Steps[list[list[int]]]:
        """Fill the table of best ways; returns the path as [start, end, id], unknowns joined.

        `depth` None yields nothing.
        """
        n = len(normal)
        best = [-sys.float_info.max] * (n + 1)
        best[0] = 0.0
        token_of, start_of = [unk] * (n + 1), [0] * (n + 1)
        at = 0
        while at < n:
            seen = []
            for end, token, score in self._choices(normal, at, unk):
                total = best[at] + score
                better = total > best[end]
                if better:
                    best[end], token_of[end], start_of[end] = total, token, at
                if depth is not None:
                    piece = decode_bytes_text(normal[at:end])
                    seen.append(Choice(at, end, piece, token, score, total, better))
            if depth is not None:
                yield Event("data", "lattice", depth, 9, seen, {"forward": True})
            at = min(at + width_of(normal[at]), n)
        ends = [n]
        while start_of[ends[-1]] > 0:
            ends.append(start_of[ends[-1]])
        ends.append(0)
        path: list[list[int]] = []
        for start, end in pairwise(reversed(ends)):
            token = token_of[end]
            if path and token == unk and path[-1][2] == unk:
                path[-1][1] = end
            else:
                path.append([start, end, token])
        return path

    def _path(self, normal: bytes, unk: int) -> list[list[int]]:
        return drain(self._best_steps(normal, unk, None))

    def encode(self, text: bytes, after_special: bool) -> list[int]:
        """Ids of a stretch of text."""
        normal, _ = self._normalize(text)
        return [token for _, _, token in self._path(normal, self.vocab.unk)] if normal else []

    def encode_steps(
        self, text: bytes, after_special: bool, offset: int, depth: int
    ) -> Steps[list[int]]:
        """`encode` as events: the normalized text, the choices at each place, the best path."""
        normal, places = self._normalize(text)
        word = Word(decode_bytes_text(normal), offset, len(text))
        about = {
            "pre": "",
            "regexes": [],
            "remove_extra_whitespaces": self.remove_extra_whitespaces,
            "charsmap": self._map is not None,
        }
        yield Event("data", "pre_tokenize", depth, 9, [word] if normal else [], about)
        if not normal:
            return []
        unk = self.vocab.unk
        ids = []
        for start, end, token in (yield from self._best_steps(normal, unk, depth)):
            first, last = places[start][0], places[end - 1][1]
            shorter = [
                (decode_bytes_text(normal[start : start + n]), other)
                for n, other in self._prefixes.at(normal[:end], start)
                if start + n < end
            ]
            piece = decode_bytes_text(normal[start:end])
            match = Match(0, piece, token, offset + first, last - first, shorter[::-1])
            yield Event("data", "unknown" if token == unk else "match", depth, 9, match)
            ids.append(token)
        return ids

    def newline_id(self) -> int:
        """First token of a text that is a line feed, else the default padding token.

        llama.cpp asks before it has read the file's own special ids.
        """
        normal, _ = self._normalize(b"\n")
        if not normal:
            return self.default_ids["pad"]
        return self._path(normal, self.default_ids["unk"])[0][2]

    def plain_piece(self, text: bytes) -> bytes:
        """The text with spaces for ``▁``."""
        return text.replace(SPACE, b" ")
