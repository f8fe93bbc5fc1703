"""Lesson 21: its answers, worked out here, and that its three set-ups are broken as it says."""

from __future__ import annotations

import os

import numpy as np
import pytest

import llmviz as lv

from .running import lesson_run


@pytest.fixture(scope="module")
def run(tmp_path_factory, smollm2_path):
    assert os.path.exists(smollm2_path)  # where the lesson looks for it
    with lesson_run("21-find-the-fault", tmp_path_factory.mktemp("lesson")) as run:
        yield run


def test_grades(run):
    run.still_holds()
    upto = np.cumsum(run.names["lengths"])
    first = int((upto <= 256).sum()) + 1  # from 1: that finds no room
    run.grades(
        {
            "special": (2, 0),
            "where": (4, 0),
            "part": ("embd", "Qcur-0"),
            "first": (first + 1, first),
            "stale": (1, 2),
            "repair": (run.names["ask"],),
        }
    )


def test_the_exercise_says_what_is_wrong(run):
    check, ask = run.checks["repair"], run.names["ask"]

    def when_full(ctx, text):
        if ctx.memory.cells[0].n_used > 200:
            ctx.memory.clear()
        return ask(ctx, text)

    def shrugs(ctx, text):
        ctx.memory.clear()
        ask(ctx, text)
        return "?"

    assert "was not read" in check.submit(ask).reason
    assert "was not read" in check.submit(lambda ctx, text: "?").reason
    assert "alone it says" in check.submit(shrugs).reason
    late = check.submit(when_full)
    assert late.right or "are earlier questions still there?" in late.reason


def test_the_faults_are_as_it_says(run):
    names = run.names
    assert names["silent"].text == "" and names["smol"].vocab.is_eog(names["first"].id)
    assert "blue" in run.printed["21-chat-repaired"].split("=" * 40)[1]
    assert names["model"].gguf.kv["llama.rope.freq_base"] == 10000
    assert names["origin"].op == "ROPE" and "rope" not in names["comparison"].report().lower()[:200]
    symptoms = run.printed["21-rope-symptoms"]
    assert (
        5 <= symptoms.count("✗") <= 12 and "✗" not in symptoms.split("After Friday comes")[1][:12]
    )
    wrong = [line for line in run.printed["21-cache-run"].splitlines() if "✗" in line]
    assert wrong and wrong[0].split()[0] == str(names["found_at"]) and "stone" in wrong[0]
    assert names["status"] == lv.DecodeStatus.NO_KV_SLOT
    assert names["full"].here.value == "context full"


def test_what_it_shows(run):
    assert [v.view_name for v in run.views()] == ["tokenizer", "compare", "kv_cache"]
