"""Lesson 18: its answers, worked out here with numpy, and what its exercise says of wrong loops."""

from __future__ import annotations

import numpy as np
import pytest

import llmviz as lv

from .running import lesson_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with lesson_run("18-the-sampler-chain", tmp_path_factory.mktemp("lesson")) as run:
        yield run


def test_grades(run):
    run.still_holds()
    x = run.names["logits"].astype(float)
    p = np.sort(np.exp(x - x.max()) / np.exp(x - x.max()).sum())[::-1]
    nucleus = int((np.cumsum(p) < 0.9).sum()) + 1
    enough = int((p >= 0.05 * p[0]).sum())
    circle = ["prompt", "tokenize", "batch", "decode", "output", "sample", "accept"]
    draw = run.names["draw"]
    drawn = int(draw.id[np.searchsorted(draw.end, draw.draw)])
    drawn = run.names["vocab"].token_to_piece(drawn).decode()
    run.grades(
        {
            "top-p": (nucleus + 1, nucleus),
            "min-p": (nucleus, enough),
            "hot": (2, 1),
            "order": (2, 1),
            "drawn": (" under", drawn),
            "seed": ([0, 1], [0, 2]),
            "circle": (circle[::-1], circle),
            "again": (circle, circle[2:]),
            "loop": (lambda ctx, text, chain, n: text,),
        }
    )


def test_the_exercise_says_what_is_wrong(run):
    vocab, check = run.names["vocab"], run.checks["loop"]

    def never_stops(ctx, text, chain, n, whole=False, echo=False):
        ids, said = vocab.tokenize(text), b""
        for _ in range(n):
            if whole:
                ctx.memory.clear()
            ctx.decode(lv.Batch.get_one(ids))
            token = chain.sample(ctx)
            said += vocab.token_to_piece(token)
            ids = [*ids, token] if whole else [token]
        return (text if echo else "") + said.decode()

    assert "where does it stop?" in check.submit(never_stops).reason
    echo = check.submit(lambda *given: never_stops(*given, echo=True))
    assert "without the prompt" in echo.reason
    assert "differs from character 0" in check.submit(lambda *given: "x").reason
    assert "should return a text" in check.submit(lambda *given: None).reason


def test_what_it_shows(run):
    assert [v.view_name for v in run.views()] == ["sampler", "flow"]
    names = run.names
    assert names["story"].here.value == "eog" and len(names["story"].tokens) < 120
    assert names["hot_first"] > 10 * names["cut_first"]
    assert "near" in run.printed["18-line"] and "█" in run.printed["18-load"]
    assert len(set(names["texts"])) == 3
