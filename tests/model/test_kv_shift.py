"""K-shift: a key that is turned by the difference is the key stored at the new position."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from llmviz.ggml.graph import Tensor, new_tensor
from llmviz.ggml.types import GGMLType
from llmviz.memory.kv_cache import KVCache
from llmviz.model.arch import ModelWeights
from llmviz.model.cparams import CParams
from llmviz.model.hparams import HParams
from llmviz.model.kv_shift import make_k_shift
from llmviz.model.kv_tensors import KVTensors

N_HEAD_KV, HEAD, KV_SIZE = 2, 8, 6
N_EMBD = N_HEAD_KV * HEAD
RAW = np.random.default_rng(4).standard_normal((KV_SIZE, N_HEAD_KV, HEAD))


def turn(
    x: np.ndarray, pos: list[int], mode: str, base: float, scale: float, factors: Any
) -> np.ndarray:
    """x: float64 [n, n_head, n_embd_head], turned to the positions as complex numbers."""
    i = np.arange(HEAD // 2)
    freq = base ** (-2.0 * i / HEAD) / (1.0 if factors is None else factors) * scale
    w = np.exp(1j * np.outer(pos, freq))[:, None]  # [n, 1, n_embd_head / 2]
    out = np.empty_like(x)
    if mode == "norm":
        z = (x[..., 0::2] + 1j * x[..., 1::2]) * w
        out[..., 0::2], out[..., 1::2] = z.real, z.imag
    else:
        z = (x[..., : HEAD // 2] + 1j * x[..., HEAD // 2 :]) * w
        out[..., : HEAD // 2], out[..., HEAD // 2 :] = z.real, z.imag
    return out


class Setup:
    def __init__(self, type_: GGMLType, mode: str, scale: float = 1.0, factors: Any = None) -> None:
        hp = HParams(
            n_layer=1,
            n_head_arr=np.array([4]),
            n_head_kv_arr=np.array([N_HEAD_KV]),
            n_embd_head_k=HEAD,
            n_embd_head_v=HEAD,
            n_rot=HEAD,
            rope_type=mode,
        )
        self.cache = KVCache(
            layers=[(0, N_EMBD, N_EMBD)], kv_size=KV_SIZE, type_k=type_, type_v=type_
        )
        self.kv = KVTensors(self.cache, hp)
        weights = ModelWeights(1)
        if factors is not None:
            weights.layers[0].rope_freqs = rope_freqs(factors)
        c = CParams(rope_freq_base=10000.0, rope_freq_scale=scale, n_ctx_orig_yarn=64)
        self.shift = make_k_shift(self.kv, hp, c, weights)
        self.turn = lambda pos: turn(RAW, pos, mode, 10000.0, scale, factors)

    def store(self, pos: list[int]) -> None:
        """As the graph would have: raw keys turned to their positions."""
        self.cache.layer(0).k[0] = self.turn(pos).reshape(KV_SIZE, N_EMBD)
        leaf = self.kv.k[0]
        if leaf.mirror is not None:
            leaf.mirror[...] = self.cache.layer(0).k.astype(np.float32).reshape(-1)
        n = len(pos)
        self.cache.cells[0].put(
            np.arange(n), np.array(pos, np.int32), np.full(n, 5, np.int32), [(0,)] * n
        )

    def keys(self) -> np.ndarray:
        return np.array(self.cache.layer(0).k[0], np.float64).reshape(RAW.shape)


def rope_freqs(factors: np.ndarray) -> Tensor:
    return new_tensor(GGMLType.F32, len(factors), name="rope_freqs.weight").adopt(
        factors.astype(np.float32)
    )


@pytest.mark.parametrize("mode", ["norm", "neox"])
@pytest.mark.parametrize("type_", [GGMLType.F32, GGMLType.F16])
@pytest.mark.parametrize("scale", [1.0, 0.25])
@pytest.mark.parametrize("factors", [None, np.geomspace(1, 8, HEAD // 2)])
@pytest.mark.parametrize("delta", [-3, 4])
def test_moved_keys(type_: GGMLType, mode: str, scale: float, factors: Any, delta: int) -> None:
    s = Setup(type_, mode, scale, factors)
    s.store([3, 4, 5, 6, 7, 8])
    s.cache.seq_add(0, 0, -1, delta)
    assert s.cache.update(s.shift)
    exact = s.turn([p + delta for p in [3, 4, 5, 6, 7, 8]])
    limit = 2e-6 if type_ == GGMLType.F32 else 4e-3  # float16 rounds twice
    np.testing.assert_allclose(s.keys(), exact, rtol=0, atol=limit)
    leaf = s.kv.k[0]
    if leaf.mirror is not None and leaf.array is not None:
        np.testing.assert_array_equal(leaf.mirror, leaf.array.astype(np.float32).reshape(-1))


def test_only_moved_cells_are_touched() -> None:
    s = Setup(GGMLType.F32, "norm")
    s.store([0, 1, 2, 3, 4, 5])
    before = s.keys()
    s.cache.seq_rm(0, 1, 3)
    s.cache.seq_add(0, 3, -1, -2)
    s.cache.update(s.shift)
    np.testing.assert_array_equal(s.keys()[:3], before[:3])
    np.testing.assert_allclose(s.keys()[3:], s.turn([0, 1, 2, 1, 2, 3])[3:], atol=2e-6)


def test_moves_add_up_and_are_paid_for_once() -> None:
    s = Setup(GGMLType.F32, "norm")
    s.store([3, 4, 5, 6, 7, 8])
    s.cache.seq_add(0, 0, -1, 2)
    s.cache.seq_add(0, 0, -1, -4)
    s.cache.update(s.shift)
    once = s.keys()
    np.testing.assert_allclose(once, s.turn([1, 2, 3, 4, 5, 6]), atol=2e-6)
    assert not s.cache.update(s.shift)
    np.testing.assert_array_equal(s.keys(), once)


def test_values_are_left_alone() -> None:
    s = Setup(GGMLType.F32, "norm")
    s.store([3, 4, 5, 6, 7, 8])
    v = s.cache.layer(0).v
    assert v is not None
    v[...] = 7
    s.cache.seq_add(0, 0, -1, -3)
    s.cache.update(s.shift)
    assert (v == 7).all()


def test_layers_without_rotation_are_left_alone() -> None:
    """A model without RoPE has nothing to turn; a layer without it is passed over."""
    s = Setup(GGMLType.F32, "none")
    assert s.shift is None
    s = Setup(GGMLType.F32, "norm")
    s.kv.hparams.rope_pattern = np.array([0])
    s.store([3, 4, 5, 6, 7, 8])
    before = s.keys()
    s.cache.seq_add(0, 0, -1, -3)
    s.cache.update(s.shift)
    np.testing.assert_array_equal(s.keys(), before)
