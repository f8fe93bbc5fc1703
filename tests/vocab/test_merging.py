"""The merge loop: against a plain one, and as a film."""

from __future__ import annotations

import time
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from llmviz.events import drain
from llmviz.vocab.merging import Film, join_best, join_steps


def plain(parts: list[bytes], priority) -> list[bytes]:
    """The same by looking at all pairs every time: O(n²)."""
    parts = list(parts)
    while True:
        pairs = [(priority(a, b), i) for i, (a, b) in enumerate(pairwise(parts))]
        pairs = [pair for pair in pairs if pair[0] is not None]
        if not pairs:
            return parts
        _, i = min(pairs)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


def joined(parts: list[bytes], priority) -> list[bytes]:
    parts = list(parts)
    for _ in join_best(parts, priority):
        pass
    return [part for part in parts if part]


@given(
    st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=24),
    st.dictionaries(
        st.text("abc", min_size=2, max_size=5).map(str.encode), st.integers(0, 4), max_size=20
    ),
)
def test_like_a_plain_loop(parts, ranks):
    """Priorities by the result, many of them equal: ties go to the left."""

    def priority(a, b):
        return ranks.get(a + b)

    assert joined(parts, priority) == plain(parts, priority)


@given(
    st.lists(st.sampled_from([b"a", b"b"]), max_size=20),
    st.lists(
        st.tuples(st.text("ab", min_size=1, max_size=3), st.text("ab", min_size=1, max_size=3))
    ),
)
def test_priorities_by_the_pair(parts, merges):
    ranks = {(a.encode(), b.encode()): i for i, (a, b) in enumerate(merges)}

    def priority(a, b):
        return ranks.get((a, b))

    assert joined(parts, priority) == plain(parts, priority)


def test_nothing_to_join():
    for parts in ([], [b"a"], [b"a", b"b"]):
        assert joined(parts, lambda a, b: None) == parts


def test_film_shows_every_state():
    ranks = {b"l l": 0, b"h e": 1, b"he ll": 2, b"hell o": 3}
    parts = [bytes([b]) for b in b"hello"]
    merges = []
    steps = join_steps(
        parts,
        lambda a, b: ranks.get(a + b" " + b),
        lambda text: 7 if text == b"hello" else -1,
        ranked=True,
        word=3,
        depth=2,
    )
    for event in steps:
        assert (event.kind, event.name, event.depth, event.step) == ("data", "merge", 2, 9)
        merges.append(event.value)
    assert [m.symbols for m in merges] == [
        ["h", "e", "ll", "o"],
        ["he", "ll", "o"],
        ["hell", "o"],
        ["hello"],
    ]
    assert [(m.left, m.right, m.result) for m in merges] == [
        ("l", "l", "ll"),
        ("h", "e", "he"),
        ("he", "ll", "hell"),
        ("hell", "o", "hello"),
    ]
    assert [m.position for m in merges] == [2, 0, 0, 0]
    assert [m.rank for m in merges] == [0, 1, 2, 3]
    assert [m.id for m in merges] == [-1, -1, -1, 7]
    assert {m.score for m in merges} == {None}
    assert {m.word for m in merges} == {3}
    assert merges[0].film.symbols(0) == list("hello")


@given(st.lists(st.sampled_from([b"a", b"b"]), min_size=1, max_size=16))
def test_each_state_follows_from_the_one_before(parts):
    initial = list(parts)
    state = [p.decode() for p in initial]
    steps = join_steps(parts, lambda a, b: len(a + b), lambda t: -1, ranked=True, word=0, depth=0)
    for event in steps:
        merge = event.value
        at = merge.position
        assert state[at : at + 2] == [merge.left, merge.right]
        state[at : at + 2] = [merge.result]
        assert merge.symbols == state
    assert len(state) == 1


def test_film_of_nothing():
    assert Film(0, ()).symbols(0) == []


def test_bytes_that_are_no_character_are_shown_as_hex():
    parts = [b"\xf0", b"\x9f"]
    (event,) = list(
        join_steps(parts, lambda a, b: 1.5, lambda t: -1, ranked=False, word=0, depth=0)
    )
    assert event.value.result == "\\xf0\\x9f"
    assert event.value.score == -1.5
    assert event.value.rank is None


def test_50000_symbols_take_seconds():
    parts = [b"a"] * 50_000
    start = time.process_time()
    lengths = {2: 0, 4: 1, 8: 2, 16: 3}
    steps = join_steps(
        parts,
        lambda a, b: lengths.get(len(a) + len(b)) if len(a) == len(b) else None,
        lambda t: -1,
        ranked=True,
        word=0,
        depth=0,
    )
    drain(steps)
    assert time.process_time() - start < 5
    assert [len(p) for p in parts if p] == [16] * 3125
