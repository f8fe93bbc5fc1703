"""Candidates that no model should give: each sampler answers, or says what is wrong."""

from __future__ import annotations

import inspect
import warnings

import numpy as np
import pytest

from llmviz.errors import SamplerError
from llmviz.sampling import SAMPLERS, Chain, TokenDataArray

NAN, INF = np.nan, np.inf
ODD = {
    "empty": [],
    "one": [1.0],
    "one -inf": [-INF],
    "one NaN": [NAN],
    "all -inf": [-INF] * 4,
    "all NaN": [NAN] * 4,
    "a NaN": [1.0, NAN, 2.0, 0.0],
    "two inf": [INF, INF, 1.0, 2.0],
    "all equal": [3.0] * 4,
}


class Letters:
    """The least vocabulary: two letters, the third token ends."""

    eot = eos = 2
    n_tokens = 4

    def is_eog(self, token: int) -> bool:
        return token == 2

    def token_to_piece(self, token: int, lstrip: int = 0, special: bool = False) -> bytes:
        return (b"a", b"ab", b"", b"b")[token]


GIVEN = {
    "dist": {"seed": 1},
    "xtc": {"p": 1.0, "seed": 1},
    "mirostat": {"n_vocab": 4, "seed": 1, "tau": 5.0, "eta": 0.1, "m": 100},
    "mirostat-v2": {"seed": 1},
    "adaptive-p": {"target": 0.3, "seed": 1},
    "infill": {"vocab": Letters()},
    "penalties": {"penalty_last_n": 4, "penalty_repeat": 1.2},
    "dry": {"dry_multiplier": 1.0},
    "logit-bias": {"logit_bias": [(1, 2.0)]},
    "top-n-sigma": {"n": 1.0},
    "temp-ext": {"t": 0.7, "delta": 0.4, "exponent": 1.0},
    "typical": {"p": 0.5},
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("name", [n for n, cls in SAMPLERS.items() if cls is not Chain])
def test_an_answer_or_a_reason(name: str, kind: str) -> None:
    cls = SAMPLERS[name]
    known = inspect.signature(cls).parameters
    sampler = cls(**{k: v for k, v in GIVEN.get(name, {}).items() if k in known})
    sampler.accept(1)
    cur = TokenDataArray.from_logits(ODD[kind])
    n = cur.size
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            sampler.apply(cur)
        except SamplerError as error:
            assert kind == "empty" and "no candidates" in str(error)
            return
    assert cur.size <= max(n, 1)
    if sampler.selects and n:
        assert 0 <= cur.selected < cur.size
    else:
        assert cur.selected == -1
    if kind == "one":
        assert cur.id.tolist() == [0]
