"""Where do two runs part? Relative error along depth, and one node of both side by side."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import numpy as np
import traitlets as t

from llmviz.errors import LlmvizError
from llmviz.trace.compare import Comparison, checked_tolerance
from llmviz.trace.compare_report import error_text, node_text
from llmviz.trace.diff import KINDS, NodeDiff, decades
from llmviz.trace.shown import short
from llmviz.widgets.compare_node import ComparedNode
from llmviz.widgets.compare_rows import (
    TEXT,
    candidate_row,
    float64,
    match_rows,
    pass_row,
    token_row,
    worst,
)

__all__ = ["CompareView"]

_TOP = 5
_PASSES, _TOKENS = 200, 40


class CompareView(ComparedNode):
    """Where do two runs part?

    Parameters
    ----------
    comparison : Comparison
    **kwargs
        Traits of the view.

    Traits
    ------
    See `ComparedNode` for those of the chosen node.

    pass_ : int
        The pass that is shown; settable. It begins where the runs part.
    tolerance : float
        Relative error that counts as a difference; settable.
    runs : list of {label, live}
    passes : list of {i, a, b, same, prompt, n_a, n_b}
    kinds : list of str
        What `node_kinds` counts.
    node_names, node_ops, node_notes : list of str
    node_errors, node_max : bytes
        float64 for each node; NaN where nothing could be compared.
    node_layers, node_kinds, node_bounds : bytes
        int32, uint8, and uint8: 1 where the error is at least so large.
    decades : [low, high]
        Powers of ten that the chart shows.
    first : int
        First node over the tolerance in this pass, -1 for none.
    first_pass : int
        The first pass that has one; -1 for none.
    logits : dict
        same, kl, error, moved, rank_in_a, rank_in_b, note, and the likeliest tokens a and b; empty
        where they are not known.
    matches : list of {what, a, b, same}
    tokens : list of {i, a, b, same}
        Around the first place where the texts differ; `tokens_total` counts all.
    patched : dict
        into, name, branch, recovered of the last patch; empty before.
    moved : bool
        A run has moved on since: `refresh` looks again.
    """

    view_name = "compare"

    here = t.Int(-1).tag(sync=True)
    error = t.Dict().tag(sync=True)
    pass_ = t.Int(-1).tag(sync=True)
    tolerance = t.Float(1e-3).tag(sync=True)
    runs: t.List = t.List().tag(sync=True)
    passes: t.List = t.List().tag(sync=True)
    kinds: t.List = t.List(list(KINDS)).tag(sync=True)
    node_names: t.List = t.List().tag(sync=True)
    node_ops: t.List = t.List().tag(sync=True)
    node_notes: t.List = t.List().tag(sync=True)
    node_errors = t.Bytes(b"").tag(sync=True)
    node_max = t.Bytes(b"").tag(sync=True)
    node_layers = t.Bytes(b"").tag(sync=True)
    node_kinds = t.Bytes(b"").tag(sync=True)
    node_bounds = t.Bytes(b"").tag(sync=True)
    decades: t.List = t.List(t.Int(), default_value=[-6, 0]).tag(sync=True)
    first = t.Int(-1).tag(sync=True)
    first_pass = t.Int(-1).tag(sync=True)
    logits = t.Dict().tag(sync=True)
    matches: t.List = t.List().tag(sync=True)
    tokens: t.List = t.List().tag(sync=True)
    tokens_total = t.Int(0).tag(sync=True)
    patched = t.Dict().tag(sync=True)
    moved = t.Bool(False).tag(sync=True)

    _ready = False
    _ends: Sequence[Callable[[], None]] = ()

    def __init__(self, comparison: Comparison, **kwargs: Any) -> None:
        unknown = set(kwargs) - set(self._public_traits())
        if not unknown and not isinstance(comparison, Comparison):
            raise LlmvizError(
                f"a comparison is shown, as llmviz.compare(a, b) makes it, not {comparison!r:.80}"
            )
        super().__init__(**kwargs)
        self._follow(comparison)
        self.on_msg(self._on_message)
        if "tolerance" in kwargs:
            comparison.tolerance = checked_tolerance(self.tolerance)
        else:
            self.tolerance = comparison.tolerance
        self._draw_all(keep_pass="pass_" in kwargs, keep_node="chosen" in kwargs)
        self._ready = True

    def close(self) -> None:
        """Stop following the runs and let go of the page's side."""
        if not self.closed:
            for end in self._ends:
                end()
            self._values = None
        super().close()

    # -- drawing -----------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Look at both runs again, and show where they part now."""
        self.comparison.refresh()
        self._draw_all()

    def show(self, comparison: Comparison) -> None:
        """Show another comparison in the place of this one."""
        self._follow(comparison)
        comparison.tolerance = self.tolerance
        self.patched = {}
        self._draw_all()

    def _follow(self, comparison: Comparison) -> None:
        for end in self._ends:
            end()
        self.comparison = comparison
        self._ends = [
            run.dbg.on_change(_weakly(self))
            for run in (comparison.a, comparison.b)
            if hasattr(run, "dbg")
        ]

    def _moved_on(self) -> None:
        moved = self.comparison.moved_on
        if moved != self.moved:
            self.moved = moved
            self.rev += 1

    def _draw_all(self, keep_pass: bool = False, keep_node: bool = False) -> None:
        c = self.comparison
        ready, self._ready = self._ready, False
        try:
            with self.hold_sync():
                self.runs = [{"label": short(r.label, TEXT), "live": r.live} for r in (c.a, c.b)]
                if keep_pass and c.passes:
                    self.pass_ = max(0, min(self.pass_, len(c.passes) - 1))
                    c.pass_ = self.pass_
                else:
                    self.pass_ = c.pass_
                self.matches = match_rows(c)
                self._draw_tokens()
                self._draw_pass(keep_node)
                self.moved = False
                self.rev += 1
        finally:
            self._ready = ready

    def _draw_tokens(self) -> None:
        tokens = self.comparison.tokens
        apart = next((x.i for x in tokens if not x.same), len(tokens))
        begin = max(0, min(apart - _TOKENS // 2, len(tokens) - _TOKENS))
        self.tokens = [
            {"i": x.i, "a": token_row(x.a), "b": token_row(x.b), "same": x.same}
            for x in tokens[begin : begin + _TOKENS]
        ]
        self.tokens_total = len(tokens)

    def _draw_pass(self, keep_node: bool = False) -> None:
        c = self.comparison
        begin = max(0, min(self.pass_ - _PASSES // 2, len(c.passes) - _PASSES))
        self.passes = [pass_row(span) for span in c.passes[begin : begin + _PASSES]]
        nodes = c.nodes
        self.node_names = [short(d.name, TEXT) for d in nodes]
        self.node_ops = [d.op for d in nodes]
        self.node_notes = [d.note for d in nodes]
        self.node_errors = float64([d.error for d in nodes])
        self.node_max = float64([d.max_abs for d in nodes])
        self.node_layers = np.array([d.layer for d in nodes], "<i4").tobytes()
        self.node_kinds = bytes(KINDS.index(d.kind) for d in nodes)
        self.node_bounds = bytes(d.bound for d in nodes)
        self._draw_first(nodes)
        self.logits = self._logits() if c.passes else {}
        if not (keep_node and 0 <= self.chosen < len(nodes)):
            self.chosen = self.first if self.first >= 0 else worst(nodes)
            self._go_to_largest()
        self._draw_node()

    def _draw_first(self, nodes: list[NodeDiff]) -> None:
        over = (d.i for d in nodes if d.over(self.comparison.tolerance))
        self.first = next(over, -1)
        self.first_pass = self.comparison.first_pass
        self.decades = list(decades(nodes, self.comparison.tolerance))

    def _logits(self) -> dict[str, Any]:
        found = self.comparison.logits()
        if found is None:
            return {}
        return {
            "same": found.same,
            "kl": found.kl,
            "error": found.error,
            "moved": found.moved,
            "rank_in_a": found.rank_in_a,
            "rank_in_b": found.rank_in_b,
            "note": found.note,
            "a": [candidate_row(x) for x in found.top_a[:_TOP]],
            "b": [candidate_row(x) for x in found.top_b[:_TOP]],
        }

    # -- what a person does ------------------------------------------------------------------------

    @t.observe("pass_")
    def _to_pass(self, change: Any) -> None:
        if not self._ready or not self.comparison.passes:
            return
        self._quietly(self._show_pass)

    def _show_pass(self) -> None:
        self.pass_ = max(0, min(self.pass_, len(self.comparison.passes) - 1))
        self.comparison.pass_ = self.pass_
        self._draw_pass()

    @t.observe("tolerance")
    def _to_tolerance(self, change: Any) -> None:
        if not self._ready:
            return
        try:
            self.comparison.tolerance = checked_tolerance(self.tolerance)
        except LlmvizError as error:
            self.show_error(error)
            return
        self._quietly(lambda: self._draw_first(self.comparison.nodes))

    @t.observe("chosen")
    def _to_node(self, change: Any) -> None:
        if self._ready:
            self._quietly(self._show_node)

    @t.observe("slice", "origin")
    def _to_window(self, change: Any) -> None:
        if self._ready and self._values is not None:
            self._quietly(self._draw_window)

    def _quietly(self, draw: Any) -> None:
        """Draw once, whatever traits that sets."""
        self._ready = False
        try:
            with self.hold_sync():
                draw()
                self.rev += 1
        except LlmvizError as error:
            self.show_error(error)
        finally:
            self._ready = True

    def choose(self, name: str, op: str = "") -> None:
        """Lay a node of this pass side by side, by its name."""
        self.chosen = self.comparison.node(name, op=op).i

    def patch(self, into: str = "a") -> Any:
        """Put the other run's value of the chosen node into a run, on a branch, and go on."""
        d = self.comparison.nodes[self.chosen]
        done = self.comparison.patch(d.name, self.pass_, into=into, op=d.op)
        source = "b" if into == "a" else "a"
        self.patched = {
            "into": into,
            "source": source,
            "name": short(d.name, TEXT),
            "branch": short(done.branch, TEXT),
            "recovered": done.recovered,
        }
        self._draw_all(keep_pass=True, keep_node=True)
        return done

    def show_error(self, error: Exception) -> None:
        """Show what went wrong in the view itself, where it can be read."""
        self.error = {
            "title": "That did not work",
            "text": str(error)[:2000] or type(error).__name__,
            "hint": "Nothing was lost; both runs stand where they were.",
        }
        self.rev += 1

    def _on_message(self, _: Any, message: Any, buffers: Any) -> None:
        answer = self._answer(message.get("ask")) if isinstance(message, dict) else None
        if answer is None:
            return
        reply: dict[str, Any] = {"reply": message.get("id")}
        try:
            if message["ask"] != "compare-values" and self.error:
                self.error = {}
            reply["value"] = answer(message)
        except Exception as error:
            # A click's error has no cell to appear in: it belongs on the view, whatever it is.
            self.show_error(error)
            reply["error"] = str(error)
        self.send(reply)

    def _answer(self, ask: Any) -> Any:
        return {
            "compare-values": self._numbers,
            "compare-again": lambda message: self.refresh(),
            "compare-patch": self._patch,
        }.get(ask)

    def _patch(self, message: dict[str, Any]) -> None:
        self.patch(str(message.get("into")))

    def figure(self, **options: Any) -> Any:
        """The view as a matplotlib figure; see `llmviz.plots.compare`."""
        from llmviz import plots

        settings = {"size": "slide" if self.projector else "page", "theme": self.theme}
        return plots.compare(self.comparison, **{**settings, **options})

    # -- without scripts ---------------------------------------------------------------------------

    def fallback_text(self) -> str:
        """The comparison's report."""
        return "llmviz CompareView\n" + self.comparison.report()

    def fallback_html(self) -> str:
        """The worst nodes as a static table."""
        c = self.comparison
        first = c.nodes[self.first] if 0 <= self.first < len(c.nodes) else None
        known = sorted((d for d in c.nodes if d.difference), key=lambda d: -(d.error or 0.0))[:8]
        lines = [("a", c.a.label), ("b", c.b.label)]
        if first is not None:
            lines.append(
                (f"first over {c.tolerance:g}", f"{node_text(first)}: {error_text(first)}")
            )
        lines += [(node_text(d), error_text(d)) for d in known]
        rows = "".join(
            f'<tr><th style="text-align:left">{escape(a)}</th>'
            f'<td style="text-align:left">{escape(b)}</td></tr>'
            for a, b in lines
        )
        return f"<table><caption>llmviz CompareView</caption><tbody>{rows}</tbody></table>"


def _weakly(view: CompareView) -> Callable[[], None]:
    """A listener that does not keep its view alive."""
    ref = weakref.ref(view)

    def listen() -> None:
        alive = ref()
        if alive is not None:
            alive._moved_on()

    return listen
