"""The micro-batch: tokens that the graph computes in one go. ↔ src/llama-batch.h (llama_ubatch)"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmviz.batch.checks import LLAMA_MAX_SEQ


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
        return make_ubatch(
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


def make_ubatch(
    token: np.ndarray,
    pos: np.ndarray,
    seq_id: list[tuple[int, ...]],
    output: np.ndarray,
    batch_idxs: np.ndarray,
    n_seqs: int,
    equal_seqs: bool,
) -> Ubatch:
    """Return a ubatch over tokens that were taken from a batch."""
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
