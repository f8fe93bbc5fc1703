"""Who computes what, and what is copied: ggml's rules on graphs small enough to reason out."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from llmviz.errors import DeviceMemoryError, UnsupportedError
from llmviz.events import drain
from llmviz.ggml import ops
from llmviz.ggml.backends.cpu import CPU
from llmviz.ggml.backends.simulated import SimulatedDevice
from llmviz.ggml.graph import Graph, Tensor, new_tensor
from llmviz.ggml.sched import Sched, never
from llmviz.ggml.splits import assign, split
from llmviz.ggml.types import GGMLType
from tests.ggml.graphs import graph_of

N = 4


def devices(n: int = 1) -> list[SimulatedDevice]:
    return [SimulatedDevice(2**20, f"GPU{i} (simulated)") for i in range(n)]


def weight(name: str, home: SimulatedDevice | None, seed: int = 0) -> Tensor:
    """A float32 matrix [N, N] on a device or the host."""
    values = np.random.default_rng(seed).normal(size=(N, N)).astype(np.float32)
    leaf = Tensor(GGMLType.F32, (N, N), name=name)
    leaf.is_weight = True
    if home is None:
        return leaf.adopt(values)
    leaf.home = home
    memory = home.alloc(values.nbytes, "weights")
    array = home.view(memory, values.shape, np.float32)
    home.set(array, values)
    return leaf.adopt(array)


def chain(*homes: SimulatedDevice | None, rows: int = 1) -> tuple[Tensor, Graph]:
    """x -> scale -> (matrix, scale) for each home: what layers on those devices look like."""
    cur = new_tensor(GGMLType.F32, N, rows, name="x", is_input=True)
    cur = ops.scale(cur, 2.0).set_name("first")
    for i, home in enumerate(homes):
        cur = ops.mul_mat(weight(f"w{i}", home, i), cur).set_name("mm", i)
        cur = ops.scale(cur, 0.5).set_name("half", i)
    return cur, graph_of(cur)


def shape(graph: Graph, backends: list, **more: object) -> list[tuple[str, list[str], list[str]]]:
    """(backend, its nodes, its inputs) of every split."""
    found = assign(graph, backends, **more)  # type: ignore[arg-type]
    return [
        (
            backends[s.backend].name.split()[0],
            [n.name for n in graph.nodes[s.i_start : s.i_end]][len(s.copies) :],
            [t.name for t in s.inputs],
        )
        for s in split(graph, backends, found)
    ]


def test_a_graph_with_weights_on_one_device_is_one_split() -> None:
    """Also the op before the first weight: devices spread up and down."""
    (gpu,) = devices()
    _, graph = chain(gpu, gpu)
    nodes = ["first", "mm-0", "half-0", "mm-1", "half-1"]
    assert shape(graph, [gpu, CPU()]) == [("GPU0", nodes, ["x"])]


def test_nothing_on_the_device_is_one_split_of_the_host() -> None:
    (gpu,) = devices()
    _, graph = chain(None, None)
    found = shape(graph, [gpu, CPU()])
    assert found == [("CPU", ["first", "mm-0", "half-0", "mm-1", "half-1"], [])]
    assert all(node.home is None for node in graph.nodes)


def test_the_host_first_then_two_devices() -> None:
    """What follows a device's matrix stays there; what precedes the next one's too."""
    a, b = devices(2)
    _, graph = chain(None, a, b)
    assert shape(graph, [a, b, CPU()]) == [
        ("CPU", ["first", "mm-0"], []),
        ("GPU0", ["half-0", "mm-1", "half-1"], ["mm-0"]),
        ("GPU1", ["mm-2", "half-2"], ["half-1"]),
    ]


def test_a_device_spreads_up_before_the_host_spreads_down() -> None:
    """half-0 lies between the host's matrix and the device's: the device takes it."""
    (gpu,) = devices()
    out, graph = chain(None, gpu)
    found = assign(graph, [gpu, CPU()])
    causes = {n.name: (found.of(n), found.cause[id(n)]) for n in graph.nodes}
    assert causes == {
        "first": (1, "2.sup"),
        "mm-0": (1, "1.wgt0"),
        "half-0": (0, "2.sup"),
        "mm-1": (0, "1.wgt0"),
        "half-1": (0, "2.sup"),
    }
    assert found.of(graph.leafs[0]) in (0, 1) and out.name == "half-1"
    assert {t.name: found.cause[id(t)] for t in graph.leafs} == {
        "x": "1.inp", "w0": "1.dst", "w1": "1.dst",
    }  # fmt: skip


def test_a_pinned_node_stays_where_the_builder_wants_it() -> None:
    (gpu,) = devices()
    _, graph = chain(None, gpu)
    half = next(n for n in graph.nodes if n.name == "half-0")
    found = shape(graph, [gpu, CPU()], pinned={id(half): 1})
    assert found == [
        ("CPU", ["first", "mm-0", "half-0"], []),
        ("GPU0", ["mm-1", "half-1"], ["half-0"]),
    ]


def test_there_and_back_is_three_splits_and_each_source_is_copied_once() -> None:
    a, b = devices(2)
    x = new_tensor(GGMLType.F32, N, 1, name="x", is_input=True)
    u = ops.mul_mat(weight("u", a), x).set_name("u.x")
    v = ops.mul_mat(weight("v", b), u).set_name("v.u")
    w = ops.add(ops.mul_mat(weight("w", b), u).set_name("w.u"), v).set_name("sum")
    z = ops.mul_mat(weight("z", a), w).set_name("z")
    assert shape(graph_of(z), [a, b, CPU()]) == [
        ("GPU0", ["u.x"], ["x"]),
        ("GPU1", ["w.u", "v.u", "sum"], ["u.x"]),
        ("GPU0", ["z"], ["sum"]),
    ]


def test_copies_are_nodes_with_ggmls_names_before_their_split() -> None:
    a, b = devices(2)
    out, graph = chain(a, b)
    sched = Sched([a, b, CPU()])
    sched.alloc_graph(graph, [out])
    assert [n.name for n in graph.nodes] == [
        "GPU0 (simulated)#x#0", "first", "mm-0", "half-0",
        "GPU1 (simulated)#half-0#0", "mm-1", "half-1",
    ]  # fmt: skip
    assert [(c.source, c.origin, c.target, c.split, c.nbytes) for c in sched.copies] == [
        ("x", "CPU", a.name, 0, 4 * N),
        ("half-0", a.name, b.name, 1, 4 * N),
    ]
    assert sched.n_splits == 2


@pytest.mark.parametrize("rows", [1, 40])
def test_the_numbers_are_those_of_one_backend_and_every_kernel_stays_at_home(rows: int) -> None:
    x = np.random.default_rng(9).normal(size=(rows, N)).astype(np.float32)
    results = []
    a, b = devices(2)
    for places in ((None, None, None), (None, a, b), (a, None, b), (a, b, a)):
        out, graph = chain(*places, rows=rows)
        sched = Sched([a, b, CPU()])
        sched.alloc_graph(graph, [out])
        for node in graph.nodes:
            at = {id(src.home) for src in node.src}
            assert at == {id(node.home)} or node.op == "CPY"
        leaf = next(t for t in graph.leafs if t.name == "x")
        leaf.write(x)
        drain(sched.compute(never))
        results.append(out.read().tobytes())
    assert len(set(results)) == 1


def test_a_large_batch_brings_the_hosts_weights_to_the_device() -> None:
    """From 32 rows on, and only where op_offload is on; each weight starts a split."""
    (gpu,) = devices()
    _, small = chain(None, None, rows=31)
    assert shape(small, [gpu, CPU()]) == [
        ("CPU", ["first", "mm-0", "half-0", "mm-1", "half-1"], [])
    ]
    _, large = chain(None, None, rows=32)
    assert shape(large, [gpu, CPU()]) == [
        ("GPU0", ["first"], ["x"]),
        ("GPU0", ["mm-0", "half-0"], ["w0"]),
        ("GPU0", ["mm-1", "half-1"], ["w1"]),
    ]
    _, off = chain(None, None, rows=32)
    assert len(shape(off, [gpu, CPU()], op_offload=False)) == 1


def test_an_op_that_the_device_does_not_know_runs_on_the_host() -> None:
    class NoScale(SimulatedDevice):
        def supports(self, node: Tensor) -> bool:
            return node.op != "SCALE" and super().supports(node)

    gpu = NoScale(2**20)
    _, graph = chain(gpu, gpu)
    assert shape(graph, [gpu, CPU()]) == [
        ("CPU", ["first"], []),
        ("GPU0", ["mm-0"], ["first"]),
        ("CPU", ["half-0"], ["mm-0"]),
        ("GPU0", ["mm-1"], ["half-0"]),
        ("CPU", ["half-1"], ["mm-1"]),
    ]


def test_a_cache_decides_where_it_is_written() -> None:
    a, b = devices(2)
    cache = Tensor(GGMLType.F32, (N, 8), name="cache_k_l0")
    cache.home = b
    cache.adopt(b.view(b.alloc(4 * N * 8, "kv"), (8, N), np.float32))
    ids = new_tensor(GGMLType.I64, 1, name="ids", is_input=True)
    x = new_tensor(GGMLType.F32, N, 1, name="x", is_input=True)
    row = ops.mul_mat(weight("w", a), x).set_name("row")
    stored = ops.set_rows(cache, row, ids).set_name("stored")
    found = shape(graph_of(stored), [a, b, CPU()])
    assert found == [("GPU0", ["row"], ["x"]), ("GPU1", ["stored"], ["row", "ids"])]

    class NoRows(SimulatedDevice):
        def supports(self, node: Tensor) -> bool:
            return node.op != "SET_ROWS"

    odd = NoRows(2**20)
    cache.home = odd
    row = ops.mul_mat(weight("w", a), x).set_name("row")
    with pytest.raises(UnsupportedError, match="SET_ROWS"):
        assign(graph_of(ops.set_rows(cache, row, ids)), [a, odd, CPU()])


def test_strided_sources_keep_their_layout() -> None:
    """Half of each row of a wider result: the copy has the same gaps."""
    a, b = devices(2)
    x = new_tensor(GGMLType.F32, N, 3, name="x", is_input=True)
    wide = ops.mul_mat(weight("w", a), x).set_name("wide")
    part = ops.view(wide, (N // 2, 3), (wide.nb[1],), offset=8)
    stays = ops.scale(wide, 1.0).set_name("stays")
    tall = Tensor(GGMLType.F32, (N // 2, 2), name="tall")
    tall.is_weight, tall.home = True, b
    tall.adopt(b.view(b.alloc(16, "weights"), (2, N // 2), np.float32))
    tall.write(np.eye(2, dtype=np.float32))
    out = ops.mul_mat(tall, part).set_name("out")
    graph = graph_of(stays)
    graph.build_forward_expand(out)
    sched = Sched([a, b, CPU()])
    sched.alloc_graph(graph, [out, stays])
    values = np.arange(3 * N, dtype=np.float32).reshape(3, N)
    x.write(values)
    drain(sched.compute(never))
    np.testing.assert_array_equal(out.read(), stays.read()[:, 2:])
    assert sched.copies[-1].nbytes == 2 * wide.nb[1] + 8


def test_memory_of_every_device_is_measured_before_it_is_taken() -> None:
    a, b = devices(2)
    out, graph = chain(a, b)
    sched = Sched([a, b, CPU()])
    sizes = sched.measure(graph, [out])
    assert a.used["compute"] == b.used["compute"] == 0
    sched.alloc_graph(graph, [out])
    assert [a.used["compute"], b.used["compute"]] == sizes[:2]
    assert [x.size for x in sched.allocators] == sizes


def test_a_graph_that_outgrows_the_device_is_refused_and_the_next_one_runs() -> None:
    gpu = SimulatedDevice(4096)
    home = weight("w", gpu)
    sched = Sched([gpu, CPU()])

    def graph(rows: int) -> tuple[Tensor, Tensor, Graph]:
        x = new_tensor(GGMLType.F32, N, rows, name="x", is_input=True)
        out = ops.mul_mat(home, x).set_name("out")
        return x, out, graph_of(out)

    _, out, small = graph(2)
    sched.reserve(small, [out])
    _, out, large = graph(300)
    with pytest.raises(DeviceMemoryError, match="logits of fewer tokens"):
        sched.alloc_graph(large, [out])
    x, out, again = graph(2)
    sched.alloc_graph(again, [out])
    x.write(np.ones((2, N), np.float32))
    drain(sched.compute(never))
    assert home.array is not None
    np.testing.assert_allclose(out.read(), np.ones((2, N)) @ home.array.T, rtol=1e-6)


def homes(tensors: Iterable[Tensor]) -> list[str]:
    return [t.home.name if t.home else "CPU" for t in tensors]


def test_a_divided_graph_can_be_allocated_again() -> None:
    a, b = devices(2)
    out, graph = chain(a, b)
    sched = Sched([a, b, CPU()])
    sched.alloc_graph(graph, [out])
    before = [n.name for n in graph.nodes], homes(graph.nodes)
    sched.alloc_graph(graph, [out])
    assert before == ([n.name for n in graph.nodes], homes(graph.nodes))
