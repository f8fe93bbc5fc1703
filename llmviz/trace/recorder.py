"""What a run has computed so far, kept within a byte budget.

`Recorder.see` is shown every event and copies the few values that the panel and the views need
after the run has moved on: tokens with their probabilities, the last logits, the cells of the KV
cache, and the attention of the latest decodes. Everything else is dropped when the event passes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from llmviz.events import Event
from llmviz.trace.summary import probabilities

__all__ = ["Alternative", "AttentionBlock", "CellsRecord", "Recorder", "TokenRecord"]

ATTENTION = "kq_soft_max-"
N_TOP = 10


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


@dataclass
class Recorder:
    """Copies of what the views show, within `budget` bytes.

    Parameters
    ----------
    budget : int
        Bytes that attention copies may take. When they do not fit, blocks of layers other than
        `layer` go first, the oldest first; `dropped` counts them.
    layer : int
        The layer whose attention is kept longest.
    """

    budget: int = 64 << 20
    layer: int = 0
    piece_of: Callable[[int], bytes] | None = None
    tokens: list[TokenRecord] = field(default_factory=list)
    logits: np.ndarray | None = None
    logits_n: int = -1
    top: tuple[Alternative, ...] = ()
    cells: CellsRecord | None = None
    attention: dict[int, deque[AttentionBlock]] = field(default_factory=dict)
    stop: str = ""
    rest: str = ""
    dropped: int = 0
    used: int = 0
    only_layer: bool = False

    def __post_init__(self) -> None:
        self._q_pos: np.ndarray | None = None
        self._candidates: Any = None
        # By step and name: the vocabulary has "tokens" too (step 5).
        self._handlers: dict[tuple[int, str], Callable[[Event, int], None]] = {
            (9, "tokens"): self._see_tokens,
            (13, "inp_pos"): self._see_positions,
            (13, "kv_cells"): self._see_cells,
            (14, "logits"): self._see_logits,
            (16, "token"): self._see_token,
            (16, "stop"): self._see_stop,
        }

    def wants(self, name: str) -> bool:
        """Whether a node of this name must be yielded for the recorder to see it."""
        if not name.startswith(ATTENTION):
            return False
        return not self.only_layer or name == f"{ATTENTION}{self.layer}"

    def see(self, event: Event, n: int) -> None:
        """Look at one event as it passes; n is its number."""
        if event.kind == "node":
            if event.name.startswith(ATTENTION):
                self._see_attention(event, n)
            return
        if event.kind != "data":
            return
        if event.step == 15 and hasattr(event.value, "p"):
            self._candidates = event.value
        handler = self._handlers.get((event.step, event.name))
        if handler is not None:
            handler(event, n)

    def keep_layer(self, layer: int) -> None:
        """Choose the layer whose attention is kept longest."""
        self.layer = layer

    # -- what each event leaves behind ---------------------------------------------------------

    def _see_tokens(self, event: Event, n: int) -> None:
        pieces = [self._piece(int(i)) for i in event.value]
        self.tokens = [
            TokenRecord(int(i), piece, piece.decode("utf-8", "replace"), pos, n, True)
            for pos, (i, piece) in enumerate(zip(event.value, pieces, strict=True))
        ]

    def _piece(self, token: int) -> bytes:
        return self.piece_of(token) if self.piece_of is not None else b""

    def _see_positions(self, event: Event, n: int) -> None:
        self._q_pos = np.array(event.value, dtype=np.int32).reshape(-1)

    def _see_cells(self, event: Event, n: int) -> None:
        pos, tok, seq = read_cells(event.value)
        before = self.cells
        if before is None or len(before.pos) != len(pos):
            fresh = np.flatnonzero(pos >= 0)
        else:
            fresh = np.flatnonzero((pos != before.pos) & (pos >= 0))
        self.cells = CellsRecord(pos, tok, seq, frozenset(fresh.tolist()), n)

    def _see_attention(self, event: Event, n: int) -> None:
        layer = int(event.name[len(ATTENTION) :])
        value = np.asarray(event.value)
        if value.ndim != 3:
            return
        n_head, n_q, n_kv = value.shape
        k_pos, keep = self._columns(n_kv)
        q_pos = self._q_pos if self._q_pos is not None else np.arange(n_q, dtype=np.int32)
        if len(q_pos) != n_q:
            # Only some rows are computed where only some tokens give an output: those are the last.
            q_pos = q_pos[-n_q:] if len(q_pos) > n_q else np.arange(n_q, dtype=np.int32)
        block = AttentionBlock(n, layer, q_pos, k_pos, value[:, :, :keep].astype(np.float32))
        if n_head * n_q * keep * 4 > self.budget:
            self.dropped += 1
            return
        self.attention.setdefault(layer, deque()).append(block)
        self.used += block.p.nbytes
        while self.used > self.budget:
            self._drop_oldest()

    def _columns(self, n_kv: int) -> tuple[np.ndarray, int]:
        """Positions of the cache's first n_kv cells, cut after the last one in use."""
        if self.cells is None:
            return np.arange(n_kv, dtype=np.int32), n_kv
        pos = self.cells.pos[:n_kv]
        used = np.flatnonzero(pos >= 0)
        keep = int(used[-1]) + 1 if used.size else n_kv
        return pos[:keep], keep

    def _drop_oldest(self) -> None:
        others = [blocks[0] for il, blocks in self.attention.items() if il != self.layer and blocks]
        self.only_layer = True
        oldest = min(others, key=lambda b: b.n) if others else self.attention[self.layer][0]
        blocks = self.attention[oldest.layer]
        blocks.popleft()
        if not blocks:
            del self.attention[oldest.layer]
        self.used -= oldest.p.nbytes
        self.dropped += 1

    def _see_logits(self, event: Event, n: int) -> None:
        rows = np.asarray(event.value)
        self.logits = np.array(rows.reshape(-1, rows.shape[-1])[-1], dtype=np.float32)
        self.logits_n = n
        self._candidates = None
        self.top = self._top(self.logits)

    def _top(self, logits: np.ndarray, candidates: Any = None) -> tuple[Alternative, ...]:
        p_raw = probabilities(logits)
        ranked = np.nan_to_num(logits, nan=-np.inf)
        count = min(N_TOP, len(ranked))
        best = np.argpartition(-ranked, count - 1)[:count]
        best = best[np.argsort(-ranked[best], kind="stable")]
        after = chain_probabilities(candidates)
        return tuple(
            Alternative(
                int(i),
                self._piece(int(i)).decode("utf-8", "replace"),
                float(logits[i]),
                float(p_raw[i]),
                None if after is None else after.get(int(i)),
                after is not None and int(i) not in after,
            )
            for i in best
        )

    def _see_token(self, event: Event, n: int) -> None:
        token = int(event.value)
        about = event.about if isinstance(event.about, dict) else {}
        piece = about.get("piece", b"") or self._piece(token)
        text = about.get("text", piece.decode("utf-8", "replace"))
        logit = p_raw = p = rank = None
        top: tuple[Alternative, ...] = ()
        if self.logits is not None and 0 <= token < len(self.logits):
            logit = float(self.logits[token])
            p_raw = float(probabilities(self.logits)[token])
            rank = int((self.logits > self.logits[token]).sum())
            top = self._top(self.logits, self._candidates)
            self.top = top
            after = chain_probabilities(self._candidates)
            p = after.get(token) if after else None
        self.tokens.append(
            TokenRecord(token, piece, text, len(self.tokens), n, False, logit, p_raw, p, rank, top)
        )

    def _see_stop(self, event: Event, n: int) -> None:
        self.stop = str(event.value)
        about = event.about if isinstance(event.about, dict) else {}
        self.rest = str(about.get("text", ""))

    # -- reading it back -----------------------------------------------------------------------

    def layers(self) -> list[int]:
        """Layers whose attention is held, in order."""
        return sorted(self.attention)

    def n_head(self, layer: int) -> int:
        """Heads of the attention held for a layer, 0 where there is none."""
        blocks = self.attention.get(layer)
        return blocks[-1].p.shape[0] if blocks else 0

    def last_query(self, layer: int) -> int:
        """The largest position with a row of attention in a layer, -1 where there is none."""
        blocks = self.attention.get(layer)
        return (
            max((int(b.q_pos.max()) for b in blocks if b.q_pos.size), default=-1) if blocks else -1
        )

    def attention_matrix(
        self, layer: int, head: int, positions: Sequence[int]
    ) -> np.ndarray | None:
        """Attention of one head between the given positions.

        Returns
        -------
        float32 [n, n], or None
            Row = query, column = key, both in the order of `positions`. NaN where nothing was
            computed (a key after its query, a query that was not held). None without any block.
        """
        blocks = self.attention.get(layer)
        if not blocks or not 0 <= head < blocks[-1].p.shape[0]:
            return None
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


def chain_probabilities(candidates: Any) -> dict[int, float] | None:
    """Probability of each surviving candidate, None where the chain computed none."""
    if candidates is None or not hasattr(candidates, "p"):
        return None
    p = np.asarray(candidates.p)
    if p.size == 0 or not float(p.sum()) > 0:
        return None
    return dict(zip(np.asarray(candidates.id).tolist(), p.tolist(), strict=True))


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
