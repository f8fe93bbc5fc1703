"""Where a real run stops: places, conditions, counts, and what can never be hit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import llmviz
from llmviz.errors import LlmvizError
from llmviz.trace import Debugger, DebuggerError
from llmviz.trace.lens import entropy

from .test_travel import begin


@pytest.fixture(scope="module")
def model(tiny_model: Any) -> Any:
    return llmviz.load(tiny_model())


def stops(dbg: Debugger) -> list[tuple[int, str]]:
    """Where a run stops until it ends."""
    out = []
    while True:
        dbg.run()
        if dbg.finished:
            return out
        out.append((dbg.n, dbg.here.name))


def test_a_condition_stops_at_the_events_that_change_it(model: Any) -> None:
    other = begin(model)
    seen = []
    while other.step_into() and not other.finished:
        if other.here.name == "logits":
            seen.append((other.n, entropy(other.here.value[-1])))
    limit = sorted(e for _, e in seen)[2]
    dbg = begin(model)
    point = dbg.break_on(f"entropy > {limit!r}")
    assert stops(dbg) == [(n, "logits") for n, e in seen if e > limit]
    assert point.hits == len(seen) - 3 and point.label == f"entropy > {limit!r}"


def test_conditions_over_nodes_the_cache_and_tokens(model: Any) -> None:
    dbg = begin(model)
    dbg.break_on("max(ffn_out-1) > -100")
    assert {name for _, name in stops(dbg)} == {"ffn_out-1"}
    dbg = begin(model)
    dbg.break_on("kv.used > 15")
    dbg.run()
    assert dbg.here.name == "kv_cells" and dbg.recorder.cells.used == 16
    dbg = begin(model)
    dbg.break_on("kq_soft_max-*", condition="layer == 1")
    assert {name for _, name in stops(dbg)} == {"kq_soft_max-1"}
    dbg = begin(model)
    dbg.break_on(condition=lambda e: e.name == "token")
    dbg.run()
    assert dbg.here.name == "token"
    dbg = begin(model)
    dbg.intervene("ffn_norm-1", lambda x, t: x * np.float32("nan"))
    dbg.break_on("any NaN")
    dbg.run()
    assert dbg.here.name == "ffn_norm-1"
    with pytest.raises(LlmvizError, match="entropi"):
        dbg.break_on("entropi > 3")
    with pytest.raises(DebuggerError, match="expression or a callable"):
        dbg.break_on("token", condition=3)


def test_token_layer_and_scope(model: Any) -> None:
    plain = begin(model)
    plain.run()
    chosen = plain.tokens[-2]
    dbg = begin(model)
    by_id = dbg.break_on(token=chosen.id)
    dbg.run()
    assert dbg.here.name == "token" and dbg.here.value == chosen.id
    assert dbg.hit is by_id and by_id.label == f"token {chosen.id}"
    dbg.clear_break()
    dbg.goto(0)
    dbg.break_on(token=chosen.piece.decode("utf-8", "replace").removeprefix(" "))
    dbg.run()
    assert dbg.tokens[-1].piece.removeprefix(b" ") == chosen.piece.removeprefix(b" ")
    dbg.clear_break()
    dbg.goto(0)
    dbg.break_on(layer=1)
    dbg.run()
    assert (dbg.here.kind, dbg.here.name) == ("enter", "layer-1")
    dbg.clear_break()
    dbg.break_on("kq*", layer=1)
    dbg.run()
    assert dbg.here.kind == "node" and dbg.here.name == "kq-1"
    dbg.clear_break()
    dbg.break_on(scope="layer-*")
    dbg.run()
    assert (dbg.here.kind, dbg.here.name) == ("enter", "layer-0")


def test_counts(model: Any) -> None:
    dbg = begin(model)
    point = dbg.break_on("token", ignore=2)
    dbg.run()
    assert len(dbg.tokens) == 17 and point.hits == 3
    dbg.run()
    assert point.hits == 4
    once = dbg.break_on("logits", once=True)
    dbg.run()
    assert dbg.here.name == "logits" and not once.enabled
    dbg.run()
    assert dbg.here.name == "token"
    point.enabled = False
    dbg.run()
    assert dbg.finished and (point.hits, once.hits) == (5, 1)


def test_what_can_never_be_hit_says_so(model: Any) -> None:
    dbg = begin(model)
    early = dbg.break_on("kq_softmax-*")
    layer = dbg.break_on(layer=99)
    assert early.why_never == "" == layer.why_never, "nothing is known yet"
    dbg.next_token()
    assert "near it: kq_soft_max" in early.why_never and "0 to 1" in layer.why_never
    assert "ids are 0 to" in dbg.break_on(token=100_000).why_never
    assert "with several" in dbg.break_on(token="the cat sat on the mat").why_never
    assert "step 8 is over" in dbg.break_on(8).why_never
    assert "near it: ffn_out" in dbg.break_on("max(ffn_outt-0) > 1").why_never
    assert "layer-7" in dbg.break_on(scope="layer-7").why_never
    for good in ("top_k", "selected", "kq_soft_max-1", "layer-0", "can_reuse", 13):
        assert dbg.break_on(good).why_never == "", good
    assert dbg.break_on(token="cat").why_never == "" == dbg.break_on(token=5).why_never
    dbg.clear_break()


def test_a_condition_that_raises_is_disabled_and_says_so(model: Any) -> None:
    dbg = begin(model)
    point = dbg.break_on(condition=lambda e: e.no_such_thing)
    with pytest.raises(DebuggerError, match=r"raised AttributeError.*disabled"):
        dbg.run()
    assert not point.enabled and "AttributeError" in point.why_never
    point = dbg.break_on("ffn_out-0[0, 9999] > 1")
    with pytest.raises(DebuggerError, match="disabled now"):
        dbg.run()
    dbg.run()
    assert dbg.finished


@pytest.mark.parametrize(
    "kwargs",
    [
        {"layer": -1},
        {"layer": True},
        {"token": 1.5},
        {"token": ""},
        {"scope": " "},
        {"ignore": -1, "where": "x"},
        {},
    ],
)
def test_places_that_make_no_sense(model: Any, kwargs: dict[str, Any]) -> None:
    with pytest.raises(DebuggerError):
        begin(model).break_on(**kwargs)
