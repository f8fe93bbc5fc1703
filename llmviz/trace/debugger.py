"""The debugger: steps one run of events, from the file to the text, in both directions.

A pause is a generator that nobody advances: there are no threads and no blocking callbacks. Each
call does a bounded piece of work and returns. Knows nothing of Jupyter; who wants to follow a run
subscribes with `Debugger.on_change`.

Reading order: `timeline`, `working` (slices), `stepping` (one event after the other), `travel`
(going back), `branching`, `editing` and `revising` (changes), `breaking`, `storage_log` (what
`save` will tell), and this file with the verbs people use.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

from llmviz.trace.breakpoints import matches_name
from llmviz.trace.recorder import TokenRecord
from llmviz.trace.sentinels import Sentinels
from llmviz.trace.source import is_context
from llmviz.trace.storage_log import Logged
from llmviz.trace.timeline import DebuggerError, Here, OpenScope, Record
from llmviz.trace.working import Job

__all__ = ["ACTIONS", "Debugger", "DebuggerError"]

ACTIONS = (
    "into",
    "over",
    "out",
    "next-token",
    "run",
    "to-end",
    "back",
    "back-over",
    "back-out",
    "prev-token",
    "run-back",
    "goto",
    "reverse-to",
    "switch",
    "undo-edit",
    "edit-logit",
    "choose-token",
    "take-token",
)
"""What `Debugger.start` takes; those from ``"goto"`` on want arguments."""


class Debugger(Logged):
    """Runs a prompt through a model and can stop at, change and come back to every event.

    Parameters
    ----------
    path_or_model_or_ctx : str, PathLike, Model, Context, or generator of Event
        From a path, stepping starts at step 1, before the file is read; from a model at step 7;
        from a context at step 8. A path that does not exist is looked up by `llmviz.hub.resolve`.
        A bare generator runs only forward.
    prompt : str
    chain : llmviz.sampling.Chain, optional
        How tokens are chosen; `llmviz.generate`'s default otherwise. A copy of it is used.
    n_predict : int
        Stop after this many tokens.
    want : str, list of str, or callable, optional
        Names (globs) of nodes, or ``want(name) -> bool``, to be yielded even while running freely.
        Stepping into a computation yields all of them.
    budget : int
        Bytes for the recorder's copies.
    n_events : int
        How many light records `events` keeps for each branch; the oldest go first.
    **context_params
        As for ``model.context(...)``.

    Attributes
    ----------
    sentinels : Sentinels
        What flags the unusual; see `llmviz.trace.sentinels`.

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
        super().__init__(path_or_model_or_ctx, prompt, chain, n_predict)
        self._context_params = context_params
        self._user_want = _as_want(want)
        self._n_events = n_events
        self._budget = budget
        self.panel: Any = None  # what a notebook shows for this debugger, once it was shown
        self.sentinels = Sentinels(self)
        self._onlooker = self.sentinels.see
        if is_context(self.subject) and context_params:
            raise DebuggerError(
                f"{', '.join(context_params)}: a context already has its parameters; give the "
                "model instead, or make the context with them"
            )
        self._begin_run()

    # -- forward -------------------------------------------------------------------------------

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
        return self._do("run", max_seconds=max_seconds)

    def run_to_end(self, *, max_seconds: float | None = None) -> Here | None:
        """Run to the end, past all breakpoints."""
        return self._do("to-end", max_seconds=max_seconds)

    def _do(self, action: str, max_seconds: float | None = None) -> Here | None:
        self.start(action)
        self.advance(max_seconds)
        if self.error is not None:
            raise self.error
        return self.here

    def start(self, action: str, *arguments: Any) -> None:
        """Set what `advance` works towards.

        Parameters
        ----------
        action : str
            One of `ACTIONS`.
        *arguments
            Those of the method of the same name: for ``"goto"`` an event number, for
            ``"reverse-to"`` a condition, for ``"switch"`` a branch's name.
        """
        with self._not_busy():
            if action not in ACTIONS:
                raise DebuggerError(f"no such action: {action!r}; there are {', '.join(ACTIONS)}")
            back = self._revision(action, arguments) or self._job_back(action, *arguments)
            if back is None:
                self._refuse_end()
            self._begin_job(back or self._job_forward(action))

    def _job_back(self, action: str, argument: Any = None, *more: Any) -> Job | None:
        """The piece of work of an action that may go back."""
        if action == "back":
            return self._travel(self._event_before())
        if action == "back-over":
            return self._travel(self._place_back_over())
        if action == "back-out":
            return self._travel(self._place_back_out())
        if action == "prev-token":
            return self._travel(self._place_prev_token())
        if action == "goto":
            return self._travel(self._checked_number(argument))
        if action == "reverse-to":
            return self._reverse(*self._as_test(argument))
        if action == "switch":
            return self._switch_to(str(argument), *more)
        if action == "run-back":
            return self._reverse(*self._breakpoints_test())
        return None

    def _job_forward(self, action: str) -> Job:
        here = self.here
        depth = here.depth if here is not None else 0
        if action == "into":
            return self._forward(lambda e: True, watch_all=True)
        if action == "over":
            # Stepping over or out needs no node inside the scope that it leaves behind.
            inside = here is not None and here.kind != "enter"
            return self._forward(lambda e: e.depth <= depth, watch_all=inside)
        if action == "out":
            # Where no scope is open, what can be left is the step.
            step = here.step if here is not None else 0
            return self._forward(
                lambda e: e.depth < depth or (depth == 0 and e.step != step), watch_all=False
            )
        if action == "next-token":
            return self._forward(lambda e: e.kind == "data" and e.name == "token", watch_all=False)
        return self._forward(lambda e: False, watch_all=False, stops=action == "run")

    def pause(self) -> None:
        """Ask a run in progress to stand at the next event."""
        self._pause = True

    def stop_here(self) -> None:
        """Give up the goal of a run that is between two slices, and stand where it is."""
        if self._job is not None and not self._busy:
            self._stand("pause")
            self._tell()

    @property
    def running(self) -> bool:
        """Whether a goal was set and not reached yet."""
        return self._job is not None

    def restart(self) -> None:
        """Begin again at the first event, with an empty memory; edits and branches are gone.

        Breakpoints stay.
        """
        with self._not_busy():
            if not self.can_restart:
                raise DebuggerError(
                    "a generator of events runs once: make a new Debugger to begin again"
                )
            if self._job is not None:
                self._job.close()
            self._events.close()
            self._reset_subject()
            self._begin_run()
            self._check_breakpoints()
        self._tell()

    @property
    def can_restart(self) -> bool:
        """Whether `restart` and going back are possible: a bare generator runs only once."""
        return self._source.can_go_back

    def close(self) -> None:
        """End the run and let go of what it held."""
        if self._closed:
            return
        with self._not_busy():
            if self._job is not None:
                self._job.close()
                self._job = None
            self._events.close()
            self._source.close()
            self.finished = True
            self._stack.clear()
            self.here = None
            self._listeners.clear()
            self._closed = True

    def __enter__(self) -> Debugger:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- what is known -------------------------------------------------------------------------

    @property
    def n(self) -> int:
        """Number of the current event, -1 before the first."""
        return self.here.n if self.here is not None else -1

    @property
    def events(self) -> deque[Record]:
        """Light records of this branch's events up to the current one, the oldest first."""
        return self._branches.current.events

    @property
    def furthest(self) -> int:
        """The largest event number that this branch has reached."""
        return self._branches.current.furthest

    @property
    def scope_stack(self) -> tuple[OpenScope, ...]:
        """Scopes that are open, the outermost first."""
        return tuple(self._stack)

    @property
    def tokens(self) -> list[TokenRecord]:
        """Tokens of the prompt and those chosen so far."""
        return self.recorder.tokens

    def save(
        self, path: str | os.PathLike[str], *, dtype: str = "float32", values: bool = True
    ) -> None:
        """Save what is known of the run up to here, for `llmviz.open_trace` and for xarray.

        The file needs no model to be opened. `llmviz.trace.storage` says what is in it. What the
        recorder was not asked for is not there; ``log.keep_logits = True`` keeps all logits of the
        decodes that follow.

        Parameters
        ----------
        path : str or PathLike
            Such as ``"run.zarr.zip"``; replaced where it exists.
        dtype : {"float32", "float16"}
            Of the attention weights.
        values : bool
            Whether kept copies of nodes are saved too.

        Raises
        ------
        TraceError
            zarr is not installed, or the run is under way.
        OSError
            The file cannot be written.
        """
        from llmviz.trace.storage import save

        save(self, path, dtype=dtype, values=values)

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


def _as_want(want: Any) -> Callable[[str], bool] | None:
    if want is None or callable(want):
        return want
    patterns = [want] if isinstance(want, str) else list(want)
    return lambda name: any(matches_name(p, name) for p in patterns)
