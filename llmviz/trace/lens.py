"""Reading a trace: the logit lens, rank and entropy of logits; what heads do is in `head_scores`.

Functions over a model and arrays; nothing here runs or changes the model's own state. The lens
computes with the engine's graph and kernels, so that at the last layer it gives the model's logits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from llmviz.batch import Ubatch
from llmviz.context_params import ContextParams, resolve
from llmviz.errors import LlmvizError, UnsupportedError
from llmviz.events import drain
from llmviz.ggml.backends.cpu import CPU
from llmviz.ggml.graph import Graph, Tensor, new_tensor
from llmviz.ggml.sched import Sched, never
from llmviz.ggml.types import GGMLType
from llmviz.model.graph import GraphContext, GraphParams, GraphResult
from llmviz.model.memory import create_memory, kv_tensors
from llmviz.trace.head_scores import (
    attention_entropy,
    first_token_score,
    induction_score,
    previous_token_score,
)
from llmviz.trace.summary import probabilities

if TYPE_CHECKING:
    from llmviz.model.model import Model
    from llmviz.vocab import Vocab

__all__ = [
    "LogitLens",
    "TopToken",
    "attention_entropy",
    "entropy",
    "first_token_score",
    "induction_score",
    "logit_lens",
    "previous_token_score",
    "rank_of",
    "top_tokens",
    "whole_graph",
]

BLOCK = 32  # rows computed at once: temporaries stay at 32 x n_vocab floats for any prompt
LONGEST_TAIL = 32  # nodes; a cut that keeps more has not found the end of the layers


# -- the lens ------------------------------------------------------------------------------------


class LogitLens:
    """What the model would say if a layer were its last: its own final norm and output matrix.

    The model's graph is built once and everything before ``l_out`` of the last layer is cut off;
    what remains (norm, output matrix, and scales or caps where an architecture has them) is fed
    with any layer's ``l_out``. The method: nostalgebraist, "interpreting GPT: the logit lens"
    (2020).

    Parameters
    ----------
    model : llmviz.model.model.Model
        With weights.

    Raises
    ------
    UnsupportedError
        The graph has no ``l_out`` that separates its layers from its end.
    """

    def __init__(self, model: Model) -> None:
        if model.weights is None:
            raise LlmvizError("this model was loaded without weights: the logit lens needs them")
        self.model = model
        self.n_embd: int = model.hparams.n_embd
        self.n_vocab: int = model.hparams.n_vocab
        self._tails: dict[int, _Tail] = {}

    def __call__(self, l_out: np.ndarray) -> np.ndarray:
        """Logits of each row.

        Parameters
        ----------
        l_out : float32 [n_tokens, n_embd], or [n_embd]
            The residual stream after a layer.

        Returns
        -------
        float32 [n_tokens, n_vocab], or [n_vocab]
            A new array. It takes ``n_tokens * n_vocab * 4`` bytes: pass the rows you need.
        """
        rows = np.atleast_2d(np.asarray(l_out))  # [n_tokens, n_embd]
        if rows.ndim != 2 or rows.shape[1] != self.n_embd or rows.dtype.kind != "f":
            raise LlmvizError(
                f"the logit lens reads rows of {self.n_embd} floats, such as l_out-3; "
                f"this array is {rows.dtype} {list(np.shape(l_out))}"
            )
        out = np.empty((len(rows), self.n_vocab), np.float32)
        for start in range(0, len(rows), BLOCK):
            part = rows[start : start + BLOCK]
            out[start : start + len(part)] = self._tail(len(part)).run(part)
        return out[0] if np.ndim(l_out) == 1 else out

    def _tail(self, n_rows: int) -> _Tail:
        tail = self._tails.get(n_rows)
        if tail is None:
            if len(self._tails) >= 2:  # full blocks and one other size: more would hoard arenas
                self._tails.pop(next((n for n in self._tails if n != BLOCK), BLOCK))
            tail = self._tails[n_rows] = _Tail(self.model, n_rows)
        return tail


class _Tail:
    """The end of a model's graph for a number of rows, bound and ready to run."""

    def __init__(self, model: Model, n_rows: int) -> None:
        last = f"l_out-{model.hparams.n_layer - 1}"
        whole = whole_graph(model, n_rows)
        cut = next((t for t in whole.gf.nodes if t.name == last), None)
        if cut is None or whole.t_logits is None:
            raise UnsupportedError(
                "logit lens", model.arch, hint=f"Its graph has no {last} followed by logits"
            )
        self.rows = new_tensor(GGMLType.F32, *cut.ne[:2], name="l_out", is_input=True)
        for node in whole.gf.nodes:
            node.src = [self.rows if src is cut else src for src in node.src]
            if node.view_src is cut:
                node.view_src = self.rows
        self.logits: Tensor = whole.t_logits
        graph = Graph()
        graph.build_forward_expand(self.logits)
        inputs = [leaf.name for leaf in graph.leafs if leaf.is_input]
        if len(graph.nodes) > LONGEST_TAIL or inputs != [self.rows.name]:
            raise UnsupportedError(
                "logit lens",
                model.arch,
                hint=f"What follows {last} needs more than it: {', '.join(inputs)}",
            )
        self._sched = Sched([*model.placement.devices, CPU()])
        self._sched.alloc_graph(graph, [self.logits])

    def run(self, rows: np.ndarray) -> np.ndarray:
        """float32 [n_rows, n_embd] -> float32 [n_rows, n_vocab], valid until the next run."""
        self.rows.write(rows)
        drain(self._sched.compute(never))
        return self.logits.read()


def whole_graph(model: Model, n_rows: int) -> GraphResult:
    """The model's whole graph with all rows as outputs; it gets no memory and is never run.

    For reading its end, or for showing what a pass will compute.
    """
    hp = model.hparams
    assert model.weights is not None
    c = resolve(ContextParams(), hp)
    # the smallest memory; a float16 cache would bring a float32 mirror along
    memory = create_memory(hp, replace(c, n_ctx_seq=1, n_ubatch=1, type_k="f32", type_v="f32"))
    params = GraphParams(
        hp,
        c,
        model.weights,
        Ubatch.reserve(n_rows, 1),
        memory.init_full(),
        kv_tensors(memory, hp),
        n_outputs=n_rows,
    )
    builder = GraphContext(params)
    model.architecture.build_graph(builder)
    return builder.res


def logit_lens(model: Model, l_out: np.ndarray) -> np.ndarray:
    """Logits of each row of a layer's output: `LogitLens`, built for this one call.

    float32 [n_tokens, n_embd] -> float32 [n_tokens, n_vocab]. With the last layer's ``l_out`` it
    is ``result_output``.
    """
    return LogitLens(model)(l_out)


# -- logits ---------------------------------------------------------------------------------------


class TopToken(NamedTuple):
    """One of the likeliest tokens: its id, bytes, logit and softmax probability."""

    id: int
    piece: bytes
    logit: float
    p: float


def _ranked(logits: np.ndarray) -> np.ndarray:
    row = np.asarray(logits)
    if row.ndim != 1 or row.dtype.kind not in "fiu" or not row.size:
        raise LlmvizError(f"expected one row of logits, got {row.dtype} {list(row.shape)}")
    return np.nan_to_num(row, nan=-np.inf, posinf=np.inf, neginf=-np.inf)


def top_tokens(logits: np.ndarray, k: int = 10, vocab: Vocab | None = None) -> list[TopToken]:
    """The `k` largest logits, the largest first, of equal ones the lower id first.

    Parameters
    ----------
    logits : float32 [n_vocab]
        NaN counts as impossible.
    k : int
    vocab : Vocab or None
        Gives the pieces; without it they are empty.
    """
    row = _ranked(logits)
    k = max(0, min(int(k), row.size))
    if not k:
        return []
    floor = np.partition(row, row.size - k)[row.size - k]
    among = np.flatnonzero(row >= floor)  # ids in order, so that the sort settles ties by id
    best = among[np.argsort(-row[among], kind="stable")][:k]
    p = probabilities(row)
    return [
        TopToken(
            int(i),
            vocab.token_to_piece(int(i), special=True) if vocab is not None else b"",
            float(logits[i]),
            float(p[i]),
        )
        for i in best
    ]


def rank_of(token: int, logits: np.ndarray) -> int:
    """How many tokens have a larger logit: 0 for the likeliest. float32 [n_vocab].

    A token whose logit is NaN comes after all others.

    Raises
    ------
    LlmvizError
        There is no such token.
    """
    row = _ranked(logits)
    if not 0 <= token < row.size:
        raise LlmvizError(f"there is no token {token}: ids are 0..{row.size - 1}")
    if np.isnan(logits[token]):
        return int((~np.isnan(logits)).sum())
    return int((row > row[token]).sum())


def entropy(logits: np.ndarray) -> float:
    """Entropy of the softmax of one row of logits, in nats: 0 is certain, ln n_vocab is a guess.

    float32 [n_vocab]; NaN counts as impossible.
    """
    p = probabilities(_ranked(logits))
    p = p[p > 0]
    return float(-(p * np.log(p)).sum()) + 0.0
