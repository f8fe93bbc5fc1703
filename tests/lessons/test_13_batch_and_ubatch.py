"""Lesson 13: its answers, counted here by other means, and what its prose says of them."""

from __future__ import annotations

import numpy as np
import pytest

import llmviz as lv

from .running import lesson_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with lesson_run("13-batch-and-ubatch", tmp_path_factory.mktemp("lesson")) as run:
        yield run


def test_grades(run):
    run.still_holds()
    texts = np.array([s[0] for s in run.names["both"].seq_id])
    pos = np.array(run.names["both"].pos)
    may = (texts[:, None] == texts) & (pos[:, None] >= pos)  # [token, cell]
    n = len(run.names["ids"])
    assert n == 7, "seven tokens, as the text says"
    run.grades(
        {
            "ubatches": (n, -(-n // 4)),
            "outputs": (n, 1),
            "next-pos": (0, n),
            "same": (0, 1),
            "mask": (np.tri(len(pos), dtype=bool), may),
            "share": (lv.Batch.get_one(run.names["start"]),),
        }
    )
    reason = run.checks["share"].verdict["text"]
    assert "' Tom'" in reason and "' Mia'" in reason, "one word changes the answer"


def test_wrong_batches_are_told_why(run):
    start, ends = run.names["start"], run.names["ends"]

    def batch(*, prefix=(0, 1), wanted=lambda i, n: i == n - 1):
        out = lv.Batch()
        for seqs in [prefix] if len(prefix) == 2 else [(0,), (1,)]:
            for i, token in enumerate(start):
                out.add(token, pos=i, seq_ids=seqs, logits=False)
        for text, tokens in enumerate(ends):
            for i, token in enumerate(tokens):
                last = wanted(i, len(tokens))
                out.add(token, pos=len(start) + i, seq_ids=text, logits=last)
        return out

    check = run.checks["share"]
    assert "cells are used" in check.submit(batch(prefix=())).reason
    assert "not 12" in check.submit(batch(wanted=lambda i, n: True)).reason
    assert check.submit(batch()).right


def test_what_it_shows(run):
    assert "batch.logits[2] != true" in run.printed["13-refused"]
    assert run.printed["13-flagged"].count("I would say") == 7
    assert [v.view_name for v in run.views()] == ["batch", "batch"]
    assert run.views()[0].about["state"] == "dry"
    sizes = [size for _, size in run.names["runs"].values()]
    assert sizes == sorted(sizes, reverse=True), "less room with smaller pieces"
    differences = [float(x.split()[-1]) for x in run.printed["13-apart"].splitlines()]
    assert len(differences) == 2 and max(differences) < 1e-3
