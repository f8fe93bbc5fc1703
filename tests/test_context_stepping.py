"""Decode watched step by step: aborts, walking away, failures, order of events, edits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llmviz
from llmviz.batch import Batch
from llmviz.context import Context, DecodeStatus
from llmviz.errors import DecodeError
from llmviz.events import Event
from llmviz.ggml.sched import Sched, never
from tests.model import files

N_VOCAB = 345
F32 = {"type_k": "f32", "type_v": "f32"}


@pytest.fixture(scope="module")
def model(tiny_model: Callable[..., str]) -> llmviz.Model:
    return llmviz.load(tiny_model())


@pytest.fixture
def context(model: llmviz.Model) -> Callable[..., Context]:
    return lambda **params: model.context(**{"n_ctx": 256, **params})


def ids(n: int, start: int = 0) -> list[int]:
    """`n` token ids of the tiny vocabulary."""
    return [3 + (start + 11 * i) % (N_VOCAB - 3) for i in range(n)]


def held(ctx: Context, seq: int = 0) -> tuple[int, int]:
    return ctx.memory.seq_pos_min(seq), ctx.memory.seq_pos_max(seq)


# abort and walking away --------------------------------------------------------------------------


def test_abort_takes_the_ubatch_back(context: Callable[..., Context]) -> None:
    """After 4 tokens the fifth is aborted: code 2, and the cache is as before."""
    stop = False
    ctx = context(abort_callback=lambda: stop)
    assert ctx.decode(Batch.get_one(ids(4))) == 0
    stop = True
    assert ctx.decode(Batch.get_one([9])) is DecodeStatus.ABORTED
    assert held(ctx) == (0, 3)
    stop = False
    assert ctx.decode(Batch.get_one([9])) == 0
    whole = context()
    whole.decode(Batch.get_one(ids(4)))
    whole.decode(Batch.get_one([9]))
    np.testing.assert_array_equal(ctx.get_logits_ith(-1), whole.get_logits_ith(-1))


def test_abort_keeps_the_ubatches_that_were_done(context: Callable[..., Context]) -> None:
    """As llama.cpp: what is taken back is the ubatch that failed."""
    calls = iter(range(10**6))
    ctx = context(n_ubatch=4, abort_callback=lambda: next(calls) > 70)
    assert ctx.decode(Batch.get_one(ids(12))) is DecodeStatus.ABORTED
    n_nodes = len(ctx._sched.graph.nodes)  # type: ignore[union-attr]
    done = 71 // n_nodes * 4
    assert held(ctx) == ((0, done - 1) if done else (-1, -1))


def test_the_callback_can_be_set_later(context: Callable[..., Context]) -> None:
    ctx = context()
    ctx.set_abort_callback(lambda: True)
    assert ctx.decode(Batch.get_one([5])) == 2
    ctx.set_abort_callback(None)
    assert ctx.decode(Batch.get_one([5])) == 0


def advance(steps: Iterator[Event], name: str, kind: str | None = None) -> Event:
    return next(e for e in steps if e.name == name and kind in (None, e.kind))


@pytest.mark.parametrize(
    "where", ["balloc_init", "init_batch", "process_ubatch", "kv_cells", "set_inputs", "inp_pos",
              "graph_compute", "embd", "kq-1", "l_out-1"],
)  # fmt: skip
@pytest.mark.parametrize("how", ["close", "throw"])
def test_walking_away_in_the_middle(context: Callable[..., Context], where: str, how: str) -> None:
    """Whoever stops watching leaves a cache as before this ubatch, and decoding goes on."""
    ctx = context()
    ctx.decode(Batch.get_one(ids(4)))
    steps = ctx.decode_steps(Batch.get_one(ids(3, 5)))
    advance(steps, where)
    if how == "close":
        steps.close()
    else:
        with pytest.raises(KeyboardInterrupt):
            steps.throw(KeyboardInterrupt)
    assert held(ctx) == (0, 3)
    assert ctx.decode(Batch.get_one(ids(3, 5))) == 0
    whole = context()
    whole.decode(Batch.get_one(ids(4)))
    whole.decode(Batch.get_one(ids(3, 5)))
    np.testing.assert_array_equal(ctx.get_logits_ith(-1), whole.get_logits_ith(-1))


def test_walking_away_in_the_second_ubatch(context: Callable[..., Context]) -> None:
    ctx = context(n_ubatch=4)
    steps = ctx.decode_steps(Batch.get_one(ids(12)))
    advance(steps, "process_ubatch", "exit")
    advance(steps, "kq-0")
    steps.close()
    assert held(ctx) == (0, 3)


@pytest.mark.parametrize(("error", "code"), [(MemoryError(), -2), (FloatingPointError(), -3)])
def test_a_computation_that_fails(
    context: Callable[..., Context],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    code: int,
) -> None:
    ctx = context()
    ctx.decode(Batch.get_one(ids(4)))

    def fail(*_: Any, **__: Any) -> Any:
        raise error
        yield

    with monkeypatch.context() as m:
        m.setattr(Sched, "compute", fail)
        with pytest.raises(DecodeError, match="ubatch of 3 tokens") as caught:
            ctx.decode(Batch.get_one(ids(3)))
    assert caught.value.code == code
    assert held(ctx) == (0, 3)
    assert ctx.decode(Batch.get_one(ids(3))) == 0


# stepping ----------------------------------------------------------------------------------------


def test_the_order_of_a_decode(context: Callable[..., Context]) -> None:
    ctx = context(n_ubatch=4)
    events = [e for e in ctx.decode_steps(Batch.get_one(ids(6)), lambda name: False, depth=2)]
    marks = [("+-"[e.kind == "exit"] + e.name, e.depth) for e in events if e.kind != "data"]
    ubatch = [
        ("+process_ubatch", 3), ("+build_graph", 4), ("-build_graph", 4), ("+set_inputs", 4),
        ("-set_inputs", 4), ("+graph_compute", 4), ("+layer-0", 5), ("-layer-0", 5),
        ("+layer-1", 5), ("-layer-1", 5), ("-graph_compute", 4), ("-process_ubatch", 3),
    ]  # fmt: skip
    assert marks == [
        ("+decode", 2), ("+balloc_init", 3), ("-balloc_init", 3), ("+init_batch", 3),
        ("-init_batch", 3), *ubatch, *ubatch, ("+output", 3), ("-output", 3), ("-decode", 2),
    ]  # fmt: skip


def test_all_slots_are_found_before_any_ubatch_runs(context: Callable[..., Context]) -> None:
    ctx = context(n_ubatch=4)
    steps = ctx.decode_steps(Batch.get_one(ids(6)))
    ubatches = advance(steps, "ubatches").value
    assert [u.token.tolist() for u in ubatches] == [ids(6)[:4], ids(6)[4:]]
    slots = advance(steps, "slots").value
    assert [s.idxs[0].tolist() for s in slots] == [[0, 1, 2, 3], [4, 5]]
    assert held(ctx) == (-1, -1)  # planned, not entered
    assert advance(steps, "kv_cells").value is ctx.memory.cells
    assert held(ctx) == (0, 3)


def test_logits_are_shown_and_can_be_replaced(context: Callable[..., Context]) -> None:
    ctx = context()
    other = np.arange(N_VOCAB, dtype=np.float32)[None]
    for event in ctx.decode_steps(Batch.get_one(ids(3)), never):
        if event.name == "logits":
            assert (event.value.shape, event.value.dtype) == ((1, N_VOCAB), np.float32)
            assert not event.value.flags.writeable
            event.value = other
    np.testing.assert_array_equal(ctx.get_logits_ith(-1), other[0])


def test_a_replaced_batch_is_what_is_decoded(context: Callable[..., Context]) -> None:
    ctx, plain = context(), context()
    for event in ctx.decode_steps(Batch.get_one([5, 6]), never):
        if event.name == "batch":
            event.value = Batch.get_one(ids(4))
    plain.decode(Batch.get_one(ids(4)))
    assert held(ctx) == (0, 3)
    np.testing.assert_array_equal(ctx.get_logits_ith(-1), plain.get_logits_ith(-1))


def test_a_zeroed_node_is_a_model_without_that_weight(tmp_path: Path) -> None:
    """ffn_out-0 set to zero must give the logits of a file whose ffn_down of layer 0 is zero."""
    data = files.tensors()
    with_it = llmviz.load(files.write(tmp_path / "a.gguf", files.keys(), data))
    data["blk.0.ffn_down.weight"] = np.zeros_like(data["blk.0.ffn_down.weight"])
    without = llmviz.load(files.write(tmp_path / "b.gguf", files.keys(), data))
    a, b = with_it.context(n_ctx=256), without.context(n_ctx=256)
    for event in a.decode_steps(Batch.get_one([1, 260, 261])):
        if event.name == "ffn_out-0":
            event.value = np.zeros(event.value.shape, np.float32)
    b.decode(Batch.get_one([1, 260, 261]))
    np.testing.assert_array_equal(a.get_logits_ith(-1), b.get_logits_ith(-1))


def test_a_muted_head(tmp_path: Path) -> None:
    """The values of head 2 set to zero: as if its columns of attn_output were zero."""
    data = files.tensors()
    model = llmviz.load(files.write(tmp_path / "a.gguf", files.keys(), data))
    data["blk.1.attn_output.weight"][:, 16:24] = 0
    muted = llmviz.load(files.write(tmp_path / "b.gguf", files.keys(), data))
    a, b = model.context(n_ctx=256, **F32), muted.context(n_ctx=256, **F32)
    for event in a.decode_steps(Batch.get_one([1, 260, 261])):
        if event.name == "kqv-1":
            value = np.array(event.value)  # [n_head, n_tokens, n_embd_head]
            value[2] = 0
            event.value = value
    b.decode(Batch.get_one([1, 260, 261]))
    np.testing.assert_allclose(a.get_logits_ith(-1), b.get_logits_ith(-1), rtol=0, atol=1e-6)


def test_an_edit_of_the_cache_reaches_attention_in_every_cache_type(tiny_model: Any) -> None:
    model = llmviz.load(tiny_model())
    moved = {}
    for type_ in ("f16", "f32"):
        logits = []
        for edit in (False, True):
            ctx = model.context(n_ctx=256, type_k=type_, type_v=type_)
            for event in ctx.decode_steps(Batch.get_one([1, 262, 263, 264])):
                if edit and event.name == "cache_k_l1 (view)" and event.about.op == "SET_ROWS":
                    event.value = np.ones_like(event.value)
            logits.append(ctx.get_logits_ith(-1).copy())
        moved[type_] = np.abs(logits[1] - logits[0]).max()
    assert moved["f32"] > 0.01
    assert moved["f16"] == pytest.approx(moved["f32"], rel=0.02)
