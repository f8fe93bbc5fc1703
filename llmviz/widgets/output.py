"""What came out: every generated token with its probability, its rank and what else was likely."""

from __future__ import annotations

from typing import Any

import traitlets as t

from llmviz.widgets.journey import Journey
from llmviz.widgets.tokens import TokensView

__all__ = ["OutputView"]

LINES = 64


class OutputView(TokensView):
    """What came out, and what else could have come out?

    Traits
    ------
    output : list of {pos, id, text, n, p_raw, p, rank, ahead, others}
        The newest generated tokens; `others` are the three likeliest besides.
    output_about : dict
        total (generated tokens), chars of the text.
    """

    view_name = "output"

    output: t.List = t.List().tag(sync=True)
    output_about = t.Dict().tag(sync=True)

    def draw(self) -> None:
        """List the newest generated tokens."""
        super().draw()
        if not self.shows("output"):
            return
        now = len(self.dbg.tokens)
        chosen = [k for k in Journey.of(self.dbg).track.tokens if not k.given]
        ahead = sum(k.pos >= now for k in chosen)
        end = min(len(chosen), max(len(chosen) - ahead + LINES // 4, LINES))
        self.output = [
            {
                "pos": k.pos,
                "id": k.id,
                "text": k.text[:40],
                "n": k.n,
                "p_raw": k.p_raw,
                "p": k.p,
                "rank": None if k.rank is None else k.rank + 1,
                "ahead": k.pos >= now,
                "others": [_other(a) for a in k.top if a.id != k.id][:3],
            }
            for k in chosen[max(0, end - LINES) : end]
        ]
        self.output_about = {"total": len(chosen), "text": self.dbg.text[-2000:]}


def _other(a: Any) -> dict[str, Any]:
    return {"id": a.id, "text": a.text[:20], "p_raw": a.p_raw}
