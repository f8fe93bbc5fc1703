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
        return weight.array
    flat = quants.get(weight.type).dequantize(weight.blocks.reshape(-1))
    return flat.reshape(weight.shape)


def decoded_rows(weight: Tensor, rows: np.ndarray | list[int] | int) -> np.ndarray:
    """Some rows of a matrix: float32[..., n_columns], the shape of `rows` before it."""
    index = np.asarray(rows)
    if weight.blocks is None:
        return decoded(weight).reshape(-1, weight.ne[0])[index]
    raw = weight.blocks[index.reshape(-1)]
    flat = quants.get(weight.type).dequantize(raw.reshape(-1))
    return flat.reshape(*index.shape, weight.ne[0])
