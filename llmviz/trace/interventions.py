"""Ready-made interventions: functions from a node's values to other values of the same shape.

Each gets a copy, as float32 in numpy order, and the node's tensor; it may write into the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["ablated", "averaged", "scaled"]

Function = Callable[[np.ndarray, Any], np.ndarray]


def ablated(heads: Sequence[int], n_head: int) -> Function:
    """Zero what some heads add, in ``kqv_out``: [n_tokens, n_head * n_embd_head]."""

    def ablate(x: np.ndarray, tensor: Any) -> np.ndarray:
        x.reshape(-1, n_head, x.shape[-1] // n_head)[:, list(heads)] = 0  # [n_tokens, heads, d]
        return x

    return ablate


def scaled(factor: float) -> Function:
    """Multiply every value; the factor 0 gives plain zeros, also in the place of inf and NaN."""

    def scale(x: np.ndarray, tensor: Any) -> np.ndarray:
        return np.zeros_like(x) if factor == 0 else (x * np.float32(factor)).astype(x.dtype)

    return scale


def averaged(axis: int | tuple[int, ...] = -1) -> Function:
    """Put the mean along an axis in the place of every value on it."""

    def average(x: np.ndarray, tensor: Any) -> np.ndarray:
        mean = x.mean(axis=axis, keepdims=True, dtype=np.float64)
        return np.broadcast_to(mean.astype(x.dtype), x.shape)

    return average
