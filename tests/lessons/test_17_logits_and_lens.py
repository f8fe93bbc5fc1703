"""Lesson 17: its answers, worked out here with numpy, and what its prose says of the model."""

from __future__ import annotations

import numpy as np
import pytest

import llmviz as lv

from .running import lesson_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with lesson_run("17-logits-and-lens", tmp_path_factory.mktemp("lesson")) as run:
        yield run


def _entropy(model, prompt):
    ctx = model.context(n_ctx=256)
    ctx.decode(lv.Batch.get_one(model.vocab.tokenize(prompt)))
    x = ctx.get_logits_ith(-1).astype(float)
    p = np.exp(x - x.max()) / np.exp(x - x.max()).sum()
    return float(-(p * np.log(p)).sum())


def test_grades(run):
    run.still_holds()
    model, prompts = run.names["model"], run.names["prompts"]
    surest = sorted(prompts, key=lambda text: _entropy(model, text))
    run.grades(
        {
            "many": (model.hparams.n_embd, model.vocab.n_tokens),
            "shift": (0, 2),
            "one-more": (10, 2.71828),
            "surest": (surest[::-1], surest),
            "when": (0, 2),
            "names": (0, 1),
            "lens": (np.zeros_like(run.names["expected"]),),
        }
    )


def test_the_exercise_says_what_is_wrong(run):
    names, check = run.names, run.checks["lens"]
    row, norm, output = names["early"], names["norm"], names["output"]
    size = np.sqrt((row**2).mean())
    assert "times as large" in check.submit(output @ (row * norm)).reason
    assert "norm's weights" in check.submit(output @ (row / size)).reason
    assert "for each token" in check.submit(row).reason


def test_the_model_does_what_it_says(run):
    names = run.names
    assert names["known"].settled == 0 and names["read"].settled == 3
    assert names["dbg"].text == " Tom" and names["by_heart"].text == " Saturday"
    assert all(a.rank < 10 for a in names["read"].layers), "near the top all the time"
    assert [v.view_name for v in run.views()] == ["logits"]
    (view,) = run.views()
    assert view.lens_about["state"] == "read" and len(view.lens_rows) == 4
