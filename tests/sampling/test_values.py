"""Every stored case and sequence: what llama.cpp's samplers made of given logits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmviz.sampling import Chain, Sampler, TokenDataArray, make_sampler
from llmviz.sampling.sampler import SAMPLERS

VALUES = json.loads(
    (Path(__file__).parent.parent / "data" / "sampler_values.json").read_text(encoding="utf-8")
)

# Which of several equal logits survive a cut, and in which order, is unspecified in llama.cpp.
TIES = {"top_k_ties_1", "top_k_ties_2of8", "top_k_ties_3of4", "temp_ext_uniform"}
FLAGGED_SORTED = {"top_k_wrongly_sorted_flag"}


def sampler(name: str, args: list[Any]) -> Sampler:
    if name == "penalties":
        args = args[1:]  # llama.h's n_vocab, which llmviz does not ask for
    return SAMPLERS[name.replace("_", "-")](*args)


def chain_of(case: dict[str, Any]) -> Chain:
    chain = Chain(sampler(name, args) for name, args in case["chain"])
    for token in case.get("accept_before", ()):
        chain.accept(token)
    return chain


def floats(values: list[Any]) -> np.ndarray:
    return np.array([float(value) for value in values], np.float64).astype(np.float32)


@pytest.mark.parametrize("name", VALUES["cases"])
def test_case(name: str) -> None:
    case = VALUES["cases"][name]
    right = case["result"]
    cur = TokenDataArray.from_logits(floats(case["logits"]))
    cur.sorted = name in FLAGGED_SORTED
    chain_of(case).apply(cur)

    assert cur.size == right["size"]
    assert cur.selected == right["selected"]
    assert cur.selected_id == right.get("selected_id", -1)
    assert cur.sorted == right["sorted"]
    np.testing.assert_allclose(cur.logit, floats(right["logits"]), rtol=3e-7, atol=0)
    np.testing.assert_allclose(cur.p, floats(right["p"]), rtol=3e-7, atol=0)
    if name in TIES:
        assert len(set(cur.id.tolist())) == cur.size
    else:
        assert cur.id.tolist() == right["ids"]


@pytest.mark.parametrize("name", VALUES["sequences"])
def test_sequence(name: str) -> None:
    case = VALUES["sequences"][name]
    chain = chain_of(case)
    for step, right in enumerate(case["result"]):
        if step == case["reset_before_step"]:
            chain.reset()
        cur = TokenDataArray.from_logits(floats(case["logits"]))
        chain.apply(cur)
        assert (cur.selected, cur.size) == (right["sel"], right["size"]), step
        if case["accept_selected"]:
            chain.accept(cur.selected_id)


def test_empty_list_stays_empty() -> None:
    for name in ("top-k", "min-p", "temp", "penalties", "logit-bias", "top-n-sigma", "dry"):
        cur = TokenDataArray.from_logits([])
        make_sampler(name).apply(cur)
        assert cur.size == 0 and cur.selected == -1, name
