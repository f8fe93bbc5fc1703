"""The likeliest next tokens: logit, raw probability, what the sampler chain made of it, and when.

When: every layer's residual read early, through the final norm and the output matrix.
"""

from __future__ import annotations

from typing import Any

import traitlets as t

from llmviz.errors import LlmvizError
from llmviz.trace.early import Early, EarlyReader
from llmviz.trace.shares import NotKept
from llmviz.trace.shown import candidates
from llmviz.widgets.edits import EditsView
from llmviz.widgets.follow import answers
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
    lens : bool
        Whether every layer is read early (the logit lens); settable. It is computed on request, or
        when the page has drawn the rest, never while a run is under way.
    lens_token : int
        Whose logit and rank are followed, -1 for the one that was chosen; settable.
    lens_rows : list of {layer, top, logit, p, rank, entropy}
        What each layer would say; `top` is a list of {id, text, logit, p}; `rank` counts from 1.
    lens_about : dict
        state ("waiting", "read" or "missing"; empty where the lens is off), id, text, chosen, pos,
        n_vocab, most_entropy (of a blind guess), settled (layer from which on the token is the
        likeliest, or None), why (what is missing).
    """

    view_name = "logits"

    top: t.List = t.List().tag(sync=True)
    top_about = t.Dict().tag(sync=True)
    lens = t.Bool(False).tag(sync=True)
    lens_token = t.Int(-1).tag(sync=True)
    lens_rows: t.List = t.List().tag(sync=True)
    lens_about = t.Dict().tag(sync=True)

    _top_of: Any = None
    _lens_of: Any = None

    def __init__(self, dbg: Any, **kwargs: Any) -> None:
        self._reader = EarlyReader(dbg)
        super().__init__(dbg, **kwargs)

    def draw(self) -> None:
        """Show the newest logits, or those that a selected token was chosen from."""
        super().draw()
        if self.shows("logits"):
            self._draw_top()
            self._draw_lens()

    def _draw_top(self) -> None:
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

    # -- every layer read early --------------------------------------------------------------------

    def _draw_lens(self) -> None:
        """Let go of what was read where it no longer is this pass's; read nothing here."""
        if not self.lens:
            self._reader.release()
            self._lens_of, self.lens_rows, self.lens_about = None, [], {}
            return
        self._reader.ask()
        if self.dbg.recorder.logits is None and not self.top:
            self.lens_rows, self.lens_about = [], {"state": "missing", "why": _NOT_YET}
        elif (self._reader.key(self.selected), self.lens_token) != self._lens_of:
            self.lens_rows, self.lens_about = [], {"state": "waiting"}

    def read_early(self) -> Early | None:
        """Read every layer of the pass that is shown; None where that cannot be done.

        Rows that the recorder was not asked for before are computed again, silently.
        """
        self.refuse_busy()
        self.lens = True
        found, why = None, ""
        try:
            try:
                found = self._reader.read(self.selected, self.lens_token)
            except NotKept as missing:
                why = f"{missing}, and this run cannot go back"
                if self._reader.can_fetch:
                    self._reader.fetch(self.selected)
                    found = self._reader.read(self.selected, self.lens_token)
        except LlmvizError as error:
            why = str(error)
        with self.hold_sync():
            self._lens_of = self._reader.key(self.selected), self.lens_token
            if found is None:
                self.lens_rows, self.lens_about = [], {"state": "missing", "why": why[:300]}
            else:
                self._show_early(found)
            self.rev += 1
        return found

    def _show_early(self, found: Early) -> None:
        self.lens_rows = [
            {
                "layer": a.layer,
                "top": [
                    {
                        "id": k.id,
                        "text": k.piece.decode("utf-8", "replace")[:40],
                        "logit": k.logit,
                        "p": k.p,
                    }
                    for k in a.top
                ],
                "logit": a.logit,
                "p": a.p,
                "rank": a.rank + 1,
                "entropy": a.entropy,
            }
            for a in found.layers
        ]
        self.lens_about = {
            "state": "read",
            "id": found.token,
            "text": found.text[:40],
            "chosen": found.chosen,
            "pos": found.pos,
            "n_vocab": found.n_vocab,
            "most_entropy": found.most_entropy,
            "settled": found.settled,
        }

    @answers("lens")
    def _on_lens(self, message: dict[str, Any]) -> None:
        if self.lens and not self.dbg.running:
            self.read_early()

    @t.observe("lens", "lens_token")
    def _turn_lens(self, change: Any) -> None:
        if hasattr(self, "_answers"):
            self.refresh()

    def close(self) -> None:
        """Stop following, and ask the recorder for nothing any more."""
        if not self.closed:
            self._reader.release()
        super().close()

    @t.observe("selected")
    def _select(self, change: Any) -> None:
        self._top_of = None
        self.refresh()


_NOT_YET = "there are no logits yet: press Next token, or run to step 14"
