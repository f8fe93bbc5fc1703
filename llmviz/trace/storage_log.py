"""What a trace file tells of a whole run, noted as the run passes: light, and in columns.

The recorder keeps the latest cells, logits and statistics; `RunLog` keeps those of every pass: some
16 bytes for an event, 64 for a node's statistics, the cells that changed, ten logits, what each
sampler left. Values of tensors are the recorder's. Going back forgets what the recorder forgets.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from llmviz.trace.breaking import Breaking
from llmviz.trace.flow import every_layer
from llmviz.trace.pages import Paged
from llmviz.trace.records import Alternative, CellsRecord
from llmviz.trace.samplings import SamplerRow, Samplings
from llmviz.trace.summary import Statistics
from llmviz.trace.timeline import Here

__all__ = [
    "KINDS",
    "CellsChange",
    "Logged",
    "LogitsRow",
    "Names",
    "RunLog",
    "changed",
]

KINDS = ("enter", "exit", "node", "data")
MOST_EVENTS = 2_000_000
MOST_STATISTICS = 1_000_000


class Names:
    """Numbers for things that come again and again.

    Attributes
    ----------
    all : list
        In the order in which they were met.
    """

    def __init__(self) -> None:
        self.all: list[Any] = []
        self._number: dict[Hashable, int] = {}

    def __call__(self, thing: Hashable) -> int:
        number = self._number.get(thing)
        if number is None:
            number = self._number[thing] = len(self.all)
            self.all.append(thing)
        return number


@dataclass(frozen=True, slots=True, eq=False)
class CellsChange:
    """Cells of the KV cache that differ from how they were before.

    Attributes
    ----------
    n : int
        Event number.
    n_cells, n_seq : int
        How many cells and sequences there are in all.
    cell, pos, tok : ndarray int32 [n_changed]
    seq : ndarray bool [n_seq, n_changed]
    """

    n: int
    n_cells: int
    n_seq: int
    cell: np.ndarray
    pos: np.ndarray
    tok: np.ndarray
    seq: np.ndarray

    def after(self, before: CellsRecord | None) -> CellsRecord:
        """The cells as they are with this change."""
        if before is None or before.seq.shape != (self.n_seq, self.n_cells):
            pos = np.full(self.n_cells, -1, np.int32)
            tok = np.full(self.n_cells, -1, np.int32)
            seq = np.zeros((self.n_seq, self.n_cells), bool)
            fresh = self.cell[self.pos >= 0]
        else:
            pos, tok, seq = before.pos.copy(), before.tok.copy(), before.seq.copy()
            fresh = self.cell[(pos[self.cell] != self.pos) & (self.pos >= 0)]
        pos[self.cell], tok[self.cell], seq[:, self.cell] = self.pos, self.tok, self.seq
        return CellsRecord(pos, tok, seq, frozenset(fresh.tolist()), self.n)


def changed(before: CellsRecord | None, now: CellsRecord) -> CellsChange:
    """What is new in `now`; against an empty cache where there was none, or of another size."""
    n_seq, n_cells = now.seq.shape
    if before is None or before.seq.shape != now.seq.shape:
        new = (now.pos != -1) | (now.tok != -1) | now.seq.any(axis=0)
    else:
        new = (now.pos != before.pos) | (now.tok != before.tok)
        new |= (now.seq != before.seq).any(axis=0)
    cell = np.flatnonzero(new).astype(np.int32)
    return CellsChange(now.n, n_cells, n_seq, cell, now.pos[cell], now.tok[cell], now.seq[:, cell])


@dataclass(frozen=True, slots=True, eq=False)
class LogitsRow:
    """The likeliest tokens of one pass; `row` is float32 [n_vocab] where all logits were asked for.

    `top` is as before the chain has run.
    """

    n: int
    n_vocab: int
    top: tuple[Alternative, ...]
    row: np.ndarray | None = None


@dataclass
class Columns:
    """Rows of numbers in columns, ordered by the first one, the number of the event."""

    types: str  # typecodes of `array`
    columns: list[array] = field(init=False)

    def __post_init__(self) -> None:
        self.columns = [array(code) for code in self.types]

    def __len__(self) -> int:
        return len(self.columns[0])

    def add(self, *row: Any) -> None:
        """Append a row."""
        for column, x in zip(self.columns, row):
            column.append(x)

    def forget(self, last: int) -> None:
        """Drop the rows of events after number `last`."""
        keep = bisect_right(self.columns[0], last)
        for column in self.columns:
            del column[keep:]

    def arrays(self) -> list[np.ndarray]:
        """The columns as copies."""
        return [np.array(c, dtype=c.typecode) for c in self.columns]


class RunLog:
    """The light log of one run's current branch; see the module's docstring.

    Parameters
    ----------
    keep_logits : bool
        Whether all logits of every pass are kept, not only the ten largest: 4 bytes for each token
        of the vocabulary and pass. Settable while the run goes on.

    Attributes
    ----------
    events : Columns
        n, name, kind, step, depth, shape; name and shape are numbers of `names` and `shapes`.
    statistics : Columns
        n, name, count, nan, inf, min, max, mean, std.
    cells, logits, samplers : list
        Of `CellsChange`, `LogitsRow` and `SamplerRow`, in the order of events.
    lost : int
        Rows that were not kept because there were too many.
    """

    def __init__(self, *, keep_logits: bool = False) -> None:
        self.keep_logits = keep_logits
        self.names = Names()
        self.shapes = Names()
        self.events = Columns("iiBBBi")
        self.statistics = Columns("iiqqqdddd")
        self.cells: list[CellsChange] = []
        self.logits: list[LogitsRow] = []
        self.samplers: list[SamplerRow] = []
        self._samplings = Samplings()
        self.lost = 0
        self._last = -1
        self._measured: dict[str, Statistics | None] = {}
        self._cells: CellsRecord | None = None

    def see(self, here: Here, recorder: Any) -> None:
        """Note an event that the recorder has just seen."""
        n, event = here.n, here.event
        if n <= self._last:  # a replay: it was noted when it came first
            return
        self._last = n
        if len(self.events) >= MOST_EVENTS:
            self.lost += 1
        else:
            shape = -1 if here.shape is None else self.shapes((here.shape, here.dtype or ""))
            name = self.names(event.name)
            kind = KINDS.index(event.kind)
            self.events.add(n, name, kind, event.step, min(event.depth, 255), shape)
        if event.kind == "node":
            self._see_statistics(event.name, n, recorder)
        elif event.kind == "data":
            if event.step == 14 and event.name == "logits":
                row = recorder.logits if self.keep_logits else None
                self.logits.append(LogitsRow(n, len(recorder.logits), recorder.top, row))
            elif event.step == 15 and hasattr(event.value, "p"):
                self.samplers.append(self._samplings.row(event, n))
        if recorder.cells is not self._cells and recorder.cells is not None:
            now = recorder.cells
            self.cells.append(changed(self._cells, now))
            self._cells = now

    def _see_statistics(self, name: str, n: int, recorder: Any) -> None:
        s = recorder.stats(name)
        if s is None or s is self._measured.get(name):
            return  # this node was not measured
        self._measured[name] = s
        if len(self.statistics) >= MOST_STATISTICS:
            self.lost += 1
            return
        rest = (np.nan if x is None else x for x in (s.min, s.max, s.mean, s.std))
        self.statistics.add(n, self.names(name), s.count, s.nan, s.inf, *rest)

    def measured(self, recorder: Any) -> None:
        """Take note of statistics that the recorder still has from before it went back."""
        self._measured = {name: recorder.stats(name) for name in self._measured}

    def forget(self, last: int) -> None:
        """Forget everything of events after number `last`."""
        if last >= self._last:
            return
        self._last = last
        self.events.forget(last)
        self.statistics.forget(last)
        for rows in (self.cells, self.logits, self.samplers):
            while rows and rows[-1].n > last:
                rows.pop()
        self._cells = None
        for change in self.cells:
            self._cells = change.after(self._cells)


class Logged(Breaking, Paged):
    """A debugger that keeps a `RunLog` beside its recorder.

    Attributes
    ----------
    log : RunLog
    """

    log: RunLog

    @property
    def samplings(self) -> list[SamplerRow]:
        """What each sampler did, at every token of this branch, the oldest first."""
        return self.log.samplers

    def keep_all(self) -> None:
        """Keep, from now on, the values that a page or a trace shows of every layer.

        That is what the flow view draws: for SmolLM2-135M some 1.2 MB a token. What does not fit
        the recorder's budget (``Debugger(..., budget=512 << 20)``) goes, the oldest first.
        """
        self.recorder.ask("keep_all", every_layer)

    @property
    def can_go_back(self) -> bool:
        """Whether earlier events can be shown again: a bare generator runs only once."""
        return self._source.can_go_back

    def _begin_run(self) -> None:
        before = getattr(self, "log", None)
        self.log = RunLog(keep_logits=before is not None and before.keep_logits)
        super()._begin_run()

    def _take(self) -> bool:
        took = super()._take()
        if took and self.here is not None:
            self.log.see(self.here, self.recorder)
        return took

    def _restore(self, n: int, last: int) -> int:
        start = super()._restore(n, last)
        self.log.forget(last)
        self.log.measured(self.recorder)
        return start

    def _come_to_rest(self) -> None:
        super()._come_to_rest()
        if self.here is not None:
            self.log.forget(self.here.n)
            self.log.measured(self.recorder)

    def _renew_here(self) -> None:
        super()._renew_here()
        if self.here is not None:  # its value may be another one now
            self.log.forget(self.here.n - 1)
            self.log.see(self.here, self.recorder)
