"""The pass as it stands: rows of tokens, columns of nodes, and what was computed for each so far.

`Flow` reads a debugger and its recorder; it computes no number of the model. Views and figures
draw from it. What it needs is asked of the recorder by name, and only that.

Reading order: `flow_graph` (columns and edges), `flow_wanted`, `flow_strips`, `flow_numbers`, this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from llmviz.trace.flow_graph import Column, Layout, lay_out, layer_of, stem
from llmviz.trace.flow_numbers import Numbers, head_first
from llmviz.trace.flow_plan import Plan
from llmviz.trace.flow_strips import (
    ABSENT,
    EARLIER,
    NOW,
    Strip,
    bins_of,
    edges_of,
    ends,
    strongest,
)
from llmviz.trace.flow_wanted import Wanted, every_layer

__all__ = [
    "ABSENT",
    "EARLIER",
    "NOW",
    "SHOWN",
    "Flow",
    "Row",
    "Strip",
    "bins_of",
    "edges_of",
    "ends",
    "every_layer",
    "head_first",
    "strongest",
]

SHOWN = 40
"""Rows that are still legible."""


@dataclass(frozen=True, slots=True)
class Row:
    """One token. `state`: "now" (in this pass), "cached" (of an earlier one), "next" (chosen)."""

    pos: int
    id: int
    text: str
    state: str


class Flow(Numbers):
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
    source : str
        Where the columns come from: "graph" of the run or its model, "file" (only its header is
        known yet), or "" where there are none.
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
        self._plan: Plan | None = None
        self.source = "graph"

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
        known = int(getattr(hparams, "n_layer", 0) or 0)
        return known or (self._plan.n_layer if self._plan is not None else 0)

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
        hparams = getattr(getattr(self.dbg, "model", None), "hparams", None)
        parts = getattr(hparams, "n_pos_per_embd", 1)  # with M-RoPE the input holds four of them
        for kept in list(recorder.ubatches)[-passes:]:
            self._positions[kept.pass_] = (kept.array, np.arange(kept.array.size))
        for kept in recorder.values("inp_pos")[-passes:]:
            pos = kept.array.reshape(parts, -1)[0]
            self._positions[kept.pass_] = (pos, np.arange(pos.size))
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
        if graph is None:
            self._lay_out_plan()
            return
        key = (id(graph), self.layer)
        if self._laid_out is not None and self._laid_out[0] == key:
            return
        self.layout = lay_out(graph.nodes, self.layer, self.n_layer)
        self.source = "graph"
        self._laid_out = (key, graph)
        self._strips.clear()

    def _lay_out_plan(self) -> None:
        """Before there is a graph: what the model or its file says will be computed."""
        if self._plan is None:
            self._plan = Plan(self.dbg)
        layout = self._plan.layout(self.layer)
        if layout is not self.layout:
            self.layout, self.source = layout, self._plan.source
            self._laid_out = None
            self._strips.clear()

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
        witness = self._input_set()
        kept = self.dbg.recorder.value(witness) if witness else None
        if kept is None or kept.pass_ != self.dbg.recorder.passes - 1:
            return [witness] if witness else []
        here = self.dbg.here
        past = self.now() + (here is not None and here.kind == "node")
        passed = self.columns[: max(past, self.reached(), 0)]
        return [c.id for c in passed if not self.done(c)]

    def _input_set(self) -> str:
        """An input that every pass has and that was set in this one, empty before."""
        found = ""
        for record in reversed(self.dbg.events):
            if record.name == "process_ubatch" and record.kind == "enter":
                break
            if record.name == "inp_pos":
                return "inp_pos"
            if record.name == "attn_inp_kq_mask":  # the only one with ALiBi
                found = record.name
        return found

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


def can_go_back(dbg: Any) -> bool:
    """Whether earlier events of a run can be computed again."""
    return dbg.ctx is not None and hasattr(dbg, "peek") and dbg.can_restart


def graph_of(dbg: Any) -> Any:
    """The graph that the run's context has built last, None before it has built one."""
    return getattr(getattr(dbg.ctx, "graph", None), "gf", None)
