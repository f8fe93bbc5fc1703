"""What a person changed in a run: each change is an object with an event number.

A branch keeps its edits as a log. `due` says whether an edit acts at an event, `apply` carries it
out. Both are asked again, in the same order, whenever the run comes past that event another time,
so that a replay is the same run. Does not do: deciding when an edit may be made (`editing`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from llmviz.events import Event
from llmviz.trace.breakpoints import matches_name
from llmviz.trace.timeline import DebuggerError, shape_text

__all__ = [
    "Edit",
    "Intervention",
    "LogitEdit",
    "MemoryEdit",
    "Run",
    "SamplerEdit",
    "Switch",
    "TokenEdit",
    "ValueEdit",
    "checked_like",
]

MEMORY_OPS = ("seq_rm", "seq_cp", "seq_keep", "seq_add", "seq_div", "clear")


class Run(Protocol):
    """What an edit may touch: the running engine and its recorder."""

    recorder: Any

    @property
    def ctx(self) -> Any:
        """The context."""

    @property
    def generation(self) -> Any:
        """The generation that runs."""

    def keep_rows(self, n: int) -> None:
        """Remember all K and V rows before an operation that destroys them."""

    def accepted_tokens(self) -> list[int]:
        """Tokens that the sampler chain has accepted so far."""


@dataclass(eq=False)
class Edit:
    """One change that a person made.

    Attributes
    ----------
    id : int
        Counted from 1; what `Debugger.undo_edit` takes.
    n : int
        Number of the event at which it was made; -1: before the first event.
    name : str
        Name of that event.
    description : str
        What it does, in a few words.
    applied_at : int or None
        Number of the event at which it acted first.
    note : str
        Why it did not act, where it could not; else empty.
    """

    id: int
    n: int
    name: str
    description: str = ""
    applied_at: int | None = field(default=None, init=False)
    note: str = field(default="", init=False)

    def due(self, event: Event, n: int) -> bool:
        """Whether it acts at this event."""
        return n == self.n

    def wants(self, name: str, n: int) -> bool:
        """Whether node `name`, which would be event n, must be yielded for it to act."""
        return False

    def apply(self, event: Event, n: int, run: Run) -> None:
        """Act: put something in the place of the event's value, or change the engine's state."""
        raise NotImplementedError

    def forget(self, last: int) -> None:
        """Take note that the run will come again past everything after event `last`."""
        if self.applied_at is not None and self.applied_at > last:
            self.applied_at = None


@dataclass(eq=False)
class ValueEdit(Edit):
    """Another array in the place of a node's, an input's or the logits' value."""

    value: Any = None

    def wants(self, name: str, n: int) -> bool:
        """The node that was edited."""
        return n == self.n

    def apply(self, event: Event, n: int, run: Run) -> None:
        """Replace the value, if it is still the one that was edited."""
        if event.name != self.name:
            raise DebuggerError(f"event {n} is {event.name} now, the edit was for {self.name}")
        if isinstance(event.value, np.ndarray):
            checked_like(event, self.value)
        event.value = self.value


@dataclass(eq=False)
class _Next(Edit):
    """An edit that acts at the first event of one name, from the event at which it was made on."""

    awaited = ""

    def due(self, event: Event, n: int) -> bool:
        if event.kind != "data" or event.name != self.awaited or n < self.n:
            return False
        return self.applied_at is None or self.applied_at == n


@dataclass(eq=False)
class LogitEdit(_Next):
    """Another value for one token's logit."""

    token: int = 0
    logit: float = 0.0
    awaited = "logits"

    def apply(self, event: Event, n: int, run: Run) -> None:
        """Change the last row: it is the one that a token is chosen from."""
        value = np.array(event.value)  # [n_outputs, n_vocab]
        value[-1, self.token] = self.logit
        value.flags.writeable = False
        event.value = value


@dataclass(eq=False)
class TokenEdit(_Next):
    """Another token in the place of the one that the chain chose."""

    token: int = 0
    awaited = "selected"

    def apply(self, event: Event, n: int, run: Run) -> None:
        """Choose the token."""
        event.value = self.token


@dataclass(eq=False)
class MemoryEdit(Edit):
    """An operation on the cells of the KV cache, ``seq_rm(0, 2, 5)``."""

    op: str = ""
    args: tuple[int, ...] = ()

    def apply(self, event: Event, n: int, run: Run) -> None:
        """Carry it out, and let the recorder see the cells."""
        if self.op in ("clear", "seq_cp"):
            run.keep_rows(n)
        getattr(run.ctx.memory, self.op)(*self.args)
        run.recorder.see_cells(run.ctx.memory.cells, n)


@dataclass(eq=False)
class SamplerEdit(Edit):
    """Other parameters for one sampler of the chain, from here on."""

    index: int = 0
    params: dict[str, Any] = field(default_factory=dict)

    def apply(self, event: Event, n: int, run: Run) -> None:
        """Put a sampler with the new parameters, and what the old one remembers, in its place."""
        samplers = run.generation.chain.samplers
        samplers[self.index] = with_params(samplers[self.index], self.params, run.accepted_tokens())


@dataclass(eq=False)
class Intervention(Edit):
    """A change of every node of a name, from the event at which it was added on.

    Attributes
    ----------
    pattern : str
        Name or glob of the nodes.
    function : callable
        ``function(array, tensor) -> array`` of the same shape; gets a copy, must depend on nothing
        else, so that a replay gives the same numbers.
    switches : list of Switch
        When it was disabled and enabled again.
    broken : bool
        Whether it is off because it raised an error (see `note`).
    warning : str
        Why no node can fit the pattern; else empty.
    """

    pattern: str = ""
    function: Callable[[np.ndarray, Any], Any] | None = None
    switches: list[Switch] = field(default_factory=list)
    warning: str = field(default="", init=False)
    broken: bool = field(default=False, init=False)

    def active(self, n: int) -> bool:
        """Whether it is on at event n."""
        last = max((s for s in self.switches if s.n <= n), key=lambda s: (s.n, s.id), default=None)
        return n >= self.n and not self.broken and (last is None or last.on)

    def due(self, event: Event, n: int) -> bool:
        """At every node that fits, while it is on."""
        return event.kind == "node" and matches_name(self.pattern, event.name) and self.active(n)

    def wants(self, name: str, n: int) -> bool:
        """Every node that fits, while it is on."""
        return matches_name(self.pattern, name) and self.active(n)

    def apply(self, event: Event, n: int, run: Run) -> None:
        """Replace the node's value by what the function makes of it."""
        assert self.function is not None
        if fixed := fixed_memory(event.about):
            raise DebuggerError(f"{event.name} cannot be changed: {fixed}")
        event.value = checked_like(event, self.function(np.array(event.value), event.about))


@dataclass(eq=False)
class Switch(Edit):
    """An intervention goes off, or on again, from here on."""

    target: Intervention | None = None
    on: bool = False

    def due(self, event: Event, n: int) -> bool:
        """Never: the intervention itself asks."""
        return False


def checked_like(event: Event, value: Any) -> np.ndarray:
    """`value` as a read-only array that can stand in the place of the event's.

    Raises
    ------
    DebuggerError
        The shape differs, or the dtype cannot hold it.
    """
    old, new = np.asarray(event.value), np.asarray(value)
    if new.shape != old.shape:
        raise DebuggerError(
            f"{event.name} has shape {shape_text(old.shape)}, the new value has "
            f"{shape_text(new.shape)}"
        )
    if not np.can_cast(new.dtype, old.dtype, "same_kind"):
        raise DebuggerError(f"{event.name} holds {old.dtype}, the new value holds {new.dtype}")
    out = np.array(new, dtype=old.dtype)
    out.flags.writeable = False
    return out


def fixed_memory(tensor: Any) -> str:
    """Why a node's memory must not be written to; empty for what a graph computes or is fed.

    A view of the cache or of a weight has no memory of its own: a change would stay, and could not
    be taken back.
    """
    root = getattr(tensor, "root", None)
    if root is None or root.op != "NONE" or root.is_input:
        return ""
    if root.name.startswith("cache_"):
        return (
            "it is the KV cache itself; edit what is written there (Kcur, Vcur), or use memory_op"
        )
    return "it is a weight of the model"


def with_params(sampler: Any, changes: dict[str, Any], accepted: list[int]) -> Any:
    """A sampler with other parameters that remembers what the old one does.

    Raises
    ------
    DebuggerError
        For a parameter that it does not have.
    SamplerError
        For a value that it does not take.
    """
    unknown = sorted(set(changes) - set(sampler.params))
    if unknown:
        known = ", ".join(sampler.params) or "none"
        raise DebuggerError(
            f"{sampler.name} has no parameter {', '.join(unknown)}; its parameters are: {known}"
        )
    new = type(sampler)(**{**sampler.params, **changes})
    for token in accepted:
        new.accept(token)
    if hasattr(sampler, "rng") and "seed" not in changes:
        new.rng = sampler.rng.clone()  # the stream goes on
    if hasattr(sampler, "mu") and "tau" not in changes:
        new.mu, new.last_mu = sampler.mu, sampler.last_mu
    return new
