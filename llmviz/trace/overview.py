"""Every head of every layer as one number: how it looks from one token, or what kind of head it is.

Numbers come from the attention that the recorder holds. Where its budget made it drop layers, the
grid says so, and `Overview.fill` has the pass computed once more, silently, keeping only the sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from llmviz.events import Event
from llmviz.trace.head_scores import Pattern, first_token, induction, previous_token
from llmviz.trace.lookback import can_look_back, first_unfinished, look_back, pass_starts
from llmviz.trace.records import AttentionBlock, read_cells
from llmviz.trace.scores import cells_of

__all__ = ["DROPPED", "HELD", "MEASURES", "NONE", "NOT_YET", "Grid", "Overview"]

MEASURES = ("pair", "previous", "first", "induction")
"""``pair``: from one token to another; the others: averages over all tokens, see `head_scores`."""

HELD, NOT_YET, DROPPED, NONE = 0, 1, 2, 3
"""Of a layer: its numbers are there; it has not come so far; the recorder's budget made it go; it
has no attention."""

_SOFT_MAX = "kq_soft_max-"


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """The numbers of all heads.

    Attributes
    ----------
    values : float32 [n_layer, n_head]
        NaN where there is nothing to show.
    states : list of int
        Of each layer, see `HELD`.
    counts : list of int
        How many queries of each layer a measure is an average of.
    last : int
        The newest of them, -1 for none.
    """

    values: np.ndarray
    states: list[int]
    counts: list[int]
    last: int = -1


@dataclass(slots=True, eq=False)
class _Sum:
    """Of one layer and measure: what was added up so far, and from which blocks."""

    seen: list[int] = field(default_factory=list)
    total: Any = 0.0
    count: int = 0
    last: int = -1

    def add(self, p: np.ndarray, pattern: Pattern, q_pos: np.ndarray) -> None:
        self.total = self.total + pattern.total(p)
        self.count += int(pattern.queries.sum())
        self.last = max(self.last, int(q_pos.max(initial=-1)))


@dataclass(slots=True, eq=False)
class _Filled:
    """What a replay has left: sums by layer and measure, and one query's rows by layer."""

    run: Any
    n: int
    query: int
    sums: dict[tuple[int, str], _Sum]
    rows: dict[int, tuple[np.ndarray, np.ndarray]]
    whole: bool


class Overview:
    """The grid of one debugger.

    Parameters
    ----------
    dbg : Debugger
    """

    def __init__(self, dbg: Any) -> None:
        self.dbg = dbg
        self._sums: dict[tuple[int, str], _Sum] = {}
        self._filled: _Filled | None = None

    # -- what there is ---------------------------------------------------------------------------

    def grid(self, measure: str, query: int, key: int, n_layer: int) -> Grid:
        """All heads' numbers.

        Parameters
        ----------
        measure : str
            One of `MEASURES`.
        query, key : int
            Positions, of ``pair``; key -1: the largest weight on any token but the first, which
            heads look at that have nothing to say.
        n_layer : int
        """
        blocks = self.dbg.recorder.attention
        filled = self._still_true()
        n_head = max((held[-1].p.shape[0] for held in blocks.values() if held), default=0)
        if filled is not None:
            n_head = max((n_head, *(row.shape[0] for row, _ in filled.rows.values())))
        out = np.full((n_layer, n_head), np.nan, np.float32)
        states, counts = [NONE] * n_layer, [0] * n_layer
        reached, with_attention = self._reached(query), self._with_attention()
        last = -1
        for il in range(n_layer):
            held = blocks.get(il, ())
            if measure == "pair":
                row = self._row(held, il, query, filled)
                line = None if row is None else _looks(*row, query, key)
                if line is not None:
                    out[il, : len(line)] = line
                there = row is not None
            else:
                done = self._sum(il, measure, held)
                if filled is not None and (il, measure) in filled.sums:
                    done = filled.sums[il, measure]
                if done.count:
                    out[il, : len(done.total)] = done.total / done.count
                    counts[il], last = done.count, max(last, done.last)
                there = done.last >= 0
            if there:
                states[il] = HELD
            elif with_attention is None or il in with_attention:
                states[il] = NOT_YET if il >= reached else DROPPED
        return Grid(out, states, counts, last)

    def _row(
        self, held: Sequence[AttentionBlock], il: int, query: int, filled: _Filled | None
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """One query's weights in a layer, [n_head, n_k], and the position of each key."""
        block = next((b for b in reversed(held) if query in b.q_pos), None)
        if block is not None:
            return block.p[:, int(np.flatnonzero(block.q_pos == query)[0])], block.k_pos
        if filled is not None and filled.query == query:
            return filled.rows.get(il)
        return None

    def _sum(self, il: int, measure: str, held: Sequence[AttentionBlock]) -> _Sum:
        """A measure over all blocks that are held of a layer; only new ones are added."""
        names = [b.n for b in held]
        done = self._sums.get((il, measure))
        if done is None or names[: len(done.seen)] != done.seen:
            done = self._sums[il, measure] = _Sum()
        for block in list(held)[len(done.seen) :]:
            done.add(block.p, self._pattern(measure, block.q_pos, block.k_pos), block.q_pos)
            done.seen.append(block.n)
        return done

    def _pattern(self, measure: str, q_pos: np.ndarray, k_pos: np.ndarray) -> Pattern:
        if measure == "previous":
            return previous_token(q_pos, k_pos)
        if measure == "first":
            return first_token(q_pos, k_pos)
        ids = [k.id for k in self.dbg.recorder.tokens]
        known = max(int(q_pos.max(initial=-1)), len(ids) - 1) + 1
        # A position whose token nobody knows repeats none.
        return induction(q_pos, k_pos, ids + list(range(-known, -len(ids))))

    # -- how far the run has come ------------------------------------------------------------------

    def _reached(self, query: int) -> int:
        """The first layer that has not been computed for a query; past all of them if it all was.

        Only a pass that is under way can lack layers.
        """
        scope = next((s for s in self.dbg.scope_stack if s.name == "process_ubatch"), None)
        if scope is None:
            return 1 << 30
        held = [b for blocks in self.dbg.recorder.attention.values() for b in blocks]
        if not any(b.n > scope.n and query in b.q_pos for b in held):
            return 1 << 30  # of an earlier pass
        layer = first_unfinished(self.dbg)
        return 1 << 30 if layer is None else layer

    def _with_attention(self) -> set[int] | None:
        """Layers whose graph has a softmax; None where there is no graph to look at."""
        graph = getattr(getattr(getattr(self.dbg, "ctx", None), "graph", None), "gf", None)
        if graph is None:
            return None
        names = (t.name for t in graph.nodes)
        return {int(n[len(_SOFT_MAX) :]) for n in names if n.startswith(_SOFT_MAX)}

    # -- filling what was dropped ------------------------------------------------------------------

    @property
    def can_fill(self) -> bool:
        """Whether what was dropped can be computed again."""
        return can_look_back(self.dbg)

    def fill(self, measure: str, query: int) -> None:
        """See every layer's attention once more, in a silent replay, and keep rows and sums.

        For ``pair`` from the query's pass on, for the others from the first pass on.

        Raises
        ------
        DebuggerError
            The run cannot go back.
        """
        starts = pass_starts(self.dbg) or [0]
        first = starts[0]
        if measure == "pair":
            blocks = [b for held in self.dbg.recorder.attention.values() for b in held]
            n = max((b.n for b in blocks if query in b.q_pos), default=0)
            first = max((s for s in starts if s <= n), default=first)
        filled = _Filled(self._run(), self.dbg.n, query, {}, {}, measure != "pair")
        visitor = _Visitor(self, filled)
        look_back(self.dbg, first, lambda name: name.startswith(_SOFT_MAX), visitor.see)
        self._filled = filled

    def _run(self) -> Any:
        edits = tuple(e.id for e in self.dbg.edits)
        return id(self.dbg.recorder), self.dbg.branch.name, edits

    def _still_true(self) -> _Filled | None:
        """What was filled, as long as no new query has come and nothing was changed."""
        filled = self._filled
        if filled is None:
            return None
        newer = [r for r in pass_starts(self.dbg) if r > filled.n]
        if newer or self.dbg.n < filled.n or filled.run != self._run():
            self._filled = None
        return self._filled


def _looks(p: np.ndarray, k_pos: np.ndarray, query: int, key: int) -> np.ndarray | None:
    """Largest weight of each head on the keys that are meant; float32 [n_head]."""
    if key >= 0:
        seen = k_pos == key if key <= query else k_pos < -1
    else:
        seen = (k_pos > 0) & (k_pos <= query)
    return p[:, seen].max(axis=1) if seen.any() else None


class _Visitor:
    """Adds up what a replay shows."""

    def __init__(self, overview: Overview, filled: _Filled) -> None:
        self.overview, self.filled = overview, filled
        self._q: np.ndarray | None = None
        self._k: dict[str, np.ndarray] = {}

    def see(self, event: Event, n: int) -> None:
        """Look at one event."""
        if event.name == "process_ubatch" and event.kind == "enter":
            self._q = np.array(event.value.pos, np.int32).reshape(-1)
        elif event.name in ("kv_cells", "kv_cells_swa") and event.kind == "data":
            self._k[event.name] = read_cells(event.value)[0]
        elif event.kind == "node" and event.name.startswith(_SOFT_MAX) and self._q is not None:
            self._add(int(event.name[len(_SOFT_MAX) :]), np.asarray(event.value))

    def _add(self, il: int, p: np.ndarray) -> None:
        if p.ndim != 3 or self._q is None or len(self._q) < p.shape[1]:
            return
        n_kv = p.shape[2]
        q_pos = self._q[-p.shape[1] :]
        cells = self._k.get(cells_of(self.overview.dbg, il))
        k_pos = cells[:n_kv] if cells is not None else np.arange(n_kv, dtype=np.int32)
        if self.filled.query in q_pos:
            row = p[:, int(np.flatnonzero(q_pos == self.filled.query)[0])]
            self.filled.rows[il] = np.array(row, np.float32), k_pos
        if self.filled.whole:
            for measure in MEASURES[1:]:
                done = self.filled.sums.setdefault((il, measure), _Sum())
                done.add(p, self.overview._pattern(measure, q_pos, k_pos), q_pos)
