"""float32 functions of C's ``math.h``, as float32 arrays or numbers: rounded once from double.

numpy's own float32 versions are vectorized and a little coarser. IEEE results (inf, NaN) come
without warnings, as in C.
"""

from __future__ import annotations

import math
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
FLT_MAX = float(np.finfo(np.float32).max)


def f32(value: float) -> np.float32:
    """Round to float32, overflowing to an infinity."""
    if abs(value) > FLT_MAX:  # a comparison costs a tenth of np.errstate
        return np.float32(math.copysign(math.inf, value))
    return np.float32(value)


def expf(x: Float32) -> Float32:
    """Return e^x, float32[n]."""
    return np.exp(x.astype(np.float64)).astype(np.float32)


@overload
def logf(x: float | np.float32) -> np.float32: ...
@overload
def logf(x: Float32) -> Float32: ...
def logf(x: Any) -> Any:
    """Return the natural logarithm of a number or of float32[n]."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(np.float64(x)).astype(np.float32)


@overload
def log2f(x: float | np.float32) -> np.float32: ...
@overload
def log2f(x: Float32) -> Float32: ...
def log2f(x: Any) -> Any:
    """Return the binary logarithm of a number or of float32[n]."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log2(np.float64(x)).astype(np.float32)


def powf(base: float | np.float32, exponent: float | np.float32) -> np.float32:
    """Return base^exponent."""
    with np.errstate(all="ignore"):
        return np.power(np.float64(base), np.float64(exponent)).astype(np.float32)
