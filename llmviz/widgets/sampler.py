"""The sampler chain as a filmstrip: who was left after each sampler, who was cut and why."""

from __future__ import annotations

from html import escape
from typing import Any

import traitlets as t

from llmviz.errors import LlmvizError
from llmviz.trace import DebuggerError
from llmviz.trace.filmstrip import HeldStrip, Moment, Strip, moment_of, replay
from llmviz.widgets.drive import DrivingView
from llmviz.widgets.follow import answers

__all__ = ["SamplerView"]

ROWS = 12
_SEGMENTS = 40
_PIECE = 40

# Where the slider of a parameter ends, and its step; others get a number field alone.
_RANGES: dict[tuple[str, str], tuple[float, float, float]] = {
    ("top-k", "k"): (0, 100, 1),
    ("top-p", "p"): (0, 1, 0.01),
    ("min-p", "p"): (0, 1, 0.01),
    ("typical", "p"): (0, 1, 0.01),
    ("temp", "t"): (0, 2, 0.05),
    ("temp-ext", "t"): (0, 2, 0.05),
    ("top-n-sigma", "n"): (0, 5, 0.1),
    ("penalties", "penalty_repeat"): (1, 2, 0.05),
    ("xtc", "p"): (0, 1, 0.01),
    ("xtc", "t"): (0, 0.5, 0.01),
    ("mirostat", "tau"): (0, 10, 0.1),
    ("mirostat-v2", "tau"): (0, 10, 0.1),
    ("adaptive-p", "target"): (0, 1, 0.01),
    ("adaptive-p", "decay"): (0, 0.99, 0.01),
    ("dry", "dry_multiplier"): (0, 4, 0.1),
}


class SamplerView(DrivingView):
    """How was this token chosen?

    Traits
    ------
    selected : int
        Position of the token whose choice is shown, -1 for the newest logits; settable.
    n_rows : int
        How many of the likeliest tokens are shown; settable.
    what_if : dict
        Other parameters to replay with: index of a sampler (a number or its text) ->
        {parameter: value}; settable. Nothing is decoded and the run does not move.
    strip : dict
        pos, n_vocab, taken (id that the run took, None before), was (id that the replay with the
        run's own parameters gives), chosen (with `what_if`), n_shown, draw, draw_was, and frames:
        {index, name, params, off, before, after, cut, why, line, at, draw, now} for each sampler.
        `reason` says why there is nothing to show; `recorded`: the chain cannot run again, as in a
        trace, so that nothing can be moved.
    strip_rows : list of {id, text, logit}
    strip_p : bytes
        float32 [n_frames + 1, n_rows]: probability among those left, first of all tokens, then
        after each sampler. NaN where it was cut.
    strip_was : bytes
        The same without `what_if`; empty where that changes nothing.
    strip_rest : list of {p, n}
        For each line of `strip_p`: what all the tokens that are not shown have together.
    strip_segments : list of {id, text, start, end}
        The widest parts of the line on which the random number falls.
    strip_segments_was : list
        The same without `what_if`.
    """

    view_name = "sampler"

    selected = t.Int(-1).tag(sync=True)
    n_rows = t.Int(ROWS, min=1, max=200).tag(sync=True)
    what_if = t.Dict().tag(sync=True)
    strip = t.Dict().tag(sync=True)
    strip_rows: t.List = t.List().tag(sync=True)
    strip_p = t.Bytes(b"").tag(sync=True)
    strip_was = t.Bytes(b"").tag(sync=True)
    strip_rest: t.List = t.List().tag(sync=True)
    strip_segments: t.List = t.List().tag(sync=True)
    strip_segments_was: t.List = t.List().tag(sync=True)

    _strip_of: Any = None
    _strip_kept: tuple[Any, Strip | HeldStrip] | None = None  # the run's own, while a slider moves

    # -- drawing -------------------------------------------------------------------------------

    def draw(self) -> None:
        """Replay the chain where something has changed."""
        super().draw()
        if not self.shows("sampler"):
            return
        dbg, recorder = self.dbg, self.dbg.recorder
        own = (
            *(recorder.logits_n, id(recorder.logits), len(recorder.tokens), self.selected),
            *(dbg.n if dbg.here is not None and dbg.here.step == 15 else -1, len(dbg.edits)),
        )
        state = (own, self.n_rows, repr(self.what_if))
        if state == self._strip_of or dbg.running:
            return
        self._strip_of = state
        try:
            moment = moment_of(dbg, self.selected)
        except DebuggerError as error:
            self._strip_empty(str(error))
            return
        if moment is None:
            self._strip_empty("")
            return
        if self._strip_kept is None or self._strip_kept[0] != own:
            try:
                self._strip_kept = (own, replay(moment))
            except LlmvizError as error:
                self._strip_empty(str(error))
                return
        was = self._strip_kept[1]
        self._strip_draw(moment, was, replay(moment, self._changes()) if self.what_if else was)

    def _strip_empty(self, reason: str) -> None:
        self.strip = {"frames": [], "reason": reason}
        self.strip_rows, self.strip_p, self.strip_was = [], b"", b""
        self.strip_rest, self.strip_segments, self.strip_segments_was = [], [], []

    def _strip_draw(self, moment: Moment, was: Strip | HeldStrip, now: Strip | HeldStrip) -> None:
        ids = now.rows(self.n_rows, moment.token, was.chosen, now.chosen)
        self.strip_rows = [
            {"id": i, "text": self._strip_text(i), "logit": logit}
            for i, logit in zip(ids, now.logits(ids), strict=True)
        ]
        self.strip_p = now.shares(ids).astype("<f4").tobytes()
        self.strip_was = was.shares(ids).astype("<f4").tobytes() if now is not was else b""
        self.strip_rest = [{"p": p, "n": n} for p, n in now.rest(ids)]
        self.strip_segments = self._strip_line(now)
        self.strip_segments_was = self._strip_line(was) if now is not was else []
        now_steps: tuple[Any, ...] = now.steps
        was_steps: tuple[Any, ...] = was.steps
        self.strip = {
            "pos": moment.pos,
            "n_vocab": moment.n_vocab,
            "n_shown": len(ids),
            "taken": moment.token,
            "was": was.chosen,
            "chosen": now.chosen,
            "texts": {
                str(i): self._strip_text(i)
                for i in {moment.token, was.chosen, now.chosen}
                if i is not None and i >= 0
            },
            "draw": now.draw,
            "draw_was": was.draw,
            "recorded": moment.chain is None,
            "frames": [
                {
                    "index": step.index,
                    "name": step.sampler.name,
                    "params": _params(step.sampler, old.sampler),
                    "off": step.sampler.off,
                    "before": step.before.size,
                    "after": step.after.size,
                    "cut": max(0, step.before.size - step.after.size),
                    "why": step.why,
                    "line": line.kind if (line := now.line(step.index)) else "",
                    "at": line.at if line else None,
                    "draw": step.draw,
                    "now": step.index == moment.frame,
                }
                for step, old in zip(now_steps, was_steps, strict=True)
            ],
        }

    def _strip_line(self, strip: Strip | HeldStrip) -> list[dict[str, Any]]:
        return [
            {"id": s.id, "text": self._strip_text(s.id), "start": s.start, "end": s.end}
            for s in strip.segments(_SEGMENTS)
        ]

    def _strip_text(self, token: int) -> str:
        piece_of = self.dbg.recorder.piece_of
        piece = piece_of(token) if piece_of is not None else b""
        return piece.decode("utf-8", "replace")[:_PIECE]

    def _changes(self) -> dict[int, dict[str, Any]]:
        return {int(index): dict(params) for index, params in self.what_if.items()}

    # -- what can be done, as methods ----------------------------------------------------------

    def replay_with(self, which: int | str, **params: Any) -> None:
        """Replay the strip with other parameters of one sampler, and those changed before.

        Parameters
        ----------
        which : int or str
            Index, or llama.cpp's name (``"top-p"``; of several the first).
        **params
            ``p=0.5``.
        """
        names = [f["name"] for f in self.strip.get("frames", ())]
        if isinstance(which, str):
            wanted = which.replace("_", "-")
            if wanted not in names:
                raise DebuggerError(f"no sampler {which!r} in the chain: {', '.join(names)}")
            which = names.index(wanted)
        old = {int(k): v for k, v in self.what_if.items()}
        self.what_if = {
            str(k): v for k, v in {**old, which: {**old.get(which, {}), **params}}.items()
        }

    def put_back(self) -> None:
        """Show the run's own parameters again."""
        self.what_if = {}

    def apply(self, *, again: bool = False) -> None:
        """Give the run's chain the parameters of `what_if`, from here on.

        Parameters
        ----------
        again : bool
            Go back to where this token is sampled first, so that it is chosen anew.
        """
        self._apply(again)
        self.go_through()

    def _apply(self, again: bool) -> None:
        changes = self._changes()
        if not again:
            self._set_parameters(changes)
            return
        self.refuse_busy()
        moment = moment_of(self.dbg, self.selected)
        if moment is None or moment.enter < 0:
            raise DebuggerError("this token has not been sampled yet: apply is enough")
        self.set_out("goto", moment.enter, then=lambda: self._set_parameters(changes, newest=True))

    def _set_parameters(self, changes: dict[int, dict[str, Any]], newest: bool = False) -> None:
        if newest:
            self.selected = -1
        for index, params in changes.items():
            self.dbg.set_sampler(index, **params)
        self.what_if = {}

    @t.validate("what_if")
    def _check_what_if(self, proposal: Any) -> dict[str, Any]:
        """Refuse what the samplers refuse, before anything is drawn."""
        changes = {str(int(k)): dict(v) for k, v in proposal["value"].items() if v}
        if changes:
            moment = moment_of(self.dbg, self.selected)
            if moment is None:
                raise DebuggerError("there are no logits yet: let the run reach step 14")
            replay(moment, {int(k): v for k, v in changes.items()})
        return changes

    @t.observe("what_if", "n_rows")
    def _strip_again(self, change: Any) -> None:
        self.refresh()

    @t.observe("selected")
    def _strip_select(self, change: Any) -> None:
        self.set_trait("what_if", {})
        self.refresh()

    # -- what the page asks --------------------------------------------------------------------

    @answers("sampler-try")
    def _answer_try(self, message: Any) -> None:
        changes = message.get("changes")
        self.what_if = changes if isinstance(changes, dict) else {}

    @answers("sampler-apply")
    def _answer_apply(self, message: Any) -> None:
        self._apply(bool(message.get("again")))

    @answers("sampler-token")
    def _answer_token(self, message: Any) -> None:
        """Another token: the one before or after the one that is shown."""
        chosen = [k.pos for k in self.dbg.tokens if not k.given]
        pos = self.strip.get("pos", -1) + (1 if int(message.get("by", 1)) > 0 else -1)
        self.selected = -1 if not chosen or pos > chosen[-1] else max(pos, chosen[0])

    # -- elsewhere -----------------------------------------------------------------------------

    def figure(self, view: str = "", **options: Any) -> Any:
        """The view as a matplotlib figure; see `llmviz.plots.sampler`."""
        if (view or getattr(self, "view", self.view_name)) != "sampler":
            return super().figure(view, **options)  # another view of the panel
        from llmviz import plots

        return plots.sampler(
            self.dbg, selected=self.selected, what_if=self._changes(), n_rows=self.n_rows, **options
        )

    def _lines(self) -> list[tuple[str, str]]:
        out = []
        for frame in self.strip.get("frames", ()):
            given = ", ".join(f"{p['name']} = {p['value']}" for p in frame["params"])
            out.append((f"{frame['name']} ({given})", frame["why"]))
        chosen = self.strip.get("chosen", -1)
        if out and chosen >= 0:
            out.append(("chosen", f"{chosen} {self._strip_text(chosen)!r}"))
        return out or [("", self.strip.get("reason") or "no logits yet")]

    def fallback_text(self) -> str:
        """Each sampler and what it did, in plain lines."""
        return "\n".join(("llmviz SamplerView", *(f"  {a}: {b}" for a, b in self._lines())))

    def fallback_html(self) -> str:
        """Each sampler and what it did, as a static table."""
        rows = "".join(
            f'<tr><th style="text-align:left">{escape(a)}</th>'
            f'<td style="text-align:left">{escape(b)}</td></tr>'
            for a, b in self._lines()
        )
        return f"<table><caption>llmviz SamplerView</caption><tbody>{rows}</tbody></table>"


def _params(sampler: Any, was: Any) -> list[dict[str, Any]]:
    """The parameters that are numbers, with what they were and where a slider ends."""
    out = []
    for name, value in sampler.params.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        low, high, step = _RANGES.get((sampler.name, name), (None, None, None))
        whole = isinstance(value, int) and isinstance(was.params[name], int) and step in (None, 1)
        out.append(
            {
                "name": name,
                "value": value,
                "was": was.params[name],
                "low": low,
                "high": high if high is None else max(high, value),
                "step": step or (1 if whole else None),
                "whole": whole,
            }
        )
    return out
