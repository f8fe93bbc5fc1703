"""The built-in model in llmviz's own engine: logits, attention, and heads switched off."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import llmviz
from llmviz.trace.interventions import ablated
from training.builtin.answers import Score, asked, encoded
from training.builtin.corpus import Document
from training.builtin.tokenizer import Tokenizer


class Part(NamedTuple):
    """Heads of a layer, or (no heads) its feed-forward network: what can be switched off."""

    layer: int
    heads: tuple[int, ...]

    @property
    def node(self) -> str:
        """The node that holds its output."""
        return f"kqv_out-{self.layer}" if self.heads else f"ffn_out-{self.layer}"

    def silenced(self, value: np.ndarray, n_head: int) -> np.ndarray:
        """The node's value without what this part has written into it."""
        if not self.heads:
            return np.zeros_like(value)
        return ablated(self.heads, n_head)(np.array(value), None)

    def __str__(self) -> str:
        return "+".join(f"{self.layer}.{h}" for h in self.heads) or f"{self.layer}.ffn"


class Engine:
    """A model file, ready to be asked.

    Parameters
    ----------
    path : str or path
        A GGUF, or a name that `llmviz.load` knows.
    """

    def __init__(self, path: str | Path = "builtin") -> None:
        self.model = llmviz.load(path)
        self.ctx = self.model.context(n_ctx=256)
        merges = self.model.gguf.kv["tokenizer.ggml.merges"]
        self.tok = Tokenizer([tuple(m.split(" ")) for m in merges])
        self.n_layer = self.model.hparams.n_layer
        self.n_head = self.model.hparams.n_head()

    def run(
        self,
        ids: Sequence[int],
        off: Part | None = None,
        watch: Callable[[str], bool] = lambda name: False,
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Logits [n_tokens, n_vocab], and copies of the watched nodes.

        Parameters
        ----------
        ids : sequence of int
        off : Part, optional
            Its output is made zero.
        watch : callable
            Which nodes to copy.
        """
        self.ctx.memory.clear(False)
        batch = llmviz.Batch(token=ids, logits=[True] * len(ids))
        changed = off.node if off else ""
        nodes: dict[str, np.ndarray] = {}
        for event in self.ctx.decode_steps(batch, want=lambda n: n == changed or watch(n)):
            if event.kind != "node":
                continue
            if off and event.name == changed:
                event.value = off.silenced(event.value, self.n_head)
            if watch(event.name):
                nodes[event.name] = np.array(event.value)
        return np.stack([self.ctx.get_logits_ith(i) for i in range(len(ids))]), nodes

    def attention(self, ids: Sequence[int]) -> np.ndarray:
        """Attention of every head: float32 [n_layer, n_head, n_tokens, n_tokens]."""
        _, nodes = self.run(ids, watch=lambda n: n.startswith("kq_soft_max-"))
        n = len(ids)
        return np.stack([nodes[f"kq_soft_max-{il}"][:, :, :n] for il in range(self.n_layer)])

    def run_many(self, rows: Sequence[Sequence[int]], off: Part | None = None) -> list[np.ndarray]:
        """Logits [n_tokens, n_vocab] of several texts, decoded together as sequences of a batch."""
        if len(rows) == 1:
            return [self.run(rows[0], off)[0]]
        ctx = self.model.context(
            n_ctx=sum(map(len, rows)), n_batch=2048, n_ubatch=2048, n_seq_max=len(rows),
            kv_unified=True,
        )  # fmt: skip
        batch = llmviz.Batch()
        for seq, ids in enumerate(rows):
            for pos, token in enumerate(ids):
                batch.add(token, pos, [seq], True)
        changed = off.node if off else ""
        for event in ctx.decode_steps(batch, want=lambda n: n == changed):
            if off and event.kind == "node" and event.name == changed:
                event.value = off.silenced(event.value, self.n_head)
        ends = np.cumsum([len(ids) for ids in rows])
        return [
            np.stack([ctx.get_logits_ith(i) for i in range(end - len(ids), end)])
            for ids, end in zip(rows, ends.tolist(), strict=True)
        ]

    def probabilities(
        self, docs: Sequence[Document], off: Part | None = None, at_once: int = 12
    ) -> Iterator[tuple[Document, list[int], np.ndarray]]:
        """Of each document: its ids with ``<s>`` and ``</s>``, and [n_tokens - 1, n_vocab]."""
        for first in range(0, len(docs), at_once):
            some = docs[first : first + at_once]
            rows = [encoded(doc, self.tok)[0] for doc in some]
            logits = self.run_many([ids[:-1] for ids in rows], off)
            for doc, ids, each in zip(some, rows, logits, strict=True):
                yield doc, ids, softmax(each)

    def evaluate(
        self, docs: Sequence[Document], off: Part | None = None
    ) -> tuple[float, dict[str, Score]]:
        """Mean loss of a token, and the scores of each kind of answer."""
        scores: dict[str, Score] = defaultdict(Score)
        total, count = 0.0, 0
        for doc, ids, p in self.probabilities(docs, off):
            total -= float(np.log(p[np.arange(len(ids) - 1), ids[1:]]).sum())
            count += len(ids) - 1
            for answer, position, among in asked(doc, self.tok):
                scores[answer.kind].add(p[position], among)
        return total / count, dict(scores)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities along the last axis."""
    p = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)
