"""The logit lens against the model's own logits; head scores against loops and by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import llmviz
from llmviz.batch import Batch
from llmviz.errors import LlmvizError, UnsupportedError
from llmviz.generate import generate_steps
from llmviz.sampling import Chain, Greedy
from llmviz.trace import lens
from llmviz.trace.lens import (
    LogitLens,
    attention_entropy,
    entropy,
    first_token_score,
    induction_score,
    logit_lens,
    previous_token_score,
    rank_of,
    top_tokens,
)


def run_nodes(model: Any, ids: list[int], *prefixes: str) -> dict[str, np.ndarray]:
    """Copies of nodes of one decode in which every token gives an output."""
    ctx = model.context(n_ctx=256)
    batch = Batch(token=ids, logits=[True] * len(ids))
    nodes = {}
    for event in ctx.decode_steps(batch, want=lambda name: name.startswith(prefixes)):
        if event.kind == "node":
            nodes[event.name] = np.array(event.value)
    return nodes


# -- the lens -------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["dense", "tied"])
def test_the_last_layer_gives_the_model_s_logits(
    tiny_model: Callable[..., str], variant: str
) -> None:
    model = llmviz.load(tiny_model(variant=variant))
    rng = np.random.default_rng(0)
    ids = rng.integers(3, model.vocab.n_tokens, 40).tolist()  # more than one block
    nodes = run_nodes(model, ids, "l_out-", "result_output")
    last = nodes[f"l_out-{model.hparams.n_layer - 1}"]
    wanted = nodes["result_output"]
    found = logit_lens(model, last)
    assert found.dtype == np.float32 and found.shape == wanted.shape == (40, model.vocab.n_tokens)
    scale = np.abs(wanted).max()
    np.testing.assert_allclose(found, wanted, atol=1e-6 * scale, rtol=1e-6)

    through = LogitLens(model)
    for row in (0, 33, 39):  # one row at a time, of any layer, without and with the first axis
        np.testing.assert_allclose(through(last[row]), wanted[row], atol=1e-6 * scale, rtol=1e-6)
    early = through(nodes["l_out-0"])
    np.testing.assert_allclose(through(nodes["l_out-0"][7:8])[0], early[7], atol=1e-6 * scale)
    assert np.abs(early - wanted).max() > 1e-3
    assert through(last[:0]).shape == (0, model.vocab.n_tokens)


def test_the_lens_is_the_norm_and_the_output_matrix(tiny_model: Callable[..., str]) -> None:
    model = llmviz.load(tiny_model())
    x = np.random.default_rng(1).standard_normal(model.hparams.n_embd).astype(np.float32)
    norm = model.tensors["output_norm.weight"].numpy()
    output = model.tensors.get("output.weight", model.tensors["token_embd.weight"]).numpy()
    scaled = x / np.sqrt(np.mean(x.astype(float) ** 2) + model.hparams.f_norm_rms_eps) * norm
    np.testing.assert_allclose(logit_lens(model, x), output @ scaled, rtol=1e-4, atol=1e-5)


def test_the_lens_leaves_a_context_alone(tiny_model: Callable[..., str]) -> None:
    model = llmviz.load(tiny_model())
    ctx = model.context(n_ctx=64)
    ctx.decode(Batch.get_one([3, 4, 5]))
    before = np.array(ctx.get_logits_ith(-1))
    logit_lens(model, np.ones(model.hparams.n_embd, np.float32))
    np.testing.assert_array_equal(ctx.get_logits_ith(-1), before)


def test_what_the_lens_refuses(
    tiny_model: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = llmviz.load(tiny_model())
    through = LogitLens(model)
    n_embd = model.hparams.n_embd
    for wrong in (np.ones(n_embd + 1), np.ones((2, 2, n_embd)), np.ones((1, n_embd), np.int32)):
        with pytest.raises(LlmvizError, match=f"rows of {n_embd} floats"):
            through(wrong)
    with pytest.raises(LlmvizError, match="without weights"):
        LogitLens(llmviz.load(tiny_model(), vocab_only=True))
    monkeypatch.setattr(lens, "LONGEST_TAIL", 1)
    with pytest.raises(UnsupportedError, match="logit lens"):
        LogitLens(model)(np.ones(n_embd, np.float32))


def test_the_lens_keeps_two_sizes(tiny_model: Callable[..., str]) -> None:
    through = LogitLens(llmviz.load(tiny_model()))
    for n in (1, 32, 2, 40, 1, 3):
        through(np.ones((n, through.n_embd), np.float32))
        assert len(through._tails) <= 2


def test_smollm2_says_paris(smollm2_path: str) -> None:
    model = llmviz.load(smollm2_path)
    layers = model.hparams.n_layer
    kept: dict[str, np.ndarray] = {}
    token = -1
    for event in generate_steps(
        model.context(n_ctx=64),
        "The capital of France is",
        Chain([Greedy()]),
        1,
        want=lambda name: name.startswith(("l_out-", "result_output")),
    ):
        if event.kind == "node":
            kept[event.name] = np.array(event.value)
        elif event.name == "token" and event.step == 16:
            token = event.value
    assert model.vocab.token_to_piece(token) == b" Paris"
    through = LogitLens(model)
    logits = [through(kept[f"l_out-{il}"][-1]) for il in range(layers)]
    wanted = kept["result_output"][-1]
    np.testing.assert_allclose(logits[-1], wanted, rtol=1e-6, atol=1e-6 * np.abs(wanted).max())
    (best,) = top_tokens(logits[-1], 1, model.vocab)
    assert (best.id, best.piece) == (token, b" Paris")
    ranks = [rank_of(token, row) for row in logits]
    assert ranks[layers - 1] == 0 and ranks[0] > 100  # it is not there from the start


# -- logits ---------------------------------------------------------------------------------------


def test_top_rank_and_entropy_by_hand() -> None:
    logits = np.log(np.array([1, 4, 2, 1, np.nan, 8], np.float32))
    best = top_tokens(logits, 4)
    assert [t.id for t in best] == [5, 1, 2, 0]  # of equal ones the lower id
    np.testing.assert_allclose([t.p for t in best], [8 / 16, 4 / 16, 2 / 16, 1 / 16], rtol=1e-6)
    assert best[0].piece == b"" and best[0].logit == logits[5]
    assert [rank_of(i, logits) for i in range(6)] == [3, 1, 2, 3, 5, 0]
    p = np.array([1, 4, 2, 1, 8]) / 16
    assert entropy(logits) == pytest.approx(-(p * np.log(p)).sum(), rel=1e-6)
    assert entropy(np.zeros(50, np.float32)) == pytest.approx(np.log(50))
    assert entropy(np.array([0, -np.inf], np.float32)) == 0
    assert len(top_tokens(logits, 99)) == 6 and top_tokens(logits, 0) == []


def test_top_of_many_equal_logits_is_the_lowest_ids() -> None:
    logits = np.zeros(1000, np.float32)
    logits[[900, 500]] = 1
    assert [t.id for t in top_tokens(logits, 5)] == [500, 900, 0, 1, 2]


def test_what_is_no_row_of_logits() -> None:
    for wrong in (np.zeros((2, 2)), np.zeros(0), np.array(["a"])):
        with pytest.raises(LlmvizError, match="one row of logits"):
            top_tokens(wrong)
    for token in (-1, 3):
        with pytest.raises(LlmvizError, match="there is no token"):
            rank_of(token, np.zeros(3))


# -- heads ----------------------------------------------------------------------------------------


def attention(n_head: int, q_pos: list[int], k_pos: list[int], seed: int = 0) -> np.ndarray:
    """Random causal attention, float32 [n_head, n_q, n_k]."""
    scores = np.random.default_rng(seed).standard_normal((n_head, len(q_pos), len(k_pos)))
    k, q = np.array(k_pos)[None, :], np.array(q_pos)[:, None]
    scores[:, (k > q) | (k < 0)] = -np.inf
    e = np.exp(scores)
    return (e / e.sum(-1, keepdims=True)).astype(np.float32)


def test_heads_that_do_one_thing() -> None:
    n = 6
    tokens = [7, 8, 9, 7, 8, 9]
    first, previous, induction = np.zeros((3, n, 8), np.float32)  # two cells are empty
    first[:, 0] = 1
    previous[np.arange(n), np.maximum(np.arange(n) - 1, 0)] = 1
    induction[np.arange(n), [0, 0, 0, 1, 2, 3]] = 1
    kq = np.stack([first, previous, induction])
    np.testing.assert_allclose(previous_token_score(kq), [1 / 5, 1, 1 / 5])
    np.testing.assert_allclose(first_token_score(kq), [1, 1 / 5, 2 / 5])
    np.testing.assert_allclose(induction_score(kq, tokens), [0, 0, 1])
    np.testing.assert_allclose(attention_entropy(kq), 0)
    even = np.full((1, n, 8), 1 / 8, np.float32)
    np.testing.assert_allclose(attention_entropy(even), np.log(8), rtol=1e-6)


@pytest.mark.parametrize(
    ("q_pos", "k_pos"),
    [
        (list(range(9)), list(range(9))),
        ([8], list(range(9))),  # one token after eight
        ([5, 6, 7], [7, -1, 0, 5, 6, 3, 1, 2, 4, -1]),  # cells in any order, some empty
        ([4, 5], [2, 3, 4, 5]),  # the first tokens are gone
    ],
)
def test_scores_against_loops(q_pos: list[int], k_pos: list[int]) -> None:
    tokens = [1, 2, 3, 1, 2, 2, 3, 1, 2]
    kq = attention(3, q_pos, k_pos)
    previous: list[list[float]] = [[] for _ in kq]
    first: list[list[float]] = [[] for _ in kq]
    induction: list[list[float]] = [[] for _ in kq]
    for h, i in np.ndindex(len(kq), len(q_pos)):
        q = q_pos[i]
        cell = {pos: float(kq[h, i, j]) for j, pos in enumerate(k_pos) if pos >= 0}
        if q - 1 in cell:
            previous[h].append(cell[q - 1])
        if q > 0 and 0 in cell:
            first[h].append(cell[0])
        after = [k for k in cell if 0 < k < q and tokens[k - 1] == tokens[q]]
        if after:
            induction[h].append(sum(cell[k] for k in after))

    def mean(scores: list[list[float]]) -> list[float]:
        return [np.mean(x) if x else np.nan for x in scores]

    np.testing.assert_allclose(previous_token_score(kq, q_pos, k_pos), mean(previous), rtol=1e-6)
    np.testing.assert_allclose(first_token_score(kq, q_pos, k_pos), mean(first), rtol=1e-6)
    np.testing.assert_allclose(
        induction_score(kq, tokens, q_pos, k_pos), mean(induction), rtol=1e-6
    )
    p = np.where(kq > 0, kq, 1).astype(float)
    np.testing.assert_allclose(attention_entropy(kq), -(p * np.log(p)).sum(2).mean(1), rtol=1e-6)


def test_nothing_to_measure_is_nan() -> None:
    kq = attention(2, [0], [0])
    assert np.isnan(previous_token_score(kq)).all()
    assert np.isnan(first_token_score(kq)).all()
    assert np.isnan(induction_score(kq, [5])).all()
    assert np.isnan(attention_entropy(np.zeros((2, 0, 4), np.float32))).all()
    bad = attention(1, [0, 1], [0, 1])
    bad[0, 1, 1] = np.nan
    assert np.isnan(attention_entropy(bad)).all()


def test_what_is_no_attention() -> None:
    kq = attention(2, [0, 1], [0, 1])
    with pytest.raises(LlmvizError, match="kq_soft_max"):
        previous_token_score(kq[0])
    with pytest.raises(LlmvizError, match="2 query and 2 key positions, got 1 and 2"):
        first_token_score(kq, [0])
    with pytest.raises(LlmvizError, match="the token of each position up to 1, got 1"):
        induction_score(kq, [5])
