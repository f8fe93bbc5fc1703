"""Pre-tokenizers of byte-pair vocabularies: how a text is cut into words before any merge.
↔ src/llama-vocab.cpp (llm_tokenizer_bpe; the names in load), src/unicode.cpp (unicode_regex_split)

A pre-tokenizer is a list of rules, applied one after the other: each cuts every piece that the
rules before it left into its matches and what lies between them. A rule sees only its piece, so a
look-ahead stops at the piece's end. This module has the rules; which name has which is in
`pre_names`.

Does not merge: that is `bpe.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from llmviz.vocab.unicode import LETTER, MARK, NUMBER, PUNCTUATION, SYMBOL, blank, collapse

__all__ = ["DigitGroups", "PreTokenizer", "Regex", "Rule", "Text"]

# Insides of character classes over collapsed text: "[{L}]" is what is elsewhere written "\p{L}".
N = "0-9" + NUMBER
L = "A-Za-z" + LETTER
M = MARK
P = r"!-#%-*,-/:;?@\[-\]_{}" + PUNCTUATION
S = r"$+<->\^`|~" + SYMBOL
# Collapsed text has no case beyond ASCII, so a non-ASCII letter counts as upper and as lower case.
UPPER = "A-Z" + LETTER
LOWER = "a-z" + LETTER
# In the "han" form, Chinese characters: letters, and code points of those blocks that are none.
HAN, HAN_BLANK = "\xd6", "\xd7"

_HAN_BLOCKS = re.compile(
    "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002ebef"
    "\U0002f800-\U0002fa1f]+"
)

_WRITTEN = (
    (f"[{L}]", r"\p{L}"),
    (f"[{N}]", r"\p{N}"),
    (L, r"\p{L}"),
    (UPPER, r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}"),
    (LOWER, r"\p{Ll}\p{Lm}\p{Lo}"),
    (N, r"\p{N}"),
    (P, r"\p{P}"),
    (S, r"\p{S}"),
    (M, r"\p{M}"),
    (f"[{HAN}{HAN_BLANK}]", r"\p{Han}"),
    (HAN, r"\p{Han}"),
)


class Text:
    """A text and the forms of it that rules look at, all of one length and made when asked for."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def collapsed(self) -> str:
        """Every non-ASCII character replaced by its category's stand-in."""
        return collapse(self.text)

    @cached_property
    def blanked(self) -> str:
        """Non-ASCII white space replaced by an ASCII one."""
        return blank(self.text)

    @cached_property
    def han(self) -> str:
        """The collapsed form with Chinese characters told apart from other letters."""
        chars = list(self.collapsed)
        for run in _HAN_BLOCKS.finditer(self.text):
            for at in range(*run.span()):
                chars[at] = HAN if chars[at] == LETTER else HAN_BLANK
        return "".join(chars)


class Rule(Protocol):
    """One way of cutting a piece of text into parts."""

    @property
    def shown(self) -> str:
        """The rule as it is usually written, with Unicode classes."""
        ...

    def cut(self, text: Text, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Where the parts of ``text[start:end]`` lie: not empty, in order, covering it."""
        ...


class Regex:
    """A rule that is a regular expression.

    Parameters
    ----------
    pattern : str
        Over the form that `over` names, with ASCII meanings of ``\\s`` and ``\\d``.
    over : str
        ``"collapsed"``, ``"blanked"`` or ``"han"``: see `Text`.
    """

    def __init__(self, pattern: str, over: str = "collapsed") -> None:
        self.pattern = pattern
        self.over = over

    @property
    def shown(self) -> str:
        """The expression with Unicode classes written as ``\\p{..}``."""
        shown = self.pattern
        for ours, usual in _WRITTEN if self.over != "blanked" else ():
            shown = shown.replace(ours, usual)
        return shown

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern, re.ASCII)

    def cut(self, text: Text, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Matches and the gaps between them; an empty match only marks where a part ends."""
        at = start
        for match in self._compiled.finditer(getattr(text, self.over), start, end):
            first, last = match.span()
            if first > at:
                yield at, first
            if last > first:
                yield first, last
            at = last
        if at < end:
            yield at, end


class DigitGroups:
    """Digits in threes counted from the right; text before them stays with the first group.

    That it stays glued is llama.cpp's behaviour; the rules that follow part it.
    """

    shown = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"
    _digits = re.compile(f"[{N}]+")

    def cut(self, text: Text, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Where the groups lie."""
        at = start
        for run in self._digits.finditer(text.collapsed, start, end):
            first, last = run.span()
            for stop in range(first + ((last - first) % 3 or 3), last + 1, 3):
                yield at, stop
                at = stop
        if at < end:
            yield at, end


@dataclass(frozen=True)
class PreTokenizer:
    """What ``tokenizer.ggml.pre`` stands for: rules, and settings that go with the name.

    Attributes
    ----------
    name : str
        The value of ``tokenizer.ggml.pre``.
    rules : tuple of Rule
        Applied in order.
    byte_encode : bool
        Whether words are written in printable bytes (``Ġ`` for a space); False for vocabularies
        that hold plain UTF-8 and ``<0xNN>``.
    escape_whitespaces : bool
        Whether a space is written ``▁``.
    ignore_merges : bool
        Whether a word that is itself a token is taken without merging.
    clean_spaces, add_bos, add_sep : bool
        Defaults of the vocabulary's flags of these names.
    has_bos : bool
        False where there is no BOS unless the file names one.
    gemma4 : bool
        A run of newlines that is a token is taken without merging, and BOS is always added.
    """

    name: str
    rules: tuple[Rule, ...]
    byte_encode: bool = True
    escape_whitespaces: bool = False
    ignore_merges: bool = False
    clean_spaces: bool = True
    add_bos: bool = False
    add_sep: bool = False
    has_bos: bool = True
    gemma4: bool = False

    def split(self, text: str) -> list[str]:
        """Words of `text`, in order; joined they are `text`."""
        forms = Text(text)
        spans = [(0, len(text))]
        for rule in self.rules:
            spans = [part for start, end in spans for part in rule.cut(forms, start, end)]
        return [text[start:end] for start, end in spans]

    @property
    def regexes(self) -> list[str]:
        """The rules as they are usually written, with Unicode classes."""
        return [rule.shown for rule in self.rules]
