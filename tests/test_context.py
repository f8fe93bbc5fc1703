"""Decode: return codes, what the cache holds afterwards, logits, stepping, embeddings.

Positions, codes and reasons are what llama.cpp b11739 answered to the same calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import llmviz
from llmviz.batch import Batch
from llmviz.context import Context, DecodeStatus, context_steps
from llmviz.errors import BatchError, LlmvizError
from llmviz.ggml.sched import never
from llmviz.memory.memory import CacheError

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


def rows(ctx: Context, n: int) -> np.ndarray:
    """Copies of the logits of tokens 0..n-1, [n, n_vocab]."""
    return np.stack([ctx.get_logits_ith(i) for i in range(n)])


def alone(ctx: Context, tokens: Sequence[int]) -> np.ndarray:
    """Logits of every token, decoded from an empty cache."""
    ctx.memory.clear()
    assert ctx.decode(Batch(token=tokens, logits=[True] * len(tokens))) == 0
    return rows(ctx, len(tokens))


# return codes ------------------------------------------------------------------------------------


def test_positions_are_filled_in(context: Callable[..., Context]) -> None:
    ctx = context()
    assert ctx.decode(Batch.get_one(ids(3))) is DecodeStatus.OK
    assert held(ctx) == (0, 2)
    assert ctx.decode(Batch.get_one(ids(2))) == 0
    assert held(ctx) == (0, 4)


@pytest.mark.parametrize("pos", [5, 3])
def test_positions_continue_the_cache(context: Callable[..., Context], pos: int) -> None:
    ctx = context()
    ctx.decode(Batch(token=ids(4), pos=range(4)))
    with pytest.raises(BatchError, match=rf"X = 3\n(.|\n)*Y = {pos}\n(.|\n)*Y = X \+ 1") as caught:
        ctx.decode(Batch(token=[9], pos=[pos]))
    assert caught.value.code == -1
    assert held(ctx) == (0, 3)
    assert ctx.decode(Batch(token=[9], pos=[4])) == 0


def test_a_first_batch_may_start_anywhere(context: Callable[..., Context]) -> None:
    ctx = context()
    assert ctx.decode(Batch(token=ids(2), pos=[7, 8])) == 0
    assert held(ctx) == (7, 8)


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (N_VOCAB, rf"invalid token\[1\] = {N_VOCAB}"),
        (-1, "entry 1 has neither a token id nor an embedding"),
        (-5, r"invalid token\[1\] = -5"),
    ],
)
def test_tokens_out_of_range(context: Callable[..., Context], token: int, reason: str) -> None:
    ctx = context()
    with pytest.raises(BatchError, match=reason) as caught:
        ctx.decode(Batch(token=[5, token]))
    assert caught.value.code == -1
    assert held(ctx) == (-1, -1)


@pytest.mark.parametrize("unified", [False, True])
@pytest.mark.parametrize("seq", [2, 5, 256, -1])
def test_sequences_out_of_range(context: Callable[..., Context], seq: int, unified: bool) -> None:
    ctx = context(n_seq_max=2, kv_unified=unified)
    with pytest.raises(BatchError, match=rf"invalid seq_id\[0\]\[0\] = {seq} >= 2"):
        ctx.decode(Batch(token=[5], pos=[0], seq_id=[seq]))
    assert held(ctx) == (-1, -1)


def test_what_crashes_llama_cpp_is_an_error(context: Callable[..., Context]) -> None:
    """A token in no sequence, and more tokens than n_batch."""
    ctx = context(n_batch=8)
    with pytest.raises(BatchError, match="at least one sequence"):
        ctx.decode(Batch(token=[5], pos=[0], seq_id=[[]]))
    with pytest.raises(BatchError, match="9 tokens.*n_batch is 8"):  # noqa: RUF043
        ctx.decode(Batch(token=ids(9)))
    with pytest.raises(BatchError, match="empty"):
        ctx.decode(Batch())
    assert held(ctx) == (-1, -1)
    assert ctx.decode(Batch(token=ids(8))) == 0


def test_a_full_cache(context: Callable[..., Context]) -> None:
    """A warning, not an error; after making room decoding goes on."""
    ctx = context()
    assert ctx.decode(Batch.get_one(ids(256))) == 0
    assert ctx.decode(Batch.get_one([9])) is DecodeStatus.NO_KV_SLOT
    assert held(ctx) == (0, 255)
    assert ctx.memory.seq_rm(0, 4, 132)
    ctx.memory.seq_add(0, 132, -1, -128)
    assert held(ctx) == (0, 127)
    assert ctx.decode(Batch(token=[9], pos=[128])) == 0
    assert held(ctx) == (0, 128)


def test_a_batch_that_does_not_fit_is_refused_whole(context: Callable[..., Context]) -> None:
    ctx = context(n_ubatch=4)
    assert ctx.decode(Batch.get_one(ids(254))) == 0
    before = np.array(ctx.memory.cells[0].pos)
    k = [np.array(layer.k) for layer in ctx.memory.layers]
    assert ctx.decode(Batch.get_one(ids(8))) is DecodeStatus.NO_KV_SLOT
    assert held(ctx) == (0, 253)
    np.testing.assert_array_equal(ctx.memory.cells[0].pos, before)
    for layer, saved in zip(ctx.memory.layers, k, strict=True):
        np.testing.assert_array_equal(layer.k, saved)
    assert ctx.decode(Batch.get_one(ids(2))) == 0


def test_no_slot_says_why(context: Callable[..., Context]) -> None:
    ctx = context()
    ctx.decode(Batch.get_one(ids(256)))
    events = list(ctx.decode_steps(Batch.get_one([9])))
    (reason,) = [e.value for e in events if e.name == "no_slot"]
    assert "batch of size 1" in reason and "256 of 256" in reason
    assert (events[-1].name, events[-1].value) == ("decode", DecodeStatus.NO_KV_SLOT)


@pytest.mark.parametrize(
    ("call", "seq0", "seq1"),
    [
        ((0, 4, -1), (0, 3), (0, 3)),
        ((0, -1, 3), (3, 7), (0, 3)),
        ((0, 2, 5), (0, 7), (0, 3)),
        ((0, 5, 2), (0, 7), (0, 3)),
        ((0, 3, 3), (0, 7), (0, 3)),
        ((0, 100, -1), (0, 7), (0, 3)),
        ((-1, 2, -1), (0, 1), (0, 1)),
        ((0, -1, -1), (-1, -1), (0, 3)),
        ((1, 0, 2), (0, 7), (2, 3)),
    ],
)
def test_seq_rm(
    context: Callable[..., Context],
    call: tuple[int, int, int],
    seq0: tuple[int, int],
    seq1: tuple[int, int],
) -> None:
    ctx = context(n_seq_max=2)
    ctx.decode(Batch(token=ids(8), pos=range(8), seq_id=[0] * 8))
    ctx.decode(Batch(token=ids(4), pos=range(4), seq_id=[1] * 4))
    assert ctx.memory.seq_rm(*call)
    assert (held(ctx, 0), held(ctx, 1)) == (seq0, seq1)


# which rows --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "there", "missing"),
    [
        (None, [3, -1], [-2, 0, 1, 2, 4]),
        ([True, False, True, False], [0, 2, -1, -2], [1, 3, 4, -3, -5, 100]),
        ([False] * 4, [], [-1, 0, 3]),
    ],
)
def test_rows_that_have_logits(
    context: Callable[..., Context],
    flags: list[bool] | None,
    there: list[int],
    missing: list[int],
) -> None:
    ctx = context()
    assert ctx.decode(Batch(token=ids(4), logits=flags)) == 0
    assert held(ctx) == (0, 3)
    for i in there:
        assert ctx.get_logits_ith(i).shape == (N_VOCAB,)
    for i in missing:
        with pytest.raises(IndexError, match=f"invalid logits id {i}, reason"):
            ctx.get_logits_ith(i)


def test_a_negative_index_counts_outputs(context: Callable[..., Context]) -> None:
    ctx = context()
    ctx.decode(Batch(token=ids(4), logits=[True, False, True, False]))
    np.testing.assert_array_equal(ctx.get_logits_ith(-1), ctx.get_logits_ith(2))
    np.testing.assert_array_equal(ctx.get_logits_ith(-2), ctx.get_logits_ith(0))
    assert ctx.n_outputs == 2


def test_nothing_decoded_yet(context: Callable[..., Context]) -> None:
    with pytest.raises(IndexError, match="nothing was decoded"):
        context().get_logits_ith(-1)


def test_logits_may_be_written_to(context: Callable[..., Context]) -> None:
    """What is sampled from is the array that is handed out."""
    ctx = context()
    ctx.decode(Batch.get_one(ids(4)))
    ctx.get_logits_ith(-1)[77] = 1000.0
    assert llmviz.sampling.Chain([llmviz.sampling.Greedy()]).sample(ctx, -1) == 77


# the same, however it is cut ---------------------------------------------------------------------


@pytest.mark.parametrize("n_ubatch", [1, 2, 3, 5, 8, 16])
def test_any_cut_gives_the_same(context: Callable[..., Context], n_ubatch: int) -> None:
    whole = alone(context(**F32), ids(16))
    cut = alone(context(n_ubatch=n_ubatch, **F32), ids(16))
    np.testing.assert_allclose(cut, whole, rtol=0, atol=1e-5)
    assert cut.argmax(1).tolist() == whole.argmax(1).tolist()


def test_one_by_one_gives_the_same(context: Callable[..., Context]) -> None:
    whole = alone(context(**F32), ids(8))
    ctx = context(**F32)
    for i, token in enumerate(ids(8)):
        assert ctx.decode(Batch.get_one([token])) == 0
        np.testing.assert_allclose(ctx.get_logits_ith(-1), whole[i], rtol=0, atol=1e-5)


def test_a_second_run_is_the_same_to_the_bit(context: Callable[..., Context]) -> None:
    ctx = context(n_ubatch=8)
    first = alone(ctx, ids(20))
    again = alone(ctx, ids(20))
    fresh = alone(context(n_ubatch=8), ids(20))
    assert first.tobytes() == again.tobytes() == fresh.tobytes()


def test_watching_changes_no_bit(context: Callable[..., Context]) -> None:
    results = []
    for want in (never, None, lambda name: "kq" in name):
        ctx = context(n_ubatch=8)
        for batch in (ids(20), [5], [6]):
            for _ in ctx.decode_steps(Batch.get_one(batch), want):
                pass
        results.append(ctx.get_logits_ith(-1).tobytes())
    assert results[0] == results[1] == results[2]


def test_memory_for_computing_never_grows_while_decoding(context: Callable[..., Context]) -> None:
    ctx = context(n_ubatch=32)
    arena = ctx._sched.allocator.arena
    for batch in (ids(100), ids(32), [5], [6], ids(7)):
        assert ctx.decode(Batch.get_one(batch)) == 0
    assert ctx._sched.allocator.arena is arena


# several sequences -------------------------------------------------------------------------------


def mixed(n: int, n_seq: int) -> tuple[list[int], list[int], list[int]]:
    """Tokens of several sequences in turn: ids, positions, sequences."""
    return ids(n), [i // n_seq for i in range(n)], [i % n_seq for i in range(n)]


@pytest.mark.parametrize("type_", ["f32", "f16"])
@pytest.mark.parametrize("unified", [False, True])
@pytest.mark.parametrize("n_ubatch", [4, 64])
def test_each_sequence_is_as_if_alone(
    context: Callable[..., Context], unified: bool, n_ubatch: int, type_: str
) -> None:
    kind = {"type_k": type_, "type_v": type_}
    ctx = context(n_seq_max=2, kv_unified=unified, n_ubatch=n_ubatch, n_ctx=512, **kind)
    tokens, pos, seq = mixed(14, 2)
    batch = Batch(token=tokens, pos=pos, seq_id=seq, logits=[True] * 14)
    assert ctx.decode(batch) == 0
    together = rows(ctx, 14)
    single = context(**kind)
    limit = 1e-5 if type_ == "f32" else 1e-3  # in float16 a tie may round the other way
    for s in (0, 1):
        np.testing.assert_allclose(together[s::2], alone(single, tokens[s::2]), rtol=0, atol=limit)
        assert held(ctx, s) == (0, 6)


@pytest.mark.parametrize("unified", [False, True])
def test_sequences_are_llama_cpps(
    context: Callable[..., Context],
    llamacpp: ModuleType,
    tiny_model: Callable[..., str],
    unified: bool,
) -> None:
    params = {"n_ctx": 512, "n_seq_max": 2, "kv_unified": unified, "n_ubatch": 8, **F32}
    ctx = context(**params)
    tokens, pos, seq = mixed(14, 2)
    with llamacpp.Reference(tiny_model(), n_threads=1, **params) as theirs:
        code = theirs.decode(tokens, pos=pos, seq_id=seq, logits=[True] * 14)
        assert code == 0
        ctx.decode(Batch(token=tokens, pos=pos, seq_id=seq, logits=[True] * 14))
        for i in range(14):
            a, b = ctx.get_logits_ith(i), theirs.logits_ith(i)
            assert np.linalg.norm(a - b) <= 1e-5 * np.linalg.norm(b)


@pytest.mark.parametrize("type_", ["f32", "f16"])
@pytest.mark.parametrize("unified", [False, True])
def test_a_copied_sequence_goes_on_like_the_first(
    context: Callable[..., Context], unified: bool, type_: str
) -> None:
    """Between streams K and V are copied at the next decode; attention must see the copy."""
    ctx = context(n_seq_max=2, kv_unified=unified, n_ctx=512, type_k=type_, type_v=type_)
    ctx.decode(Batch.get_one(ids(6)))
    ctx.memory.seq_cp(0, 1)
    both = Batch(token=[9, 9], pos=[6, 6], seq_id=[0, 1], logits=[True, True])
    assert ctx.decode(both) == 0
    np.testing.assert_allclose(ctx.get_logits_ith(0), ctx.get_logits_ith(1), rtol=0, atol=1e-5)


@pytest.mark.parametrize("type_", ["f32", "f16"])
def test_a_saved_sequence_goes_on_like_the_first(
    context: Callable[..., Context], type_: str
) -> None:
    ctx = context(n_seq_max=2, n_ctx=512, type_k=type_, type_v=type_)
    ctx.decode(Batch.get_one(ids(6)))
    state = ctx.memory.state_write(0)
    assert ctx.memory.state_read(state, 1) == len(state)
    logits = []
    for s in (0, 1):
        assert ctx.decode(Batch(token=[9], pos=[6], seq_id=[s])) == 0
        logits.append(np.array(ctx.get_logits_ith(-1)))
    np.testing.assert_array_equal(logits[0], logits[1])
    with pytest.raises(CacheError, match="failed to restore kv cache"):
        ctx.memory.state_read(state[: len(state) // 2], 1)
    assert held(ctx, 1) == (-1, -1)


# moved positions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["dense", "yarn", "rope_freqs", "linear"])
@pytest.mark.parametrize(("type_", "limit"), [("f32", 1e-5), ("f16", 2e-3)])
def test_a_shift_is_llama_cpps(
    variant: str, type_: str, limit: float, llamacpp: ModuleType, tiny_model: Callable[..., str]
) -> None:
    path = tiny_model(variant=variant)
    params = {"n_ctx": 256, "type_k": type_, "type_v": type_}
    ctx = llmviz.load(path).context(**params)
    with llamacpp.Reference(path, n_threads=1, **params) as theirs:
        assert theirs.decode(ids(40)) == ctx.decode(Batch.get_one(ids(40))) == 0
        for memory in (theirs, ctx.memory):
            memory.seq_rm(0, 4, 20)
            memory.seq_add(0, 20, -1, -16)
        for token in (9, 10):
            assert theirs.decode([token]) == ctx.decode(Batch.get_one([token])) == 0
            a, b = ctx.get_logits_ith(-1), theirs.logits_ith(-1)
            assert np.linalg.norm(a - b) <= limit * np.linalg.norm(b)
        assert held(ctx) == (theirs.seq_pos_min(0), theirs.seq_pos_max(0))


def test_a_shift_of_everything_changes_nothing(context: Callable[..., Context]) -> None:
    """Only distances matter: all positions moved alike give the same logits."""
    ctx, plain = context(**F32), context(**F32)
    for c in (ctx, plain):
        c.decode(Batch(token=ids(12), pos=range(100, 112)))
    ctx.memory.seq_add(0, 0, -1, -100)
    ctx.decode(Batch(token=[9], pos=[12]))
    plain.decode(Batch(token=[9], pos=[112]))
    np.testing.assert_allclose(ctx.get_logits_ith(-1), plain.get_logits_ith(-1), rtol=0, atol=2e-4)


# embeddings --------------------------------------------------------------------------------------


def test_embeddings_are_the_final_hidden_states(context: Callable[..., Context]) -> None:
    ctx = context(embeddings=True, n_ubatch=4)
    shown = []
    for event in ctx.decode_steps(Batch.get_one(ids(6))):
        if event.name == "result_norm":
            shown.append(np.array(event.value))
    np.testing.assert_array_equal(
        np.stack([ctx.get_embeddings_ith(i) for i in range(6)]), np.concatenate(shown)
    )
    np.testing.assert_array_equal(ctx.get_embeddings_ith(-1), ctx.get_embeddings_ith(5))


def test_embeddings_are_llama_cpps(
    context: Callable[..., Context], llamacpp: ModuleType, tiny_model: Callable[..., str]
) -> None:
    ctx = context(embeddings=True, **F32)
    ctx.decode(Batch.get_one(ids(6)))
    with llamacpp.Reference(tiny_model(), n_ctx=256, embeddings=True, **F32) as theirs:
        assert theirs.decode(ids(6)) == 0
        for i in range(6):
            a, b = ctx.get_embeddings_ith(i), theirs.embeddings_ith(i)
            assert np.linalg.norm(a - b) <= 1e-5 * np.linalg.norm(b)


def test_embeddings_that_were_not_asked_for(context: Callable[..., Context]) -> None:
    ctx = context()
    ctx.decode(Batch.get_one(ids(3)))
    with pytest.raises(IndexError, match="embeddings=True"):
        ctx.get_embeddings_ith(-1)


def test_there_is_no_encoder(context: Callable[..., Context]) -> None:
    with pytest.raises(LlmvizError, match="llama.*no encoder"):  # noqa: RUF043
        context().encode(Batch.get_one([5]))


# making a context --------------------------------------------------------------------------------


def test_events_of_step_7(model: llmviz.Model) -> None:
    events = list(context_steps(model, n_ctx=300, n_batch=64, depth=1))
    assert {e.step for e in events} == {7}
    assert [(e.kind, e.name, e.depth) for e in (events[0], events[-1])] == [
        ("enter", "llama_init_from_model", 1),
        ("exit", "llama_init_from_model", 1),
    ]
    assert {e.depth for e in events[1:-1]} == {2}
    data = {e.name: e for e in events[1:-1]}
    assert (data["n_ctx"].value, data["n_batch"].value) == (512, 64)
    # 2 layers, 512 cells, 2 heads of 16, 2 bytes: 64 KiB for K and as much for V
    for term in ("2 layers", "512 cells", "x 32 ", "x 2 bytes", "= 0.06 MiB"):
        assert data["kv_cache"].about.count(term) == 2, term
    ctx = events[-1].value
    assert isinstance(ctx, Context)
    assert ctx.memory.total_size() == 2 * (2 * 512 * 32 * 2)
    assert data["reserve_prefill"].value > 0 and data["reserve_decode"].value > 0
    assert ctx.decode(Batch.get_one(ids(3))) == 0


def test_settings_that_can_be_read(context: Callable[..., Context]) -> None:
    ctx = context(n_ctx=300, n_batch=100, n_ubatch=7, n_seq_max=2)
    assert (ctx.n_ctx, ctx.n_ctx_seq, ctx.n_batch, ctx.n_ubatch, ctx.n_seq_max) == (
        512, 256, 100, 7, 2
    )  # fmt: skip
    assert ctx.params.n_ctx == 300
    assert "n_ctx 512" in repr(ctx)


def test_n_ctx_0_is_the_training_length(model: llmviz.Model) -> None:
    assert model.context().n_ctx == 512  # the tiny model's context_length


def test_a_misspelled_parameter(model: llmviz.Model) -> None:
    with pytest.raises(LlmvizError, match="n_cxt"):
        model.context(n_cxt=256)


def test_contexts_of_one_model_do_not_disturb_each_other(context: Callable[..., Context]) -> None:
    a, b = context(), context()
    a.decode(Batch.get_one(ids(4)))
    b.decode(Batch.get_one(ids(9, 3)))
    a.decode(Batch.get_one([9]))
    plain = context()
    plain.decode(Batch.get_one(ids(4)))
    plain.decode(Batch.get_one([9]))
    np.testing.assert_array_equal(a.get_logits_ith(-1), plain.get_logits_ith(-1))


def test_stepping_two_contexts_in_turn(context: Callable[..., Context]) -> None:
    a, b = context(), context()
    left = a.decode_steps(Batch.get_one(ids(4)))
    right = b.decode_steps(Batch.get_one(ids(9, 3)))
    for _ in zip(left, right, strict=False):
        pass
    for steps in (left, right):
        for _ in steps:
            pass
    plain = context()
    plain.decode(Batch.get_one(ids(4)))
    np.testing.assert_array_equal(a.get_logits_ith(-1), plain.get_logits_ith(-1))


# the folder of cases -----------------------------------------------------------------------------


def test_logits_of_the_case_model(cases_dir: Path) -> None:
    """tiny_llama.gguf: 8 tokens at once and one by one."""
    values = json.loads((cases_dir / "context_values.json").read_text())
    tokens = json.loads((cases_dir / "graph_values.json").read_text())["tokens"][:8]
    case = values["output_flags_all_vs_one_by_one"]
    model = llmviz.load(cases_dir / "tiny_llama.gguf")
    logits = alone(model.context(n_ctx=256, **F32), tokens)
    assert logits.argmax(1).tolist() == case["argmax"]
    np.testing.assert_allclose(logits[7, :5], case["logits_row7_first5"], rtol=0, atol=5e-3)
