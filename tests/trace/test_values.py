"""The values that expressions read from a run: stand-ins for exact cases, then a real debugger."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import llmviz
from llmviz.errors import LlmvizError
from llmviz.events import Event
from llmviz.sampling import Chain, Dist, Greedy, TopK
from llmviz.trace.debugger import Debugger
from llmviz.trace.expressions import ExpressionError, compile_expression
from llmviz.trace.lens import entropy, logit_lens
from llmviz.trace.timeline import Here, OpenScope, record_of
from llmviz.trace.values import (
    VARIABLES,
    DebuggerValues,
    Missing,
    TokenText,
    sampler_parameters,
)

PIECES = [b"The", b" Paris", b"Paris", b"\xe2\x82", b" Paris"]


class Vocab:
    n_tokens = len(PIECES)

    def token_to_piece(self, token: int, special: bool = False) -> bytes:
        assert special
        return PIECES[token]

    def tokenize(self, text: bytes, add_special: bool, parse_special: bool) -> list[int]:
        assert not add_special and parse_special
        return {b"The Paris": [0, 1, 2], b" Paris": [4]}.get(text, [1])


class Recorder:
    """The part of a recorder that is read."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}
        self.logits: Any = None
        self.top: tuple[Any, ...] = ()
        self.cells: Any = None

    def value(self, name: str) -> Any:
        return self.kept.get(name)


def stand(event: Event | None = None, **more: Any) -> Any:
    return SimpleNamespace(
        **{
            "here": None if event is None else Here(77, event),
            "scope_stack": (),
            "tokens": [],
            "text": "",
            "recorder": Recorder(),
            "events": [],
            "ctx": None,
            "chain": None,
            "model": SimpleNamespace(vocab=Vocab()),
            "seconds": {},
            **more,
        }
    )


def token(i: int, given: bool = False) -> Any:
    return SimpleNamespace(id=i, piece=PIECES[i], given=given)


def test_nothing_is_there_before_the_first_event() -> None:
    values = DebuggerValues(stand(model=None))
    empty = {"text": "", "tokens": (), "n_tokens": 0}
    for name in [*VARIABLES, *sampler_parameters()]:
        found = values.get(name)
        if name == "seconds":
            assert not found.any()
        else:
            assert found is Missing or found == empty[name], name
    assert values.node("l_out-5") is Missing
    assert values.node("l_out-*") is Missing
    with pytest.raises(LlmvizError, match="no vocabulary yet"):
        values.token_id("a")
    with pytest.raises(LlmvizError, match="there is no model"):
        values.lens(np.zeros(4))


def test_the_current_event() -> None:
    value = np.ones((2, 3), np.float32)
    node = Event("node", "l_out-5", 4, 13, value, SimpleNamespace(il=5, op="ADD"))
    values = DebuggerValues(stand(node))
    found = {name: values.get(name) for name in VARIABLES if VARIABLES[name].here or name == "step"}
    assert found.pop("here") is value
    assert found == {
        "name": "l_out-5",
        "kind": "node",
        "op": "ADD",
        "shape": (2, 3),
        "layer": 5,
        "depth": 4,
        "n": 77,
        "step": 13,
    }
    assert values.node("l_out-5") is value and values.node("l_*") is value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7042, 7042),
        ("a text", "a text"),
        (True, True),
        (np.float32(0.5), 0.5),
        ([1, 2, 3], (1, 2, 3)),
        (None, Missing),
        (SimpleNamespace(p=1), Missing),
        (np.array(["a"]), Missing),
        ([object()], Missing),
    ],
)
def test_here_is_a_plain_value_or_missing(value: Any, expected: Any) -> None:
    values = DebuggerValues(stand(Event("data", "x", 0, 9, value)))
    assert values.get("here") == expected
    assert values.get("op") is Missing


def test_the_layer_of_what_is_inside_a_layer() -> None:
    stack = (OpenScope("graph_compute", 2, 13, 5), OpenScope("layer-7", 3, 13, 6))
    enter = Event("enter", "layer-7", 3, 13, 7)
    assert DebuggerValues(stand(enter, scope_stack=stack)).get("layer") == 7
    outside = Event("node", "result_norm", 3, 13, np.ones(2), SimpleNamespace(il=-1, op="MUL"))
    assert DebuggerValues(stand(outside, scope_stack=stack[:1])).get("layer") is Missing


def test_tokens() -> None:
    given = [token(0, given=True)]
    assert DebuggerValues(stand(tokens=given)).get("token") is Missing  # none was chosen yet
    values = DebuggerValues(stand(tokens=[*given, token(1)], text=" Paris"))
    found = values.get("token")
    assert found == " Paris" and found.id == 1
    assert values.get("tokens") == ("The", " Paris") and values.get("n_tokens") == 2
    assert type(values.get("piece")) is str
    for text in ('token == "Paris"', 'piece == " Paris"', 'text == " Paris"', "token == 1"):
        assert compile_expression(text).holds(values), text
    for text in ('token == "paris"', 'piece == "Paris"', "token == 2"):
        assert not compile_expression(text).holds(values), text


def test_a_text_is_looked_up_as_one_exact_token() -> None:
    values = DebuggerValues(stand())
    assert values.token_id(" Paris") == 4  # of equal pieces the tokenizer's own
    assert values.token_id("Paris") == 2  # though a tokenizer would put a space before it
    with pytest.raises(LlmvizError, match=r"'The Paris' is not one token but 3: 'The', ' Paris'"):
        values.token_id("The Paris")
    with pytest.raises(LlmvizError, match=r"' The' is not one token; there is 'The'"):
        values.token_id(" The")
    with pytest.raises(LlmvizError, match="is not one token"):
        values.token_id("x" * 100_000)
    with pytest.raises(LlmvizError, match="is not one token"):
        values.token_id("\ud800")


def test_texts_of_a_real_vocabulary(smollm2_path: str) -> None:
    values = DebuggerValues(stand(model=llmviz.load(smollm2_path, vocab_only=True)))
    assert values.token_id(" Paris") == 7042
    assert values.token_id("<|im_end|>") == 2
    with pytest.raises(LlmvizError, match="is not one token but"):
        values.token_id(" Paris is")


def test_logits_and_their_entropy() -> None:
    dbg = stand()
    dbg.recorder.logits = np.array([1.0, 2.0, 4.0, 0.0, 0.0], np.float32)
    dbg.recorder.top = (SimpleNamespace(text="Paris", id=2),)
    values = DebuggerValues(dbg)
    assert values.get("logits") is dbg.recorder.logits
    assert values.get("entropy") == entropy(dbg.recorder.logits)
    dbg.recorder.logits = np.zeros(5, np.float32)  # the next token's
    assert values.get("entropy") == pytest.approx(np.log(5))
    assert values.get("top").id == 2
    assert compile_expression('rank("Paris") == 1').holds(values)
    assert compile_expression("prob(top) == 0.2").holds(values)


def test_the_cache_and_the_chain() -> None:
    cells = [
        SimpleNamespace(pos=np.array([0, 1, -1]), seq=np.array([[True, True, False]])),
        SimpleNamespace(pos=np.array([4, -1, -1]), seq=np.array([[True, False, False]])),
    ]
    ctx = SimpleNamespace(memory=SimpleNamespace(cells=cells))
    values = DebuggerValues(stand(ctx=ctx, chain=Chain([TopK(40), Dist(7)])))
    assert [values.get(f"kv.{n}") for n in ("used", "size", "n_seq", "pos_max")] == [3, 6, 2, 4]
    assert values.get("top_k.k") == 40 and values.get("dist.seed") == 7
    assert values.get("min_p.p") is Missing
    dbg = stand()
    dbg.recorder.cells = cells[0]
    assert DebuggerValues(dbg).get("kv.used") == 2


def test_seconds_are_by_step() -> None:
    values = DebuggerValues(stand(seconds={13: 0.25, 9: 0.5}))
    assert compile_expression("seconds[13]").evaluate(values) == 0.25
    assert compile_expression("sum(seconds)").evaluate(values) == 0.75


def test_nodes_by_name_and_by_glob() -> None:
    events = [
        record_of(i, Event("node", f"l_out-{i}", 4, 13, np.full(2, i, np.float32))) for i in (1, 2)
    ]
    dbg = stand(Event("enter", "l_out-9", 0, 13), events=events)
    dbg.recorder.kept = {f"l_out-{i}": SimpleNamespace(array=np.full(2, i)) for i in (1, 2)}
    values = DebuggerValues(dbg)
    assert values.node("l_out-1")[0] == 1
    assert values.node("l_out-*")[0] == 2  # the latest
    assert values.node("l_out-9") is Missing  # a scope has no value
    assert values.node("kq-*") is Missing


def test_token_text_is_its_text() -> None:
    found = TokenText(" Paris", 3)
    assert found == " Paris" and found.id == 3 and isinstance(found, str)
    assert repr(Missing) == "not yet"


# -- a real run -----------------------------------------------------------------------------------


def test_a_debugger_s_values(tiny_model: Callable[..., str]) -> None:
    model = llmviz.load(tiny_model())
    dbg = Debugger(model, [3, 4, 5, 6], Chain([TopK(5), Greedy()]), n_predict=3, n_ctx=32)  # type: ignore[arg-type]
    values = DebuggerValues(dbg)
    condition = compile_expression("n_tokens == 5 and name == 'l_out-0' and max(abs(here)) > 0")
    watch = compile_expression("norm(l_out-0) + norm(l_out-1)")
    dbg.recorder.ask(watch, watch.keeps)
    ranks = compile_expression("rank(token, lens(l_out-1))")
    dbg.recorder.ask(ranks, ranks.keeps)
    size = compile_expression("ubatch.n_tokens")
    dbg.recorder.ask(size, size.keeps)
    hits = []
    dbg.break_on(lambda event: hits.append(dbg.n) is None and condition.holds(values))
    assert watch.evaluate(values) is Missing
    here = dbg.run()
    assert here is not None and here.name == "l_out-0" and values.get("n_tokens") == 5
    assert values.get("layer") == 0 and values.get("op") == "ADD"
    assert values.get("kv.used") == 5 and values.get("kv.size") == dbg.ctx.n_ctx
    assert values.get("kv.pos_max") == 4 and values.get("kv.n_seq") == 1
    assert values.get("top_k.k") == 5
    assert size.evaluate(values) == 1
    assert values.get("shape") == (1, model.hparams.n_embd)
    assert values.node("l_out-0") is here.value
    before = values.node("l_out-1")  # of the first ubatch
    assert before.shape == (1, model.hparams.n_embd)
    assert values.get("entropy") == entropy(dbg.recorder.logits)
    token = values.get("token")
    assert ranks.evaluate(values) == 1  # the last layer's lens is the model's own answer
    np.testing.assert_array_equal(values.lens(before[-1]), logit_lens(model, before[-1]))
    assert values.lens(before[-1]) is values.lens(np.array(before[-1]))  # computed once
    assert compile_expression("prob(token)").evaluate(values) > 0
    assert compile_expression(f"logit({token.id})").evaluate(values) == pytest.approx(
        float(dbg.recorder.logits[token.id])
    )
    expected = np.linalg.norm(here.value) + np.linalg.norm(before)
    assert watch.evaluate(values) == pytest.approx(expected, rel=1e-6)
    with pytest.raises(ExpressionError, match="the logit lens reads rows"):
        compile_expression("lens(logits)").evaluate(values)
