"""All heads in one grid: sums over blocks are scores of the whole; what was dropped is named."""

from __future__ import annotations

import numpy as np
import pytest

import llmviz
from llmviz.trace import Debugger
from llmviz.trace.lens import first_token_score, induction_score, previous_token_score
from llmviz.trace.overview import DROPPED, HELD, MEASURES, NOT_YET, Overview

PROMPT = [5, 9, 11, 7, 5, 9, 11, 7, 5]  # repeats itself: there is something to measure
LAYERS = 3


@pytest.fixture(scope="module")
def model(tiny_model):
    return llmviz.load(tiny_model(n_layer=LAYERS, n_head=4))


def run(model, n: int = 3, **params) -> Debugger:
    dbg = Debugger(model, PROMPT, n_predict=4, n_ctx=64, **params)
    for _ in range(n):
        dbg.next_token()
    return dbg


def whole(dbg: Debugger, il: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One layer's blocks as one array: weights, query positions, key positions."""
    blocks = dbg.recorder.attention[il]
    keys = max(b.p.shape[2] for b in blocks)
    pad = [np.pad(b.p, ((0, 0), (0, 0), (0, keys - b.p.shape[2]))) for b in blocks]
    q_pos = np.concatenate([b.q_pos for b in blocks])
    return np.concatenate(pad, axis=1), q_pos, max((b.k_pos for b in blocks), key=len)


def test_measures_over_a_run_are_those_of_its_whole_attention(model) -> None:
    dbg = run(model)
    view, ids = Overview(dbg), [k.id for k in dbg.tokens]
    query = dbg.recorder.last_query(0)
    for again in range(2):  # the second time from sums
        grids = {m: view.grid(m, query, -1, LAYERS) for m in MEASURES}
        for il in range(LAYERS):
            p, q, k = whole(dbg, il)
            want = {
                "previous": previous_token_score(p, q, k),
                "first": first_token_score(p, q, k),
                "induction": induction_score(p, ids, q, k),
                "pair": p[:, -1, 1:].max(axis=1),
            }
            for name, score in want.items():
                np.testing.assert_allclose(grids[name].values[il], score, rtol=1e-6)
        assert grids["previous"].counts == [query] * LAYERS
        assert grids["induction"].counts[0] >= 5 and grids["pair"].states == [HELD] * LAYERS
        if not again:
            dbg.next_token()
            query = dbg.recorder.last_query(0)
            ids = [k.id for k in dbg.tokens]


def test_a_chosen_key(model) -> None:
    dbg = run(model)
    query = dbg.recorder.last_query(0)
    grid = Overview(dbg).grid("pair", query, 4, LAYERS)
    p, _, _ = whole(dbg, 2)
    np.testing.assert_array_equal(grid.values[2], p[:, -1, 4])
    later = Overview(dbg).grid("pair", 3, 5, LAYERS)
    assert np.isnan(later.values).all(), "nobody looks at a later token"


def test_what_was_dropped_is_told_from_what_has_not_come(model) -> None:
    dbg = run(model, budget=2500)
    query = dbg.recorder.last_query(0)
    assert dbg.recorder.dropped
    view = Overview(dbg)
    grid = view.grid("pair", query, -1, LAYERS)
    assert grid.states == [HELD, DROPPED, DROPPED] and np.isnan(grid.values[1:]).all()
    free = run(model)
    for measure in ("pair", "induction"):
        n = dbg.n
        view.fill(measure, query)
        assert dbg.n == n
        for m in ("pair",) if measure == "pair" else MEASURES:
            got, want = (o.grid(m, query, -1, LAYERS) for o in (view, Overview(free)))
            np.testing.assert_allclose(got.values, want.values, rtol=1e-6, equal_nan=True)
            assert got.states == [HELD] * LAYERS and got.counts == want.counts
    dbg.next_token()
    query = dbg.recorder.last_query(0)
    assert view.grid("pair", query, -1, LAYERS).states[1:] == [DROPPED] * 2, "a new token came"
    free.break_on("kq_soft_max-1")
    free.run()
    query = free.recorder.last_query(0)
    assert Overview(free).grid("pair", query, -1, LAYERS).states == [HELD, HELD, NOT_YET]
    kept = Overview(free).grid("previous", query, -1, LAYERS)
    assert kept.states == [HELD] * 3, "of the passes before there is an average"
    assert kept.counts[0] == kept.counts[2] + 1
