"""Statistics of a node's values, compiled: a step of a tape, or called for one array.

The plain form is `llmviz.ggml.measure.measure`.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import njit

from llmviz.ggml.backends.kernels.calls import arg, pointer

__all__ = ["statistics"]

_SETTINGS: dict[str, Any] = {"cache": True, "nogil": True, "boundscheck": False}
_SETTINGS["error_model"] = "numpy"


@njit(**_SETTINGS, fastmath={"reassoc", "nsz"})
def _finite(x: Any) -> Any:
    """Least, largest and sum where all values are finite; else a sum that is not."""
    low, high, total = x[0], x[0], 0.0
    for i in range(x.shape[0]):
        low, high = min(low, x[i]), max(high, x[i])
        total += np.float64(x[i])
    return low, high, total


@njit(**_SETTINGS, fastmath={"reassoc", "nsz"})
def _squares(x: Any, mean: Any) -> Any:
    total = 0.0
    for i in range(x.shape[0]):
        d = np.float64(x[i]) - mean
        total += d * d
    return total


@njit(**_SETTINGS)
def _with_others(x: Any, out: Any) -> None:
    """Where some are NaN or infinite: the figures are of the others."""
    nan = inf = 0
    low, high, total, n = np.inf, -np.inf, 0.0, 0
    for i in range(x.shape[0]):
        value = np.float64(x[i])
        if np.isnan(value):
            nan += 1
        elif np.isinf(value):
            inf += 1
        else:
            low, high, total, n = min(low, value), max(high, value), total + value, n + 1
    out[0], out[1] = nan, inf
    if n == 0:
        return
    mean, squares = total / n, 0.0
    for i in range(x.shape[0]):
        if np.isfinite(x[i]):
            squares += (np.float64(x[i]) - mean) ** 2
    out[2], out[3], out[4], out[5] = low, high, mean, np.sqrt(squares / n)


def statistics(args: int, first: int, n: int) -> None:
    """Addresses of float32 values and of six float64, number of values; one item."""
    x = numba.carray(pointer(arg(args, 0)), arg(args, 2), np.float32)
    out = numba.carray(pointer(arg(args, 1)), 6, np.float64)
    low, high, total = _finite(x)
    if not np.isfinite(total):
        _with_others(x, out)
        return
    mean = total / x.shape[0]
    out[0], out[1], out[2], out[3], out[4] = 0, 0, low, high, mean
    out[5] = np.sqrt(_squares(x, mean) / x.shape[0])
