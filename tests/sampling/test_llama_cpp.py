"""The same logits, the same parameters, the same seed: llama.cpp's candidates and tokens."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from llmviz.sampling import DRY, AdaptiveP, Dist, LogitBias, Penalties, Sampler, TokenDataArray
from tests.sampling.beside import NO_VOCAB, ROUNDS, ours, run_beside

CHAINS: dict[str, list[tuple[Any, ...]]] = {
    "default": [
        ("penalties", NO_VOCAB, 64, 1.1, 0.1, 0.2),
        ("top_k", 40),
        ("top_p", 0.95, 1),
        ("min_p", 0.05, 1),
        ("temp", 0.8),
        ("dist", 42),
    ],
    "dist": [("dist", 7)],
    "hot": [("temp", 1.7), ("dist", 2**32 - 2)],
    "min_p_unsorted": [("min_p", 0.1, 3), ("dist", 3)],
    "top_p": [("top_p", 0.9, 1), ("dist", 5)],
    "top_p_beyond_first_look": [("temp", 3.0), ("top_p", 0.99, 400), ("dist", 5)],
    "top_k_500": [("top_k", 500), ("temp", 0.3), ("min_p", 0.02, 1), ("dist", 11)],
    "bias": [
        ("logit_bias", NO_VOCAB, [(3, 2.5), (7, -np.inf), (3, 0.25)]),
        ("top_k", 300),
        ("logit_bias", NO_VOCAB, [(9, 4.0), (11, 1.0), (9, 7.0)]),
        ("dist", 1),
    ],
    "greedy": [("greedy",)],
    "cold": [("temp", 0.0), ("dist", 9)],
    "temp_ext": [("temp_ext", 1.0, 0.5, 1.2), ("dist", 4)],
    "temp_ext_wide": [("top_k", 50), ("temp_ext", 0.7, 0.9, 0.5), ("dist", 4)],
    "xtc": [("xtc", 0.5, 0.05, 1, 77), ("dist", 4)],
    "top_n_sigma": [("top_n_sigma", 1.2), ("top_k", 200), ("dist", 8)],
    "typical": [("top_k", 100), ("typical", 0.7, 1), ("dist", 8)],
    "typical_keep": [("top_k", 60), ("typical", 0.3, 5), ("min_p", 0.1, 1), ("dist", 8)],
    "mirostat_v2": [("mirostat_v2", 5, 5.0, 0.1)],
    "mirostat_v2_short": [("top_k", 30), ("mirostat_v2", 5, 2.0, 0.3)],
    "adaptive_p": [("adaptive_p", 0.3, 0.9, 42)],
    "adaptive_p_after_min_p": [("min_p", 0.02, 1), ("adaptive_p", 0.1, 0.5, 6)],
    "adaptive_p_sorted": [("top_k", 60), ("adaptive_p", 0.9, 2.0, 6)],
    "adaptive_p_off": [("top_k", 60), ("adaptive_p", -1.0, 0.9, 3)],
    "penalties_forget": [("penalties", NO_VOCAB, 5, 0.9, 0.0, 0.1), ("dist", 3)],
}


@pytest.mark.parametrize("n_vocab", [50, 1500, 20_000])
@pytest.mark.parametrize("name", CHAINS)
def test_after_each_sampler(llamacpp: ModuleType, name: str, n_vocab: int) -> None:
    with llamacpp.ReferenceChain(CHAINS[name]) as reference:
        rng = np.random.default_rng([n_vocab, len(name)])
        rounds = ROUNDS or (8 if n_vocab > 5000 else 25)
        run_beside(ours(CHAINS[name]), reference, n_vocab, rounds, rng)


@pytest.mark.parametrize("n_vocab", [50, 1500, 20_000])
def test_mirostat(llamacpp: ModuleType, n_vocab: int) -> None:
    spec = [("mirostat", n_vocab, 6, 4.0, 0.1, 100)]
    with llamacpp.ReferenceChain(spec) as reference:
        run_beside(ours(spec), reference, n_vocab, ROUNDS or 12, np.random.default_rng(n_vocab))


def test_names(llamacpp: ModuleType) -> None:
    """Our names are llama.cpp's; a question mark there is `off` here."""
    spec = [*CHAINS["default"][:-1], *CHAINS["xtc"], *CHAINS["mirostat_v2"], ("temp", 1.0)]
    spec += [("top_k", 0), ("top_p", 1.0, 0), ("min_p", 0.0, 0), ("typical", 1.0, 0)]
    spec += [("penalties", NO_VOCAB, -1, 2.0, 1.0, 1.0), ("top_n_sigma", 0.0)]
    spec += [("temp_ext", 1.0, 0.0, 1.0), ("xtc", 0.5, 0.6, 0, 1), ("logit_bias", 0, [])]
    with llamacpp.ReferenceChain(spec) as reference:
        assert reference.names == [("?" if s.off else "") + s.name for s in ours(spec)]


@pytest.mark.parametrize("seed", [0, 1, 42, 2**32 - 2])
def test_thousands_of_draws(llamacpp: ModuleType, seed: int) -> None:
    logits = np.random.default_rng(3).normal(size=97).astype(np.float32)
    dist = Dist(seed)
    with llamacpp.ReferenceChain([("dist", seed)]) as reference:
        for draw in range(2500):
            cur = TokenDataArray.from_logits(logits)
            dist.apply(cur)
            assert cur.selected == reference.apply(logits).selected, draw


INF = np.inf
ODD_LOGITS = [
    [-INF, -INF, -INF],
    [-INF, 1.0, 2.0],
    [INF, 1.0, 2.0],
    [1.0],
    [5.0, 5.0, -INF, 5.0],
]
ODD_SAMPLERS: list[tuple[Any, ...]] = [
    ("dist", 1),
    ("greedy",),
    ("min_p", 0.5, 0),
    ("top_p", 0.5, 0),
    ("temp", 0.0),
    ("temp_ext", 0.5, 2.0, 1.0),
    ("typical", 0.5, 1),
    ("xtc", 1.0, 0.1, 0, 3),
    ("top_n_sigma", 1.0),
    ("adaptive_p", 0.4, 0.9, 5),
]


@pytest.mark.parametrize("is_sorted", [False, True])
@pytest.mark.parametrize("logits", ODD_LOGITS, ids=str)
@pytest.mark.parametrize("spec", ODD_SAMPLERS, ids=lambda spec: spec[0])
def test_infinities(
    llamacpp: ModuleType, spec: tuple[Any, ...], logits: list[float], is_sorted: bool
) -> None:
    cur = TokenDataArray.from_logits(logits)
    cur.sorted = is_sorted
    ours([spec]).apply(cur)
    with llamacpp.ReferenceChain([spec]) as reference:
        right = reference.apply(logits, sorted=is_sorted)
    assert (cur.size, cur.selected, cur.sorted) == (right.id.size, right.selected, right.sorted)
    np.testing.assert_array_equal(cur.logit, right.logit)
    np.testing.assert_allclose(cur.p, right.p, rtol=1e-6)


def test_penalties_on_any_order(llamacpp: ModuleType) -> None:
    rng = np.random.default_rng(8)
    for _ in range(150):
        last_n, repeat = int(rng.choice([-1, 0, 1, 3, 64])), float(rng.choice([0.5, 1, 1.3]))
        freq, present = float(rng.choice([0, -0.3, 0.7])), float(rng.choice([0, 0.25]))
        penalties: Sampler = Penalties(last_n, repeat, freq, present)
        with llamacpp.ReferenceChain(
            [("penalties", NO_VOCAB, last_n, repeat, freq, present)]
        ) as reference:
            for _ in range(20):
                token = int(rng.integers(0, 8))
                penalties.accept(token)
                reference.accept(token)
                ids = rng.permutation(8)[: int(rng.integers(1, 9))].astype(np.int32)
                logits = rng.normal(size=ids.size).astype(np.float32)
                cur = TokenDataArray(ids, logits, np.zeros_like(logits), sorted=True)
                penalties.apply(cur)
                right = reference.apply(logits, ids, sorted=True)
                assert cur.sorted == right.sorted
                np.testing.assert_array_equal(cur.logit, right.logit)
                if rng.random() < 0.05:
                    penalties.reset()
                    reference.reset()
                if rng.random() < 0.1:
                    penalties = penalties.clone()


def test_logit_bias_found_by_place_or_by_search(llamacpp: ModuleType) -> None:
    rng = np.random.default_rng(9)
    for _ in range(200):
        pairs = [
            (int(rng.integers(-2, 12)), float(rng.normal())) for _ in range(rng.integers(1, 6))
        ]
        ids = rng.permutation(10)[: int(rng.integers(1, 11))].astype(np.int32)
        if rng.random() < 0.5:
            ids.sort()
        logits = rng.normal(size=ids.size).astype(np.float32)
        cur = TokenDataArray(ids, logits, np.zeros_like(logits))
        LogitBias(pairs).apply(cur)
        with llamacpp.ReferenceChain([("logit_bias", NO_VOCAB, pairs)]) as reference:
            np.testing.assert_array_equal(cur.logit, reference.apply(logits, ids).logit)


def test_dry(llamacpp: ModuleType) -> None:
    rng = np.random.default_rng(5)
    no_vocab = SimpleNamespace(vocab=SimpleNamespace(pointer=llamacpp.capi.api().ffi.NULL))
    for _ in range(400):
        multiplier = float(rng.choice([0.8, 1.0, 2.5]))
        base = float(rng.choice([0.9, 1.0, 1.0000005, 1.75, 1e3]))
        allowed, last_n = int(rng.integers(-1, 6)), int(rng.choice([-1, 0, 1, 2, 5, 16, 300]))
        n_vocab = int(rng.integers(2, 6))
        dry = DRY(multiplier, base, allowed, last_n)
        with llamacpp.ReferenceChain(
            [("dry", no_vocab, multiplier, base, allowed, last_n, [])]
        ) as reference:
            for token in rng.integers(0, n_vocab, size=int(rng.integers(1, 60))).tolist():
                dry.accept(token)
                reference.accept(token)
            logits = rng.normal(size=n_vocab).astype(np.float32)
            cur = TokenDataArray.from_logits(logits)
            cur.sorted = True
            dry.clone().apply(cur)
            right = reference.apply(logits, sorted=True)
            assert cur.sorted == right.sorted
            np.testing.assert_array_equal(cur.logit, right.logit)


@pytest.mark.parametrize("variant", ["dense", "bpe"])
def test_dry_text_breakers(
    llamacpp: ModuleType, tiny_model: Callable[..., str], variant: str
) -> None:
    with llamacpp.Reference(tiny_model(variant=variant), vocab_only=True) as model:
        vocab = model.vocab
        # DRY asks the vocabulary for this too; llama.cpp takes it from the file.
        vocab.add_space_prefix = variant == "dense"
        rng = np.random.default_rng(6)
        breakers = ["\n", " t", "the", "ab", "é"]
        spec = ("dry", vocab, 0.8, 1.75, 2, 64, breakers)
        dry = DRY(0.8, 1.75, 2, 64, breakers, vocab=vocab)
        logits = np.zeros(vocab.n_tokens, np.float32)
        heads = list(dry._breakers)
        lowered = broken = 0
        for _ in range(60):
            with llamacpp.ReferenceChain([spec]) as reference:
                dry.reset()
                said = rng.integers(0, vocab.n_tokens, size=6).tolist()
                if rng.random() < 0.5:
                    said[int(rng.integers(0, 6))] = heads[int(rng.integers(0, len(heads)))]
                for token in (said * 4)[: int(rng.integers(8, 24))]:
                    dry.accept(token)
                    reference.accept(token)
                cur = TokenDataArray.from_logits(logits)
                dry.apply(cur)
                np.testing.assert_array_equal(cur.logit, reference.apply(logits).logit)
                lowered += bool(cur.logit.any())
                broken += not cur.logit.any()
        assert lowered > 5 and broken > 2


def test_adaptive_p_remembers_only_what_it_drew_itself() -> None:
    logits = np.array([2.0, 1.0, 0.5, -INF], np.float32)
    sampler = AdaptiveP(0.5, 0.9, 1)
    cur = TokenDataArray.from_logits(logits)
    sampler.apply(cur)
    before = sampler.weighted_sum
    sampler.accept(3)  # another token was put in its place
    assert sampler.weighted_sum == before
    sampler.apply(TokenDataArray.from_logits(logits))
    twin = sampler.clone()
    for s in (sampler, twin):
        s.accept(s._pending[0])
        s.apply(TokenDataArray.from_logits(logits))
    assert twin.weighted_sum == sampler.weighted_sum != before
    assert twin._pending == sampler._pending and twin.last_draw == sampler.last_draw
    sampler.reset()
    assert (sampler.weighted_sum, sampler._pending) == (before, (-1, -1))
