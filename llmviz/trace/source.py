"""Where a debugger's events come from: a path, a model, a context, or any generator of events.

A run has three stages (loading, the context, the generation). `Source` begins each as a generator
and tells the history, so that a run can come back to where a stage began. What was loaded once is
kept: coming back to a stage before the generation replays its events truly, and the generation then
goes on with the model and context that there were.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from types import GeneratorType
from typing import Any

from llmviz.events import Event
from llmviz.trace.history import Clock, History, Point
from llmviz.trace.recorder import Mark
from llmviz.trace.timeline import DebuggerError

__all__ = ["Source", "is_context", "standing_lines"]

Events = Generator[Event, None, Any]


def is_context(subject: Any) -> bool:
    """Whether a debugger's subject is a context."""
    return hasattr(subject, "decode_steps")


class Source:
    """Makes the generators that a debugger steps.

    Parameters
    ----------
    subject : str, PathLike, Model, Context or generator of Event
    prompt, chain, n_predict
        As for `llmviz.generate`. The chain is copied: the caller's own does not move.
    context_params : dict
    want : callable
        ``want(name)``, asked for every node of a graph.
    moment : callable
        ``moment() -> (Clock, Mark)``: what the debugger knows before the event that comes next.

    Attributes
    ----------
    model, ctx, generation
        None until the run has come that far.
    history : History
    """

    def __init__(
        self,
        subject: Any,
        prompt: Any,
        chain: Any,
        n_predict: int,
        context_params: dict[str, Any],
        want: Callable[[str], bool],
        moment: Callable[[], tuple[Clock, Mark]],
    ) -> None:
        self.subject = subject
        self.prompt = prompt
        self.n_predict = n_predict
        self.model: Any = None
        self.ctx: Any = None
        self.generation: Any = None
        self.history = History()
        self._chain = chain.clone() if chain is not None else None
        self._context_params = context_params
        self._want = want
        self._moment = moment
        self._kept_model: Any = None
        self._kept_ctx: Any = None
        self._path: str | None = None

    @property
    def can_go_back(self) -> bool:
        """Whether there is anything but a bare generator, which runs only once."""
        return not isinstance(self.subject, Iterator)

    # The engine is imported when a run needs it, so that a debugger over any generator of events
    # (a recorded trace, a test) works without one.

    def events(self) -> Events:
        """The whole run."""
        subject = self.subject
        if isinstance(subject, Iterator):
            return (yield from subject)
        if is_context(subject):
            return (yield from self._generation(subject))
        if isinstance(subject, (str, os.PathLike)):
            return (yield from self._load())
        return (yield from self._context(subject))

    def _load(self) -> Events:
        from llmviz.model.loader import load_steps

        self.history.stage("load", *self._moment())
        model = yield from load_steps(self._find())
        if self._kept_model is not None:
            model.gguf.close()
            model = self._kept_model
        return (yield from self._context(model))

    def _find(self) -> str:
        if self._path is None:
            from llmviz.hub import resolve

            self._path = os.fspath(resolve(self.subject))
        return self._path

    def _context(self, model: Any) -> Events:
        from llmviz.context import context_steps

        self.history.stage("context", *self._moment())
        refuse_closed(model)
        self.model = self._kept_model = model
        ctx = yield from context_steps(model, **self._context_params)
        return (yield from self._generation(self._kept_ctx or ctx))

    def _generation(self, ctx: Any) -> Events:
        from llmviz.generate import Generation
        from llmviz.ggml.sched import NodeTimes

        refuse_closed(ctx.model)
        self.model, self.ctx = ctx.model, ctx
        self._kept_model, self._kept_ctx = ctx.model, ctx
        ctx.keeps_history = True
        ctx.sched.times = NodeTimes()
        clock, mark = self._moment()
        self.history.stage("generation", clock, mark, ctx.memory.snapshot(), ctx.graph)
        chain = self._chain.clone() if self._chain is not None else None
        self.generation = Generation(ctx, self.prompt, chain, self.n_predict)
        if self._chain is None:
            self._chain = self.generation.chain.clone()  # a default chain comes back the same
        return (yield from self.generation.steps(self._want))

    def close(self) -> None:
        """Let go of everything that coming back needs."""
        self.history.points.clear()
        if self._kept_ctx is not None:
            self._kept_ctx.keeps_history = False
            self._kept_ctx.sched.times = None

    def save(self, clock: Clock, mark: Mark) -> None:
        """Take note of a ubatch's start; to be called at the enter event of ``process_ubatch``."""
        if self.generation is not None and not self.history.holds(clock.n):
            self.history.ubatch(clock, mark, self.generation.save(), self.ctx.graph)

    def back_to(self, point: Point) -> Events:
        """Bring the engine back to a point; the generator of events from there on.

        The generator that was running must be closed before.
        """
        ctx = self._kept_ctx
        pending = ctx.take_pending_rows() if ctx is not None else None
        self.history.back_to(point, ctx.memory if ctx is not None else None, pending)
        if ctx is not None and point.stage in ("generation", "ubatch"):
            ctx.use_graph(point.graph)
        elif ctx is not None:
            ctx.use_graph(None)  # a new context has none: the replay builds one again
        if point.stage == "ubatch":
            return self.generation.resume(point.saved, (), self._want)
        self.history.points.pop()  # the stage notes itself when it begins
        self.generation = None
        if point.stage == "generation":
            return self._generation(ctx)
        self.ctx = None
        if point.stage == "context":
            return self._context(self._kept_model)
        self.model = None
        return self._load()


def standing_lines(events: Any) -> list[tuple[str, int]]:
    """Files and lines at which a chain of suspended generators stands, the outermost first."""
    out: list[tuple[str, int]] = []
    while isinstance(events, GeneratorType) and len(out) < 40:
        frame = events.gi_frame
        if frame is None:
            break
        out.append((frame.f_code.co_filename, frame.f_lineno))
        events = events.gi_yieldfrom
    return out


def refuse_closed(model: Any) -> None:
    """Say so where the model's file was closed: its tensors can no longer be read.

    Raises
    ------
    DebuggerError
    """
    if getattr(model.gguf, "closed", False):
        raise DebuggerError(
            f"the model {model.path} is closed: load it again and make a new Debugger"
        )
