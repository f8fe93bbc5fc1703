"""The graph view: blocks open, nodes lead to their values, breakpoints stand on nodes."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("anywidget")

import llmviz
from llmviz import plots, show
from llmviz.errors import LlmvizError
from llmviz.sampling import Chain, Greedy
from llmviz.trace import Debugger, DebuggerError
from llmviz.widgets import DebuggerPanel, GraphView

from ..plots.runs import by_gid, texts
from ..trace import toy
from . import host
from .test_page import CONTRAST

PROMPT = [1, 262, 270, 281]


@pytest.fixture(scope="module")
def model(tiny_model):
    return llmviz.load(tiny_model(n_layer=3))


def debug(model, n: int = 2) -> Debugger:
    dbg = Debugger(model, PROMPT, Chain([Greedy()]), n_predict=6, n_ctx=256)
    for _ in range(n):
        dbg.next_token()
    return dbg


@pytest.fixture(scope="module")
def browser():
    with host.chromium() as running:
        yield running


# -- traits ---------------------------------------------------------------------------------------


def test_a_graph_is_sent_once_and_the_run_follows(model):
    dbg = debug(model, 0)
    view = show.graph(dbg)
    assert isinstance(view, GraphView) and "step 13" in view.graph["why"]
    dbg.next_token()
    first = view.graph
    assert first["names"] == [t.name for t in dbg.ctx.graph.gf.nodes]
    assert len(first["drawings"]) == len({b["drawing"] for b in first["block"]}) == 4
    assert view.graph_open == [1] and view.graph_at["reused"] is False
    dbg.next_token()
    assert view.graph is not first, "it was built for one token"
    second = view.graph
    dbg.break_on("kqv-2")
    dbg.run()
    assert view.graph is second and view.graph_at["reused"] is True
    now = view.graph_at["now"]
    assert second["names"][now] == "kqv-2" and view.graph_at["done"] == now + 1
    assert view.graph_open == [3], "the block that was opened by following closes again"
    view.graph_open = [1, 3]
    view.graph_follow = False
    dbg.clear_break()
    dbg.break_on("kqv-1")
    dbg.run()
    assert view.graph_open == [1, 3]


def test_the_graph_stays_while_the_next_one_is_built(model):
    dbg = debug(model, 1)
    view = GraphView(dbg)
    first = view.graph
    dbg.break_on("build_graph")
    dbg.run()
    assert view.graph is first
    assert view.graph_at["done"] == 0 and view.graph_at["reused"] is None
    dbg.step_over()
    assert view.graph is not first and view.graph_at["reused"] is False
    dbg.clear_break()
    dbg.restart()
    assert "why" in view.graph and view.graph_at == {}


def test_times_are_those_of_the_scheduler(model):
    dbg = debug(model)
    view = GraphView(dbg)
    times = np.frombuffer(view.graph_times, "<f4")
    assert np.array_equal(times, (dbg.times.last_computed().ns / 1e3).astype("<f4"))
    assert len(times) == len(view.graph["names"]) and times.max() > 0


def test_a_node_leads_to_its_values(model):
    dbg = debug(model)
    view = GraphView(dbg)
    index = view.shown_graph.named("kq_soft_max-1")
    assert view.open_node("kq_soft_max-1") is False, "no panel is there to show them"
    assert dbg.here.name == view.opened_node == "kq_soft_max-1" and view.graph_selected == index
    assert view.graph["names"][view.graph_at["now"]] == "kq_soft_max-1"
    panel = DebuggerPanel(dbg, view="graph")
    dbg.panel = panel
    assert view.open_node("ffn_out-2") is True and panel.view == "tensor"
    panel.view = "graph"
    assert panel.open_node(0) is True and dbg.here.name == "embd" and panel.view == "tensor"
    with pytest.raises(LlmvizError, match="no node"):
        view.open_node("no such node")
    with pytest.raises(DebuggerError, match="was not computed yet"):
        early = debug(model, 0)
        early.break_on("set_inputs")
        early.run()
        GraphView(early).open_node("kq-0")


def test_breakpoints_come_and_go(model):
    dbg = debug(model)
    view = GraphView(dbg)
    assert view.toggle_break("kq-1") and dbg.breakpoints[0].where == "kq-1"
    index = view.shown_graph.named("kq-1")
    assert view.graph_at["breaks"] == [[index, True]]
    dbg.run()
    assert dbg.here.name == "kq-1"
    assert not view.toggle_break(index) and view.graph_at["breaks"] == []
    assert view.toggle_layer_break(2) and view.graph_at["block_breaks"] == [[3, True]]
    dbg.run()
    assert dbg.here.name == "layer-2"
    assert not view.toggle_layer_break(2) and not dbg.breakpoints


def test_a_saved_run_shows_its_graph_without_memory_and_times(model, tmp_path):
    pytest.importorskip("zarr")
    dbg = debug(model)
    dbg.save(tmp_path / "run.zarr.zip")
    trace = llmviz.open_trace(tmp_path / "run.zarr.zip")
    view = GraphView(trace)
    assert view.graph["names"] == GraphView(dbg).graph["names"]
    assert view.graph["arena"] == 0 and view.graph_times == b""
    n = trace.n
    with pytest.raises(DebuggerError, match="kq-1 is not kept here"):
        view.open_node("kq-1")
    assert trace.n == n
    assert "saved run" in show.time(trace).time_about["why"]


def test_search_and_choice(model):
    view = GraphView(debug(model))
    assert view.find_nodes("SOFT_MAX") == [f"kq_soft_max-{i}" for i in range(3)]
    assert view.graph["names"][view.graph_selected] == "kq_soft_max-0"
    view.select_node("l_out-2")
    assert view.graph_open == [1, 3]
    view.open_blocks()
    assert view.graph_open == [0, 1, 2, 3, 4]
    view.open_blocks(1)
    assert view.graph_open == [2]
    with pytest.raises(LlmvizError, match="no node"):
        view.select_node(10_000)


def test_without_scripts_and_as_a_figure(model):
    dbg = debug(model)
    dbg.break_on("kq_soft_max-1")
    dbg.run()
    view = GraphView(dbg)
    text = view.fallback_text()
    assert text == view.fallback_text() and "layer 2: 3" in text and "without reuse" in text
    assert view.fallback_html().startswith("<table>")
    figure = plots.graph(dbg)
    now = view.graph_at["now"]
    assert by_gid(figure, f"node-{now}").get_linewidth() == 2
    assert "at kq_soft_max-1" in texts(figure) and "reused" in texts(figure)
    everything = view.figure(graph_open=range(5), graph_colour="time")
    for i, is_view in enumerate(view.graph["views"]):
        assert is_view or by_gid(everything, f"node-{i}") is not None
    with pytest.raises(LlmvizError, match="no block 9"):
        plots.graph(dbg, graph_open=[9])
    bare = Debugger(toy.run())
    bare.next_token()
    with pytest.raises(plots.NothingToDraw):
        plots.graph(bare)
    assert "no graph" in GraphView(bare).fallback_text()


# -- the page -------------------------------------------------------------------------------------


BOX = """() => {
  const c = document.querySelector('.lv-gr-stage canvas'), r = c.getBoundingClientRect();
  const [x, y, w, h] = c.dataset.at.split(',').map(Number);
  return [r.left + x, r.top + y, w, h];
}"""

STILL = """() => new Promise((done) => {
  const n = document.querySelector('.lv-graph');
  let last = n.dataset.paints;
  const look = () => setTimeout(() => {
    if (n.dataset.paints === last) { done(true); return; }
    last = n.dataset.paints;
    look();
  }, 60);
  look();
})"""

LIVE = """(text) =>
  document.querySelector('[aria-live=polite].lv-hidden').textContent.includes(text)"""


def box(page) -> list[float]:
    """Where the chosen node or block lies, on the page."""
    page.wait_for_function("() => document.querySelector('.lv-gr-stage canvas').dataset.at")
    return page.evaluate(BOX)


def settled(page) -> None:
    """Wait until nothing moves on the canvas any more."""
    page.wait_for_function(STILL)


def test_a_page_by_keyboard_and_pointer(browser, model):
    dbg = debug(model, 3)
    view = GraphView(dbg)
    page = browser.new_page(viewport={"width": 960, "height": 1000}, reduced_motion="reduce")
    h = host.Hosted(page, view, width=920)
    names = view.graph["names"]
    canvas = page.locator(".lv-gr-stage canvas")

    def live(text: str) -> None:
        page.wait_for_function(LIVE, arg=text)

    def says(selector: str, text: str) -> None:
        page.wait_for_selector(f"{selector}:has-text('{text}')")

    # by keyboard: blocks, then nodes in the order of computing, then along the data
    canvas.focus()
    page.keyboard.press("PageDown")
    page.keyboard.press("PageUp")
    page.keyboard.press("PageDown")
    live("layer 0")
    page.keyboard.press("ArrowRight")
    first = view.shown_graph.blocks[1].first
    live(names[first])
    assert view.graph_selected == first
    page.keyboard.press("ArrowDown")
    live("attn_norm-0")
    page.keyboard.press("End")
    live("l_out-0")
    page.keyboard.press("ArrowUp")
    live("ffn_out-0")
    assert page.inner_text(".lv-gr-node strong") == "ffn_out-0"
    memory = view.shown_graph.nodes[view.graph_selected].memory
    offset = page.get_attribute(".lv-gr-facts [data-ref^='offset']", "data-value")
    assert int(offset) == memory.offset
    times = np.frombuffer(view.graph_times, "<f4")
    shown = page.get_attribute(".lv-gr-facts [data-ref^='time_us']", "data-value")
    assert float(shown) == pytest.approx(float(times[view.graph_selected]), rel=1e-6)

    # a breakpoint by key, by the left edge of the node, and by the button
    page.keyboard.press("b")
    live("Breakpoint at ffn_out-0")
    assert [b.where for b in dbg.breakpoints] == ["ffn_out-0"]
    settled(page)
    x, y, w, high = box(page)
    page.mouse.click(x + 2, y + high / 2)
    live("No breakpoint at ffn_out-0")
    assert not dbg.breakpoints
    page.click("[data-graph=break]")
    page.wait_for_selector("[data-graph=break][aria-pressed=true]")

    # a click chooses, a second one shows the values
    page.keyboard.press("Escape")
    canvas.focus()
    page.keyboard.press("Escape")
    page.wait_for_function("() => window.model.get('graph_selected') === -1")
    page.mouse.click(x + w / 2, y + high / 2)
    page.wait_for_function("() => window.model.get('graph_selected') >= 0")
    assert names[view.graph_selected] == "ffn_out-0"
    page.mouse.click(x + w / 2, y + high / 2)
    live("The run stands at ffn_out-0")
    assert dbg.here.name == "ffn_out-0" and view.opened_node == "ffn_out-0"

    # search
    page.fill("input[type=search]", "kq_soft")
    says(".lv-gr-found", "3 found")
    page.keyboard.press("Enter")
    says(".lv-gr-found", "of 3")
    assert names[view.graph_selected].startswith("kq_soft_max-")
    assert view.graph_find == "kq_soft"

    # all open, smaller and larger, and dragged
    page.click("[data-graph=all]")
    page.wait_for_selector(".lv-graph[data-open='5']")
    zoom = float(page.get_attribute(".lv-graph", "data-zoom"))
    page.click("[data-graph=in]")
    page.wait_for_function(
        "(z) => document.querySelector('.lv-graph').dataset.zoom > 1.2 * z", arg=zoom
    )
    settled(page)
    before = box(page)
    page.mouse.move(500, 300)
    page.mouse.down()
    page.mouse.move(540, 330, steps=3)
    page.mouse.up()
    settled(page)
    after = box(page)
    assert [round(b - a) for a, b in zip(before[:2], after[:2], strict=True)] == [40, 30]

    # the table is a window of the same nodes
    page.click("summary")
    page.wait_for_selector(".lv-gr-table tr[data-row]")
    rows = page.eval_on_selector_all(
        ".lv-gr-table tr[data-row]", "all => all.map((r) => Number(r.dataset.row))"
    )
    assert (
        len(rows) == 24
        and view.graph_selected in rows
        and f"of {len(names)}" in page.inner_text("caption")
    )
    page.click("text=Later")
    page.wait_for_selector(f".lv-gr-table tr[data-row='{rows[-1] + 1}']")

    for scheme in ("light", "dark"):
        view.theme = scheme
        h.sync()
        page.wait_for_selector(f".llmviz[data-theme={scheme}]")
        found = page.evaluate(CONTRAST)
        assert found["n"] > 40 and found["bad"] == [] and found["small"] == []
    assert h.problems == []
    page.close()


def test_docked_and_on_a_projector(browser, model):
    dbg = debug(model, 2)
    panel = DebuggerPanel(dbg, view="graph")
    dbg.panel = panel
    page = browser.new_page(viewport={"width": 1280, "height": 1000}, reduced_motion="reduce")
    h = host.Hosted(page, panel, width=1240)
    page.locator(".lv-gr-stage canvas").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".lv-gr-node strong")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-tab=tensor][aria-selected=true]")
    assert panel.view == "tensor" and dbg.here.name == panel.graph["names"][panel.graph_selected]
    panel.view, panel.projector = "time", True
    panel.time_by = "node"
    h.sync()
    page.locator("[data-node]").first.click()
    page.wait_for_selector("[data-tab=graph][aria-selected=true]")
    slowest = next(p for p in panel.time_parts if p["index"] >= 0)
    assert panel.graph["names"][panel.graph_selected] == slowest["name"]
    settled(page)
    assert page.evaluate(CONTRAST)["smallest"] >= 18
    assert h.problems == []
    page.close()
