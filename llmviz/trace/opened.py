"""A saved run, opened again: everything that a debugger shows, and nothing that runs.

`open_trace` needs no model. The views take a `Trace` where they take a debugger; its steps move a
cursor over the events that were recorded. What was not recorded is said to be missing, never made
up. Nothing that a file holds is executed: a condition in it stays a text.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from llmviz.trace.branches import Branch
from llmviz.trace.breakpoints import Breakpoint, Known
from llmviz.trace.debugger import Debugger
from llmviz.trace.edits import Intervention
from llmviz.trace.opened_cursor import Cursor
from llmviz.trace.opened_parts import HeldModel, Past, held_branches, held_edits
from llmviz.trace.pages import Paged
from llmviz.trace.records import TokenRecord
from llmviz.trace.samplings import SamplerRow
from llmviz.trace.storage_read import Stored
from llmviz.trace.storage_zip import MOST_BYTES, TraceError

__all__ = ["Trace", "open_trace"]

_CHANGES = (
    "ablate_heads",
    "break_on",
    "choose_token",
    "disable",
    "edit",
    "edit_logit",
    "enable",
    "fork",
    "intervene",
    "mean",
    "memory_op",
    "scale",
    "set_sampler",
    "switch",
    "take_token",
    "undo_edit",
    "zero",
)


def open_trace(path: str | os.PathLike[str], *, max_bytes: int = MOST_BYTES) -> Trace:
    """Open what `Debugger.save` has written; no model is needed.

    Parameters
    ----------
    path : str or PathLike
    max_bytes : int
        What the arrays that are read may take in memory together.

    Returns
    -------
    Trace
        Standing at its last event.

    Raises
    ------
    TraceError
        The file is no trace, is damaged, claims more than it holds, or is of another version.
    """
    return Trace(path, max_bytes=max_bytes)


class Trace(Cursor, Paged):
    """A recorded run with a cursor; made by `open_trace`.

    Offers what views read of a `Debugger`. Steps go from one recorded event to the next; nodes that
    nobody watched were not recorded. Whatever would change the run raises `TraceError`.

    Attributes
    ----------
    recorder : Recorder
        As it was at the cursor's event: tokens, logits, cells, attention, kept values, statistics.
    model : HeldModel
        ``desc``, ``arch``, ``hparams`` and the texts of the tokens that occur; no weights.
    attrs : dict
        All attributes of the file: prompt, chain, context parameters, version ...
    here : Here or None
        The event at the cursor. A value that is not in the trace is a mapping that says so.
    """

    can_restart = False  # nothing can be computed again
    can_go_back = True
    running = False
    hit = None
    error: Exception | None = None
    stopped_by = "goal"
    way = None
    lines: tuple[Any, ...] = ()  # no generator stands anywhere
    points: tuple[Any, ...] = ()  # nor is there a way back

    def __init__(self, path: str | os.PathLike[str], *, max_bytes: int = MOST_BYTES) -> None:
        stored = Stored(path, max_bytes)
        super().__init__(stored)
        try:
            self.path = stored.zip.path
            self.attrs = stored.attrs.raw()
            self.model = HeldModel(stored)
            gf = SimpleNamespace(nodes=stored.graph, leafs=[]) if stored.graph else None
            self.ctx = SimpleNamespace(graph=SimpleNamespace(gf=gf), params=None)
            chain = [
                SimpleNamespace(name=s.get("name", str, ""), params=s.get("params", dict, {}))
                for s in stored.attrs.parts("chain")
            ]
            self.generation = SimpleNamespace(chain=chain)
            self.edits = held_edits(stored)
            self.branches = held_branches(stored)
            self.seconds = {
                int(k): float(v)
                for k, v in stored.attrs.get("seconds", dict, {}).items()
                if k.isdecimal() and type(v) is float
            }
        except BaseException:
            stored.zip.close()
            raise
        self.known = Known(
            nodes=frozenset(t.name for t in stored.graph),
            names=set(stored.events.names),
            n_layer=self.model.hparams.n_layer,
            n_vocab=self.model.vocab.n_tokens,
            piece_of=stored.piece,
        )
        self.breakpoints: list[Breakpoint] = []
        self.panel: Any = None
        self._values: Any = None
        self._move(len(stored.events) - 1)

    # -- what is known -------------------------------------------------------------------------

    @property
    def events(self) -> Past:
        """Light records of the events up to the cursor, the oldest first."""
        return Past(self._stored.events, self._i + 1)

    @property
    def all_events(self) -> Past:
        """Light records of all events."""
        return Past(self._stored.events, len(self._stored.events))

    @property
    def all_tokens(self) -> list[TokenRecord]:
        """All tokens, those after the cursor too."""
        return self._stored.tokens

    @property
    def furthest(self) -> int:
        """Number of the last event that was recorded."""
        n = self._stored.events.n
        return int(n[-1]) if len(n) else -1

    @property
    def finished(self) -> bool:
        """Whether the cursor stands at the end of a run that came to its end."""
        return self._at_end() and self._stored.attrs.get("finished", bool, False)

    @property
    def engine(self) -> str:
        """What computed the run: ``"llmviz"``, or ``"llama.cpp"`` for a recording of it."""
        return self.recorder.engine

    @property
    def text(self) -> str:
        """The text generated up to the cursor."""
        return "".join(t.text for t in self.tokens if not t.given) + self.recorder.rest

    @property
    def chain(self) -> list[Any]:
        """The samplers, each with its ``name`` and ``params``."""
        return self.generation.chain

    @property
    def branch(self) -> Branch:
        """The branch that was saved; its events end at `furthest`."""
        name = self._stored.attrs.get("branch", str, "main")
        found = next((b for b in self.branches if b.name == name), self.branches[0])
        found.n = self.n
        return found

    @property
    def kept_names(self) -> list[str]:
        """Nodes and inputs of which values were kept."""
        return self._stored.value_names()

    @property
    def samplings(self) -> list[SamplerRow]:
        """What each sampler did, at every token, the oldest first."""
        return self._stored.samplers

    @property
    def interventions(self) -> list[Intervention]:
        """The standing ones among the edits."""
        return [e for e in self.edits if isinstance(e, Intervention)]

    @property
    def missing(self) -> list[str]:
        """What the trace does not hold, in sentences; empty where nothing is missing."""
        out = []
        if not self._stored.zip.has("attention"):
            out.append("no attention was kept")
        elif self.recorder.dropped:
            out.append(self.recorder.dropped_text)
        if not self._stored.value_names():
            out.append("no values of nodes were kept: ask the recorder for them before the run")
        if not self._stored.n_statistics:
            out.append("no node was watched: there are no statistics (Debugger(..., want='*'))")
        if sum(r.row is not None for r in self._stored.logits) < len(self._stored.logits):
            out.append("only the ten largest logits of each pass (dbg.log.keep_logits = True)")
        if lost := self._stored.attrs.get("lost", int, 0):
            out.append(f"{lost:,} events or statistics were too many to be kept")
        return out

    @property
    def values(self) -> Any:
        """The named values that watches read; see `llmviz.trace.values`."""
        if self._values is None:
            from llmviz.trace.values import DebuggerValues

            self._values = DebuggerValues(self)
        return self._values

    # -- who follows ---------------------------------------------------------------------------

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` whenever the cursor has moved; what is returned ends that."""
        self._listeners.append(listener)

        def end() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return end

    def close(self) -> None:
        """Let go of the file."""
        self._closed = True
        self._listeners.clear()
        self._stored.zip.close()

    def clear_break(self, which: Any) -> None:
        """A trace has no breakpoints."""
        raise TraceError("a trace has no breakpoints")

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        count = len(self._stored.events)
        where = f"at {self.here!r}" if self.here is not None else "empty"
        return f"<Trace of {self.model.desc or 'a run'}, {count:,} events, {where}>"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        make: Any = Debugger.display_with
        if make is None:
            return {"text/plain": repr(self)}
        return make(self)._repr_mimebundle_(**kwargs)


def _refuser(name: str) -> Callable[..., Any]:
    def refuse(self: Trace, *args: Any, **kwargs: Any) -> Any:
        raise TraceError(
            f"{name}: a trace can be looked at, not changed; to change the run, make a Debugger "
            "of its model and prompt"
        )

    refuse.__name__ = name
    refuse.__doc__ = "Raises `TraceError`: a trace can be looked at, not changed."
    return refuse


for _name in _CHANGES:
    setattr(Trace, _name, _refuser(_name))
