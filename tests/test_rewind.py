"""Coming back to a ubatch's start gives the same run, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np

import llmviz
from llmviz.generate import Generation
from llmviz.sampling import Chain, Dist, Penalties, Temp, TopK


def _chain() -> Chain:
    return Chain([Penalties(16, 1.1, 0.1, 0.0), TopK(30), Temp(0.9), Dist(7)])


def _record(events: Any, save: Any = None) -> tuple[list[Any], list[Any]]:
    """(name, value) of all node, logits and token events from here on; a save per ubatch."""
    seen: list[Any] = []
    saved: list[Any] = []
    for event in events:
        if save is not None and (event.kind, event.name) == ("enter", "process_ubatch"):
            saved.append((len(seen), save()))
        if event.kind == "node" or event.name in ("logits", "token", "selected", "stop"):
            value = event.value
            seen.append((event.name, value.copy() if isinstance(value, np.ndarray) else value))
    return seen, saved


def _same(a: list[Any], b: list[Any]) -> None:
    assert [n for n, _ in a] == [n for n, _ in b]
    for (name, x), (_, y) in zip(a, b, strict=True):
        assert np.array_equal(x, y), name


def test_every_ubatch_can_be_come_back_to(tiny_model: Any) -> None:
    model = llmviz.load(tiny_model())
    for type_k in ("f16", "f32"):
        ctx = model.context(n_ctx=256, n_ubatch=8, type_k=type_k, type_v=type_k)
        run = Generation(ctx, [1, *range(262, 282)], _chain(), n_predict=5)
        ctx.keeps_history = True
        seen, saved = _record(run.steps(), run.save)
        assert len(saved) == 3 + 4  # 21 prompt tokens in ubatches of 8, then one per token
        # far back, forth, and back again, in an order that mixes them
        newer: list[Any] = [s for _, s in reversed(saved)]
        for i in (5, 0, 3, 6, 2, 1, 4):
            start, point = saved[i]
            later = newer[: len(newer) - 1 - i]
            again, _ = _record(run.resume(point, later))
            _same(seen[start:], again)
            assert run.result.stop == "n_predict"


def test_a_shift_between_is_taken_back(tiny_model: Any) -> None:
    model = llmviz.load(tiny_model())
    ctx = model.context(n_ctx=256, n_ubatch=8)
    ctx.keeps_history = True
    run = Generation(ctx, [1, *range(262, 272)], _chain(), n_predict=4)
    events = run.steps()
    saved: list[Any] = []
    seen: list[Any] = []
    for event in events:
        if (event.kind, event.name) == ("enter", "process_ubatch"):
            saved.append((len(seen), run.save()))
        if event.kind == "node" or event.name in ("logits", "token"):
            value = event.value
            seen.append((event.name, value.copy() if isinstance(value, np.ndarray) else value))
        if event.name == "token" and len(run.result.tokens) == 2:
            ctx.memory.seq_rm(0, 2, 5)
            ctx.memory.seq_add(0, 5, -1, -3)  # keys are turned before the next ubatch
    assert len(saved) == 5
    start, point = saved[2]
    events = run.resume(point, [s for _, s in reversed(saved[3:])])
    again: list[Any] = []
    for event in events:
        if event.kind == "node" or event.name in ("logits", "token"):
            value = event.value
            again.append((event.name, value.copy() if isinstance(value, np.ndarray) else value))
        if event.name == "token" and len(run.result.tokens) == 2:
            ctx.memory.seq_rm(0, 2, 5)
            ctx.memory.seq_add(0, 5, -1, -3)
    _same(seen[start:], again)


def test_a_chosen_token_can_be_replaced(tiny_model: Any) -> None:
    model = llmviz.load(tiny_model())
    ctx = model.context(n_ctx=256)
    run = Generation(ctx, [1, 262, 263], _chain(), n_predict=2)
    for event in run.steps(lambda name: False):
        if event.name == "selected" and not run.result.tokens:
            event.value = 270
    assert run.result.tokens[0] == 270
    assert ctx.memory.cells[0].tok[3] == 270
