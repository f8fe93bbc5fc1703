"""Which heads pushed a token: its logit split over all heads, and what happens without one.

A little over 400 lines: one widget, from the split of a logit to switching a head off.
"""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
import traitlets as t

from llmviz.errors import LlmvizError
from llmviz.trace import DebuggerError
from llmviz.trace.shares import NotKept, Split, measure, rows, split, switched_off, wanted, words
from llmviz.trace.summary import probabilities
from llmviz.widgets.drive import DrivingView
from llmviz.widgets.follow import answers

__all__ = ["HeadsView"]

TOP = 5
_OPTIONS = 6
_PIECE = 40


class HeadsView(DrivingView):
    """Which heads pushed this token?

    A logit is the sum of what every attention head and every feed-forward network wrote into the
    stream of the newest token (see `llmviz.trace.attribution`). This measures the direct path only:
    a head that works through a later head shows there, not here. Switching a head off shows all
    that it does.

    Parameters
    ----------
    dbg : Debugger
    attention : AttentionView or DebuggerPanel, optional
        Which view `look` turns to a head; by default the debugger's panel, where it is shown.
    **traits

    Traits
    ------
    layer, head : int
        The chosen cell; settable.
    token : int
        Whose logit is split; -1 for the token that was chosen, before that the likeliest; settable.
    look_at : list of int
        [layer, head] whose attention was asked for last; empty before.
    shares : bytes
        float32[n_layer, n_head + 1] in logits; the last column are the feed-forward networks. Empty
        where nothing is known.
    heads_about : dict
        n_layer, n_head, id, text, pos, chosen, logit, p, sum, heads, ffn, embedding, biases (sums),
        scale (where the colours end), whole (whether the shares add up to the logit), top ([layer,
        head, share, words] of the largest), against (of the smallest); or else why (what is
        missing) and measurable.
    heads_tokens : list of {id, text, p_raw, chosen}
        Tokens to choose from.
    heads_off : list of {id, layer, heads}
        Heads that are switched off, with the numbers of their edits.
    heads_change : dict
        before, now (raw probabilities of the token, with all heads and without those that are off),
        logit_before, logit_now, kept (name of the branch that holds the run as it was); after an
        undo same and of (how many logits are as before, bit for bit, and how many there are); empty
        where nothing is off, or nothing was seen before.
    """

    view_name = "heads"

    layer = t.Int(0).tag(sync=True)
    head = t.Int(0).tag(sync=True)
    token = t.Int(-1).tag(sync=True)
    look_at = t.List(t.Int()).tag(sync=True)
    shares = t.Bytes(b"").tag(sync=True)
    heads_about = t.Dict().tag(sync=True)
    heads_tokens: t.List = t.List().tag(sync=True)
    heads_off: t.List = t.List().tag(sync=True)
    heads_change = t.Dict().tag(sync=True)

    _heads_of: Any = None
    _heads_split: Split | None = None
    _heads_asked = False
    _heads_quiet = False
    _heads_picked = _heads_own = False
    _token_for = -1  # the pass that a token was chosen for on the page
    _heads_undone = False
    # Of the pass with every head on: where it began, its logits, its largest share.
    _before: tuple[int, np.ndarray, float] | None = None

    def __init__(self, dbg: Any, attention: Any = None, **kwargs: Any) -> None:
        self._heads_attention = attention
        self._heads_owner = object()
        self._heads_picked = "layer" in kwargs or "head" in kwargs
        super().__init__(dbg, **kwargs)

    # -- drawing -----------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Bring all traits in line with the debugger, but not halfway through a change."""
        if not self._heads_quiet:
            super().refresh()

    def draw(self) -> None:
        """Split the newest logit, where the recorder has what that needs."""
        super().draw()
        if not self.shows("heads"):
            return  # what it asked for once stays asked: who looks elsewhere comes back
        self._heads_ask()
        if self.goes_on:
            return
        if self.dbg.running and self._heads_of is not None:
            return
        recorder = self.dbg.recorder
        state = (
            id(recorder.logits),
            recorder.logits_n,
            len(recorder.tokens),
            self.token,
            self.dbg.branch.name,
            tuple((e.id, getattr(e, "active", lambda n: True)(self.dbg.n)) for e in self.dbg.edits),
            self._heads_split is not None,
        )
        if state == self._heads_of:
            return
        self._heads_draw()
        self._heads_of = (*state[:-1], self._heads_split is not None)

    def _heads_ask(self) -> None:
        if not self._heads_asked:
            self.dbg.recorder.ask(self._heads_owner, _Names(self.dbg))
            self._heads_asked = True

    def _heads_release(self) -> None:
        if self._heads_asked:
            self.dbg.recorder.release(self._heads_owner)
            self._heads_asked = False
            self._heads_of = None

    def _heads_draw(self) -> None:
        self.heads_off = [
            {"id": n, "layer": il, "heads": heads} for n, il, heads in switched_off(self.dbg)
        ]
        found: Split | None = None
        why, measurable = "", False
        try:
            found = split(self.dbg, self.token)
            if 0 <= self._token_for != found.start:  # that choice was for another pass
                self._token_for = -1
                self.token = -1
                found = split(self.dbg)
        except NotKept as error:
            why, measurable = str(error), self.dbg.can_restart
        except LlmvizError as error:
            why = str(error)
        self._heads_split = found
        if found is None:
            self.shares, self.heads_tokens, self.heads_change = b"", [], {}
            self.heads_about = {"why": why, "measurable": measurable}
            return
        self._heads_draw_split(found)
        self._heads_draw_change(found)

    def _heads_draw_split(self, found: Split) -> None:
        a = found.shares
        n_layer, n_head = a.heads.shape
        top = a.top_heads(TOP)
        least = int(a.heads.argmin())
        low = float(a.heads.reshape(-1)[least])
        if not self._heads_picked and not hasattr(self, "follow"):
            self._heads_own = True  # the largest one, until a person chooses
            self.layer, self.head = top[0][:2]
            self._heads_own = False
        scale = float(np.nanmax(np.abs(a.heads)))
        if self.heads_off and self._before is not None and self._before[0] == found.start:
            scale = max(scale, self._before[2])  # the same colours before and after
        self.shares = np.concatenate([a.heads, a.ffn[:, None]], 1).astype("<f4").tobytes()
        self.heads_about = {
            "n_layer": n_layer,
            "n_head": n_head,
            "id": a.token,
            "text": found.text[:_PIECE],
            "pos": found.pos,
            "chosen": found.chosen,
            "logit": found.logit,
            "p": found.p,
            "sum": a.logit,
            "heads": float(a.heads.sum(dtype=np.float64)),
            "ffn": float(a.ffn.sum(dtype=np.float64)),
            "embedding": a.embedding,
            "biases": a.biases,
            "scale": scale,
            "whole": found.whole,
            "top": [[il, h, v, words(v, found.logit)] for il, h, v in top],
            "against": [least // n_head, least % n_head, low, words(low, found.logit)]
            if low < 0
            else [],
        }
        options = [
            {"id": o.id, "text": o.text[:_PIECE], "p_raw": o.p_raw}
            for o in found.options[:_OPTIONS]
        ]
        if all(o["id"] != a.token for o in options):
            options.append({"id": a.token, "text": found.text[:_PIECE], "p_raw": found.p})
        taken = self.dbg.recorder.tokens[-1] if self.dbg.recorder.tokens else None
        id_taken = taken.id if taken is not None and taken.n > found.n else -1
        self.heads_tokens = [{**o, "chosen": o["id"] == id_taken} for o in options]

    def _heads_draw_change(self, found: Split) -> None:
        logits = self.dbg.recorder.logits
        assert logits is not None
        before = self._before
        if before is not None and before[0] != found.start:
            before = None
        self.heads_change = {}
        if not self.heads_off:
            if before is not None and self._heads_undone:
                same = int((logits.view(np.uint32) == before[1].view(np.uint32)).sum())
                self.heads_change = {"same": same, "of": len(logits)}
            self._before = (found.start, logits, self.heads_about["scale"])
        elif before is not None:
            token = found.shares.token
            self.heads_change = {
                "before": float(probabilities(before[1])[token]),
                "now": found.p,
                "logit_before": float(before[1][token]),
                "logit_now": found.logit,
                "kept": self.dbg.branch.parent or "",
            }
        self._heads_undone = False

    # -- what a person does ------------------------------------------------------------------------

    @t.observe("token", "layer", "head")
    def _heads_chosen(self, change: Any) -> None:
        if change.name != "token":
            self._heads_picked = self._heads_picked or not self._heads_own
        elif not self._heads_quiet and hasattr(self, "_answers"):
            self.refresh()

    def choose(self, token: int | str) -> None:
        """Split another token's logit, for this pass.

        Parameters
        ----------
        token : int or str
            Id, or exact text of one token.
        """
        number = self.dbg.values.token_id(token) if isinstance(token, str) else int(token)
        if self._heads_split is not None:
            self._token_for = self._heads_split.start
        self.token = number

    def measure_token(self) -> None:
        """Compute this token's pass once more, silently, to have what the shares need."""
        self.refuse_busy()
        self._heads_ask()
        measure(self.dbg)
        self._heads_of = None
        self.refresh()

    def look(self, layer: int | None = None, head: int | None = None) -> Any:
        """Turn the linked attention view, or the panel, to a head; by default the chosen one.

        Returns
        -------
        AttentionView or None
            The view that shows it now; None where there is none, and only `look_at` is set.
        """
        layer = self.layer if layer is None else layer
        head = self.head if head is None else head
        self.look_at = [layer, head]
        self._heads_picked = True
        view = self._heads_attention
        if view is None:
            view = self if hasattr(self, "attention_about") else self.dbg.panel
        if view is None or view.closed:
            return None
        view.layer, view.head = layer, head
        if view.has_trait("view"):
            view.view = "attention"
        return view

    def switch_off(self, layer: int | None = None, head: int | None = None) -> None:
        """Choose this token once more without a head: from the begin of its pass, in a branch.

        The run as it was is kept, as any change of the past; `undo` takes this one back.
        """
        self._switch_off(layer, head)
        self.go_through()

    def _switch_off(self, layer: int | None, head: int | None) -> None:
        """Set out to the begin of the pass; there the head is switched off."""
        self.refuse_busy()
        layer = self.layer if layer is None else layer
        head = self.head if head is None else head
        found, dbg = self._heads_split, self.dbg
        if found is None:
            raise DebuggerError("measure this token first: then it can be compared")
        if any(off["layer"] == layer and head in off["heads"] for off in self.heads_off):
            raise DebuggerError(f"layer {layer}, head {head} is off already: undo brings it back")
        token = next((k.n for k in dbg.recorder.tokens if k.n > found.n), dbg.n)
        with self._as_one():
            if self.token < 0:
                self._token_for = found.start
                self.token = found.shares.token  # the same token before and now
            self._heads_picked = True
            self.layer, self.head = layer, head
            self.set_out("goto", found.start, then=lambda: self._go_without(layer, head, token))

    def _go_without(self, layer: int, head: int, token: int) -> None:
        with self._as_one():
            self.dbg.ablate_heads(layer, [head])
            self.set_out("goto", token)

    def undo(self, which: int) -> None:
        """Take back what switched a head off; the run comes to the same event again."""
        self._switch_on(which)
        self.go_through()

    def _switch_on(self, which: int) -> None:
        self.refuse_busy()
        self.set_out("undo-edit", which, then=self._show_undone)

    def _show_undone(self) -> None:
        with self._as_one():
            self._heads_undone = True

    def _as_one(self) -> _Quietly:
        return _Quietly(self)

    def close(self) -> None:
        """Stop following, and ask the recorder for nothing any more."""
        if not self.closed:
            self._heads_release()
        super().close()

    # -- the page's questions ----------------------------------------------------------------------

    @answers("heads_token")
    def _on_token(self, message: dict[str, Any]) -> None:
        token = message.get("token")
        self.choose(token if isinstance(token, int) else str(token)[:200])

    @answers("heads_measure")
    def _on_measure(self, message: dict[str, Any]) -> None:
        self.measure_token()

    @answers("heads_look")
    def _on_look(self, message: dict[str, Any]) -> bool:
        """Whether some view shows it now."""
        return self.look(int(message["layer"]), int(message["head"])) is not None

    @answers("heads_off")
    def _on_off(self, message: dict[str, Any]) -> None:
        self._switch_off(int(message["layer"]), int(message["head"]))

    @answers("heads_undo")
    def _on_undo(self, message: dict[str, Any]) -> None:
        self._switch_on(int(message["which"]))

    # -- without scripts ---------------------------------------------------------------------------

    def _heads_rows(self) -> list[tuple[str, str]]:
        found = self._heads_split
        if found is None:
            return [("no shares yet", str(self.heads_about.get("why", "")))]
        out = rows(found)
        for off in self.heads_off:
            heads = ", ".join(map(str, off["heads"]))
            out.append(("switched off", f"layer {off['layer']}, head {heads}"))
        if "before" in self.heads_change:
            change = self.heads_change
            out.append(("probability", f"{change['before']:.1%} before, {change['now']:.1%} now"))
        return out

    def _heads_title(self) -> str:
        found = self._heads_split
        if found is None:
            return "Which heads pushed this token?"
        piece = found.text[:_PIECE].replace("\n", "\u23ce")
        return f"Which heads pushed {piece!r}? Logit {found.logit:.2f}, p {found.p:.1%}"

    def fallback_text(self) -> str:
        """The largest shares, in plain lines; docked, what the whole shows."""
        if self.view_name != HeadsView.view_name:
            return super().fallback_text()
        lines = [f"  {name}: {text}" for name, text in self._heads_rows()]
        return "\n".join((f"llmviz HeadsView\n  {self._heads_title()}", *lines))

    def fallback_html(self) -> str:
        """The largest shares, as a static table; docked, what the whole shows."""
        if self.view_name != HeadsView.view_name:
            return super().fallback_html()
        lines = "".join(
            f'<tr><th style="text-align:left">{escape(name)}</th>'
            f'<td style="text-align:left">{escape(text)}</td></tr>'
            for name, text in self._heads_rows()
        )
        title = escape(self._heads_title())
        return f"<table><caption>{title}</caption><tbody>{lines}</tbody></table>"


class _Names:
    """Says yes to what the shares need; the model is known when its nodes are computed."""

    def __init__(self, dbg: Any) -> None:
        self.dbg = dbg
        self.names: frozenset[str] = frozenset()

    def __call__(self, name: str) -> bool:
        if not self.names and getattr(self.dbg.model, "weights", None) is not None:
            self.names = wanted(self.dbg.model)
        return name in self.names


class _Quietly:
    """Several moves of the run as one change of the view."""

    def __init__(self, view: HeadsView) -> None:
        self.view = view

    def __enter__(self) -> None:
        self.inner = self.view._heads_quiet
        self.view._heads_quiet = True

    def __exit__(self, *exc: object) -> None:
        self.view._heads_quiet = self.inner
        if self.inner:
            return
        if not self.view.dbg.running:
            self.view._heads_of = None
        self.view.refresh()
