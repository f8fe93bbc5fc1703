"""How far two values are apart, by hand and by bound."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from llmviz.trace.diff import (
    NodeDiff,
    compare_arrays,
    compare_logits,
    compare_statistics,
    divergence,
    fitted,
    kind_of,
)
from llmviz.trace.records import alternatives
from llmviz.trace.summary import statistics


def test_the_error_is_the_norm_of_the_difference():
    a = np.array([[3.0, 0.0], [0.0, 4.0]], np.float32)
    b = a.copy()
    b[1, 0] = 1.0
    d = compare_arrays(a, b)
    assert (d.error, d.max_abs, d.at) == (pytest.approx(0.2), 1.0, (1, 0))
    assert compare_arrays(a, a).error == 0.0


@pytest.mark.parametrize(
    ("a", "b", "error"),
    [
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([0.0, 0.0], [3.0, 4.0], 5.0),  # nothing to be relative to: the second's size
        ([np.nan, 1.0], [np.nan, 1.0], 0.0),
        ([-np.inf, 1.0], [-np.inf, 1.0], 0.0),
        ([np.nan, 1.0], [1.0, 1.0], math.inf),
        ([np.inf, 1.0], [-np.inf, 1.0], math.inf),
        ([], [], 0.0),
    ],
)
def test_what_is_no_number(a, b, error):
    assert compare_arrays(np.array(a), np.array(b)).error == error


def test_the_first_broken_number_is_named():
    a, b = np.ones((4, 5)), np.ones((4, 5))
    b[2, 3] = np.nan
    b[3, 0] = np.inf
    assert compare_arrays(a, b).at == (2, 3)


arrays = hnp.arrays(np.float32, 24, elements=st.floats(-1e3, 1e3, width=32))


@given(arrays, arrays)
def test_statistics_never_claim_more_than_there_is(a, b):
    true, least = compare_arrays(a, b), compare_statistics(statistics(a), statistics(b))
    assert least is not None and least.bound
    assert least.error <= true.error * (1 + 1e-6) + 1e-9
    assert least.max_abs <= true.max_abs * (1 + 1e-6) + 1e-9


def test_statistics_see_nan_and_other_sizes():
    one, two = statistics(np.ones(4)), statistics(np.array([1, 1, 1, np.nan]))
    found = compare_statistics(one, two)
    assert found is not None and found.error == math.inf
    assert compare_statistics(one, statistics(np.ones(5))) is None


def test_other_numbers_of_tokens_are_compared_by_the_last():
    a, b = np.arange(15.0).reshape(5, 3), np.arange(9.0).reshape(3, 3)
    x, y, note = fitted(a, b, 5, 3, "l_out-0")
    assert (x.tolist(), y.tolist(), note) == ([[12, 13, 14]], [[6, 7, 8]], "last token only")
    a, b = np.zeros((2, 5, 32)), np.zeros((2, 3, 64))
    x, y, note = fitted(a, b, 5, 3, "kq_soft_max-0")
    assert x.shape == y.shape == (2, 1, 32) and "the first 32 cells" in note
    assert fitted(np.zeros((5, 3)), np.zeros((5, 4)), 5, 5, "l_out-0") is None


def test_kinds():
    kinds = {
        "l_out-3": "residual stream",
        "embd": "residual stream",
        "ffn_norm-0": "norm",
        "Qcur-2": "attention",
        "kq_soft_max-1": "attention",
        "attn_out-1": "attention",
        "ffn_swiglu-7": "feed-forward",
        "result_output": "output",
        "result_norm": "norm",
        "node_17": "other",
    }
    assert {name: kind_of(name) for name in kinds} == kinds


def test_logits():
    rng = np.random.default_rng(0)
    a = rng.standard_normal(50).astype(np.float32)
    b = a.copy()
    b[a.argmax()] = a.min() - 1
    rows = [alternatives(x, None, 10, lambda i: b"%d" % i) for x in (a, b)]
    d = compare_logits(a, b, *rows, True)
    assert d is not None and not d.same and (d.rank_in_b, d.rank_in_a) == (49, 1)
    p, q = (np.exp(x.astype(float)) / np.exp(x.astype(float)).sum() for x in (a, b))
    assert d.kl == pytest.approx((p * np.log(p / q)).sum(), rel=1e-6) and d.moved == 10
    assert divergence(a, a) == 0.0
    c = np.array(a)
    c[3] = -np.inf
    assert divergence(a, c) == math.inf
    held = compare_logits(None, b, *rows, True)
    assert held is not None and held.kl is None and "not all logits" in held.note
    assert held.rank_in_b is None  # not among those that are known
    other = compare_logits(a, b[:40], *rows, False)
    assert other is not None and "vocabularies" in other.note
    assert compare_logits(a, b, (), rows[1], True) is None


def test_nothing_is_over_a_tolerance_that_was_not_compared():
    row = NodeDiff(0, "x", "ADD", 0, -1, "other", (1,), None, 3, -1, None, "only in the first run")
    assert not row.over(0.0) and row.error is None and row.max_abs is None
