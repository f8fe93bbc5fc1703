"""A tape computes what its nodes compute one by one, bit for bit, however it is cut or shared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from llmviz.ggml.backends.kernels import tape
from llmviz.ggml.backends.kernels.tape import ALONE, Row, barriers

pytest.importorskip("numba", reason="the kernels need numba")


def row(split: tuple[str, int], reads: list[int], writes: list[int]) -> Row:
    """A row of a step that nobody runs; memory i is eight bytes at 8 * i."""
    ranges = tuple(tuple((8 * i, 8 * i + 8) for i in of) for of in (reads, writes))
    return Row("none", 1, (), split, *ranges)


ROWS, HEADS = ("rows", 64), ("heads", 4)


@pytest.mark.parametrize(
    ("rows", "waits"),
    [
        ([(ALONE, [0], [1]), (ALONE, [1], [2])], [False, False]),  # one thread does both
        ([(ALONE, [0], [1]), (ROWS, [1], [2])], [False, True]),  # others read what it wrote
        ([(ROWS, [0], [1]), (ROWS, [0], [2])], [False, False]),  # gate and up
        ([(ROWS, [0], [1]), (ROWS, [1], [2])], [False, False]),  # each goes on with its share
        ([(ROWS, [0], [1]), (HEADS, [1], [2])], [False, True]),  # the shares differ
        ([(ROWS, [0], [1]), (ROWS, [2], [0])], [False, True]),  # overwrites what others read
        ([(ROWS, [0], [1]), (ROWS, [2], [1])], [False, True]),
        ([(ROWS, [0], [1]), (ALONE, [3], [4])], [False, False]),
        ([(ROWS, [0], [1]), (ALONE, [3], [4]), (ALONE, [1], [5])], [False, False, True]),
        ([(HEADS, [0], [1]), (HEADS, [1], [2]), (HEADS, [2, 7], [3])], [False] * 3),  # attention
    ],
)
def test_where_threads_wait(rows: list[Any], waits: list[bool]) -> None:
    assert barriers([row(*r) for r in rows]) == waits


def test_pace() -> None:
    """One measures, several go on while they are faster, and are tried again later and later."""
    pace = tape.Pace(200)
    seen = []
    for several in (60, 60, 300, 300, 60, 60):
        alone = 0
        while not pace.together():
            pace.took(40, 40)  # of two stretches, the second one ends a window
            pace.took(60, 60)
            alone += 1
        pace.took(several, 100)
        seen.append(alone)
    assert seen == [2, 0, 0, 4, 8, 0]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    from llmviz.ggml.backends import kernels

    monkeypatch.delenv("LLMVIZ_KERNELS", raising=False)
    if not kernels.usable():
        pytest.skip("this processor has neither AVX2 nor NEON")
    monkeypatch.setattr(tape, "_SMALL", 1)  # a second thread for the smallest product
    monkeypatch.setattr(tape.Pace, "together", lambda pace: True)


def logits(ctx: Any, want: Callable[[str], bool] | None, one_by_one: bool = False) -> np.ndarray:
    """The rows of five tokens decoded one after another."""
    from llmviz.batch import Batch
    from llmviz.ggml.sched import NodeTimes

    if one_by_one:
        ctx.sched.times = NodeTimes()
    rows = []
    for token in range(3, 8):
        for _ in ctx.decode_steps(Batch.get_one([token]), want):
            pass
        rows.append(ctx.get_logits_ith(-1).copy())
    return np.stack(rows)


@pytest.mark.parametrize(
    ("kind", "traits"),
    [
        ("Q4_0", {}),
        ("Q4_1", {"qkv_bias": True, "out_bias": True}),
        ("Q5_0", {"n_head_kv": 1}),
        ("Q5_1", {"tied": True}),
        ("Q8_0", {"type_k": "f32", "type_v": "f32"}),
        ("MXFP4", {"n_head_kv": 4}),
        ("Q4_K", {}),
        ("Q5_K", {"type_v": "q8_0", "type_k": "q8_0"}),
        ("Q6_K", {"rope_freqs": True}),
    ],
)
def test_equals_its_nodes(
    compiled: None, tiny_model: Callable[..., str], kind: str, traits: dict[str, Any]
) -> None:
    """Unwatched, watched here and there, watched everywhere: with one thread, and with two."""
    import llmviz

    cache = {k: v for k, v in traits.items() if k.startswith("type_")}
    rest = {k: v for k, v in traits.items() if k not in cache}
    path = tiny_model(n_embd=128, n_ff=256, weight_type=kind, **rest)
    model = llmviz.load(path, weights="quantized")
    expected = logits(model.context(n_ctx=64, **cache), None, one_by_one=True)
    for n_threads in (1, 2):
        for want in (lambda n: False, lambda n: n.startswith(("Q", "kq", "ffn")), None):
            ctx = model.context(n_ctx=64, n_threads=n_threads, **cache)
            assert np.array_equal(logits(ctx, want), expected), (n_threads, want)
        line = ctx.sched._line
        assert line._tape is not None and len(line._tape.rows) > 2 * len(line._own)


def test_alone_where_no_other_thread_comes(compiled: None, tiny_model: Callable[..., str]) -> None:
    """A thread that is waited for in vain leaves all the work to the other one."""
    import llmviz
    from llmviz.batch import Batch

    model = llmviz.load(tiny_model(n_embd=128, n_ff=256, weight_type="Q4_0"), weights="quantized")
    first = logits(model.context(n_ctx=64), None)
    ctx = model.context(n_ctx=64, n_threads=2)
    ctx.decode(Batch.get_one([3]))
    shared = ctx.sched._line._tape
    together = shared._together

    def one_is_missing(at: int, low: int, high: int, sync: int, n_threads: int) -> None:
        together(at, low, high, sync, n_threads + 1)

    shared._together = one_is_missing
    ctx.memory.clear()
    assert np.array_equal(logits(ctx, lambda n: False), first)
    assert shared._sync[8] == 2  # the last stretch was run by one thread


def test_an_edit_reaches_what_comes_after(compiled: None, tiny_model: Callable[..., str]) -> None:
    import llmviz
    from llmviz.batch import Batch

    model = llmviz.load(tiny_model(n_embd=128, n_ff=256, weight_type="Q4_0"), weights="quantized")
    found = []
    for scale in (1, 2):
        ctx = model.context(n_ctx=64)
        for event in ctx.decode_steps(Batch.get_one([3]), lambda n: n in ("ffn_inp-0", "l_out-0")):
            if event.name == "ffn_inp-0":
                event.value = event.value * scale
                found.append(event.value.copy())
            if event.name == "l_out-0":
                found.append(event.value.copy())
    assert np.array_equal(found[2], 2 * found[0]) and not np.array_equal(found[1], found[3])


@pytest.mark.parametrize("group", [32, 256])
def test_nan_is_not_lost_in_eight_bits(compiled: None, group: int) -> None:
    """One value that is no number makes its whole group none, in both forms; others stay."""
    from llmviz.ggml import dots
    from llmviz.ggml.backends import kernels

    x = np.ones((2, 512), np.float32)
    x[0, 300] = np.nan
    plain, made = dots.Activations.empty(2, 512, group), dots.Activations.empty(2, 512, group)
    with np.errstate(invalid="ignore"):
        (dots.quantize_q8 if group == 32 else dots.quantize_q8_k)(x, plain)
    kernels.load().quantize(x, made)
    assert np.array_equal(np.isnan(made.d), np.isnan(plain.d)) and np.isnan(made.d).sum() == 1


@pytest.mark.parametrize("weights", ["quantized", "f32"])
def test_a_batch_whose_logits_nobody_wants(
    compiled: None, tiny_model: Callable[..., str], weights: str
) -> None:
    """The last layer has no rows then; the cache is filled all the same."""
    import llmviz
    from llmviz.batch import Batch

    model = llmviz.load(tiny_model(n_embd=128, n_ff=256, weight_type="Q4_0"), weights=weights)
    rows = []
    for pieces in ([[3, 4, 5, 6]], [[3, 4], [5, 6]]):
        ctx = model.context(n_ctx=64, n_threads=1)
        for tokens in pieces:
            batch = Batch.get_one(tokens)
            batch.logits = [False] * len(tokens)
            assert ctx.decode(Batch(token=batch.token, logits=batch.logits)) == 0
        ctx.decode(Batch.get_one([7]))
        rows.append(ctx.get_logits_ith(-1))
    np.testing.assert_allclose(rows[0], rows[1], atol=1e-3)
