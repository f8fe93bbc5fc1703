"""Inputs of the graph: what is written for a ubatch, and when a graph's leaves fit the next one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import llmviz
from llmviz.batch import Batch
from llmviz.context import Context

NAMES = {
    "inp_tokens", "inp_pos", "attn_inp_k_idxs", "attn_inp_v_idxs", "attn_inp_kq_mask", "out_ids"
}  # fmt: skip


@pytest.fixture
def context(tiny_model: Callable[..., str]) -> Callable[..., Context]:
    model = llmviz.load(tiny_model())
    return lambda **params: model.context(**{"n_ctx": 256, **params})


def inputs(ctx: Context, batch: Batch) -> list[dict[str, np.ndarray]]:
    """What each ubatch of a batch was given, by name."""
    seen: list[dict[str, np.ndarray]] = []
    for event in ctx.decode_steps(batch):
        if event.kind == "enter" and event.name == "set_inputs":
            seen.append({})
        elif event.kind == "data" and seen and event.depth == 4 - 1 and event.step == 13:
            seen[-1][event.name] = np.array(event.value)
    return [
        {k: v for k, v in s.items() if k.startswith(("inp_", "attn_inp_", "out_ids"))} for s in seen
    ]


def test_a_prompt(context: Callable[..., Context]) -> None:
    (one,) = inputs(context(), Batch.get_one([1, 300, 17]))
    assert one["inp_tokens"].tolist() == [1, 300, 17]
    assert one["inp_pos"].tolist() == [0, 1, 2]
    assert one["out_ids"].tolist() == [2]
    assert one["attn_inp_k_idxs"].tolist() == [0, 1, 2]
    assert {v.dtype.name for k, v in one.items() if k in ("inp_tokens", "inp_pos", "out_ids")} == {
        "int32"
    }
    assert one["attn_inp_k_idxs"].dtype == one["attn_inp_v_idxs"].dtype == np.int64


def test_the_causal_mask(context: Callable[..., Context]) -> None:
    (one,) = inputs(context(), Batch.get_one([1, 300, 17]))
    mask = one["attn_inp_kq_mask"]
    assert (mask.shape, mask.dtype) == ((3, 256), np.float32)
    expected = np.full((3, 256), -np.inf)
    for i in range(3):
        expected[i, : i + 1] = 0
    np.testing.assert_array_equal(mask, expected)


def test_v_goes_value_by_value_into_the_transposed_cache(context: Callable[..., Context]) -> None:
    """Value i of the token in cell c lies at i * kv_size + c; 32 values, 256 cells."""
    ctx = context()
    ctx.decode(Batch.get_one([5]))
    (one,) = inputs(ctx, Batch.get_one([1, 300]))
    assert one["attn_inp_v_idxs"].tolist() == [i * 256 + cell for cell in (1, 2) for i in range(32)]


def test_positions_and_cells_continue(context: Callable[..., Context]) -> None:
    ctx = context()
    ctx.decode(Batch.get_one([1, 2, 3]))
    (one,) = inputs(ctx, Batch.get_one([9]))
    assert one["inp_pos"].tolist() == [3]
    assert one["attn_inp_k_idxs"].tolist() == [3]
    assert (one["attn_inp_kq_mask"][0] == 0).sum() == 4


def test_positions_are_not_cells(context: Callable[..., Context]) -> None:
    (one,) = inputs(context(), Batch(token=[5, 6], pos=[70, 71], logits=[True, True]))
    assert one["inp_pos"].tolist() == [70, 71]
    assert one["attn_inp_k_idxs"].tolist() == [0, 1]
    assert one["out_ids"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("flags", "rows"),
    [
        ([0, 0, 0, 0, 1], [[], [], [0]]),
        ([1, 0, 1, 1, 0], [[0], [0, 1], []]),
        ([1, 1, 1, 1, 1], [[0, 1], [0, 1], [0]]),
        ([0, 0, 0, 0, 0], [[], [], []]),
    ],
)
def test_rows_that_are_wanted(
    context: Callable[..., Context], flags: list[int], rows: list[list[int]]
) -> None:
    """Per ubatch of two tokens, counted from its first."""
    seen = inputs(context(n_ubatch=2), Batch(token=[3, 4, 5, 6, 7], logits=map(bool, flags)))
    assert [s["out_ids"].tolist() for s in seen] == rows


def test_two_sequences_do_not_see_each_other(context: Callable[..., Context]) -> None:
    ctx = context(n_seq_max=2, kv_unified=True)
    batch = Batch(token=[3, 4, 5, 6], pos=[0, 0, 1, 1], seq_id=[0, 1, 0, 1])
    (one,) = inputs(ctx, batch)
    sees = (one["attn_inp_kq_mask"] == 0).astype(int)
    assert sees[:, :4].tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]]
    assert not sees[:, 4:].any()


def test_sequences_in_streams_have_a_plane_of_the_mask_each(
    context: Callable[..., Context],
) -> None:
    ctx = context(n_ctx=512, n_seq_max=2)
    batch = Batch(token=[3, 4, 5, 6], pos=[0, 1, 0, 1], seq_id=[0, 0, 1, 1])
    (one,) = inputs(ctx, batch)
    mask = one["attn_inp_kq_mask"]
    assert mask.shape == (2, 1, 2, 256)
    assert (mask[:, 0, :, :2] == 0).astype(int).tolist() == [[[1, 0], [1, 1]]] * 2
    assert one["attn_inp_k_idxs"].tolist() == [0, 1, 256, 257]


def test_an_edited_input_is_what_the_graph_computes_with(context: Callable[..., Context]) -> None:
    """Another token put in place of one gives the logits of that token."""

    def logits(batch: list[int], edit: dict[str, Any] | None = None) -> np.ndarray:
        ctx = context()
        for event in ctx.decode_steps(Batch.get_one(batch)):
            if event.kind == "data" and event.name in (edit or {}):
                assert edit is not None
                event.value = np.asarray(edit[event.name], event.value.dtype)
        return np.array(ctx.get_logits_ith(-1))

    plain = logits([1, 300, 17])
    np.testing.assert_array_equal(logits([1, 5, 17], {"inp_tokens": [1, 300, 17]}), plain)
    assert np.abs(logits([1, 300, 17], {"inp_pos": [0, 9, 30]}) - plain).max() > 1e-3
    blind = np.full((3, 256), -np.inf, np.float32)
    blind[[0, 1, 2], [0, 1, 2]] = 0  # every token sees only itself
    alone = context()
    alone.decode(Batch(token=[17], pos=[2]))
    np.testing.assert_allclose(
        logits([1, 300, 17], {"attn_inp_kq_mask": blind}), alone.get_logits_ith(-1), atol=1e-5
    )
