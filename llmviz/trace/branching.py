"""Branches as verbs: forking at the current event, and going from one branch to another."""

from __future__ import annotations

from llmviz.trace.branches import Branch
from llmviz.trace.timeline import DebuggerError, Here
from llmviz.trace.travel import Travel
from llmviz.trace.working import Job

__all__ = ["Branching"]


class Branching(Travel):
    """Forking and switching; see `llmviz.trace.branches` for what a branch is."""

    @property
    def branch(self) -> Branch:
        """The branch that the run is on."""
        self._branches.current.n = self.here.n if self.here is not None else -1
        self._leave()
        return self._branches.current

    @property
    def branches(self) -> list[Branch]:
        """All branches, in the order in which they were made."""
        _ = self.branch  # brings the current one's numbers up to date
        return list(self._branches)

    def fork(self, name: str | None = None) -> Branch:
        """Make a branch at the current event and go on in it; the other one stays as it is."""
        with self._not_busy():
            self._refuse_generator()
            branch = self._fork(name, "")
        self._tell()
        return branch

    def _fork(self, name: str | None, reason: str) -> Branch:
        here = self.here
        if here is None:
            raise DebuggerError("nothing has run yet: there is nothing to fork")
        self._refuse_generator()
        self._leave()
        parent = self._branches.current
        child = self._branches.fork(name, here.n, reason)
        child.n_tokens, child.text = len(self.recorder.tokens), self.text
        parent.n = parent.furthest
        return child

    def switch(self, name: str, n: int | None = None) -> Here | None:
        """Go to another branch: to where it was left, or to its event `n`.

        A branch that was left by a fork is come back to where it had got furthest.
        """
        self._work(self._switch_to(name, n))
        return self.here

    def _switch_to(self, name: str, n: int | None = None) -> Job:
        """The piece of work of `switch`, which may be paused on the way to where it goes."""
        target = self._branches[name]
        where = None if n is None else self._checked_number(n)
        if target is self._branches.current:
            here = self._standing()
            return self._travel(here.n if where is None else where)
        self._standing()
        self._refuse_generator()
        return self._change_to(target, target.n if where is None else where)

    def _change_to(self, target: Branch, where: int) -> Job:
        self._leave()
        common = self._branches.common(self._branches.current, target)
        self._branches.current.n = self.here.n if self.here is not None else -1
        self._branches.current = target
        last = min(common, where)
        # Its own events stay in its log; the recorder keeps what both have in common.
        events = list(target.events)
        self._restore(max(last, 0), last)
        target.events.extend(r for r in events if last < r.n <= where)
        why = yield from self._replay(where, f"to branch {target.name}, event {where:,}")
        if target.ended and where >= target.furthest:
            self._take()
            why = "end"
        return why
