"""The likeliest next tokens: logit, raw probability, and what the sampler chain made of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import traitlets as t

from llmviz.trace.summary import probabilities
from llmviz.widgets.tokens import TokensView

__all__ = ["LogitsView"]


class LogitsView(TokensView):
    """What does it want to say?

    Traits
    ------
    top : list of {id, text, logit, p_raw, p, cut, chosen}
        The ten largest logits; `p` is None where no chain has run or it gave no probabilities.
    top_about : dict
        n_vocab, entropy (of the raw probabilities, in nats), pos (the position they are for),
        sampled.
    """

    view_name = "logits"

    top: t.List = t.List().tag(sync=True)
    top_about = t.Dict().tag(sync=True)

    _top_of: Any = None

    def draw(self) -> None:
        """Show the newest logits, or those that a selected token was chosen from."""
        super().draw()
        tokens = self.dbg.tokens
        picked = tokens[self.selected] if 0 <= self.selected < len(tokens) else None
        if picked is not None and picked.top:
            self._show(picked.top, picked.id, picked.pos)
            self.top_about = {"pos": picked.pos, "sampled": True, "n_vocab": None, "entropy": None}
            return
        recorder = self.dbg.recorder
        if recorder.logits is None:
            self.top, self.top_about = [], {}
            return
        last = tokens[-1] if tokens else None
        chosen = last.id if last is not None and last.n > recorder.logits_n else None
        if self._top_of == (recorder.logits_n, chosen) and self.top:
            return
        self._top_of = (recorder.logits_n, chosen)
        p = probabilities(recorder.logits)
        self._show(recorder.top, chosen, len(tokens))
        self.top_about = {
            "pos": len(tokens) - (chosen is not None),
            "sampled": chosen is not None,
            "n_vocab": len(p),
            "entropy": float(-(p[p > 0] * np.log(p[p > 0])).sum()),
        }

    def _show(self, top: Any, chosen: int | None, pos: int) -> None:
        self._top_of = None if chosen is None else self._top_of
        self.top = [
            {
                "id": a.id,
                "text": a.text[:60],
                "logit": a.logit,
                "p_raw": a.p_raw,
                "p": a.p,
                "cut": a.cut,
                "chosen": a.id == chosen,
            }
            for a in top
        ]

    @t.observe("selected")
    def _select(self, change: Any) -> None:
        self._top_of = None
        self.refresh()
