"""The float32 values of a weight, whether it is kept as an array or as a file's blocks."""

from __future__ import annotations

import numpy as np

from llmviz.ggml import quants
from llmviz.ggml.graph import Tensor

__all__ = ["decoded", "decoded_rows"]


def decoded(weight: Tensor) -> np.ndarray:
    """All values of a weight, float32 in numpy order; blocks are decoded anew at each call."""
    if weight.blocks is None:
        if weight.array is None:
            raise RuntimeError(f"{weight.name} has no memory yet")
        return _here(weight, weight.array)
    flat = quants.get(weight.type).dequantize(_here(weight, weight.blocks).reshape(-1))
    return flat.reshape(weight.shape)


def decoded_rows(weight: Tensor, rows: np.ndarray | list[int] | int) -> np.ndarray:
    """Some rows of a matrix: float32[..., n_columns], the shape of `rows` before it."""
    index = np.asarray(rows)
    if weight.blocks is None:
        return decoded(weight).reshape(-1, weight.ne[0])[index]
    raw = _here(weight, weight.blocks)[index.reshape(-1)]
    flat = quants.get(weight.type).dequantize(raw.reshape(-1))
    return flat.reshape(*index.shape, weight.ne[0])


def _here(weight: Tensor, array: np.ndarray) -> np.ndarray:
    """An array of the weight's where numpy can read it.

    A simulated device's arrays are numpy's own, and its kernels, which are the CPU's, decode here.
    """
    home = weight.home
    return array if home is None or home.is_simulated else home.get(array)
