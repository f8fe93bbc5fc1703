"""Sizes of ggml's types against the gguf package's own table."""

from __future__ import annotations

import gguf
import pytest

from llmviz.ggml.types import TYPES, GGMLType, row_size

KNOWN = [t for t in gguf.GGMLQuantizationType if t.name != "Q8_1"]


@pytest.mark.parametrize("theirs", KNOWN, ids=lambda t: t.name)
def test_sizes_are_ggufs(theirs: gguf.GGMLQuantizationType) -> None:
    traits = TYPES[GGMLType(int(theirs))]
    assert (traits.block_size, traits.type_size) == gguf.GGML_QUANT_SIZES[theirs]
    assert traits.name.upper() == theirs.name


def test_q8_1_has_half_precision_scales() -> None:
    """block_q8_1 holds two halves and 32 bytes; the gguf package still counts two floats."""
    assert (TYPES[GGMLType.Q8_1].block_size, TYPES[GGMLType.Q8_1].type_size) == (32, 2 + 2 + 32)


def test_every_type_of_ggufs_is_known() -> None:
    assert {int(t) for t in gguf.GGMLQuantizationType} <= {int(t) for t in GGMLType}


def test_removed_ids_have_no_member() -> None:
    for removed in (4, 5, 31, 32, 33, 36, 37, 38):
        with pytest.raises(ValueError):
            GGMLType(removed)


@pytest.mark.parametrize(
    ("type_", "n", "n_bytes"),
    [
        (GGMLType.F32, 5, 20),
        (GGMLType.F16, 5, 10),
        (GGMLType.I64, 3, 24),
        (GGMLType.Q4_0, 64, 36),  # two blocks of a float16 scale and 16 bytes
        (GGMLType.Q8_0, 32, 34),
        (GGMLType.Q4_K, 256, 144),
        (GGMLType.Q6_K, 512, 420),
        (GGMLType.Q4_0, 0, 0),
    ],
)
def test_row_size(type_: GGMLType, n: int, n_bytes: int) -> None:
    assert row_size(type_, n) == n_bytes


@pytest.mark.parametrize(("type_", "n"), [(GGMLType.Q4_0, 33), (GGMLType.Q6_K, 128)])
def test_a_row_is_whole_blocks(type_: GGMLType, n: int) -> None:
    with pytest.raises(ValueError, match=str(n)):
        row_size(type_, n)


@pytest.mark.parametrize(
    ("type_", "dtype"),
    [(GGMLType.F32, "<f4"), (GGMLType.F16, "<f2"), (GGMLType.I32, "<i4"), (GGMLType.I64, "<i8")],
)
def test_plain_types_are_numpy_types(type_: GGMLType, dtype: str) -> None:
    assert TYPES[type_].dtype == dtype


@pytest.mark.parametrize("type_", [GGMLType.BF16, GGMLType.Q4_0, GGMLType.Q6_K])
def test_other_types_are_no_plain_arrays(type_: GGMLType) -> None:
    assert TYPES[type_].dtype is None
