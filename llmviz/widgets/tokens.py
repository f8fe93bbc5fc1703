"""The text so far, token by token, shaded by the probability each was chosen with."""

from __future__ import annotations

from typing import Any

import traitlets as t

from llmviz.widgets.follow import DebuggerView

__all__ = ["TokensView"]

SHOWN = 200
_PIECE = 60  # characters of one piece that are sent; a vocabulary may hold anything


class TokensView(DebuggerView):
    """What came out?

    Traits
    ------
    tokens : list of {id, text, pos, n, given, p_raw, p, rank}
        The last tokens of the text; `p_raw` and the rest are None for the prompt's.
    n_tokens : int
        How many there are in all.
    selected : int
        Position whose alternatives are shown, -1 for the newest; settable.
    """

    view_name = "tokens"

    tokens: t.List = t.List().tag(sync=True)
    n_tokens = t.Int(0).tag(sync=True)
    selected = t.Int(-1).tag(sync=True)

    def draw(self) -> None:
        """Show the newest tokens."""
        super().draw()
        tokens = self.dbg.tokens
        if self.selected >= len(tokens):
            self.selected = -1
        self.n_tokens = len(tokens)
        self.tokens = [
            {
                "id": k.id,
                "text": k.text[:_PIECE],
                "pos": k.pos,
                "n": k.n,
                "given": k.given,
                "p_raw": k.p_raw,
                "p": k.p,
                "rank": k.rank,
            }
            for k in tokens[-SHOWN:]
        ]

    @t.observe("selected")
    def _select(self, change: Any) -> None:
        self.rev += 1
