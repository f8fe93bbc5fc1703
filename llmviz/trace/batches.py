"""What goes in at once: a batch, the ubatches it is cut into, the cell each token gets, the mask.

Of a run or a context: what its last decode did. Of a batch and a context: what decode would do,
worked out with the engine's own `BatchAllocr`, ``init_batch`` and ``set_input_kq_mask`` on the
metadata of the memory, which is put back as it was; K, V and the run are not touched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from llmviz.batch import Batch, BatchAllocr, Ubatch
from llmviz.errors import LlmvizError
from llmviz.memory.memory import MemoryStatus

__all__ = ["MASK", "Batched", "Mask", "batched_of", "of_batch", "of_context", "of_run"]

MASK = "attn_inp_kq_mask"
"""The graph input that says which cells each token may look at."""

_SAY = {
    "dry": "Nothing has run yet: this is what init_batch will do.",
    "planned": "Cut, and cells found for every ubatch; none is written yet.",
}
_ALONE = (
    "Hypothetical: nothing is decoded. This is what decode would do with this batch now; the "
    "memory stays as it is."
)


@dataclass(slots=True, eq=False)
class Batched:
    """A batch on its way into the model.

    Attributes
    ----------
    token, pos, output : ndarray [n_tokens]
        Filled as `BatchAllocr` fills them.
    seq_id : list of tuple of int
    ubatches : list of Ubatch
    sinfos : dict of str to list of SlotInfo
        The slots of each ubatch, by cache: ``""``, and ``"_swa"`` for layers with a window.
    state : str
        ``"dry"``: hypothetical; ``"planned"``: cut, nothing written; ``"running"``; ``"done"``.
    how : str
        ``"split_simple"``, ``"split_equal"`` or ``"split_seq"``.
    n_ubatch, n_batch : int
    now : int
        The ubatch that is computed, of those before it the cells are written.
    applied : int
        How many ubatches are in the cells.
    say, reason : str
        What is hypothetical; why there are no slots.
    ctx : Context
    recorder : Recorder or None
        Where the masks of the run are kept.
    """

    token: np.ndarray
    pos: np.ndarray
    seq_id: list[tuple[int, ...]]
    output: np.ndarray
    ubatches: list[Ubatch]
    sinfos: dict[str, list[Any]]
    state: str
    how: str
    n_ubatch: int
    n_batch: int
    ctx: Any
    now: int = 0
    applied: int = 0
    say: str = ""
    reason: str = ""
    recorder: Any = None
    ubatch_of: np.ndarray = field(init=False)
    row_of: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        n = len(self.token)
        self.ubatch_of = np.full(n, -1, np.int32)
        self.row_of = np.full(n, -1, np.int32)
        for k, u in enumerate(self.ubatches):
            self.ubatch_of[u.batch_idxs] = k
            self.row_of[u.batch_idxs] = np.arange(u.n_tokens)

    def __len__(self) -> int:
        return len(self.token)

    @property
    def sequences(self) -> list[int]:
        """All sequences that occur."""
        return sorted({s for seqs in set(self.seq_id) for s in seqs})

    @property
    def caches(self) -> list[str]:
        """What the names of the memory's caches end in; empty where it keeps no cells."""
        return list(self.sinfos)

    def slot(self, token: int, cache: str = "") -> tuple[int, int]:
        """Stream and cell of a token of the batch, -1 where it has none."""
        k = int(self.ubatch_of[token])
        if k < 0 or cache not in self.sinfos:
            return -1, -1
        sinfo = self.sinfos[cache][k]
        s, j = divmod(int(self.row_of[token]), sinfo.size)
        return int(sinfo.strm[s]), int(sinfo.idxs[s][j])

    def state_of(self, ubatch: int) -> str:
        """``"waiting"``, ``"now"`` or ``"done"``."""
        if self.state in ("dry", "planned") or ubatch > self.now:
            return "waiting"
        return "now" if ubatch == self.now and self.state == "running" else "done"

    def mask(self, ubatch: int, cache: str = "") -> Mask | None:
        """The mask of one ubatch; None where the memory keeps no cells.

        The input that the graph was given, where the recorder has it. Before that ubatch runs, what
        it will be given, worked out on the cells as they will be then. Where it ran and was not
        kept, it is worked out again on the cells as they are now.
        """
        if cache not in self.sinfos or not self.ubatches:
            return None
        u, sinfo = self.ubatches[ubatch], self.sinfos[cache][ubatch]
        kv = self.ctx.memory.caches[cache]
        if self.state_of(ubatch) != "waiting":
            kept = self._kept(ubatch, cache)
            if kept is not None:
                rows = np.asarray(kept, np.float32).reshape(u.n_tokens, -1)
                return Mask(rows, _streams(u, sinfo), "input", _cells(kv, sinfo, rows.shape[1]))
        memory = self.ctx.memory
        saved = memory.snapshot()
        try:
            for k in range(self.applied, ubatch + 1):
                for end, each in memory.caches.items():
                    each.apply_ubatch(self.sinfos[end][k], self.ubatches[k])
            n_kv = kv.get_n_kv(sinfo)
            rows = np.empty((sinfo.n_stream, sinfo.size, n_kv), np.float32)
            kv.set_input_kq_mask(rows, u, self.ctx.cparams.causal_attn)
            cells = _cells(kv, sinfo, n_kv)
        finally:
            memory.restore(saved)
        source = "planned" if ubatch >= self.applied else "again"
        return Mask(rows.reshape(u.n_tokens, n_kv), _streams(u, sinfo), source, cells)

    def _kept(self, ubatch: int, cache: str) -> np.ndarray | None:
        if self.recorder is None:
            return None
        wanted = self.recorder.passes - 1 - (self.now - ubatch)
        for kept in reversed(self.recorder.values(MASK + cache)):
            if kept.pass_ == wanted and kept.array.size % self.ubatches[ubatch].n_tokens == 0:
                return kept.array
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Mask:
    """What is added to a ubatch's attention scores.

    Attributes
    ----------
    rows : ndarray float32 [n_tokens, n_kv]
        Row: token of the ubatch; column: cell. 0 where it may look, -inf where not; with ALiBi
        minus the distance.
    streams : ndarray int32 [n_tokens]
        The stream whose cells a row's columns are.
    source : str
        ``"input"``: the graph's own; ``"planned"``: what it will be; ``"again"``: worked out a
        second time on the cells as they are now.
    cells : dict of int to (pos, tok, seq)
        Of each stream: int32 [n_kv], int32 [n_kv], bool [n_seq, n_kv].
    """

    rows: np.ndarray
    streams: np.ndarray
    source: str
    cells: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]]

    @property
    def used(self) -> int:
        """Columns up to the last cell that holds something."""
        held = [np.flatnonzero(pos >= 0) for pos, _, _ in self.cells.values()]
        return max((int(h[-1]) + 1 for h in held if h.size), default=0)

    def sees(self, row: int) -> np.ndarray:
        """Cells that a token may look at."""
        return np.flatnonzero(~np.isneginf(self.rows[row]))


def _streams(u: Ubatch, sinfo: Any) -> np.ndarray:
    return np.repeat(np.array(sinfo.strm, np.int32), sinfo.size)[: u.n_tokens]


def _cells(kv: Any, sinfo: Any, n_kv: int) -> dict[int, tuple[Any, Any, Any]]:
    return {
        s: (c.pos[:n_kv].copy(), c.tok[:n_kv].copy(), c.seq[:, :n_kv].copy())
        for s in dict.fromkeys(sinfo.strm)
        for c in (kv.cells[s],)
    }


class _Watched(BatchAllocr):
    """Remembers which way of cutting was used last."""

    how: str = ""

    def split_simple(self, n_ubatch: int) -> Ubatch | None:
        self.how = "split_simple"
        return super().split_simple(n_ubatch)

    def split_equal(self, n_ubatch: int, sequential: bool, n_keep_tail: int = 0) -> Ubatch | None:
        self.how = "split_equal"
        return super().split_equal(n_ubatch, sequential, n_keep_tail)

    def split_seq(self, n_ubatch: int) -> Ubatch | None:
        self.how = "split_seq"
        return super().split_seq(n_ubatch)


def of_batch(batch: Batch, ctx: Any) -> Batched:
    """What ``ctx.decode(batch)`` would do now, without doing it; the memory stays as it is.

    Raises
    ------
    BatchError
        The batch cannot be decoded.
    """
    out = _dry(batch, ctx)
    out.say = _ALONE
    return out


def _dry(batch: Batch, ctx: Any) -> Batched:
    balloc = _Watched()
    balloc.init(
        batch,
        n_vocab=ctx.model.vocab.n_tokens,
        n_seq_max=ctx.n_seq_max,
        memory=ctx.memory,
        output_all=ctx.cparams.embeddings,
    )
    saved = ctx.memory.snapshot()
    try:
        plan = ctx.memory.init_batch(balloc, ctx.n_ubatch, ctx.cparams.embeddings)
    finally:
        ctx.memory.restore(saved)
    fits = plan.get_status() == MemoryStatus.SUCCESS
    out = _batched(balloc, plan if fits else None, ctx, "dry", balloc.how)
    out.say, out.reason = _SAY["dry"], "" if fits else plan.reason
    if len(batch) > ctx.n_batch:
        out.reason = f"the batch has {len(batch)} tokens, n_batch is {ctx.n_batch}"
    return out


def of_context(ctx: Any) -> Batched | str:
    """What the last decode of a context did; a sentence where there was none."""
    plan = getattr(ctx, "_mctx", None)
    if plan is None:
        return (
            "This context has decoded nothing yet: give a batch too, "
            "lv.show.batch(batch, ctx), to see what decode would do with it."
        )
    out = _batched(ctx._balloc, plan, ctx, "done", "")
    out.now = len(out.ubatches) - 1
    out.applied = len(out.ubatches)
    return out


def of_run(dbg: Any) -> Batched | str:
    """The batch at which a run stands; a sentence where there is none.

    Raises
    ------
    BatchError
        The batch of the run cannot be decoded.
    """
    ctx, here = dbg.ctx, dbg.here
    generation = dbg.generation
    if not dbg.can_restart:
        return "A saved trace and a run of bare events hold no batch: it needs the context."
    if here is None or here.step < 10 or generation is None:
        return "The batch is made at step 10."
    failed = (here.kind, here.name, here.value) == ("exit", "decode", 1)
    if here.step in (10, 12) or (here.step == 11 and here.kind == "enter") or failed:
        if (here.kind, here.name, here.depth) == ("enter", "batch", 0):
            return "The batch is being made: take one more step."
        waiting = generation._batches
        batch = here.value if isinstance(here.value, Batch) else waiting[0] if waiting else None
        if batch is None:
            return "The batch is being made: take one more step."
        out = _dry(batch, ctx)
        if here.step == 12 and here.name != "no_slot" and (here.kind != "enter"):
            out.state, out.say = "planned", _SAY["planned"]
        return out
    last = of_context(ctx)
    if isinstance(last, str):
        return last
    out = last
    out.recorder = dbg.recorder
    out.now = int(getattr(getattr(ctx._mctx, "base", ctx._mctx), "_i_cur", out.now))
    begins = (here.kind, here.name) == ("enter", "process_ubatch")
    out.applied = out.now if begins else out.now + 1
    ended = here.step > 13 or (here.kind, here.name) == ("exit", "process_ubatch")
    out.state = "done" if ended or here.step == 11 else "running"
    n = len(out.ubatches)
    if out.state == "running":
        out.say = f"Ubatch {out.now} is computed now" + (f", of {n}." if n > 1 else ".")
    elif out.now + 1 < n:
        out.say = f"Ubatch {out.now} of {n} is done."
    else:
        out.say = "Decoded: the K and V of every token are in the cells."
    return out


def _batched(balloc: Any, plan: Any, ctx: Any, state: str, how: str) -> Batched:
    ubatches = list(plan.ubatches) if plan is not None else []
    sinfos: dict[str, list[Any]] = {}
    if plan is not None and hasattr(ctx.memory, "caches"):
        for end in ctx.memory.caches:
            part = getattr(plan, "swa", plan) if end == "_swa" else getattr(plan, "base", plan)
            sinfos[end] = list(part.sinfos)
    if not how:
        how = "split_equal" if ubatches and ubatches[0].equal_seqs else "split_simple"
    return Batched(
        token=balloc.token,
        pos=balloc.pos,
        seq_id=list(balloc.seq_id),
        output=balloc.output,
        ubatches=ubatches,
        sinfos=sinfos,
        state=state,
        how=how,
        n_ubatch=ctx.n_ubatch,
        n_batch=ctx.n_batch,
        ctx=ctx,
    )


def batched_of(source: Any, ctx: Any = None) -> Batched | str:
    """A batch on its way, of a debugger, of a context, or of a batch and a context.

    Raises
    ------
    LlmvizError
        For anything else.
    """
    if isinstance(source, Batch):
        if not hasattr(ctx, "decode_steps"):
            raise LlmvizError("a batch alone says nothing of cells: give the context too")
        return of_batch(source, ctx)
    if hasattr(source, "recorder"):
        return of_run(source)
    if hasattr(source, "decode_steps"):
        return of_context(source)
    raise LlmvizError(
        "a batch is shown of a debugger, of a context (its last decode), or of a batch and a "
        f"context, not of {source!r:.80}"
    )
