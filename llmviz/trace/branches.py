"""Branches of a run: each has its own edits, its own events and its own text.

A branch shares the events of its parent up to the one it was forked at. Does not do: running;
who switches replays from the nearest point that both branches share.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field

from llmviz.trace.edits import Edit, Intervention, Switch
from llmviz.trace.timeline import DebuggerError, Record

__all__ = ["Branch", "Branches"]


def copies(edits: Iterable[Edit], n: int) -> list[Edit]:
    """Edits made up to event n, for another branch to act on and to switch off by itself."""
    out = {e.id: copy(e) for e in edits if e.n <= n}
    for edit in out.values():
        edit.forget(n)
        if isinstance(edit, Intervention):
            edit.switches = []
    for edit in out.values():
        if isinstance(edit, Switch) and edit.target is not None:
            target = out[edit.target.id]
            assert isinstance(target, Intervention)
            edit.target = target
            target.switches.append(edit)
    return list(out.values())


@dataclass(eq=False)
class Branch:
    """One way that the run took.

    Attributes
    ----------
    name : str
    parent : str or None
        Name of the branch it was forked from; None for the first.
    fork_n : int
        Number of the event it was forked at.
    reason : str
        The edit that made it; empty for a fork by hand.
    n : int
        Number of the event at which it stands, or stood when it was left.
    furthest : int
        Largest event number it has reached.
    ended : bool
        Whether it came to the end of the generation.
    n_tokens : int
        Tokens it had where it was furthest, those of the prompt included.
    text : str
        The text generated there.
    edits : list of Edit
        In the order in which they were made.
    """

    name: str
    parent: str | None
    fork_n: int
    reason: str = ""
    n: int = -1
    furthest: int = -1
    ended: bool = False
    n_tokens: int = 0
    text: str = ""
    edits: list[Edit] = field(default_factory=list, repr=False)
    events: deque[Record] = field(default_factory=deque, repr=False)
    shared: dict[str, int] = field(default_factory=dict, repr=False)  # ancestor -> last common n


class Branches:
    """All branches of a run, in the order in which they were made.

    Attributes
    ----------
    current : Branch
    """

    def __init__(self, n_events: int) -> None:
        self._n_events = n_events
        self._made = 1  # a name is never given twice: who remembers a branch may rely on it
        self.current = Branch("main", None, -1, events=deque(maxlen=n_events))
        self._all = {self.current.name: self.current}

    def __iter__(self) -> Iterator[Branch]:
        return iter(self._all.values())

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, name: str) -> Branch:
        try:
            return self._all[name]
        except KeyError:
            raise DebuggerError(
                f"there is no branch {name!r}; there are: {', '.join(self._all)}"
            ) from None

    def fork(self, name: str | None, n: int, reason: str) -> Branch:
        """Make a branch of the current one at event n, and make it the current one.

        Raises
        ------
        DebuggerError
            The name is taken, or empty.
        """
        if name is None:
            count = self._made
            while (name := f"branch-{count}") in self._all:
                count += 1
        if not isinstance(name, str) or not name.strip() or name in self._all:
            raise DebuggerError(f"a branch needs a new name: {name!r} is empty or taken")
        parent = self.current
        child = Branch(name, parent.name, n, reason, n=n, furthest=n)
        child.edits = copies(parent.edits, n)
        child.events = deque((r for r in parent.events if r.n <= n), maxlen=self._n_events)
        child.shared = {other: min(n, last) for other, last in parent.shared.items()}
        child.shared[parent.name] = n
        self._all[name] = self.current = child
        self._made += 1
        return child

    def dissolve(self, branch: Branch, n: int) -> bool:
        """Let the current branch be the one it came from, where up to event n both are the same.

        Only a branch that an edit made goes: one that was made by hand was wanted. Its own branches
        become those of the other.
        """
        mine, last = {e.id for e in branch.edits}, max(n, branch.fork_n)
        parent: Branch | None = branch if branch.reason else None
        while parent is not None:
            parent = self._all.get(parent.parent or "")
            if parent is not None and {e.id for e in parent.edits if e.n <= last} == mine:
                break
        if parent is None:
            return False
        del self._all[branch.name]
        first = branch.shared[parent.name]
        for other in self._all.values():
            if other.parent == branch.name:
                other.parent, other.fork_n = parent.name, min(other.fork_n, first)
            other.shared.pop(branch.name, None)
        parent.events = branch.events
        for edit in parent.edits:
            edit.forget(n)
        self.current = parent
        return True

    def common(self, a: Branch, b: Branch) -> int:
        """Number of the last event that two branches have in common, -1 for none."""
        if a is b:
            return a.furthest
        if b.name in a.shared:
            return a.shared[b.name]
        if a.name in b.shared:
            return b.shared[a.name]
        both = a.shared.keys() & b.shared.keys()
        return max((min(a.shared[x], b.shared[x]) for x in both), default=-1)

    def diverge(self, branch: Branch, n: int) -> None:
        """Take note that a branch is its own from event n on: its past was changed there."""
        for other in self._all.values():
            if branch.name in other.shared:
                other.shared[branch.name] = min(other.shared[branch.name], n)
        branch.shared = {x: min(last, n) for x, last in branch.shared.items()}
