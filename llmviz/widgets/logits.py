"""The likeliest next tokens: logit, raw probability, and what the sampler chain made of it."""

from __future__ import annotations

from typing import Any

import traitlets as t

from llmviz.trace.shown import candidates
from llmviz.widgets.edits import EditsView
from llmviz.widgets.tokens import TokensView

__all__ = ["LogitsView"]


class LogitsView(TokensView, EditsView):
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
        if not self.shows("logits"):
            return
        recorder = self.dbg.recorder
        # Entropy reads the whole vocabulary: only when there is something new.
        state = (recorder.logits_n, recorder.top, len(recorder.tokens), self.selected)
        if state == self._top_of:
            return
        self._top_of = state
        shown = candidates(recorder, self.selected)
        if shown is None:
            self.top, self.top_about = [], {}
            return
        self.top = [
            {
                "id": a.id,
                "text": a.text[:60],
                "logit": a.logit,
                "p_raw": a.p_raw,
                "p": a.p,
                "cut": a.cut,
                "chosen": a.id == shown.chosen,
            }
            for a in shown.top
        ]
        self.top_about = {
            "pos": shown.pos,
            "sampled": shown.chosen is not None,
            "n_vocab": shown.n_vocab,
            "entropy": shown.entropy,
        }

    @t.observe("selected")
    def _select(self, change: Any) -> None:
        self._top_of = None
        self.refresh()
