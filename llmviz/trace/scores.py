"""What enters the softmax of one layer: raw scores, and scores after scale and mask.

The engine computes ``kq-<il>``, and inside its softmax ``kq * scale + mask``: the same two
operations in float32 are done here with the recorded score, the graph's scale and the recorded
mask. Scores are kept of the asked layer alone; what went by before is seen by a silent replay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from llmviz.errors import LlmvizError
from llmviz.events import Event
from llmviz.ggml.backends.cpu_attention import alibi_slopes
from llmviz.trace.lookback import can_look_back, look_back, pass_starts
from llmviz.trace.records import TokenRecord, read_cells
from llmviz.trace.shown import attention as shown_attention

__all__ = ["STAGES", "Entering", "Scores", "ShownStage", "cells_of", "entering", "shown_stage"]

STAGES = ("scores", "masked", "softmax")
"""In the order in which attention computes them."""

_KEPT_ROWS = 64  # queries whose scores a replay leaves behind


@dataclass(frozen=True, slots=True)
class Entering:
    """How scores come to a layer's softmax.

    Attributes
    ----------
    scores, mask : str
        Names of the node and of the input; `mask` is empty where there is none.
    scale : float or None
        What scores are multiplied with; None where it is not known (a trace does not tell it).
    max_bias : float
        Above 0 every head multiplies the mask with a slope of its own (ALiBi).
    sinks : bool
        Whether one more score takes part in each row's sum and gets no weight.
    """

    scores: str
    mask: str
    scale: float | None
    max_bias: float = 0.0
    sinks: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """Scores of one layer for the queries of one ubatch."""

    n: int
    q_pos: np.ndarray  # int32 [n_q]
    k_pos: np.ndarray  # int32 [n_k]
    kq: np.ndarray  # float32 [n_head, n_q, n_k]
    mask: np.ndarray | None  # float32 [n_q, n_k]


@dataclass(frozen=True, slots=True, eq=False)
class ShownStage:
    """One head's numbers at one stage, between the newest tokens.

    Attributes
    ----------
    stage : str
    tokens : list of TokenRecord
        On both axes.
    values : float32 [n, n] or None
        Row = query, column = key; NaN where nothing was computed, -inf where the mask shuts a cell.
    raw, mask : float32 [n, n] or None
        Of the two stages before the softmax: the recorded score, and what is added to it.
    total : int
        Tokens that have a row; more than `tokens` where they did not fit.
    sums : float64 [n] or None
        Of the softmax: each row's sum over all keys, those that are not shown too.
    node : str
        The node, or the formula, whose values these are.
    scale : float or None
    sinks : bool
        Whether the softmax has a sink, so that its rows sum to less than 1.
    missing : tuple of int
        Positions whose scores were not kept.
    """

    stage: str
    tokens: list[TokenRecord]
    values: np.ndarray | None
    raw: np.ndarray | None
    mask: np.ndarray | None
    total: int
    sums: np.ndarray | None
    node: str
    scale: float | None
    sinks: bool
    missing: tuple[int, ...]

    def index(self, query: int) -> int:
        """The row of a position, the newest one's where it is not among those shown."""
        positions = [k.pos for k in self.tokens]
        return positions.index(query) if query in positions else len(positions) - 1


def entering(dbg: Any, layer: int) -> Entering:
    """What a layer's softmax reads, from the graph; llama.cpp's usual names where there is none."""
    graph = getattr(getattr(getattr(dbg, "ctx", None), "graph", None), "gf", None)
    name = f"kq_soft_max-{layer}"
    nodes = graph.nodes if graph is not None else ()
    soft = next((t for t in nodes if t.name == name and t.op == "SOFT_MAX"), None)
    if soft is None or not soft.src:
        return Entering(f"kq-{layer}", "attn_inp_kq_mask", None)
    sinks = bool(soft.params.get("sinks", False))
    masks = soft.src[1 : len(soft.src) - sinks]
    scale = soft.params.get("scale")
    return Entering(
        soft.src[0].name,
        masks[0].root.name if masks else "",
        None if scale is None else float(scale),
        float(soft.params.get("max_bias", 0.0)),
        sinks,
    )


def cells_of(dbg: Any, layer: int) -> str:
    """The event that shows the cells which a layer looks at: of a sliding window, its own."""
    return "kv_cells_swa" if entering(dbg, layer).mask.endswith("_swa") else "kv_cells"


class Scores:
    """The scores of one layer: asks the recorder for them, and keeps what a replay has shown.

    Parameters
    ----------
    dbg : Debugger
    """

    def __init__(self, dbg: Any) -> None:
        self.dbg = dbg
        self.layer = -1
        self._asked: tuple[Any, frozenset[str]] | None = None
        self._fetched: list[_Block] = []
        self._fetched_in: Any = None

    def ask(self, layer: int) -> None:
        """Have the recorder keep the scores of this layer, and of no other any more."""
        recorder, how = self.dbg.recorder, entering(self.dbg, layer)
        names = frozenset({how.scores, how.mask, "inp_pos"} - {""})
        if layer != self.layer or self._fetched_in != self._run():
            self._fetched = []
        self.layer = layer
        if self._asked is None or self._asked[0] is not recorder or self._asked[1] != names:
            self._asked = recorder, names
            recorder.ask(self, names.__contains__)

    def release(self) -> None:
        """Ask for nothing any more, and let go of what was fetched."""
        if self._asked is not None:
            self._asked[0].release(self)
        self._asked, self._fetched, self.layer = None, [], -1

    def fetch(self, positions: Sequence[int]) -> None:
        """See the scores of these queries in a silent replay, where they were not kept.

        Raises
        ------
        LlmvizError
            The run cannot go back.
        """
        gone = sorted(set(positions) - {int(p) for b in self.blocks() for p in b.q_pos})
        if not gone:
            return
        if not can_look_back(self.dbg):
            raise LlmvizError(
                f"the scores of position {gone[0]} were not kept, and this run cannot go back"
            )
        how, cells = entering(self.dbg, self.layer), cells_of(self.dbg, self.layer)
        visitor = _Visitor(how, cells, set(positions))
        look_back(
            self.dbg,
            self._start_of(gone[0]),
            lambda name: name == visitor.how.scores,
            visitor.see,
        )
        self._fetched, self._fetched_in = visitor.blocks, self._run()

    def _run(self) -> Any:
        """What the numbers of earlier events depend on."""
        edits = tuple(e.id for e in self.dbg.edits)
        return id(self.dbg.recorder), self.dbg.branch.name, edits

    def _start_of(self, pos: int) -> int:
        """The event at which the ubatch with this position began."""
        starts = pass_starts(self.dbg) or [0]
        blocks = self.dbg.recorder.attention.get(self.layer, ())
        n = next((b.n for b in blocks if pos in b.q_pos), 0)
        return max((s for s in starts if s <= n), default=starts[0])

    def blocks(self) -> list[_Block]:
        """What is held, the oldest first."""
        out = _kept(self.dbg, self.layer)
        known = {b.n for b in out}
        out += [b for b in self._fetched if b.n <= self.dbg.n and b.n not in known]
        return sorted(out, key=lambda b: b.n)


class _Visitor:
    """Puts blocks together from the events of a replay; of the asked queries alone."""

    def __init__(self, how: Entering, cells: str, positions: set[int]) -> None:
        self.how, self.cells, self.positions = how, cells, positions
        self.blocks: list[_Block] = []
        self._q: np.ndarray | None = None
        self._k: np.ndarray | None = None
        self._mask: np.ndarray | None = None

    def see(self, event: Event, n: int) -> None:
        """Look at one event."""
        if event.name == "process_ubatch" and event.kind == "enter":
            self._q = np.array(event.value.pos, np.int32).reshape(-1)
        elif event.name == self.cells and event.kind == "data":
            self._k = read_cells(event.value)[0]
        elif event.name == self.how.mask and event.kind == "data":
            self._mask = np.array(event.value, np.float32)
        elif event.name == self.how.scores and event.kind == "node" and self._q is not None:
            block = _block(n, event.value, self._q, self._k, self._mask)
            if block is None:
                return
            rows = np.isin(block.q_pos, list(self.positions))
            if rows.any():
                mask = block.mask[rows] if block.mask is not None else None
                self.blocks.append(
                    _Block(n, block.q_pos[rows], block.k_pos, block.kq[:, rows], mask)
                )
                self.blocks = self.blocks[-_KEPT_ROWS:]


def _block(
    n: int, value: Any, q_pos: np.ndarray, k_pos: np.ndarray | None, mask: np.ndarray | None
) -> _Block | None:
    """One ubatch's scores up to the last cell in use, as views; None for several streams."""
    kq = np.asarray(value)
    if kq.ndim != 3:
        return None
    n_q, n_kv = kq.shape[1:]
    if len(q_pos) < n_q:
        return None
    cells = np.arange(n_kv, dtype=np.int32) if k_pos is None else k_pos[:n_kv]
    used = np.flatnonzero(cells >= 0)
    keep = int(used[-1]) + 1 if used.size else n_kv
    part = None
    if mask is not None and mask.shape[-1] == n_kv:
        part = mask.reshape(-1, n_kv)[-n_q:, :keep]
    return _Block(n, q_pos[-n_q:], cells[:keep], kq[:, :, :keep], part)


def _kept(dbg: Any, layer: int) -> list[_Block]:
    """Blocks from what the recorder was asked to keep."""
    recorder, how = dbg.recorder, entering(dbg, layer)
    positions = {k.pass_: k.array.reshape(-1) for k in recorder.values("inp_pos")}
    masks = {k.pass_: k.array for k in recorder.values(how.mask)} if how.mask else {}
    soft = sorted(recorder.attention.get(layer, ()), key=lambda b: b.n)
    held = recorder.values(how.scores)
    out = []
    for kept, end in zip_longest(held, (k.n for k in held[1:])):
        # The softmax that follows tells which cell held what; before it, the cells as they are.
        after = next((b for b in soft if kept.n < b.n and (end is None or b.n < end)), None)
        k_pos = after.k_pos if after is not None else getattr(recorder.cells, "pos", None)
        q_pos = after.q_pos if after is not None else positions.get(kept.pass_)
        if q_pos is None or (after is None and end is not None):
            continue
        if how.mask and kept.pass_ not in masks:
            continue  # somebody else had the scores kept, without what is added to them
        block = _block(kept.n, kept.array, q_pos, k_pos, masks.get(kept.pass_))
        if block is not None:
            out.append(block)
    return out


def shown_stage(
    dbg: Any, layer: int, head: int, most: int, stage: str = "softmax", scores: Scores | None = None
) -> ShownStage:
    """One head's numbers at a stage between the `most` newest tokens that have a row.

    Parameters
    ----------
    dbg : Debugger
    scores : Scores, optional
        Holds what a replay has shown; without it only what the recorder kept is there.
    """
    if stage not in STAGES:
        raise LlmvizError(f"stage is {', '.join(map(repr, STAGES))}, not {stage!r}")
    recorder, how = getattr(dbg, "recorder", dbg), entering(dbg, layer)
    if stage == "softmax":
        soft = shown_attention(recorder, layer, head, most)
        sums = _sums(recorder.attention.get(layer, ()), head, [k.pos for k in soft.tokens])
        return ShownStage(
            stage, soft.tokens, soft.matrix, None, None, soft.total,
            sums if soft.matrix is not None else None, f"kq_soft_max-{layer}", None, how.sinks, (),
        )  # fmt: skip
    blocks = scores.blocks() if scores is not None else _kept(dbg, layer)
    last = max(
        recorder.last_query(layer),
        max((int(b.q_pos.max()) for b in blocks if b.q_pos.size), default=-1),
    )
    tokens = [k for k in recorder.tokens if k.pos <= last][-most:]
    raw, mask = _between(blocks, head, [k.pos for k in tokens])
    rows = ~np.isnan(raw).all(axis=1)
    gone = tuple(k.pos for k, there in zip(tokens, rows, strict=True) if not there)
    values: np.ndarray | None = raw if tokens else None
    node = how.scores
    if stage == "masked":
        node, values = _formula(how, head), None
        if tokens and how.scale is not None:
            # As the engine's softmax begins: a product and a sum in float32.
            values = raw * np.float32(how.scale)
            if how.mask:
                values = values + mask * _slope(dbg, layer, head, how)
    return ShownStage(
        stage, tokens, values, raw, mask, last + 1, None, node, how.scale, how.sinks, gone
    )


def _formula(how: Entering, head: int) -> str:
    text = how.scores if how.scale is None else f"{how.scores} * {how.scale:g}"
    if not how.mask:
        return text
    return f"{text} + {f'slope[{head}] * ' if how.max_bias > 0 else ''}{how.mask}"


def _slope(dbg: Any, layer: int, head: int, how: Entering) -> np.float32:
    """What a head multiplies the mask with: 1 without ALiBi."""
    if how.max_bias <= 0:
        return np.float32(1.0)
    n_head = dbg.model.hparams.n_head(layer)
    return np.float32(alibi_slopes(n_head, how.max_bias)[head])


def _between(
    blocks: Sequence[_Block], head: int, positions: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Scores and mask between positions, float32 [n, n] each; NaN where nothing is held."""
    where = {int(p): i for i, p in enumerate(positions)}
    raw, mask = (np.full((len(where), len(where)), np.nan, np.float32) for _ in range(2))
    for block in blocks:
        keys = [(j, where[int(p)]) for j, p in enumerate(block.k_pos) if int(p) in where]
        if not keys or not 0 <= head < len(block.kq):
            continue
        source, target = (np.array(x) for x in zip(*keys, strict=True))
        for i, q in enumerate(block.q_pos):
            row = where.get(int(q))
            if row is not None:
                raw[row, target] = block.kq[head, i, source]
                mask[row, target] = block.mask[i, source] if block.mask is not None else np.nan
    return raw, mask


def _sums(blocks: Any, head: int, positions: Sequence[int]) -> np.ndarray:
    """Sum of each position's softmax row over all keys, float64 [n]; NaN where it is not held."""
    where = {int(p): i for i, p in enumerate(positions)}
    out = np.full(len(where), np.nan)
    for block in blocks:
        if not 0 <= head < len(block.p):
            continue
        for i, q in enumerate(block.q_pos):
            if int(q) in where:
                out[where[int(q)]] = block.p[head, i].sum(dtype=np.float64)
    return out
