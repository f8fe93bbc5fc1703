"""Breakpoints: where a free run stops.

A breakpoint is a place (a name or glob, a scope, a step, a layer, a token), a condition, or both. A
condition is an expression (``entropy > 3``) or a Python callable that gets the event. What can
never be hit is said in `Breakpoint.why_never`, as far as it is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from llmviz.events import Event

__all__ = ["BreakWarning", "Breakpoint", "Condition", "Known", "Where", "matches_name"]

Where = str | int | Callable[[Event], object]
Condition = Callable[[Event], object]

MAX_NAMES = 100_000  # a file with more tensors and fields than that is not searched
_CONDITION = re.compile(r"[<>=~]|!=|\b(?:and|or|not|any|in)\b")
_UPDATES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("token", "piece", "text", "tokens", "n_tokens"), ("token", "tokens")),
    **dict.fromkeys(("logits", "entropy", "top"), ("logits",)),
    **dict.fromkeys(("kv.used", "kv.size", "kv.n_seq", "kv.pos_max"), ("kv_cells",)),
}


def matches_name(pattern: str, name: str) -> bool:
    """Whether an event's name is the pattern, or fits it as a shell glob."""
    return name == pattern or fnmatchcase(name, pattern)


def looks_like_condition(text: str) -> bool:
    """Whether a text is rather a condition than an event's name."""
    return _CONDITION.search(text) is not None


@dataclass(frozen=True, slots=True)
class BreakWarning:
    """Why a breakpoint will not stop the run, and what to do about it."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(slots=True)
class Known:
    """What is known of a run: what a breakpoint can be held against.

    Attributes
    ----------
    nodes : frozenset of str
        Names of the graph's nodes and inputs; empty while no graph is known.
    names : set of str
        Names of all events that have passed.
    n_layer, n_vocab : int or None
    piece_of : callable or None
        ``piece_of(token) -> bytes``
    step : int
        The step that the run is in.
    """

    nodes: frozenset[str] = frozenset()
    names: set[str] = field(default_factory=set)
    n_layer: int | None = None
    n_vocab: int | None = None
    piece_of: Callable[[int], bytes] | None = None
    step: int = 0

    def learn(self, event: Event, model: Any) -> bool:
        """Look at an event; whether a model or a graph has become known."""
        self.step = event.step
        if len(self.names) < MAX_NAMES:
            self.names.add(event.name)
        news = False
        if self.piece_of is None and model is not None:
            vocab = model.vocab
            self.n_vocab = getattr(vocab, "n_tokens", None)
            if not getattr(model, "vocab_only", False):
                self.n_layer = getattr(model.hparams, "n_layer", None)
            self.piece_of = partial(vocab.token_to_piece, special=True)
            news = True
        graph = event.about if event.name.startswith(("can_reuse", "reserve_")) else None
        if event.name == "build_graph" and event.kind == "exit":
            graph = event.value
        if not self.nodes and graph is not None and hasattr(graph, "nodes"):
            inputs = (t.name for t in graph.leafs if t.is_input)
            self.nodes = frozenset((*(t.name for t in graph.nodes), *inputs))
            news = True
        return news


@dataclass(slots=True, eq=False)
class Breakpoint:
    """One place or condition to stop at.

    Attributes
    ----------
    id : int
        Counted from 1; what `Debugger.clear_break` takes.
    where : str, int, callable or None
        Name or glob; step number; or ``predicate(event) -> bool``.
    condition : Expression, callable or None
        What must hold there besides.
    token : int or str or None
        A chosen token, by id or by its text (with or without its leading space).
    layer : int or None
        The layer that the event belongs to.
    scope : str or None
        Name or glob of a scope: stops where it begins.
    ignore : int
        So many hits pass before the run stops.
    once : bool
        The first stop disables it.
    enabled : bool
        A disabled breakpoint neither stops nor counts.
    hits : int
        How often it was met, those that were ignored included.
    warning : BreakWarning or None
        Why it will not stop the run.
    """

    id: int
    where: Where | None
    enabled: bool = True
    hits: int = 0
    condition: Any = None
    token: int | str | None = None
    layer: int | None = None
    scope: str | None = None
    ignore: int = 0
    once: bool = False
    warning: BreakWarning | None = None

    @property
    def is_place(self) -> bool:
        """Whether it names a place, not a condition alone."""
        return any(x is not None for x in (self.where, self.token, self.layer, self.scope))

    @property
    def expression(self) -> Any:
        """The condition, where it is an expression."""
        return self.condition if hasattr(self.condition, "holds") else None

    def wants(self, name: str) -> bool:
        """Whether a node of this name must be yielded for this breakpoint to see it."""
        if not self.enabled or isinstance(self.where, int):
            return False
        if self.token is not None or self.scope is not None:
            return False
        if isinstance(self.where, str):
            return matches_name(self.where, name)
        if self.where is not None:
            return True
        if self.layer is not None:  # the layer's scope begins before its nodes
            return self.condition is not None and name.endswith(f"-{self.layer}")
        expression = self.expression
        return True if expression is None else expression.wants(name)

    def meets(self, event: Event, previous_step: int, values: Any = None) -> bool:
        """Whether to stop at this event, hits to be ignored aside.

        Parameters
        ----------
        event : Event
        previous_step : int
            Step of the event before.
        values : Values or None
            What an expression reads.
        """
        if not self.enabled or not self._is_here(event, previous_step):
            return False
        if self.condition is None:
            return True
        expression = self.expression
        if expression is None:
            return bool(self.condition(event))
        if not self.is_place and not _updates(expression, event, previous_step):
            return False
        return bool(expression.holds(values))

    def _is_here(self, event: Event, previous_step: int) -> bool:
        where = self.where
        if isinstance(where, int):
            if event.step != where or previous_step == where:
                return False
        elif isinstance(where, str):
            # A scope is one place, not two: its end does not stop again.
            if event.kind == "exit" or not matches_name(where, event.name):
                return False
        elif where is not None and not where(event):
            return False
        if self.scope is not None and not (
            event.kind == "enter" and matches_name(self.scope, event.name)
        ):
            return False
        if self.token is not None and not self._is_token(event):
            return False
        return self.layer is None or self._is_in_layer(event)

    def _is_token(self, event: Event) -> bool:
        if event.kind != "data" or event.name != "token" or event.step != 16:
            return False
        if isinstance(self.token, int):
            return int(event.value) == self.token
        piece = event.about["piece"].decode("utf-8", "replace")
        return self.token in (piece, piece.removeprefix(" "))

    def _is_in_layer(self, event: Event) -> bool:
        if event.kind == "node":
            il = getattr(event.about, "il", None)
            here = il == self.layer or event.name.endswith(f"-{self.layer}")
            return here and (self.where is not None or self.condition is not None)
        return event.kind == "enter" and event.name == f"layer-{self.layer}"

    # -- can it be hit? --------------------------------------------------------------------------

    @property
    def why_never(self) -> str:
        """Why the run will not stop here; empty where nothing speaks against it."""
        return self.warning.text if self.warning is not None else ""

    def check(self, known: Known) -> None:
        """Set `warning` from what is known of the run."""
        text = (
            self._bad_layer(known)
            or self._bad_token(known)
            or self._bad_step(known)
            or self._bad_name(known)
            or self._bad_expression(known)
        )
        self.warning = BreakWarning(text) if text else None

    def _bad_layer(self, known: Known) -> str:
        if self.layer is None or known.n_layer is None or self.layer < known.n_layer:
            return ""
        return (
            f"layer {self.layer} never runs: the model has {known.n_layer} layers, "
            f"0 to {known.n_layer - 1}"
        )

    def _bad_token(self, known: Known) -> str:
        if self.token is None or known.n_vocab is None:
            return ""
        if isinstance(self.token, int):
            if 0 <= self.token < known.n_vocab:
                return ""
            return f"there is no token {self.token}: ids are 0 to {known.n_vocab - 1}"
        if known.piece_of is None:
            return ""
        pieces = {self.token.encode("utf-8"), b" " + self.token.encode("utf-8")}
        if any(known.piece_of(i) in pieces for i in range(known.n_vocab)):
            return ""
        return (
            f"no token has the text {self.token[:40]!r}: the vocabulary writes it with several; "
            "stop at its first piece"
        )

    def _bad_step(self, known: Known) -> str:
        if not isinstance(self.where, int) or self.where > 9 or known.step <= self.where:
            return ""
        return f"step {self.where} is over, it comes once in a run: go back, or restart()"

    def _bad_name(self, known: Known) -> str:
        pattern = self.where if isinstance(self.where, str) else self.scope
        if pattern is None or not known.nodes:
            return ""
        there = known.nodes | known.names | _LATER
        if self.scope is not None:
            there -= known.nodes
        return never_matches(pattern, there)

    def _bad_expression(self, known: Known) -> str:
        expression = self.expression
        if expression is None or not known.nodes:
            return ""
        for name in sorted(expression.names):
            text = never_matches(name, known.nodes)
            if text:
                return text
        return ""

    def fail(self, why: str) -> None:
        """Switch it off because asking it raised an error."""
        self.enabled = False
        self.warning = BreakWarning(why)

    @property
    def label(self) -> str:
        """How a list of breakpoints shows it."""
        parts = []
        if isinstance(self.where, str):
            parts.append(self.where)
        elif isinstance(self.where, int):
            parts.append(f"step {self.where}")
        elif self.where is not None:
            parts.append(_callable_name(self.where))
        if self.scope is not None:
            parts.append(f"scope {self.scope}")
        if self.token is not None:
            parts.append(f"token {self.token!r}")
        if self.layer is not None:
            parts.append(f"layer {self.layer}")
        if self.condition is not None:
            expression = self.expression
            text = expression.text if expression is not None else _callable_name(self.condition)
            parts.append(f"if {text}" if parts else text)
        return ", ".join(parts)


_EVERY_TOKEN = """
prompt tokenize tokens batch decode balloc_init init_batch ubatches slots process_ubatch kv_cells
can_reuse build_graph set_inputs graph_compute output output_ids logits sample selected accept
token stop
"""
_LATER = frozenset(_EVERY_TOKEN.split())
"""Names of events that come with every token: a breakpoint on them is no mistake."""


def never_matches(pattern: str, names: Iterable[str]) -> str:
    """Why no name fits a pattern, with the nearest that there are; empty where one fits."""
    names = list(names)
    if any(matches_name(pattern, name) for name in names):
        return ""
    near = get_close_matches(pattern, names, 3)
    hint = f"; near it: {', '.join(near)}" if near else ""
    return f"no event is called {pattern[:60]!r} in this graph{hint}"


def _updates(expression: Any, event: Event, previous_step: int) -> bool:
    """Whether an event may change what an expression reads.

    Without it a run could not leave a condition that goes on to hold.
    """
    from llmviz.trace.values import VARIABLES

    variables = expression.variables
    if getattr(event.value, "size", 1) == 0:  # a last layer none of whose rows is an output
        return False
    if event.kind == "node" and expression.wants(event.name):
        return True
    if expression.wants("") or any(VARIABLES[v].here for v in variables & VARIABLES.keys()):
        return True
    if event.kind == "data" and any(event.name in _UPDATES.get(v, ()) for v in variables):
        return True
    if event.kind == "data" and event.step == 13 and expression.keeps(event.name):
        return True
    if "step" in variables and event.step != previous_step:
        return True
    others = variables - _UPDATES.keys() - VARIABLES.keys()  # a sampler's parameters
    begins = event.kind == "enter" and event.name == "sample"
    return begins and bool(others or "seconds" in variables)


def _callable_name(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)
