"""The walk over a GGUF header. ↔ ggml/src/gguf.cpp (gguf_init_from_reader)

Every byte from the magic to the padding becomes part of a `Field`.
Reading order: here (magic, version, counts), `keyvalues.py`, `tensorinfos.py`; `cursor.py` reads.
Each check is one that llama.cpp makes, at the same limit; nothing is ever allocated from a number
that the file merely claims.
"""

from __future__ import annotations

from typing import NoReturn

from llmviz.errors import GGUFError
from llmviz.events import Steps
from llmviz.gguf import constants as c
from llmviz.gguf.cursor import I64, U32, Cursor, show
from llmviz.gguf.header import Header
from llmviz.gguf.keyvalues import read_alignment, walk_kv
from llmviz.gguf.looks_like import looks_like
from llmviz.gguf.source import Source
from llmviz.gguf.tensorinfos import Claim, pad, place_tensors, walk_tensor_info

__all__ = ["walk_header"]


def walk_header(source: Source, depth: int = 0) -> Steps[Header]:
    """Walk one file's header.

    Parameters
    ----------
    source : Source
        The file.
    depth : int
        Depth of the events.

    Yields
    ------
    Event
        One ``"data"`` event per field.

    Returns
    -------
    Header
        Key-values, tensor infos (each within the file) and fields.

    Raises
    ------
    GGUFError
        The file is not GGUF, is damaged, or is cut off.
    """
    header = Header()
    cursor = Cursor(source, header.fields)
    n_tensors, n_kv = yield from _walk_counts(cursor, header, depth)
    for i in range(n_kv):
        yield from walk_kv(cursor, header, i, depth)
    header.alignment = read_alignment(cursor, header)
    claims: list[Claim] = []
    seen: set[str] = set()
    for i in range(n_tensors):
        claim = yield from walk_tensor_info(cursor, seen, i, depth)
        claims.append(claim)

    if n_tensors:
        start = pad(cursor.pos, header.alignment)
        if start > source.size:
            cursor.fail(
                f"the file ends before its data section, which would start at byte {start}; "
                "it is cut off, fetch it again",
                cursor.pos,
                "padding",
            )
        if start > cursor.pos:
            yield show(cursor.field("padding", "", cursor.pos, start, None), depth)
            cursor.pos = start
    header.data_offset = cursor.pos
    place_tensors(cursor, header, claims)
    return header


def _walk_counts(cursor: Cursor, header: Header, depth: int) -> Steps[tuple[int, int]]:
    """Walk magic, version and the two counts."""
    source = cursor.source
    magic = source.read(0, min(4, source.size))
    if magic != c.MAGIC:
        _refuse_magic(source, magic)
    cursor.pos = 4
    yield show(cursor.field("magic", "", 0, 4, "GGUF"), depth)

    version = cursor.number(U32, "the header's version", "version")
    _check_version(source, version)
    header.version = version
    yield show(cursor.field("version", "", 4, 8, version), depth)

    n_tensors = cursor.number(I64, "the header's tensor count", "n_tensors")
    yield show(cursor.field("n_tensors", "", 8, 16, n_tensors), depth)
    n_kv = cursor.number(I64, "the header's key-value count", "n_kv")
    yield show(cursor.field("n_kv", "", 16, 24, n_kv), depth)
    for name, what, n, least, at in (
        ("n_tensors", "tensors", n_tensors, c.MIN_TENSOR_INFO_BYTES, 8),
        ("n_kv", "key-value pairs", n_kv, c.MIN_KV_BYTES, 16),
    ):
        if n < 0:
            cursor.fail(f"number of {what} is {n} but must not be negative", at, name)
        if n > cursor.remaining // least:
            cursor.fail(
                f"the header claims {n} {what}, which take at least {least} bytes each, but only "
                f"{cursor.remaining} bytes remain in the file; it is cut off or damaged",
                at,
                name,
            )
    return n_tensors, n_kv


def _refuse_magic(source: Source, magic: bytes) -> NoReturn:
    if source.size == 0:
        raise GGUFError(
            "failed to read magic: the file is empty; fetch it again",
            offset=0,
            field="magic",
            path=source.path,
        )
    if source.size < 4:
        raise GGUFError(
            f"failed to read magic: the file has only {source.size} bytes; fetch it again",
            offset=0,
            field="magic",
            path=source.path,
        )
    shown = "".join(chr(b) if 32 <= b < 127 else "?" for b in magic)
    guess = looks_like(source.read(0, min(256, source.size)))
    raise GGUFError(
        f"invalid magic characters: '{shown}', expected 'GGUF'; "
        + (f"this looks like {guess}" if guess else "this is not a GGUF file"),
        offset=0,
        field="magic",
        path=source.path,
    )


def _check_version(source: Source, version: int) -> None:
    message = None
    if version == 0:
        message = "bad GGUF version: 0; the file is damaged, fetch it again"
    elif version & 0xFFFF == 0:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        if swapped <= c.VERSION:
            message = (
                f"this file is big-endian (version {swapped} reads as {version} here), made for "
                "machines such as s390x; fetch the little-endian file, or convert it: "
                "`pip install gguf`, then `gguf-convert-endian FILE little`"
            )
        else:
            message = (
                f"GGUF version {version} is extremely large; the file's endianness may not be this "
                "machine's, or it is damaged: fetch it again"
            )
    elif version == 1:
        message = (
            "GGUFv1 is no longer supported; fetch a newer file of this model, or convert it again"
        )
    elif version > c.VERSION:
        message = (
            f"this GGUF file is version {version}, but only 2 to {c.VERSION} are supported; "
            "a newer llmviz may read it"
        )
    if message:
        raise GGUFError(message, offset=4, field="version", path=source.path)
