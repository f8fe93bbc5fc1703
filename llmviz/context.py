"""A context: settled parameters, the memory, and decode. ↔ src/llama-context.cpp

`decode_steps` is the one implementation; `decode` drains it while watching nothing.

Over 400 lines: one class, half of it docstrings; what decodes is the same state that goes back in
time.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from llmviz.batch import Batch, BatchAllocr, Ubatch
from llmviz.context_memory import MemoryUse, memory_breakdown, pinned_nodes, place_memory
from llmviz.context_params import ContextParams, resolve
from llmviz.errors import BatchError, DecodeError, LlmvizError
from llmviz.events import Event, Steps, drain
from llmviz.ggml.backends import kernels
from llmviz.ggml.backends.backend import Backend
from llmviz.ggml.backends.cpu import CPU
from llmviz.ggml.sched import Aborted, Sched, Want, never
from llmviz.memory.memory import MemoryStatus
from llmviz.model.graph import GraphContext, GraphParams, GraphResult
from llmviz.model.kv_shift import make_k_shift
from llmviz.model.memory import create_memory, kv_tensors
from llmviz.model.model import Model
from llmviz.outputs import Outputs

__all__ = ["Checkpoint", "Context", "ContextParams", "DecodeStatus", "context_steps"]


class DecodeStatus(IntEnum):
    """What decode returns when nothing is wrong with the batch."""

    OK = 0
    NO_KV_SLOT = 1
    ABORTED = 2


@dataclass(frozen=True)
class Checkpoint:
    """State of a context at a ubatch's start; opaque, see `Context.checkpoint`."""

    memory: Any
    rows: Any
    rows_before_update: Any
    mctx: Any
    balloc: BatchAllocr
    outputs: Outputs


def context_steps(model: Model, *, depth: int = 0, **params: Any) -> Steps[Context]:
    """Step 7 as events: parameters, KV cache with its size, reserved graphs.

    Parameters
    ----------
    model : Model
    **params
        Fields of `ContextParams`.
    """
    ctx = Context.__new__(Context)
    yield Event("enter", "llama_init_from_model", depth, 7, model.desc)
    yield from ctx._init_steps(model, params, depth + 1)
    yield Event("exit", "llama_init_from_model", depth, 7, ctx)
    return ctx


class Context:
    """Decodes batches with a model.

    Parameters
    ----------
    model : Model
    **params
        Fields of `ContextParams`, named and defaulted as in llama_context_params.

    Attributes
    ----------
    params : ContextParams
        What was asked for.
    cparams : llmviz.model.cparams.CParams
        What it was settled to.
    memory : KVCache or KVCacheISWA
        ``seq_rm``, ``seq_cp``, ``seq_keep``, ``seq_add``, ``seq_div``, ``seq_pos_min``,
        ``seq_pos_max``,
        ``clear``, ``cells``.
    n_reused : int
        How often a graph was used again instead of being built.
    keeps_history : bool
        Set by who takes checkpoints: rows that a shift is about to change are then kept.
    """

    def __init__(self, model: Model, **params: Any) -> None:
        drain(self._init_steps(model, params, 0))

    def _init_steps(self, model: Model, params: dict[str, Any], depth: int) -> Steps[None]:
        self.model = model
        self.params = ContextParams.from_kwargs(params)
        self.cparams = resolve(self.params, model.hparams)
        self.n_reused = 0
        self._result: GraphResult | None = None
        self._abort: Callable[[], bool] | None = self.params.abort_callback
        self.keeps_history = False
        self._mctx: Any = None
        self._before_update: Any = None
        for name, value in vars(self.cparams).items():
            yield Event("data", name, depth, 7, value)

        hp, c = model.hparams, self.cparams
        self._sched = Sched([*model.placement.devices, CPU()], op_offload=c.op_offload)
        self._sched.n_threads = (self.cparams.n_threads, self.cparams.n_threads_batch)
        self._sched.compiled = model.keeps_blocks and kernels.usable()
        self.memory = create_memory(hp, c, swa_full=self.params.swa_full)
        if model.placement.devices:
            place_memory(model, c, self.memory, self._sched, self._worst_cases)
        self._kv = kv_tensors(self.memory, hp)
        yield Event("data", "kv_cache", depth, 7, self.memory, self.memory.size_formula())

        self._balloc = BatchAllocr()
        self._outputs = Outputs(model.vocab.n_tokens, hp.n_embd)
        assert model.weights is not None
        self._k_shift = make_k_shift(self._kv, hp, c, model.weights)
        for name, n_tokens in (("prefill", c.n_ubatch), ("decode", 1)):
            result = self._worst_case(n_tokens)
            self._sched.reserve(result.gf, result.outputs(), self._pinned(result))
            yield Event("data", f"reserve_{name}", depth, 7, self._sched.allocator.size, result.gf)

    def _worst_cases(self, kv: Any) -> list[GraphResult]:
        """The largest graphs over a cache's tensors."""
        self._kv = kv
        return [self._worst_case(self.cparams.n_ubatch), self._worst_case(1)]

    def _worst_case(self, n_tokens: int) -> GraphResult:
        """The largest graph of `n_tokens`; with it reserved, no arena grows while decoding."""
        mctx = self.memory.init_full()
        n_seqs = self.memory.n_stream
        n_tokens = max(n_tokens // n_seqs, 1) * n_seqs
        ubatch = Ubatch.reserve(n_tokens // n_seqs, n_seqs)
        return self._build(self._graph_params(ubatch, mctx, n_outputs=min(n_tokens, n_seqs)))

    def _pinned(self, result: GraphResult) -> dict[int, Backend]:
        """Nodes that must be computed where the builder wants them."""
        n_tokens = result.params.ubatch.n_tokens
        host, c = self._sched.backends[-1], self.cparams
        return pinned_nodes(result.gf, self.model.placement, host, n_tokens, c.offload_kqv)

    # what it was settled to

    @property
    def n_ctx(self) -> int:
        """Cells of the cache in all."""
        return self.cparams.n_ctx

    @property
    def n_ctx_seq(self) -> int:
        """Cells one sequence can have."""
        return self.cparams.n_ctx_seq

    @property
    def n_batch(self) -> int:
        """Most tokens in a batch."""
        return self.cparams.n_batch

    @property
    def n_ubatch(self) -> int:
        """Most tokens computed at once."""
        return self.cparams.n_ubatch

    @property
    def n_seq_max(self) -> int:
        """Most sequences."""
        return self.cparams.n_seq_max

    @property
    def n_outputs(self) -> int:
        """Rows of logits that the last decode left."""
        return self._outputs.n_outputs

    def __repr__(self) -> str:
        return f"<Context of {self.model.desc!r}, n_ctx {self.n_ctx}, {self.memory!r}>"

    @property
    def sched(self) -> Sched:
        """What gives graphs their memory and runs them; `Sched.times` measures its nodes."""
        return self._sched

    def memory_breakdown(self) -> list[MemoryUse]:
        """Bytes of weights, cache and compute buffers on each device, the host last.

        ↔ llama_get_memory_breakdown
        """
        return memory_breakdown(self.model, self.memory, self._sched)

    def set_abort_callback(self, callback: Callable[[], bool] | None) -> None:
        """Ask `callback` before every node; true ends decode with `DecodeStatus.ABORTED`."""
        self._abort = callback

    # decode

    def decode(self, batch: Batch) -> DecodeStatus:
        """Run a batch through the model; K and V go to the memory, logits of flagged tokens are
        kept.

        Returns
        -------
        DecodeStatus
            ``OK``; ``NO_KV_SLOT`` (nothing was changed: make room and try again); ``ABORTED``.

        Raises
        ------
        BatchError
            The batch is invalid (code -1).
        DecodeError
            The computation failed (code < -1).
        """
        return drain(self.decode_steps(batch, want=never))

    def decode_steps(
        self, batch: Batch, want: Want | None = None, *, depth: int = 0
    ) -> Steps[DecodeStatus]:
        """`decode` as events.

        Parameters
        ----------
        want : callable or None
            ``want(name)`` says which nodes become events; None means all. Asked again for every
            node.
        """
        yield Event("enter", "decode", depth, 11, batch)
        yield from self._init_balloc(batch, depth + 1)
        self._memory_update()
        mctx = yield from self._init_batch(depth + 1)
        if mctx is None:
            yield Event("exit", "decode", depth, 11, DecodeStatus.NO_KV_SLOT)
            return DecodeStatus.NO_KV_SLOT
        self._outputs.reserve(self._balloc.n_outputs, self.n_batch, self.cparams.embeddings)
        return (yield from self._run_ubatches(mctx, want, depth))

    def _run_ubatches(self, mctx: Any, want: Want | None, depth: int) -> Steps[DecodeStatus]:
        """The rest of decode once slots are found; begins at the plan's current ubatch."""
        self._mctx = mctx
        while True:
            ubatch = mctx.get_ubatch()
            try:
                result = yield from self._process_ubatch(ubatch, mctx, want, depth + 1)
            except Aborted:
                self._take_back(ubatch)
                yield Event("exit", "decode", depth, 11, DecodeStatus.ABORTED)
                return DecodeStatus.ABORTED
            except (MemoryError, FloatingPointError) as error:
                self._take_back(ubatch)
                code = -2 if isinstance(error, MemoryError) else -3
                raise DecodeError(
                    f"computing a ubatch of {ubatch.n_tokens} tokens failed: {error}", code
                ) from error
            except BaseException:  # the consumer stopped in the middle: its cells must not stay
                self._take_back(ubatch)
                raise
            self._outputs.append(result.t_logits, result.t_embd)
            if not mctx.next():
                break
        self._outputs.finish(self._balloc.out_ids)
        yield Event("enter", "output", depth + 1, 14, self._outputs.n_outputs)
        yield Event("data", "output_ids", depth + 2, 14, self._outputs.output_ids)
        yield from self._show_logits(depth + 2)
        yield Event("exit", "output", depth + 1, 14, None)
        yield Event("exit", "decode", depth, 11, DecodeStatus.OK)
        return DecodeStatus.OK

    def encode(self, batch: Batch) -> DecodeStatus:
        """Run a batch through an encoder: no architecture of this version has one."""
        raise LlmvizError(
            f"architecture {self.model.arch!r} is decoder only: it has no encoder, use decode()"
        )

    def _init_balloc(self, batch: Batch, depth: int) -> Steps[None]:
        yield Event("enter", "balloc_init", depth, 10, batch)
        yield from self._balloc.init_steps(
            batch,
            n_vocab=self.model.vocab.n_tokens,
            n_seq_max=self.n_seq_max,
            memory=self.memory,
            output_all=self.cparams.embeddings,
            depth=depth + 1,
        )
        n_tokens = self._balloc.n_tokens
        if n_tokens > self.n_batch:
            raise BatchError(
                f"the batch has {n_tokens} tokens, n_batch is {self.n_batch}: decode it in pieces "
                "or make the context with a larger n_batch"
            )
        if not self.cparams.causal_attn and n_tokens > self.n_ubatch:
            raise BatchError(
                f"non-causal attention needs n_ubatch >= n_tokens, got {self.n_ubatch} < {n_tokens}"
            )
        yield Event("exit", "balloc_init", depth, 10, self._balloc.n_outputs)

    def _init_batch(self, depth: int) -> Steps[Any]:
        """Step 12: cut all ubatches and find slots for all of them before any runs."""
        yield Event("enter", "init_batch", depth, 12, self.n_ubatch)
        mctx = self.memory.init_batch(self._balloc, self.n_ubatch, self.cparams.embeddings)
        status = mctx.get_status()
        if status != MemoryStatus.SUCCESS:
            yield Event("data", "no_slot", depth + 1, 12, mctx.reason)
            yield Event("exit", "init_batch", depth, 12, status)
            return None
        yield Event("data", "ubatches", depth + 1, 12, mctx.ubatches)
        yield Event("data", "slots", depth + 1, 12, mctx.sinfos)
        yield Event("exit", "init_batch", depth, 12, status)
        return mctx

    def _process_ubatch(
        self, ubatch: Ubatch, mctx: Any, want: Want | None, depth: int
    ) -> Steps[GraphResult]:
        """Step 13: apply, reuse or build, set inputs, compute."""
        yield Event("enter", "process_ubatch", depth, 13, ubatch)
        mctx.apply()
        for end, cache in self.memory.caches.items():
            sinfo = mctx.swa.sinfo if end == "_swa" else mctx.sinfo
            yield Event("data", f"kv_cells{end}", depth + 1, 13, cache.cells, sinfo)
        n_outputs = (
            ubatch.n_tokens
            if self._balloc.n_outputs == self._balloc.n_tokens
            else int(np.count_nonzero(ubatch.output))
        )
        params = self._graph_params(ubatch, mctx, n_outputs)
        if self._result is not None and self._result.can_reuse(params):
            result = self._result
            self.n_reused += 1
            yield Event("data", "can_reuse", depth + 1, 13, True, result.gf)
        else:
            yield Event("enter", "build_graph", depth + 1, 13, mctx.get_n_kv())
            self._result = None
            result = self._build(params)
            self._sched.alloc_graph(result.gf, result.outputs(), self._pinned(result))
            self._result = result
            yield Event("exit", "build_graph", depth + 1, 13, result.gf)
        yield Event("enter", "set_inputs", depth + 1, 13, None)
        self._kv.refresh()
        result.set_inputs(params)
        for inp in result.live_inputs:
            for tensor in inp.tensors():
                yield from _show_input(tensor, depth + 2)
        yield Event("exit", "set_inputs", depth + 1, 13, None)
        yield Event("enter", "graph_compute", depth + 1, 13, len(result.gf.nodes))
        yield from self._sched.compute(want, depth=depth + 2, abort=self._abort)
        yield Event("exit", "graph_compute", depth + 1, 13, None, self._sched.times)
        yield Event("exit", "process_ubatch", depth, 13, None)
        return result

    def _graph_params(self, ubatch: Ubatch, mctx: Any, n_outputs: int) -> GraphParams:
        weights = self.model.weights
        assert weights is not None  # hparams, read before, refuse a vocabulary-only model
        return GraphParams(
            self.model.hparams, self.cparams, weights, ubatch, mctx, self._kv, n_outputs
        )

    def _build(self, params: GraphParams) -> GraphResult:
        builder = GraphContext(params)
        self.model.architecture.build_graph(builder)
        return builder.res

    def _take_back(self, ubatch: Ubatch) -> None:
        """Remove a failed ubatch's cells: positions from its first one on, per sequence."""
        first: dict[int, int] = {}
        for seqs, pos in zip(ubatch.seq_id, ubatch.pos.tolist(), strict=True):
            first[seqs[0]] = min(first.get(seqs[0], pos), pos)
        for seq, pos in first.items():
            self.memory.seq_rm(seq, pos, -1)

    def _memory_update(self) -> None:
        """Pending shifts and copies. ↔ llama_context::memory_update"""
        mctx = self.memory.init_update(self._k_shift)
        if mctx.get_status() == MemoryStatus.SUCCESS:
            if self.keeps_history:
                self._before_update = self.memory.save_rows()
            mctx.apply()

    def _show_logits(self, depth: int) -> Steps[None]:
        logits = self._outputs.logits_view()
        event = Event("data", "logits", depth, 14, logits)
        yield event
        if event.value is not logits:
            self._outputs.replace_logits(event.value)

    # history: what a debugger needs to come back to a ubatch's start

    def checkpoint(self) -> Checkpoint:
        """The state at a ubatch's start; call it at the enter event of ``process_ubatch``.

        With `keeps_history` set before decoding begins, `rewind` can come back to it.
        """
        before = self.take_pending_rows()
        return Checkpoint(
            memory=self.memory.snapshot(),
            rows=self._mctx.save_rows(),
            rows_before_update=before,
            mctx=copy.copy(self._mctx),
            balloc=copy.copy(self._balloc),
            outputs=self._outputs.copy(),
        )

    def rewind(self, newer: Sequence[Checkpoint], to: Checkpoint) -> None:
        """Bring memory and outputs back to `to`.

        Parameters
        ----------
        newer : sequence of Checkpoint
            Those taken after `to`, newest first: each knows the rows overwritten after it.
        to : Checkpoint
        """
        for point in newer:
            self.memory.restore_rows(point.rows)
            if point.rows_before_update is not None:
                self.memory.restore_rows(point.rows_before_update)
        self.memory.restore_rows(to.rows)
        self.memory.restore(to.memory)
        self._balloc = copy.copy(to.balloc)
        self._outputs = to.outputs.copy()
        self._before_update = None

    def take_pending_rows(self) -> Any:
        """Rows that a shift has changed since the last checkpoint, as they were; None where none.

        They are forgotten here: it is the caller's to put them back, or not.
        """
        rows, self._before_update = self._before_update, None
        return rows

    @property
    def graph(self) -> GraphResult | None:
        """The graph that the next ubatch uses again if its shape fits."""
        return self._result

    def use_graph(self, graph: GraphResult | None) -> None:
        """Make an earlier graph the one that is ready.

        Whether a ubatch reuses a graph or builds one shows in its events: a replay that is to have
        the same events begins with the same graph.
        """
        if self._result is not graph and graph is not None:
            self._sched.alloc_graph(graph.gf, graph.outputs(), self._pinned(graph))
        self._result = graph

    def resume_steps(
        self, checkpoint: Checkpoint, want: Want | None = None, *, depth: int = 0
    ) -> Steps[DecodeStatus]:
        """Go on from a checkpoint that was rewound to, with the enter of ``process_ubatch``."""
        return (yield from self._run_ubatches(copy.copy(checkpoint.mctx), want, depth))

    # results

    def get_logits_ith(self, i: int) -> np.ndarray:
        """Logits of token i of the last batch; a negative i counts back from the last row.

        Returns
        -------
        ndarray of float32, [n_vocab]
            A view: it is overwritten by the next decode. Writing to it changes what is sampled.

        Raises
        ------
        IndexError
            Token i was not flagged, or there is no such row.
        """
        return self._outputs.logits_ith(i)

    def get_embeddings_ith(self, i: int) -> np.ndarray:
        """Final hidden state of token i, float32 ``[n_embd]``; the context must have
        ``embeddings=True``.

        Raises
        ------
        IndexError
            As `get_logits_ith`.
        """
        return self._outputs.embeddings_ith(i)


def _show_input(tensor: Any, depth: int) -> Steps[None]:
    """Yield an input's data; what the consumer puts in its place is written back."""
    value = tensor.read().view()
    value.flags.writeable = False
    event = Event("data", tensor.name, depth, 13, value, tensor)
    yield event
    if event.value is not value:
        tensor.write(event.value)
