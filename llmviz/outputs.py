"""The rows that decode keeps: logits and embeddings of flagged tokens, and which row is whose.

↔ src/llama-context.cpp (output_reserve, output_resolve_row, output_reorder)
"""

from __future__ import annotations

import copy

import numpy as np

from llmviz.ggml.graph import Tensor

__all__ = ["Outputs"]


class Outputs:
    """Output rows of the last decode.

    Parameters
    ----------
    n_vocab, n_embd : int
        Widths of a row of logits and of embeddings.

    Attributes
    ----------
    n_outputs : int
        Rows there are.
    output_ids : ndarray of int32, [n_batch]
        Batch index of a token -> its row, -1 where it has none.
    """

    def __init__(self, n_vocab: int, n_embd: int) -> None:
        self.n_vocab = n_vocab
        self.n_embd = n_embd
        self.n_outputs = 0
        self.output_ids = np.full(0, -1, np.int32)
        self._logits = np.empty((0, n_vocab), np.float32)  # grows to the most rows ever asked for
        self._embd = np.empty((0, n_embd), np.float32)
        self._has_embd = False
        self._decoded = False
        self._next = 0

    def reserve(self, n_outputs: int, n_batch: int, embeddings: bool) -> None:
        """Make room for a batch with `n_outputs` flagged tokens and forget the rows of the one
        before.
        """
        self._logits = _at_least(self._logits, n_outputs)
        if embeddings:
            self._embd = _at_least(self._embd, n_outputs)
        self._has_embd = embeddings
        self.output_ids = np.full(n_batch, -1, np.int32)
        self.n_outputs = self._next = 0
        self._decoded = True

    def copy(self) -> Outputs:
        """An independent copy of the rows there are."""
        other = copy.copy(self)
        n = max(self.n_outputs, self._next)
        other._logits, other._embd = self._logits[:n].copy(), self._embd[:n].copy()
        other.output_ids = self.output_ids.copy()
        return other

    def append(self, logits: Tensor | None, embd: Tensor | None) -> None:
        """Copy the rows of one ubatch."""
        if logits is None or logits.array is None:
            return
        n = logits.ne[1]
        self._logits = _at_least(self._logits, self._next + n)
        self._logits[self._next : self._next + n] = logits.read()
        if self._has_embd and embd is not None and embd.array is not None:
            self._embd = _at_least(self._embd, self._next + n)
            self._embd[self._next : self._next + n] = embd.read()
        self._next += n

    def finish(self, out_ids: list[int]) -> None:
        """Put the rows into the order of the user's batch; `out_ids[row]` is the row's batch
        index.
        """
        self.n_outputs = n = self._next
        order = np.argsort(np.asarray(out_ids[:n], np.int64), kind="stable")
        if not np.array_equal(order, np.arange(n)):
            self._logits[:n] = self._logits[:n][order]
            if self._has_embd:
                self._embd[:n] = self._embd[:n][order]
        for row, source in enumerate(order):
            self.output_ids[out_ids[source]] = row

    def logits_view(self) -> np.ndarray:
        """All rows, float32 ``[n_outputs, n_vocab]``, read-only."""
        view = self._logits[: self.n_outputs]
        view.flags.writeable = False
        return view

    def replace_logits(self, value: np.ndarray) -> None:
        """Put other values in place of all rows."""
        self._logits[: self.n_outputs] = value

    def logits_ith(self, i: int) -> np.ndarray:
        """See `llmviz.context.Context.get_logits_ith`."""
        return self._logits[self._resolve_row("get_logits_ith", i)]

    def embeddings_ith(self, i: int) -> np.ndarray:
        """See `llmviz.context.Context.get_embeddings_ith`."""
        if self._decoded and not self._has_embd:
            raise IndexError(
                f"get_embeddings_ith: invalid embeddings id {i}, reason: no embeddings; make the "
                "context with embeddings=True"
            )
        return self._embd[self._resolve_row("get_embeddings_ith", i)]

    def _resolve_row(self, who: str, i: int) -> int:
        what = "embeddings" if "embeddings" in who else "logits"
        if not self._decoded:
            reason = f"no {what}: nothing was decoded yet"
        elif i < 0:
            if self.n_outputs + i >= 0:
                return self.n_outputs + i
            reason = f"negative index out of range [0, {self.n_outputs})"
        elif i >= len(self.output_ids):
            reason = f"out of range [0, {len(self.output_ids)})"
        elif self.output_ids[i] < 0:
            reason = f"batch.logits[{i}] != true"
        else:
            return int(self.output_ids[i])
        raise IndexError(f"{who}: invalid {what} id {i}, reason: {reason}")


def _at_least(rows: np.ndarray, n: int) -> np.ndarray:
    """`rows` with room for `n` of them, the ones there are kept."""
    if len(rows) >= n:
        return rows
    grown = np.empty((n, rows.shape[1]), rows.dtype)
    grown[: len(rows)] = rows
    return grown
