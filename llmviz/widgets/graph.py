"""The compute graph: blocks, their nodes, the memory they share, and how far the run has come."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
import traitlets as t

from llmviz.errors import LlmvizError
from llmviz.trace import DebuggerError
from llmviz.trace.flow import graph_of
from llmviz.trace.graph_view import Progress, Shown, broken, progress, shown
from llmviz.trace.time_shown import milliseconds
from llmviz.widgets.follow import DebuggerView, answers

__all__ = ["GraphView"]

_MAX = 200  # letters of a search


class GraphView(DebuggerView):
    """What is computed, in what order, where?

    The model as blocks; an open block shows its nodes, their order from left to right, and the data
    that goes from one to the next. Reads of the KV cache are dashed.

    Parameters
    ----------
    dbg : Debugger
    **traits

    Traits
    ------
    graph_open : list of int
        Blocks that are open; settable.
    graph_selected : int
        The chosen node, by its place in the order of computing; -1 for none; settable.
    graph_follow : bool
        Whether the block that is being computed opens by itself; settable.
    graph_colour : {"op", "time"}
        What the nodes' colours mean; settable.
    graph_find : str
        Part of a name, or a glob; nodes that fit are marked; settable.
    graph : dict
        names, ops, types, shapes, layers, blocks, views, src, stored, leafs, caches, backends,
        splits, memory ([offset, size, dies, before, after] or None), one of each per node; and
        block (title, layer, first, count, drawing, ports, lanes of each block), drawings, arena,
        apart; why where there is none.
    graph_at : dict
        now, done, start, reused, breaks ([node, enabled]), block_breaks ([block, enabled]),
        n_reused, event (what the run stands at).
    graph_times : bytes
        float32[n_nodes], microseconds in each node's kernel when the graph ran last; empty where
        that was not measured.
    opened_node : str
        Name of the node whose values were asked for.
    """

    view_name = "graph"

    graph_open: t.List = t.List(t.Int()).tag(sync=True)
    graph_selected = t.Int(-1).tag(sync=True)
    graph_follow = t.Bool(True).tag(sync=True)
    graph_colour = t.Enum(("op", "time"), default_value="op").tag(sync=True)
    graph_find = t.Unicode("").tag(sync=True)
    graph = t.Dict().tag(sync=True)
    graph_at = t.Dict().tag(sync=True)
    graph_times = t.Bytes(b"").tag(sync=True)
    opened_node = t.Unicode("").tag(sync=True)

    _graph_of: Any = None
    _graph_shown: Shown | None = None
    _graph_opened = -1  # the block that following opened

    def draw(self) -> None:
        """Show the graph that was built last, and the run in it."""
        super().draw()
        if self.shows("graph"):
            self._graph_draw()

    def _graph_draw(self) -> None:
        gf = graph_of(self.dbg)
        if gf is not self._graph_of or (gf is None and not self.graph):
            self._graph_of = gf  # held, so that no other graph can take its place in memory
            before = self._graph_shown
            self._graph_shown = shown(self.dbg)
            self._graph_send(before)
        found = self._graph_shown
        if found is None:
            self.graph_at, self.graph_times = {}, b""
            return
        at = progress(self.dbg, found)
        nodes, blocks = broken(self.dbg, found)
        here = self.dbg.here
        self.graph_at = {
            "now": at.now,
            "done": at.done,
            "start": at.start,
            "reused": at.reused,
            "breaks": [[i, on] for i, on in nodes.items()],
            "block_breaks": [[k, on] for k, on in blocks.items()],
            "n_reused": int(getattr(self.dbg.ctx, "n_reused", 0)),
            "event": here.name[:80] if here is not None else "",
        }
        self.graph_times = self._graph_measured(found)
        if self.graph_follow:
            self._graph_go_along(found, at)

    def _graph_send(self, before: Shown | None) -> None:
        found = self._graph_shown
        if found is None:
            self.graph = {
                "why": "A graph is built when the first ubatch is processed (step 13)."
                if getattr(self.dbg, "ctx", None) is None or hasattr(self.dbg.ctx, "sched")
                else "This saved run holds no graph."
            }
            return
        self.graph = _described(found)
        if before is None or len(before.blocks) != len(found.blocks):
            first = next((k for k, b in enumerate(found.blocks) if b.layer >= 0), 0)
            self.graph_open = [k for k in self.graph_open if k < len(found.blocks)] or [first]
            self._graph_opened = first
        if self.graph_selected >= len(found.nodes):
            self.graph_selected = -1

    def _graph_measured(self, found: Shown) -> bytes:
        times = getattr(self.dbg, "times", None)
        last = times.last_computed() if times is not None else None
        if last is None or last.graph.names != tuple(n.name for n in found.nodes):
            return b""
        return (last.ns / 1e3).astype("<f4").tobytes()

    def _graph_go_along(self, found: Shown, at: Progress) -> None:
        """Open the block that is computed now, and close the one that was opened this way."""
        if at.now < 0 or self.dbg.running:
            return
        block = found.nodes[at.now].block
        if block not in self.graph_open:
            kept = [k for k in self.graph_open if k != self._graph_opened]
            self.graph_open = sorted([*kept, block])
            self._graph_opened = block

    @t.observe("graph_open", "graph_selected", "graph_follow", "graph_colour", "graph_find")
    def _graph_chosen(self, change: Any) -> None:
        if hasattr(self, "_answers"):
            self.rev += 1

    # -- what a person does ------------------------------------------------------------------------

    @property
    def shown_graph(self) -> Shown:
        """The graph that is shown, with what is known of every node.

        Raises
        ------
        LlmvizError
            There is none yet.
        """
        if self._graph_shown is None:
            raise LlmvizError(str(self.graph.get("why", "there is no graph yet")))
        return self._graph_shown

    def _graph_index(self, node: int | str) -> int:
        found = self.shown_graph
        index = found.named(node) if isinstance(node, str) else int(node)
        if not 0 <= index < len(found.nodes):
            raise LlmvizError(f"there is no node {node!r} in this graph of {len(found.nodes)}")
        return index

    def select_node(self, node: int | str) -> None:
        """Choose a node, by its place or its name, and open its block."""
        index = self._graph_index(node)
        self.graph_selected = index
        block = self.shown_graph.nodes[index].block
        if block not in self.graph_open:
            self.graph_open = sorted([*self.graph_open, block])

    def find_nodes(self, text: str) -> list[str]:
        """Names of the nodes that fit; the first of them is chosen."""
        self.graph_find = text[:_MAX]
        found = self.shown_graph.find(self.graph_find)
        if found:
            self.select_node(found[0])
        return [self.shown_graph.nodes[i].name for i in found]

    def open_blocks(self, *layers: int) -> None:
        """Open the blocks of some layers; all blocks without an argument."""
        blocks = self.shown_graph.blocks
        self.graph_open = [k for k, b in enumerate(blocks) if not layers or b.layer in layers]

    def toggle_break(self, node: int | str) -> bool:
        """Set a breakpoint on a node's name, or take it away; True where there is one now."""
        name = self.shown_graph.nodes[self._graph_index(node)].name
        return self._graph_toggle(
            [b for b in self.dbg.breakpoints if b.where == name and b.layer is None], where=name
        )

    def toggle_layer_break(self, layer: int) -> bool:
        """Set a breakpoint where a layer begins, or take it away; True where there is one now."""
        mine = [b for b in self.dbg.breakpoints if b.where is None and b.layer == layer]
        return self._graph_toggle(mine, layer=layer)

    def _graph_toggle(self, mine: list[Any], **place: Any) -> bool:
        for point in mine:
            self.dbg.clear_break(point)
        if not mine:
            self.dbg.break_on(**place)
        return not mine

    def open_node(self, node: int | str) -> bool:
        """Bring the run to where a node was computed last, and show its values.

        Returns
        -------
        bool
            Whether there is a panel that shows them now.

        Raises
        ------
        DebuggerError
            The run is under way, or no graph has run yet.
        """
        if self.dbg.running:
            raise DebuggerError(
                "the run is under way, so this changed nothing: press Pause first, then try again"
            )
        index = self._graph_index(node)
        found = self.shown_graph
        name = found.nodes[index].name
        start = progress(self.dbg, found).start
        if start < 0:
            raise DebuggerError(f"{name} was not computed yet: press Next token first")
        self.graph_selected = index
        before = self.dbg.n
        self.dbg.goto(start + found.events[index])
        if self.dbg.here is None or self.dbg.here.name != name:
            self.dbg.goto(max(before, 0))
            raise DebuggerError(f"{name} is not kept here: a saved run has the nodes it was told")
        self.opened_node = ""
        self.opened_node = name
        panel = self if self.has_trait("view") else self.dbg.panel
        if panel is None or panel.closed:
            return False
        panel.view = "tensor"
        return True

    # -- the page's questions ----------------------------------------------------------------------

    @answers("graph_break")
    def _graph_on_break(self, message: dict[str, Any]) -> bool:
        if "block" in message:
            blocks = self.shown_graph.blocks
            block = int(message["block"])
            if not 0 <= block < len(blocks) or blocks[block].layer < 0:
                raise LlmvizError("only a layer can have a breakpoint as a whole")
            return self.toggle_layer_break(blocks[block].layer)
        return self.toggle_break(int(message["node"]))

    @answers("graph_node")
    def _graph_on_node(self, message: dict[str, Any]) -> bool:
        return self.open_node(int(message["node"]))

    # -- without scripts ---------------------------------------------------------------------------

    def _graph_lines(self) -> list[tuple[str, str]]:
        found = self._graph_shown
        if found is None:
            return [("no graph yet", str(self.graph.get("why", "")))]
        at = progress(self.dbg, found)
        lines = [("nodes", f"{len(found.nodes):,} in {len(found.blocks)} blocks")]
        if found.arena:
            lines.append(
                (
                    "memory of the results",
                    f"{found.arena / 2**10:,.0f} KiB; without reuse {found.apart / 2**10:,.0f} KiB",
                )
            )
        if at.reused is not None:
            lines.append(("this ubatch", "uses the graph again" if at.reused else "built it anew"))
        if at.now >= 0:
            lines.append(("now", f"{found.nodes[at.now].name}, node {at.now} of its order"))
        times = np.frombuffer(self.graph_times, "<f4")
        for block in found.blocks:
            text = f"{block.count} nodes"
            if len(times):
                spent = float(times[block.first : block.first + block.count].sum())
                text += f", {milliseconds(1e3 * spent)}"
            lines.append((block.title, text))
        return lines

    def fallback_text(self) -> str:
        """The blocks in plain lines; docked, what the whole shows."""
        if self.view_name != GraphView.view_name:
            return super().fallback_text()
        lines = [f"  {name}: {text}" for name, text in self._graph_lines()]
        return "\n".join(("llmviz GraphView", *lines))

    def fallback_html(self) -> str:
        """The blocks as a static table; docked, what the whole shows."""
        if self.view_name != GraphView.view_name:
            return super().fallback_html()
        rows = "".join(
            f'<tr><th style="text-align:left">{escape(name)}</th>'
            f'<td style="text-align:left">{escape(text)}</td></tr>'
            for name, text in self._graph_lines()
        )
        return f"<table><caption>Compute graph</caption><tbody>{rows}</tbody></table>"


def _described(found: Shown) -> dict[str, Any]:
    """A graph as the page gets it; equal layers share a drawing."""
    drawings: list[Any] = []
    blocks: list[dict[str, Any]] = []
    for b in found.blocks:
        if all(b.drawing is not d for d in drawings):
            drawings.append(b.drawing)
        number = next(i for i, d in enumerate(drawings) if d is b.drawing)
        blocks.append(
            {
                "title": b.title,
                "layer": b.layer,
                "first": b.first,
                "count": b.count,
                "drawing": number,
                "ports": list(b.ports),
                "lanes": list(b.lanes),
            }
        )
    nodes = found.nodes
    return {
        "names": [n.name for n in nodes],
        "ops": [n.op for n in nodes],
        "types": [n.type for n in nodes],
        "shapes": [list(n.ne[::-1]) for n in nodes],
        "layers": [n.layer for n in nodes],
        "blocks": [n.block for n in nodes],
        "views": [n.view for n in nodes],
        "src": [list(n.src) for n in nodes],
        "stored": [list(n.stored) for n in nodes],
        "leafs": [list(n.leafs) for n in nodes],
        "caches": [n.cache for n in nodes],
        "backends": [n.backend for n in nodes],
        "splits": [n.split for n in nodes],
        "memory": [
            [m.offset, m.size, m.dies, m.before, m.after] if (m := n.memory) is not None else None
            for n in nodes
        ],
        "block": blocks,
        "drawings": [
            {
                "width": d.width,
                "height": d.height,
                "centres": [list(c) for c in d.centres],
                "ports": [list(p) for p in d.ports],
                "routes": [[r.source, r.target, [list(p) for p in r.points]] for r in d.routes],
                "lanes": [list(lane) for lane in d.lanes],
            }
            for d in drawings
        ],
        "arena": found.arena,
        "apart": found.apart,
    }
