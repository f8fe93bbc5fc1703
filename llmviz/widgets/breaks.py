"""Breakpoints as people write them: a name, ``step 13``, ``token "Paris"``, a condition."""

from __future__ import annotations

import re
from typing import Any

import traitlets as t

from llmviz.trace import Breakpoint, DebuggerError
from llmviz.widgets.completions import complete
from llmviz.widgets.drive import DrivingView
from llmviz.widgets.follow import answers

__all__ = ["BreaksView", "place_of"]

_MAX = 400

_PLACE = re.compile(r"(step|layer|scope|token)\s+(.+)", re.DOTALL)
_QUOTED = re.compile(r"""(["'])(.*)\1""", re.DOTALL)


class BreaksView(DrivingView):
    """Where does the run stop?

    Traits
    ------
    breakpoints : list of {id, label, enabled, hits, ignore, once, why}
        `why` says why a breakpoint will not stop the run, as far as it is known.
    """

    view_name = "breaks"

    breakpoints: t.List = t.List().tag(sync=True)

    def draw(self) -> None:
        """List the breakpoints."""
        super().draw()
        self.breakpoints = [
            {
                "id": b.id,
                "label": b.label[:_MAX],
                "enabled": b.enabled,
                "hits": b.hits,
                "ignore": b.ignore,
                "once": b.once,
                "why": b.why_never[:_MAX],
            }
            for b in self.dbg.breakpoints
        ]

    def break_at(self, text: str, *, once: bool = False) -> Breakpoint:
        """Set a breakpoint from a text, see `place_of`."""
        return self.dbg.break_on(**place_of(text), once=once)

    @answers("break")
    def _break(self, message: dict[str, Any]) -> None:
        self.break_at(str(message.get("where", ""))[:_MAX], once=bool(message.get("once")))

    @answers("unbreak")
    def _unbreak(self, message: dict[str, Any]) -> None:
        self.dbg.clear_break(int(message["which"]))

    @answers("toggle-break")
    def _toggle(self, message: dict[str, Any]) -> None:
        for point in self.dbg.breakpoints:
            if point.id == message.get("which"):
                point.enabled = not point.enabled
        self.refresh()

    @answers("complete")
    def _complete(self, message: dict[str, Any]) -> list[dict[str, str]]:
        return complete(
            str(message.get("text", ""))[:_MAX], self.dbg, places=bool(message.get("places"))
        )


def place_of(text: str) -> dict[str, Any]:
    """What `Debugger.break_on` takes for a text.

    ``kq_soft_max-*`` (a name or glob), ``13`` or ``step 13``, ``layer 5``, ``scope decode``,
    ``token "Paris"`` or ``token 7042``, ``entropy > 3`` (a condition), ``l_out-5 if any NaN``
    (a place and a condition).

    Raises
    ------
    DebuggerError
        For an empty text, or a number that is none.
    """
    text = text.strip()
    if not text:
        raise DebuggerError("a breakpoint needs a place, such as l_out-*, or a condition")
    place, has_condition, condition = text.partition(" if ")
    if has_condition:
        return {**place_of(place), "condition": condition.strip()}
    if text.isdecimal():
        return {"where": int(text)}
    found = _PLACE.fullmatch(text)
    if not found or _is_comparison(found[2]):
        return {"where": text}
    kind, what = found[1], found[2].strip()
    if kind in ("step", "layer"):
        if not what.isdecimal():
            raise DebuggerError(f"{kind} needs a number, such as {kind} 5, not {what[:40]!r}")
        return {"where": int(what)} if kind == "step" else {"layer": int(what)}
    if kind == "scope":
        return {"scope": what}
    quoted = _QUOTED.fullmatch(what)
    if quoted:
        return {"token": quoted[2]}
    return {"token": int(what) if what.isdecimal() else what}


def _is_comparison(text: str) -> bool:
    return text.lstrip()[:1] in ("<", ">", "=", "~", "!") or text.startswith("in ")
