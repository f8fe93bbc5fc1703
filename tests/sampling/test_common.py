"""The chain of llama.cpp's tools: its links, their order, their parameters."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from llmviz.errors import SamplerError, UnsupportedError
from llmviz.sampling import Chain, TokenDataArray, common_chain
from tests.sampling.beside import NO_VOCAB, run_beside

INF = np.inf

COMMON: list[tuple[dict[str, Any], list[tuple[Any, ...]]]] = [
    (
        {"seed": 42},
        [
            ("penalties", NO_VOCAB, 64, 1.0, 0.0, 0.0),
            ("dry", None, 0.0, 1.75, 2, 64, ["\n", ":", '"', "*"]),
            ("top_n_sigma", -1.0),
            ("top_k", 40),
            ("typical", 1.0, 0),
            ("top_p", 0.95, 0),
            ("min_p", 0.05, 0),
            ("xtc", 0.0, 0.1, 0, 42),
            ("temp_ext", 0.8, 0.0, 1.0),
            ("dist", 42),
        ],
    ),
    (
        {"seed": 5, "mirostat": 2, "temp": 0.7, "mirostat_tau": 3.0},
        [("temp", 0.7), ("mirostat_v2", 5, 3.0, 0.1)],
    ),
    (
        {"samplers": ("adaptive_p", "min_p"), "min_p": 0.01, "adaptive_target": 0.4, "seed": 1},
        [("min_p", 0.01, 0), ("adaptive_p", 0.4, 0.9, 1)],
    ),
    (
        {"logit_bias": ((7, -INF),), "samplers": ("top_k", "xtc"), "min_keep": 2, "seed": 9,
         "xtc_probability": 0.5},
        [("logit_bias", 0, [(7, -INF)]), ("top_k", 40), ("xtc", 0.5, 0.1, 2, 9), ("dist", 9)],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("options", "spec"), COMMON)
def test_the_tools_chain(
    llamacpp: ModuleType, tiny_model: Callable[..., str], options: dict[str, Any], spec: list[Any]
) -> None:
    chain = common_chain(**options)
    rng = np.random.default_rng(12)
    with llamacpp.Reference(tiny_model(), vocab_only=True) as model:
        spec = [(n, model.vocab, *a[1:]) if n == "dry" else (n, *a) for n, *a in spec]
        with llamacpp.ReferenceChain(spec) as reference:
            assert reference.names == [("?" if s.off else "") + s.name for s in chain]
            run_beside(chain, reference, 600, 25, rng)


def test_the_default_chain_is_the_tools_without_what_is_off() -> None:
    short, whole = Chain.default(3), [s for s in common_chain(seed=3) if not s.off]
    assert [s.event_name for s in whole] == ["top_k", "top_p", "min_p", "temp_ext", "dist"]
    rng = np.random.default_rng(13)
    for _ in range(20):
        logits = rng.normal(size=500).astype(np.float32) * 3
        a, b = TokenDataArray.from_logits(logits), TokenDataArray.from_logits(logits)
        short.apply(a)
        Chain(whole).apply(b)
        assert a.selected_id == b.selected_id


def test_options_that_are_not_there() -> None:
    for options, error, text in (
        ({"top_z": 1}, SamplerError, "no sampling option 'top_z'; known: seed"),
        ({"samplers": ("top_z",)}, UnsupportedError, "'top_z'; supported: penalties, dry"),
        ({"mirostat": 3}, SamplerError, "0 .off., 1 or 2, not 3"),
        ({"mirostat": 1}, SamplerError, "give vocab"),
        ({"dry_multiplier": 0.5}, SamplerError, "vocab"),
        ({"samplers": ("infill",)}, SamplerError, "infill needs a vocabulary"),
    ):
        with pytest.raises(error, match=text):
            common_chain(**options)
