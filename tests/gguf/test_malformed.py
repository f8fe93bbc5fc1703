"""Wrong headers: each refused with what is wrong, where, and in which key or tensor."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from gguf_bytes import ARR, F64, STR, U8, U32, arr, gguf, kv, string, tensor, tiny

from llmviz.errors import GGUFError
from llmviz.gguf import open_gguf

FIRST = 24  # where the first key-value pair or tensor info starts


def at_kv(key: str = "k") -> int:
    """Where the type of the first pair's value stands."""
    return FIRST + 8 + len(key)


def header(version=3, n_tensors=0, n_kv=0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_kv)


U = 51  # second tensor info, after a first one called "t" with one dimension


def second(info: bytes, data: int = 64) -> bytes:
    return gguf([], [tensor("t", (4,), 0, 0), info], bytes(data))


CASES = {
    # id: (bytes, byte offset, field, part of the message)
    "version_missing": (b"GGUF", 4, "version", "ends inside the header's version"),
    "counts_missing": (header()[:8], 8, "n_tensors", "8 bytes needed, 0 left"),
    "n_kv_missing": (header()[:20], 16, "n_kv", "8 bytes needed, 4 left"),
    "version_0": (header(0), 4, "version", "bad GGUF version: 0"),
    "version_1": (header(1), 4, "version", "GGUFv1 is no longer supported"),
    "version_4": (header(4), 4, "version", "version 4, but only 2 to 3 are supported"),
    "version_99": (header(99), 4, "version", "version 99"),
    "version_65536": (header(65536), 4, "version", "extremely large"),
    "big_endian": (header(3 << 24), 4, "version", "big-endian .version 3.*convert"),
    "n_tensors_negative": (header(3, 2**64 - 1), 8, "n_tensors", "must not be negative"),
    "n_kv_negative": (header(3, 0, 2**63), 16, "n_kv", "must not be negative"),
    "n_tensors_huge": (header(3, 2**62), 8, "n_tensors", "only 0 bytes remain"),
    "n_kv_huge": (header(3, 0, 2**40), 16, "n_kv", "claims 1099511627776 key-value pairs"),
    "n_kv_one_too_many": (gguf([kv("k", U8, 1)], n_kv=2), 16, "n_kv", "only 14 bytes remain"),
    "key_empty": (gguf([kv("", U32, 1)]), FIRST, "key-value pair 0", "key 0 is empty"),
    "key_2e63": (
        gguf([struct.pack("<Q", 2**63) + bytes(99)]),
        FIRST,
        "key-value pair 0",
        "9223372036854775808 exceeds maximum 1073741824",
    ),
    "key_past_end": (
        gguf([struct.pack("<Q", 5000) + bytes(99)]),
        FIRST,
        "key-value pair 0",
        "5000 exceeds remaining file size 99",
    ),
    "key_not_utf8": (
        gguf([kv(b"k\xff", U32, 1)]),
        FIRST + 9,
        "key-value pair 0",
        "not UTF-8: byte 0xff",
    ),
    "key_twice": (gguf([kv("k", U32, 1)] * 2), FIRST + 17, "k", "duplicate key 'k' for KV pair 1"),
    "value_type_13": (
        gguf([string("k") + struct.pack("<iB", 13, 0)]),
        at_kv(),
        "k",
        "invalid GGUF type 13",
    ),
    "value_type_negative": (
        gguf([string("k") + struct.pack("<iB", -1, 0)]),
        at_kv(),
        "k",
        "invalid GGUF type -1",
    ),
    "value_type_cut": (
        gguf([string("kkkkkk")]),
        at_kv("kkkkkk"),
        "kkkkkk",
        "the type of the value",
    ),
    "value_cut": (gguf([kv("k", F64, 1.0)])[:-1], at_kv() + 4, "k", "8 bytes needed, 7 left"),
    "string_1GiB_and_1": (
        gguf([string("k") + struct.pack("<iQ", STR, 2**30 + 1)]),
        at_kv() + 4,
        "k",
        "1073741825 exceeds maximum 1073741824",
    ),
    "string_2e64_less_1": (
        gguf([string("k") + struct.pack("<iQ", STR, 2**64 - 1)]),
        at_kv() + 4,
        "k",
        "exceeds maximum",
    ),
    "string_past_end": (
        gguf([string("k") + struct.pack("<iQ", STR, 9) + bytes(8)]),
        at_kv() + 4,
        "k",
        "9 exceeds remaining file size 8",
    ),
    "array_of_arrays": (
        gguf([string("k") + struct.pack("<iiQ", ARR, ARR, 0)]),
        at_kv() + 4,
        "k",
        "arrays cannot hold arrays",
    ),
    "array_type_77": (
        gguf([string("k") + struct.pack("<iiQ", ARR, 77, 0)]),
        at_kv() + 4,
        "k",
        "invalid GGUF type 77",
    ),
    "array_2e62": (
        gguf([arr("k", U32, [], n=2**62)]),
        at_kv() + 8,
        "k",
        "exceeds maximum 1073741824",
    ),
    "array_1G_and_1": (gguf([arr("k", U8, [], n=2**30 + 1)]), at_kv() + 8, "k", "exceeds maximum"),
    "array_past_end": (
        gguf([arr("k", U32, [1, 2], n=3)]),
        at_kv() + 8,
        "k",
        "needs at least 12 bytes, but only 8 remain",
    ),
    "strings_past_end": (
        gguf([arr("k", STR, ["a"], n=2)]),
        at_kv() + 8,
        "k",
        "needs at least 16 bytes, but only 9 remain",
    ),
    "string_of_array_past_end": (
        gguf([arr("k", STR, ["a", "b" * 30])])[:-1],
        at_kv() + 16 + 9,
        "k",
        "string 1 of 2: string length 30 exceeds remaining file size 29",
    ),
    "length_of_array_string_cut": (
        gguf([arr("k", STR, ["a" * 99, "b"])])[:-6],
        at_kv() + 16 + 107,
        "k",
        "the length of string 1 of 2: 8 bytes needed, 3 left",
    ),
    "alignment_type": (
        gguf([kv("general.alignment", STR, "32")]),
        at_kv("general.alignment"),
        "general.alignment",
        "must be of type u32 but is str",
    ),
    "alignment_0": (
        gguf([kv("general.alignment", U32, 0)]),
        at_kv("general.alignment") + 4,
        "general.alignment",
        "alignment 0 is not a power of 2",
    ),
    "alignment_48": (
        gguf([kv("general.alignment", U32, 48)]),
        at_kv("general.alignment") + 4,
        "general.alignment",
        "alignment 48 is not a power of 2",
    ),
    "name_64": (
        gguf([], [tensor("n" * 64)], bytes(16)),
        FIRST,
        "tensor info 0",
        "too long: 64 bytes, at most 63",
    ),
    "name_not_utf8": (
        gguf([], [tensor(b"\xc3(")], bytes(16)),
        FIRST + 8,
        "tensor info 0",
        "not UTF-8: byte 0xc3",
    ),
    "name_twice": (
        second(tensor("t", (4,), 0, 32)),
        FIRST + 33,
        "t",
        "duplicate tensor name 't' for tensor 1",
    ),
    "dims_5": (second(tensor("u", (1,) * 5, 0, 32)), 66, "u", "number of dimensions: 5 > 4"),
    "dims_2e32": (second(tensor("u", (1,), 0, 32, n_dims=2**32 - 1)), 66, "u", "4294967295 > 4"),
    "dim_negative": (second(tensor("u", (4, -4), 0, 32)), 78, "u", "dimension 1 .* -4 < 0"),
    "dims_overflow": (
        second(tensor("u", (2**32, 2**32), 0, 32)),
        70,
        "u",
        "more than 9223372036854775807",
    ),
    "dims_wrap": (
        second(tensor("u", (2**63 - 1, 2), 0, 32)),
        70,
        "u",
        "more than 9223372036854775807",
    ),
    "nbytes_overflow": (
        second(tensor("u", (2**62,), 0, 32)),
        70,
        "u",
        "size in bytes > 18446744073709551615",
    ),
    "padded_overflow": (
        second(tensor("u", (2**62 - 1,), 0, 32)),
        82,
        "u",
        "data section's size overflows",
    ),
    "type_negative": (
        second(tensor("u", (32,), -1, 32)),
        78,
        "u",
        r"invalid ggml type -1, should be in \[0, 43\)",
    ),
    "type_43": (second(tensor("u", (32,), 43, 32)), 78, "u", "invalid ggml type 43"),
    "type_4": (second(tensor("u", (32,), 4, 32)), 78, "u", r"removed .Q4_2.*block size \(0\)"),
    "type_31": (second(tensor("u", (32,), 31, 32)), 78, "u", "removed .Q4_0_4_4; use Q4_0"),
    "row_of_33": (
        second(tensor("u", (33,), 2, 32)),
        78,
        "u",
        r"33 elements per row, not a multiple of block size \(32\)",
    ),
    "row_of_1": (second(tensor("u", (), 8, 32)), 70, "u", "1 elements per row"),
    "k_row": (second(tensor("u", (128, 2), 12, 32)), 86, "u", r"block size \(256\)"),
    "first_offset": (
        gguf([], [tensor("t", (4,), 0, 32)], bytes(64)),
        49,
        "t",
        "has offset 32, expected 0",
    ),
    "offset_unaligned": (second(tensor("u", (4,), 0, 33)), 82, "u", "has offset 33, expected 32"),
    "offset_overlap": (second(tensor("u", (4,), 0, 0)), 82, "u", "has offset 0, expected 32"),
    "offset_gap": (second(tensor("u", (4,), 0, 64)), 82, "u", "has offset 64, expected 32"),
    "offset_far": (
        second(tensor("u", (4,), 0, 2**40)),
        82,
        "u",
        "offset 1099511627776, expected 32",
    ),
    "data_missing": (second(tensor("u", (4,), 0, 32), 32), 82, "u", "not within the file bounds"),
    "data_cut": (second(tensor("u", (4,), 0, 32), 47), 82, "u", "bytes 128 to 144 of 143"),
    "info_cut": (gguf(n_tensors=1) + tensor("t" * 30)[:-4], 78, "t" * 30, "8 bytes needed, 4 left"),
    "padding_cut": (gguf(n_tensors=1) + tensor("t", (0,)), 57, "padding", "would start at byte 64"),
}


@pytest.mark.parametrize("use_mmap", [True, False], ids=["mmap", "read"])
@pytest.mark.parametrize("case", CASES)
def test_refused(tmp_path, case, use_mmap):
    data, offset, field, message = CASES[case]
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(GGUFError, match=message) as caught:
            open_gguf(path, use_mmap=use_mmap)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (caught.value.offset, caught.value.field) == (offset, field)
    assert caught.value.path == str(path)
    assert f"at byte offset {offset}" in str(caught.value)
    assert peak < 1 << 20  # nothing is allocated from a claimed size


@pytest.mark.parametrize("use_mmap", [True, False], ids=["mmap", "read"])
def test_cut_at_every_byte(tmp_path, use_mmap):
    """A file cut anywhere is refused, unless only the last padding is missing."""
    data = tiny()
    path = tmp_path / "x.gguf"
    needed = len(data) - 24
    for n in range(len(data)):
        path.write_bytes(data[:n])
        if n >= needed:
            open_gguf(path, use_mmap=use_mmap).close()
            continue
        with pytest.raises(GGUFError) as caught:
            open_gguf(path, use_mmap=use_mmap)
        assert caught.value.offset is not None
        assert caught.value.offset <= n
        assert caught.value.field


def test_long_key_is_checked_before_it_is_copied(tmp_path):
    """A damaged key length that reaches into the weights costs no memory."""
    path = tmp_path / "x.gguf"
    n = 1 << 29
    with open(path, "wb") as f:
        f.write(header(3, 0, 1) + struct.pack("<Q", n) + b"key\xff")
        f.truncate(32 + n)
    tracemalloc.start()
    try:
        with pytest.raises(GGUFError, match="not UTF-8"):
            open_gguf(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_string_of_an_array_over_1_GiB(tmp_path):
    """Also where the file is long enough to hold it."""
    path = tmp_path / "x.gguf"
    n = 2**30 + 1
    head = gguf([string("k") + struct.pack("<iiQ", ARR, STR, 2)])
    with open(path, "wb") as f:
        f.write(head + string("a") + struct.pack("<Q", n))
        f.truncate(len(head) + 17 + n)
    with pytest.raises(GGUFError, match="string 1 of 2: string length 1073741825") as caught:
        open_gguf(path)
    assert caught.value.offset == len(head) + 9
