"""Our samplers and llama.cpp's on the same logits, one after the other."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from llmviz.sampling import Chain, Sampler, TokenDataArray
from llmviz.sampling.sampler import SAMPLERS

NO_VOCAB = 0
ROUNDS = int(os.environ.get("LLMVIZ_SAMPLER_ROUNDS", "0"))
"""Logit vectors a chain; 0: a few, which take no longer than a test may."""


def ours(chain: list[tuple[Any, ...]]) -> Chain:
    samplers: list[Sampler] = []
    for name, *args in chain:
        if name in ("penalties", "logit_bias"):
            args = args[1:]  # no n_vocab
        samplers.append(SAMPLERS[name.replace("_", "-")](*args))
    return Chain(samplers)


ROUNDED = {"temp-ext", "adaptive-p"}
"""Samplers that make new logits of exponentials: the last bit is the C library's."""


def check(cur: TokenDataArray, right: Any, rounded: bool = False) -> None:
    assert (cur.size, cur.sorted, cur.selected_id) == (right.id.size, right.sorted, right.token)
    # Equal logits may come in any order, so ids are compared where order is by id or as a set.
    assert set(cur.id.tolist()) == set(right.id.tolist())
    logits, tolerance = (cur.logit, right.logit), 1e-5 if rounded else 0
    if not cur.sorted or rounded:
        logits = np.sort(cur.logit), np.sort(right.logit)
    np.testing.assert_allclose(*logits, rtol=tolerance, atol=tolerance)
    p_tolerance = 2e-5 if rounded else 1e-6
    np.testing.assert_allclose(np.sort(cur.p), np.sort(right.p), rtol=p_tolerance, atol=0)


def run_beside(
    chain: Chain, reference: Any, n_vocab: int, rounds: int, rng: np.random.Generator
) -> None:
    rounded = any(s.name in ROUNDED for s in chain)
    for _ in range(rounds):
        spread = rng.choice([0.5, 1, 3, 6])
        logits = (rng.normal(size=n_vocab) * spread).astype(np.float32)
        cur = TokenDataArray.from_logits(logits)
        for event, right in zip(chain.apply_steps(cur), reference.apply_each(logits), strict=True):
            check(event.value, right, rounded)
        token = cur.selected_id
        if rng.random() < 0.9:
            chain.accept(token)
            reference.accept(token)
        if rng.random() < 0.05:
            chain.reset()
            reference.reset()
