"""The pass as it stands: rows of tokens, columns of nodes, and what was computed for each so far.

`Flow` reads a debugger and its recorder; it computes no number of the model. Views and figures
draw from it. What it needs is asked of the recorder by name, and only that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from llmviz.trace.flow_graph import Column, Layout, lay_out, layer_of, stem

__all__ = ["ABSENT", "EARLIER", "NOW", "SHOWN", "Flow", "Row", "Strip", "every_layer", "head_first"]

SHOWN = 40
"""Rows that are still legible."""

ABSENT, NOW, EARLIER = 0, 1, 2
"""Whether a row of a strip was not computed, computed in this pass, or in an earlier one."""

_INPUTS = frozenset({"inp_pos", "out_ids", "attn_inp_kq_mask"})
_OUTSIDE = frozenset({"embd", "result_norm", "result_output"})
_SATURATE, _TYPICAL = 0.97, 4.0  # see `ends`


@dataclass(frozen=True, slots=True)
class Row:
    """One token. `state`: "now" (in this pass), "cached" (of an earlier one), "next" (chosen)."""

    pos: int
    id: int
    text: str
    state: str


@dataclass(frozen=True, slots=True)
class Strip:
    """A column's numbers, one line per row, reduced to `bins` values each.

    Attributes
    ----------
    state : uint8 [rows]
        ABSENT, NOW or EARLIER.
    bins : float32 [rows, bins]
        The value of the largest size of each group of neighbours, with its sign.
    high : float32 [rows]
        Where each line's colours end, see `ends`.
    n : int
        Event number of the newest part, -1 for none.
    """

    state: np.ndarray
    bins: np.ndarray
    high: np.ndarray
    n: int


def every_layer(name: str) -> bool:
    """Whether a flow of any layer shows a node: what to ask a recorder to keep for all of them."""
    if name in _OUTSIDE or name in _INPUTS:
        return True
    return layer_of(name) >= 0 and " (" not in name and stem(name) != "norm"


class Wanted:
    """Which nodes the recorder keeps for one view; holds no reference to the view.

    `cache` adds the layer's windows on the KV cache, for tokens that were decoded before anybody
    asked for their keys and values.
    """

    def __init__(self, layer: int, cache: bool = False) -> None:
        self.layer, self.cache = layer, cache

    def __call__(self, name: str) -> bool:
        base = stem(name)
        if name in _OUTSIDE or name in _INPUTS or base == "l_out":
            return True
        if self.cache and name in cache_names(self.layer):
            return True
        return layer_of(name) == self.layer and " (" not in name and base != "norm"


def cache_names(layer: int) -> tuple[str, str]:
    """The nodes that read a layer's keys and values from the cache."""
    return f"cache_k_l{layer} (view)", f"cache_v_l{layer} (view)"


class Flow:
    """The pass that a debugger stands in.

    Parameters
    ----------
    dbg : Debugger
    layer, head : int
        The open layer, and the head that is shown of it.

    Attributes
    ----------
    rows : list of Row
        A window: the last `SHOWN` tokens.
    n_tokens : int
        All tokens of the text.
    columns, edges
        See `flow_graph.Layout`.
    """

    def __init__(self, dbg: Any, layer: int = 0, head: int = 0) -> None:
        self.dbg = dbg
        self.layer, self.head = layer, head
        self.rows: list[Row] = []
        self.n_tokens = 0
        self.layout = Layout()
        self.wanted = Wanted(layer)
        self._laid_out: Any = None
        self._strips: dict[str, tuple[Any, Strip]] = {}
        self._positions: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._asked: Any = None  # the recorder; a restart begins with a new one

    def close(self) -> None:
        """Ask the recorder for nothing any more."""
        if self._asked is not None:
            self._asked.release(self.wanted)

    # -- what there is -------------------------------------------------------------------------

    @property
    def columns(self) -> list[Column]:
        return self.layout.columns

    @property
    def edges(self) -> list[tuple[int, int]]:
        return self.layout.edges

    @property
    def n_layer(self) -> int:
        hparams = getattr(self.dbg.model, "hparams", None)
        return int(getattr(hparams, "n_layer", 0) or 0)

    @property
    def n_head(self) -> int:
        """Query heads of the open layer."""
        return max((c.heads for c in self.columns if c.kind == "matrix"), default=0)

    @property
    def n_head_kv(self) -> int:
        """Heads of its keys; several query heads share one of them."""
        return next((c.heads for c in self.columns if stem(c.id) == "Kcur"), 0)

    def update(self, passes: int = 2 * SHOWN) -> None:
        """Bring rows and columns in line with the run, with the positions of its last passes."""
        recorder = self.dbg.recorder
        if self.wanted.layer != self.layer or recorder is not self._asked:
            self._ask(cache=False)
        self._lay_out()
        self._positions = {}
        for kept in recorder.values("inp_pos")[-passes:]:
            self._positions[kept.pass_] = (kept.array.reshape(-1), np.arange(kept.array.size))
        for kept in recorder.values("out_ids")[-passes:]:
            if kept.pass_ in self._positions:
                pos = self._positions[kept.pass_][0]
                self._positions[kept.pass_] = (pos, kept.array.reshape(-1))
        now = set(self._positions[self.pass_][0].tolist()) if self.pass_ in self._positions else ()
        tokens = self.dbg.tokens
        self.n_tokens = len(tokens)
        newest = max(now, default=-1)
        self.rows = [
            Row(
                k.pos,
                k.id,
                k.text[:60],
                "now" if k.pos in now else "cached" if k.pos < newest else "next",
            )
            for k in tokens[-SHOWN:]
        ]
        if not now:
            self.rows = [Row(r.pos, r.id, r.text, "now") for r in self.rows]

    def _ask(self, cache: bool) -> None:
        self.wanted.layer, self.wanted.cache = self.layer, cache
        self._asked = self.dbg.recorder
        self._asked.ask(self.wanted, self.wanted)  # anew: its answers are remembered there

    def _lay_out(self) -> None:
        graph = graph_of(self.dbg)
        key = (id(graph), self.layer)
        if graph is None or (self._laid_out is not None and self._laid_out[0] == key):
            return
        self.layout = lay_out(graph.nodes, self.layer, self.n_layer)
        self._laid_out = (key, graph)
        self._strips.clear()

    @property
    def pass_(self) -> int:
        """Number of the pass that the run stands in, or of the last one."""
        kept = self.dbg.recorder.value("inp_pos")
        return kept.pass_ if kept is not None else -1

    # -- how far it has come -------------------------------------------------------------------

    def done(self, column: Column) -> bool:
        """Whether a column was computed in this pass."""
        kept = self.dbg.recorder.value(column.id)
        return kept is not None and kept.pass_ == self.pass_

    def reached(self) -> int:
        """Index of the last column that this pass has computed, -1 before the first."""
        return max((i for i, c in enumerate(self.columns) if self.done(c)), default=-1)

    def missing(self) -> list[str]:
        """Names that this pass went by without their being kept: nobody had asked for them then."""
        if not can_go_back(self.dbg):
            return []
        if self.pass_ != self.dbg.recorder.passes - 1:
            return ["inp_pos"] if self._inputs_are_set() else []
        here = self.dbg.here
        past = self.now() + (here is not None and here.kind == "node")
        passed = self.columns[: max(past, self.reached())]
        return [c.id for c in passed if not self.done(c)]

    def _inputs_are_set(self) -> bool:
        for record in reversed(self.dbg.events):
            if record.name == "process_ubatch" and record.kind == "enter":
                return False
            if record.name == "inp_pos":
                return True
        return False

    def fetch_seconds(self) -> float:
        """How long `fetch` will take: as long as this pass has computed so far."""
        points = self.dbg.points
        if not points or points[-1].clock is None:
            return 0.0
        spent: float = self.dbg.seconds.get(13, 0.0) - points[-1].clock.seconds.get(13, 0.0)
        return max(0.0, spent)

    def fetch(self) -> None:
        """Have what is missing computed again, silently, from the pass's beginning to here."""
        gaps = self.missing()
        if gaps:  # one replay shows the recorder everything that was asked for
            self._ask(cache=self.dbg.recorder.passes > 1)
            self.dbg.peek(gaps[0])

    def now(self) -> int:
        """Index of the column that is being computed at this event, -1 outside of the graph."""
        here = self.dbg.here
        if here is None:
            return -1
        if here.kind == "node":
            i = self.layout.owner.get(id(here.about), -1)
            return i if i >= 0 else self.layout.index(here.name)
        il = layer_of(here.name) if here.name.startswith("layer-") else -1
        if il == self.layer and here.kind == "enter":
            return next((i for i, c in enumerate(self.columns) if c.layer == il), -1)
        return self.layout.index(f"l_out-{il}") if il >= 0 else -1

    def phase(self) -> str:
        """What the run is at: "load", "prompt", "pass", "logits", "sample", "accept" or ""."""
        here = self.dbg.here
        if here is None:
            return ""
        step = here.step
        for last, name in (
            (7, "load"),
            (12, "prompt"),
            (13, "pass"),
            (14, "logits"),
            (15, "sample"),
        ):
            if step <= last:
                return name
        return "accept"

    # -- numbers -------------------------------------------------------------------------------

    def array(self, column: Column, pos: int) -> tuple[np.ndarray, str, int] | None:
        """One token's values of a column, as the engine computed them.

        Returns
        -------
        (ndarray [n], str, int), or None
            The values, and their place in the node that holds them: ``"kq-3[2,4,{}]"``, to be
            filled in with the index of a value; the number of the pass.
        """
        head = self.head_of(column)
        for kept in reversed(self.dbg.recorder.values(column.id)):
            hit = np.flatnonzero(self._pos_of(kept, column) == pos)
            if hit.size:
                row = int(hit[0])
                place = f"{row}"
                if column.kind != "vector":
                    place = f"{head},{row}" if head_first(column) else f"{row},{head}"
                return (
                    self._lines(kept.array, column)[row],
                    f"{column.id}[{place},{{}}]",
                    kept.pass_,
                )
        window = self._cache_window(column)
        cells = self._cell_of() if window is not None else {}
        if window is None or pos not in cells:
            return None
        cell, (name, lines, by_value) = cells[pos], window
        place = f"{{}},{head},{cell}" if by_value else f"{cell},{head},{{}}"
        return lines[cell], f"{name}[{place}]", self.pass_

    def _cache_window(self, column: Column) -> tuple[str, np.ndarray, bool] | None:
        """The cache's keys or values of the chosen head as [n_cells, n], with the node's name.

        The last is whether the node holds them value by value (transposed).
        """
        which = {"Kcur": 0, "Vcur": 1}.get(stem(column.id))
        if which is None:
            return None
        name = cache_names(self.layer)[which]
        kept = self.dbg.recorder.value(name)
        if kept is None or kept.pass_ != self.pass_ or kept.array.shape[1] != column.heads:
            return None
        head = self.head_of(column)
        by_value = which == 1 and kept.array.shape[0] == column.n
        part = kept.array[:, head]
        return name, (part.T if by_value else part), by_value

    def _pos_of(self, kept: Any, column: Column) -> np.ndarray:
        """Position of each token in a kept array, int [n_tokens]; empty where that is not known."""
        known = self._positions.get(kept.pass_)
        if known is None:
            return np.empty(0, np.int32)
        positions, out_ids = known
        count = _count(column, kept.array)
        if count == len(positions):
            return positions
        # after the last attention only the rows whose logits are wanted go on
        return positions[out_ids] if count == len(out_ids) else np.empty(0, np.int32)

    def _lines(self, array: np.ndarray, column: Column) -> np.ndarray:
        """A kept array as [n_tokens, n]: the chosen head's part where there are heads. A view."""
        if column.kind == "vector":
            return array.reshape(-1, array.shape[-1])
        head = self.head_of(column)
        if head_first(column):
            return array[head]
        if array.ndim == 2:  # before its reshape
            array = array.reshape(array.shape[0], column.heads, -1)
        return array[:, head]

    def head_of(self, column: Column) -> int:
        """The head of a column that the chosen query head uses (shared keys have fewer)."""
        if not column.heads or not self.n_head:
            return 0
        return min(self.head, self.n_head - 1) * column.heads // self.n_head

    def strip(self, column: Column, bins: int) -> Strip:
        """A column's rows as short lines of values, from what the recorder holds."""
        held = self.dbg.recorder.values(column.id)
        window = self._cache_window(column)
        key = (
            tuple(k.n for k in held),
            window is not None,
            self.pass_,
            bins,
            self.head if column.heads else 0,
            tuple(r.pos for r in self.rows),
        )
        known = self._strips.get(column.id)
        if known is not None and known[0] == key:
            return known[1]
        count = bins_of(column.n, bins)
        state = np.zeros(len(self.rows), np.uint8)
        lines = np.zeros((len(self.rows), count), np.float32)
        for rows, values, pass_ in self._parts(column):
            lines[rows] = strongest(values, count)
            state[rows] = NOW if pass_ == self.pass_ else EARLIER
        strip = Strip(state, lines, ends(lines), held[-1].n if held else -1)
        self._strips[column.id] = (key, strip)
        return strip

    def _parts(self, column: Column) -> Iterator[tuple[list[int], np.ndarray, int]]:
        """What is held for the rows: (row indices, values [rows, n], pass), the newest first."""
        where = {r.pos: i for i, r in enumerate(self.rows) if r.state != "next"}
        for kept in reversed(self.dbg.recorder.values(column.id)):
            if not where:
                return
            hits = [
                (i, where.pop(int(p)))
                for i, p in enumerate(self._pos_of(kept, column))
                if int(p) in where
            ]
            if hits:
                yield (
                    [row for _, row in hits],
                    self._lines(kept.array, column)[[i for i, _ in hits]],
                    kept.pass_,
                )
        window = self._cache_window(column) if where else None
        if window is not None:
            cells = self._cell_of()
            found = [(row, cells[p]) for p, row in where.items() if p in cells]
            if found:
                yield [r for r, _ in found], window[1][[c for _, c in found]], -1

    def held(self, column: Column) -> Iterator[tuple[np.ndarray, np.ndarray, int, int]]:
        """All that is held of a column, the oldest first.

        Positions [rows], values [rows, n] of the chosen head, number of the pass, event number.
        """
        for kept in self.dbg.recorder.values(column.id):
            positions = self._pos_of(kept, column)
            if positions.size:
                yield positions, self._lines(kept.array, column), kept.pass_, kept.n

    def _cell_of(self) -> dict[int, int]:
        """The cell of the cache that each position lies in."""
        cells = self.dbg.recorder.cells
        if cells is None:
            return {}
        return {int(p): i for i, p in reversed(list(enumerate(cells.pos))) if p >= 0}

    def cells(self) -> np.ndarray:
        """Which cell of the cache each row's token lies in, int [rows]; -1 where it has none."""
        where = self._cell_of()
        return np.array([where.get(r.pos, -1) for r in self.rows], np.int64)

    def matrix(self, column: Column) -> np.ndarray:
        """A matrix column between the rows' tokens, float32 [rows, rows]; NaN: not computed."""
        out = np.full((len(self.rows), len(self.rows)), np.nan, np.float32)
        cells = self.cells()
        for rows, values, _ in self._parts(column):
            ok = np.flatnonzero((cells >= 0) & (cells < values.shape[1]))
            out[np.array(rows)[:, None], ok] = values[:, cells[ok]]
        return out

    def mask(self) -> np.ndarray:
        """What the softmax adds to each score first, float32 [rows, rows]; NaN: not known."""
        out = np.full((len(self.rows), len(self.rows)), np.nan, np.float32)
        cells = self.cells()
        held = self.dbg.recorder.values("attn_inp_kq_mask")
        for i, row in enumerate(self.rows):
            for kept in reversed(held):
                known = self._positions.get(kept.pass_)
                hit = np.flatnonzero(known[0] == row.pos) if known is not None else np.empty(0)
                if hit.size:
                    line = kept.array.reshape(-1, kept.array.shape[-1])[int(hit[0])]
                    ok = (cells >= 0) & (cells < len(line))
                    out[i, ok] = line[cells[ok]]
                    break
        return out


def can_go_back(dbg: Any) -> bool:
    """Whether earlier events of a run can be computed again."""
    return dbg.ctx is not None and hasattr(dbg, "peek") and dbg.can_restart


def graph_of(dbg: Any) -> Any:
    """The graph that the run's context has built last, None before it has built one."""
    return getattr(getattr(dbg.ctx, "graph", None), "gf", None)


def head_first(column: Column) -> bool:
    """Whether a node has its heads before its tokens."""
    return column.kind == "matrix" or stem(column.id) == "kqv"


def _count(column: Column, array: np.ndarray) -> int:
    """How many tokens a kept array has."""
    if array.ndim < 2:
        return 1
    return array.shape[1] if head_first(column) and array.ndim == 3 else array.shape[0]


def bins_of(n: int, most: int) -> int:
    """How many bins show n values in at most `most`: a divisor of n where one is near."""
    if n <= most:
        return max(n, 1)
    even = [b for b in range(most, most // 2, -1) if n % b == 0]
    return even[0] if even else most


def strongest(x: np.ndarray, bins: int) -> np.ndarray:
    """The value of the largest size in each of `bins` groups of neighbours; NaN wins.

    float [rows, n] -> float32 [rows, bins]
    """
    n = x.shape[1]
    if bins >= n:
        return x.astype(np.float32)
    size = np.where(np.isnan(x), np.inf, np.abs(x))
    if n % bins == 0:
        groups = size.reshape(len(x), bins, n // bins)
        at = groups.argmax(2) + np.arange(bins) * (n // bins)
    else:
        edges = edges_of(n, bins)
        at = np.stack([a + size[:, a:b].argmax(1) for a, b in pairwise(edges)], 1)
    return np.take_along_axis(x, at, 1).astype(np.float32)


def ends(lines: np.ndarray) -> np.ndarray:
    """Where the colours of each line end, so that a few outliers do not leave the rest pale.

    float32 [rows, bins] -> float32 [rows]: near the line's largest size, but at most four times its
    median.
    """
    if not lines.size:
        return np.zeros(len(lines), np.float32)
    size = np.where(np.isfinite(lines), np.abs(lines), 0)
    high = np.quantile(size, _SATURATE, axis=1)
    usual = np.median(size, axis=1) * _TYPICAL
    return np.where(usual > 0, np.minimum(high, usual), high).astype(np.float32)


def edges_of(n: int, bins: int) -> Sequence[int]:
    """Where each of `bins` groups of n values begins, and where the last one ends."""
    return [i * n // bins for i in range(bins + 1)]
