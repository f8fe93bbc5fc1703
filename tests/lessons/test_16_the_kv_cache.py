"""Lesson 16: its answers, worked out here from the model's shape, and the exercise's reasons."""

from __future__ import annotations

import pytest

import llmviz as lv

from .running import lesson_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with lesson_run("16-the-kv-cache", tmp_path_factory.mktemp("lesson")) as run:
        yield run


def test_grades(run):
    run.still_holds()
    names, h = run.names, run.names["model"].hparams
    cell = sum(2 * h.n_head_kv(il) * h.n_embd_head_k * 2 for il in range(h.n_layer))
    times = names["again"] / names["one"] / (names["without_cache"] / names["with_cache"])
    slower = int(times > 0.85) + int(times > 1.2)
    n = len(names["ids"])
    run.grades(
        {
            "cells": (n + 5, n + 4),
            "saves": (2, _work(h, 101, names) / _work(h, 1, names)),
            "time": ((slower + 1) % 3, slower),
            "bytes": (cell // 2, f"{cell:,} bytes"),
            "full": (0, 1),
            "hole": (n, 2),
            "reuse": (lambda ctx, old, new: None,),
        }
    )


def _work(h, n_tokens, names):
    """Multiply-adds of a pass whose last row alone is wanted, counted from the model's shape."""
    n_kv, width = 256, h.n_embd_head_k * h.n_head(0)
    narrow = h.n_embd_head_k * h.n_head_kv(0)
    total = h.n_embd * names["model"].vocab.n_tokens
    for il in range(h.n_layer):
        rows = 1 if il == h.n_layer - 1 else n_tokens  # the last layer drops the others
        total += n_tokens * (2 * h.n_embd * narrow + 2 * h.n_embd * width + 2 * n_kv * width)
        total += rows * 3 * h.n_embd * h.n_ff(il)
    return total


def test_the_count_is_exact(run):
    h = run.names["model"].hparams
    assert run.names["with_cache"] == _work(h, 1, run.names)
    assert run.names["without_cache"] == _work(h, 101, run.names)


def test_the_exercise_says_what_is_wrong(run):
    check = run.checks["reuse"]

    def forgets_nothing(ctx, old, new):
        ctx.decode(lv.Batch.get_one(new[-1:]))

    def reads_all(ctx, old, new):
        ctx.memory.clear()
        ctx.decode(lv.Batch.get_one(new))

    def keeps_too_much(ctx, old, new):
        ctx.memory.seq_rm(0, len(new) - 1, -1)
        ctx.decode(lv.Batch.get_one(new[-1:]))

    assert "should hold" in check.submit(forgets_nothing).reason
    assert "tokens where" in check.submit(reads_all).reason
    assert "something of the old" in check.submit(keeps_too_much).reason


def test_what_it_shows(run):
    assert [v.view_name for v in run.views()] == ["kv_cache", "load", "kv_cache"]
    assert run.names["status"] == lv.DecodeStatus.NO_KV_SLOT
    assert run.names["before"] == run.names["after"] == (256, 255)
    larger = [line.split() for line in run.printed["16-larger"].splitlines()]
    assert float(larger[2][3]) > float(larger[2][6]) > 1, "at 4,096 cells more than the weights"
    kinds = [float(line.split()[1]) for line in run.printed["16-types"].splitlines()]
    assert kinds == sorted(kinds, reverse=True) and len(kinds) == 4
    cells = run.names["holes"].ctx.memory.cells[0]
    assert cells.pos[2] > 10, "a new token lies in the hole"
