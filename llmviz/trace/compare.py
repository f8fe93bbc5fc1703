"""Where do two runs part? Node by node along depth, pass by pass, token by token.

Compares two debuggers, two opened traces, two branches of one debugger, or any two runs that answer
to `llmviz.trace.compare_sides.ComparedRun`. Values that were not kept are computed once more,
silently, where there is a live engine; else statistics say how far apart they are at least. Runs
that do not match give a report of what matches and what does not.

Over 400 lines: one class that people call, with its docstrings; alignment, values, patching and
text have files of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from llmviz.errors import LlmvizError
from llmviz.trace.compare_live import away
from llmviz.trace.compare_patch import Patched, patch
from llmviz.trace.compare_report import report
from llmviz.trace.compare_sides import ComparedRun, Pass
from llmviz.trace.compare_sources import LiveRun, run_of
from llmviz.trace.compare_spans import BUDGET, Span, align, compare_span, value_of
from llmviz.trace.diff import LogitsDiff, NodeDiff, compare_logits, fitted
from llmviz.trace.records import TokenRecord
from llmviz.trace.timeline import DebuggerError

__all__ = ["TOLERANCE", "Comparison", "Match", "TokenDiff"]

TOLERANCE = 1e-3
"""Relative error from which on a node counts as different: above the rounding of half floats."""


@dataclass(frozen=True, slots=True)
class Match:
    """One thing that two runs were asked about.

    Attributes
    ----------
    what : str
    a, b : object
        None where a run does not tell.
    same : bool or None
        None where it cannot be said.
    """

    what: str
    a: Any
    b: Any

    @property
    def same(self) -> bool | None:
        """Whether both runs say the same; None where one does not tell."""
        return None if self.a is None or self.b is None else bool(self.a == self.b)


@dataclass(frozen=True, slots=True)
class TokenDiff:
    """The tokens of two runs at one place of the text.

    Attributes
    ----------
    i : int
    a, b : TokenRecord or None
        None behind the end of a run.
    """

    i: int
    a: TokenRecord | None
    b: TokenRecord | None

    @property
    def same(self) -> bool:
        """Whether both have the same token, by id and bytes."""
        if self.a is None or self.b is None:
            return False
        return (self.a.id, self.a.piece) == (self.b.id, self.b.piece)


class Comparison:
    """Two runs, held against each other; made by `llmviz.compare`.

    Parameters
    ----------
    a, b : Debugger, (Debugger, branch), Trace or ComparedRun
        The second is held against the first.
    tolerance : float
        Relative error that counts as a difference.
    labels : (str, str), optional
        What the two are called.
    budget : int
        Bytes of values that are held at once.

    Attributes
    ----------
    a, b : ComparedRun
    tolerance : float
        May be changed; nothing is computed again.
    """

    display_with: ClassVar[Callable[[Comparison], Any] | None] = None
    """Makes what a notebook shows; set by the layer above, which has the widgets."""
    figure_with: ClassVar[Callable[..., Any] | None] = None
    """Draws the figure; set by the layer above."""

    def __init__(
        self,
        a: Any,
        b: Any,
        *,
        tolerance: float = TOLERANCE,
        labels: tuple[str, str] = ("", ""),
        budget: int = BUDGET,
    ) -> None:
        self.tolerance = checked_tolerance(tolerance)
        self.a: ComparedRun = run_of(a, labels[0])
        self.b: ComparedRun = run_of(b, labels[1])
        if self.a.label == self.b.label and self.a is not self.b:
            self.a.label, self.b.label = f"{self.a.label} (a)", f"{self.b.label} (b)"
        self._budget = budget
        self._owned: list[Any] = []
        self._closed = False
        self.view: Any = None  # what a notebook shows, once it was shown
        self.refresh()

    # -- what is compared --------------------------------------------------------------------------

    def refresh(self) -> None:
        """Look at both runs again: they may have moved on."""
        self._states = self._now()
        self._spans: list[Span] = align(self.a, self.b)
        self._nodes: dict[int, list[NodeDiff]] = {}
        self._partly: dict[int, list[NodeDiff]] = {}
        self._pass: int | None = None

    def _now(self) -> tuple[Any, Any]:
        a, b = (getattr(run, "state", int)() for run in (self.a, self.b))
        return a, b

    @property
    def moved_on(self) -> bool:
        """Whether a run has moved or was changed since it was compared: `refresh` looks again."""
        return self._now() != self._states

    @property
    def passes(self) -> list[Span]:
        """The passes that have a counterpart, in order."""
        return list(self._spans)

    @property
    def pass_(self) -> int:
        """The pass whose `nodes` are shown: where the runs part, until another one is chosen.

        -1 where no pass can be compared.
        """
        if self._pass is None:
            self._pass = self._find()
        return self._pass

    @pass_.setter
    def pass_(self, index: int) -> None:
        self._pass = self.span(index).index

    def span(self, index: int | None = None) -> Span:
        """A pass of both runs, by its number; by default the one that is shown.

        Raises
        ------
        DebuggerError
            There is no such pass in both.
        """
        index = self.pass_ if index is None else index
        if isinstance(index, bool) or not isinstance(index, (int, np.integer)):
            raise DebuggerError(f"a pass is a number from 0 up, not {index!r}")
        if not 0 <= index < len(self._spans):
            have = f"0 to {len(self._spans) - 1}" if self._spans else "none"
            raise DebuggerError(
                f"there is no pass {index} that both runs have computed; there are: {have}. "
                "Run further, then refresh()"
            )
        return self._spans[index]

    @property
    def nodes(self) -> list[NodeDiff]:
        """All nodes of the pass that is shown, along depth."""
        return self.nodes_of(self.pass_) if self._spans else []

    def nodes_of(self, index: int) -> list[NodeDiff]:
        """All nodes of a pass, along depth; computed when they are first asked for."""
        span = self.span(index)
        if index not in self._nodes:
            self._nodes[index], _ = compare_span(self.a, self.b, span, budget=self._budget)
        return self._nodes[index]

    def _known(self, index: int) -> list[NodeDiff]:
        """As many nodes of a pass as are needed to know whether one is over the tolerance."""
        done = self._nodes.get(index)
        if done is None:
            done = self._partly.get(index, [])
            if not any(self._over(d) for d in done):
                done, whole = compare_span(
                    self.a, self.b, self._spans[index], budget=self._budget, stop=self._over
                )
                (self._nodes if whole else self._partly)[index] = done
        return done

    def _over(self, diff: NodeDiff) -> bool:
        return diff.over(self.tolerance)

    def _find(self) -> int:
        """The first pass with a node over the tolerance, else the first one."""
        shared = self._shared()
        # Both branches have the others in common.
        own = [s for s in self._spans if max(s.a[-1].last, s.b[-1].last) > shared]
        if any(self._is_new(span.index) for span in own):
            with away(*{run.dbg for run in (self.a, self.b) if isinstance(run, LiveRun)}):
                found = self._first_of(own)
        else:
            found = self._first_of(own)
        return found if found >= 0 or not self._spans else 0

    def _is_new(self, index: int) -> bool:
        return index not in self._nodes and index not in self._partly

    def _first_of(self, spans: Sequence[Span]) -> int:
        for span in spans:
            if any(self._over(d) for d in self._known(span.index)):
                return span.index
        return -1

    def _shared(self) -> int:
        """Number of the last event that two branches of a run have in common, -1 for none."""
        a, b = self.a, self.b
        if not (isinstance(a, LiveRun) and isinstance(b, LiveRun)) or a.dbg is not b.dbg:
            return -1
        branches = a.dbg._branches
        return branches.common(branches[a.branch], branches[b.branch])

    @property
    def first(self) -> NodeDiff | None:
        """The first node over the tolerance, of the first pass that has one; None for none."""
        index = self._find()
        nodes = self._known(index) if index >= 0 else []
        return next((d for d in nodes if self._over(d)), None)

    @property
    def first_pass(self) -> int:
        """The pass that `first` belongs to, -1 where no node is over the tolerance."""
        return self._find() if self.first is not None else -1

    # -- what is known besides ---------------------------------------------------------------------

    @property
    def matches(self) -> list[Match]:
        """What the runs have in common and what not: architecture, sizes, settings, prompt."""
        a, b = self.a.about(), self.b.about()
        out = [Match(what, a.get(what), b.get(what)) for what in dict.fromkeys((*a, *b))]
        prompts = [
            "".join(t.piece.decode("utf-8", "replace") for t in run.tokens() if t.given)
            for run in (self.a, self.b)
        ]
        ids = [[t.id for t in run.tokens() if t.given] for run in (self.a, self.b)]
        out.append(Match("prompt", prompts[0], prompts[1]))
        out.append(Match("prompt's tokens", ids[0], ids[1]))
        return out

    @property
    def same_vocabulary(self) -> bool:
        """Whether both call the same text by the same ids, as far as the runs show it."""
        a, b = self.a.about().get("n_vocab"), self.b.about().get("n_vocab")
        if a is not None and b is not None and a != b:
            return False
        pieces = {t.id: t.piece for t in self.a.tokens()}
        return all(pieces.get(t.id, t.piece) == t.piece for t in self.b.tokens())

    @property
    def tokens(self) -> list[TokenDiff]:
        """The tokens of both runs, place by place."""
        a, b = list(self.a.tokens()), list(self.b.tokens())
        count = max(len(a), len(b))
        return [
            TokenDiff(i, a[i] if i < len(a) else None, b[i] if i < len(b) else None)
            for i in range(count)
        ]

    @property
    def first_token(self) -> TokenDiff | None:
        """The first place where both runs have a token, and another one; None for none."""
        return next((t for t in self.tokens if t.a and t.b and not t.same), None)

    def logits(self, index: int | None = None) -> LogitsDiff | None:
        """What the runs want to say after a pass; None where one of them had no logits there."""
        span = self.span(index)
        rows = [run.logits(passes[-1]) for run, passes in ((self.a, span.a), (self.b, span.b))]
        if rows[0] is None or rows[1] is None:
            return None
        a, b = rows[0], rows[1]
        return compare_logits(a.logits, b.logits, a.top, b.top, self.same_vocabulary)

    # -- one node ----------------------------------------------------------------------------------

    def node(self, name: str, index: int | None = None, op: str = "") -> NodeDiff:
        """One node of a pass by its name; of several of the same name the last.

        Raises
        ------
        DebuggerError
            Neither run has computed it there.
        """
        nodes = self.nodes_of(self.span(index).index)
        found = [d for d in nodes if d.name == name and (not op or d.op == op)]
        if not found:
            from difflib import get_close_matches

            near = get_close_matches(name, {d.name for d in nodes}, 3)
            hint = f"; near it: {', '.join(near)}" if near else ""
            raise DebuggerError(f"no node {name!r} in this pass{hint}")
        return found[-1]

    def values(
        self, node: NodeDiff | str, index: int | None = None
    ) -> tuple[np.ndarray | None, np.ndarray | None]:
        """A node's value in both runs; None where it was not kept and there is no engine."""
        span = self.span(index)
        diff = self.node(node, span.index) if isinstance(node, str) else node
        pairs: tuple[tuple[ComparedRun, Sequence[Pass], Any], ...] = (
            (self.a, span.a, diff.shape_a),
            (self.b, span.b, diff.shape_b),
        )
        out = [
            value_of(run, passes, diff.key) if shape is not None else None
            for run, passes, shape in pairs
        ]
        return out[0], out[1]

    def fitted(
        self, node: NodeDiff | str, index: int | None = None
    ) -> tuple[np.ndarray, np.ndarray, str] | None:
        """A node's values cut to what was compared, and a note on that; None where there is
        nothing to lay side by side.
        """
        span = self.span(index)
        diff = self.node(node, span.index) if isinstance(node, str) else node
        a, b = self.values(diff, span.index)
        if a is None or b is None:
            return None
        return fitted(a, b, span.n_a, span.n_b, diff.name)

    def patch(
        self,
        name: str,
        pass_: int | None = None,
        *,
        into: str = "a",
        op: str = "",
        tokens: Sequence[int] | None = None,
        branch: str | None = None,
        go_on: bool = True,
    ) -> Patched:
        """Put a node's value of one run into the other, on a branch of its own, and go on.

        Parameters
        ----------
        name : str
            Such as ``"l_out-5"``; of several nodes of that name the last, or that of `op`.
        pass_ : int, optional
            By default the pass that is shown.
        into : {"a", "b"}
            The run that is changed; it must be live.
        tokens : sequence of int, optional
            Only the rows of these tokens of the pass, counted from 0, negative from the end.
        branch : str, optional
            Name of the new branch; ``"patch l_out-5"`` by default.
        go_on : bool
            Run on to where the run stood before; else it stands at the patched node.

        Returns
        -------
        Patched
            The edit, the branch, and what became of the next token.
        """
        return patch(self, name, pass_, into, op, tokens, branch, go_on)

    # -- telling of it -----------------------------------------------------------------------------

    def report(self) -> str:
        """What matches, what does not, and where the runs part, as plain text."""
        return report(self)

    def figure(self, **options: Any) -> Any:
        """Relative error along depth as a matplotlib figure; see `llmviz.plots.compare`."""
        draw = type(self).figure_with
        if draw is None:
            raise LlmvizError("figures are drawn by llmviz.plots: import llmviz.show first")
        return draw(self, **options)

    def own(self, *runs: Any) -> Comparison:
        """Close these with the comparison."""
        self._owned += runs
        return self

    def close(self) -> None:
        """Let go of the view, and of what was opened for the comparison."""
        if self._closed:
            return
        self._closed = True
        if self.view is not None:
            self.view.close()
        for run in self._owned:
            run.close()
        self._nodes.clear()
        self._partly.clear()

    def __enter__(self) -> Comparison:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Comparison of {self.a.label} and {self.b.label}, {len(self._spans)} passes>"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        make = type(self).display_with
        if make is None:
            return {"text/plain": self.report()}
        return make(self)._repr_mimebundle_(**kwargs)


def checked_tolerance(tolerance: Any) -> float:
    """A tolerance as a number.

    Raises
    ------
    DebuggerError
        It is none, or below zero.
    """
    try:
        number = float(tolerance)
    except (TypeError, ValueError):
        number = -1.0
    if not number >= 0:
        raise DebuggerError(f"a tolerance is a number from 0 up, such as 1e-3, not {tolerance!r}")
    return number
