"""Which passes of two runs belong together, and their nodes held against each other.

Prompt is laid beside prompt, the first chosen token beside the first chosen token, and so on. A
prompt that one run took in one ubatch and the other in three is compared as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from llmviz.trace.compare_live import away
from llmviz.trace.compare_sides import ComparedRun, Node, Pass
from llmviz.trace.compare_sources import LiveRun
from llmviz.trace.diff import (
    Difference,
    NodeDiff,
    as_statistics,
    compare_arrays,
    compare_statistics,
    fitted,
    kind_of,
)
from llmviz.trace.records import TokenRecord
from llmviz.trace.summary import Statistics

__all__ = ["BUDGET", "Span", "align", "compare_span", "value_of"]

BUDGET = 128 << 20
"""Bytes of values that are held at once; what does not fit is computed in a further round."""

Key = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Span:
    """Passes of two runs that cover the same part of the text.

    Attributes
    ----------
    index : int
        Counted from 0.
    a, b : tuple of Pass
        One each, unless the runs cut their ubatches differently.
    same_tokens : bool
    text_a, text_b : str
        The text that the passes read.
    prompt : bool
        Whether it reads the prompt, and not a chosen token.
    """

    index: int
    a: tuple[Pass, ...]
    b: tuple[Pass, ...]
    same_tokens: bool
    text_a: str
    text_b: str
    prompt: bool

    @property
    def n_a(self) -> int:
        """Tokens that the first run reads here."""
        return sum(p.n_tokens for p in self.a)

    @property
    def n_b(self) -> int:
        """Tokens that the second run reads here."""
        return sum(p.n_tokens for p in self.b)


def align(a: ComparedRun, b: ComparedRun) -> list[Span]:
    """The passes of two runs that can be laid side by side; those without a counterpart are not."""
    groups = []
    for run in (a, b):
        given = sum(t.given for t in run.tokens())
        prompt = [p for p in run.passes() if p.start < given]
        rest = {p.start - given: [p] for p in run.passes() if p.start >= given}
        groups.append((prompt, rest))
    (prompt_a, rest_a), (prompt_b, rest_b) = groups
    cut = _cut_alike(prompt_a, prompt_b)
    pairs = [(*both, True) for both in cut]
    pairs += [(rest_a[i], rest_b[i], False) for i in sorted(rest_a.keys() & rest_b.keys())]
    tokens_a, tokens_b = a.tokens(), b.tokens()
    out = []
    for i, (pa, pb, is_prompt) in enumerate(pairs):
        ta, tb = (_read(t, p) for t, p in ((tokens_a, pa), (tokens_b, pb)))
        same = [(t.id, t.piece) for t in ta] == [(t.id, t.piece) for t in tb]
        out.append(Span(i, tuple(pa), tuple(pb), same, _text(ta), _text(tb), is_prompt))
    return out


def _cut_alike(a: Sequence[Pass], b: Sequence[Pass]) -> list[tuple[list[Pass], list[Pass]]]:
    """Smallest groups of passes that end at the same token; all as one where the ends differ."""
    if not a or not b:
        return []
    if a[-1].stop != b[-1].stop or a[0].start != b[0].start:
        # Prompts of another length: ubatch beside ubatch where there are as many, else as wholes.
        return [([x], [y]) for x, y in zip(a, b)] if len(a) == len(b) else [(list(a), list(b))]
    ends = {p.stop for p in a} & {p.stop for p in b}
    out: list[tuple[list[Pass], list[Pass]]] = [([], [])]
    rest = list(b)
    for p in a:
        out[-1][0].append(p)
        if p.stop in ends:
            while rest and rest[0].stop <= p.stop:
                out[-1][1].append(rest.pop(0))
            out.append(([], []))
    return [pair for pair in out if pair[0]]


def _read(tokens: Sequence[TokenRecord], passes: Sequence[Pass]) -> Sequence[TokenRecord]:
    return tokens[passes[0].start : passes[-1].stop]


def _text(tokens: Sequence[TokenRecord]) -> str:
    return "".join(t.piece.decode("utf-8", "replace") or f"‹{t.id}›" for t in tokens)


# -- nodes ---------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Seen:
    """A node of one run over the passes of a span."""

    node: Node
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    values: list[np.ndarray] = field(default_factory=list)
    missing: bool = False
    stats: Statistics | None = None

    def __post_init__(self) -> None:
        self.node = replace(self.node, value=None)  # it is valid only while it is shown

    def add(self, p: Pass, node: Node) -> None:
        self.shapes.append(node.shape)
        self.tokens.append(p.n_tokens)
        self.stats = node.stats
        self.missing = self.missing or node.value is None

    def joined(self) -> np.ndarray | None:
        """The values of several passes as the one that a single pass would have given."""
        if self.missing or len(self.values) != len(self.shapes):
            return None
        if len(self.values) == 1:
            return self.values[0]
        axis = self._axis()
        return None if axis is None else np.concatenate(self.values, axis)

    def _axis(self) -> int | None:
        """The axis that counts the tokens, None where it cannot be told."""
        if len({len(s) for s in self.shapes}) > 1:
            return None
        rank = len(self.shapes[0])
        for axis in range(rank):
            others = {tuple(n for i, n in enumerate(s) if i != axis) for s in self.shapes}
            sizes = [s[axis] for s in self.shapes]
            if len(others) == 1 and (sizes == self.tokens or (max(sizes) <= 1 and axis == 0)):
                return axis
        # A last layer computes only the rows that give an output: none of the earlier passes has.
        some = [s for s in self.shapes if 0 not in s]
        return 0 if rank and len(some) == 1 else None

    @property
    def shape(self) -> tuple[int, ...]:
        axis = self._axis() if len(self.shapes) > 1 else None
        if axis is None:
            return self.shapes[-1]
        total = sum(s[axis] for s in self.shapes)
        return tuple(total if i == axis else n for i, n in enumerate(self.shapes[-1]))


def compare_span(
    a: ComparedRun,
    b: ComparedRun,
    span: Span,
    *,
    budget: int = BUDGET,
    stop: Callable[[NodeDiff], bool] | None = None,
) -> tuple[list[NodeDiff], bool]:
    """All nodes of a span, in the order in which the first run computed them.

    Parameters
    ----------
    budget : int
        Bytes of one run's values that are held at once.
    stop : callable, optional
        ``stop(diff)``: no further round is needed after this node.

    Returns
    -------
    (list of NodeDiff, bool)
        The nodes, and whether all values were compared: the last round was reached.
    """
    with away(*{run.dbg for run in (a, b) if isinstance(run, LiveRun)}):
        return _compare(a, b, span, budget, stop)


def _compare(
    a: ComparedRun,
    b: ComparedRun,
    span: Span,
    budget: int,
    stop: Callable[[NodeDiff], bool] | None,
) -> tuple[list[NodeDiff], bool]:
    done: dict[Key, tuple[Difference | None, str]] = {}
    tried: set[Key] = set()
    while True:
        held, more = _hold(b, span.b, tried, budget)
        tried |= {key for key, x in held.items() if x.values}
        seen: dict[Key, _Seen] = {}

        def see(p: Pass, node: Node, held: dict = held, seen: dict = seen) -> None:
            mine = seen.get(node.key)
            if mine is None:
                mine = seen[node.key] = _Seen(node)
            mine.add(p, node)
            other = held.get(node.key)
            if node.key in done or other is None or not (other.values or other.missing):
                return
            if node.value is not None:
                mine.values.append(node.value if len(span.a) == 1 else np.array(node.value))
            if len(mine.shapes) == len(span.a):
                done[node.key] = _difference(mine, other, span)
                mine.values, other.values = [], []

        a.visit(span.a, see)
        rows = _rows(seen, held, done)
        if not more or (stop is not None and any(stop(r) for r in rows)):
            return rows, not more


def _hold(
    run: ComparedRun, passes: Sequence[Pass], tried: set[Key], budget: int
) -> tuple[dict[Key, _Seen], bool]:
    """The nodes of a run, with values of as many new ones as fit; whether there are more."""
    out: dict[Key, _Seen] = {}
    used, more = 0, False

    def see(p: Pass, node: Node) -> None:
        nonlocal used, more
        mine = out.get(node.key)
        first = mine is None
        if mine is None:
            mine = out[node.key] = _Seen(node)
        mine.add(p, node)
        if node.value is None or node.key in tried:
            return
        if first and used and used + node.value.nbytes * len(passes) > budget:
            more = True
            return
        if first or mine.values:
            used += node.value.nbytes
            mine.values.append(np.array(node.value))

    run.visit(passes, see)
    return out, more


def _difference(a: _Seen, b: _Seen, span: Span) -> tuple[Difference | None, str]:
    x, y = a.joined(), b.joined()
    if len(a.shapes) != len(b.shapes) and a.node.name.startswith("kq-"):
        # Before the mask, cells count that one run had not written yet when it came here.
        return None, "before the mask, ubatches of another size see other cells"
    if x is not None and y is not None:
        if x.dtype.kind not in "fiub" or y.dtype.kind not in "fiub":
            return None, f"{x.dtype} and {y.dtype} are not compared"
        both = fitted(x, y, span.n_a, span.n_b, a.node.name)
        if both is None:
            return None, "the shapes differ"
        return compare_arrays(both[0], both[1]), both[2]
    if a.shape != b.shape:
        return None, "the shapes differ"
    if len(a.shapes) > 1 or len(b.shapes) > 1:
        return None, "the values were not kept, and the runs cut their ubatches differently"
    stats_a = a.stats if x is None else as_statistics(x)
    stats_b = b.stats if y is None else as_statistics(y)
    found = None
    if stats_a is not None and stats_b is not None:
        found = compare_statistics(stats_a, stats_b)
    if found is None:
        which = "both runs" if x is None and y is None else "the first run" if x is None else (
            "the second run"
        )  # fmt: skip
        return None, f"not kept in {which}"
    return found, "from statistics: the error is at least this"


def _rows(
    a: dict[Key, _Seen], b: dict[Key, _Seen], done: dict[Key, tuple[Difference | None, str]]
) -> list[NodeDiff]:
    """All nodes of both runs: those of the first in their order, the others where they stood."""
    order = list(a)
    place = {key: float(i) for i, key in enumerate(order)}
    last = -1.0
    for i, key in enumerate(b):
        if key in place:
            last = place[key]
        else:
            place[key] = last + (i + 1) / (len(b) + 2)  # after what came before it
    out = []
    for i, key in enumerate(sorted(place, key=lambda k: place[k])):
        one, other = a.get(key), b.get(key)
        found, note = None, ""
        if key in done:
            found, note = done[key]
        elif one is None or other is None:
            note = f"only in the {'first' if other is None else 'second'} run"
        node = one.node if one is not None else other.node  # type: ignore[union-attr]
        out.append(
            NodeDiff(
                i,
                node.name,
                node.op,
                node.nth,
                node.layer,
                kind_of(node.name),
                one.shape if one is not None else None,
                other.shape if other is not None else None,
                one.node.n if one is not None else -1,
                other.node.n if other is not None else -1,
                found,
                note,
            )
        )
    return out


def value_of(run: ComparedRun, passes: Sequence[Pass], key: Key) -> np.ndarray | None:
    """One node's value over passes, as one array; None where it was not kept."""
    seen: list[_Seen] = []

    def see(p: Pass, node: Node) -> None:
        if node.key != key:
            return
        if not seen:
            seen.append(_Seen(node))
        seen[0].add(p, node)
        if node.value is not None:
            seen[0].values.append(np.array(node.value))

    run.visit(passes, see)
    return seen[0].joined() if seen else None
