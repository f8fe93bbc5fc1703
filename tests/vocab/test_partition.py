"""Special tokens cut out of a text."""

from __future__ import annotations

import numpy as np
import pytest

from llmviz.vocab import TokenAttr
from llmviz.vocab.partition import Fragment, Search, partition, special_cache

C, U, D, N = TokenAttr.CONTROL, TokenAttr.UNKNOWN, TokenAttr.USER_DEFINED, TokenAttr.NORMAL


def cut(text: str, tokens: dict[str, int], parse_special: bool = True) -> list[str | int]:
    texts = [t.encode() for t in tokens]
    attrs = np.array(list(tokens.values()), np.int32)
    raw = text.encode()
    search = Search(special_cache(texts, attrs), texts, attrs, parse_special)
    parts = [Fragment.of(raw, piece) for piece in partition(raw, search)]
    for part in parts:
        assert raw[part.offset : part.offset + part.length].decode() == part.text
        assert part.kind == ("text" if part.id < 0 else "token")
    return [part.text if part.id < 0 else part.id for part in parts]


SPECIAL = {"<a>": C, "<a><b>": C, "<u>": U, "tool": D, "plain": N}


@pytest.mark.parametrize(
    ("text", "on", "off"),
    [
        ("", [], []),
        ("x", ["x"], ["x"]),
        ("<a>", [0], ["<a>"]),
        ("x<a>y", ["x", 0, "y"], ["x<a>y"]),
        ("<a><b>", [1], ["<a><b>"]),  # the longest first
        ("<a><a><b><b>", [0, 1, "<b>"], ["<a><a><b><b>"]),
        ("<<a>>", ["<", 0, ">"], ["<<a>>"]),
        ("<A><a", ["<A><a"], ["<A><a"]),  # other case, unfinished
        ("a <u> b", ["a ", 2, " b"], ["a <u> b"]),
        ("mytools", ["my", 3, "s"], ["my", 3, "s"]),  # user-defined ones always
        ("plain", ["plain"], ["plain"]),
    ],
)
def test_partition(text, on, off):
    assert cut(text, SPECIAL) == on
    assert cut(text, SPECIAL, parse_special=False) == off


@pytest.mark.parametrize(
    ("strip", "expected"),
    [
        (0, ["a \n", 0, "\t b"]),
        (TokenAttr.LSTRIP, ["a", 0, "\t b"]),
        (TokenAttr.RSTRIP, ["a \n", 0, "b"]),
        (TokenAttr.LSTRIP | TokenAttr.RSTRIP, ["a", 0, "b"]),
    ],
)
def test_white_space_beside_a_token(strip, expected):
    assert cut("a \n<x>\t b", {"<x>": C | strip}) == expected


def test_only_white_space_beside():
    both = C | TokenAttr.LSTRIP | TokenAttr.RSTRIP
    assert cut("  <x>  <x>\n", {"<x>": both}) == [0, 0]
    # U+00A0 is no white space here: bytes are looked at
    assert cut("\xa0<x>", {"<x>": both}) == ["\xa0", 0]


def test_a_stripping_token_leaves_the_rest_to_shorter_ones():
    tokens = {"<long>": C | TokenAttr.RSTRIP, "<s>": C}
    assert cut("<long>  <s>x<long> ", tokens) == [0, 1, "x", 0]


def test_cache_order():
    texts = [b"<b>", b"<aa>", b"<c>", b"n", b"<dd>"]
    attrs = np.array([C, C, U, N, D], np.int32)
    assert special_cache(texts, attrs) == [1, 4, 0, 2]
