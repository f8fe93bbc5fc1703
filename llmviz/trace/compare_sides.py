"""What can be compared: one small protocol that a run of any kind answers to.

A `ComparedRun` can be asked which passes (ubatches) it has, and for the nodes of one of them in the
order in which they were computed. A live run computes them anew, silently; a trace shows what was
kept, and statistics of the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from llmviz.trace.diff import plain_name
from llmviz.trace.records import Alternative, TokenRecord
from llmviz.trace.summary import Statistics
from llmviz.trace.timeline import Record

__all__ = ["ComparedRun", "Node", "Pass", "Row", "compares", "passes_of"]

# These compute nothing: they show numbers of another node in another shape. A write into the cache
# shows the whole cache; what is written has a name of its own (Kcur, Vcur).
_SAME_NUMBERS = frozenset(("NONE", "RESHAPE", "VIEW", "PERMUTE", "TRANSPOSE", "SET_ROWS"))
_SEEN_AGAIN = re.compile(r"\((?:view|reshaped|permuted|transposed)\)|^cache_")


def compares(name: str, op: str = "") -> bool:
    """Whether a node has numbers of its own."""
    return op not in _SAME_NUMBERS and _SEEN_AGAIN.search(name) is None


@dataclass(frozen=True, slots=True)
class Pass:
    """One ubatch of a run.

    Attributes
    ----------
    index : int
        Counted from 0 over the run.
    first, last : int
        Numbers of its first event, and of the last one before the next pass.
    n_tokens : int
    start : int
        Which token of the run its first one is.
    """

    index: int
    first: int
    last: int
    n_tokens: int
    start: int

    @property
    def stop(self) -> int:
        """Which token of the run comes after it."""
        return self.start + self.n_tokens


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One node of a pass, as a run shows it.

    Attributes
    ----------
    value : ndarray or None
        Valid during the call only.
    stats : Statistics or None
        Where the value was not kept.
    tensor : object
        With ``il`` and ``op``.
    """

    name: str
    op: str
    nth: int
    n: int
    shape: tuple[int, ...]
    value: np.ndarray | None
    stats: Statistics | None = None
    tensor: Any = None

    @property
    def key(self) -> tuple[str, str, int]:
        """What the same node of another run is found by."""
        return plain_name(self.name), self.op, self.nth

    @property
    def layer(self) -> int:
        """Its layer, -1 outside the layers."""
        il = getattr(self.tensor, "il", -1)
        if isinstance(il, int) and il >= 0:
            return il
        tail = self.name.rpartition("-")[2]
        return int(tail) if "-" in self.name and tail.isdecimal() else -1


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """The logits after a pass: all of them where they are known, and the likeliest tokens."""

    logits: np.ndarray | None
    top: tuple[Alternative, ...]


class ComparedRun(Protocol):
    """A run that can be asked for its nodes, pass by pass.

    Attributes
    ----------
    label : str
        What people call it.
    live : bool
        Whether its values are computed when they are asked for, and can be changed.
    """

    label: str
    live: bool

    def about(self) -> dict[str, Any]:
        """What is held against the other run: architecture, sizes, settings; by plain names."""
        ...

    def passes(self) -> Sequence[Pass]:
        """All passes that the run has computed."""
        ...

    def tokens(self) -> Sequence[TokenRecord]:
        """Tokens of the prompt and those chosen."""
        ...

    def visit(self, passes: Sequence[Pass], see: Callable[[Pass, Node], None]) -> None:
        """Show the nodes of passes that follow each other, in the order they were computed."""
        ...

    def logits(self, pass_: Pass) -> Row | None:
        """What the run wanted to say after a pass; None where there were no logits."""
        ...


def passes_of(
    records: Iterable[Record], last: int, tokens: Sequence[TokenRecord], count: int | None = None
) -> list[Pass]:
    """The passes that light records tell of.

    Parameters
    ----------
    last : int
        Number of the last event that counts.
    tokens : sequence of TokenRecord
    count : int or None
        How many passes have begun in all, where early records may be gone.
    """
    begins: list[tuple[int, int]] = []  # event number, tokens
    computed = False
    for r in records:
        if r.n > last:
            break
        if r.kind == "enter" and r.name == "process_ubatch":
            begins.append((r.n, 0))
            computed = False
        elif begins and r.kind == "data" and r.step == 13 and r.shape and not begins[-1][1]:
            if r.name in ("inp_tokens", "inp_pos"):
                begins[-1] = (begins[-1][0], r.shape[0])
        elif r.kind == "exit" and r.name == "process_ubatch":
            computed = True
    gone = max(0, count - len(begins)) if count is not None else 0
    if not begins:
        return []
    ends = [n - 1 for n, _ in begins[1:]] + [last]
    # Early records go first: by then every pass is one token, the last that was known.
    start = sum(t.n < begins[0][0] for t in tokens) - begins[0][1] if gone else 0
    out = []
    for i, ((n, n_tokens), end) in enumerate(zip(begins, ends, strict=True)):
        out.append(Pass(gone + i, n, end, n_tokens, start))
        start += n_tokens
    return out if computed else out[:-1]  # the last one has only begun
