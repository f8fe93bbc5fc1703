"""One event after the other: the state of a run, and the pieces of work that advance it.

A step is a piece of work (see `working`): a goal, and events taken until it is met. Above this lie
`travel` (going back) and `editing` (changes and branches).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llmviz.events import Event
from llmviz.trace.branches import Branches
from llmviz.trace.breakpoints import Breakpoint, Known
from llmviz.trace.edits import Edit, Intervention
from llmviz.trace.history import Clock, Point
from llmviz.trace.recorder import Mark, Recorder
from llmviz.trace.source import Source, is_context, standing_lines
from llmviz.trace.timeline import DebuggerError, Here, OpenScope, record_of
from llmviz.trace.working import Job, Working

__all__ = ["Goal", "Stepping"]

Goal = Callable[[Event], bool]


class Stepping(Working):
    """Advances a run by events; see the module's docstring."""

    def __init__(self, subject: Any, prompt: Any, chain: Any, n_predict: int) -> None:
        super().__init__()
        self.subject = subject
        self.prompt = prompt
        self.n_predict = n_predict
        self.breakpoints: list[Breakpoint] = []
        self._given_chain = chain
        self._context_params: dict[str, Any] = {}
        self._user_want: Callable[[str], bool] | None = None
        self._n_events = 0
        self._budget = 0
        self._next_id = 1
        self._next_edit = 1
        self._values: Any = None
        self._onlooker: Callable[[Event, int], None] | None = None  # sees what the recorder saw
        self.recorder = Recorder()

    def _begin_run(self) -> None:
        super()._begin_run()
        asked = self.recorder
        self.here: Here | None = None
        self.result: Any = None
        self.seconds: dict[int, float] = {}
        self.recorder = Recorder(budget=self._budget, layer=asked.layer)
        self.recorder.adopt_askers(asked)
        self._branches = Branches(self._n_events)
        self._known = Known(names=_sampler_names())
        self._n = 0
        self._stack: list[OpenScope] = []
        self._previous_step = 0
        self._engine_value: Any = None
        self._selected: Event | None = None
        self._watch_all = False
        self._filter: Callable[[str], bool] | None = None
        self._target = -1  # this event is wanted, whatever it is
        self._quiet = False  # a replay: nobody looks on
        self._hit = -1  # what the last search found
        self._source = Source(
            self.subject,
            self.prompt,
            self._given_chain,
            self.n_predict,
            self._context_params,
            self._want,
            self._moment,
        )
        self._events = self._source.events()

    # -- what the engine and the edits ask ---------------------------------------------------------

    @property
    def model(self) -> Any:
        """The model, None until it is loaded."""
        return self._source.model

    @model.setter
    def model(self, model: Any) -> None:
        # for a generator of events, which brings none
        self._source.model = model

    @property
    def ctx(self) -> Any:
        """The context, None until there is one."""
        return self._source.ctx

    @property
    def generation(self) -> Any:
        """The `llmviz.generate.Generation` that runs, None until it has begun."""
        return self._source.generation

    @property
    def chain(self) -> Any:
        """The sampler chain in its present state; before the generation, the one that was given."""
        return self._given_chain if self.generation is None else self.generation.chain

    @property
    def known(self) -> Known:
        """Names of nodes and events that the run has come past, and the like."""
        return self._known

    @property
    def points(self) -> tuple[Point, ...]:
        """Starts of ubatches that the run remembers, the oldest first."""
        return tuple(p for p in self._source.history.points if p.stage == "ubatch")

    @property
    def lines(self) -> list[tuple[str, int]]:
        """Files and lines at which the engine is suspended, the outermost first."""
        return standing_lines(self._events)

    def _moment(self) -> tuple[Clock, Mark]:
        seconds, times = dict(self.seconds), self.times.mark()
        clock = Clock(self._n, tuple(self._stack), self._previous_step, seconds, times)
        return clock, self.recorder.mark()

    def _want(self, name: str) -> bool:
        wanted = (
            self._n == self._target
            or self.recorder.wants(name)
            or self._measures(name)
            or any(e.wants(name, self._n) for e in self._branches.current.edits)
        )
        if not wanted:
            self._n += 1  # an unwatched node takes its number all the same
        return wanted

    def _measures(self, name: str) -> bool:
        """Whether somebody watches this node, so that its statistics are kept."""
        if self._user_want is not None and self._user_want(name):
            return True
        if self._filter is not None:
            return self._filter(name)
        return not self._quiet and (self._watch_all or any(b.wants(name) for b in self.breakpoints))

    def keep_rows(self, n: int) -> None:
        """Remember all K and V rows before an operation that destroys them."""
        self._source.history.rows(n, self.ctx.memory.save_rows())

    def accepted_tokens(self) -> list[int]:
        """Tokens that the sampler chain has accepted in this run."""
        if self.generation is None:
            return []
        tokens = list(self.generation.result.tokens)
        between = self.here is not None and (self.here.kind, self.here.name) in (
            ("exit", "sample"),
            ("enter", "accept"),
        )
        if between and self._selected is not None:  # accepted, and not yet part of the text
            tokens.append(int(self._selected.value))
        return tokens

    # -- one event -----------------------------------------------------------------------------

    def _take(self) -> bool:
        """Advance the generator by one event; False at the end and on an error."""
        if self.here is not None:
            if self.here.kind == "exit" and self._stack:
                self._stack.pop()
            self._previous_step = self.here.step
        self.times.ask()
        try:
            event = next(self._events)
        except StopIteration as stop:
            self.result = stop.value
            self.finished = self._branches.current.ended = True
            self._stack.clear()
            return False
        except Exception as error:
            self.error = error
            self.finished = True
            return False
        spent = self.times.got(event, self._n, self._stack, self._quiet)
        self.seconds[event.step] = self.seconds.get(event.step, 0.0) + spent
        n = self._n
        if event.kind == "enter":
            if event.name == "process_ubatch":
                self._source.save(*self._moment())
            self._stack.append(OpenScope(event.name, event.depth, event.step, n))
        self._n += 1
        self._engine_value = event.value
        self.here = Here(n, event)
        if event.name == "selected":
            self._selected = event
        self._apply_edits(event, n)
        branch = self._branches.current
        if not branch.events or branch.events[-1].n < n:
            branch.events.append(record_of(n, event))
        branch.n = n
        if n > branch.furthest:
            branch.furthest = n
            branch.ended = False
        self._learn(event)
        measure = event.kind == "node" and self._filter is None and self._measures(event.name)
        self.recorder.see(event, n, measure=measure)
        if self._onlooker is not None:
            self._onlooker(event, n)
        return True

    def _apply_edits(self, event: Event, n: int) -> None:
        for edit in self._branches.current.edits:
            if edit.due(event, n):
                self._apply(edit, event, n)

    def _apply(self, edit: Edit, event: Event, n: int) -> None:
        """Let an edit act; one that cannot says so, and an intervention goes off."""
        try:
            edit.apply(event, n, self)
        except Exception as error:
            edit.note = f"{type(error).__name__}: {error}"
            if isinstance(edit, Intervention):
                edit.broken = True
            if not self._quiet:
                self.error = DebuggerError(
                    f"edit {edit.id} ({edit.description}) did not work at event {n}: {error}"
                    + (". It is off now" if isinstance(edit, Intervention) else "")
                )
                self.error.__cause__ = error
            return
        edit.note = ""
        if edit.applied_at is None:
            edit.applied_at = n

    def _learn(self, event: Event) -> None:
        """Notice what breakpoints are held against: the model, the graph, names of events."""
        if self._known.learn(event, self.model):
            self.recorder.piece_of = self._known.piece_of or self.recorder.piece_of
            self._check_breakpoints()

    def _check_breakpoints(self) -> None:
        for point in self.breakpoints:
            point.check(self._known)

    # -- pieces of work --------------------------------------------------------------------------

    def _forward(self, goal: Goal, watch_all: bool, stops: bool = True) -> Job:
        """Until the goal, or where `stops`, a breakpoint."""
        self._watch_all = watch_all
        try:
            while self._take():
                assert self.here is not None
                if self.error is not None:
                    return "error"
                if goal(self.here.event):
                    return "goal"
                if stops and self._at_breakpoint(self.here.event):
                    return "error" if self.error is not None else "breakpoint"
                yield
            return "error" if self.error is not None else "end"
        finally:
            self._watch_all = False

    def _at_breakpoint(self, event: Event) -> bool:
        for point in self.breakpoints:
            try:
                met = point.meets(event, self._previous_step, self.values)
            except Exception as error:
                # The person's condition, not the engine: the run stands here and can go on.
                self._disable(point, error)
                return True
            if met:
                point.hits += 1
                if point.hits <= point.ignore:
                    continue
                point.enabled = not point.once
                self.hit = point
                return True
        return False

    def _disable(self, point: Breakpoint, error: Exception) -> None:
        point.enabled = False
        self.error = DebuggerError(
            f"breakpoint {point.id} ({point.label}) raised {type(error).__name__}: "
            f"{error}. It is disabled now; mend it, or remove it with clear_break"
        )
        self.error.__cause__ = error
        point.fail(str(self.error))

    @property
    def values(self) -> Any:
        """The named values that conditions and watches read; see `llmviz.trace.values`."""
        if self._values is None:
            from llmviz.trace.values import DebuggerValues

            self._values = DebuggerValues(self)
        return self._values

    def _refuse_end(self) -> None:
        """Say why the run cannot go forward."""
        if isinstance(self.error, DebuggerError) and not self.finished:
            self.error = None
        if self.error is not None:
            raise DebuggerError(
                f"the run ended with {type(self.error).__name__}: {self.error}. "
                "What it computed is still here; step back, or restart() to begin again"
            ) from self.error
        if self.finished:
            raise DebuggerError("the run is at its end; step back, or restart() to begin again")

    def _reset_subject(self) -> None:
        if is_context(self.subject):
            self.subject.memory.clear()
        if self._given_chain is not None:
            self._given_chain.reset()


def _sampler_names() -> set[str]:
    from llmviz.sampling import SAMPLERS

    return {name.replace("-", "_") for name in SAMPLERS}
