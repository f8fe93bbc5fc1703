"""Every layer read early: the last one says what the model says; rows are kept or replayed."""

from __future__ import annotations

import numpy as np
import pytest

import llmviz
from llmviz.errors import LlmvizError
from llmviz.generate import generate_steps
from llmviz.trace import Debugger
from llmviz.trace.early import EarlyReader
from llmviz.trace.lens import LogitLens, entropy, rank_of
from llmviz.trace.shares import NotKept

from . import toy

PROMPT = [5, 9, 11, 7]
LAYERS = 3


@pytest.fixture(scope="module")
def model(tiny_model):
    return llmviz.load(tiny_model(n_layer=LAYERS))


def debug(model, n: int, **params) -> Debugger:
    dbg = Debugger(model, PROMPT, n_predict=6, n_ctx=64, **params)
    for _ in range(n):
        dbg.next_token()
    return dbg


@pytest.fixture(scope="module")
def truth(model):
    """Of each pass: last rows of l_out by layer, logits and the chosen token, unwatched."""
    passes: list[dict] = []
    for event in generate_steps(model.context(n_ctx=64), PROMPT, None, 6):
        if event.kind == "enter" and event.name == "process_ubatch":
            passes.append({})
        if event.kind == "node" and event.name.startswith("l_out-"):
            passes[-1][int(event.name[6:])] = np.array(event.value[-1])
        if event.step == 14 and event.name == "logits":
            passes[-1]["logits"] = np.array(event.value[-1])
        if event.step == 16 and event.name == "token":
            passes[-1]["token"] = int(event.value)
    return passes


def check(early, one, model) -> None:
    """Hold every number against the lens of the unwatched run's own rows."""
    assert [a.layer for a in early.layers] == list(range(LAYERS))
    lens = LogitLens(model)
    for a in early.layers:
        logits = lens(one[a.layer])
        assert a.logit == pytest.approx(logits[early.token], rel=1e-5)
        assert a.rank == rank_of(early.token, logits) and a.top[0].id == logits.argmax()
        assert a.entropy == pytest.approx(entropy(logits), rel=1e-5)
    last = early.layers[-1]
    assert last.logit == pytest.approx(one["logits"][early.token], rel=1e-5)
    assert last.rank == rank_of(early.token, one["logits"])


def test_kept_rows_of_the_newest_and_of_an_older_pass(model, truth) -> None:
    dbg = debug(model, 0)
    reader = EarlyReader(dbg)
    reader.ask()
    for pass_ in range(3):
        dbg.next_token()
        early = reader.read()
        assert early.chosen and early.token == truth[pass_]["token"] and early.pos == 4 + pass_
        check(early, truth[pass_], model)
    check(reader.read(selected=4), truth[0], model)
    other = reader.read(token=17)
    assert other.token == 17 and not other.chosen
    check(other, truth[2], model)
    assert other.layers[-1].rank == rank_of(17, dbg.recorder.logits)
    reader.release()
    assert dbg.recorder.value("l_out-0[-1]") is None


def test_rows_that_went_by_are_seen_again(model, truth) -> None:
    dbg = debug(model, 3)
    reader = EarlyReader(dbg)
    with pytest.raises(NotKept, match="l_out-0"):
        reader.read()
    n = dbg.n
    reader.fetch()
    check(reader.read(), truth[2], model)
    reader.fetch(selected=4)
    check(reader.read(selected=4), truth[0], model)
    assert dbg.n == n
    key = reader.key()
    dbg.next_token()
    assert reader.key() != key


def test_settled_is_the_layer_from_which_on_it_leads(model) -> None:
    dbg = debug(model, 1)
    reader = EarlyReader(dbg)
    reader.fetch()
    best = int(dbg.recorder.logits.argmax())
    early = reader.read(token=best)
    assert early.settled is not None and all(a.rank == 0 for a in early.layers[early.settled :])
    assert early.settled == 0 or early.layers[early.settled - 1].rank > 0
    worst = int(dbg.recorder.logits.argmin())
    assert reader.read(token=worst).settled is None


def test_what_cannot_be_read_says_why(model) -> None:
    with pytest.raises(LlmvizError, match="no logits yet"):
        EarlyReader(debug(model, 0)).read()
    dbg = Debugger(toy.run())
    dbg.next_token()
    with pytest.raises(LlmvizError, match="no weights"):
        EarlyReader(dbg).read()
    reader = EarlyReader(debug(model, 1))
    reader.fetch()
    with pytest.raises((LlmvizError, IndexError)):
        reader.read(token=10**9)
