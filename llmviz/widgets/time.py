"""Where the time goes: the parts of a pass, by kind of work, scope, layer, op or node."""

from __future__ import annotations

from html import escape
from typing import Any

import traitlets as t

from llmviz.errors import LlmvizError
from llmviz.trace.time_parts import DIVISIONS, rate
from llmviz.trace.time_shown import ROWS, chosen_pass, label_of, milliseconds, rows_of
from llmviz.trace.times import Pass
from llmviz.widgets.follow import DebuggerView, answers

__all__ = ["TimeView"]

SHOWN = 40  # passes in the chart, besides the prompt
_MORE = 2000  # rows at most
_PIECE = 24


class TimeView(DebuggerView):
    """Where does the time go?

    All numbers are nanoseconds between two looks at one clock (see `llmviz.trace.times`), so the
    parts of a pass sum to its total exactly. Pauses and the drawing of views are in none of them.

    Parameters
    ----------
    dbg : Debugger
    **traits

    Traits
    ------
    time_by : {"work", "scope", "layer", "op", "node"}
        How the pass is divided; settable.
    time_pass : int
        Number of the pass: 0 is what comes before the first batch, 1 the prompt; -1 for the newest;
        settable.
    time_against : int
        A pass to compare with, -1 for none; settable.
    time_rows : int
        At most so many nodes, the others in one line; settable.
    time_passes : list of {number, kind, label, n_tokens, total, kernels, watching, whole, quiet}
        A window of the passes, in nanoseconds.
    time_parts : list of {name, ns, whole, group, depth, count, op, layer, index, kernels, against}
        The lines of the division; the `ns` sum to the total.
    time_about : dict
        number, kind, label, n_tokens, total, engine, kernels, watching, n_seen, n_nodes, whole,
        quiet, against (as in `time_passes`), tokens ({n, seconds, watching, per_second,
        unwatched} of all tokens so far), n_passes; empty where nothing was measured, why says it.
    """

    view_name = "time"

    time_by = t.Enum(DIVISIONS, default_value="work").tag(sync=True)
    time_pass = t.Int(-1).tag(sync=True)
    time_against = t.Int(-1).tag(sync=True)
    time_rows = t.Int(ROWS, min=1, max=_MORE).tag(sync=True)
    time_passes: t.List = t.List().tag(sync=True)
    time_parts: t.List = t.List().tag(sync=True)
    time_about = t.Dict().tag(sync=True)

    def draw(self) -> None:
        """Divide the chosen pass."""
        super().draw()
        if self.shows("time"):
            self._time_draw()

    def _time_draw(self) -> None:
        passes: list[Pass] = getattr(getattr(self.dbg, "times", None), "passes", [])
        this = chosen_pass(passes, self.time_pass)
        if this is None:
            self.time_passes, self.time_parts = [], []
            self.time_about = {"why": _why(self.dbg)}
            return
        against = next((p for p in passes if p.number == self.time_against), None)
        shown = [p for p in passes if p.number <= 1 or p.number > len(passes) - 1 - SHOWN]
        if this not in shown:
            shown = sorted([*shown, this], key=lambda p: p.number)
        self.time_passes = [_chart(p) for p in shown]
        self.time_parts = rows_of(this, self.time_by, self.time_rows, against)
        tokens = rate([p for p in passes if p.kind == "token"])
        self.time_about = {
            **_chart(this),
            "engine": this.engine,
            "n_seen": this.n_seen,
            "n_nodes": this.n_nodes,
            "n_passes": len(passes),
            "against": _chart(against) if against is not None else {},
            "tokens": {
                "n": tokens.n_tokens,
                "seconds": tokens.seconds,
                "watching": tokens.watching,
                "per_second": tokens.per_second,
                "unwatched": tokens.unwatched,
            },
        }

    @t.observe("time_by", "time_pass", "time_against", "time_rows")
    def _time_chosen(self, change: Any) -> None:
        if hasattr(self, "_answers"):
            self.refresh()

    @answers("time_node")
    def _time_node(self, message: dict[str, Any]) -> bool:
        """Show a node in the graph view; whether there is one that shows it now."""
        return self.look_at_node(int(message["index"]))

    def look_at_node(self, index: int) -> bool:
        """Choose a node in the panel's graph view.

        Parameters
        ----------
        index : int
            Its place in the graph.

        Returns
        -------
        bool
            Whether there is a panel that shows it now.
        """
        view = self if self.has_trait("graph_selected") else self.dbg.panel
        if view is None or view.closed:
            return False
        view.graph_selected = index
        view.view = "graph"
        return True

    # -- without scripts ---------------------------------------------------------------------------

    def _time_lines(self) -> list[tuple[str, str]]:
        about = self.time_about
        if "total" not in about:
            return [("no times yet", str(about.get("why", "")))]
        lines = [("total", f"{milliseconds(about['total'])} for {about['n_tokens']} tokens")]
        if about["tokens"]["n"]:
            tokens = about["tokens"]
            lines.append(
                (
                    "tokens a second",
                    f"{tokens['per_second']:.1f} as it ran, {tokens['unwatched']:.1f} unwatched",
                )
            )
        for part in self.time_parts[:ROWS]:
            share = part["whole"] / about["total"] if about["total"] else 0.0
            name = "  " * part["depth"] + part["name"]
            lines.append((name, f"{milliseconds(part['whole'])}, {share:.1%}"))
        return lines

    def fallback_text(self) -> str:
        """The parts in plain lines; docked, what the whole shows."""
        if self.view_name != TimeView.view_name:
            return super().fallback_text()
        title = self.time_about.get("label", "")
        lines = [f"  {name}: {text}" for name, text in self._time_lines()]
        return "\n".join((f"llmviz TimeView\n  where the time of {title or 'a pass'} went", *lines))

    def fallback_html(self) -> str:
        """The parts as a static table; docked, what the whole shows."""
        if self.view_name != TimeView.view_name:
            return super().fallback_html()
        rows = "".join(
            f'<tr><th style="text-align:left">{escape(name)}</th>'
            f'<td style="text-align:left">{escape(text)}</td></tr>'
            for name, text in self._time_lines()
        )
        title = escape(self.time_about.get("label", "") or "a pass")
        return f"<table><caption>Time of {title}</caption><tbody>{rows}</tbody></table>"

    def choose_pass(self, number: int = -1, *, by: str = "", against: int | None = None) -> None:
        """Choose pass, division and comparison in one go.

        Raises
        ------
        LlmvizError
            There is no such pass or division.
        """
        passes = self.dbg.times.passes
        for n in (number, -1 if against is None else against):
            if n != -1 and not any(p.number == n for p in passes):
                raise LlmvizError(f"there is no pass {n}; there are {len(passes)}, from 0")
        if by and by not in DIVISIONS:
            raise LlmvizError(f"there is no division by {by!r}; there are: {', '.join(DIVISIONS)}")
        with self.hold_trait_notifications():
            self.time_pass = number
            self.time_by = by or self.time_by
            self.time_against = self.time_against if against is None else against


def _chart(p: Pass) -> dict[str, Any]:
    return {
        "number": p.number,
        "kind": p.kind,
        "label": label_of(p, _PIECE),
        "n_tokens": p.n_tokens,
        "total": p.total,
        "kernels": p.kernels,
        "watching": p.watching,
        "whole": p.whole,
        "quiet": p.quiet,
    }


def _why(dbg: Any) -> str:
    if not hasattr(dbg, "times"):
        return "This is a saved run: its times were not kept."
    return "Nothing has run yet: press Next token."
