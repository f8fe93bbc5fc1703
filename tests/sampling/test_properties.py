"""What holds for any logits and any chain."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from llmviz.events import drain
from llmviz.sampling import (
    DRY,
    XTC,
    Chain,
    Dist,
    LogitBias,
    MinP,
    Mirostat,
    MirostatV2,
    Penalties,
    Sampler,
    Temp,
    TempExt,
    TokenDataArray,
    TopK,
    TopNSigma,
    TopP,
    Typical,
)

unit = st.floats(-0.25, 1.25, width=32)
keep = st.integers(0, 5)
warm = st.floats(0.125, 3, width=32)  # colder ones overflow float32
seed = st.integers(0, 2**32 - 2)
middle = st.one_of(
    st.builds(TopK, st.integers(-1, 40)),
    st.builds(TopP, unit, keep),
    st.builds(MinP, unit, keep),
    st.builds(Typical, unit, keep),
    st.builds(Temp, st.one_of(st.floats(-0.5, 0, width=32), warm)),
    st.builds(TempExt, warm, st.floats(-1, 0.0625, width=32), st.just(1.0)),
    st.builds(XTC, unit, st.floats(0, 0.625, width=32), keep, seed),
    st.builds(TopNSigma, st.floats(-1, 3, width=32)),
    st.builds(LogitBias, st.dictionaries(st.integers(-1, 40), st.floats(-5, 5, width=32))),
    st.builds(
        Penalties, st.integers(-1, 8), st.floats(0.5, 2, width=32), st.just(0.1), st.just(0.2)
    ),
    st.builds(DRY, st.just(0.8), st.just(1.75), st.integers(1, 3), st.integers(0, 16)),
)
last = st.one_of(
    st.builds(Dist, seed), st.builds(MirostatV2, seed), st.builds(Mirostat, st.just(50), seed)
)
logits = st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=50)


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    samplers: list[Sampler] = draw(st.lists(middle, max_size=5))
    return Chain([*samplers, draw(last)])


@settings(max_examples=150, deadline=None)
@given(chains(), st.lists(logits, min_size=1, max_size=4))
def test_steps_equal_apply_and_sizes_never_grow(chain: Chain, rows: list[list[float]]) -> None:
    plain = chain.clone()
    for row in rows:
        watched, cur = TokenDataArray.from_logits(row), TokenDataArray.from_logits(row)
        for event in chain.apply_steps(watched):
            about = event.about
            assert 1 <= about.after.size <= about.before.size
            assert about.cut.size == about.before.size - about.after.size
            assert set(about.after.id.tolist()) <= set(about.before.id.tolist())
            assert len(about.why) < 250
        plain.apply(cur)
        for column in ("id", "logit", "p"):
            np.testing.assert_array_equal(getattr(watched, column), getattr(cur, column))
        assert (watched.selected, watched.sorted) == (cur.selected, cur.sorted)
        assert 0 <= cur.selected < cur.size
        assert abs(float(cur.p.sum(dtype=np.float64)) - 1) < 1e-5
        assert cur.p[cur.selected] > 0
        chain.accept(cur.selected_id)
        plain.accept(cur.selected_id)


@settings(max_examples=100, deadline=None)
@given(chains(), logits, st.lists(st.integers(0, 49), max_size=12))
def test_a_clone_is_independent(chain: Chain, row: list[float], tokens: list[int]) -> None:
    for token in tokens:
        chain.accept(token)
    chain.apply(TokenDataArray.from_logits(row))
    twin, other = chain.clone(), chain.clone()
    for token in tokens:  # the twin runs on, the others must not notice
        twin.accept(token)
        drain(twin.apply_steps(TokenDataArray.from_logits(row)))
    twin.reset()
    a, b = TokenDataArray.from_logits(row), TokenDataArray.from_logits(row)
    chain.apply(a)
    other.apply(b)
    assert a.id.tolist() == b.id.tolist() and a.selected == b.selected
    np.testing.assert_array_equal(a.logit, b.logit)
    np.testing.assert_array_equal(a.p, b.p)
