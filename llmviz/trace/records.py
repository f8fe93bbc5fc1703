"""What the recorder keeps of tokens, cells and attention: plain records that never change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmviz.trace.summary import probabilities

__all__ = [
    "Alternative",
    "AttentionBlock",
    "CellsRecord",
    "TokenRecord",
    "alternatives",
    "attention_matrix",
    "chain_probabilities",
    "read_cells",
]


@dataclass(frozen=True, slots=True)
class Alternative:
    """One candidate for the next token.

    `p_raw` is the softmax of all logits; `p` what the sampler chain left of it: None where the
    chain cut the token or gave no probabilities (a greedy choice).
    """

    id: int
    text: str
    logit: float
    p_raw: float
    p: float | None = None
    cut: bool = False


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """One token of the text: of the prompt (`given`), or chosen by the sampler.

    Attributes
    ----------
    id, piece, text, pos
        Token id; its bytes; what they add to the text; position in the sequence.
    n : int
        Number of the event at which it appeared.
    logit, p_raw, p, rank
        Of a chosen token: its logit, the softmax of all logits, the probability after the chain
        (None where the chain gives none) and how many tokens had a larger logit. None for the
        prompt.
    top : tuple of Alternative
        The ten largest logits it was chosen from; empty for the prompt.
    """

    id: int
    piece: bytes
    text: str
    pos: int
    n: int
    given: bool
    logit: float | None = None
    p_raw: float | None = None
    p: float | None = None
    rank: int | None = None
    top: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class CellsRecord:
    """The KV cache's cells as they were at one event.

    Attributes
    ----------
    pos : ndarray int32 [n_cells]
        Position held by each cell, -1 for an empty one.
    tok : ndarray int32 [n_cells]
        Token stored there, -1 where empty.
    seq : ndarray bool [n_seq, n_cells]
        Whether a cell belongs to a sequence.
    fresh : frozenset of int
        Cells that the current ubatch has just been given.
    n : int
        Event number.
    """

    pos: np.ndarray
    tok: np.ndarray
    seq: np.ndarray
    fresh: frozenset[int]
    n: int

    @property
    def used(self) -> int:
        """How many cells hold something."""
        return int((self.pos >= 0).sum())

    def sequences(self, cell: int) -> tuple[int, ...]:
        """Sequences that a cell belongs to."""
        return tuple(np.flatnonzero(self.seq[:, cell]).tolist())


@dataclass(frozen=True, slots=True)
class AttentionBlock:
    """Attention weights of one layer for the queries of one ubatch.

    Attributes
    ----------
    n : int
        Event number of the node.
    layer : int
    q_pos : ndarray int32 [n_q]
        Position of each query.
    k_pos : ndarray int32 [n_k]
        Position that each column's cell held, -1 for an empty cell.
    p : ndarray float32 [n_head, n_q, n_k]
    """

    n: int
    layer: int
    q_pos: np.ndarray
    k_pos: np.ndarray
    p: np.ndarray


def chain_probabilities(candidates: Any) -> dict[int, float] | None:
    """Probability of each surviving candidate, None where the chain computed none."""
    if candidates is None or not hasattr(candidates, "p"):
        return None
    p = np.asarray(candidates.p)
    if p.size == 0 or not float(p.sum()) > 0:
        return None
    return dict(zip(np.asarray(candidates.id).tolist(), p.tolist(), strict=True))


def alternatives(
    logits: np.ndarray, candidates: Any, count: int, piece_of: Callable[[int], bytes]
) -> tuple[Alternative, ...]:
    """The `count` largest logits, the largest first, with what the chain made of them.

    Parameters
    ----------
    logits : float32 [n_vocab]
    candidates : TokenDataArray or None
        What the chain left; None before it has run.
    """
    p_raw = probabilities(logits)
    ranked = np.nan_to_num(logits, nan=-np.inf)
    count = min(count, len(ranked))
    best = np.argpartition(-ranked, count - 1)[:count]
    best = best[np.argsort(-ranked[best], kind="stable")]
    after = chain_probabilities(candidates)
    return tuple(
        Alternative(
            i,
            piece_of(i).decode("utf-8", "replace"),
            float(logits[i]),
            float(p_raw[i]),
            None if after is None else after.get(i),
            after is not None and i not in after,
        )
        for i in best.tolist()
    )


def read_cells(cells: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions, tokens and sequences of KV cells, copied: `KVCells`, or several streams of them.

    Returns
    -------
    (int32 [n_cells], int32 [n_cells], bool [n_seq, n_cells])
    """
    streams = list(cells) if isinstance(cells, (list, tuple)) else [cells]
    pos = np.concatenate([np.array(c.pos, dtype=np.int32) for c in streams])
    tok = np.concatenate([np.array(c.tok, dtype=np.int32) for c in streams])
    n_seq = max(len(c.seq) for c in streams)
    seq = np.zeros((n_seq, len(pos)), dtype=bool)
    start = 0
    for c in streams:
        seq[: len(c.seq), start : start + len(c.pos)] = c.seq
        start += len(c.pos)
    return pos, tok, seq


def attention_matrix(
    blocks: Iterable[AttentionBlock], head: int, positions: Sequence[int]
) -> np.ndarray:
    """Attention of one head between the given positions, put together from its blocks.

    Returns
    -------
    float32 [n, n]
        Row = query, column = key, both in the order of `positions`. NaN where nothing was computed
        (a key after its query, a query that was not held).
    """
    where = {int(p): i for i, p in enumerate(positions)}
    out = np.full((len(where), len(where)), np.nan, dtype=np.float32)
    for block in blocks:
        keys = [(j, where[int(p)]) for j, p in enumerate(block.k_pos) if int(p) in where]
        if not keys:
            continue
        source, target = (np.array(x) for x in zip(*keys, strict=True))
        for i, q in enumerate(block.q_pos):
            row = where.get(int(q))
            if row is not None:
                seen = block.k_pos[source] <= int(q)
                out[row, target[seen]] = block.p[head, i, source[seen]]
    return out
