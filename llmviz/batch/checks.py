"""What a batch must fulfil, entry by entry. ↔ src/llama-batch.cpp (llama_batch_allocr::init)

Pure functions; each refuses with the entry's index, its value and what is allowed.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from llmviz.errors import BatchError

LLAMA_MAX_SEQ = 256
"""The largest number of sequences that one context can tell apart."""

_INT32_MAX = 2**31 - 1
NO_TOKEN = -1


class SeqPositions(Protocol):
    """What `BatchAllocr.init` asks a memory: first and last position held per sequence."""

    def seq_pos_min(self, seq_id: int) -> int:
        """First position held for a sequence, -1 when it holds none."""

    def seq_pos_max(self, seq_id: int) -> int:
        """Last position held for a sequence, -1 when it holds none."""


def as_list(name: str, value: Any) -> list:
    """Return a list of a batch field's entries, whatever sequence was given."""
    if isinstance(value, np.ndarray) and value.ndim:
        return value.tolist()
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        raise BatchError(
            f"{name} must be a sequence with one entry per token, got {type(value).__name__}"
        )
    return list(value)


def as_seq_ids(value: Any) -> tuple:
    """Return the sequences of one token as a tuple."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    return tuple(value) if hasattr(value, "__iter__") else (value,)


def int32(name: str, values: Sequence[int]) -> np.ndarray:
    """List of integers as int32[n]; the first entry that is not one is named in the error."""
    try:
        array = np.array(values)
    except ValueError:  # entries of unequal lengths
        array = np.empty(0, object)
    # min/max rather than a cast that might wrap
    if (
        array.ndim != 1
        or array.dtype.kind not in "iu"
        or max(-array.min(), array.max()) > _INT32_MAX
    ):
        for i, value in enumerate(values):
            _check_int(f"{name}[{i}]", value)
        raise BatchError(f"{name} must hold integers, got {values!r:.80}")
    return array.astype(np.int32)


def _check_int(what: str, value: object) -> None:
    if isinstance(value, bool | np.bool_):
        raise BatchError(f"invalid {what} = {value!r}: expected an integer, got bool")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise BatchError(
            f"invalid {what} = {value!r:.80}: expected an integer, got {type(value).__name__}"
        ) from None
    if abs(number) > _INT32_MAX:
        raise BatchError(f"invalid {what} = {number}: does not fit in 32 bits")


def flags(values: Sequence[bool]) -> np.ndarray:
    """Return output flags as bool[n_tokens]."""
    for i, value in enumerate(values):
        if not isinstance(value, bool | int | np.bool_ | np.integer):
            raise BatchError(
                f"invalid logits[{i}] = {value!r:.80}: expected true or false, "
                f"got {type(value).__name__}"
            )
    return np.array(values, bool)


def check_n_ubatch(n_ubatch: int) -> None:
    """Refuse a ubatch size below one."""
    if n_ubatch < 1:
        raise ValueError(f"n_ubatch must be at least 1, got {n_ubatch}")


def check_seq_ids(seq_id: list[tuple[int, ...]], n_seq_max: int) -> list[tuple[int, ...]]:
    """Each distinct entry checked once; repeats within an entry dropped."""
    clean: dict[tuple[int, ...], tuple[int, ...]] = {}
    result = []
    for i, seqs in enumerate(seq_id):
        try:
            known = clean.get(seqs) if isinstance(seqs, tuple) else None
        except TypeError:  # holds something unhashable
            known = None
        if known is None:
            known = clean[seqs] = _check_seq_id(i, seqs, n_seq_max)
        result.append(known)
    return result


def _check_seq_id(i: int, seqs: tuple[int, ...], n_seq_max: int) -> tuple[int, ...]:
    if not isinstance(seqs, tuple):
        raise BatchError(
            f"invalid seq_id[{i}] = {seqs!r:.80}: expected a tuple of sequence ids, "
            f"got {type(seqs).__name__}"
        )
    if not seqs:
        raise BatchError(f"seq_id[{i}] is empty: every token needs at least one sequence id")
    for j, s in enumerate(seqs):
        _check_int(f"seq_id[{i}][{j}]", s)
        if s < 0 or s >= n_seq_max:
            raise BatchError(
                f"invalid seq_id[{i}][{j}] = {s} >= {n_seq_max}; "
                f"valid sequence ids are 0..{n_seq_max - 1} (n_seq_max = {n_seq_max})"
            )
    return tuple(dict.fromkeys(int(s) for s in seqs))


def continued_pos(seq_id: list[tuple[int, ...]], memory: SeqPositions | None) -> np.ndarray:
    """Positions that continue each token's first sequence."""
    after = {
        seqs[0]: (memory.seq_pos_max(seqs[0]) if memory is not None else -1) + 1
        for seqs in set(seq_id)
    }
    if len(after) == 1:
        start = after[seq_id[0][0]]
        return np.arange(start, start + len(seq_id), dtype=np.int32)
    pos = np.empty(len(seq_id), np.int32)
    for i, seqs in enumerate(seq_id):
        pos[i] = after[seqs[0]]
        after[seqs[0]] += 1
    return pos


def check_positions(
    pos: np.ndarray, seq_id: list[tuple[int, ...]], memory: SeqPositions | None
) -> dict[int, tuple[int, int]]:
    """Refuse positions that do not continue the memory, have holes or go back.

    Returns first and last position per sequence.

    llama.cpp also means to refuse sequence sets that overlap in part, but its check can never fire
    (each set it intersects contains the sequence in question), so such batches pass there and here.
    """
    sets = set(seq_id)
    members: dict[int, Any] = {s: slice(None) for seqs in sets for s in seqs}
    if len(sets) > 1:
        members = {s: [] for s in members}
        for i, seqs in enumerate(seq_id):
            for s in seqs:
                members[s].append(i)

    limits: dict[int, tuple[int, int]] = {}
    decreasing = -1
    for s in sorted(members):
        p = pos[members[s]]
        steps = np.diff(p)
        if steps.size and steps.min() < 0:
            decreasing = s if decreasing < 0 else decreasing
            p = np.sort(p)
            steps = np.diff(p)
        first, last = int(p[0]), int(p[-1])
        limits[s] = (first, last)
        held = memory.seq_pos_max(s) if memory is not None else -1
        if held >= 0 and first != held + 1:
            raise BatchError(
                f"the tokens of sequence {s} in the input batch have inconsistent sequence "
                f"positions:\n - the last position stored in the memory module of the context "
                f"(i.e. the KV cache) for sequence {s} is X = {held}\n"
                f" - the tokens for sequence {s} in the input batch have a starting position of "
                f"Y = {first}\n"
                f" it is required that the sequence positions remain consecutive: Y = X + 1"
            )
        if steps.size and steps.max() > 1:
            raise BatchError(f"sequence {s} positions are not continuous")

    if memory is not None:
        for s1, s0 in sorted({(s, seqs[0]) for seqs in sets for s in seqs[1:]}):
            if memory.seq_pos_min(s0) != memory.seq_pos_min(s1) or (
                memory.seq_pos_max(s0) != memory.seq_pos_max(s1)
            ):
                raise BatchError(
                    f"sequence {s1} is coupled to {s0} in the input batch, but have diverged"
                )
    if decreasing >= 0:
        raise BatchError(f"sequence {decreasing} positions are decreasing (not allowed)")
    return limits
