"""GGUF files byte by byte, so that tests can write wrong ones. Does not use the gguf package."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
FORMATS = {
    U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "b",
    U64: "Q", I64: "q", F64: "d",
}  # fmt: skip


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def scalar(kind: int, value: object) -> bytes:
    if kind == STR:
        return string(value)  # type: ignore[arg-type]
    return struct.pack("<" + FORMATS[kind], value)


def kv(key: str | bytes, kind: int, value: object) -> bytes:
    return string(key) + struct.pack("<i", kind) + scalar(kind, value)


def arr(key: str | bytes, kind: int, values: Sequence[object], n: int | None = None) -> bytes:
    n = len(values) if n is None else n
    head = string(key) + struct.pack("<iiQ", ARR, kind, n)
    return head + b"".join(scalar(kind, v) for v in values)


def tensor(
    name: str | bytes = "t",
    ne: Sequence[int] = (4,),
    kind: int = 0,
    offset: int = 0,
    n_dims: int | None = None,
) -> bytes:
    n_dims = len(ne) if n_dims is None else n_dims
    dims = b"".join(struct.pack("<q", n) for n in ne)
    return string(name) + struct.pack("<I", n_dims) + dims + struct.pack("<iQ", kind, offset)


def gguf(
    kvs: Iterable[bytes] = (),
    tensors: Iterable[bytes] = (),
    data: bytes = b"",
    *,
    version: int = 3,
    n_tensors: int | None = None,
    n_kv: int | None = None,
    alignment: int = 32,
) -> bytes:
    kvs, tensors = list(kvs), list(tensors)
    n_tensors = len(tensors) if n_tensors is None else n_tensors
    n_kv = len(kvs) if n_kv is None else n_kv
    head = b"GGUF" + struct.pack("<Iqq", version, n_tensors, n_kv) + b"".join([*kvs, *tensors])
    if tensors:
        head += bytes(-len(head) % alignment)
    return head + data


def tiny() -> bytes:
    """A small correct file with every kind of field: 3 tensors of 16, 18 and 8 bytes, padded."""
    return gguf(
        [
            kv("general.architecture", STR, "llama"),
            kv("llama.block_count", U32, 1),
            kv("x.flag", BOOL, 1),
            kv("x.real", F64, 0.5),
            arr("x.words", STR, ["a", "", "\0\0", "größer"]),
            arr("x.numbers", I16, [1, -2, 3]),
        ],
        [
            tensor("a", (2, 2), 0, 0),
            tensor("b.weight", (32,), 2, 32),
            tensor("c", (4, 1), 1, 64),
        ],
        bytes(range(16)) + bytes(16) + bytes(range(18)) + bytes(14) + bytes(range(8)) + bytes(24),
    )
