"""Where the time went: each stretch between two looks at one clock belongs to one part of the run.

The clock is `time.perf_counter_ns`, and it is read at three kinds of places: where the debugger
asks the engine for its next event, where it gets that event, and around every node of a graph (see
`llmviz.ggml.sched.NodeTimes`). So a pass is cut into stretches without overlap or gap: kernels of
nodes; the engine's Python around them; and watching, that is asking who wants a node, copies,
statistics, edits and conditions. While the run stands, nothing is counted, and drawing is not
part of it.

What is kept is what was computed last: going back and on again measures a pass anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from time import perf_counter_ns
from typing import Any

import numpy as np

from llmviz.events import Event
from llmviz.trace.graph_blocks import PARTS, layers_of, part_of

__all__ = ["Computed", "GraphNames", "Pass", "Times"]

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GraphNames:
    """What the nodes of a graph are called, in the order in which they are computed.

    Attributes
    ----------
    names, ops : tuple of str
    layers : int32 [n_nodes]
        -1 outside of all layers.
    parts : uint8 [n_nodes]
        Index in `graph_blocks.PARTS`.
    """

    names: tuple[str, ...]
    ops: tuple[str, ...]
    layers: np.ndarray
    parts: np.ndarray

    @classmethod
    def of(cls, nodes: Sequence[Any]) -> GraphNames:
        """Read them off a graph's nodes."""
        return cls(
            tuple(t.name for t in nodes),
            tuple(t.op for t in nodes),
            np.array(layers_of(nodes), np.int32),
            np.array([PARTS.index(p) for p in part_of(nodes)], np.uint8),
        )


@dataclass(frozen=True, slots=True)
class Computed:
    """One run of a graph: nanoseconds in the kernel of each node, int64 [n_nodes]."""

    graph: GraphNames
    ns: np.ndarray


@dataclass(frozen=True, slots=True)
class Pass:
    """What one token took, or the prompt, or what came before it.

    Attributes
    ----------
    number : int
        0 for what comes before the first batch, then counted.
    kind : str
        ``"start"`` (steps 1 to 9), ``"prompt"`` or ``"token"``.
    n : int
        Number of its first event.
    n_tokens : int
        Tokens that went through the model.
    text : str
        The token that it chose, empty where there is none yet.
    paths : tuple of tuple of str
        Scopes that time was spent in, by their names from the outside in.
    steps : tuple of int
        The step of each.
    ns : int64 [n_paths, 2]
        Nanoseconds in a scope itself, without those inside it: the engine's, and of watching.
    computed : tuple of Computed
        Runs of graphs in it, one for each ubatch. Their kernels are part of the engine's time.
    n_seen : int
        Nodes that somebody looked at.
    quiet : bool
        Whether it was last computed by a replay that nobody saw.
    whole : bool
        Whether it came to its end.
    """

    number: int
    kind: str
    n: int
    n_tokens: int
    text: str
    paths: tuple[Path, ...]
    steps: tuple[int, ...]
    ns: np.ndarray
    computed: tuple[Computed, ...]
    n_seen: int
    quiet: bool
    whole: bool

    @property
    def total(self) -> int:
        """Nanoseconds in all; every division of a pass in `parts_of` sums to exactly this."""
        return int(self.ns.sum())

    @property
    def engine(self) -> int:
        """Nanoseconds of the engine: kernels and the Python around them."""
        return int(self.ns[:, 0].sum())

    @property
    def watching(self) -> int:
        """Nanoseconds that looking on took."""
        return int(self.ns[:, 1].sum())

    @property
    def kernels(self) -> int:
        """Nanoseconds in the kernels of nodes."""
        return sum(int(c.ns.sum()) for c in self.computed)

    @property
    def n_nodes(self) -> int:
        """Nodes that were computed."""
        return sum(len(c.ns) for c in self.computed)

    def record(self) -> dict[str, Any]:
        """The pass as plain lists and numbers, for a file."""
        return {
            "number": self.number,
            "kind": self.kind,
            "n": self.n,
            "n_tokens": self.n_tokens,
            "text": self.text,
            "paths": ["/".join(p) for p in self.paths],
            "steps": list(self.steps),
            "engine_ns": self.ns[:, 0].tolist(),
            "watching_ns": self.ns[:, 1].tolist(),
            "nodes": [
                {"names": list(c.graph.names), "ops": list(c.graph.ops), "ns": c.ns.tolist()}
                for c in self.computed
            ],
            "n_seen": self.n_seen,
            "quiet": self.quiet,
            "whole": self.whole,
        }


@dataclass(slots=True)
class _Open:
    """The pass that is being measured."""

    number: int
    kind: str
    n: int
    step: int = 0  # the latest
    n_tokens: int = 0
    text: str = ""
    spans: dict[Path, list[int]] = field(default_factory=dict)  # [engine, watching, step]
    computed: list[Computed] = field(default_factory=list)
    n_seen: int = 0
    quiet: bool = True

    def span(self, path: Path, step: int) -> list[int]:
        found = self.spans.get(path)
        if found is None:
            found = self.spans[path] = [0, 0, step]
        return found

    def copy(self) -> _Open:
        return replace(
            self,
            spans={path: list(span) for path, span in self.spans.items()},
            computed=list(self.computed),
        )

    def frozen(self, whole: bool, known: dict[Any, Any] | None = None) -> Pass:
        paths, steps = tuple(self.spans), tuple(s[2] for s in self.spans.values())
        ns = np.array([s[:2] for s in self.spans.values()], np.int64).reshape(-1, 2)
        return Pass(
            self.number,
            self.kind,
            self.n,
            self.n_tokens,
            self.text,
            paths if known is None else known.setdefault(paths, paths),  # equal ones are shared
            steps if known is None else known.setdefault(steps, steps),
            ns,
            tuple(self.computed),
            self.n_seen,
            self.quiet,
            whole,
        )


class Times:
    """Measures a run pass by pass.

    Who advances the run calls `ask` before it asks the engine for an event, `got` when it has it,
    and `rest` when the run stands. `mark` and `rewind` bring the account back with the run. A pass
    takes about 11 KB for a model of 30 layers.
    """

    def __init__(self) -> None:
        self._passes: list[Pass] = []
        self._open = _Open(0, "start", 0)
        self._clock = 0
        self._span: list[int] | None = None  # whose watching is under way
        self._asked = False
        self._undo: tuple[Path, int, int] = ((), 0, 0)  # what the latest event added
        self._known: dict[Any, Any] = {}
        self._graphs: list[tuple[Any, GraphNames]] = []

    # -- reading the clock -------------------------------------------------------------------------

    def ask(self) -> None:
        """The engine is asked for its next event."""
        now = perf_counter_ns()
        if self._span is not None:
            self._span[1] += now - self._clock
            self._span = None
        self._asked = True
        self._clock = now

    def got(self, event: Event, n: int, stack: Sequence[Any], quiet: bool) -> float:
        """The event is there: event `n`, inside the scopes of `stack`.

        Returns
        -------
        float
            Seconds that the engine took.
        """
        now = perf_counter_ns()
        spent, self._clock, self._asked = now - self._clock, now, False
        if event.kind == "enter" and event.step in (10, 11) and not 10 <= self._open.step <= 14:
            self._begin(n)
        entered = (event.name,) if event.kind == "enter" and not stack else ()
        path = tuple([s.name for s in stack]) + entered
        if event.step == 15 and event.kind == "data":
            path += (event.name,)  # one sampler
        this = self._open
        this.step = event.step
        this.quiet = this.quiet and quiet
        inside = bool(stack) and len(path) == len(stack)
        span = this.span(path, stack[-1].step if inside else event.step)
        span[0] += spent
        self._undo = (path, spent, 0)
        if event.kind == "node":
            this.n_seen += 1
        elif event.step in (13, 16):
            self._learn(event, path)
        self._span = span
        return spent / 1e9

    def rest(self) -> None:
        """The run stands: from here on nothing is counted until the engine is asked again."""
        now = perf_counter_ns()
        if self._span is not None:
            self._span[1] += now - self._clock
            self._span = None
        elif self._asked:  # it ended, or failed, before the next event
            self._open.span(("end of the run",), self._open.step)[0] += now - self._clock
        self._asked = False

    def _begin(self, n: int) -> None:
        self._passes.append(self._open.frozen(True, self._known))
        number = len(self._passes)
        self._open = _Open(number, "prompt" if number == 1 else "token", n)

    def _learn(self, event: Event, path: Path) -> None:
        this = self._open
        if event.name == "token":
            about = event.about if isinstance(event.about, dict) else {}
            this.text = str(about.get("text", ""))
        elif event.name == "process_ubatch" and event.kind == "enter":
            n_tokens = int(getattr(event.value, "n_tokens", 0))
            this.n_tokens += n_tokens
            self._undo = (*self._undo[:2], n_tokens)
        elif event.name == "graph_compute" and event.kind == "exit" and event.about is not None:
            self._learn_nodes(event.about, path)

    def _learn_nodes(self, times: Any, path: Path) -> None:
        """Take what the scheduler measured: kernels, and the asking, which is watching."""
        graph = self._names_of(times.graph)
        ns = np.array(times.compute, np.int64)
        if len(ns) != len(graph.names):
            return
        this = self._open
        this.computed.append(Computed(graph, ns))
        asked = np.array(times.ask, np.int64)
        for il in np.unique(graph.layers).tolist():
            span = this.spans.get((*path, f"layer-{il}") if il >= 0 else path)
            if span is not None:
                moved = int(asked[graph.layers == il].sum())
                span[0] -= moved
                span[1] += moved

    def _names_of(self, graph: Any) -> GraphNames:
        for known, names in self._graphs:
            if known is graph:
                return names
        names = GraphNames.of(graph.nodes)
        names = self._known.setdefault((names.names, names.ops), names)
        self._graphs = [*self._graphs[-1:], (graph, names)]
        return names

    # -- reading the account -----------------------------------------------------------------------

    @property
    def passes(self) -> list[Pass]:
        """All passes up to now, the one under way last."""
        if not self._open.spans:
            return list(self._passes)
        return [*self._passes, self._open.frozen(self._open.step == 16)]

    @property
    def n_passes(self) -> int:
        """How many there are."""
        return len(self._passes) + bool(self._open.spans)

    def last_computed(self) -> Computed | None:
        """The latest run of a graph that came to its end."""
        for runs in (self._open.computed, *(p.computed for p in reversed(self._passes))):
            if runs:
                return runs[-1]
        return None

    def mark(self) -> tuple[int, _Open]:
        """The account as it was before the latest event, which comes again after `rewind`."""
        this = self._open.copy()
        if self._span is not None:
            path, spent, n_tokens = self._undo
            this.spans[path][0] -= spent
            this.n_tokens -= n_tokens
        return len(self._passes), this

    def copy(self) -> Times:
        """An account that goes on by itself, for a replay that is not to be counted."""
        out = copy(self)
        out._passes, out._open = list(self._passes), self._open.copy()
        out._span, out._asked = None, False
        return out

    def rewind(self, mark: tuple[int, _Open]) -> None:
        """Come back to a mark: what was measured after it is forgotten."""
        n, this = mark
        del self._passes[n:]
        self._open = this.copy()
        self._span, self._asked = None, False
