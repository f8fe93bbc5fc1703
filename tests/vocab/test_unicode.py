"""Code points, categories and the byte map."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmviz.errors import VocabError
from llmviz.vocab import unicode as u


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", ""),
        ("a\0é€🦙".encode(), "a\0é€🦙"),
        (b"\x80", "\ufffd"),  # a stray continuation byte
        (b"\xe2\x82", "\ufffd\ufffd"),  # a character cut off: each byte by itself
        (b"a\xf0\x9f\xa6", "a\ufffd\ufffd\ufffd"),
        (b"\xc3A", "\ufffdA"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"\xc0\x80", "\0"),  # overlong, and an encoded surrogate: taken as they are
        (b"\xed\xa0\x80", "\ud800"),
    ],
)
def test_decode(raw, text):
    assert u.decode(raw) == text
    decoded, widths = u.decode_with_widths(raw)
    assert decoded == text
    assert sum(widths) == len(raw)


def test_beyond_unicode():
    with pytest.raises(VocabError, match=r"0x110000 at byte 1"):
        u.decode(b"a\xf4\x90\x80\x80")


@given(st.binary(max_size=40))
def test_every_byte_belongs_to_a_character(raw):
    try:
        text, widths = u.decode_with_widths(raw)
    except VocabError:
        return
    assert len(text) == len(widths)
    assert sum(widths) == len(raw)
    assert u.decode(u.encode(text)) == text
    assert b"".join(u.split_chars(raw)) == raw


@given(st.text(st.characters(codec="utf-8")))
def test_valid_text_is_as_it_is(text):
    raw = u.encode(text)
    assert u.decode(raw) == text
    assert u.split_chars(raw) == [u.encode(char) for char in text]


def test_split_chars_goes_by_first_bytes():
    assert u.split_chars(b"\xe2ab\xf0") == [b"\xe2ab", b"\xf0"]
    assert u.split_chars("aé€🦙".encode()) == [c.encode() for c in "aé€🦙"]


def test_byte_map():
    assert len(set(u.BYTE_TO_UTF8)) == 256
    assert u.BYTE_TO_UTF8[ord(" ")].decode() == "Ġ"
    assert u.BYTE_TO_UTF8[ord("\n")].decode() == "Ċ"
    assert u.BYTE_TO_UTF8[0x7F].decode() == "ġ"
    assert u.BYTE_TO_UTF8[0xAD].decode() == "Ń"
    assert all(u.BYTE_TO_UTF8[b] == bytes([b]) for b in range(0x21, 0x7F))
    everything = bytes(range(256))
    assert u.bytes_of(b"".join(u.BYTE_TO_UTF8)) == everything


def test_characters_outside_the_byte_map():
    assert u.bytes_of("a你".encode()) == b"a[UNK_BYTE_0xe4bda0a" + "你".encode() + b"]"


def test_categories_agree_with_python():
    """Except for what Unicode added since the Python at hand was made, or since 15.1."""
    added = 0
    for point in range(0x110000):
        ours, theirs = u.category(point), unicodedata.category(chr(point))
        if ours == "-" or theirs == "Cn":
            added += ours == "-" and theirs != "Cn"
            added += ours != "-" and theirs == "Cn"
        else:
            assert ours == theirs[0], hex(point)
    assert added < 20_000


def test_whitespace_is_the_property():
    """25 characters; Python's own isspace has U+001C to U+001F too."""
    python = {point for point in range(0x110000) if chr(point).isspace()}
    assert python - u.WHITESPACE == {0x1C, 0x1D, 0x1E, 0x1F}
    assert len(u.WHITESPACE) == 25


def test_collapse():
    text = "aé你\u0301\u3000½，€🦙\ud800\U000110bd "
    collapsed = u.collapse(text)
    assert len(collapsed) == len(text)
    expected = ["a", u.LETTER, u.LETTER, u.MARK, "\v", u.NUMBER, u.PUNCTUATION]
    assert list(collapsed) == [*expected, u.SYMBOL, u.SYMBOL, u.OTHER, u.OTHER, " "]
    assert u.blank(text) == text.replace("\u3000", "\v")


def test_ascii_is_not_touched():
    text = "".join(map(chr, range(128)))
    assert u.collapse(text) == u.blank(text) == text
    # NBSP beside it makes the table do the work
    assert u.collapse(text + "\xa0")[:128] == text
