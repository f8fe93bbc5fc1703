"""Batches, their checks, and the ways to cut them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from llmviz.batch import LLAMA_MAX_SEQ, Batch, BatchAllocr, Ubatch
from llmviz.errors import BatchError, DecodeError
from llmviz.events import drain


class Held:
    """A memory that holds given position ranges: {seq_id: (first, last)}."""

    def __init__(self, **ranges: tuple[int, int]) -> None:
        self.ranges = {int(name[1:]): value for name, value in ranges.items()}

    def seq_pos_min(self, seq_id: int) -> int:
        return self.ranges.get(seq_id, (-1, -1))[0]

    def seq_pos_max(self, seq_id: int) -> int:
        return self.ranges.get(seq_id, (-1, -1))[1]


def allocr(batch: Batch, **kw: Any) -> BatchAllocr:
    balloc = BatchAllocr()
    balloc.init(batch, **{"n_vocab": 100, "n_seq_max": 4, **kw})
    return balloc


def lengths(*n_tokens: int) -> Batch:
    """Sequence s with n_tokens[s] tokens, one after the other, the last of each flagged."""
    batch = Batch()
    for s, n in enumerate(n_tokens):
        for i in range(n):
            batch.add(10 * s + i, i, [s], i == n - 1)
    return batch


# -- Batch ---------------------------------------------------------------------------------------


def test_get_one_leaves_everything_to_decode() -> None:
    batch = Batch.get_one([3, 4])
    assert (batch.token, batch.pos, batch.seq_id, batch.logits) == ([3, 4], None, None, None)
    assert len(batch) == batch.n_tokens == 2


def test_takes_arrays_ranges_and_single_sequence_ids() -> None:
    batch = Batch(np.array([3, 4], np.int32), range(2), [0, [1, 2]], np.array([False, True]))
    assert batch.token == [3, 4]
    assert batch.pos == [0, 1]
    assert batch.seq_id == [(0,), (1, 2)]
    assert batch.logits == [False, True]
    assert batch == Batch([3, 4], [0, 1], [[0], [1, 2]], [0, 1])
    assert batch != Batch([3, 4])


def test_add_and_clear() -> None:
    batch = Batch()
    batch.add(7, 0, [0, 1], False)
    batch.add(8, 1, 0, True)
    assert (batch.token, batch.pos) == ([7, 8], [0, 1])
    assert (batch.seq_id, batch.logits) == ([(0, 1), (0,)], [False, True])
    batch.clear()
    assert len(batch) == 0
    batch.add(9)
    assert (batch.token, batch.pos, batch.seq_id, batch.logits) == ([9], None, None, None)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ((1, 0), (2,), r"pos\[1\] is missing, but the 1 earlier tokens of this batch are with it"),
        ((1,), (2, None, [0]), r"seq_id\[1\] is given, but the 1 earlier .* without it"),
        ((1, 0, 0, True), (2, 1, 0), r"logits\[1\] is missing"),
    ],
)
def test_add_is_all_or_nothing(first: tuple, second: tuple, message: str) -> None:
    batch = Batch()
    batch.add(*first)
    before = repr(batch)
    with pytest.raises(BatchError, match=message):
        batch.add(*second)
    assert repr(batch) == before


def test_repr_shows_the_content() -> None:
    assert repr(Batch.get_one([5])) == (
        "<Batch 1 token; token: [5]; pos: continue; seq_id: 0; logits: last only>"
    )
    batch = Batch(range(20), range(20), [[0, 1]] * 20, [True] * 20)
    assert "pos: [0, 1, 2, 3, 4, 5, 6, 7, ... 12 more]" in repr(batch)
    assert "seq_id: [[0, 1], " in repr(batch)


@pytest.mark.parametrize("bad", [7, 1.5, "ab", b"ab", object()])
def test_token_must_be_a_sequence(bad: Any) -> None:
    with pytest.raises(BatchError, match="token must be a sequence with one entry per token"):
        Batch(bad)


# -- init: refusals ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (Batch(), "n_tokens == 0"),
        (Batch([1, 100]), r"invalid token\[1\] = 100; valid token ids are 0\.\.99"),
        (Batch([1, -5]), r"invalid token\[1\] = -5"),
        (Batch([1, -1]), "entry 1 has neither a token id nor an embedding"),
        (Batch([1], [0], [[4]]), r"invalid seq_id\[0\]\[0\] = 4 >= 4"),
        (Batch([1, 1], [0, 1], [[0], [0, -1]]), r"invalid seq_id\[1\]\[1\] = -1 >= 4"),
        (Batch([1, 1], [0, 1], [[0], []]), r"seq_id\[1\] is empty"),
        (Batch([1, 2], [0]), "2 tokens but 1 entries in pos"),
        (Batch([1], seq_id=[0, 0]), "1 tokens but 2 entries in seq_id"),
        (Batch([1], logits=[]), "1 tokens but 0 entries in logits"),
        (Batch([1, 1.5]), r"invalid token\[1\] = 1.5: expected an integer, got float"),
        (Batch(["a", 1]), r"invalid token\[0\] = 'a': expected an integer, got str"),
        (Batch([1, [2]]), r"invalid token\[1\] = \[2\]: expected an integer, got list"),
        (Batch([[1], [2]]), r"invalid token\[0\] = \[1\]"),
        (Batch([1, None]), r"invalid token\[1\] = None"),
        (Batch([True, False]), r"invalid token\[0\] = True: expected an integer, got bool"),
        (Batch([2**31]), r"invalid token\[0\] = 2147483648: does not fit in 32 bits"),
        (Batch([2**80]), "does not fit in 32 bits"),
        (Batch([1], [0.5]), r"invalid pos\[0\] = 0.5"),
        (Batch([1], [-1]), r"invalid pos\[0\] = -1"),
        (Batch([1], [0], ["ab"]), r"invalid seq_id\[0\]\[0\] = 'a'"),
        (Batch([1], [0], [[[0]]]), r"invalid seq_id\[0\]\[0\] = \[0\]"),
        (Batch([1], [0], [None]), r"invalid seq_id\[0\]\[0\] = None"),
        (Batch([1], [0], [0], ["yes"]), r"invalid logits\[0\] = 'yes'"),
        (Batch([1], [0], [0], [0.5]), r"invalid logits\[0\] = 0.5"),
        (Batch([1, 1, 1], [0, 1, 3]), "sequence 0 positions are not continuous"),
        (Batch([1, 1, 1], [1, 0, 2]), r"sequence 0 positions are decreasing \(not allowed\)"),
        (
            Batch([1] * 7, [4, 5, 0, 1, 6, 2, 3], [0, 0, 1, 1, 0, 1, 0]),
            "sequence 0 positions are decreasing",
        ),
    ],
)
def test_init_refuses(batch: Batch, message: str) -> None:
    with pytest.raises(BatchError, match=message) as caught:
        allocr(batch)
    assert isinstance(caught.value, DecodeError)
    assert caught.value.code == -1


def test_init_refuses_what_is_not_a_batch() -> None:
    with pytest.raises(BatchError, match=r"expected a Batch, got list: .* Batch.get_one"):
        allocr([1, 2])  # type: ignore[arg-type]


def test_init_refuses_too_many_sequences() -> None:
    with pytest.raises(BatchError, match="n_seq_max = 257 > 256"):
        allocr(Batch([1]), n_seq_max=LLAMA_MAX_SEQ + 1)


@pytest.mark.parametrize(("pos", "y"), [([5], 5), ([3], 3), ([2, 3, 4], 2)])
def test_positions_continue_the_memory(pos: list[int], y: int) -> None:
    with pytest.raises(BatchError, match="inconsistent sequence positions") as caught:
        allocr(Batch([1] * len(pos), pos), memory=Held(s0=(0, 3)))
    assert "X = 3\n" in str(caught.value)
    assert f"Y = {y}\n" in str(caught.value)
    assert "Y = X + 1" in str(caught.value)


def test_a_first_batch_may_start_anywhere() -> None:
    balloc = allocr(Batch([1, 1], [7, 8]), memory=Held())
    assert (balloc.seq_pos_min(0), balloc.seq_pos_max(0)) == (7, 8)


def test_equal_positions_in_a_sequence_are_allowed() -> None:
    assert allocr(Batch([1, 1, 1], [0, 0, 1])).pos.tolist() == [0, 0, 1]


def test_coupled_sequences_must_not_have_diverged() -> None:
    batch = Batch([1], [6], [[0, 1]])
    with pytest.raises(BatchError, match=r"sequence 1 is coupled to 0 .* but have diverged"):
        allocr(batch, memory=Held(s0=(0, 5), s1=(2, 5)))
    allocr(batch, memory=Held(s0=(0, 5), s1=(0, 5)))


def test_a_refused_batch_leaves_the_allocator_as_it_was() -> None:
    balloc = allocr(Batch([1, 2]))
    with pytest.raises(BatchError):
        balloc.init(Batch([1, 2, 300]), n_vocab=100, n_seq_max=4)
    assert balloc.batch == Batch([1, 2], [0, 1], [0, 0], [False, True])


# -- init: what is filled in ---------------------------------------------------------------------


def test_fills_positions_sequence_and_last_flag() -> None:
    balloc = allocr(Batch.get_one([5, 6, 7]), memory=Held(s0=(0, 9)))
    assert balloc.batch == Batch([5, 6, 7], [10, 11, 12], [0, 0, 0], [False, False, True])
    assert (balloc.n_tokens, balloc.n_outputs) == (3, 1)
    assert (balloc.seq_pos_min(0), balloc.seq_pos_max(0)) == (10, 12)
    assert (balloc.seq_pos_min(1), balloc.seq_pos_max(1)) == (-1, -1)


def test_positions_start_at_zero_without_memory() -> None:
    assert allocr(Batch.get_one([5, 6])).pos.tolist() == [0, 1]


def test_positions_are_filled_per_sequence() -> None:
    batch = Batch([5, 6, 7, 8], seq_id=[0, 1, 0, 1])
    assert allocr(batch, memory=Held(s0=(0, 9))).pos.tolist() == [10, 0, 11, 1]


def test_positions_follow_the_first_sequence_of_a_token() -> None:
    balloc = allocr(Batch([5, 6, 7], seq_id=[[1, 2]] * 3), memory=Held(s1=(0, 4), s2=(0, 4)))
    assert balloc.pos.tolist() == [5, 6, 7]


def test_repeated_sequence_ids_of_a_token_count_once() -> None:
    assert allocr(Batch([5], [0], [[1, 1, 0]])).seq_id == [(1, 0)]


def test_flags_are_kept_or_all_set() -> None:
    assert allocr(Batch([5, 6], logits=[1, 0])).output.tolist() == [True, False]
    assert allocr(Batch([5, 6], logits=[0, 0])).n_outputs == 0
    assert allocr(Batch([5, 6], logits=[1, 0]), output_all=True).n_outputs == 2


def test_the_callers_batch_is_left_alone() -> None:
    batch = Batch.get_one([5, 6])
    allocr(batch, memory=Held(s0=(0, 9)))
    assert batch == Batch.get_one([5, 6])


def test_init_steps_show_the_filled_batch_and_take_another() -> None:
    balloc = BatchAllocr()
    steps = balloc.init_steps(Batch.get_one([5, 6]), n_vocab=100, n_seq_max=1, depth=3)
    event = next(steps)
    assert (event.kind, event.name, event.depth, event.step) == ("data", "batch", 3, 10)
    assert event.value == Batch([5, 6], [0, 1], [0, 0], [False, True])
    event.value = Batch.get_one([9])
    assert drain(steps) is None
    assert balloc.token.tolist() == [9]


# -- splits --------------------------------------------------------------------------------------


def test_split_simple_cuts_in_order() -> None:
    balloc = allocr(Batch(range(5)))
    sizes = []
    while (u := balloc.split_simple(2)) is not None:
        sizes.append(u.n_tokens)
        assert not u.equal_seqs
        assert (u.n_seqs, u.n_seq_tokens) == (u.n_tokens, 1)
        assert u.token.tolist() == u.pos.tolist() == u.batch_idxs.tolist()
        assert (u.seq_id_unq, u.n_seqs_unq, u.seq_idx[0]) == ([0], 1, 0)
        assert u.n_seq_id.tolist() == [1] * u.n_tokens
    assert sizes == [2, 2, 1]
    assert balloc.n_used == 5
    assert balloc.out_ids == [4]


def test_split_reset_starts_over() -> None:
    balloc = allocr(Batch(range(3)))
    while balloc.split_simple(1) is not None:
        pass
    balloc.split_reset()
    assert (balloc.n_used, balloc.out_ids) == (0, [])
    assert len(balloc.split_simple(10)) == 3


def test_out_ids_follow_the_ubatches() -> None:
    balloc = allocr(Batch([1] * 4, [0, 0, 1, 1], [0, 1, 0, 1], [1, 1, 0, 1]))
    u = balloc.split_equal(8, sequential=True)
    assert u.batch_idxs.tolist() == [0, 2, 1, 3]
    assert u.output.tolist() == [True, False, True, True]
    assert balloc.out_ids == [0, 1, 3]


def test_split_equal_advances_by_the_shortest() -> None:
    balloc = allocr(lengths(4, 2))
    u = balloc.split_equal(8, sequential=False)
    assert (u.n_tokens, u.n_seq_tokens, u.n_seqs, u.n_seqs_unq, u.equal_seqs) == (4, 2, 2, 2, True)
    assert u.seq_id == [(0,), (0,), (1,), (1,)]
    assert u.pos.tolist() == [0, 1, 0, 1]
    u = balloc.split_equal(8, sequential=False)
    assert (u.n_tokens, u.n_seqs, u.pos.tolist()) == (2, 1, [2, 3])
    assert balloc.split_equal(8, sequential=False) is None
    assert balloc.n_used == 6


def test_split_equal_stays_within_n_ubatch() -> None:
    balloc = allocr(lengths(5, 5, 5))
    shapes = []
    while (u := balloc.split_equal(7, sequential=True)) is not None:
        shapes.append((u.n_seqs, u.n_seq_tokens))
    assert shapes == [(3, 2), (3, 2), (3, 1)]


def test_split_equal_sequential_wants_neighbours() -> None:
    balloc = allocr(Batch([1, 1, 1], [0, 0, 0], [0, 2, 3]))
    assert balloc.split_equal(8, sequential=True).seq_id_unq == [0]
    assert balloc.split_equal(8, sequential=True).seq_id_unq == [2, 3]


def test_split_equal_and_coupled_sequences() -> None:
    balloc = allocr(Batch([1, 1], [0, 1], [[0, 1]] * 2))
    assert balloc.split_equal(4, sequential=True) is None
    assert "coupled sequences" in balloc.split_error
    assert balloc.n_used == 0
    u = balloc.split_equal(4, sequential=False)
    assert (u.n_tokens, u.n_seqs, u.n_seqs_unq) == (2, 1, 2)
    assert u.n_seq_id.tolist() == [2, 2]
    assert u.seq_idx[:3].tolist() == [0, 1, -1]


def test_split_equal_takes_disjoint_sets() -> None:
    balloc = allocr(Batch([1] * 4, [0, 0, 1, 0], [[0, 1], [2], [1], [3]]))
    assert balloc.split_equal(8, sequential=False).seq_id == [(0, 1), (2,), (3,)]
    assert balloc.split_equal(8, sequential=False).seq_id == [(1,)]


@pytest.mark.parametrize(
    ("n_tokens", "n_ubatch", "cuts"),
    [
        ((2, 2), 4, [{0: 2, 1: 2}]),  # both end here
        ((2, 3), 4, [{0: 2}, {1: 3}]),  # 1 of sequence 1 would be left
        ((3, 3), 4, [{0: 3}, {1: 3}]),  # both would leave 1: the first goes on to its end
        ((5,), 4, [{0: 3}, {0: 2}]),  # too long to finish: stop before the tail
        ((6,), 4, [{0: 4}, {0: 2}]),  # enough is left
        ((3, 4), 6, [{0: 3}, {1: 4}]),
    ],
)
def test_split_equal_keeps_tails_together(
    n_tokens: tuple[int, ...], n_ubatch: int, cuts: list[dict[int, int]]
) -> None:
    balloc = allocr(lengths(*n_tokens))
    found = []
    while (u := balloc.split_equal(n_ubatch, True, n_keep_tail=2)) is not None:
        found.append({s: sum(s in seqs for seqs in u.seq_id) for s in u.seq_id_unq})
    assert found == cuts
    assert balloc.n_used == sum(n_tokens)


def test_split_seq_takes_one_sequence_at_a_time() -> None:
    balloc = allocr(lengths(2, 2, 2))
    for s in range(3):
        u = balloc.split_seq(8)
        assert (u.n_tokens, u.n_seqs, u.seq_id_unq) == (2, 1, [s])
    assert balloc.split_seq(8) is None


def test_split_seq_goes_on_with_subsets() -> None:
    balloc = allocr(Batch([1] * 4, [0, 1, 1, 2], [[0, 1], [0], [1], [0]]))
    assert balloc.split_seq(8).batch_idxs.tolist() == [0, 1, 3]
    assert balloc.split_seq(8).batch_idxs.tolist() == [2]
    balloc.split_reset()
    assert balloc.split_seq(2).batch_idxs.tolist() == [0, 1]


@pytest.mark.parametrize("n", [0, -1])
def test_splits_need_a_positive_size(n: int) -> None:
    balloc = allocr(Batch([1]))
    for split in (
        balloc.split_simple,
        balloc.split_seq,
        lambda n: balloc.split_equal(n, sequential=True),
    ):
        with pytest.raises(ValueError, match="n_ubatch"):
            split(n)


def test_reserve() -> None:
    u = Ubatch.reserve(3, 2)
    assert (u.n_tokens, u.n_seq_tokens, u.n_seqs, u.n_seqs_unq, u.equal_seqs) == (6, 3, 2, 2, True)
    assert u.seq_id_unq == [0, 1]
    assert u.pos.tolist() == [0, 1, 2, 0, 1, 2]
    assert "6 tokens = 3 x 2 sequence sets" in repr(u)
