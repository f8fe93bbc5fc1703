"""The text so far, token by token: click to travel, look at the alternatives, take another one."""

from __future__ import annotations

from typing import Any

import traitlets as t

from llmviz.trace import DebuggerError, TokenRecord
from llmviz.widgets.drive import DrivingView
from llmviz.widgets.follow import answers
from llmviz.widgets.journey import Journey

__all__ = ["TokensView"]

SHOWN = 200
_AHEAD = 40  # tokens after the current one that stay in the window
_PIECE = 60  # characters of one piece that are sent; a vocabulary may hold anything


class TokensView(DrivingView):
    """What came out?

    Traits
    ------
    tokens : list of {id, text, pos, n, given, p_raw, p, rank, ahead}
        A window of the text; `p_raw` and the rest are None for the prompt's. Tokens that lie ahead
        of the current event are there too, once the run has been there. `rank` counts from 1.
    n_tokens, n_ahead, first_token : int
        How many there are in all; how many lie ahead; position of the first that is shown.
    branches : list of {name, parent, fork_n, reason, current, n_tokens, text}
    selected : int
        Position whose alternatives the logits view shows, -1 for the newest; settable.
    """

    view_name = "tokens"

    tokens: t.List = t.List().tag(sync=True)
    n_tokens = t.Int(0).tag(sync=True)
    n_ahead = t.Int(0).tag(sync=True)
    first_token = t.Int(0).tag(sync=True)
    branches: t.List = t.List().tag(sync=True)
    selected = t.Int(-1).tag(sync=True)

    def draw(self) -> None:
        """Show the tokens around the current event."""
        super().draw()
        tokens, now = Journey.of(self.dbg).track.tokens, len(self.dbg.tokens)
        if self.selected >= len(tokens):
            self.selected = -1
        end = min(len(tokens), max(now + _AHEAD, SHOWN))
        shown = tokens[max(0, end - SHOWN) : end]
        self.n_tokens, self.n_ahead = len(tokens), len(tokens) - now
        self.first_token = shown[0].pos if shown else 0
        self.tokens = [
            {
                "id": k.id,
                "text": k.text[:_PIECE],
                "pos": k.pos,
                "n": k.n,
                "given": k.given,
                "p_raw": k.p_raw,
                "p": k.p,
                "rank": None if k.rank is None else k.rank + 1,
                "ahead": k.pos >= now,
            }
            for k in shown
        ]
        self.branches = [
            {
                "name": b.name[:_PIECE],
                "parent": b.parent,
                "fork_n": b.fork_n,
                "reason": b.reason[:80],
                "current": b is self.dbg.branch,
                "n_tokens": b.n_tokens,
                "text": b.text[-120:],
            }
            for b in self.dbg.branches
        ]

    @t.observe("selected")
    def _select(self, change: Any) -> None:
        self.rev += 1

    # -- what can be done with a token ---------------------------------------------------------

    def _token(self, pos: Any) -> TokenRecord:
        for k in Journey.of(self.dbg).track.tokens:
            if k.pos == pos:
                return k
        raise DebuggerError(f"there is no token at position {pos!r}")

    def goto_token(self, pos: int) -> None:
        """Travel to where the token at this position appeared."""
        self.dbg.goto(self._token(pos).n)

    def alternatives(self, pos: int) -> tuple[Any, ...]:
        """The ten largest logits that a token was chosen from; empty for the prompt's."""
        return self._token(pos).top

    def choose_another(self, pos: int, token: int | str) -> None:
        """Take another token at a position, in a branch of its own, and go to where it appears."""
        self.dbg.take_token(token, self._chosen(pos).n)

    def _chosen(self, pos: Any) -> TokenRecord:
        """The token at a position, which must not be the prompt's."""
        old = self._token(pos)
        if old.given:
            raise DebuggerError(
                "this token was given by the prompt: nothing else was to be chosen here"
            )
        return old

    def fork(self, name: str | None = None) -> None:
        """As `Debugger.fork`."""
        self.dbg.fork(name)

    def switch(self, name: str) -> None:
        """As `Debugger.switch`."""
        self.dbg.switch(name)

    @answers("alternatives")
    def _alternatives(self, message: dict[str, Any]) -> dict[str, Any]:
        k = self._token(message.get("pos"))
        return {
            "pos": k.pos,
            "given": k.given,
            "id": k.id,
            "text": k.text[:_PIECE],
            "rank": None if k.rank is None else k.rank + 1,
            "top": [
                {"id": a.id, "text": a.text[:_PIECE], "p_raw": a.p_raw, "p": a.p, "cut": a.cut}
                for a in k.top
            ],
        }

    @answers("choose-another")
    def _choose_another(self, message: dict[str, Any]) -> None:
        self.refuse_busy()
        token, old = message.get("token"), self._chosen(message["pos"])
        self.set_out("take-token", token if isinstance(token, int) else str(token), old.n)

    @answers("fork")
    def _fork(self, message: dict[str, Any]) -> None:
        self.refuse_busy()
        self.fork(str(message.get("name") or "").strip()[:_PIECE] or None)

    @answers("switch")
    def _switch(self, message: dict[str, Any]) -> None:
        self.refuse_busy()
        self.set_out("switch", str(message.get("name")))
