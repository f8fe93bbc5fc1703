"""Time travel over the real engine: wherever a walk leads, everything is as in a straight run."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import llmviz
from llmviz.sampling import Chain, Dist, Penalties, Temp, TopK
from llmviz.trace import Debugger, DebuggerError

PROMPT = [1, *range(262, 275)]


def chain() -> Chain:
    return Chain([Penalties(16, 1.1, 0.1, 0.0), TopK(30), Temp(0.9), Dist(7)])


def state(dbg: Debugger) -> dict[str, Any]:
    """Everything that must agree with the event at which a run stands."""
    here, recorder, memory = dbg.here, dbg.recorder, dbg.ctx.memory
    value = here.value
    out: dict[str, Any] = {
        "event": (here.n, here.kind, here.name, here.depth, here.step),
        "value": np.array(value) if isinstance(value, np.ndarray) else None,
        "stack": dbg.scope_stack,
        "tokens": [t.id for t in dbg.tokens],
        "token_n": [t.n for t in dbg.tokens],
        "text": dbg.text,
        "logits": recorder.logits,
        "logits_n": recorder.logits_n,
        "top": recorder.top,
        "passes": recorder.passes,
        "heads": memory.heads,
        "chain": [list(getattr(s, "prev", ())) for s in dbg.chain],
        "draws": dbg.chain[-1].rng.draws,
        "scopes": [(r.n, r.kind, r.name) for r in dbg.events if r.kind != "node"],
        "edits": [(e.id, e.n, e.applied_at) for e in dbg.edits if e.n <= here.n],
    }
    if recorder.cells is not None:
        out["cells"] = recorder.cells.pos
        out["fresh"] = (recorder.cells.n, recorder.cells.fresh)
    for i, cells in enumerate(memory.cells):
        out[f"pos {i}"], out[f"seq {i}"] = cells.pos.copy(), cells.seq.copy()
        out[f"shift {i}"] = cells.shift.copy()
    for layer in memory.layers:
        out[f"k {layer.il}"], out[f"v {layer.il}"] = layer.k.copy(), layer.v.copy()
    for layer, blocks in recorder.attention.items():
        out[f"attention {layer}"] = [(b.n, b.p.tobytes()) for b in blocks]
    return out


def same(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert a.keys() == b.keys()
    for key, x in a.items():
        if isinstance(x, np.ndarray):
            assert x.tobytes() == b[key].tobytes(), key
        else:
            assert x == b[key], key


def begin(path_or_model: Any, type_kv: str = "f16", **kwargs: Any) -> Debugger:
    model = llmviz.load(path_or_model) if isinstance(path_or_model, str) else path_or_model
    ctx = model.context(n_ctx=256, n_ubatch=8, type_k=type_kv, type_v=type_kv)
    return Debugger(ctx, PROMPT, chain(), n_predict=kwargs.pop("n_predict", 6), **kwargs)


def straight(dbg: Debugger) -> dict[int, dict[str, Any]]:
    """The state at every event of a run that only goes forward."""
    seen = {}
    while dbg.step_into() and not dbg.finished:
        seen[dbg.n] = state(dbg)
    return seen


MOVES = ("goto", "step_back", "back_over", "back_out", "prev_token", "into", "over", "out", "token")


def move(dbg: Debugger, rng: random.Random, last: int) -> None:
    kind = rng.choice(MOVES)
    try:
        if kind == "goto":
            dbg.goto(rng.randrange(last + 1))
        elif kind == "into":
            dbg.step_into()
        elif kind == "over":
            dbg.step_over()
        elif kind == "out":
            dbg.step_out()
        elif kind == "token":
            dbg.next_token()
        else:
            getattr(dbg, kind)()
    except DebuggerError as error:  # at one of the two ends
        assert any(w in str(error) for w in ("first", "before", "no scope", "at its end")), error


@pytest.mark.parametrize("type_kv", ["f16", "f32"])
def test_fifty_walks_forth_and_back(tiny_model: Any, type_kv: str) -> None:
    model = llmviz.load(tiny_model())
    expected = straight(begin(model, type_kv))
    last = max(expected)
    dbg = begin(model, type_kv)
    dbg.run()
    for walk in range(50):
        rng = random.Random(walk)
        for _ in range(rng.randrange(1, 6)):
            move(dbg, rng, last)
        same(state(dbg), expected[dbg.n])
