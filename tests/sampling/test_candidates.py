"""The candidates, their softmax, and the order of the largest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmviz.errors import SamplerError
from llmviz.sampling import TokenDataArray
from llmviz.sampling.candidates import largest, softmax
from llmviz.sampling.rng import Rng


def test_from_logits_copies() -> None:
    logits = np.array([1.0, 3.0, 2.0], np.float32)
    cur = TokenDataArray.from_logits(logits)
    logits[0] = 99
    assert cur.logit.tolist() == [1.0, 3.0, 2.0]
    assert (cur.id.dtype, cur.logit.dtype, cur.p.dtype) == (np.int32, np.float32, np.float32)
    assert (cur.size, len(cur), cur.selected, cur.sorted, cur.selected_id) == (3, 3, -1, False, -1)
    window = np.arange(10, dtype=np.float32)[2:5]
    assert not np.shares_memory(TokenDataArray.from_logits(window).logit, window)


def test_top_and_probabilities_change_nothing() -> None:
    cur = TokenDataArray.from_logits([0.0, 2.0, 1.0])
    cur.selected = 2
    top = cur.top(2)
    assert top.id.tolist() == [1, 2] and top.sorted and top.selected_id == 2
    np.testing.assert_allclose(top.p, cur.probabilities()[[1, 2]])
    assert cur.top(99).size == 3 and cur.top(0).size == cur.top(-4).size == 0
    assert cur.id.tolist() == [0, 1, 2] and not cur.p.any() and not cur.sorted


def test_freeze_does_not_touch_the_callers_arrays() -> None:
    logits = np.zeros(3, np.float32)
    cur = TokenDataArray(np.arange(3, dtype=np.int32), logits, np.zeros(3, np.float32))
    frozen = cur.freeze()
    with pytest.raises(ValueError, match="read-only"):
        frozen.logit[0] = 1
    logits[0] = 1
    copied = frozen.copy()
    copied.logit[0] = 2
    assert frozen.logit[0] == 1


def test_bad_candidates() -> None:
    with pytest.raises(SamplerError, match="logit must have one dimension"):
        TokenDataArray.from_logits(np.zeros((2, 3), np.float32))
    with pytest.raises(SamplerError, match="logit is not an array of numbers"):
        TokenDataArray.from_logits(["a"])
    with pytest.raises(SamplerError, match="one length, not 2, 1 and 1"):
        TokenDataArray(np.arange(2), np.zeros(1), np.zeros(1))
    with pytest.raises(SamplerError, match="top-p: no candidates"):
        TokenDataArray.from_logits([]).softmax(False, "top-p")


def test_first_doubles_of_seed_42() -> None:
    rng = Rng(42)
    first = [rng.uniform() for _ in range(3)]
    np.testing.assert_allclose(first, [0.796542984, 0.183434788, 0.779690998], atol=1e-9)
    rng.reset()
    assert rng.uniform() == first[0] and rng.draws == 1
    assert rng.clone().uniform() == first[1]


floats = st.floats(-100, 100, width=32)


@given(st.lists(st.one_of(floats, st.sampled_from([0.0, -0.0, 1.0, -np.inf])), max_size=60))
def test_largest_is_a_stable_descending_sort(values: list[float]) -> None:
    logit = np.array(values, np.float32)
    right = sorted(range(len(values)), key=lambda i: -logit[i] + 0.0)
    for k in {0, 1, len(values) // 2, len(values)}:
        k = min(k, len(values))
        got = largest(logit, k)
        np.testing.assert_array_equal(logit[got], logit[right[:k]])
        assert len(set(got.tolist())) == k


@given(st.lists(floats, min_size=1, max_size=400))
def test_probabilities_sum_to_one(values: list[float]) -> None:
    p = softmax(np.array(values, np.float32))
    assert p.dtype == np.float32 and abs(float(p.sum(dtype=np.float64)) - 1) < 1e-5
    assert (p >= 0).all()


@given(st.permutations(range(12)), st.sets(st.integers(-3, 20), max_size=8), st.integers(0, 12))
def test_positions_of(order: list[int], wanted: set[int], n: int) -> None:
    ids = np.array(order[:n], np.int32)
    cur = TokenDataArray(ids, np.zeros(n), np.zeros(n))
    tokens = np.array(sorted(wanted, reverse=True), np.int64)
    position, which = cur.positions_of(tokens)
    assert [int(ids[i]) for i in position] == tokens[which].tolist()
    assert set(tokens[which].tolist()) == wanted & set(ids.tolist())
