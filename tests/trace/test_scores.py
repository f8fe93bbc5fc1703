"""Scores before the softmax: recorded or replayed, scaled and masked as the engine does."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_archs import write_arch

import llmviz
from llmviz.errors import LlmvizError
from llmviz.generate import generate_steps
from llmviz.trace import Debugger, DebuggerError
from llmviz.trace.lookback import look_back, pass_starts
from llmviz.trace.scores import Scores, entering, shown_stage

from . import toy

PROMPT = "The cat sat on the mat"
LAYER, HEAD = 1, 2


@pytest.fixture(scope="module")
def model(tiny_model):
    return llmviz.load(tiny_model(n_layer=3, n_head=4))


def debug(model, **params) -> Debugger:
    return Debugger(model, PROMPT, n_predict=3, n_ctx=256, **params)


@pytest.fixture(scope="module")
def truth(model):
    """By node name, the rows of every query: [n_head, n_kv] copies of an unwatched run."""
    rows: dict[str, dict[int, np.ndarray]] = {}
    positions: list[int] = []
    for event in generate_steps(model.context(n_ctx=256), PROMPT, None, 3):
        if event.name == "inp_pos":
            positions = np.array(event.value).reshape(-1).tolist()
        kind = event.name.split("-")[0]
        if kind in ("kq", "kq_soft_max") and event.kind == "node":
            for i, pos in enumerate(positions):
                rows.setdefault(event.name, {})[pos] = np.array(event.value[:, i])
        if event.name == "attn_inp_kq_mask":
            for i, pos in enumerate(positions):
                rows.setdefault("mask", {})[pos] = np.array(event.value.reshape(-1, 256)[i])
    return rows


def check(shown, truth, stage: str) -> int:
    """Hold every number against the unwatched run; how many there were."""
    checked = 0
    for i, q in enumerate(k.pos for k in shown.tokens):
        for j, k in enumerate(k.pos for k in shown.tokens):
            got = shown.values[i, j]
            if np.isnan(got):
                continue
            want = truth[f"kq-{LAYER}"][q][HEAD, k]
            if stage == "masked":
                want = want * np.float32(shown.scale) + truth["mask"][q][k]
            assert got == want, (q, k)
            checked += 1
    return checked


def test_kept_from_the_begin_they_are_the_engines(model, truth) -> None:
    dbg = debug(model)
    scores = Scores(dbg)
    scores.ask(LAYER)
    for _ in range(3):
        dbg.next_token()
        scores.ask(LAYER)  # as a view does: the graph is known by now
    for stage in ("scores", "masked"):
        shown = shown_stage(dbg, LAYER, HEAD, 24, stage, scores)
        assert shown.missing == () and check(shown, truth, stage) > 60
    n = sum(k.given for k in dbg.tokens)
    raw = shown_stage(dbg, LAYER, HEAD, 24, "scores", scores).values
    assert np.isfinite(raw[:n, :n]).all(), "later tokens of the prompt have scores too"
    masked = shown_stage(dbg, LAYER, HEAD, 24, "masked", scores).values
    assert np.isneginf(masked[:n, :n][np.triu_indices(n, 1)]).all()
    assert not any(name.startswith("kq-") for name in dbg.recorder._kept._held if "-1" not in name)
    scores.release()
    assert dbg.recorder.value(f"kq-{LAYER}") is None


def test_what_went_by_is_seen_again_and_gives_the_weights(model, truth) -> None:
    dbg = debug(model)
    for _ in range(3):
        dbg.next_token()
    n, text = dbg.n, dbg.text
    scores = Scores(dbg)
    scores.ask(LAYER)
    missing = shown_stage(dbg, LAYER, HEAD, 24, "masked", scores).missing
    assert missing == tuple(range(len(dbg.tokens) - 1))
    scores.fetch(missing)
    assert (dbg.n, dbg.text) == (n, text), "the run stands where it stood"
    shown = shown_stage(dbg, LAYER, HEAD, 24, "masked", scores)
    assert shown.missing == () and check(shown, truth, "masked") > 60
    x = np.where(np.isnan(shown.values), -np.inf, shown.values)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    soft = shown_stage(dbg, LAYER, HEAD, 24)
    np.testing.assert_allclose(
        e / e.sum(axis=1, keepdims=True), np.nan_to_num(soft.values), atol=1e-6
    )
    np.testing.assert_allclose(soft.sums, 1, atol=1e-6)
    dbg.goto(dbg.tokens[-2].n)
    assert max(b.n for b in scores.blocks()) < dbg.n, "what lies ahead is not shown"
    dbg.close()


def test_a_change_of_the_past_makes_fetched_scores_stale(model) -> None:
    dbg = debug(model)
    dbg.next_token()
    scores = Scores(dbg)
    scores.ask(LAYER)
    scores.fetch([0, 1])
    before = np.array(scores.blocks()[0].kq)
    dbg.goto(pass_starts(dbg)[0])
    dbg.ablate_heads(0, [0])
    dbg.next_token()
    scores.ask(LAYER)
    (block,) = scores.blocks()
    assert block.kq.shape == before.shape and (block.kq != before).any()


def test_scale_and_mask_come_from_the_graph(model) -> None:
    dbg = debug(model)
    assert entering(dbg, 1).scale is None, "no graph yet"
    dbg.next_token()
    how = entering(dbg, 1)
    head = model.hparams.n_embd_head_k
    assert how.scale == pytest.approx(1 / np.sqrt(head)) and how.mask == "attn_inp_kq_mask"
    with pytest.raises(LlmvizError, match="'scores', 'masked', 'softmax'"):
        shown_stage(dbg, 1, 0, 24, "before")


WINDOW = {"attention.sliding_window": 4, "attention.sliding_window_pattern": 2}


@pytest.mark.parametrize(
    ("arch", "keys"),
    [
        ("mpt", {"attention.max_alibi_bias": 8.0}),
        ("gemma2", {"attn_logit_softcapping": 1.5}),
        ("gemma3", {"attention.key_length": 32, "attention.value_length": 32, **WINDOW}),
    ],
)
def test_slopes_caps_and_windows(tmp_path, arch, keys) -> None:
    optional = ("*.bias",) if arch == "mpt" else ("output.weight",)
    path = write_arch(tmp_path / "x.gguf", arch=arch, optional=optional, keys=keys)
    dbg = Debugger(path, [5, 9, 11, 7, 5, 9, 11, 7], n_predict=3, n_ctx=512)
    dbg.recorder.ask(dbg, lambda name: name.startswith("kq"))  # without what is added to them
    dbg.next_token()
    dbg.next_token()
    for layer in (0, 1):
        scores = Scores(dbg)
        scores.ask(layer)
        scores.fetch(shown_stage(dbg, layer, 1, 24, "masked", scores).missing)
        shown = shown_stage(dbg, layer, 1, 24, "masked", scores)
        assert shown.missing == () and len(shown.tokens) >= 9
        x = np.where(np.isnan(shown.values), -np.inf, shown.values)
        e = np.exp(x - x.max(axis=1, keepdims=True))
        soft = shown_stage(dbg, layer, 1, 24)
        weights = e / e.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(weights, np.nan_to_num(soft.values), atol=1e-6)
        assert [k.pos for k in soft.tokens] == list(range(len(soft.tokens)))
        scores.release()


def test_a_generator_has_none_and_says_so() -> None:
    dbg = Debugger(toy.run())
    dbg.run()
    scores = Scores(dbg)
    scores.ask(1)
    assert shown_stage(dbg, 1, 0, 24, "scores", scores).missing
    with pytest.raises(LlmvizError, match="cannot go back"):
        scores.fetch([0])


def test_a_visitor_that_raises_leaves_the_run_where_it_was(model) -> None:
    dbg = debug(model)
    dbg.next_token()
    n, logits = dbg.n, np.array(dbg.recorder.logits)

    def broken(event, number):
        raise ZeroDivisionError("the visitor's")

    with pytest.raises(ZeroDivisionError):
        look_back(dbg, pass_starts(dbg)[0], lambda name: True, broken)
    assert dbg.n == n and (dbg.recorder.logits == logits).all()
    seen = []
    look_back(dbg, n, lambda name: False, lambda event, number: seen.append(number))
    assert seen == [n]
    with pytest.raises(DebuggerError, match="nothing has run"):
        look_back(debug(model), 0, lambda name: True, broken)
