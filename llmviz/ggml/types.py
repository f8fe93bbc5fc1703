"""ggml's tensor types: id, name, block size, bytes per block.

↔ ggml/include/ggml.h, ggml/src/ggml.c (type_traits)

Does not decode anything: that is `llmviz.ggml.quants`, one class per type.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

__all__ = ["TYPES", "GGMLType", "TypeTraits", "row_size"]


class GGMLType(IntEnum):
    """Every tensor type that may stand in a GGUF file; removed ids have no member."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q8_1 = 9
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    Q8_K = 15
    IQ2_XXS = 16
    IQ2_XS = 17
    IQ3_XXS = 18
    IQ1_S = 19
    IQ4_NL = 20
    IQ3_S = 21
    IQ2_S = 22
    IQ4_XS = 23
    I8 = 24
    I16 = 25
    I32 = 26
    I64 = 27
    F64 = 28
    IQ1_M = 29
    BF16 = 30
    TQ1_0 = 34
    TQ2_0 = 35
    MXFP4 = 39
    NVFP4 = 40
    Q1_0 = 41
    Q2_0 = 42


GGML_TYPE_COUNT = 43


@dataclass(frozen=True, slots=True)
class TypeTraits:
    """Size facts of one type.

    Attributes
    ----------
    name : str
        llama.cpp's lower-case name, ``"q4_K"``.
    block_size : int
        Values per block (1 for plain types).
    type_size : int
        Bytes per block.
    dtype : numpy.dtype or None
        Set where an array of this type is a plain numpy array.
    """

    name: str
    block_size: int
    type_size: int
    dtype: np.dtype | None = None


def _plain(name: str, dtype: str) -> TypeTraits:
    dt = np.dtype(dtype)
    return TypeTraits(name, 1, dt.itemsize, dt)


TYPES: dict[GGMLType, TypeTraits] = {
    GGMLType.F32: _plain("f32", "<f4"),
    GGMLType.F16: _plain("f16", "<f2"),
    GGMLType.Q4_0: TypeTraits("q4_0", 32, 18),
    GGMLType.Q4_1: TypeTraits("q4_1", 32, 20),
    GGMLType.Q5_0: TypeTraits("q5_0", 32, 22),
    GGMLType.Q5_1: TypeTraits("q5_1", 32, 24),
    GGMLType.Q8_0: TypeTraits("q8_0", 32, 34),
    GGMLType.Q8_1: TypeTraits("q8_1", 32, 36),
    GGMLType.Q2_K: TypeTraits("q2_K", 256, 84),
    GGMLType.Q3_K: TypeTraits("q3_K", 256, 110),
    GGMLType.Q4_K: TypeTraits("q4_K", 256, 144),
    GGMLType.Q5_K: TypeTraits("q5_K", 256, 176),
    GGMLType.Q6_K: TypeTraits("q6_K", 256, 210),
    GGMLType.Q8_K: TypeTraits("q8_K", 256, 292),
    GGMLType.IQ2_XXS: TypeTraits("iq2_xxs", 256, 66),
    GGMLType.IQ2_XS: TypeTraits("iq2_xs", 256, 74),
    GGMLType.IQ3_XXS: TypeTraits("iq3_xxs", 256, 98),
    GGMLType.IQ1_S: TypeTraits("iq1_s", 256, 50),
    GGMLType.IQ4_NL: TypeTraits("iq4_nl", 32, 18),
    GGMLType.IQ3_S: TypeTraits("iq3_s", 256, 110),
    GGMLType.IQ2_S: TypeTraits("iq2_s", 256, 82),
    GGMLType.IQ4_XS: TypeTraits("iq4_xs", 256, 136),
    GGMLType.I8: _plain("i8", "i1"),
    GGMLType.I16: _plain("i16", "<i2"),
    GGMLType.I32: _plain("i32", "<i4"),
    GGMLType.I64: _plain("i64", "<i8"),
    GGMLType.F64: _plain("f64", "<f8"),
    GGMLType.IQ1_M: TypeTraits("iq1_m", 256, 56),
    GGMLType.BF16: TypeTraits("bf16", 1, 2),
    GGMLType.TQ1_0: TypeTraits("tq1_0", 256, 54),
    GGMLType.TQ2_0: TypeTraits("tq2_0", 256, 66),
    GGMLType.MXFP4: TypeTraits("mxfp4", 32, 17),
    GGMLType.NVFP4: TypeTraits("nvfp4", 64, 36),
    GGMLType.Q1_0: TypeTraits("q1_0", 128, 18),
    GGMLType.Q2_0: TypeTraits("q2_0", 64, 18),
}


def row_size(type_: GGMLType, n: int) -> int:
    """Bytes of a row of `n` values; `n` must be a multiple of the block size."""
    traits = TYPES[type_]
    if n % traits.block_size:
        raise ValueError(
            f"row of {n} values is not a multiple of {traits.name}'s block of {traits.block_size}"
        )
    return n // traits.block_size * traits.type_size
