"""Changes of what has already happened: the run goes back first, and then on again.

Each is a piece of work, in slices like any replay, and may be paused. Paused before the change is
made nothing was changed; paused after it the run stands on its way, in the branch that has it.
"""

from __future__ import annotations

import math
from typing import Any

from llmviz.trace.editing import Editing
from llmviz.trace.edits import Edit, LogitEdit, MemoryEdit, SamplerEdit, Switch, TokenEdit
from llmviz.trace.timeline import DebuggerError, Here
from llmviz.trace.working import Job

__all__ = ["Revising"]


class Revising(Editing):
    """Another token, another logit, and taking an edit back; see the module's docstring."""

    # -- a logit -----------------------------------------------------------------------------------

    def edit_logit(self, token: int | str, value: float) -> Edit:
        """Give one token another logit: of this token's pass, if they are computed; else of the
        next.

        Where a token was already drawn from the logits, the run goes back to them (and forks).

        Parameters
        ----------
        token : int or str
            Id, or exact text of one token.
        value : float
            Not NaN; ``-inf`` forbids the token.
        """
        edit = self._logit_edit(token, value)
        self._work(self._give_logit(edit))
        return edit

    def _logit_edit(self, token: int | str, value: float) -> LogitEdit:
        token = self._checked_token(token)
        number = float(value)
        if math.isnan(number):
            raise DebuggerError("a logit cannot be NaN: no token could be chosen")
        description = f"logit of {self._shown(token)} = {number:g}"
        return LogitEdit(0, 0, "", description, token=token, logit=number)

    def _give_logit(self, edit: LogitEdit) -> Job:
        here, at = self.here, self.recorder.logits_n
        computed = here is not None and (
            here.step in (15, 16) or (here.kind == "exit" and here.name in ("output", "decode"))
        )
        if computed and at >= 0:
            yield from self._travel(at, f"to the logits of event {at:,}, to change one")
        return self._log_edit(edit)

    # -- a token -----------------------------------------------------------------------------------

    def choose_token(self, token: int | str, pos: int | None = None) -> Edit:
        """Choose the next token in the chain's place; where one was just accepted, that one.

        Parameters
        ----------
        token : int or str
            Id, or exact text of one token.
        pos : int, optional
            Position of a token that was generated before: the run goes back (and forks) there.
        """
        edit = self._token_edit(token)
        accepted = self._accepted_at(pos)
        self._work(self._choose(edit, accepted))
        return edit

    def take_token(self, token: int | str, n: int) -> Here | None:
        """Choose another token in the place of the one accepted at event `n`, and go on to it.

        Parameters
        ----------
        token : int or str
            Id, or exact text of one token.
        n : int
            Number of a ``token`` event of this branch, behind or ahead.
        """
        self._work(self._take_other(token, n))
        return self.here

    def _take_other(self, token: int | str, n: int) -> Job:
        """The piece of work of `take_token`."""
        self._standing()
        self._refuse_generator()
        return self._choose_and_go_on(self._token_edit(token), self._checked_number(n))

    def _choose_and_go_on(self, edit: TokenEdit, n: int) -> Job:
        why = yield from self._choose(edit, n)
        if why != "goal":
            return why
        return (
            yield from self._forward(
                lambda e: e.kind == "data" and e.name == "token", watch_all=False
            )
        )

    def _token_edit(self, token: int | str) -> TokenEdit:
        token = self._checked_token(token)
        return TokenEdit(0, 0, "", f"choose {self._shown(token)}", token=token)

    def _accepted_at(self, pos: int | None) -> int | None:
        """The event at which the token was accepted that is to be another; None for the next."""
        if pos is not None:
            chosen = [t for t in self.recorder.tokens if t.pos == pos and not t.given]
            if not chosen:
                raise DebuggerError(f"no token was generated at position {pos}")
            return chosen[0].n
        if self._is_at("exit", "sample") or self._is_at("enter", "accept"):
            return self._standing().n
        if self.here is not None and self.here.step == 16:
            return self.recorder.tokens[-1].n
        return None

    def _choose(self, edit: TokenEdit, accepted: int | None) -> Job:
        if accepted is not None:
            # It was chosen three events before: selected, end of sample, accept, token.
            what = f"to where event {accepted:,}'s token is chosen, to take another"
            yield from self._travel(max(0, accepted - 3), what)
            while not self._is_at("data", "selected") and self._standing().n < accepted:
                why = yield from self._forward(lambda event: True, watch_all=False, stops=False)
                if why != "goal":
                    return why
        return self._log_edit(edit)

    # -- taking back -------------------------------------------------------------------------------

    def undo_edit(self, which: Edit | int) -> Here | None:
        """Take an edit back as if it had never been made; the run comes to the same event again.

        Everything from the edit on is computed anew, and may be shorter. A branch that was made for
        this edit, and has nothing else of its own, is gone with it.
        """
        self._work(self._undo(which))
        return self.here

    remove = undo_edit

    def _undo(self, which: Edit | int) -> Job:
        """The piece of work of `undo_edit`."""
        return self._take_back(self._find(which))

    def _take_back(self, edit: Edit) -> Job:
        here, branch = self.here, self._branches.current
        gone = [edit, *(e for e in branch.edits if isinstance(e, Switch) and e.target is edit)]
        branch.edits = [e for e in branch.edits if e not in gone]
        if isinstance(edit, Switch) and edit.target is not None:
            edit.target.switches = [s for s in edit.target.switches if s is not edit]
        last = here.n if here is not None else -1
        live = here is None or last < edit.n or self._acts_live(edit, here)
        self._branches.diverge(branch, edit.n)
        if not self._branches.dissolve(branch, last):
            # The same only before the edit: what comes from it on is reached once more, or is not.
            self._come_only_to(last if live else max(edit.n - 1, -1))
        if here is None or live:
            self._renew_here()
            return "goal"
        self._restore(edit.n, edit.n - 1)
        what = f"to event {here.n:,} again, without: {edit.description}"
        return (yield from self._replay(here.n, what))

    def _come_only_to(self, n: int) -> None:
        """Take note that the branch has not come further than event n."""
        branch = self._branches.current
        if n < branch.furthest:
            tokens = [t for t in self.recorder.tokens if t.n <= n]
            branch.furthest, branch.ended, branch.n_tokens = n, False, len(tokens)
            branch.text = "".join(t.text for t in tokens if not t.given)
        while branch.events and branch.events[-1].n > n:
            branch.events.pop()

    def _acts_live(self, edit: Edit, here: Here) -> bool:
        """Whether an edit has changed nothing but the value that the run stands at."""
        return edit.n == here.n and not isinstance(edit, (MemoryEdit, SamplerEdit))

    # -- for `start` -------------------------------------------------------------------------------

    def _revision(self, action: str, arguments: tuple[Any, ...]) -> Job | None:
        """The piece of work of an action of this file."""
        if action == "undo-edit":
            return self._undo(*arguments)
        if action == "take-token":
            return self._take_other(*arguments)
        if action == "choose-token":
            token, pos = (*arguments, None)[:2]
            return self._choose(self._token_edit(token), self._accepted_at(pos))
        if action == "edit-logit":
            return self._give_logit(self._logit_edit(*arguments))
        return None
