"""Rotary embeddings against the formulas in float64: norm, neox, partial, linear, YaRN, factors."""

from __future__ import annotations

from math import ceil, cos, floor, log, pi, sin
from typing import Any

import numpy as np
import pytest

from llmviz.events import drain
from llmviz.ggml import ops
from llmviz.ggml.backends.cpu import CPU
from llmviz.ggml.backends.rope import RopeTable, yarn_corr_dims
from llmviz.ggml.graph import Tensor, new_tensor
from llmviz.ggml.sched import Sched, never
from llmviz.ggml.types import GGMLType
from tests.ggml.graphs import compute, graph_of, leaf

PLAIN: dict[str, Any] = {
    "n_ctx_orig": 128, "freq_base": 10000.0, "freq_scale": 1.0, "ext_factor": 0.0,
    "attn_factor": 1.0, "beta_fast": 32.0, "beta_slow": 1.0,
}  # fmt: skip
RNG = np.random.default_rng(11)


def corr_dims(n_rot: int, p: dict[str, Any]) -> tuple[float, float]:
    """Where YaRN's blend begins and ends, from the paper's number of turns over the context."""

    def dim(turns: float) -> float:
        return n_rot * log(p["n_ctx_orig"] / (turns * 2 * pi)) / (2 * log(p["freq_base"]))

    return max(0, floor(dim(p["beta_fast"]))), min(n_rot - 1, ceil(dim(p["beta_slow"])))


def rope(
    x: np.ndarray,
    pos: list[int],
    n_rot: int,
    mode: str,
    factors: np.ndarray | None = None,
    **p: Any,
) -> np.ndarray:
    """x: [n_tokens, n_head, n_embd_head], one value after another in float64."""
    p = {**PLAIN, **p}
    out = np.array(x, np.float64)
    low, high = corr_dims(n_rot, p)
    for t, position in enumerate(pos):
        for i in range(n_rot // 2):
            theta = position * p["freq_base"] ** (-2.0 * i / n_rot)
            theta /= 1.0 if factors is None else float(factors[i])
            scaled, scale = theta * p["freq_scale"], p["attn_factor"]
            if p["ext_factor"] != 0:
                ramp = 1 - min(1, max(0, (i - low) / max(0.001, high - low)))
                mix = ramp * p["ext_factor"]
                scaled = scaled * (1 - mix) + theta * mix
                scale *= 1 + 0.1 * log(1 / p["freq_scale"])
            c, s = cos(scaled) * scale, sin(scaled) * scale
            a, b = (2 * i, 2 * i + 1) if mode == "norm" else (i, i + n_rot // 2)
            x0, x1 = np.float64(x[t, :, a]), np.float64(x[t, :, b])
            out[t, :, a], out[t, :, b] = x0 * c - x1 * s, x0 * s + x1 * c
    return out


def rope_node(
    x: np.ndarray, pos: list[int], n_rot: int, mode: str, factors: Any = None, **p: Any
) -> Tensor:
    return ops.rope_ext(
        leaf(x),
        leaf(np.array(pos, np.int32)),
        None if factors is None else leaf(factors),
        n_dims=n_rot,
        mode=mode,
        **{**PLAIN, **p},
    )


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "freq_base": {"freq_base": 500000.0},
    "linear": {"freq_scale": 0.25},
    "factors": {"factors": np.geomspace(1, 8, 8).astype(np.float32)},
    "factors_linear": {"factors": np.geomspace(1, 8, 8).astype(np.float32), "freq_scale": 0.5},
    "yarn": {"ext_factor": 1.0, "freq_scale": 0.25},
    "yarn_tuned": {
        "ext_factor": 0.5, "freq_scale": 0.125, "n_ctx_orig": 64, "beta_fast": 16.0,
        "beta_slow": 2.0, "attn_factor": 1.1, "freq_base": 1e6,
    },
    "attn_factor": {"attn_factor": 1.25},
}  # fmt: skip


@pytest.mark.parametrize("n_rot", [16, 8, 2])
@pytest.mark.parametrize("mode", ["norm", "neox"])
@pytest.mark.parametrize("case", CASES)
def test_rotation(case: str, mode: str, n_rot: int) -> None:
    settings = dict(CASES[case])
    factors = settings.pop("factors", None)
    x = RNG.standard_normal((5, 3, 16), dtype=np.float32)
    pos = [0, 1, 2, 9, 20]
    (out,) = compute(rope_node(x, pos, n_rot, mode, factors, **settings))
    exact = rope(x, pos, n_rot, mode, factors, **settings)
    np.testing.assert_allclose(out, exact, rtol=0, atol=2e-5)
    np.testing.assert_array_equal(out[..., n_rot:], x[..., n_rot:])  # the rest is passed on


@pytest.mark.parametrize("mode", ["norm", "neox"])
def test_position_0_turns_nothing(mode: str) -> None:
    x = RNG.standard_normal((2, 3, 16), dtype=np.float32)
    (out,) = compute(rope_node(x, [0, 0], 16, mode))
    np.testing.assert_array_equal(out, x)


def test_by_hand() -> None:
    """Two values, one pair: its frequency is 1, position 1 turns (1, 0) by one radian."""
    x = np.array([[[1.0, 0.0]]], np.float32)
    (out,) = compute(rope_node(x, [1], 2, "norm"))
    np.testing.assert_allclose(out, [[[0.5403023, 0.8414710]]], atol=1e-7)


def test_far_positions_drift_as_little_as_llama_cpps() -> None:
    """theta is multiplied on in float32, so an angle of 1000 is off by some 1e-4 at most."""
    x = RNG.standard_normal((2, 1, 64), dtype=np.float32)
    (out,) = compute(rope_node(x, [1000, 4000], 64, "norm"))
    np.testing.assert_allclose(out, rope(x, [1000, 4000], 64, "norm"), rtol=0, atol=5e-3)


def test_the_distance_is_all_that_matters() -> None:
    """The score of a query and a key depends on how far apart they are, not on where."""
    q, k = RNG.standard_normal((2, 1, 1, 16), dtype=np.float32)
    scores = []
    for start in (0, 3, 11):
        a, b = compute(rope_node(q, [start + 5], 16, "neox"), rope_node(k, [start], 16, "neox"))
        scores.append(float((a * b).sum()))
    assert scores == pytest.approx([scores[0]] * 3, abs=1e-5)


def test_two_ropes_share_their_angles_and_read_new_positions() -> None:
    """Q and K are turned by one table; it is computed anew at every run."""
    q, k = (RNG.standard_normal((2, h, 16), dtype=np.float32) for h in (4, 2))
    pos = new_tensor(GGMLType.I32, 2, name="inp_pos", is_input=True)
    a, b = (ops.rope_ext(leaf(x), pos, None, n_dims=16, mode="norm", **PLAIN) for x in (q, k))
    sched = Sched([CPU()])
    sched.alloc_graph(graph_of(a, b), [a, b])
    for positions in ([0, 1], [7, 3]):
        assert pos.array is not None and a.array is not None and b.array is not None
        pos.array[...] = positions
        drain(sched.compute(never))
        np.testing.assert_allclose(a.array, rope(q, positions, 16, "norm"), rtol=0, atol=2e-5)
        np.testing.assert_allclose(b.array, rope(k, positions, 16, "norm"), rtol=0, atol=2e-5)


def test_ropes_with_other_factors_have_other_angles() -> None:
    """Layers may differ in their factors; they must not share a table."""
    x = RNG.standard_normal((1, 1, 16), dtype=np.float32)
    pos = leaf(np.array([5], np.int32))
    factors = [np.ones(8, np.float32), np.full(8, 2, np.float32)]
    nodes = [ops.rope_ext(leaf(x), pos, leaf(f), n_dims=16, mode="norm", **PLAIN) for f in factors]
    for out, f in zip(compute(*nodes), factors, strict=True):
        np.testing.assert_allclose(out, rope(x, [5], 16, "norm", f), rtol=0, atol=2e-5)


def test_yarn_blends_between_these_dimensions() -> None:
    """Llama 2's head of 128 trained on 4096 positions: 20.9 and 45.03, rounded outwards."""
    assert yarn_corr_dims(128, 4096, 10000.0, 32.0, 1.0) == (20, 46)


def test_yarn_stays_inside_the_head() -> None:
    low, high = yarn_corr_dims(16, 64, 10000.0, 1000.0, 1e-6)
    assert (low, high) == (0, 15)


def test_a_table_holds_unit_vectors() -> None:
    p = {**PLAIN, "n_rot": 16}
    table = RopeTable(np.array([0, 3, 100], np.int32), None, p)
    table.refresh()
    assert table.cis.shape == (3, 1, 8)
    np.testing.assert_allclose(np.abs(table.cis), 1.0, atol=1e-6)
