"""The graph as it is shown: the engine's own order, memory without conflict, and where a run is."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import llmviz
from llmviz.sampling import Chain, Greedy
from llmviz.trace import Debugger
from llmviz.trace.graph_layout import BOX, DOT, lay_out
from llmviz.trace.graph_view import broken, describe, progress, shown
from llmviz.trace.time_parts import parts_of

from . import toy

PROMPT = [1, 262, 270, 281]


@pytest.fixture(scope="module")
def model(tiny_model):
    return llmviz.load(tiny_model(n_layer=3))


def debug(model, n: int = 1, **options) -> Debugger:
    options = {"n_predict": 4, "n_ctx": 256, **options}
    dbg = Debugger(model, PROMPT, Chain([Greedy()]), **options)
    for _ in range(n):
        dbg.next_token()
    return dbg


# -- layout ---------------------------------------------------------------------------------------


def graphs() -> st.SearchStrategy:
    def edges(n: int) -> st.SearchStrategy:
        some = st.tuples(st.integers(-2, n - 1), st.integers(0, n - 1)).filter(
            lambda e: e[0] < e[1]
        )
        return st.tuples(
            st.lists(st.booleans(), min_size=n, max_size=n).map(tuple),
            st.lists(st.integers(0, 1), min_size=n, max_size=n).map(sorted).map(tuple),
            st.lists(some, max_size=2 * n).map(tuple),
        )

    return st.integers(1, 16).flatmap(edges)


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_no_node_lies_on_another_and_data_flows_to_the_right(graph):
    small, lane, edges = graph
    drawing = lay_out(small, lane, edges)
    boxes = []
    for (x, y), s in zip(drawing.centres, small, strict=True):
        w, h = DOT if s else BOX
        boxes.append((x - w / 2, y - h / 2, x + w / 2, y + h / 2))
        assert boxes[-1][0] >= 0 and boxes[-1][2] <= drawing.width + 0.1
        assert boxes[-1][1] >= 0 and boxes[-1][3] <= drawing.height + 0.1
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            apart = a[0] >= b[2] or b[0] >= a[2] or a[1] >= b[3] - 0.1 or b[1] >= a[3] - 0.1
            assert apart, (small, lane, edges)
    assert {(r.source, r.target) for r in drawing.routes} == set(edges)
    for r in drawing.routes:
        if r.source >= 0 and lane[r.source] == lane[r.target]:
            xs = [x for x, _ in r.points]
            assert xs == sorted(xs), "inside of a line every edge goes to the right"
    assert lay_out.__wrapped__(small, lane, edges) == drawing, "the same every time"


def test_a_block_of_too_many_nodes_is_drawn_without_edges():
    n = 3000
    drawing = lay_out((False,) * n, (0,) * n, tuple((i, i + 1) for i in range(n - 1)))
    assert len(set(drawing.centres)) == n and drawing.routes == ()


def test_a_norm_without_a_number_belongs_to_the_layer_around_it(tmp_path):
    from ..tiny_archs import write_arch

    path = write_arch(tmp_path / "olmo2.gguf", "olmo2")
    dbg = Debugger(llmviz.load(path), [1, 5, 9], Chain([Greedy()]), n_predict=2, n_ctx=64)
    dbg.next_token()
    graph = shown(dbg)
    assert [b.title for b in graph.blocks] == ["input", "layer 0", "layer 1", "output"]
    dbg.next_token()
    graph = shown(dbg)
    at = progress(dbg, graph)
    for node in graph.nodes[:: len(graph.nodes) // 6]:
        dbg.goto(at.start + graph.events[node.index])
        assert dbg.here.name == node.name, "events go by the engine's own scopes"
    layers = parts_of(dbg.times.passes[1], "layer")
    assert [p.name for p in layers if p.depth == 0][:4] == [
        "embedding", "layer 0", "layer 1", "output",
    ]  # fmt: skip


def test_equal_layers_share_one_drawing(model):
    graph = shown(debug(model))
    assert [b.title for b in graph.blocks] == ["input", "layer 0", "layer 1", "layer 2", "output"]
    assert graph.blocks[1].drawing is graph.blocks[2].drawing
    assert graph.blocks[1].lanes == ("attention", "feed-forward")
    assert sum(b.count for b in graph.blocks) == len(graph.nodes)


# -- nodes ----------------------------------------------------------------------------------------


def test_nodes_are_those_of_the_engine_in_its_order(model):
    dbg = debug(model)
    graph, nodes = shown(dbg), dbg.ctx.graph.gf.nodes
    assert [n.name for n in graph.nodes] == [t.name for t in nodes]
    assert [n.layer for n in graph.nodes] == [t.il for t in nodes]
    for n, t in zip(graph.nodes, nodes, strict=True):
        assert {graph.nodes[s].name for s in n.src} == {s.name for s in t.src if s in nodes}
        assert (n.type == "f32" and n.backend == "CPU" and n.split == 0) or n.view or n.cache
        assert all(s < n.index for s in (*n.src, *n.stored))
    keys = graph.nodes[graph.named("cache_k_l1 (view) (permuted)")]
    (reader,) = keys.src
    (writer,) = graph.nodes[reader].stored
    assert graph.nodes[writer].op == "SET_ROWS" and graph.nodes[writer].cache == "cache_k_l1"
    assert "blk.1.attn_q.weight" in graph.nodes[graph.find("qcur-1")[0]].leafs


def test_memory_is_the_allocators_and_never_two_results_at_once(model):
    dbg = debug(model)
    graph, plan = shown(dbg), dbg.ctx.sched.plan
    nodes = dbg.ctx.graph.gf.nodes
    own = [n for n in graph.nodes if n.memory is not None]
    assert {n.index for n in own} == {i for i, t in enumerate(nodes) if not t.is_view}
    for n in own:
        assert n.memory.offset == plan.offsets[id(nodes[n.index])]
        assert n.memory.size == nodes[n.index].nbytes and n.memory.born == n.index
        assert n.memory.offset + n.memory.size <= graph.arena == plan.size
    for a in own:
        for b in own[: own.index(a)]:
            meet = (
                a.memory.offset < b.memory.offset + b.memory.size
                and b.memory.offset < a.memory.offset + a.memory.size
            )
            assert not meet or b.memory.dies < a.memory.born, (b.name, a.name)
    reused = [n for n in own if n.memory.before >= 0]
    assert (
        len(reused) > len(own) / 2 and graph.apart > 2 * graph.arena - graph.nodes[-1].memory.size
    )
    for n in reused:
        before = graph.nodes[n.memory.before].memory
        assert before.dies < n.index and before.after >= 0
    assert graph.nodes[-1].memory.dies == len(nodes), "the logits are read after the graph"


def test_views_read_a_layer_by_ggmls_own_names_too(model):
    """A saved run holds no memory and no backends; all else is the same."""
    nodes = debug(model).ctx.graph.gf.nodes
    graph = describe(nodes)
    assert graph.arena == 0 and all(n.memory is None and n.split == -1 for n in graph.nodes)
    assert describe(nodes[:1]).blocks[0].count == 1


def test_find_by_part_glob_and_case(model):
    graph = shown(debug(model))
    assert [graph.nodes[i].name for i in graph.find("KQ_SOFT_MAX")] == [
        f"kq_soft_max-{i}" for i in range(3)
    ]
    assert [graph.nodes[i].name for i in graph.find("l_out-*")] == ["l_out-0", "l_out-1", "l_out-2"]
    assert graph.find("  ") == [] and graph.find("no such node") == []
    assert graph.named("no such node") == -1


# -- where a run is -------------------------------------------------------------------------------


def test_event_numbers_and_progress_agree_with_a_stepped_run(model):
    dbg = debug(model, 1)
    dbg.break_on("process_ubatch")
    dbg.run()
    dbg.clear_break()
    graph = shown(dbg)
    seen = 0
    waiting = progress(dbg, graph)
    assert (waiting.now, waiting.done, waiting.reused) == (-1, 0, None) and waiting.start > 0
    while dbg.here.name != "output":
        dbg.step_into()
        if dbg.here.name == "build_graph" and dbg.here.kind == "exit":
            graph = shown(dbg)
        at = progress(dbg, graph)
        if dbg.here.kind == "node":
            assert at.now == seen and at.done == seen + 1
            assert graph.nodes[at.now].name == dbg.here.name
            assert at.start + graph.events[at.now] == dbg.n
            assert dbg.here.about is dbg.ctx.graph.gf.nodes[seen]
            seen += 1
        elif seen:
            assert at.now == -1 and at.done == seen
    assert seen == len(graph.nodes)
    assert progress(dbg, graph).done == seen, "until the next ubatch begins"


def test_built_then_reused(model):
    dbg = debug(model, 1)
    assert progress(dbg, shown(dbg)).reused is False
    dbg.next_token()
    assert progress(dbg, shown(dbg)).reused is False, "one token instead of four"
    dbg.next_token()
    assert progress(dbg, shown(dbg)).reused is True and dbg.ctx.n_reused == 1


def test_breakpoints_on_nodes_layers_and_globs(model):
    dbg = debug(model)
    graph = shown(dbg)
    dbg.break_on("kq-1")
    dbg.break_on("l_out-*").enabled = False
    dbg.break_on(layer=2)
    dbg.break_on(scope="layer-0")
    dbg.break_on("norm-*", layer=1)
    dbg.break_on(token="x")
    dbg.break_on(13)
    nodes, blocks = broken(dbg, graph)
    names = {graph.nodes[i].name: on for i, on in nodes.items()}
    assert names == {
        "kq-1": True, "l_out-0": False, "l_out-1": False, "l_out-2": False, "norm-1": True,
    }  # fmt: skip
    assert blocks == {1: True, 3: True}


def test_a_run_without_a_graph():
    dbg = Debugger(toy.run())
    dbg.next_token()
    assert shown(dbg) is None


def test_blocks_follow_one_another(model):
    graph = shown(debug(model))
    for a, b in pairwise(graph.blocks):
        assert a.first + a.count == b.first
        for port in b.ports:
            assert port < b.first


def test_devices_are_named_where_there_are_several(tiny_model):
    """Blocks say where they are computed; copies are a part of their own, arenas have theirs."""
    gpu = llmviz.SimulatedDevice(2**26)
    model = llmviz.load(tiny_model(n_layer=3), devices=[gpu], n_gpu_layers=2)
    with Debugger(model, [1, 2, 3], n_ctx=64) as dbg:
        dbg.next_token()
        graph = shown(dbg)
        sched = dbg.ctx.sched
        assert [b.title.partition(" on ")[2] for b in graph.blocks] == [
            "CPU",
            "CPU",
            "CPU and GPU0 (simulated)",
            "GPU0 (simulated)",
            "GPU0 (simulated)",
        ]
        copies = [n for n in graph.nodes if n.part == "copies"]
        assert [n.name for n in copies] == [c.name for c in sched.copies]
        assert {n.backend for n in copies} == {gpu.name}
        assert [n.split for n in graph.nodes] == sorted(n.split for n in graph.nodes)
        assert graph.nodes[-1].split == sched.n_splits - 1 == 1
        assert graph.arena == sum(plan.size for plan in sched.plans)
        for n in graph.nodes:
            assert (n.memory is None) == (n.view or bool(n.cache))
