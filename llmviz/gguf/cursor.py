"""A position in a GGUF header, and the reads that advance it. ↔ ggml/src/gguf.cpp (gguf_reader)

A read refuses what is not there; every refusal carries the byte offset and the key or tensor.
"""

from __future__ import annotations

import struct
from codecs import utf_8_decode
from typing import Any, NoReturn

from llmviz.errors import GGUFError
from llmviz.events import Event
from llmviz.gguf import constants as c
from llmviz.gguf.fields import Field
from llmviz.gguf.source import Source

__all__ = ["I32", "I64", "U32", "U64", "Cursor", "show"]

STEP = 2
_LOOK = 1 << 16

U32 = struct.Struct("<I")
I32 = struct.Struct("<i")
U64 = struct.Struct("<Q")
I64 = struct.Struct("<q")


class Cursor:
    """A position in the file, and the reads that advance it."""

    __slots__ = ("fields", "pos", "size", "source")

    def __init__(self, source: Source, fields: list[Field]) -> None:
        self.source = source
        self.size = source.size
        self.fields = fields
        self.pos = 0

    @property
    def remaining(self) -> int:
        return self.size - self.pos

    def fail(self, message: str, offset: int, name: str) -> NoReturn:
        raise GGUFError(message, offset=offset, field=name, path=self.source.path)

    def need(self, n: int, what: str, name: str) -> None:
        if n > self.size - self.pos:
            self.fail(
                f"the file ends inside {what}: {n} bytes needed, {self.remaining} left; "
                "it is cut off or damaged, fetch it again",
                self.pos,
                name,
            )

    def number(self, form: struct.Struct, what: str, name: str) -> Any:
        """Read one number; the cursor stays before it if the file ends."""
        pos, n = self.pos, form.size
        if n > self.size - pos:
            self.need(n, what, name)
        (value,) = form.unpack_from(self.source.head(pos + n), pos)
        self.pos = pos + n
        return value

    def length(self, what: str, name: str) -> int:
        """Read the length of a string that has to fit in what remains of the file."""
        at = self.pos
        n = self.number(U64, f"the length of {what}", name)
        if n > c.MAX_STRING_LENGTH:
            self.fail(f"{what}: string length {n} exceeds maximum {c.MAX_STRING_LENGTH}", at, name)
        if n > self.remaining:
            self.fail(
                f"{what}: string length {n} exceeds remaining file size {self.remaining} bytes",
                at,
                name,
            )
        return n

    def take(self, n: int) -> bytes:
        """Read so many bytes, which have to be there."""
        raw = self.source.read(self.pos, n)
        self.pos += n
        return raw

    def string(self, what: str, name: str) -> bytes:
        """Read a length and that many bytes."""
        return self.take(self.length(what, name))

    def text(self, what: str, name: str, *, max_length: int = c.MAX_STRING_LENGTH) -> str:
        """Read a string that names something, so it has to be UTF-8."""
        at = self.pos
        n = self.length(what, name)
        if n > max_length:
            self.fail(f"{what} is too long: {n} bytes, at most {max_length}", at, name)
        try:
            if (
                n > _LOOK
            ):  # a damaged length reaches into the weights: notice before they are copied
                utf_8_decode(self.source.read(self.pos, _LOOK), "strict", False)
            return self.take(n).decode()
        except UnicodeDecodeError as error:
            raw = error.object
            self.fail(
                f"{what} is not UTF-8: byte 0x{raw[error.start]:02x} at position {error.start}; "
                "the file is damaged or was written by a faulty converter",
                at + 8 + error.start,
                name,
            )

    def field(
        self, kind: str, owner: str, offset: int, end: int, value: Any, item_size: int = 0
    ) -> Field:
        """Record and return a field."""
        f = Field(kind, owner, offset, end - offset, value, item_size, self.source)
        self.fields.append(f)
        return f


def show(f: Field, depth: int) -> Event:
    """Return the event that shows a field."""
    return Event("data", f.name, depth, STEP, f.value, f)
