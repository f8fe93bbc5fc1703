"""Attention as one array [layer, head, query, key], and which part of it each event computed.

The rows of one decode lie side by side and are the same in every layer; a layer that computed only
the last of them has NaN in the others. Columns are cells of the KV cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from llmviz.trace.records import AttentionBlock
from llmviz.trace.storage_write import Variable, chunks_of, table

__all__ = ["attention_variables"]


def attention_variables(recorder: Any, dtype: np.dtype) -> Iterator[Variable]:
    """Blocks of rows side by side: the rows of one decode are the same in every layer."""
    held: dict[int, list[AttentionBlock]] = {
        il: [b for b in blocks if len(b.q_pos)]
        for il, blocks in sorted(recorder.attention.items())
        if blocks
    }
    blocks = [b for il in held for b in held[il]]
    if not blocks:
        return
    rows = _Rows()
    longest_first = sorted(blocks, key=lambda b: (-len(b.q_pos), b.n))
    start_of = {id(b): rows.place(b) for b in longest_first}
    keys: dict[bytes, int] = {}
    n_key = max(b.p.shape[2] for b in blocks)
    key_pos: list[np.ndarray] = []
    for b in blocks:
        if b.k_pos.tobytes() not in keys:
            keys[b.k_pos.tobytes()] = len(key_pos)
            key_pos.append(np.pad(b.k_pos, (0, n_key - len(b.k_pos)), constant_values=-2))
    n_head = max(b.p.shape[0] for b in blocks)
    shape = (len(held), n_head, rows.count, n_key)
    layers = {il: i for i, il in enumerate(held)}
    yield Variable(
        "attention",
        ("layer", "head", "query", "key"),
        shape=shape,
        dtype=dtype,
        chunks=(1, *chunks_of(shape[1:], dtype.itemsize)),
        parts=_layers(held, start_of, shape, dtype),
    )
    yield Variable("layer", ("layer",), np.array(list(held), np.int32))
    yield Variable("query_pos", ("query",), np.concatenate(rows.pos))
    yield Variable("key_pos", ("key_set", "key"), np.stack(key_pos))
    yield from table(
        "block",
        "block",
        n=np.array([b.n for b in blocks], np.int32),
        layer=np.array([layers[b.layer] for b in blocks], np.int32),
        query=np.array([start_of[id(b)] for b in blocks], np.int32),
        n_head=np.array([b.p.shape[0] for b in blocks], np.int32),
        n_query=np.array([b.p.shape[1] for b in blocks], np.int32),
        n_key=np.array([b.p.shape[2] for b in blocks], np.int32),
        key_set=np.array([keys[b.k_pos.tobytes()] for b in blocks], np.int32),
    )


class _Rows:
    """Which row of the array a block's first query is, shared by the layers of one decode."""

    def __init__(self) -> None:
        self.count = 0
        self.pos: list[np.ndarray] = []
        self._by_end: dict[int, list[tuple[int, np.ndarray, set[int]]]] = {}

    def place(self, block: AttentionBlock) -> int:
        """Blocks come with the longest first: a shorter one is the end of a longer one's rows."""
        q_pos = block.q_pos
        for start, pos, layers in self._by_end.get(int(q_pos[-1]), ()):
            at = len(pos) - len(q_pos)
            if block.layer not in layers and np.array_equal(pos[at:], q_pos):
                layers.add(block.layer)
                return start + at
        start = self.count
        self._by_end.setdefault(int(q_pos[-1]), []).append((start, q_pos, {block.layer}))
        self.pos.append(q_pos.astype(np.int32))
        self.count += len(q_pos)
        return start


def _layers(
    held: dict[int, list[AttentionBlock]],
    start_of: dict[int, int],
    shape: tuple[int, ...],
    dtype: np.dtype,
) -> Iterator[tuple[Any, np.ndarray]]:
    """One layer at a time: between its first and last row, NaN where nothing is held."""
    for i, blocks in enumerate(held.values()):
        first = min(start_of[id(b)] for b in blocks)
        end = max(start_of[id(b)] + b.p.shape[1] for b in blocks)
        out = np.full((shape[1], end - first, shape[3]), np.nan, dtype)
        for b in blocks:
            at = start_of[id(b)] - first
            out[: b.p.shape[0], at : at + b.p.shape[1], : b.p.shape[2]] = b.p
        yield (i, slice(None), slice(first, end)), out
