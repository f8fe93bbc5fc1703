"""The chain: stepping, editing, sampling from a context, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from llmviz.errors import LlmvizError, SamplerError, UnsupportedError
from llmviz.events import Event, drain
from llmviz.sampling import (
    SAMPLERS,
    Chain,
    Dist,
    Greedy,
    LogitBias,
    MinP,
    Penalties,
    Sampler,
    SamplerStep,
    Temp,
    TokenDataArray,
    TopK,
    TopP,
    make_sampler,
)

LOGITS = np.log(np.array([0.1, 0.2, 0.3, 0.4], np.float32))


class FakeContext:
    """A context whose only output has the given logits."""

    def __init__(self, logits: np.ndarray) -> None:
        self.logits = np.asarray(logits, np.float32)
        self.logits.flags.writeable = False

    def get_logits_ith(self, i: int) -> np.ndarray:
        if i not in (0, -1):
            raise IndexError(f"output {i} out of range")
        return self.logits


def full_chain() -> Chain:
    return Chain(
        [
            LogitBias({0: 0.5}),
            Penalties(8, 1.3, 0.1, 0.2),
            TopK(3),
            TopP(0.9),
            MinP(0.05),
            Temp(0.8),
            Dist(42),
        ]
    )


def test_steps_tell_what_each_sampler_did() -> None:
    chain = full_chain()
    chain.accept(3)
    cur = TokenDataArray.from_logits(LOGITS)
    events = list(chain.apply_steps(cur, depth=2))
    assert [e.name for e in events] == [
        "logit_bias",
        "penalties",
        "top_k",
        "top_p",
        "min_p",
        "temp",
        "dist",
    ]
    assert {(e.kind, e.depth, e.step) for e in events} == {("data", 2, 15)}
    for i, event in enumerate(events):
        about = event.about
        assert isinstance(about, SamplerStep)
        assert about.index == i and about.sampler is chain[i]
        assert about.after is event.value
        if i:
            assert about.before is events[i - 1].value
        assert about.cut.dtype == np.int32
        assert sorted([*about.cut, *about.after.id]) == sorted(about.before.id)
        assert about.why and about.why[0] != " "
        for column in (event.value.id, event.value.logit, event.value.p):
            assert not column.flags.writeable
    top_k = events[2].about
    assert top_k.threshold == pytest.approx(float(top_k.after.logit[-1]))
    assert "3 largest of 4" in top_k.why
    assert events[3].about.threshold == 0.9 and "0.9" in events[3].about.why
    assert "0.8" in events[5].about.why
    # S12 of the cases: the first double of seed 42.
    assert events[6].about.draw == pytest.approx(0.796542984, abs=1e-9)
    assert events[5].about.draw is None
    assert cur.selected_id == events[-1].value.selected_id >= 0


def test_snapshots_stay_as_they_were() -> None:
    seen: list[tuple[TokenDataArray, list[float]]] = []
    for event in full_chain().apply_steps(TokenDataArray.from_logits(LOGITS)):
        seen.append((event.value, event.value.logit.tolist()))
    assert all(snapshot.logit.tolist() == logits for snapshot, logits in seen)


def test_replacing_the_candidates_changes_the_run() -> None:
    chain = Chain([TopK(2), Greedy()])
    cur = TokenDataArray.from_logits(LOGITS)
    for event in chain.apply_steps(cur):
        if event.name == "top_k":
            edited = event.value.copy()
            edited.logit[:] = [-5.0, 5.0]
            edited.sorted = False
            event.value = edited
    assert cur.id.tolist() == [3, 2] and cur.selected_id == 2


def test_replacing_the_candidates_with_something_else_is_refused() -> None:
    steps = Chain([TopK(2), Greedy()]).apply_steps(TokenDataArray.from_logits(LOGITS))
    event = next(steps)
    event.value = [1, 2]
    with pytest.raises(SamplerError, match=r"after top-k.*TokenDataArray, not list"):
        next(steps)


def test_sample_accepts_and_leaves_the_logits_alone() -> None:
    ctx = FakeContext(LOGITS)
    chain = Chain([Penalties(4, 2.0, 0.0, 9.0), Greedy()])
    assert [chain.sample(ctx) for _ in range(4)] == [3, 2, 1, 0]
    np.testing.assert_array_equal(ctx.logits, LOGITS)
    chain.reset()
    assert chain.sample(ctx, 0) == 3


def test_sample_steps_equals_sample() -> None:
    ctx = FakeContext(np.random.default_rng(0).normal(size=300))
    watched, plain = full_chain(), full_chain()
    for _ in range(50):
        assert drain(watched.sample_steps(ctx, -1)) == plain.sample(ctx)


def test_no_selecting_sampler() -> None:
    for chain in (Chain(), Chain([TopK(2), Temp(0.5)])):
        with pytest.raises(SamplerError, match=r"no selecting sampler.*Dist\(seed\)"):
            chain.sample(FakeContext(LOGITS))
        with pytest.raises(SamplerError, match="no selecting sampler"):
            drain(chain.sample_steps(FakeContext(LOGITS)))


def test_selection_cut_away_again() -> None:
    chain = Chain([Greedy(), TopK(1)])  # greedy's position 3 is gone after the cut
    with pytest.raises(SamplerError, match=r"selected is 3 with 1 candidates.*last"):
        chain.sample(FakeContext(LOGITS))


def test_nan_is_named() -> None:
    bad = LOGITS.copy()
    bad[2] = np.nan
    with pytest.raises(SamplerError, match=r"1 of 4, first at token 2"):
        full_chain().sample(FakeContext(bad))


def test_missing_output_is_the_contexts_error() -> None:
    with pytest.raises(IndexError, match="output 5"):
        full_chain().sample(FakeContext(LOGITS), 5)


def test_chain_is_a_list() -> None:
    chain = Chain([TopK(5)])
    chain.add(Greedy())
    assert len(chain) == 2 and isinstance(chain[1], Greedy) and chain[-1] is chain[1]
    assert [s.name for s in chain] == ["top-k", "greedy"]
    assert isinstance(chain.remove(0), TopK) and len(chain) == 1
    with pytest.raises(SamplerError, match="chain holds samplers"):
        chain.add(TopK)  # type: ignore[arg-type]
    with pytest.raises(SamplerError, match="chain holds samplers"):
        chain.add(chain)


def test_chains_nest() -> None:
    chain = Chain([Chain([TopK(2)]), Chain([Greedy()])])
    assert chain.selecting and chain.sample(FakeContext(LOGITS)) == 3
    events = list(chain.apply_steps(TokenDataArray.from_logits(LOGITS)))
    assert [e.name for e in events] == ["chain", "chain"]


def test_clone_goes_its_own_way() -> None:
    ctx = FakeContext(np.random.default_rng(1).normal(size=50))
    chain = full_chain()
    start = [chain.sample(ctx) for _ in range(5)]
    twin = chain.clone()
    assert [chain.sample(ctx) for _ in range(20)] == [twin.sample(ctx) for _ in range(20)]
    chain.reset()
    assert [chain.sample(ctx) for _ in range(5)] == start
    assert twin[1].prev != chain[1].prev  # type: ignore[attr-defined]


def test_random_seed_is_new_at_each_reset() -> None:
    dist = Dist()
    seeds = {dist.rng.seed_cur}
    for _ in range(3):
        dist.reset()
        seeds.add(dist.rng.seed_cur)
    assert len(seeds) > 1
    assert Dist(-1).params == Dist(0xFFFFFFFF).params == Dist().params == {"seed": 0xFFFFFFFF}
    assert dist.clone().rng.uniform() == dist.rng.uniform()


def test_params_are_in_the_order_of_llama_h() -> None:
    assert list(Penalties().params) == [
        "penalty_last_n",
        "penalty_repeat",
        "penalty_freq",
        "penalty_present",
    ]
    assert TopP(0.7, 2).params == {"p": 0.7, "min_keep": 2}
    order = {
        "top-k": ["k"],
        "temp-ext": ["t", "delta", "exponent"],
        "xtc": ["p", "t", "min_keep", "seed"],
        "mirostat-v2": ["seed", "tau", "eta"],
    }
    for name, names in order.items():
        assert list(make_sampler(name).params) == names
    assert repr(TopK(7)) == "TopK(k=7)"


def test_default_chain() -> None:
    names = ["penalties", "top-k", "top-p", "min-p", "temp", "dist"]
    assert [s.name for s in Chain.default(3)] == names
    assert Chain.default(3)[-1].params == {"seed": 3}


def test_registry() -> None:
    assert set(SAMPLERS) >= {"top-k", "top-p", "min-p", "temp", "dist", "greedy", "penalties"}
    assert isinstance(make_sampler("top_k", k=3), TopK)
    with pytest.raises(UnsupportedError, match=r"unsupported sampler: 'top-z'; supported:.*top-k"):
        make_sampler("top-z")
    with pytest.raises(SamplerError, match=r"top-k:.*its parameters are: k"):
        make_sampler("top-k", p=3)


def test_own_sampler_joins_the_registry_and_a_chain() -> None:
    class Odd(Sampler):
        """Keep odd ids."""

        name = "test-odd"

        def apply(self, cur: TokenDataArray) -> None:
            cur.keep(cur.id % 2 == 1)

    try:
        chain = Chain([make_sampler("test_odd"), Greedy()])
        events: list[Event] = list(chain.apply_steps(TokenDataArray.from_logits(LOGITS)))
        assert events[0].name == "test_odd"
        assert events[0].about.cut.tolist() == [0, 2]
        assert events[0].about.why == "test-odd left 2 of 4 candidates"
    finally:
        del SAMPLERS["test-odd"]


BAD_SETTINGS = [
    ("top-k", {"k": 1.5}, "top-k: k must be an integer"),
    ("top-k", {"k": True}, "top-k: k must be an integer"),
    ("top-k", {"k": 2**31}, "top-k: k must be in"),
    ("top-p", {"p": float("nan")}, "top-p: p must be a number, not NaN"),
    ("top-p", {"p": "0.9"}, "top-p: p must be a number"),
    ("top-p", {"min_keep": -1}, "top-p: min_keep must be in 0"),
    ("min-p", {"p": None}, "min-p: p must be a number"),
    ("temp", {"t": float("nan")}, "temp: t must be a number"),
    ("temp-ext", {"exponent": "x"}, "temp-ext: exponent"),
    ("dist", {"seed": 2**32}, "dist: seed must be in"),
    ("dist", {"seed": -2}, "dist: seed must be in"),
    ("dist", {"seed": "42"}, "dist: seed must be an integer"),
    ("penalties", {"penalty_repeat": 0.0}, "penalties: penalty_repeat must be > 0"),
    ("penalties", {"penalty_freq": float("inf")}, "penalties: penalty_freq must be finite"),
    ("penalties", {"penalty_last_n": 1e3}, "penalties: penalty_last_n must be an integer"),
    ("logit-bias", {"logit_bias": 5}, "logit-bias: logit_bias must be a dict or pairs"),
    ("logit-bias", {"logit_bias": [(1, 2, 3)]}, "logit-bias: logit_bias must be a dict or pairs"),
    ("logit-bias", {"logit_bias": {"a": 1.0}}, "logit-bias: entry 0: token must be an integer"),
    ("logit-bias", {"logit_bias": {1: float("nan")}}, "logit-bias: entry 0: bias must be a number"),
    ("xtc", {"t": float("nan")}, "xtc: t must be a number"),
    ("mirostat", {"n_vocab": 0}, "mirostat: n_vocab must be in 1"),
    ("mirostat-v2", {"tau": "high"}, "mirostat-v2: tau must be a number"),
    (
        "dry",
        {"dry_multiplier": 1.0, "seq_breakers": ["\n"]},
        "dry: the text breaker .* needs vocab",
    ),
    ("dry", {"seq_breakers": "\n"}, "dry: seq_breakers must be a list"),
]


@pytest.mark.parametrize(("name", "params", "message"), BAD_SETTINGS)
def test_bad_setting_is_named(name: str, params: dict[str, object], message: str) -> None:
    with pytest.raises(SamplerError, match=message) as caught:
        make_sampler(name, **params)
    assert isinstance(caught.value, LlmvizError)


def test_a_huge_window_allocates_nothing() -> None:
    penalties = Penalties(2**31 - 1, 1.1, 0.0, 0.0)
    penalties.accept(1)
    assert len(penalties.prev) == 1
