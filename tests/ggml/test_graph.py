"""Tensors and graphs: strides, names and order are ggml's."""

from __future__ import annotations

import numpy as np
import pytest

from llmviz.ggml import ops
from llmviz.ggml.graph import Graph, Tensor, contiguous_strides, new_tensor
from llmviz.ggml.types import GGMLType

F32, F16 = GGMLType.F32, GGMLType.F16


def test_strides_count_up_from_the_fastest_dimension() -> None:
    assert contiguous_strides(F32, (5, 3, 2, 1)) == (4, 20, 60, 120)
    assert contiguous_strides(F16, (5, 3, 2, 1)) == (2, 10, 30, 60)
    assert contiguous_strides(GGMLType.Q4_0, (64, 3, 1, 1)) == (18, 36, 108, 108)


def test_a_tensor_knows_its_sizes() -> None:
    t = new_tensor(F32, 5, 3, 2, name="t")
    assert t.ne == (5, 3, 2, 1)
    assert t.shape == (2, 3, 5)
    assert (t.nelements, t.nbytes) == (30, 120)
    assert t.is_contiguous and not t.is_view and t.root is t
    assert (t.op, t.src) == ("NONE", [])


def test_names_end_in_the_layer() -> None:
    t = new_tensor(F32, 1)
    assert t.set_name("kq", 3).name == "kq-3"
    assert t.il == 3
    assert t.set_name("result_norm").name == "result_norm"
    assert t.il == -1


def test_names_are_63_bytes_at_most() -> None:
    """ggml keeps 64 bytes with the closing zero."""
    assert Tensor(F32, (1,), name="x" * 80).name == "x" * 63
    assert new_tensor(F32, 1).set_name("y" * 62, 12).name == "y" * 62 + "-"
    assert ops.view(new_tensor(F32, 1, name="z" * 60), (1,)).name == "z" * 60 + " (v"


def test_sources_come_before_what_they_are_used_for_left_to_right() -> None:
    """↔ ggml_visit_parents_graph: a depth-first walk, unnamed tensors get a running number."""
    x, w, b = (new_tensor(F32, 4, name=n) for n in ("x", "w", "b"))
    product = ops.mul(x, w)
    total = ops.add(product, b)
    named = ops.scale(total, 2.0).set_name("out")
    last = ops.add(named, product)
    gf = Graph()
    gf.build_forward_expand(last)
    assert [t.name for t in gf.nodes] == ["node_0", "node_1", "out", "node_3"]
    assert gf.nodes == [product, total, named, last]
    assert [t.name for t in gf.leafs] == ["x", "w", "b"]


def test_unnamed_leaves_are_numbered() -> None:
    gf = Graph()
    gf.build_forward_expand(ops.add(new_tensor(F32, 4), new_tensor(F32, 4)))
    assert [t.name for t in gf.leafs] == ["leaf_0", "leaf_1"]


def test_expanding_again_adds_only_what_is_new() -> None:
    x = new_tensor(F32, 4, name="x")
    a = ops.scale(x, 2.0)
    b = ops.scale(a, 3.0)
    gf = Graph()
    gf.build_forward_expand(a)
    gf.build_forward_expand(b)
    gf.build_forward_expand(a)
    assert gf.nodes == [a, b]
    assert gf.leafs == [x]


def test_expanding_early_changes_the_order() -> None:
    x = new_tensor(F32, 4, name="x")
    first, second = ops.scale(x, 2.0), ops.scale(x, 3.0)
    both = ops.add(first, second)
    gf = Graph()
    gf.build_forward_expand(second)
    gf.build_forward_expand(both)
    assert gf.nodes == [second, first, both]


def test_a_view_of_a_view_looks_at_the_root() -> None:
    base = new_tensor(F32, 10, 4, name="base")
    rows = ops.view(base, (10, 2), (40,), offset=80)
    part = ops.view(rows, (3,), (), offset=4)
    assert part.view_src is base and part.root is base
    assert part.view_offs == 84
    assert part.src == [rows]
    base.bind(np.arange(40, dtype=np.float32).view(np.uint8))
    part.bind(base.buffer)  # type: ignore[arg-type]
    assert part.array.tolist() == [21.0, 22.0, 23.0]  # type: ignore[union-attr]


def test_bind_lays_the_array_over_the_bytes() -> None:
    t = new_tensor(F16, 3, 2)
    t.bind(np.arange(6, dtype=np.float16).view(np.uint8))
    assert t.array is not None
    assert t.array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert t.array.dtype == np.float16


def test_blocks_cannot_be_bound_as_an_array() -> None:
    with pytest.raises(ValueError, match="q4_0"):
        new_tensor(GGMLType.Q4_0, 32, name="w").bind(np.zeros(18, np.uint8))


def test_adopt_takes_an_array_without_a_copy() -> None:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    t = new_tensor(F32, 3, 2).adopt(a)
    assert t.array is not None and np.shares_memory(t.array, a)
    a[1, 2] = 50
    assert t.array[1, 2] == 50


@pytest.mark.parametrize("bad", [np.zeros(5, np.float32), np.zeros((6, 2), np.float32)[:, 0]])
def test_adopt_refuses_what_does_not_fit(bad: np.ndarray) -> None:
    with pytest.raises(ValueError, match="w"):
        new_tensor(F32, 3, 2, name="w").adopt(bad)


def test_layers_are_runs_of_neighbours() -> None:
    """A node that ggml named itself belongs where the next named one does."""
    x = new_tensor(F32, 4, name="x")
    embd = ops.scale(x, 1.0).set_name("embd", -1)
    view = ops.reshape(embd, 2, 2)
    a = ops.scale(view, 2.0).set_name("a", 0)
    b = ops.scale(a, 3.0).set_name("b", 0)
    c = ops.scale(b, 3.0).set_name("c", 1)
    out = ops.scale(c, 3.0).set_name("out", -1)
    gf = Graph()
    gf.build_forward_expand(out)
    assert list(gf.by_layer()) == [(-1, [embd]), (0, [view, a, b]), (1, [c]), (-1, [out])]
