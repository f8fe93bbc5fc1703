"""Checks of sampler parameters: what a setting may be, said by name.

Values that llama.cpp accepts are accepted however odd (they act as there); what could not even be
passed to it (wrong type, NaN, beyond the C type) is refused.
"""

from __future__ import annotations

import math
import operator
from typing import Any

from llmviz.errors import SamplerError
from llmviz.sampling.rng import LLAMA_DEFAULT_SEED

INT32_MAX = 2**31 - 1


def real(where: str, value: Any, *, finite: bool = False, above: float | None = None) -> float:
    """Return a float as float32 holds it; infinities pass unless `finite`."""
    try:
        if isinstance(value, bool | str | bytes):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise SamplerError(f"{where} must be a number, not {value!r}") from None
    if math.isnan(number):
        raise SamplerError(f"{where} must be a number, not NaN")
    if finite and not math.isfinite(number):
        raise SamplerError(f"{where} must be finite, not {number}")
    if above is not None and not number > above:
        raise SamplerError(f"{where} must be > {above:g}, not {number:g}")
    return number


def integer(where: str, value: Any, low: int = -INT32_MAX - 1, high: int = INT32_MAX) -> int:
    """Return an int within [low, high] (default: what an int32 holds)."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise SamplerError(f"{where} must be an integer, not {value!r}") from None
    if not low <= number <= high:
        raise SamplerError(f"{where} must be in {low} .. {high}, not {number}")
    return number


def min_keep(where: str, value: Any) -> int:
    """Return a number of candidates to keep at least; 0 and 1 mean the same."""
    return integer(f"{where}: min_keep", value, 0)


def seed(where: str, value: Any) -> int:
    """Return a seed as uint32; -1 is `LLAMA_DEFAULT_SEED` (random), as in llama.cpp's tools."""
    return integer(f"{where}: seed", value, -1, LLAMA_DEFAULT_SEED) & LLAMA_DEFAULT_SEED
