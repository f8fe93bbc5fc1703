"""The cache as graph leaves: what a graph writes and reads is the cache's own memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from llmviz.ggml import ops
from llmviz.ggml.graph import Tensor
from llmviz.ggml.types import GGMLType
from llmviz.memory.kv_cache import KVCache
from llmviz.memory.slots import SlotInfo
from llmviz.model.hparams import HParams
from llmviz.model.kv_tensors import KVTensors
from tests.ggml.graphs import compute, leaf

N_HEAD_KV, HEAD, KV_SIZE, N_LAYER = 2, 4, 8, 2
N_EMBD = N_HEAD_KV * HEAD
RNG = np.random.default_rng(2)


def make(
    type_: GGMLType = GGMLType.F16, n_seq_max: int = 1, unified: bool = True, v_trans: bool = True
) -> KVTensors:
    hp = HParams(
        n_layer=N_LAYER,
        n_head_arr=np.full(N_LAYER, 4),
        n_head_kv_arr=np.full(N_LAYER, N_HEAD_KV),
        n_embd_head_k=HEAD,
        n_embd_head_v=HEAD,
    )
    cache = KVCache(
        layers=[(il, N_EMBD, N_EMBD) for il in range(N_LAYER)],
        kv_size=KV_SIZE,
        n_seq_max=n_seq_max,
        unified=unified,
        type_k=type_,
        type_v=type_,
        v_trans=v_trans,
    )
    return KVTensors(cache, hp)


def slot(*streams: int, cells: tuple[int, ...] = (0,)) -> SlotInfo:
    at = np.array(cells, np.int64)
    return SlotInfo(min(streams), max(streams), list(streams), [at] * len(streams))


def bound(t: Tensor) -> np.ndarray:
    """The view's values, laid over its root's memory."""
    assert t.root.buffer is not None
    t.bind(t.root.buffer)
    assert t.array is not None
    return t.array


@pytest.mark.parametrize("type_", [GGMLType.F16, GGMLType.F32])
def test_leaves_are_the_caches_arrays(type_: GGMLType) -> None:
    kv = make(type_)
    for il in range(N_LAYER):
        layer = kv.cache.layer(il)
        assert kv.k[il].name == f"cache_k_l{il}" and kv.v[il].name == f"cache_v_l{il}"
        assert kv.k[il].ne == kv.v[il].ne == (N_EMBD, KV_SIZE, 1, 1)
        assert kv.k[il].array is not None and np.shares_memory(kv.k[il].array, layer.k)
        assert kv.v[il].array is not None and layer.v is not None
        assert np.shares_memory(kv.v[il].array, layer.v)
        assert (kv.k[il].mirror is None) == (type_ == GGMLType.F32)


def test_windows_by_hand() -> None:
    """K [cell, head, value]; V transposed [head, value, cell]; only the first n_kv cells."""
    kv = make(GGMLType.F32)
    layer = kv.cache.layer(1)
    assert layer.v is not None
    layer.k[...] = RNG.standard_normal(layer.k.shape)
    layer.v[...] = RNG.standard_normal(layer.v.shape)
    k, v = kv.get_k(5, slot(0), 1), kv.get_v(5, slot(0), 1)
    assert (k.ne, v.ne) == ((HEAD, N_HEAD_KV, 5, 1), (5, N_HEAD_KV, HEAD, 1))
    np.testing.assert_array_equal(bound(k), layer.k[0, :5].reshape(5, N_HEAD_KV, HEAD))
    expected = layer.v[0, :, :5].reshape(N_HEAD_KV, HEAD, 5).transpose(1, 0, 2)
    np.testing.assert_array_equal(bound(v), expected)


@pytest.mark.parametrize("streams", [(0,), (2,), (1, 2), (0, 1, 2)])
def test_windows_of_streams(streams: tuple[int, ...]) -> None:
    kv = make(GGMLType.F32, n_seq_max=3, unified=False)
    layer = kv.cache.layer(0)
    assert layer.v is not None
    layer.k[...] = RNG.standard_normal(layer.k.shape)
    layer.v[...] = RNG.standard_normal(layer.v.shape)
    some = list(streams)
    k, v = bound(kv.get_k(5, slot(*streams), 0)), bound(kv.get_v(5, slot(*streams), 0))
    want_k = layer.k[some, :5].reshape(len(some), 5, N_HEAD_KV, HEAD)
    want_v = layer.v[some][:, :, :5].reshape(len(some), N_HEAD_KV, HEAD, 5).swapaxes(1, 2)
    np.testing.assert_array_equal(k.reshape(want_k.shape), want_k)
    np.testing.assert_array_equal(v.reshape(want_v.shape), want_v)


def test_v_that_is_not_transposed() -> None:
    kv = make(GGMLType.F32, v_trans=False)
    layer = kv.cache.layer(0)
    assert layer.v is not None
    layer.v[...] = RNG.standard_normal(layer.v.shape)
    v = kv.get_v(5, slot(0), 0)
    assert v.ne == (HEAD, N_HEAD_KV, 5, 1)
    np.testing.assert_array_equal(bound(v), layer.v[0, :5].reshape(5, N_HEAD_KV, HEAD))


def write(kv: KVTensors, il: int, info: SlotInfo) -> tuple[np.ndarray, np.ndarray]:
    """Run a graph that stores random K and V of as many tokens as `info` has cells."""
    n = info.size * info.n_stream
    k = RNG.standard_normal((n, N_HEAD_KV, HEAD), dtype=np.float32)
    v = RNG.standard_normal((n, N_HEAD_KV, HEAD), dtype=np.float32)
    k_idxs = np.zeros(n, np.int64)
    v_idxs = np.zeros(n * (N_EMBD if kv.cache.v_trans else 1), np.int64)
    kv.cache.set_input_k_idxs(k_idxs, info)
    kv.cache.set_input_v_idxs(v_idxs, info)
    compute(kv.cpy_k(leaf(k), leaf(k_idxs), il), kv.cpy_v(leaf(v), leaf(v_idxs), il))
    return k.reshape(n, N_EMBD), v.reshape(n, N_EMBD)


@pytest.mark.parametrize("type_", [GGMLType.F16, GGMLType.F32])
@pytest.mark.parametrize("v_trans", [True, False])
def test_what_a_graph_stores_is_in_the_cache(type_: GGMLType, v_trans: bool) -> None:
    kv = make(type_, v_trans=v_trans)
    k, v = write(kv, 1, slot(0, cells=(6, 1, 2)))
    layer = kv.cache.layer(1)
    assert layer.v is not None
    stored_v = layer.v[0].T if v_trans else layer.v[0]
    np.testing.assert_array_equal(layer.k[0, [6, 1, 2]], k.astype(layer.k.dtype))
    np.testing.assert_array_equal(stored_v[[6, 1, 2]], v.astype(layer.v.dtype))
    others = [0, 3, 4, 5, 7]
    assert not layer.k[0, others].any() and not stored_v[others].any()
    assert not kv.cache.layer(0).k.any()


@pytest.mark.parametrize("type_", [GGMLType.F16, GGMLType.F32])
def test_storing_into_streams(type_: GGMLType) -> None:
    kv = make(type_, n_seq_max=3, unified=False)
    k, v = write(kv, 0, slot(1, 2, cells=(0, 5)))
    layer = kv.cache.layer(0)
    assert layer.v is not None
    np.testing.assert_array_equal(layer.k[1, [0, 5]], k[:2].astype(layer.k.dtype))
    np.testing.assert_array_equal(layer.k[2, [0, 5]], k[2:].astype(layer.k.dtype))
    np.testing.assert_array_equal(layer.v[2].T[[0, 5]], v[2:].astype(layer.v.dtype))
    assert not layer.k[0].any()


def mirrors_match(kv: KVTensors) -> bool:
    kv.refresh()
    return all(
        t.mirror is not None
        and t.array is not None
        and np.array_equal(t.mirror, t.array.astype(np.float32).reshape(-1))
        for t in (*kv.k.values(), *kv.v.values())
    )


def fill(kv: KVTensors) -> None:
    for il in range(N_LAYER):
        write(kv, il, slot(0, cells=(0, 1, 2)))
    for stream, cells in enumerate(kv.cache.cells[:1]):
        cells.put(
            np.arange(3), np.arange(3, dtype=np.int32), np.full(3, 5, np.int32), [(stream,)] * 3
        )


CHANGES: dict[str, Any] = {
    "graph": lambda kv, state: None,
    "clear": lambda kv, state: kv.cache.clear(),
    "state_read": lambda kv, state: kv.cache.state_read(state),
    "state_read_into_sequence": lambda kv, state: kv.cache.state_read(state, 1),
    "restore_rows": lambda kv, state: kv.cache.restore_rows(state),
    "seq_cp": lambda kv, state: (kv.cache.seq_cp(0, 1), kv.cache.update()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_mirror_follows_every_change(change: str) -> None:
    """Attention reads the float32 mirror: it must hold what the float16 cache holds."""
    kv = make(n_seq_max=2, unified=False)
    fill(kv)
    assert mirrors_match(kv)
    if change == "restore_rows":
        state: Any = kv.cache.save_rows(slot(0, cells=(0, 1, 2)))
    else:
        state = kv.cache.state_write(0 if "sequence" in change else -1)
    if "state" in change or change == "restore_rows":
        write(kv, 0, slot(0, cells=(0, 1, 2)))
        write(kv, 1, slot(0, cells=(0, 1, 2)))
    CHANGES[change](kv, state)
    assert mirrors_match(kv)
    if change == "seq_cp":
        assert kv.cache.layer(0).k[1].any()


def test_a_read_in_the_graph_that_wrote_sees_it() -> None:
    kv = make()
    k = RNG.standard_normal((2, N_HEAD_KV, HEAD), dtype=np.float32)
    q = RNG.standard_normal((4, 1, HEAD), dtype=np.float32)
    stored = kv.cpy_k(leaf(k), leaf(np.array([0, 1], np.int64)), 0)
    window = ops.permute(kv.get_k(2, slot(0), 0), 0, 2, 1, 3)
    scores = compute(stored, ops.mul_mat(window, leaf(q)))[1]
    half = k.astype(np.float16).astype(np.float64)
    exact = np.stack([q[h].astype(np.float64) @ half[:, h // 2].T for h in range(4)])
    np.testing.assert_allclose(scores, exact, rtol=0, atol=1e-5)
