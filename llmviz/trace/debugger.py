"""The debugger: steps one generator of events, from the file to the text.

A pause is a generator that nobody advances: there are no threads and no blocking callbacks. Each
call does a bounded piece of work and returns. Knows nothing of Jupyter; who wants to follow a run
subscribes with `Debugger.on_change`.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Any, ClassVar

import numpy as np

from llmviz.errors import LlmvizError
from llmviz.events import Event
from llmviz.trace.breakpoints import Breakpoint, Where, matches_name
from llmviz.trace.recorder import Recorder, TokenRecord
from llmviz.trace.timeline import Edit, Here, OpenScope, Record, record_of, shape_text

__all__ = ["ACTIONS", "Debugger", "DebuggerError"]

ACTIONS = ("into", "over", "out", "next-token", "run")

Goal = Callable[[Event], bool]


class DebuggerError(LlmvizError):
    """A debugger was asked for something that its state does not allow."""


class Debugger:
    """Runs a prompt through a model and can stop at every event on the way.

    Parameters
    ----------
    path_or_model_or_ctx : str, PathLike, Model, Context, or generator of Event
        From a path, stepping starts at step 1, before the file is read; from a model at step 7;
        from a context at step 8. A path that does not exist is looked up by `llmviz.hub.resolve`.
    prompt : str
    chain : llmviz.sampling.Chain, optional
        How tokens are chosen; `llmviz.generate`'s default otherwise.
    n_predict : int
        Stop after this many tokens.
    want : str, list of str, or callable, optional
        Names (globs) of nodes, or ``want(name) -> bool``, to be yielded even while running freely.
        Stepping into a computation yields all of them.
    budget : int
        Bytes for the recorder's copies of attention.
    n_events : int
        How many light records `events` keeps; the oldest go first.
    **context_params
        As for ``model.context(...)``.

    Examples
    --------
    >>> dbg = Debugger("smollm2-135m", "The capital of France is")      # doctest: +SKIP
    >>> dbg.break_on("kq_soft_max-3")                                   # doctest: +SKIP
    >>> dbg.run()                                                       # doctest: +SKIP
    >>> dbg.here.value.shape                                            # doctest: +SKIP
    (9, 5, 256)
    """

    display_with: ClassVar[Callable[[Debugger], Any] | None] = None
    """Makes what a notebook shows for a debugger; set by the layer above, which has the widgets."""

    def __init__(
        self,
        path_or_model_or_ctx: Any,
        prompt: str = "",
        chain: Any = None,
        *,
        n_predict: int = 64,
        want: Any = None,
        budget: int = 64 << 20,
        n_events: int = 20_000,
        **context_params: Any,
    ) -> None:
        self.prompt = prompt
        self.chain = chain
        self.n_predict = n_predict
        self.subject = path_or_model_or_ctx
        self.breakpoints: list[Breakpoint] = []
        self._context_params = context_params
        self._user_want = _as_want(want)
        self._n_events = n_events
        self._budget = budget
        self._lock = threading.RLock()
        self._busy = False
        self._listeners: list[Callable[[], None]] = []
        self._next_id = 1
        self._layer = 0
        self.panel: Any = None  # what a notebook shows for this debugger, once it was shown
        if _is_context(self.subject) and context_params:
            raise DebuggerError(
                f"{', '.join(context_params)}: a context already has its parameters; give the "
                "model instead, or make the context with them"
            )
        self._begin_run()

    def _begin_run(self) -> None:
        self.model: Any = None
        self.ctx: Any = None
        self.events: deque[Record] = deque(maxlen=self._n_events)
        self.edits: list[Edit] = []
        self.here: Here | None = None
        self.error: Exception | None = None
        self.result: Any = None
        self.finished = False
        self.stopped_by = "start"
        self.hit: Breakpoint | None = None
        self.seconds: dict[int, float] = {}
        self.recorder = Recorder(budget=self._budget, layer=self._layer)
        self._n = 0
        self._stack: list[OpenScope] = []
        self._goal: Goal | None = None
        self._watch_all = False
        self._pause = False
        self._source = self._steps()

    # -- where the events come from ------------------------------------------------------------

    def _steps(self) -> Generator[Event, None, Any]:
        subject = self.subject
        if isinstance(subject, Iterator):
            return (yield from subject)
        # The engine is imported when a run needs it, so that a debugger over any generator of
        # events (a recorded trace, a test) works without one.
        from llmviz.context import context_steps
        from llmviz.generate import generate_steps

        if isinstance(subject, (str, os.PathLike)):
            from llmviz.hub import resolve
            from llmviz.model.loader import load_steps

            path = os.fspath(subject)
            subject = yield from load_steps(path if os.path.exists(path) else str(resolve(path)))
        if not _is_context(subject):
            self._know_model(subject)
            subject = yield from context_steps(subject, **self._context_params)
        self.ctx = subject
        self._know_model(subject.model)
        return (
            yield from generate_steps(
                subject, self.prompt, self.chain, self.n_predict, want=self._want
            )
        )

    def _know_model(self, model: Any) -> None:
        self.model = model
        vocab = model.vocab
        self.recorder.piece_of = lambda token: vocab.token_to_piece(token, special=True)

    def _want(self, name: str) -> bool:
        wanted = (
            self._watch_all
            or self.recorder.wants(name)
            or (self._user_want is not None and bool(self._user_want(name)))
            or any(b.wants(name) for b in self.breakpoints)
        )
        if not wanted:
            self._n += 1  # an unwatched node takes its number all the same
        return wanted

    # -- stepping ------------------------------------------------------------------------------

    def step_into(self) -> Here | None:
        """Go to the very next event."""
        return self._do("into")

    def step_over(self) -> Here | None:
        """Go to the next event that is not inside the current one."""
        return self._do("over")

    def step_out(self) -> Here | None:
        """Go to the end of the open scope; outside of all scopes, to the next step."""
        return self._do("out")

    def next_token(self) -> Here | None:
        """Run until the next token has been accepted."""
        return self._do("next-token")

    def run(self, *, max_seconds: float | None = None) -> Here | None:
        """Run to a breakpoint or to the end; or return after `max_seconds`, to be called again."""
        return self._do("run", max_seconds)

    def _do(self, action: str, max_seconds: float | None = None) -> Here | None:
        self.start(action)
        self.advance(max_seconds)
        if self.error is not None:
            raise self.error
        return self.here

    def start(self, action: str) -> None:
        """Set what `advance` works towards: one of `ACTIONS`."""
        with self._not_busy():
            self._refuse_dead()
            self._pause = False
            self.hit = None
            self.stopped_by = "running"
            depth = self.here.depth if self.here is not None else 0
            # Stepping over or out needs no node inside the scope that it leaves behind.
            inside = self.here is not None and self.here.kind != "enter"
            self._watch_all = action == "into" or (action == "over" and inside)
            if action == "into":
                self._goal = lambda e: True
            elif action == "over":
                self._goal = lambda e: e.depth <= depth
            elif action == "out":
                # Where no scope is open, what can be left is the step.
                step = self.here.step if self.here is not None else 0
                self._goal = lambda e: e.depth < depth or (depth == 0 and e.step != step)
            elif action == "next-token":
                self._goal = lambda e: e.kind == "data" and e.name == "token"
            elif action == "run":
                self._goal = lambda e: False
            else:
                self.stopped_by = "start"
                raise DebuggerError(f"no such action: {action!r}; there are {', '.join(ACTIONS)}")

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
                self._busy = False
        self._tell()
        return stands

    def _advance(self, max_seconds: float | None) -> bool:
        goal = self._goal
        if goal is None:
            return True
        end = None if max_seconds is None else time.perf_counter() + max_seconds
        while self._take():
            assert self.here is not None
            event = self.here.event
            if goal(event):
                return self._stand("goal")
            if self._at_breakpoint(event):
                return self._stand("error" if self.error is not None else "breakpoint")
            if self._pause:
                return self._stand("pause")
            if end is not None and time.perf_counter() >= end:
                return False
        return self._stand("error" if self.error is not None else "end")

    def _stand(self, why: str) -> bool:
        self.stopped_by = why
        self._goal = None
        self._pause = False
        return True

    def _take(self) -> bool:
        """Advance the generator by one event; False at the end and on an error."""
        if self.here is not None and self.here.kind == "exit" and self._stack:
            self._stack.pop()
        self._previous_step = self.here.step if self.here is not None else 0
        start = time.perf_counter()
        try:
            event = next(self._source)
        except StopIteration as stop:
            self.result = stop.value
            self.finished = True
            self._stack.clear()
            return False
        except Exception as error:
            self.error = error
            self.finished = True
            return False
        spent = time.perf_counter() - start
        self.seconds[event.step] = self.seconds.get(event.step, 0.0) + spent
        n = self._n
        self._n += 1
        if event.kind == "enter":
            self._stack.append(OpenScope(event.name, event.depth, event.step, n))
        self.events.append(record_of(n, event))
        self.here = Here(n, event)
        self.recorder.see(event, n)
        return True

    def _at_breakpoint(self, event: Event) -> bool:
        for point in self.breakpoints:
            try:
                met = point.meets(event, self._previous_step)
            except Exception as error:
                # The person's predicate, not the engine: the run stands here and can go on.
                point.enabled = False
                self.error = DebuggerError(
                    f"breakpoint {point.id} ({point.label}) raised {type(error).__name__}: "
                    f"{error}. It is disabled now; mend it, or remove it with clear_break"
                )
                self.error.__cause__ = error
                return True
            if met:
                point.hits += 1
                self.hit = point
                return True
        return False

    def pause(self) -> None:
        """Ask a run in progress to stand at the next event."""
        self._pause = True

    def stop_here(self) -> None:
        """Give up the goal of a run that is between two slices, and stand where it is."""
        if self._goal is not None and not self._busy:
            self._stand("pause")
            self._tell()

    @property
    def running(self) -> bool:
        """Whether a goal was set and not reached yet."""
        return self._goal is not None

    def restart(self) -> None:
        """Begin again at the first event, with an empty memory. Breakpoints stay."""
        with self._not_busy():
            if not self.can_restart:
                raise DebuggerError(
                    "a generator of events runs once: make a new Debugger to begin again"
                )
            self._source.close()
            self._layer = self.recorder.layer
            if _is_context(self.subject):
                self.subject.memory.clear()
            if self.chain is not None:
                self.chain.reset()
            self._begin_run()
        self._tell()

    @property
    def can_restart(self) -> bool:
        """Whether `restart` is possible: a bare generator of events runs only once."""
        return not isinstance(self.subject, Iterator)

    def close(self) -> None:
        """End the run and let go of what it held."""
        with self._not_busy():
            self._source.close()
            self._goal = None
            self.finished = True
            self._stack.clear()
            self.here = None
            self._listeners.clear()

    def __enter__(self) -> Debugger:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _not_busy(self) -> threading.RLock:
        if self._busy:
            raise DebuggerError("the run is busy: wait for it to stand, or call pause() first")
        return self._lock

    def _refuse_dead(self) -> None:
        if isinstance(self.error, DebuggerError) and not self.finished:
            self.error = None  # a predicate's error was shown; the engine itself is well
        if self.error is not None:
            raise DebuggerError(
                f"the run ended with {type(self.error).__name__}: {self.error}. "
                "What it computed is still here; restart() begins again"
            ) from self.error
        if self.finished:
            raise DebuggerError("the run is at its end; restart() begins again")

    # -- breakpoints and edits -----------------------------------------------------------------

    def break_on(self, where: Where) -> Breakpoint:
        """Stop at events with this name or glob, at this step (1..16), or where a callable says so.

        Raises
        ------
        DebuggerError
            For a step outside 1..16, an empty name, or anything else.
        """
        if isinstance(where, bool) or not (isinstance(where, (str, int)) or callable(where)):
            raise DebuggerError(
                f"break_on takes a name or glob, a step 1..16 or a callable, not {where!r}"
            )
        if isinstance(where, int) and not 1 <= where <= 16:
            raise DebuggerError(f"there is no step {where}: steps are 1..16")
        if isinstance(where, str) and not where.strip():
            raise DebuggerError("a breakpoint needs a name, such as 'kq_soft_max-*'")
        point = Breakpoint(self._next_id, where.strip() if isinstance(where, str) else where)
        self._next_id += 1
        self.breakpoints.append(point)
        self._tell()
        return point

    def clear_break(self, which: Breakpoint | int | None = None) -> None:
        """Remove one breakpoint, by itself or its id; all of them without an argument."""
        number = which.id if isinstance(which, Breakpoint) else which
        if number is None:
            self.breakpoints.clear()
        else:
            left = [b for b in self.breakpoints if b.id != number]
            if len(left) == len(self.breakpoints):
                have = ", ".join(str(b.id) for b in self.breakpoints) or "none"
                raise DebuggerError(f"there is no breakpoint {number}; there are: {have}")
            self.breakpoints[:] = left
        self._tell()

    def edit(self, value: Any) -> Edit:
        """Put a value in the place of the one that `here` holds; the run goes on with it.

        Raises
        ------
        DebuggerError
            Where there is no array to edit, or the shape does not fit, or the dtype cannot hold it.
        """
        with self._not_busy():
            here = self.here
            if here is None or here.kind not in ("node", "data") or here.shape is None:
                raise DebuggerError("edit needs a tensor: step to a node event first")
            old = np.asarray(here.value)
            new = np.array(value)
            if new.shape != old.shape:
                raise DebuggerError(
                    f"{here.name} has shape {shape_text(old.shape)}, "
                    f"the new value has {shape_text(new.shape)}"
                )
            if not np.can_cast(new.dtype, old.dtype, "same_kind"):
                raise DebuggerError(
                    f"{here.name} holds {old.dtype}, the new value holds {new.dtype}"
                )
            new = new.astype(old.dtype)
            new.flags.writeable = False
            here.event.value = new
            edit = Edit(here.n, here.name, new)
            self.edits.append(edit)
        self._tell()
        return edit

    # -- what is known -------------------------------------------------------------------------

    @property
    def n(self) -> int:
        """Number of the current event, -1 before the first."""
        return self.here.n if self.here is not None else -1

    @property
    def scope_stack(self) -> tuple[OpenScope, ...]:
        """Scopes that are open, the outermost first."""
        return tuple(self._stack)

    @property
    def tokens(self) -> list[TokenRecord]:
        """Tokens of the prompt and those chosen so far."""
        return self.recorder.tokens

    @property
    def text(self) -> str:
        """The text generated so far."""
        return "".join(t.text for t in self.tokens if not t.given) + self.recorder.rest

    # -- who follows ---------------------------------------------------------------------------

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` whenever the run stands or its breakpoints change.

        Returns
        -------
        callable
            Ends the subscription.
        """
        self._listeners.append(listener)

        def end() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return end

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            listener()

    def __repr__(self) -> str:
        state = (
            f"stopped by {type(self.error).__name__}"
            if self.error is not None
            else "at its end"
            if self.finished
            else "not started"
            if self.here is None
            else f"at {self.here!r}"
        )
        return f"<Debugger {state}, {len(self.tokens)} tokens>"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        make = type(self).display_with
        if make is None:
            return {"text/plain": repr(self)}
        return make(self)._repr_mimebundle_(**kwargs)


def _is_context(subject: Any) -> bool:
    return hasattr(subject, "decode_steps")


def _as_want(want: Any) -> Callable[[str], bool] | None:
    if want is None or callable(want):
        return want
    patterns = [want] if isinstance(want, str) else list(want)
    return lambda name: any(matches_name(p, name) for p in patterns)
