"""Batches, cache operations and outputs in both engines: the same codes, positions and logits.

Each test runs the same steps through llmviz and llama.cpp and compares after every one: the return
code, first and last position of every sequence, which indices have logits, and the logits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from parity import relative_error

import llmviz
from llmviz.batch import Batch
from llmviz.errors import DecodeError, LlmvizError

N_VOCAB = 345
LIMIT = 1e-5
Step = tuple[Any, ...]


class Both:
    """The same context in both engines."""

    def __init__(self, llamacpp: ModuleType, path: str, **settings: Any) -> None:
        settings = {"n_ctx": 256, "n_batch": 64, "type_k": "f32", "type_v": "f32"} | settings
        self.theirs = llamacpp.Reference(path, **{"n_threads": 1, **settings})
        self.ours = llmviz.load(path, weights="f32").context(**settings)
        self.n_seq_max = settings.get("n_seq_max", 1)

    def decode(
        self,
        tokens: Sequence[int],
        pos: Sequence[int] | None = None,
        seq_id: Sequence[int | Sequence[int]] | None = None,
        logits: Sequence[bool] | None = None,
    ) -> int:
        """Decode in both; the code that both returned."""
        code = self.theirs.decode(tokens, pos=pos, seq_id=seq_id, logits=logits)
        try:
            batch = Batch(token=tokens, pos=pos, seq_id=seq_id, logits=logits)
            mine = int(self.ours.decode(batch))
        except DecodeError as error:
            mine = error.code
        assert mine == code
        if code == 0:
            for i in range(-len(tokens) - 1, len(tokens) + 2):
                self.compare_logits(i)
        return code

    def compare_logits(self, i: int) -> None:
        """Both give the logits of batch token `i`, and the same ones, or both refuse."""
        theirs = self.theirs.logits_ith(i)
        if theirs is None:
            with pytest.raises(IndexError):
                self.ours.get_logits_ith(i)
        else:
            assert relative_error(self.ours.get_logits_ith(i), theirs) <= LIMIT, f"logits {i}"

    def memory(self, name: str, *args: int) -> None:
        """A memory operation in both."""
        theirs = getattr(self.theirs, name)(*args)
        mine = getattr(self.ours.memory, name)(*args)
        assert mine == theirs

    def compare_positions(self) -> None:
        """The same first and last position of every sequence."""
        for s in range(self.n_seq_max):
            mine = self.ours.memory.seq_pos_min(s), self.ours.memory.seq_pos_max(s)
            assert mine == (self.theirs.seq_pos_min(s), self.theirs.seq_pos_max(s)), f"sequence {s}"

    def run(self, steps: Sequence[Step]) -> list[int]:
        """Run steps ``("decode", ...)`` or ``("seq_rm", ...)``; the codes of the decodes."""
        codes = []
        for name, *args in steps:
            if name == "decode":
                codes.append(self.decode(*args))
            else:
                self.memory(name, *args)
            self.compare_positions()
        return codes


@pytest.fixture
def both(llamacpp: ModuleType, tiny_model: Callable[..., str]) -> Iterator[Callable[..., Both]]:
    """Factory of `Both` on the dense tiny model; frees llama.cpp's side afterwards."""
    made: list[Both] = []

    def make(**settings: Any) -> Both:
        made.append(Both(llamacpp, tiny_model(), **settings))
        return made[-1]

    yield make
    for b in made:
        b.theirs.close()


def tokens(n: int, start: int = 0) -> list[int]:
    """`n` token ids of the tiny vocabulary."""
    return [3 + (start + 11 * i) % (N_VOCAB - 3) for i in range(n)]


def test_positions_are_filled_in(both: Callable[..., Both]) -> None:
    assert both().run([("decode", tokens(3)), ("decode", tokens(2))]) == [0, 0]


@pytest.mark.parametrize("start", [0, 1, 7])
def test_first_batch_may_start_anywhere(both: Callable[..., Both], start: int) -> None:
    assert both().run([("decode", tokens(2), [start, start + 1])]) == [0]


@pytest.mark.parametrize("pos", [3, 5, 0, 2])
def test_positions_must_continue(both: Callable[..., Both], pos: int) -> None:
    b = both()
    assert b.run([("decode", tokens(4)), ("decode", [9], [pos]), ("decode", [9])]) == [0, -1, 0]


@pytest.mark.parametrize("positions", [[0, 2], [1, 0], [0, 0], [5, 7]])
def test_gaps_in_a_batch(both: Callable[..., Both], positions: list[int]) -> None:
    both().run([("decode", tokens(2), positions), ("decode", [9])])


@pytest.mark.parametrize("bad", [N_VOCAB, N_VOCAB + 1, -1, -5])
def test_token_out_of_range(both: Callable[..., Both], bad: int) -> None:
    assert both().run([("decode", [5, bad])]) == [-1]


@pytest.mark.parametrize("unified", [False, True])
@pytest.mark.parametrize("bad", [2, 3, 256, -1])
def test_sequence_out_of_range(both: Callable[..., Both], bad: int, unified: bool) -> None:
    b = both(n_seq_max=2, kv_unified=unified)
    assert b.run([("decode", [5], [0], [bad])]) == [-1]


def test_empty_batch(both: Callable[..., Both]) -> None:
    assert both().run([("decode", [])]) == [-1]


def test_token_in_no_sequence_raises(both: Callable[..., Both]) -> None:
    """llama.cpp crashes."""
    with pytest.raises(LlmvizError):
        both().ours.decode(Batch(token=[5], pos=[0], seq_id=[[]]))


def test_more_tokens_than_n_batch_raises(both: Callable[..., Both]) -> None:
    """llama.cpp aborts."""
    with pytest.raises(LlmvizError, match="n_batch"):
        both(n_batch=8).ours.decode(Batch(token=tokens(9)))


@pytest.mark.parametrize("flags", [
    None, [True, False, True, False], [False] * 4, [True] * 4, [False, False, False, True],
])  # fmt: skip
def test_which_rows_have_logits(both: Callable[..., Both], flags: list[bool] | None) -> None:
    assert both().run([("decode", tokens(4), None, None, flags)]) == [0]


@pytest.mark.parametrize("n_ubatch", [1, 2, 3, 5, 8, 16])
def test_any_cut_into_ubatches(both: Callable[..., Both], n_ubatch: int) -> None:
    b = both(n_ubatch=n_ubatch)
    assert b.run([("decode", tokens(16), None, None, [True] * 16), ("decode", [7])]) == [0, 0]


def test_full_cache(both: Callable[..., Both]) -> None:
    """A batch that does not fit is refused whole; after a shift there is room again."""
    b = both(n_batch=256)
    steps: list[Step] = [
        ("decode", tokens(254)),
        ("decode", tokens(8)),
        ("decode", tokens(2)),
        ("decode", [9]),
        ("seq_rm", 0, 4, 132),
        ("seq_add", 0, 132, -1, -128),
        ("decode", [9]),
    ]
    assert b.run(steps) == [0, 1, 0, 1, 0]


@pytest.mark.parametrize("args", [
    (0, 4, -1), (0, -1, 3), (0, 2, 5), (0, 5, 2), (0, 3, 3), (0, 100, -1), (-1, 2, -1),
    (0, -1, -1), (1, 0, 2),
])  # fmt: skip
@pytest.mark.parametrize("unified", [False, True])
def test_seq_rm(both: Callable[..., Both], args: tuple[int, ...], unified: bool) -> None:
    b = both(n_seq_max=2, kv_unified=unified)
    b.run([
        ("decode", tokens(8), list(range(8)), [0] * 8),
        ("decode", tokens(4, 5), list(range(4)), [1] * 4),
        ("seq_rm", *args),
    ])  # fmt: skip


@pytest.mark.parametrize("unified", [False, True])
def test_several_sequences_in_one_batch(both: Callable[..., Both], unified: bool) -> None:
    b = both(n_seq_max=3, kv_unified=unified, n_ubatch=8)
    ids, pos, seq = tokens(15), [i // 3 for i in range(15)], [i % 3 for i in range(15)]
    assert b.run([
        ("decode", ids, pos, seq, [True] * 15),
        ("decode", [5, 6], [5, 5], [2, 0], [True, True]),
        ("seq_keep", 2),
        ("decode", [7], [6], [2]),
    ]) == [0, 0, 0]  # fmt: skip


def test_uneven_sequences_in_one_batch(both: Callable[..., Both]) -> None:
    b = both(n_seq_max=3, n_ubatch=4)
    seq = [0, 0, 0, 0, 0, 1, 1, 2]
    pos = [0, 1, 2, 3, 4, 0, 1, 0]
    assert b.run([("decode", tokens(8), pos, seq, [True] * 8)]) == [0]


def test_a_token_in_two_sequences(both: Callable[..., Both]) -> None:
    b = both(n_seq_max=2, kv_unified=True)
    assert b.run([
        ("decode", tokens(4), [0, 1, 2, 3], [[0, 1]] * 4),
        ("decode", [5], [4], [1]),
        ("decode", [6], [4], [0]),
    ]) == [0, 0, 0]  # fmt: skip


@pytest.mark.parametrize("unified", [False, True])
def test_seq_cp(both: Callable[..., Both], unified: bool) -> None:
    b = both(n_seq_max=2, kv_unified=unified)
    steps: list[Step] = [
        ("decode", tokens(6)),
        ("seq_cp", 0, 1, -1, -1),
        ("decode", [5], [6], [1]),
        ("decode", [6], [6], [0]),
    ]
    assert b.run(steps) == [0, 0, 0]


def test_seq_div(both: Callable[..., Both]) -> None:
    b = both()
    assert b.run([("decode", tokens(8)), ("seq_div", 0, 0, -1, 2), ("decode", [5], [4])]) == [0, 0]


def test_clear(both: Callable[..., Both]) -> None:
    assert both().run([("decode", tokens(5)), ("clear",), ("decode", tokens(5))]) == [0, 0]


def test_abort_takes_the_ubatch_back(both: Callable[..., Both]) -> None:
    b = both()
    b.run([("decode", tokens(4))])
    b.theirs.set_abort(lambda: True)
    b.ours.set_abort_callback(lambda: True)
    assert b.run([("decode", tokens(3))]) == [2]
    b.theirs.set_abort(None)
    b.ours.set_abort_callback(None)
    assert b.run([("decode", tokens(3))]) == [0]


@pytest.mark.parametrize("asked", [
    {"n_batch": 8, "n_ubatch": 16}, {"n_batch": 16, "n_ubatch": 8}, {"n_batch": 16, "n_ubatch": 0},
    {"n_batch": 2048, "n_ubatch": 512}, {"n_batch": 512, "n_ubatch": 2048}, {"n_ctx": 0},
    {"n_ctx": 100}, {"n_ctx": 300, "n_seq_max": 2}, {"n_ctx": 1},
    {"n_ctx": 300, "n_seq_max": 2, "kv_unified": True},
], ids=str)  # fmt: skip
def test_clamps_and_padding(both: Callable[..., Both], asked: dict[str, Any]) -> None:
    b = both(**asked)
    for name in ("n_ctx", "n_ctx_seq", "n_batch", "n_ubatch"):
        assert getattr(b.ours, name) == b.theirs.context_value(name), name


def test_no_batch_size_at_all_is_refused(
    llamacpp: ModuleType, tiny_model: Callable[..., str]
) -> None:
    with pytest.raises(LlmvizError):
        llamacpp.Reference(tiny_model(), n_batch=0, n_ubatch=0)
    with pytest.raises(LlmvizError):
        llmviz.load(tiny_model()).context(n_batch=0, n_ubatch=0)


@pytest.mark.parametrize("seed", range(6))
def test_random_steps(both: Callable[..., Both], seed: int) -> None:
    """A random walk over batches and cache operations."""
    rng = random.Random(seed)
    unified = seed % 2 == 0
    b = both(n_seq_max=3, kv_unified=unified, n_ubatch=rng.choice([3, 8, 64]), n_ctx=768)
    for _ in range(30):
        last = [b.theirs.seq_pos_max(s) for s in range(3)]
        choice = rng.random()
        if choice < 0.6:
            some = rng.sample(range(3), rng.randint(1, 3))
            seq = [s for s in some for _ in range(rng.randint(1, 6))]
            if rng.random() < 0.5:
                rng.shuffle(seq)
            pos, ahead = [], list(last)
            for s in seq:
                ahead[s] += 1 + (rng.random() < 0.02)
                pos.append(ahead[s])
            ids = [rng.randrange(-1 if rng.random() < 0.05 else 3, N_VOCAB) for _ in seq]
            b.run([("decode", ids, pos, seq, [rng.random() < 0.5 for _ in seq])])
        elif choice < 0.85:
            p0 = rng.randint(-1, 12)
            b.run([("seq_rm", rng.randint(0, 2), p0, rng.choice([-1, p0 + rng.randint(0, 6)]))])
        elif choice < 0.93:
            src, dst = rng.sample(range(3), 2)
            b.run([("seq_rm", dst, -1, -1), ("seq_cp", src, dst, -1, -1)])
        elif choice < 0.97:
            b.run([("seq_keep", rng.randint(0, 2))])
        else:
            b.run([("clear",)])


def test_graphs_are_used_again(both: Callable[..., Both]) -> None:
    """As often as llama.cpp does: while shapes stay, until the padded window grows."""
    b = both(n_batch=256, n_ubatch=128, n_ctx=512)
    for n in (1, 1, 1, 4, 4, 1, 200, 1, 40, 1, 1, 1, 1, 1, 1):
        b.run([("decode", tokens(n))])
        assert b.ours.n_reused == b.theirs.n_reused
    assert b.ours.n_reused > 5


@pytest.mark.parametrize("flags", [None, [True, False, True, False]])
def test_embeddings(both: Callable[..., Both], flags: list[bool] | None) -> None:
    b = both(embeddings=True, n_ubatch=3)
    b.run([("decode", tokens(4), None, None, flags)])
    for i in range(-5, 6):
        theirs = b.theirs.embeddings_ith(i)
        if theirs is None:
            with pytest.raises(IndexError):
                b.ours.get_embeddings_ith(i)
        else:
            assert relative_error(b.ours.get_embeddings_ith(i), theirs) <= LIMIT, f"row {i}"


def test_logits_are_views_of_the_last_decode(both: Callable[..., Both]) -> None:
    b = both()
    b.run([("decode", tokens(4))])
    first = np.array(b.ours.get_logits_ith(-1))
    b.run([("decode", [5])])
    assert not np.array_equal(first, b.ours.get_logits_ith(-1))
