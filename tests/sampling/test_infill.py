"""Infill leaves llama.cpp's candidates, whatever begins alike."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from llmviz.errors import SamplerError
from llmviz.gguf import open_gguf
from llmviz.sampling import AdaptiveP, Infill, Sampler, TokenDataArray
from llmviz.vocab import Vocab
from tests.sampling.beside import ROUNDS

INF = np.inf


def seed_of_infill(rng: np.random.Generator, vocab: Any, n: int) -> tuple[Any, Any]:
    """Ids and logits of candidates that often begin alike, and often may end."""
    eog = [t for t in range(vocab.n_tokens) if vocab.is_eog(t)]
    ids = rng.choice(vocab.n_tokens, n, replace=False)
    if rng.random() < 0.7:
        ids[0] = eog[0]
        ids[1:][ids[1:] == eog[0]] = next(t for t in range(9, 99) if t not in ids)
    logits = rng.normal(size=n) * rng.choice([0.5, 2.0, 5.0])
    if rng.random() < 0.7:
        logits[0] -= rng.choice([3.0, 8.0, 30.0])
    if rng.random() < 0.2:
        logits[rng.integers(0, n)] = -INF
    return ids.astype(np.int32), logits.astype(np.float32)


@pytest.mark.parametrize("variant", ["dense", "bpe"])
def test_infill(llamacpp: ModuleType, tiny_model: Callable[..., str], variant: str) -> None:
    path = tiny_model(variant=variant)
    vocab = Vocab.from_gguf(open_gguf(path))
    rng = np.random.default_rng(11)
    sampler = Infill(vocab)
    ends = cut = joined = 0
    with (
        llamacpp.Reference(path, vocab_only=True) as model,
        llamacpp.ReferenceChain([("infill", model.vocab)]) as reference,
    ):
        for _ in range(ROUNDS or 300):
            n = int(rng.choice([1, 2, 5, 20, 60]))
            ids, logits = seed_of_infill(rng, vocab, n)
            cur = TokenDataArray(ids, logits, np.zeros(n, np.float32))
            before = cur.freeze()
            sampler.apply(cur)
            right = reference.apply(logits, ids)
            assert (cur.size, cur.sorted) == (right.id.size, right.sorted)
            np.testing.assert_array_equal(cur.id, right.id)
            np.testing.assert_array_equal(cur.logit, right.logit)
            np.testing.assert_allclose(cur.p, right.p, rtol=2e-6)
            why = sampler.explain(before, cur).sentence
            ends += "only it is left" in why or "only the end" in why
            cut += "dropped" in why
            joined += "0 joined" not in why and "joined" in why
    assert min(ends, cut, joined) > 5


def test_infill_on_a_whole_vocabulary_takes_no_longer_than_its_text(
    tiny_model: Callable[..., str],
) -> None:
    """No candidate is compared with every other."""
    real = Vocab.from_gguf(open_gguf(tiny_model(variant="bpe")))
    asked = 0

    class Wide:
        eot, eos = real.eot, real.eos

        def is_eog(self, token: int) -> bool:
            return False

        def token_to_piece(self, token: int, lstrip: int = 0, special: bool = False) -> bytes:
            nonlocal asked
            asked += 1
            return f"{token:05d}".encode()

    cur = TokenDataArray.from_logits(np.zeros(20_000, np.float32))
    Infill(Wide()).apply(cur)
    assert asked == 20_000 and cur.size == 1


@pytest.mark.parametrize("make", [lambda: AdaptiveP(0.5), lambda: Infill(FlatVocab())])
def test_no_candidates(make: Callable[[], Sampler]) -> None:
    with pytest.raises(SamplerError, match="no candidates"):
        make().apply(TokenDataArray.from_logits([]))


class FlatVocab:
    """A vocabulary of letters without an end."""

    eot = eos = -1

    def is_eog(self, token: int) -> bool:
        return token == 9

    def token_to_piece(self, token: int, lstrip: int = 0, special: bool = False) -> bytes:
        return bytes([97 + token])


def test_infill_where_nothing_or_no_end_is_left() -> None:
    one = TokenDataArray.from_logits([1.5])
    Infill(FlatVocab()).apply(one)
    assert (one.id.tolist(), one.p.tolist()) == ([0], [1.0])
    with pytest.raises(SamplerError, match="no eot or eos"):  # eight letters of 1/8 each
        Infill(FlatVocab()).apply(TokenDataArray.from_logits([0.0] * 8))
