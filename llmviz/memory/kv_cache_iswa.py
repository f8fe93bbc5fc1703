"""Two KV caches: one for layers that see everything, one for layers with a sliding window.

↔ src/llama-kv-cache-iswa.cpp

Tokens enter both. The second is only as long as the window and a ubatch, unless `swa_full`: once a
sequence's window has moved past a cell, new tokens take it.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from llmviz.batch import BatchAllocr, Ubatch
from llmviz.memory.cells import KVCells
from llmviz.memory.kv_cache import KVCache
from llmviz.memory.kv_context import KVCacheContext
from llmviz.memory.kv_layers import ApplyShift, KVLayer, KVRows
from llmviz.memory.memory import CacheError, MemoryStatus, status_combine
from llmviz.memory.slots import SlotInfo

__all__ = ["KVCacheISWA", "KVCacheISWAContext", "swa_cells"]


def swa_cells(kv_size: int, n_swa: int, n_seq_max: int, n_ubatch: int, unified: bool) -> int:
    """Cells of the windows' cache: one window per sequence that shares it, one ubatch, padded."""
    wanted = min(kv_size, n_swa * (n_seq_max if unified else 1) + n_ubatch)
    return -(-wanted // 256) * 256


class KVCacheISWA:
    """A `Memory` of two `KVCache`.

    Parameters
    ----------
    layers : sequence of (il, n_embd_k_gqa, n_embd_v_gqa)
    is_swa : sequence of bool
        Whether each of `layers` has a window.
    kv_size : int
        Cells per stream of the dense layers' cache.
    n_swa, swa_type
        The window; see `memory.slots`.
    n_ubatch : int
    swa_full : bool
        Make the windows' cache as long as the other.
    **params
        As for `KVCache`, for both.

    Attributes
    ----------
    base, swa : KVCache
        Of the dense layers, of those with a window.
    """

    def __init__(
        self,
        *,
        layers: Sequence[tuple[int, int, int]],
        is_swa: Sequence[bool],
        kv_size: int,
        n_swa: int,
        swa_type: str,
        n_ubatch: int,
        n_seq_max: int = 1,
        unified: bool = True,
        swa_full: bool = False,
        **params: Any,
    ) -> None:
        size_swa = kv_size if swa_full else swa_cells(kv_size, n_swa, n_seq_max, n_ubatch, unified)
        shared = {"n_seq_max": n_seq_max, "unified": unified, **params}
        dense = [x for x, s in zip(layers, is_swa, strict=True) if not s]
        windowed = [x for x, s in zip(layers, is_swa, strict=True) if s]
        self.base = KVCache(layers=dense, kv_size=kv_size, **shared)
        self.swa = KVCache(
            layers=windowed, kv_size=size_swa, n_swa=n_swa, swa_type=swa_type, **shared
        )
        self._of_layer = {layer.il: kv for kv in (self.base, self.swa) for layer in kv.layers}

    # -- what there is ---------------------------------------------------------------------------

    @property
    def caches(self) -> dict[str, KVCache]:
        """Both by what their names end in."""
        return {"": self.base, "_swa": self.swa}

    @property
    def unified(self) -> bool:
        """True where all sequences share one stream."""
        return self.base.unified

    @property
    def n_stream(self) -> int:
        """Streams of each cache."""
        return self.base.n_stream

    @property
    def kv_size(self) -> int:
        """Cells per stream of the dense layers' cache."""
        return self.base.kv_size

    @property
    def cells(self) -> list[KVCells]:
        """The cells of the dense layers' cache, which holds every position."""
        return self.base.cells

    @property
    def layers(self) -> list[KVLayer]:
        """Keys and values of all model layers."""
        return sorted([*self.base.layers, *self.swa.layers], key=lambda layer: layer.il)

    @property
    def data_version(self) -> int:
        """Goes up when K or V change other than by a graph."""
        return self.base.data_version + self.swa.data_version

    @property
    def can_shift(self) -> bool:
        """True when positions can be moved: nothing may be missing from the windows' cache."""
        return self.base.can_shift and self.swa.can_shift and self.base.kv_size == self.swa.kv_size

    def layer(self, il: int) -> KVLayer:
        """Return keys and values of a model layer."""
        return self._of_layer[il].layer(il)

    def total_size(self) -> int:
        """Bytes of K and V."""
        return self.base.total_size() + self.swa.total_size()

    def size_k_bytes(self) -> int:
        """Bytes of K in all layers."""
        return self.base.size_k_bytes() + self.swa.size_k_bytes()

    def size_v_bytes(self) -> int:
        """Bytes of V in all layers."""
        return self.base.size_v_bytes() + self.swa.size_v_bytes()

    def size_formula(self) -> str:
        """How the size comes about: the lines of the dense layers, then those with a window."""
        return f"{self.base.size_formula()}\n{self.swa.size_formula()}"

    # -- plans -----------------------------------------------------------------------------------

    def init_batch(
        self, balloc: BatchAllocr, n_ubatch: int, embd_all: bool = False
    ) -> KVCacheISWAContext:
        """Cut the batch and find slots in both caches; FAILED_PREPARE when they do not all fit.

        Where the sequences share one stream and a simple cut does not fit, an even one is tried.
        """
        reason = ""
        for even in (False, True) if self.unified else (True,):
            ubatches = _split(balloc, n_ubatch, even, sequential=not self.unified)
            if balloc.n_used < balloc.n_tokens:
                reason = balloc.split_error
                continue
            base = self.base.prepare(ubatches)
            swa = self.swa.prepare(ubatches) if base is not None else None
            if base is not None and swa is not None:
                return KVCacheISWAContext(
                    KVCacheContext(self.base, MemoryStatus.SUCCESS, ubatches=ubatches, sinfos=base),
                    KVCacheContext(self.swa, MemoryStatus.SUCCESS, ubatches=ubatches, sinfos=swa),
                )
            full = self.base if base is None else self.swa
            used = ", ".join(str(c.n_used) for c in full.cells)
            reason = (
                f"failed to find a memory slot for batch of size {balloc.n_tokens}: {used} of "
                f"{full.kv_size} cells are used"
            )
        failed = MemoryStatus.FAILED_PREPARE
        return KVCacheISWAContext(
            KVCacheContext(self.base, failed, reason=reason),
            KVCacheContext(self.swa, failed, reason=reason),
        )

    def init_full(self) -> KVCacheISWAContext:
        """Return a context with the largest `n_kv`, for sizing graphs."""
        return KVCacheISWAContext(self.base.init_full(), self.swa.init_full())

    def init_update(
        self, apply_shift: ApplyShift | None = None, optimize: bool = False
    ) -> KVCacheISWAContext:
        """Plan the pending rotations and copies of both."""
        return KVCacheISWAContext(
            self.base.init_update(apply_shift, optimize),
            self.swa.init_update(apply_shift, optimize),
        )

    def update(self, apply_shift: ApplyShift | None = None) -> bool:
        """Carry out pending copies and rotations; True when keys were rotated."""
        done = [self.base.update(apply_shift), self.swa.update(apply_shift)]
        return any(done)

    # -- sequences -------------------------------------------------------------------------------

    def clear(self, data: bool = True) -> None:
        """Empty both; with `data` also zero K and V."""
        self.base.clear(data)
        self.swa.clear(data)

    def seq_rm(self, seq_id: int, p0: int = -1, p1: int = -1) -> bool:
        """Remove positions [p0, p1) of a sequence, -1 for every sequence."""
        done = [self.base.seq_rm(seq_id, p0, p1), self.swa.seq_rm(seq_id, p0, p1)]
        return all(done)

    def seq_cp(self, seq_id_src: int, seq_id_dst: int, p0: int = -1, p1: int = -1) -> None:
        """Let `seq_id_dst` share positions of `seq_id_src`; see `KVCache.seq_cp`."""
        self.base.seq_cp(seq_id_src, seq_id_dst, p0, p1)
        self.swa.seq_cp(seq_id_src, seq_id_dst, p0, p1)

    def seq_keep(self, seq_id: int) -> None:
        """Remove all other sequences."""
        self.base.seq_keep(seq_id)
        self.swa.seq_keep(seq_id)

    def seq_add(self, seq_id: int, p0: int, p1: int, shift: int) -> None:
        """Add `shift` to the positions in [p0, p1)."""
        self.base.seq_add(seq_id, p0, p1, shift)
        self.swa.seq_add(seq_id, p0, p1, shift)

    def seq_div(self, seq_id: int, p0: int, p1: int, d: int) -> None:
        """Divide the positions in [p0, p1) by `d`."""
        self.base.seq_div(seq_id, p0, p1, d)
        self.swa.seq_div(seq_id, p0, p1, d)

    def seq_pos_min(self, seq_id: int) -> int:
        """First position that both caches hold: the windows' cache forgets the oldest."""
        return self.swa.seq_pos_min(seq_id)

    def seq_pos_max(self, seq_id: int) -> int:
        """Last position held for a sequence, -1 when it holds none."""
        return self.swa.seq_pos_max(seq_id)

    # -- copies ----------------------------------------------------------------------------------

    def snapshot(self) -> Any:
        """Metadata of this moment, for `restore`."""
        return self.base.snapshot(), self.swa.snapshot()

    def restore(self, snapshot: Any) -> None:
        """Come back to a `snapshot`."""
        self.base.restore(snapshot[0])
        self.swa.restore(snapshot[1])

    def save_rows(self, sinfo: SlotInfo | None = None) -> list[KVRows]:
        """Copy K and V of all used cells; those of one ubatch are `KVCacheISWAContext.save_rows`.

        Raises
        ------
        CacheError
            A `sinfo` says nothing about which of the two caches it means.
        """
        if sinfo is not None:
            raise CacheError("save_rows: ask the plan of the ubatch, it knows both slots")
        return [*self.base.save_rows(), *self.swa.save_rows()]

    def restore_rows(self, saved: list[KVRows]) -> None:
        """Put back what `save_rows` copied."""
        for kv in (self.base, self.swa):
            kv.restore_rows([rows for rows in saved if self._of_layer[rows.il] is kv])

    def state_write(self, seq_id: int = -1) -> bytes:
        """State of one sequence (-1: of all): the dense layers', then the windows'."""
        return self.base.state_write(seq_id) + self.swa.state_write(seq_id)

    def state_read(self, data: bytes, seq_id: int = -1) -> int:
        """Take over a saved state in place of what is held; returns the bytes used."""
        n = self.base.state_read(data, seq_id)
        return n + self.swa.state_read(data[n:], seq_id)

    def __repr__(self) -> str:
        return f"<KVCacheISWA dense {self.base!r}, window of {self.swa.n_swa}: {self.swa!r}>"


class KVCacheISWAContext:
    """A plan over a `KVCacheISWA` (a `MemoryContext`): two plans that go in step.

    Attributes
    ----------
    base, swa : KVCacheContext
    """

    def __init__(self, base: KVCacheContext, swa: KVCacheContext) -> None:
        self.base = base
        self.swa = swa

    def __copy__(self) -> KVCacheISWAContext:
        return KVCacheISWAContext(copy.copy(self.base), copy.copy(self.swa))

    @property
    def reason(self) -> str:
        """Why the plan failed; empty when it did not."""
        return self.base.reason or self.swa.reason

    @property
    def ubatches(self) -> list[Ubatch]:
        """The pieces, in order."""
        return self.base.ubatches

    @property
    def sinfos(self) -> list[SlotInfo]:
        """The pieces' slots in the dense layers' cache; ``swa.sinfos`` are the others."""
        return self.base.sinfos

    @property
    def sinfo(self) -> SlotInfo:
        """The slot of the current ubatch in the dense layers' cache."""
        return self.base.sinfo

    def next(self) -> bool:
        """Go to the next ubatch; False, and stay, when this is the last one."""
        self.swa.next()
        return self.base.next()

    def apply(self) -> bool:
        """Enter the current ubatch into both caches, or carry out the update."""
        done = [self.base.apply(), self.swa.apply()]
        return all(done)

    def get_ubatch(self) -> Ubatch:
        """Return the current ubatch."""
        return self.base.get_ubatch()

    def get_status(self) -> MemoryStatus:
        """Return the outcome of both plans."""
        return status_combine(self.base.get_status(), self.swa.get_status())

    def get_n_kv(self) -> int:
        """How many cells of the dense layers' cache the current ubatch looks at."""
        return self.base.get_n_kv()

    def save_rows(self) -> list[KVRows]:
        """Copy K and V of the cells that the current ubatch is about to overwrite."""
        return [*self.base.save_rows(), *self.swa.save_rows()]


def _split(balloc: BatchAllocr, n_ubatch: int, even: bool, sequential: bool) -> list[Ubatch]:
    """Cut the whole batch."""
    balloc.split_reset()
    ubatches: list[Ubatch] = []
    while True:
        if even:
            ubatch = balloc.split_equal(n_ubatch, sequential=sequential)
        else:
            ubatch = balloc.split_simple(n_ubatch)
        if ubatch is None:
            return ubatches
        ubatches.append(ubatch)
