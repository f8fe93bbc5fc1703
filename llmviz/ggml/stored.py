"""Rows kept in a narrow type behind a float32 tensor: what a quantized cache is made of.

↔ ggml/src/ggml-cpu/ops.cpp (ggml_compute_forward_set_rows)

A graph reads float32. So a leaf whose values are stored as, say, Q8_0 has two arrays: the blocks,
which are the truth (saved, copied, counted), and the float32 values that they decode to. Every
write goes through `StoredRows.store`, so that both always say the same.
"""

from __future__ import annotations

import numpy as np

from llmviz.ggml import quants
from llmviz.ggml.types import GGMLType

__all__ = ["StoredRows"]


class StoredRows:
    """The blocks behind a float32 array.

    Parameters
    ----------
    type_ : GGMLType
    blocks : block_dtype [..., n_blocks]
        Contiguous; adopted, not copied.
    values : float32 [..., n_blocks * block_size]
        Contiguous; what `blocks` decode to.
    """

    def __init__(self, type_: GGMLType, blocks: np.ndarray, values: np.ndarray) -> None:
        self.type = type_
        self.quant = quants.get(type_)
        self.blocks = blocks
        self.values = values

    def encode(self, rows: np.ndarray) -> np.ndarray:
        """Blocks [n, n_blocks] of float32 rows [n, width], as ggml's CPU backend writes them."""
        raw = self.quant.quantize(rows, store=True)
        return raw.view(self.quant.block_dtype)

    def decode(self, blocks: np.ndarray) -> np.ndarray:
        """Float32 values of blocks [..., n_blocks]: [..., n_blocks * block_size]."""
        raw = np.ascontiguousarray(blocks).view(np.uint8)
        return self.quant.dequantize(raw).reshape(*blocks.shape[:-1], -1)

    def store(self, ids: np.ndarray, rows: np.ndarray) -> None:
        """Write float32 rows [n, width] in place of the rows `ids` [n], counted through all.

        A width of one value is one element each (a transposed cache of a type without blocks).
        """
        width = rows.shape[-1]
        blocks = self.encode(rows)  # [n, n_blocks]
        self.blocks.reshape(-1, width // self.quant.block_size)[ids] = blocks
        self.values.reshape(-1, width)[ids] = self.decode(blocks)

    def refresh(self, window: tuple) -> None:
        """Decode a window of the blocks' leading axes anew (its last axis is left whole)."""
        self.values[window] = self.decode(self.blocks[window])

    def rewrite(self, window: np.ndarray, value: np.ndarray) -> None:
        """Put other values into `window`, a view of `values`; rows that change are stored anew."""
        before = self.values.copy()
        window[...] = value
        width = self.values.shape[-1]
        after = self.values.reshape(-1, width)
        same = (after.view(np.uint32) == before.reshape(-1, width).view(np.uint32)).all(axis=1)
        changed = np.flatnonzero(~same)
        self.store(changed, after[changed])
