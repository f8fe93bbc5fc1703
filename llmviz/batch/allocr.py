"""Checking a batch, filling it in and cutting it. ↔ src/llama-batch.cpp (llama_batch_allocr)

Knows of the memory only ``seq_pos_min`` and ``seq_pos_max``; changes nothing but itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from llmviz.batch.batch import Batch
from llmviz.batch.checks import (
    LLAMA_MAX_SEQ,
    NO_TOKEN,
    SeqPositions,
    check_n_ubatch,
    check_positions,
    check_seq_ids,
    continued_pos,
    flags,
    int32,
)
from llmviz.batch.ubatch import Ubatch, make_ubatch
from llmviz.errors import BatchError
from llmviz.events import Event, Steps, drain


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

        token = int32("token", batch.token)
        if token.min() < 0 or token.max() >= n_vocab:
            i = int(np.flatnonzero((token < 0) | (token >= n_vocab))[0])
            if token[i] == NO_TOKEN:
                raise BatchError(
                    f"entry {i} has neither a token id nor an embedding (token[{i}] = -1); "
                    f"valid token ids are 0..{n_vocab - 1}"
                )
            raise BatchError(
                f"invalid token[{i}] = {token[i]}; valid token ids are 0..{n_vocab - 1}"
            )

        seq_id: list[tuple[int, ...]] = [(0,)] * n
        if batch.seq_id is not None:
            seq_id = check_seq_ids(batch.seq_id, n_seq_max)

        if batch.logits is None:
            output = np.zeros(n, bool)
            output[-1] = True
        else:
            output = flags(batch.logits)
        if output_all:
            output = np.ones(n, bool)

        if batch.pos is None:
            pos = continued_pos(seq_id, memory)
        else:
            pos = int32("pos", batch.pos)
            if pos.min() < 0:
                i = int(np.argmax(pos < 0))
                raise BatchError(f"invalid pos[{i}] = {pos[i]}; positions start at 0")

        seq_pos = check_positions(pos, seq_id, memory)

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
        check_n_ubatch(n_ubatch)
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
        check_n_ubatch(n_ubatch)
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
        check_n_ubatch(n_ubatch)
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
        return make_ubatch(
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
