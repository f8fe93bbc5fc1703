"""Code points, categories and the byte map of byte-level BPE.
↔ src/unicode.cpp, src/unicode-data.cpp

Text is handled as llama.cpp handles it, so that the same bytes become the same tokens:

* `decode` never fails on damaged UTF-8: a byte that starts no character becomes U+FFFD, and forms
  that a strict decoder refuses (encoded surrogates, overlong forms) are accepted.
* Categories are those of Unicode 15.1, read from ``unicode-15.1.txt``, so that they do not depend
  on the Python (3.11 has 14.0, 3.12 has 15.0) or on any package's own tables.
* `collapse` replaces each non-ASCII character by one that stands for its category. The
  pre-tokenizers' expressions then need no Unicode support and see what llama.cpp's see. Two
  consequences are worth knowing: ``\\s`` is the 25 characters of Unicode's White_Space and nothing
  else (Python's own ``\\s`` adds U+001C to U+001F), and ``\\d`` is ASCII only.

Does not normalize: `wpm` and `charsmap` do.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cache
from importlib.resources import files

from llmviz.errors import VocabError

__all__ = [
    "BYTE_TO_UTF8",
    "LETTER",
    "MARK",
    "NUMBER",
    "PUNCTUATION",
    "SYMBOL",
    "WHITESPACE",
    "blank",
    "bytes_of",
    "category",
    "code_point",
    "collapse",
    "decode",
    "decode_bytes_text",
    "decode_with_widths",
    "encode",
    "split_chars",
    "width_of",
]

REPLACEMENT = "\ufffd"

WHITESPACE = frozenset(
    [
        *(*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B)),
        *(0x2028, 0x2029, 0x202F, 0x205F, 0x3000),
    ]
)
"""Code points that ``\\s`` matches (Unicode's White_Space)."""

# A non-ASCII character becomes one of these; which Latin-1 letter stands for what is arbitrary.
OTHER, NUMBER, LETTER, PUNCTUATION, MARK, SYMBOL = "\xd0\xd1\xd2\xd3\xd4\xd5"
_VERTICAL_TAB = 0x0B
"""Stands for every non-ASCII white space."""

_COLLAPSED = {"N": NUMBER, "L": LETTER, "P": PUNCTUATION, "M": MARK, "S": SYMBOL}

# Bytes of a character by the high half of its first byte; a stray continuation byte is 1.
_LENGTHS = bytes([1] * 12 + [2, 2, 3, 4])


# --- UTF-8 --------------------------------------------------------------------------------------


def encode(text: str) -> bytes:
    """UTF-8 of `text`; lone surrogates are encoded as if they were characters."""
    return text.encode("utf-8", "surrogatepass")


def decode(raw: bytes) -> str:
    """Text of UTF-8 bytes, one character per code point as llama.cpp counts them.

    Raises
    ------
    VocabError
        A four-byte form beyond U+10FFFF: such a code point cannot be written back as UTF-8.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return decode_with_widths(raw)[0]


def decode_with_widths(raw: bytes) -> tuple[str, list[int]]:
    """`decode`, and how many bytes of `raw` each character came from."""
    chars: list[str] = []
    widths: list[int] = []
    at = 0
    while at < len(raw):
        point, width = code_point(raw, at)
        if point > 0x10FFFF:
            raise VocabError(
                f"the text has code point {point:#x} at byte {at}; Unicode ends at 0x10ffff. "
                "Pass valid UTF-8"
            )
        chars.append(chr(point))
        widths.append(width)
        at += width
    return "".join(chars), widths


def code_point(raw: bytes, at: int) -> tuple[int, int]:
    """The code point at byte `at` and its width; (0xFFFD, 1) where no character starts."""
    first = raw[at]
    if first < 0x80:
        return first, 1
    width = _LENGTHS[first >> 4]
    tail = raw[at + 1 : at + width]
    if first < 0xC0 or first >= 0xF8 or len(tail) < width - 1:
        return 0xFFFD, 1
    point = first & (0x7F >> width)
    for byte in tail:
        if byte & 0xC0 != 0x80:
            return 0xFFFD, 1
        point = point << 6 | byte & 0x3F
    return point, width


def width_of(first: int) -> int:
    """Bytes of a character that begins with the byte `first`; 1 of a byte that begins none."""
    return _LENGTHS[first >> 4]


def split_chars(raw: bytes) -> list[bytes]:
    """Cut bytes into characters by each first byte's length alone, whatever follows it."""
    try:
        return [char.encode() for char in raw.decode()]
    except UnicodeDecodeError:
        chars = []
        at = 0
        while at < len(raw):
            end = at + _LENGTHS[raw[at] >> 4]
            chars.append(raw[at:end])
            at = end
        return chars


# --- bytes written as printable characters (GPT-2) ----------------------------------------------


def _printable_bytes() -> list[str]:
    """A printable character for each byte: its own where it is one, else from U+0100 on."""
    keep = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    chars, spare = [], 0x100
    for byte in range(256):
        chars.append(chr(byte if byte in keep else spare))
        spare += byte not in keep
    return chars


_CHAR_OF_BYTE = _printable_bytes()
_BYTE_OF_CHAR = {char: byte for byte, char in enumerate(_CHAR_OF_BYTE)}

BYTE_TO_UTF8 = tuple(char.encode() for char in _CHAR_OF_BYTE)
"""For each byte, the UTF-8 of the character that byte-level BPE writes for it (space is ``Ġ``)."""


def bytes_of(text: bytes) -> bytes:
    """The bytes that a byte-level token text stands for: ``Ġthe`` is ``b" the"``.

    A character outside the map becomes ``[UNK_BYTE_0x<hex><token text>]``, as in llama.cpp.
    """
    out = bytearray()
    for char in decode(text):
        byte = _BYTE_OF_CHAR.get(char)
        if byte is None:
            out += b"[UNK_BYTE_0x" + encode(char).hex().encode() + text + b"]"
        else:
            out.append(byte)
    return bytes(out)


def decode_bytes_text(text: bytes) -> str:
    """A token text or any part of it as something to show; bytes that are no UTF-8 as ``\\xNN``."""
    return text.decode("utf-8", "backslashreplace")


# --- categories ---------------------------------------------------------------------------------


@cache
def _categories() -> tuple[list[int], str]:
    """First code point of each run of equal category, and the runs' letters."""
    lines = files(__package__).joinpath("unicode-15.1.txt").read_text("ascii").splitlines()
    runs = [line.split() for line in lines if line and not line.startswith("#")]
    return [int(start, 16) for start, _ in runs], "".join(letter for _, letter in runs)


def category(point: int) -> str:
    """First letter of a code point's general category: one of ``LNZMPSC``, ``-`` if unassigned."""
    starts, letters = _categories()
    return letters[bisect_right(starts, point) - 1]


class _CollapseTable(dict[int, int]):
    """A `str.translate` table that looks each code point up once."""

    def __missing__(self, point: int) -> int:
        if point < 0x80:
            to = point
        elif point in WHITESPACE:
            to = _VERTICAL_TAB
        else:
            to = ord(_COLLAPSED.get(category(point), OTHER))
        self[point] = to
        return to


_COLLAPSE = _CollapseTable()
_BLANK = {point: _VERTICAL_TAB for point in WHITESPACE if point >= 0x80}


def collapse(text: str) -> str:
    """`text`, same length, with every non-ASCII character replaced by its category's stand-in."""
    return text if text.isascii() else text.translate(_COLLAPSE)


def blank(text: str) -> str:
    """`text`, same length, with non-ASCII white space replaced by an ASCII one."""
    return text if text.isascii() else text.translate(_BLANK)
