"""The sixteen steps: complete, in order, and what the engine does belongs to them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from fnmatch import fnmatch

import pytest

from llmviz.context import context_steps
from llmviz.events import Event, Steps
from llmviz.generate import generate_steps
from llmviz.model.cparams import CParams
from llmviz.model.hparams import HParams
from llmviz.model.loader import load_steps
from llmviz.steps import STEPS, step_of

INPUTS = {
    "inp_tokens", "inp_pos", "out_ids", "attn_inp_k_idxs", "attn_inp_v_idxs", "attn_inp_kq_mask"
}  # fmt: skip


def test_numbers_run_from_1_to_16() -> None:
    assert [s.number for s in STEPS] == list(range(1, 17))
    for step in STEPS:
        assert step_of(step.number) is step


@pytest.mark.parametrize("n", [0, 17, -1])
def test_there_are_no_others(n: int) -> None:
    with pytest.raises(IndexError, match=r"1\.\.16"):
        step_of(n)


@pytest.mark.parametrize("step", STEPS, ids=lambda s: f"{s.number}-{s.title}")
def test_a_step_is_told_to_a_newcomer(step: object) -> None:
    s = step
    assert s.title and s.functions and s.events  # type: ignore[attr-defined]
    text = s.explanation  # type: ignore[attr-defined]
    assert 60 < len(text) < 700 and text.endswith(".") and "\n" not in text


@pytest.mark.parametrize("step", STEPS, ids=lambda s: f"{s.number}-{s.title}")
def test_the_source_it_names_is_there(step: object) -> None:
    """``llmviz.module.thing.part``: as much as can be imported, then attributes."""
    parts = step.source.split(".")  # type: ignore[attr-defined]
    for n in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for name in parts[n:]:
            found = getattr(found, name)
        return
    pytest.fail(f"no module in {step.source}")  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def run(tiny_model: Callable[..., str]) -> list[Event]:
    """Everything from the file to the second token."""
    events: list[Event] = []

    def keep(steps: Steps) -> object:
        while True:
            try:
                events.append(next(steps))
            except StopIteration as stop:
                return stop.value

    model = keep(load_steps(tiny_model(variant="bpe")))
    ctx = keep(context_steps(model, n_ctx=256))  # type: ignore[arg-type]
    keep(generate_steps(ctx, "The cat<|im_end|> sat", n_predict=2))  # type: ignore[arg-type]
    return events


def test_every_step_occurs_and_the_first_time_in_order(run: list[Event]) -> None:
    first = list(dict.fromkeys(e.step for e in run))
    # the batch is checked (10) inside decode (11), after its scope has begun
    assert first == list(range(1, 17))


def test_every_scope_belongs_to_its_step(run: list[Event]) -> None:
    for e in run:
        if e.kind in ("enter", "exit"):
            assert any(fnmatch(e.name, p) for p in step_of(e.step).events), (e.step, e.name)


def test_scopes_nest(run: list[Event]) -> None:
    stack: list[Event] = []
    for e in run:
        if e.kind == "exit":
            start = stack.pop()
            assert (start.name, start.depth, start.step) == (e.name, e.depth, e.step)
        assert e.depth == len(stack), (e.step, e.name)
        if e.kind == "enter":
            stack.append(e)
    assert stack == []


def test_what_is_shown_is_known(run: list[Event]) -> None:
    """A datum is named in its step, or it is one of many of a kind."""
    kinds: dict[int, Callable[[Event], bool]] = {
        1: lambda e: e.value.name == e.name,  # a device
        2: lambda e: e.about.name == e.name and e.about.size >= 0,  # a header field
        4: lambda e: e.name in HParams.__dataclass_fields__,
        5: lambda e: True,  # parts of the vocabulary
        6: lambda e: e.about.name == e.name,  # a tensor
        7: lambda e: e.name in CParams.__dataclass_fields__,
        13: lambda e: e.name in INPUTS,
    }
    for e in run:
        named = any(fnmatch(e.name, p) for p in step_of(e.step).events)
        if e.kind == "node":
            assert (e.step, e.about.name) == (13, e.name)
            assert e.value.shape == e.about.shape
        elif e.kind == "data":
            assert named or kinds[e.step](e), (e.step, e.name)


def test_every_named_event_occurs_or_has_a_reason_not_to(run: list[Event]) -> None:
    seen = {(e.step, e.name) for e in run}
    elsewhere = {
        "no_slot": "only where the cache is full",
        "can_reuse": "from the third token on",
        "byte_fallback": "only for characters that a SentencePiece vocabulary lacks",
        "greedy": "not in the default chain",
        "logit_bias": "not in the default chain",
        "layer_devices": "only where layers leave the host",
    }
    for step in STEPS:
        for pattern in step.events:
            found = any(s == step.number and fnmatch(n, pattern) for s, n in seen)
            assert found or pattern in elsewhere, (step.number, pattern)
