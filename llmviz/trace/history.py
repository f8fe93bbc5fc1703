"""Points that a run can come back to, and how the engine's state is brought back there.

A point is taken where a stage begins (loading, the context, the generation) and at every ubatch's
start. Coming back to one means: undo what every newer point says was overwritten, newest first,
restore the point's own state, and go on from there; the debugger replays up to the event it wants.

What it costs: the last `N_ALL` ubatches can each be come back to; before them every 8th, and before
the last 8 * `N_ALL` of those every 64th, so that going far back replays a few tokens more. Of the
points that were given up only the K and V rows remain that their ubatch overwrote, and nothing but
the cells' numbers where those were zero. Logits that belong to points are kept up to
`LOGITS_BYTES`; behind that one more ubatch is replayed to have them again. Points newer than the
one come back to are dropped.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from llmviz.trace.recorder import Mark
from llmviz.trace.timeline import OpenScope

__all__ = ["LOGITS_BYTES", "N_ALL", "Clock", "History", "Point"]

N_ALL = 64
LOGITS_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Clock:
    """What the debugger knows at a point, before the event that begins there.

    Attributes
    ----------
    n : int
        Number of the next event.
    stack : tuple of OpenScope
    step : int
        Step of the event before.
    seconds : dict of int to float
    times : object
        See `llmviz.trace.times.Times.mark`.
    """

    n: int
    stack: tuple[OpenScope, ...]
    step: int
    seconds: dict[int, float]
    times: Any = None


@dataclass(slots=True, eq=False)
class Point:
    """A moment that a run can come back to; once `thin`, only what it undoes is left.

    Attributes
    ----------
    stage : str
        ``"load"``, ``"context"``, ``"generation"``, ``"ubatch"``, or ``"rows"`` (nothing begins
        there, but rows were destroyed).
    n : int
        Number of the event that comes next.
    saved : object
        For a ubatch its `SavedGeneration`; for a generation the memory's metadata.
    graph : object
        The graph that was ready to be used again, so that a replay reuses or builds as before.
    """

    stage: str
    n: int
    clock: Clock | None = None
    mark: Mark | None = None
    saved: Any = None
    graph: Any = None
    rows: list[Any] = field(default_factory=list)  # lists of KVRows, newest first
    zeros: dict[int, np.ndarray] = field(default_factory=dict)  # stream -> cells that were zero

    @property
    def thin(self) -> bool:
        """Whether the run can no longer come back to it."""
        return self.clock is None


class History:
    """The points of one run in the order of time."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self._with_logits: deque[Point] = deque()
        self._logits_bytes = 0

    @property
    def nbytes(self) -> int:
        """Bytes of K and V rows and of logits that the points hold."""
        rows = (r for p in self.points for rows in p.rows for r in rows)
        return self._logits_bytes + sum(
            r.k.nbytes + (r.v.nbytes if r.v is not None else 0) for r in rows
        )

    def stage(
        self, stage: str, clock: Clock, mark: Mark, saved: Any = None, graph: Any = None
    ) -> None:
        """Take note that a stage begins."""
        self.points.append(Point(stage, clock.n, clock, mark, saved, graph))

    def ubatch(self, clock: Clock, mark: Mark, saved: Any, graph: Any) -> None:
        """Take note that a ubatch begins; `saved` is what ``Generation.save`` gave."""
        point = Point("ubatch", clock.n, clock, mark, saved, graph)
        self._add_rows(point, saved.context.rows)
        if saved.context.rows_before_update is not None:
            point.rows.append(saved.context.rows_before_update)
        self.points.append(point)
        if mark.logits is not None:
            self._with_logits.append(point)
            self._logits_bytes += mark.logits.nbytes
        while self._logits_bytes > LOGITS_BYTES and len(self._with_logits) > 1:
            self._drop_logits(self._with_logits.popleft())
        self._thin_out()

    def rows(self, n: int, rows: list[Any]) -> None:
        """Take note of rows that are about to be destroyed after event n."""
        self.points.append(Point("rows", n, rows=[rows]))

    @staticmethod
    def _add_rows(point: Point, rows: list[Any]) -> None:
        """Rows that held zeros (cells never used before) are remembered by their number alone."""
        cells = {(r.stream, np.asarray(r.idxs).tobytes()) for r in rows}
        alike = len(cells) == len({stream for stream, _ in cells})  # two caches may differ
        if not alike or any(_holds_something(a) for r in rows for a in (r.k, r.v)):
            point.rows.append(rows)
            return
        for r in rows:
            point.zeros[r.stream] = np.asarray(r.idxs)

    def _drop_logits(self, point: Point) -> None:
        mark = point.mark
        if mark is not None and mark.logits is not None:
            self._logits_bytes -= mark.logits.nbytes
            mark.logits, mark.complete = None, False

    def _thin_out(self) -> None:
        """Give up the points that have just become too old for their distance."""
        for age, every in ((N_ALL, 8), (8 * N_ALL, 64)):
            i = len(self.points) - 1 - age
            if i >= 0 and self.points[i].stage == "ubatch" and not self.points[i].thin:
                mark = self.points[i].mark
                if mark is not None and mark.passes % every:
                    self._give_up(i)

    def _give_up(self, i: int) -> None:
        """Leave of a point only what it undoes.

        The points keep their places, so that their ages stay what they are.
        """
        point = self.points[i]
        self._drop_logits(point)
        point.clock = point.mark = point.saved = point.graph = None

    # -- coming back -----------------------------------------------------------------------------

    def before(self, n: int, logits_n: int = -1) -> Point:
        """The point from which event n is reached soonest, with the recorder complete.

        `logits_n` is the number of the last logits event up to n, where that is known.
        """
        i = max(
            (i for i, p in enumerate(self.points) if p.n <= n and not p.thin),
            default=0,
        )
        best = self.points[i]
        assert best.mark is not None
        if logits_n > best.n:  # the replay passes them
            return best
        # A replay from before the logits event brings back what the point itself has lost.
        while not best.mark.complete and i > 0:
            i -= 1
            mark = self.points[i].mark
            if mark is not None and (mark.complete or mark.logits_n != best.mark.logits_n):
                return self.points[i]
        return best

    def holds(self, n: int) -> bool:
        """Whether the last point is the one where event n begins."""
        return bool(self.points) and self.points[-1].n == n and self.points[-1].stage != "rows"

    def back_to(self, point: Point, memory: Any, pending: Any) -> None:
        """Undo what happened after a point, and drop the points after it.

        Parameters
        ----------
        point : Point
        memory : Memory or None
            None before there is one.
        pending : list of KVRows or None
            Rows that a shift has changed since the last point.
        """
        if memory is not None and pending is not None:
            memory.restore_rows(pending)
        while self.points[-1] is not point:
            newer = self.points.pop()
            if memory is not None:
                self._undo(newer, memory)
            self._drop_logits(newer)
        while self._with_logits and self._with_logits[-1].n > point.n:
            self._with_logits.pop()
        if point.stage == "generation" and memory is not None:
            memory.restore(point.saved)

    @staticmethod
    def _undo(point: Point, memory: Any) -> None:
        for stream, idxs in point.zeros.items():
            for layer in memory.layers:
                layer.zero_rows(stream, idxs)
        memory.restore_rows([])  # the data has changed: copies of it are stale
        for rows in point.rows:
            memory.restore_rows(rows)
        if point.stage == "generation":
            memory.restore(point.saved)


def _holds_something(rows: np.ndarray | None) -> bool:
    """Whether any byte of the rows is not zero; rows of a quantized type are blocks."""
    return rows is not None and bool(np.ascontiguousarray(rows).view(np.uint8).any())
