"""Batches and how they are cut into ubatches. ↔ src/llama-batch.h, src/llama-batch.cpp

A `Batch` is what the caller hands to decode: tokens, each with a position, the sequences it belongs
to and whether its logits are wanted. `BatchAllocr` checks it, fills in what was left out and cuts
it into `Ubatch` pieces that the graph can process in one go.

Does not do: token embeddings as input, several positions per token (M-RoPE). Knows of the memory
only ``seq_pos_min`` and ``seq_pos_max``; changes nothing but itself.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from llmviz.errors import BatchError
from llmviz.events import Event, Steps, drain

__all__ = ["LLAMA_MAX_SEQ", "Batch", "BatchAllocr", "SeqPositions", "Ubatch"]

LLAMA_MAX_SEQ = 256
"""The largest number of sequences that one context can tell apart."""

_INT32_MAX = 2**31 - 1
_NO_TOKEN = -1


class SeqPositions(Protocol):
    """What `BatchAllocr.init` asks a memory: first and last position held per sequence."""

    def seq_pos_min(self, seq_id: int) -> int:
        """First position held for a sequence, -1 when it holds none."""

    def seq_pos_max(self, seq_id: int) -> int:
        """Last position held for a sequence, -1 when it holds none."""


class Batch:
    """Tokens to decode, with their positions, sequences and output flags.

    Plain lists that may be read and changed freely; `BatchAllocr.init` checks them when the batch
    is used.

    Parameters
    ----------
    token : sequence of int, optional
        Token ids.
    pos : sequence of int, optional
        Position of each token in its sequences. None: each sequence continues after what the memory
        holds.
    seq_id : sequence of (int or sequence of int), optional
        The sequences that each token belongs to. None: all tokens are in sequence 0.
    logits : sequence of bool, optional
        True where the token's logits are wanted. None: only for the last token.
    """

    __slots__ = ("logits", "pos", "seq_id", "token")

    token: list[int]
    pos: list[int] | None
    seq_id: list[tuple[int, ...]] | None
    logits: list[bool] | None

    def __init__(
        self,
        token: Iterable[int] | None = None,
        pos: Iterable[int] | None = None,
        seq_id: Iterable[int | Iterable[int]] | None = None,
        logits: Iterable[bool] | None = None,
    ) -> None:
        self.token = [] if token is None else _as_list("token", token)
        self.pos = None if pos is None else _as_list("pos", pos)
        self.seq_id = None
        if seq_id is not None:
            self.seq_id = [_as_seq_ids(s) for s in _as_list("seq_id", seq_id)]
        self.logits = None if logits is None else _as_list("logits", logits)

    @classmethod
    def get_one(cls, tokens: Iterable[int]) -> Batch:
        """Tokens that continue sequence 0, logits for the last (``llama_batch_get_one``)."""
        return cls(token=tokens)

    def add(
        self,
        token: int,
        pos: int | None = None,
        seq_ids: int | Iterable[int] | None = None,
        logits: bool | None = None,
    ) -> None:
        """Append one token.

        An entry names the same things as those before it: a position, sequences or an output flag
        is given for every token of a batch or for none.

        Raises
        ------
        BatchError
            The entry gives what earlier ones left out, or leaves out what they gave.
        """
        i = len(self.token)
        given = {"pos": pos, "seq_id": seq_ids, "logits": logits}
        for name, value in given.items():
            have = getattr(self, name)
            if i and (value is None) != (have is None):
                raise BatchError(
                    f"{name}[{i}] is {'missing' if value is None else 'given'}, but the {i} "
                    f"earlier tokens of this batch are {'without' if have is None else 'with'} it: "
                    "give it for every token or for none"
                )
        for name, value in given.items():
            if value is None:
                continue
            if getattr(self, name) is None:
                setattr(self, name, [])
            getattr(self, name).append(_as_seq_ids(value) if name == "seq_id" else value)
        self.token.append(token)

    def clear(self) -> None:
        """Remove all tokens; what was given per token may be chosen anew."""
        self.token = []
        self.pos = self.seq_id = self.logits = None

    @property
    def n_tokens(self) -> int:
        """Number of tokens."""
        return len(self.token)

    def __len__(self) -> int:
        return len(self.token)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Batch):
            return NotImplemented
        return all(getattr(self, f) == getattr(other, f) for f in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        parts = [f"{self.n_tokens} token{'' if self.n_tokens == 1 else 's'}"]
        for name, default in (
            ("token", ""),
            ("pos", "continue"),
            ("seq_id", "0"),
            ("logits", "last only"),
        ):
            value = getattr(self, name)
            if value is None:
                parts.append(f"{name}: {default}")
                continue
            shown = ", ".join(
                str(list(v)) if isinstance(v, tuple) else repr(int(v) if isinstance(v, bool) else v)
                for v in value[:8]
            )
            more = f", ... {len(value) - 8} more" if len(value) > 8 else ""
            parts.append(f"{name}: [{shown}{more}]")
        return f"<Batch {'; '.join(parts)}>"


@dataclass(slots=True, eq=False)
class Ubatch:
    """A piece of a batch that is computed in one go (``llama_ubatch``).

    Attributes
    ----------
    token, pos : numpy.ndarray
        int32[n_tokens].
    seq_id : list of tuple of int
        The sequences of each token.
    n_seq_id : numpy.ndarray
        int32[n_tokens], how many sequences each token has.
    seq_id_unq : list of int
        The sequences that occur, ascending.
    seq_idx : numpy.ndarray
        int32[LLAMA_MAX_SEQ], place of each sequence in `seq_id_unq`, -1 where it does not occur.
    output : numpy.ndarray
        bool[n_tokens], true where logits are wanted.
    n_tokens, n_seq_tokens, n_seqs, n_seqs_unq : int
        ``n_tokens = n_seq_tokens * n_seqs``; `n_seqs` counts sequence *sets*, `n_seqs_unq`
        sequences.
    equal_seqs : bool
        The tokens are grouped: `n_seqs` runs of `n_seq_tokens` tokens of one sequence set each.
    batch_idxs : numpy.ndarray
        int32[n_tokens], index of each token in the batch.
    """

    token: np.ndarray
    pos: np.ndarray
    seq_id: list[tuple[int, ...]]
    n_seq_id: np.ndarray
    seq_id_unq: list[int]
    seq_idx: np.ndarray
    output: np.ndarray
    n_tokens: int
    n_seq_tokens: int
    n_seqs: int
    n_seqs_unq: int
    equal_seqs: bool
    batch_idxs: np.ndarray

    @classmethod
    def reserve(cls, n_seq_tokens: int, n_seqs: int) -> Ubatch:
        """`n_seqs` sequences of `n_seq_tokens` tokens, to size a graph (``ubatch_reserve``)."""
        n = n_seq_tokens * n_seqs
        return _make_ubatch(
            token=np.zeros(n, np.int32),
            pos=np.tile(np.arange(n_seq_tokens, dtype=np.int32), n_seqs),
            seq_id=[(s,) for s in range(n_seqs) for _ in range(n_seq_tokens)],
            output=np.zeros(n, bool),
            batch_idxs=np.arange(n, dtype=np.int32),
            n_seqs=n_seqs,
            equal_seqs=True,
        )

    def __len__(self) -> int:
        return self.n_tokens

    def __repr__(self) -> str:
        n = self.n_tokens
        pos = f"{self.pos[0]}..{self.pos[-1]}" if n else "-"
        return (
            f"<Ubatch {n} token{'' if n == 1 else 's'} = {self.n_seq_tokens} x {self.n_seqs} "
            f"sequence set{'' if self.n_seqs == 1 else 's'}; pos: {pos}; "
            f"sequences: {self.seq_id_unq}; outputs: {int(self.output.sum())}>"
        )


def _make_ubatch(
    token: np.ndarray,
    pos: np.ndarray,
    seq_id: list[tuple[int, ...]],
    output: np.ndarray,
    batch_idxs: np.ndarray,
    n_seqs: int,
    equal_seqs: bool,
) -> Ubatch:
    n = len(token)
    seq_id_unq = sorted({s for seqs in set(seq_id) for s in seqs})
    seq_idx = np.full(LLAMA_MAX_SEQ, -1, np.int32)
    seq_idx[seq_id_unq] = np.arange(len(seq_id_unq), dtype=np.int32)
    return Ubatch(
        token=token,
        pos=pos,
        seq_id=seq_id,
        n_seq_id=np.fromiter(map(len, seq_id), np.int32, n),
        seq_id_unq=seq_id_unq,
        seq_idx=seq_idx,
        output=output,
        n_tokens=n,
        n_seq_tokens=n // n_seqs,
        n_seqs=n_seqs,
        n_seqs_unq=len(seq_id_unq),
        equal_seqs=equal_seqs,
        batch_idxs=batch_idxs,
    )


@dataclass(slots=True, eq=False)
class BatchAllocr:
    """Checks a batch, fills in what was left out, and cuts it up (``llama_batch_allocr``).

    Call `init`, then one of the ``split_*`` functions until it returns None. `split_reset` starts
    the cutting over.

    Attributes
    ----------
    token, pos : numpy.ndarray
        int32[n_tokens], filled.
    seq_id : list of tuple of int
        Filled, without repeats.
    output : numpy.ndarray
        bool[n_tokens], filled.
    n_tokens, n_outputs, n_used : int
        Tokens in the batch, flagged ones, and those that are already in an ubatch.
    out_ids : list of int
        Batch index of each flagged token, in the order in which the ubatches hold them.
    split_error : str
        Why the last ``split_*`` gave up before all tokens were used; empty when it did not.
    """

    token: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    pos: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    seq_id: list[tuple[int, ...]] = field(default_factory=list)
    output: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    n_tokens: int = 0
    n_outputs: int = 0
    n_used: int = 0
    out_ids: list[int] = field(default_factory=list)
    split_error: str = ""
    _used: bytearray = field(default_factory=bytearray)
    _has_cpl: bool = False
    _seq_pos: dict[int, tuple[int, int]] = field(default_factory=dict)
    _seq_set_map: dict[frozenset[int], list[int]] = field(default_factory=dict)

    # -- init ------------------------------------------------------------------------------------

    def init(
        self,
        batch: Batch,
        *,
        n_vocab: int,
        n_seq_max: int,
        memory: SeqPositions | None = None,
        output_all: bool = False,
    ) -> None:
        """Check `batch` and take it over, filled; see `init_steps`."""
        drain(
            self.init_steps(
                batch, n_vocab=n_vocab, n_seq_max=n_seq_max, memory=memory, output_all=output_all
            )
        )

    def init_steps(
        self,
        batch: Batch,
        *,
        n_vocab: int,
        n_seq_max: int,
        memory: SeqPositions | None = None,
        output_all: bool = False,
        depth: int = 0,
    ) -> Steps[None]:
        """Check `batch` and take it over, with positions, sequences and output flags filled in.

        Yields one ``data`` event ``batch`` (step 10) whose value is the filled `Batch`; a `Batch`
        that is assigned to it is checked and taken instead.

        Parameters
        ----------
        batch : Batch
            Left as it is.
        n_vocab, n_seq_max : int
            Token ids are below `n_vocab`, sequence ids below `n_seq_max`.
        memory : object with seq_pos_min and seq_pos_max, optional
            What is already held; positions continue it.
        output_all : bool
            Flag every token (embeddings of all tokens are wanted).

        Raises
        ------
        BatchError
            The batch cannot be decoded; nothing was changed in the memory.
        """
        self._init(batch, n_vocab, n_seq_max, memory, output_all)
        event = Event("data", "batch", depth, 10, filled := self.batch)
        yield event
        if event.value is not filled:
            self._init(event.value, n_vocab, n_seq_max, memory, output_all)

    def _init(
        self,
        batch: Batch,
        n_vocab: int,
        n_seq_max: int,
        memory: SeqPositions | None,
        output_all: bool,
    ) -> None:
        if not isinstance(batch, Batch):
            raise BatchError(
                f"expected a Batch, got {type(batch).__name__}: "
                "wrap token ids as Batch.get_one(ids)"
            )
        if n_seq_max > LLAMA_MAX_SEQ:
            raise BatchError(f"n_seq_max = {n_seq_max} > {LLAMA_MAX_SEQ}")
        n = len(batch.token)
        if n == 0:
            raise BatchError("n_tokens == 0: the batch is empty, add at least one token")
        for name in ("pos", "seq_id", "logits"):
            value = getattr(batch, name)
            if value is not None and len(value) != n:
                raise BatchError(f"the batch has {n} tokens but {len(value)} entries in {name}")

        token = _int32("token", batch.token)
        if token.min() < 0 or token.max() >= n_vocab:
            i = int(np.flatnonzero((token < 0) | (token >= n_vocab))[0])
            if token[i] == _NO_TOKEN:
                raise BatchError(
                    f"entry {i} has neither a token id nor an embedding (token[{i}] = -1); "
                    f"valid token ids are 0..{n_vocab - 1}"
                )
            raise BatchError(
                f"invalid token[{i}] = {token[i]}; valid token ids are 0..{n_vocab - 1}"
            )

        seq_id: list[tuple[int, ...]] = [(0,)] * n
        if batch.seq_id is not None:
            seq_id = _check_seq_ids(batch.seq_id, n_seq_max)

        if batch.logits is None:
            output = np.zeros(n, bool)
            output[-1] = True
        else:
            output = _flags(batch.logits)
        if output_all:
            output = np.ones(n, bool)

        if batch.pos is None:
            pos = _continued_pos(seq_id, memory)
        else:
            pos = _int32("pos", batch.pos)
            if pos.min() < 0:
                i = int(np.argmax(pos < 0))
                raise BatchError(f"invalid pos[{i}] = {pos[i]}; positions start at 0")

        seq_pos = _check_positions(pos, seq_id, memory)

        self.token, self.pos, self.seq_id, self.output = token, pos, seq_id, output
        self.n_tokens = n
        self.n_outputs = int(output.sum())
        self._seq_pos = seq_pos
        self._seq_set_map = {}
        self._has_cpl = any(len(s) > 1 for s in seq_id)
        self.split_reset()

    @property
    def batch(self) -> Batch:
        """The filled batch, as a copy."""
        return Batch(
            self.token.tolist(), self.pos.tolist(), list(self.seq_id), self.output.tolist()
        )

    def seq_pos_min(self, seq_id: int) -> int:
        """First position of a sequence in this batch, -1 when it does not occur."""
        return self._seq_pos.get(seq_id, (-1, -1))[0]

    def seq_pos_max(self, seq_id: int) -> int:
        """Last position of a sequence in this batch, -1 when it does not occur."""
        return self._seq_pos.get(seq_id, (-1, -1))[1]

    # -- split -----------------------------------------------------------------------------------

    def split_reset(self) -> None:
        """Start cutting from the first token again."""
        self.out_ids = []
        self.n_used = 0
        self.split_error = ""
        self._used = bytearray(self.n_tokens)

    def split_simple(self, n_ubatch: int) -> Ubatch | None:
        """Cut off the next `n_ubatch` tokens in batch order; None when all are used."""
        _check_n_ubatch(n_ubatch)
        first = self._used.find(0)
        if first < 0:
            return None
        idxs = np.arange(first, min(first + n_ubatch, self.n_tokens), dtype=np.int32)
        self._use(idxs)
        return self._ubatch_add(idxs, n_seqs=len(idxs), equal_seqs=False)

    def split_equal(self, n_ubatch: int, sequential: bool, n_keep_tail: int = 0) -> Ubatch | None:
        """Cut off the same number of tokens from each of several non-overlapping sequence sets.

        Parameters
        ----------
        n_ubatch : int
            Most tokens to take. As in llama.cpp the number of sets taken may pass it by one.
        sequential : bool
            Take only sets whose first sequence ids follow each other (s, s + 1, ...). Refused (None
            with `split_error`) when a token of the batch belongs to several sequences.
        n_keep_tail : int
            Never part the last `n_keep_tail` tokens of a sequence.

        Returns
        -------
        Ubatch or None
            None when all tokens are used or the split is refused.
        """
        _check_n_ubatch(n_ubatch)
        if n_keep_tail >= n_ubatch:
            raise ValueError(f"n_keep_tail = {n_keep_tail} must be below n_ubatch = {n_ubatch}")
        if sequential and self._has_cpl:
            self.split_error = (
                "sequential split is not supported when there are coupled sequences in the input "
                "batch: a token that belongs to several sequences needs kv_unified=True"
            )
            return None

        taken_sets = self._disjoint_sets(n_ubatch, sequential)
        if not taken_sets:
            return None
        waiting = {s: [i for i in self._set_tokens(s) if not self._used[i]] for s in taken_sets}
        # every set gives the same number, at least one, while the sum stays within n_ubatch
        n_each = min(max(1, n_ubatch // len(taken_sets)), min(map(len, waiting.values())))
        parts = [waiting[s][:n_each] for s in taken_sets]
        if n_keep_tail > 0:
            parts = _keep_tail(parts, list(waiting.values()), n_ubatch, n_keep_tail)
        idxs = np.array([i for part in parts for i in part], np.int32)
        self._use(idxs)
        return self._ubatch_add(idxs, n_seqs=len(parts), equal_seqs=True)

    def split_seq(self, n_ubatch: int) -> Ubatch | None:
        """Cut off tokens of one sequence set (or ever smaller subsets); None when all are used."""
        _check_n_ubatch(n_ubatch)
        first = self._used.find(0)
        if first < 0:
            return None
        cur = set(self.seq_id[first])
        idxs = [first]
        for i in range(first + 1, self.n_tokens):
            if len(idxs) >= n_ubatch:
                break
            if not self._used[i] and cur.issuperset(self.seq_id[i]):
                idxs.append(i)
                cur = set(self.seq_id[i])
        self._use(idxs)
        return self._ubatch_add(np.array(idxs, np.int32), n_seqs=1, equal_seqs=True)

    def _disjoint_sets(self, n_ubatch: int, sequential: bool) -> list[frozenset[int]]:
        sets: list[frozenset[int]] = []
        members: set[int] = set()
        last = -1
        for i, seqs in enumerate(self.seq_id):
            if self._used[i] or not members.isdisjoint(seqs):
                continue
            if sequential and sets and seqs[0] != last + 1:
                continue
            sets.append(frozenset(seqs))
            members.update(seqs)
            last = seqs[0]
            if len(sets) > n_ubatch:
                break
        return sets

    def _set_tokens(self, seq_set: frozenset[int]) -> list[int]:
        """Batch indices of the tokens that belong to exactly these sequences."""
        if not self._seq_set_map:
            for i, seqs in enumerate(self.seq_id):
                self._seq_set_map.setdefault(frozenset(seqs), []).append(i)
        return self._seq_set_map[seq_set]

    def _use(self, idxs: Iterable[int]) -> None:
        for i in idxs:
            self.n_used += not self._used[i]
            self._used[i] = 1

    def _ubatch_add(self, idxs: np.ndarray, n_seqs: int, equal_seqs: bool) -> Ubatch:
        output = self.output[idxs]
        self.out_ids += idxs[output].tolist()
        return _make_ubatch(
            token=self.token[idxs],
            pos=self.pos[idxs],
            seq_id=[self.seq_id[i] for i in idxs.tolist()],
            output=output,
            batch_idxs=idxs,
            n_seqs=n_seqs,
            equal_seqs=equal_seqs,
        )


def _keep_tail(
    parts: list[list[int]], waiting: list[list[int]], n_ubatch: int, n_keep_tail: int
) -> list[list[int]]:
    """Drop or resize the parts that would leave a piece of a sequence's tail behind."""
    kept = 0
    for part, wait in zip(parts, waiting, strict=True):
        if 0 < len(wait) - len(part) < n_keep_tail:
            break
        kept += 1
    if kept:
        return parts[:kept]
    # none is fine: the first sequence goes alone, either to its end or short of its tail
    if len(waiting[0]) <= n_ubatch:
        return [waiting[0]]
    return [waiting[0][: len(waiting[0]) - n_keep_tail]]


# -- checks --------------------------------------------------------------------------------------


def _check_n_ubatch(n_ubatch: int) -> None:
    if n_ubatch < 1:
        raise ValueError(f"n_ubatch must be at least 1, got {n_ubatch}")


def _as_list(name: str, value: Any) -> list:
    if isinstance(value, np.ndarray) and value.ndim:
        return value.tolist()
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        raise BatchError(
            f"{name} must be a sequence with one entry per token, got {type(value).__name__}"
        )
    return list(value)


def _as_seq_ids(value: Any) -> tuple:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    return tuple(value) if hasattr(value, "__iter__") else (value,)


def _int32(name: str, values: Sequence[int]) -> np.ndarray:
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


def _flags(values: Sequence[bool]) -> np.ndarray:
    for i, value in enumerate(values):
        if not isinstance(value, bool | int | np.bool_ | np.integer):
            raise BatchError(
                f"invalid logits[{i}] = {value!r:.80}: expected true or false, "
                f"got {type(value).__name__}"
            )
    return np.array(values, bool)


def _check_seq_ids(seq_id: list[tuple[int, ...]], n_seq_max: int) -> list[tuple[int, ...]]:
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


def _continued_pos(seq_id: list[tuple[int, ...]], memory: SeqPositions | None) -> np.ndarray:
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


def _check_positions(
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
