"""Lesson 12: its answers, and the tokenizer that a reader writes in it."""

from __future__ import annotations

import os

import pytest

from .running import lesson_run


@pytest.fixture(scope="module")
def run(tmp_path_factory, smollm2_path):
    assert os.path.exists(smollm2_path)  # where the lesson looks for it
    with lesson_run("12-tokens", tmp_path_factory.mktemp("lesson")) as run:
        yield run


def test_grades(run):
    run.still_holds()
    merges = run.checks["merges"]
    right = sorted(merges.items, key=lambda piece: run.names["ranks"][_pair(piece, run)])
    said = run.checks["ball"].submit("ball")
    assert "2 tokens" in said.reason and not said.counted
    run.grades(
        {
            "how-many": (13, "8 tokens"),
            "ball": (" the", " ball"),
            "most-pieces": ("Saturday", "unbelievable"),
            "emoji": (1, 4),
            "round-trip": ("emoji", "nothing is ever lost"),
            "merges": (right[::-1], right),
            "letters-per-token": (1, 3.6),
            "signals": (2, 5),
            "what-users-type": ("parse_special=True", "parse_special=False"),
            "write-bpe": (lambda pieces: pieces,),
        }
    )
    tokens = run.names["model"].gguf.kv["tokenizer.ggml.tokens"]
    for text in ("Saturday", "Ġzebra", "Ġbigger"):
        ids = run.names["vocab"].tokenize(text.replace("Ġ", " "), add_special=False)
        assert run.names["answer"](list(text)) == [tokens[i] for i in ids]


def _pair(piece, run):
    """The merge that makes a piece of ` garden`: of all cuts the one that the list has."""
    cuts = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
    return next(c for c in cuts if c in run.names["ranks"])


def test_what_it_shows(run):
    assert [v.view_name for v in run.views()] == ["tokenizer", "tokenizer"]
    chosen = run.names["vocab"].tokenize(run.names["text"])[run.views()[1].selected]
    assert run.names["vocab"].token_to_piece(chosen) == b" garden"
