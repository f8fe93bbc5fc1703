"""Where a batch goes: the dry run is what decode does, and leaves the memory as it was."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_archs import write_arch

import llmviz
from llmviz.batch import Batch
from llmviz.errors import BatchError, LlmvizError
from llmviz.trace import Debugger
from llmviz.trace.batches import MASK, Batched, batched_of, of_batch, of_context, of_run


@pytest.fixture(scope="module")
def model(tiny_model):
    return llmviz.load(tiny_model())


def two(n0: int = 5, n1: int = 7, both: int = 0) -> Batch:
    """Two sequences, one after the other, and tokens that belong to both."""
    seq = [(0, 1)] * both + [(0,)] * n0 + [(1,)] * n1
    pos = [*range(both), *range(both, both + n0), *range(both, both + n1)]
    n = len(seq)
    return Batch(range(10, 10 + n), pos, seq, [i == n - 1 for i in range(n)])


CONTEXTS = {
    "streams": {"n_ctx": 512, "n_seq_max": 2, "n_ubatch": 4},
    "unified": {"n_ctx": 256, "n_seq_max": 2, "n_ubatch": 4, "kv_unified": True},
}


def state(memory) -> list[bytes]:
    """Everything that a dry run could touch."""
    cells = [a.tobytes() for c in memory.cells for a in (c.pos, c.tok, c.seq, c.shift)]
    return [*cells, repr(memory.heads).encode(), repr(memory.snapshot()[1:]).encode()]


def watch(ctx, batch):
    """Decode truly: ubatches, slots and masks as the events show them."""
    ubatches, sinfos, masks = [], [], []
    for event in ctx.decode_steps(batch, lambda name: False):
        if event.name == "ubatches":
            ubatches = list(event.value)
        elif event.name == "slots":
            sinfos = list(event.value)
        elif event.name == MASK:
            masks.append(np.array(event.value))
    return ubatches, sinfos, masks


@pytest.mark.parametrize("name", CONTEXTS)
@pytest.mark.parametrize("both", [0, 3])
def test_the_dry_run_is_what_decode_does(model, name, both):
    ctx = model.context(**CONTEXTS[name])
    ctx.decode(two(3, 2))
    ctx.memory.seq_rm(0, 1, 2)  # a hole, so that slots are no single run
    ctx.memory.seq_rm(0, -1, -1)
    if both:
        if name == "streams":
            with pytest.raises(BatchError):
                of_batch(Batch([1, 2], [2, 2], [(0, 1), (0, 1)]), ctx)
            batch = two(5, 0)
            batch.seq_id, batch.pos = [(0, 1)] * 5, [0, 1, 2, 3, 4]
            ctx.memory.seq_rm(1, -1, -1)
            refused = of_batch(batch, ctx)
            assert refused.reason and not refused.ubatches
            return
        ctx.memory.seq_rm(1, -1, -1)
        batch = two(5, 7, both)
    else:
        batch = two(5, 4)
        batch.pos = [0, 1, 2, 3, 4, 2, 3, 4, 5]
    before = state(ctx.memory)
    x = of_batch(batch, ctx)
    masks = [x.mask(k) for k in range(len(x.ubatches))]
    assert state(ctx.memory) == before
    assert x.state == "dry" and "Hypothetical" in x.say
    assert x.how == {"streams": "split_equal", "unified": "split_simple"}[name]

    ubatches, sinfos, real = watch(ctx, batch)
    assert len(ubatches) == len(x.ubatches) == len(real) > 1
    for k, (u, s) in enumerate(zip(ubatches, sinfos, strict=True)):
        np.testing.assert_array_equal(u.batch_idxs, x.ubatches[k].batch_idxs)
        assert s.strm == x.sinfos[""][k].strm
        for a, b in zip(s.idxs, x.sinfos[""][k].idxs, strict=True):
            np.testing.assert_array_equal(a, b)
        assert masks[k].source == "planned"
        np.testing.assert_array_equal(masks[k].rows, real[k].reshape(u.n_tokens, -1))
    for i in range(len(batch)):
        stream, cell = x.slot(i)
        cells = ctx.memory.cells[stream]
        assert cells.tok[cell] == batch.token[i] and cells.pos[cell] == batch.pos[i]
        assert cells.seq_get_all(cell) == batch.seq_id[i]
        k, row = x.ubatch_of[i], x.row_of[i]
        assert ubatches[k].batch_idxs[row] == i
        assert cell in masks[k].sees(row)

    done = of_context(ctx)
    assert done.state == "done" and [u.n_tokens for u in done.ubatches] == [
        u.n_tokens for u in ubatches
    ]
    again = done.mask(0)
    assert again.source == "again"
    np.testing.assert_array_equal(again.sees(0), masks[0].sees(0))


def test_a_run_at_every_event_of_steps_10_to_16(model):
    """What is planned is what is done, and the mask is the graph's own input."""
    with Debugger(model, list(range(20, 31)), n_predict=2, n_ctx=64, n_ubatch=4) as dbg:
        dbg.recorder.ask(dbg, lambda name: name.startswith(MASK))
        assert of_run(dbg) == "The batch is made at step 10."
        planned, seen, real = None, set(), []
        while not dbg.finished:
            dbg.step_into()
            if dbg.here is None or dbg.finished:
                break
            here = dbg.here
            before = [c.pos.tobytes() for c in dbg.ctx.memory.cells] if dbg.ctx else None
            x = of_run(dbg)
            if here.step < 10 or isinstance(x, str):
                assert isinstance(x, str)
                continue
            seen.add((here.step, x.state))
            if here.name == MASK:
                real.append((x.now, np.array(here.value)))
            if x.state == "planned":
                planned = x
            if here.step == 13 and planned is not None and here.kind != "node":
                for i in range(len(x)):
                    assert x.slot(i) == planned.slot(i) and x.ubatch_of[i] == planned.ubatch_of[i]
                for k in range(len(x.ubatches)):
                    m = x.mask(k)
                    kept = [a for now, a in real if now == k]
                    assert (m.source == "input") == bool(kept), (here, k)
                    if kept:
                        np.testing.assert_array_equal(m.rows.ravel(), kept[-1].ravel())
                assert [x.state_of(k) for k in range(x.now)] == ["done"] * x.now
            if here.name == "token":
                planned, real = None, []
            assert [c.pos.tobytes() for c in dbg.ctx.memory.cells] == before
        assert {(10, "dry"), (11, "dry"), (12, "dry"), (12, "planned"), (13, "running")} <= seen
        assert {(13, "done"), (14, "done"), (15, "done"), (16, "done")} <= seen
        tokens = [t.id for t in dbg.tokens]
    with Debugger(model, list(range(20, 31)), n_predict=2, n_ctx=64, n_ubatch=4) as plain:
        plain.run()
        assert [t.id for t in plain.tokens] == tokens, "looking changes nothing"


def test_where_there_is_no_room_it_says_so(model):
    ctx = model.context(n_ctx=256)
    x = of_batch(Batch([1] * 256), ctx)
    assert not x.reason and x.mask(0).rows.shape == (256, 256)
    ctx.decode(Batch([1] * 200))
    x = of_batch(Batch([1] * 100), ctx)
    assert "failed to find a memory slot" in x.reason and x.ubatches == []
    assert x.slot(0) == (-1, -1) and x.mask(0) is None
    assert ctx.memory.cells[0].n_used == 200


def test_misuse_is_named(model):
    ctx = model.context(n_ctx=256)
    assert "decoded nothing" in of_context(ctx)
    with pytest.raises(LlmvizError, match="give the context"):
        batched_of(Batch([1]))
    with pytest.raises(LlmvizError, match="not of 5"):
        batched_of(5)
    with pytest.raises(BatchError, match="invalid token"):
        batched_of(Batch([10**6]), ctx)
    assert isinstance(batched_of(Batch([1]), ctx), Batched)


@pytest.mark.parametrize("unified", [True, False])
def test_layers_with_a_window_have_cells_and_a_mask_of_their_own(tmp_path, unified):
    keys = {
        "block_count": 2,
        "attention.key_length": 16,
        "attention.value_length": 16,
        "attention.sliding_window": 3,
        "attention.sliding_window_pattern": 2,
    }
    windowed = llmviz.load(write_arch(tmp_path / "x.gguf", "gemma3", keys=keys))
    ctx = windowed.context(n_ctx=512, n_seq_max=2, n_ubatch=5, kv_unified=unified)
    ctx.decode(two(4, 2))
    batch = two(6, 5)
    batch.pos = [*range(4, 10), *range(2, 7)]
    before = [c.pos.tobytes() for kv in ctx.memory.caches.values() for c in kv.cells]
    x = of_batch(batch, ctx)
    masks = {end: [x.mask(k, end) for k in range(len(x.ubatches))] for end in x.caches}
    assert [c.pos.tobytes() for kv in ctx.memory.caches.values() for c in kv.cells] == before
    assert x.caches == ["", "_swa"]
    real: dict[str, list] = {"": [], "_swa": []}
    for event in ctx.decode_steps(batch, lambda name: False):
        for end, found in real.items():
            if event.name == MASK + end:
                found.append(np.array(event.value))
    for end, found in real.items():
        assert len(found) == len(masks[end]) > 1
        for m, a in zip(masks[end], found, strict=True):
            np.testing.assert_array_equal(m.rows, a.reshape(m.rows.shape))
        for i in range(len(batch)):
            stream, cell = x.slot(i, end)
            assert ctx.memory.caches[end].cells[stream].tok[cell] == batch.token[i]
    last = masks["_swa"][-1]
    assert max(len(last.sees(r)) for r in range(len(last.rows))) == 3
