"""Values of nodes and inputs that somebody asked for, and statistics of all that were watched.

Does not do: budgets across other kinds of records (`llmviz.trace.recorder` weighs them together).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmviz.trace.summary import Statistics, statistics

__all__ = ["LAST_ROW", "Kept", "KeptValues"]

LAST_ROW = "[-1]"
"""Who says yes to ``l_out-3[-1]`` has the last row of ``l_out-3`` kept, under that name."""
N_STATISTICS = 32  # of each name; older ones go
N_ROWS = 8  # last rows of each name; older ones go


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """A copy of one value.

    Attributes
    ----------
    name : str
    n : int
        Number of the event.
    array : ndarray
        Read-only copy.
    tensor : llmviz.ggml.graph.Tensor or None
        Its graph tensor: op, sources, shape.
    pass_ : int
        Which ubatch computed it, counted from 0.
    """

    name: str
    n: int
    array: np.ndarray
    tensor: Any
    pass_: int


class KeptValues:
    """Copies by name, oldest first, and the latest statistics by name.

    Attributes
    ----------
    nbytes : int
        What the copies take.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        self._askers: dict[int, tuple[object, Callable[[str], bool]]] = {}
        self._asked: dict[str, bool] = {}
        self._held: dict[str, deque[Kept]] = {}
        self._stats: dict[str, deque[tuple[int, Statistics]]] = {}

    def ask(self, owner: object, want: Callable[[str], bool]) -> None:
        """Keep values of names that `want` says yes to, until `owner` releases them.

        It is asked for ``name[-1]`` too: yes to that keeps the last row alone, which of a long
        prompt is a small part.
        """
        self._askers[id(owner)] = (owner, want)
        self._asked.clear()

    def release(self, owner: object) -> None:
        """Take back what `owner` asked for, and let go of what nobody asks for any more."""
        self._askers.pop(id(owner), None)
        self._asked.clear()
        for name in [name for name in self._held if not self.asked(name)]:
            self.nbytes -= sum(kept.array.nbytes for kept in self._held.pop(name))

    def adopt_askers(self, other: KeptValues) -> None:
        """Take over who asked `other`, not what it holds."""
        self._askers = dict(other._askers)
        self._asked.clear()

    def asked(self, name: str) -> bool:
        """Whether somebody asked for this name; answers are remembered until somebody asks anew."""
        known = self._asked.get(name)
        if known is None:
            known = any(bool(want(name)) for _, want in self._askers.values())
            self._asked[name] = known
        return known

    def wants(self, name: str) -> bool:
        """Whether somebody asked for a name, or for its last row."""
        return self.asked(name) or self.asked(name + LAST_ROW)

    def keep(self, name: str, n: int, value: np.ndarray, tensor: Any, pass_: int) -> None:
        """Copy a value that somebody asked for."""
        held = self._held.setdefault(name, deque())
        if held and held[-1].n >= n:  # seen before the run came back here; it is the same
            return
        array = np.array(value)
        array.flags.writeable = False
        held.append(Kept(name, n, array, tensor, pass_))
        self.nbytes += array.nbytes
        if name.endswith(LAST_ROW) and len(held) > N_ROWS:
            self.nbytes -= held.popleft().array.nbytes

    def measure(self, name: str, n: int, value: np.ndarray) -> None:
        """Keep a value's statistics."""
        done = self._stats.setdefault(name, deque(maxlen=N_STATISTICS))
        if not done or done[-1][0] < n:
            done.append((n, statistics(value)))

    def oldest(self) -> Kept | None:
        """The copy with the smallest event number; a last row, which is small, only at the end."""
        full = (held[0] for name, held in self._held.items() if not name.endswith(LAST_ROW))
        found = min(full, key=lambda k: k.n, default=None)
        if found is None:
            found = min((held[0] for held in self._held.values()), key=lambda k: k.n, default=None)
        return found

    def drop(self, kept: Kept) -> None:
        """Let go of one name's oldest copy."""
        held = self._held[kept.name]
        held.popleft()
        self.nbytes -= kept.array.nbytes
        if not held:
            del self._held[kept.name]

    def truncate(self, last: int) -> None:
        """Forget everything of events after number `last`."""
        for name, held in list(self._held.items()):
            while held and held[-1].n > last:
                self.nbytes -= held.pop().array.nbytes
            if not held:
                del self._held[name]
        for done in self._stats.values():
            while done and done[-1][0] > last:
                done.pop()

    def value(self, name: str) -> Kept | None:
        """The latest copy, None where there is none."""
        held = self._held.get(name)
        return held[-1] if held else None

    def values(self, name: str) -> list[Kept]:
        """All copies still held, oldest first."""
        return list(self._held.get(name, ()))

    def stats(self, name: str, n: int | None = None) -> Statistics | None:
        """The latest statistics, or those of event n; None where the name was not watched then."""
        done = self._stats.get(name)
        if not done or (n is not None and done[-1][0] != n):
            return None
        return done[-1][1]
