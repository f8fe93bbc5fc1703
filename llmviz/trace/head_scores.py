"""What the heads of a layer do, measured on their attention: three patterns and an entropy.

Each is a function of one layer's weights, positions and tokens; `overview` adds them up over a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from llmviz.errors import LlmvizError

__all__ = [
    "Pattern",
    "attention_entropy",
    "first_token",
    "first_token_score",
    "induction",
    "induction_score",
    "previous_token",
    "previous_token_score",
]


def _attention(
    kq: np.ndarray,
    q_pos: Sequence[int] | np.ndarray | None,
    k_pos: Sequence[int] | np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    p = np.asarray(kq)
    if p.ndim != 3 or p.dtype.kind != "f":
        raise LlmvizError(
            "head scores read kq_soft_max, float [n_head, n_tokens, n_kv]; this array is "
            f"{p.dtype} {list(p.shape)}"
        )
    q = np.arange(p.shape[1]) if q_pos is None else np.asarray(q_pos)
    k = np.arange(p.shape[2]) if k_pos is None else np.asarray(k_pos)
    if q.shape != p.shape[1:2] or k.shape != p.shape[2:]:
        raise LlmvizError(
            f"kq_soft_max {list(p.shape)} needs {p.shape[1]} query and {p.shape[2]} key positions, "
            f"got {q.size} and {k.size}"
        )
    return p, q, k


class Pattern(NamedTuple):
    """Which cells a head of some kind would look at, and whose rows count.

    Attributes
    ----------
    hit : bool [n_tokens, n_kv]
    queries : bool [n_tokens]
    """

    hit: np.ndarray
    queries: np.ndarray

    def total(self, p: np.ndarray) -> np.ndarray:
        """The weight on the hits, all rows that count together; float64 [n_head]."""
        rows, cells = np.nonzero(self.hit & self.queries[:, None])
        return p[:, rows, cells].sum(axis=1, dtype=np.float64)

    def mean(self, p: np.ndarray) -> np.ndarray:
        """The same per row that counts; NaN where none does."""
        n = int(self.queries.sum())
        return self.total(p) / n if n else np.full(len(p), np.nan)


def previous_token(q: np.ndarray, k: np.ndarray) -> Pattern:
    """From every query to the token before it; int [n_tokens], int [n_kv], positions."""
    hit = (k[None, :] == q[:, None] - 1) & (k >= 0)  # [n_tokens, n_kv]
    return Pattern(hit, hit.any(axis=1))


def first_token(q: np.ndarray, k: np.ndarray) -> Pattern:
    """From every query but the first to the first token."""
    hit = np.broadcast_to(k == 0, (len(q), len(k)))  # [n_tokens, n_kv]
    return Pattern(hit, (q > 0) & hit.any(axis=1))


def induction(q: np.ndarray, k: np.ndarray, tokens: Sequence[int] | np.ndarray) -> Pattern:
    """From a repeated token to what followed it earlier; `tokens` by position, int [n]."""
    ids = np.asarray(tokens)
    if ids.ndim != 1 or (q.size and int(q.max()) >= ids.size):
        raise LlmvizError(
            f"induction_score needs the token of each position up to {int(q.max(initial=-1))}, "
            f"got {ids.size}"
        )
    before = np.where((k > 0) & (k <= ids.size), k - 1, 0)  # [n_kv] position before each key
    same = ids[before][None, :] == ids[np.maximum(q, 0)][:, None]  # [n_tokens, n_kv]
    hit = same & (k > 0) & (k[None, :] < q[:, None])
    return Pattern(hit, hit.any(axis=1))


def previous_token_score(
    kq: np.ndarray,
    q_pos: Sequence[int] | np.ndarray | None = None,
    k_pos: Sequence[int] | np.ndarray | None = None,
) -> np.ndarray:
    """Per head, the average attention from a token to the one before it.

    As in Clark et al., "What Does BERT Look At?" (2019), section 3.1; Olsson et al. (2022) measure
    previous-token heads in the same way. Queries whose previous token is not in the cache are left
    out.

    Parameters
    ----------
    kq : float32 [n_head, n_tokens, n_kv]
        Attention weights, ``kq_soft_max-<il>``.
    q_pos : int [n_tokens]
        Position of each query; None: 0, 1, 2 ..., a prompt in an empty cache.
    k_pos : int [n_kv]
        Position that each cell holds, -1 for none; None: cell i holds position i.

    Returns
    -------
    float64 [n_head]
        0..1; NaN where no query has a previous token.
    """
    p, q, k = _attention(kq, q_pos, k_pos)
    return previous_token(q, k).mean(p)


def first_token_score(
    kq: np.ndarray,
    q_pos: Sequence[int] | np.ndarray | None = None,
    k_pos: Sequence[int] | np.ndarray | None = None,
) -> np.ndarray:
    """Per head, the average attention to the first token: the attention sink.

    Xiao et al., "Efficient Streaming Language Models with Attention Sinks" (2023); averaged over
    queries as in Gu et al., "When Attention Sink Emerges in Language Models" (2024), but without
    the first query, which can look nowhere else. Parameters and result as `previous_token_score`.
    """
    p, q, k = _attention(kq, q_pos, k_pos)
    return first_token(q, k).mean(p)


def induction_score(
    kq: np.ndarray,
    tokens: Sequence[int] | np.ndarray,
    q_pos: Sequence[int] | np.ndarray | None = None,
    k_pos: Sequence[int] | np.ndarray | None = None,
) -> np.ndarray:
    """Per head, the average attention from a repeated token to what followed it earlier.

    The prefix-matching score of Olsson et al., "In-context Learning and Induction Heads" (2022):
    of ``[A][B] ... [A]`` the attention of the second A to B. Where A occurred several times, the
    weights on all that followed are added. Queries whose token did not occur before, or only right
    before, are left out. Their paper measures it on repeated random tokens; on ordinary text it is
    a hint, not a proof.

    Parameters
    ----------
    kq, q_pos, k_pos
        As `previous_token_score`.
    tokens : int [n]
        Token at each position 0..n-1, the queries' own included.

    Returns
    -------
    float64 [n_head]
        0..1; NaN where no token of the queries repeats.
    """
    p, q, k = _attention(kq, q_pos, k_pos)
    return induction(q, k, tokens).mean(p)


def attention_entropy(kq: np.ndarray) -> np.ndarray:
    """Per head, the entropy of its attention in nats, averaged over the queries.

    0: each token looks at one other; ln n: evenly at n. As in Clark et al. (2019), section 3.3.

    float32 [n_head, n_tokens, n_kv] -> float64 [n_head].
    """
    p, _, _ = _attention(kq, None, None)
    w = p.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(w > 0, w * np.log(w), np.where(np.isnan(w), np.nan, 0.0))
    if not p.shape[1]:
        return np.full(len(p), np.nan)
    return -terms.sum(axis=2).mean(axis=1) + 0.0
