"""Pieces of work: how a run advances in slices, can be paused, and tells who follows.

A piece of work is a generator (`Job`) that yields after every event and returns why the run stands.
`Working.advance` drives it for a slice of time. Knows nothing of what the work is (`stepping`,
`travel`, `revising`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator

from llmviz.trace.breakpoints import Breakpoint
from llmviz.trace.timeline import DebuggerError, Way
from llmviz.trace.times import Times

__all__ = ["Job", "Working"]

Job = Generator[None, None, str]
"""Yields after every event; returns why the run stands: goal, breakpoint, end or error."""


class Working:
    """One piece of work at a time; see the module's docstring.

    Attributes
    ----------
    error : Exception or None
        What stopped the run; of the engine, or a `DebuggerError` after which it can go on.
    finished : bool
    stopped_by : str
        start, running, goal, breakpoint, pause, end or error.
    hit : Breakpoint or None
        What stopped the run.
    way : Way or None
        Where a replay or search leads, or led when it was paused.
    times : Times
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._busy = False
        self._closed = False
        self._listeners: list[Callable[[], None]] = []

    def _begin_run(self) -> None:
        self.error: Exception | None = None
        self.finished = False
        self.stopped_by = "start"
        self.hit: Breakpoint | None = None
        self.way: Way | None = None
        self.times = Times()
        self._job: Job | None = None
        self._pause = False

    def advance(self, max_seconds: float | None = None) -> bool:
        """Work towards the goal of `start`, for at most `max_seconds`.

        Returns
        -------
        bool
            True when the run stands: goal reached, breakpoint, pause, end or error (see
            `stopped_by`). False when time was up; call again to go on. An error of the engine is
            stored in `error` and not raised.
        """
        with self._not_busy():
            self._busy = True
            try:
                stands = self._advance(max_seconds)
            finally:
                self.times.rest()
                self._busy = False
        self._tell()
        return stands

    def _advance(self, max_seconds: float | None) -> bool:
        job = self._job
        if job is None:
            return True
        end = None if max_seconds is None else time.perf_counter() + max_seconds
        try:
            while True:
                next(job)
                if self._pause:
                    return self._stand("pause")
                if end is not None and time.perf_counter() >= end:
                    return False
        except StopIteration as stop:
            return self._stand(stop.value)
        except DebuggerError as error:
            self.error = error
            return self._stand("error")
        except KeyboardInterrupt:  # it may have hit the engine in the middle of a node
            self._stand("pause")
            self._recover()
            raise

    def _recover(self) -> None:
        """Bring the engine back to the event where the run stands."""

    def _stand(self, why: str) -> bool:
        self.stopped_by = why
        self._pause = False
        if why != "pause":
            self.way = None
        if self._job is not None:
            self._job.close()
            self._job = None
            if why == "pause":
                self._come_to_rest()
        return True

    def _come_to_rest(self) -> None:
        """Bring everything in line with the event at which a piece of work was given up."""

    def _work(self, job: Job) -> None:
        """Do a piece of work at once."""
        self._begin_job(job)
        self.advance()
        if self.error is not None:
            raise self.error

    def _begin_job(self, job: Job) -> None:
        with self._not_busy():
            if self._job is not None:
                self._stand("pause")
            self._job = job
            self._pause = False
            self.hit = self.way = None
            self.stopped_by = "running"
            if isinstance(self.error, DebuggerError) and not self.finished:
                self.error = None  # it was shown; the engine itself is well

    def _now(self, job: Job) -> str:
        """Do a piece of work inside another action: nobody is told."""
        with self._not_busy():
            self._busy = True
            try:
                while True:
                    next(job)
            except StopIteration as stop:
                return stop.value
            finally:
                self.times.rest()
                self._busy = False

    def _not_busy(self) -> threading.RLock:
        if self._busy:
            raise DebuggerError("the run is busy: wait for it to stand, or call pause() first")
        self._refuse_closed()
        return self._lock

    def _refuse_closed(self) -> None:
        if self._closed:
            raise DebuggerError("this debugger is closed: make a new one")

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            listener()
