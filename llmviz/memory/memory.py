"""What a memory is: the interface between decode and any kind of cache. ↔ src/llama-memory.h

A memory keeps what earlier tokens left behind. `Memory.init_batch` only *plans*: it cuts a batch
into ubatches, finds a place for each and hands back a `MemoryContext`. While decode walks through
that context, `MemoryContext.apply` is the only thing that changes the memory.

A new kind of memory is one new file beside `kv_cache.py` whose two classes satisfy these protocols.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Protocol, runtime_checkable

from llmviz.batch import BatchAllocr, Ubatch
from llmviz.errors import LlmvizError

__all__ = ["CacheError", "Memory", "MemoryContext", "MemoryStatus", "status_combine"]


class CacheError(LlmvizError):
    """A memory operation got a sequence, a range or a saved state that the memory cannot serve."""


class MemoryStatus(IntEnum):
    """Outcome of a plan (``llama_memory_status``)."""

    SUCCESS = 0
    NO_UPDATE = 1
    FAILED_PREPARE = 2
    FAILED_COMPUTE = 3

    @property
    def is_fail(self) -> bool:
        """True when nothing may be applied."""
        return self in (MemoryStatus.FAILED_PREPARE, MemoryStatus.FAILED_COMPUTE)


def status_combine(s0: MemoryStatus, s1: MemoryStatus) -> MemoryStatus:
    """Status of two memories as one: a failure, else success if either has something to do."""
    for status in (s0, s1):
        if status.is_fail:
            return status
    return min(s0, s1)


@runtime_checkable
class MemoryContext(Protocol):
    """A plan for one batch, walked through ubatch by ubatch.

    Only `apply` changes the memory. A context that is dropped before it was applied leaves no
    trace.
    """

    def next(self) -> bool:
        """Go to the next ubatch; False, and stay, when this is the last one."""

    def apply(self) -> bool:
        """Put the current ubatch into the memory (or carry out the update); False on failure."""

    def get_ubatch(self) -> Ubatch:
        """Return the current ubatch."""

    def get_status(self) -> MemoryStatus:
        """Return the outcome of the plan; look here before anything else."""


@runtime_checkable
class Memory(Protocol):
    """State that decode leaves behind for later tokens, addressed by sequence id and position.

    Position ranges are half open, ``[p0, p1)``; a negative p0 means 0, a negative p1 means no end.
    """

    def init_batch(
        self, balloc: BatchAllocr, n_ubatch: int, embd_all: bool = False
    ) -> MemoryContext:
        """Cut the batch into ubatches and find a place for all of them; changes nothing."""

    def init_full(self) -> MemoryContext:
        """Pretend that the memory is full: the worst case that compute buffers are sized for."""

    def init_update(self, apply_shift: Any = None, optimize: bool = False) -> MemoryContext:
        """Plan pending work (shifts, copies); status NO_UPDATE when there is none."""

    @property
    def can_shift(self) -> bool:
        """True when `seq_add` and `seq_div` are possible."""

    def clear(self, data: bool = True) -> None:
        """Forget everything; with `data` also zero the stored values."""

    def seq_rm(self, seq_id: int, p0: int = -1, p1: int = -1) -> bool:
        """Remove positions of a sequence (-1: of all); False when part of it cannot be removed."""

    def seq_cp(self, seq_id_src: int, seq_id_dst: int, p0: int = -1, p1: int = -1) -> None:
        """Let another sequence share positions of a sequence."""

    def seq_keep(self, seq_id: int) -> None:
        """Remove all other sequences."""

    def seq_add(self, seq_id: int, p0: int, p1: int, shift: int) -> None:
        """Add `shift` to the positions in a range."""

    def seq_div(self, seq_id: int, p0: int, p1: int, d: int) -> None:
        """Divide the positions in a range, rounding down."""

    def seq_pos_min(self, seq_id: int) -> int:
        """First position held for a sequence, -1 when it holds none."""

    def seq_pos_max(self, seq_id: int) -> int:
        """Last position held for a sequence, -1 when it holds none."""
