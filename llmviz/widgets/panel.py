"""The debugger's panel: transport, timeline, map, the view that fits the event, the source."""

from __future__ import annotations

from typing import Any

import traitlets as t

from llmviz.errors import LlmvizError
from llmviz.trace import Comparison
from llmviz.trace.compare_runs import compare
from llmviz.trace.lookback import can_look_back
from llmviz.trace.timeline import Here
from llmviz.widgets.attention import AttentionView, layer_now
from llmviz.widgets.docked import docked
from llmviz.widgets.docks import DOCKS
from llmviz.widgets.flow import FlowView
from llmviz.widgets.follow import DebuggerView
from llmviz.widgets.graph import GraphView
from llmviz.widgets.heads import HeadsView
from llmviz.widgets.kv_cache import KVCacheView
from llmviz.widgets.logits import LogitsView
from llmviz.widgets.map import MapView
from llmviz.widgets.output import OutputView
from llmviz.widgets.sampler import SamplerView
from llmviz.widgets.sentinels import SentinelsView
from llmviz.widgets.source import SourceView
from llmviz.widgets.tensor import TensorView
from llmviz.widgets.time import TimeView
from llmviz.widgets.timeline import TimelineView
from llmviz.widgets.transport import TransportView, heading
from llmviz.widgets.watches import WatchesView

__all__ = ["VIEWS", "DebuggerPanel"]

VIEWS = (
    "flow",
    # before the pass
    "load",
    "gguf",
    "tokenizer",
    "batch",
    # inside the pass
    "tensor",
    "attention",
    "heads",
    "kv_cache",
    "graph",
    "time",
    # the next token
    "logits",
    "sampler",
    "output",
    # two runs
    "compare",
)
"""The views in the middle, as their tabs stand (``panel.js``, GROUPS)."""


class _Flow(FlowView):
    """The flow view, drawn only where it can be seen: it looks at every layer."""

    def draw(self) -> None:
        if self.shows("flow"):
            super().draw()
        else:
            super(FlowView, self).draw()


class DebuggerPanel(
    TransportView,
    TimelineView,
    MapView,
    WatchesView,
    SentinelsView,
    SourceView,
    TensorView,
    LogitsView,
    OutputView,
    KVCacheView,
    AttentionView,
    HeadsView,
    SamplerView,
    GraphView,
    TimeView,
    _Flow,
    docked(*DOCKS),  # type: ignore[misc]
):
    """All views of one debugger in one place; see each of them for its traits.

    Views that can stand without a debugger (the file, the tokenizer) are docked: their traits have
    the view's name before them, such as ``gguf_field``.

    Traits
    ------
    view : str
        The view in the middle, one of `VIEWS`; it follows the event until `pinned`.
    pinned : bool
        Whether the view in the middle stays; choosing one pins it.
    wide : bool
        Only the middle, for a view that wants the room.

    Examples
    --------
    >>> dbg = llmviz.Debugger("smollm2-135m", "The capital of France is")   # doctest: +SKIP
    >>> panel = DebuggerPanel(dbg)                                          # doctest: +SKIP
    >>> panel.view, panel.layer = "attention", 12                           # doctest: +SKIP
    """

    view_name = "panel"

    view = t.Enum(VIEWS, default_value="flow").tag(sync=True)
    pinned = t.Bool(False).tag(sync=True)
    wide = t.Bool(False).tag(sync=True)
    spoken = t.Unicode("", help="The current event in one line, for screen readers.").tag(sync=True)

    _choosing = False

    def __init__(self, dbg: Any, **kwargs: Any) -> None:
        if "view" in kwargs:
            kwargs = {"pinned": True, **kwargs}
        super().__init__(dbg, **kwargs)

    def draw(self) -> None:
        """Draw every zone."""
        self._scores_ahead = not self.pinned and not self._stage_chosen
        if not self.pinned and not self.dbg.running:
            self._choosing = self._stage_following = True
            try:
                self.view = view_for(self.dbg)
                if self._scores_ahead:
                    self._follow_stage()
            finally:
                self._choosing = self._stage_following = False
        super().draw()
        if not self.dbg.running:
            self.spoken = heading(self.dbg)

    def _follow_stage(self) -> None:
        """Show of a head what this very event has computed, until a person chooses a stage."""
        here, now = self.dbg.here, layer_now(self.dbg)
        self._scores.ask(now if now >= 0 else self.layer)  # a pass begins with its mask
        if here is None or self.view != "attention":
            return
        self.stage = "scores" if here.name.startswith("kq-") else "softmax"
        if self.stage == "scores" and not self._scores_held(here):
            self.view = "tensor"  # where its rows and columns belong is not known yet

    def _scores_held(self, here: Here) -> bool:
        """Whether the scores of this event can be shown; nobody may have asked for them before."""
        if can_look_back(self.dbg):
            self.dbg.recorder.see(here.event, here.n, measure=False)
        return any(block.n == here.n for block in self._scores.blocks())

    def compare_with(self, other: Any, **options: Any) -> None:
        """Lay this run beside another one, in the tab of that name.

        Parameters
        ----------
        other : Debugger, Trace, Comparison or str
            Another run; the name of a branch of this one; or a comparison that was made already.
        **options
            ``tolerance`` and ``labels`` as for `llmviz.compare`.
        """
        made = other if isinstance(other, Comparison) else compare(self.dbg, other, **options)
        self._take_in("compare", self._kinds["compare"](made))
        self.compare_missing = ""
        self.view = "compare"

    def fallback_text(self) -> str:
        """Where the run stands, in plain lines."""
        return DebuggerView.fallback_text(self)

    def fallback_html(self) -> str:
        """Where the run stands, as a static table."""
        return DebuggerView.fallback_html(self)

    def shows(self, view: str) -> bool:
        """Only one view stands in the middle."""
        return view not in VIEWS or view == self.view

    @t.observe("view", "pinned")
    def _turn(self, change: Any) -> None:
        if self._choosing or not hasattr(self, "_answers"):
            return
        if change.name == "view":
            self.pinned = True
        elif not self.pinned:
            self._stage_chosen = False
        # Everything that was left out while it could not be seen.
        self._drawn = -1
        self._cells_of = -1
        self._top_of = self._attention_of = self._heads_of = None
        self.refresh()

    @t.observe("look_at")
    def _look(self, change: Any) -> None:
        """The heads view asked to see one head's attention."""
        if change.new and hasattr(self, "_answers"):
            self.view = "attention"

    @t.observe("opened_node")
    def _open_node(self, change: Any) -> None:
        """The flow view asked for a node's tensor: go back to where it was computed."""
        if not change.new or self.dbg.running:
            return
        try:
            if self.dbg.here is None or self.dbg.here.name != change.new:
                self.set_out("reverse-to", change.new, then=self._show_tensor)
                if not self._flow_asked:  # the page asks for the next slices itself
                    self.go_through()
                return
        except LlmvizError as error:
            self.show_error(error)
            return
        self._show_tensor()

    def _show_tensor(self) -> None:
        self.view = "tensor"


def view_for(dbg: Any) -> str:
    """The view that shows an event best."""
    here = dbg.here
    if here is None:
        return "flow"
    if here.step <= 7:
        return "gguf" if here.step == 2 else "load"
    if here.step == 9:
        return "tokenizer"
    if here.step in (10, 12) or (here.step == 11 and here.kind == "enter"):
        return "batch"
    if here.kind == "node":
        return "attention" if here.name.startswith(("kq-", "kq_soft_max-")) else "tensor"
    if here.name == "kv_cells":
        return "kv_cache"
    if here.step == 15:
        return "sampler"
    if here.step == 14:
        return "logits"
    if here.step == 16:
        return "output"
    if here.kind in ("enter", "exit") and here.step in (11, 13):
        return "flow"
    return "tensor"
