"""What is unusual? Findings of the sentinels, each a way to its event."""

from __future__ import annotations

from html import escape
from typing import Any

import traitlets as t

from llmviz.trace import DebuggerError
from llmviz.trace.sentinels import Finding
from llmviz.trace.shown import short
from llmviz.widgets.drive import DrivingView
from llmviz.widgets.follow import answers

__all__ = ["SentinelsView"]

MOST = 50
_TEXT = 300


class SentinelsView(DrivingView):
    """What is unusual in this run?

    Traits
    ------
    findings : list of {i, n, kind, title, name, layer, text, more, past}
        The newest first, at most 50; `past`: the run has come to it. `findings_total` counts all.
    sentinels : list of {kind, title, about, on, stop}
        Empty where the run has none: a saved trace.
    nan_origin : dict
        i, n, name, text: where the NaN of a finding began, once it was asked for.
    """

    view_name = "sentinels"

    findings: t.List = t.List().tag(sync=True)
    findings_total = t.Int(0).tag(sync=True)
    sentinels: t.List = t.List().tag(sync=True)
    nan_origin = t.Dict().tag(sync=True)

    _findings_listed: tuple[Finding, ...] = ()

    def draw(self) -> None:
        """List what was found up to now."""
        super().draw()
        watch = getattr(self.dbg, "sentinels", None)
        if watch is None:
            self.findings, self.findings_total, self.sentinels = [], 0, []
            return
        self._findings_listed = tuple(watch.findings)
        self.findings_total = len(self._findings_listed)
        newest = list(enumerate(self._findings_listed))[-MOST:]
        self.findings = [
            {
                "i": i,
                "n": f.n,
                "kind": f.kind,
                "title": watch[f.kind].title,
                "name": short(f.name, _TEXT),
                "layer": f.layer,
                "text": short(f.text, _TEXT),
                "more": f.more,
                "past": f.n <= self.dbg.n,
            }
            for i, f in reversed(newest)
        ]
        self.sentinels = [
            {"kind": s.kind, "title": s.title, "about": s.about, "on": s.on, "stop": s.stop}
            for s in watch
        ]
        if self.nan_origin and not any(
            self.nan_origin["n_of"] == f.n for f in self._findings_listed
        ):
            self.nan_origin = {}

    def switch_sentinel(self, kind: str, on: bool) -> None:
        """Switch a sentinel on or off."""
        self.dbg.sentinels[kind].on = on
        self.refresh()

    def stop_on_finding(self, kind: str, stop: bool = True) -> None:
        """Let runs stop where a sentinel finds something, or no longer."""
        self.dbg.sentinels.stop_on(kind, stop)
        self.refresh()

    def find_nan_origin(self, i: int) -> None:
        """Find the node where the NaN of a finding began, by a silent replay of its pass."""
        if not 0 <= i < len(self._findings_listed):
            raise DebuggerError(f"there is no finding {i}")
        finding = self._findings_listed[i]
        found = self.dbg.sentinels.origin(finding)
        self.nan_origin = {
            "n_of": finding.n,
            "n": found.n,
            "name": short(found.name, _TEXT),
            "text": short(found.text, _TEXT),
        }
        self.refresh()

    @answers("sentinel")
    def _sentinel_switch(self, message: dict[str, Any]) -> None:
        self.switch_sentinel(str(message.get("kind")), bool(message.get("on")))

    @answers("sentinel-stop")
    def _sentinel_stop(self, message: dict[str, Any]) -> None:
        self.stop_on_finding(str(message.get("kind")), bool(message.get("stop")))

    @answers("sentinel-origin")
    def _sentinel_origin(self, message: dict[str, Any]) -> None:
        self.refuse_busy()
        self.find_nan_origin(int(message["which"]))

    def _finding_lines(self) -> list[tuple[str, str]]:
        if not self.findings:
            return [("nothing unusual", "so far")]
        return [(f"#{f['n']} {f['title']}", f"{f['name']}: {f['text']}") for f in self.findings]

    def fallback_text(self) -> str:
        """The findings, in plain lines."""
        return "\n".join(
            ("llmviz SentinelsView", *(f"  {a}: {b}" for a, b in self._finding_lines()))
        )

    def fallback_html(self) -> str:
        """The findings as a static table."""
        rows = "".join(
            f'<tr><th style="text-align:left">{escape(a)}</th>'
            f'<td style="text-align:left">{escape(b)}</td></tr>'
            for a, b in self._finding_lines()
        )
        return f"<table><caption>llmviz SentinelsView</caption><tbody>{rows}</tbody></table>"
