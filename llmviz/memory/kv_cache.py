"""The KV cache: keys and values of earlier tokens, and who sits where. ↔ src/llama-kv-cache.cpp

Reading order: `KVCache.init_batch` plans (cut, find slots for all, undo); `KVCacheContext.apply`
carries out one ubatch; ``set_input_*`` tells the graph where to write and what to look at; the
``seq_*`` operations (`kv_sequences`) edit metadata only. Moved positions are paid for at the next
update, when the keys are rotated by the `apply_shift` that the caller brings.

Does not do: sharing cells between caches, M-RoPE.

A little over 400 lines: one class, half of it docstrings; sequences, layers, masks and states have
files of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from llmviz.batch import LLAMA_MAX_SEQ, BatchAllocr, Ubatch
from llmviz.ggml.types import TYPES, GGMLType
from llmviz.memory import kv_inputs, kv_state
from llmviz.memory.cells import KVCells
from llmviz.memory.kv_context import KVCacheContext
from llmviz.memory.kv_layers import (
    ApplyShift,
    KVLayer,
    KVRows,
    make_layers,
    places,
    size_formula,
)
from llmviz.memory.kv_sequences import KVSequences
from llmviz.memory.memory import CacheError, MemoryStatus
from llmviz.memory.slots import SlotInfo, check_swa_type, find_slot

__all__ = ["ApplyShift", "KVCache", "KVCacheContext", "KVLayer"]


class KVCache(KVSequences):
    """Keys and values of earlier tokens (a `Memory`).

    Parameters
    ----------
    layers : sequence of (il, n_embd_k_gqa, n_embd_v_gqa)
        The layers that have a cache.
    kv_size : int
        Cells per stream, a multiple of `n_pad`.
    n_seq_max : int
        Number of sequences.
    unified : bool
        True: one stream that all sequences share. False: one stream per sequence.
    type_k, type_v : GGMLType
        One of `kv_layers.KV_TYPES`; a quantized V cannot be transposed.
    v_trans : bool
        Keep V transposed, so that the product with the attention weights reads whole rows (as
        llama.cpp does without flash attention).
    n_pad : int
        Granularity of `kv_size` and `get_n_kv`.
    n_swa, swa_type
        Sliding window; see `memory.slots`.
    use_alibi : bool
        Write distances into the mask.
    can_shift : bool
        False where keys cannot be rotated afterwards.
    n_embd_v_gqa_max : int
        Width of a transposed V where a layer outside this cache is wider than all in it.
    rotation : (int, int)
        Width of the Hadamard rotation that the graph applies to K and V before they are stored, 0
        for none; part of a saved state.
    name : str
        Goes into the tensor names, ``cache_{name}k_l0``.

    Raises
    ------
    UnsupportedError
        A type or window that is not known.
    CacheError
        The arrays do not fit into memory.
    """

    def __init__(
        self,
        *,
        layers: Sequence[tuple[int, int, int]],
        kv_size: int,
        n_seq_max: int = 1,
        unified: bool = True,
        type_k: GGMLType = GGMLType.F16,
        type_v: GGMLType = GGMLType.F16,
        v_trans: bool = True,
        n_pad: int = 1,
        n_swa: int = 0,
        swa_type: str = "none",
        use_alibi: bool = False,
        can_shift: bool = True,
        n_embd_v_gqa_max: int = 0,
        rotation: tuple[int, int] = (0, 0),
        name: str = "",
    ) -> None:
        if not 1 <= n_seq_max <= LLAMA_MAX_SEQ:
            raise CacheError(f"n_seq_max must be 1..{LLAMA_MAX_SEQ}, got {n_seq_max}")
        if kv_size < 1 or kv_size % n_pad:
            raise CacheError(f"kv_size = {kv_size} must be a positive multiple of n_pad = {n_pad}")
        check_swa_type(n_swa, swa_type)
        self.kv_size = kv_size
        self.n_seq_max = n_seq_max
        self.unified = unified
        self.n_stream = n_stream = 1 if unified else n_seq_max
        self.type_k = GGMLType(type_k)
        self.type_v = GGMLType(type_v)
        self.v_trans = v_trans
        self.n_pad = n_pad
        self.n_swa = n_swa
        self.swa_type = swa_type
        self.use_alibi = use_alibi
        self.can_shift = can_shift
        self.rotation = rotation
        self.name = name
        # a unified cache takes any sequence id in its seq_* operations, as llama.cpp's does
        self.seq_to_stream = list(range(n_stream)) if n_stream > 1 else [0] * LLAMA_MAX_SEQ
        self.layers: list[KVLayer] = make_layers(
            layers,
            n_stream=n_stream,
            kv_size=kv_size,
            type_k=self.type_k,
            type_v=self.type_v,
            v_trans=v_trans,
            n_embd_v_max=n_embd_v_gqa_max,
        )
        self.n_embd_v_gqa_max = max((n_v for _, _, n_v in layers), default=n_embd_v_gqa_max)
        self.n_embd_v_gqa_max = max(self.n_embd_v_gqa_max, n_embd_v_gqa_max)
        self._by_il = {layer.il: layer for layer in self.layers}
        self._cells = [KVCells(kv_size, n_seq_max if unified else 1) for _ in range(n_stream)]
        self._heads = [0] * n_stream
        self._stream_copies: list[tuple[int, int]] = []  # (from, to), carried out by update
        self.data_version = 0

    # -- what there is ---------------------------------------------------------------------------

    @property
    def caches(self) -> dict[str, KVCache]:
        """All caches by what their names end in: this one alone (see `KVCacheISWA`)."""
        return {"": self}

    @property
    def cells(self) -> list[KVCells]:
        """The cells of each stream, for looking at."""
        return self._cells

    @property
    def heads(self) -> list[int]:
        """Where the next search for free cells starts, per stream."""
        return list(self._heads)

    @property
    def has_shift(self) -> bool:
        """True when keys wait to be rotated."""
        return any(c.has_shift for c in self._cells)

    def layer(self, il: int) -> KVLayer:
        """Return keys and values of a model layer."""
        return self._by_il[il]

    def total_size(self) -> int:
        """Bytes of K and V."""
        return self.size_k_bytes() + self.size_v_bytes()

    def size_k_bytes(self) -> int:
        """Bytes of K in all layers."""
        return sum(layer.k.nbytes for layer in self.layers)

    def size_v_bytes(self) -> int:
        """Bytes of V in all layers."""
        return sum(layer.v.nbytes for layer in self.layers if layer.v is not None)

    def size_formula(self) -> str:
        """How the size comes about, with its numbers: one line for K, one for V, and where it is on
        devices one that says where.
        """
        k = size_formula("K", self.type_k, [layer.k_shape for layer in self.layers])
        shapes_v = [layer.v_shape for layer in self.layers if layer.v is not None]
        return "\n".join([k, size_formula("V", self.type_v, shapes_v), *places(self.layers)])

    # -- plans -----------------------------------------------------------------------------------

    def init_batch(
        self, balloc: BatchAllocr, n_ubatch: int, embd_all: bool = False
    ) -> KVCacheContext:
        """Cut the batch and find slots for all pieces; FAILED_PREPARE when they do not all fit.

        `embd_all` makes no difference to this memory.
        """
        balloc.split_reset()
        ubatches: list[Ubatch] = []
        while True:
            if self.n_stream == 1:
                ubatch = balloc.split_simple(n_ubatch)
            else:
                ubatch = balloc.split_equal(n_ubatch, sequential=True)
            if ubatch is None:
                break
            ubatches.append(ubatch)
        if balloc.n_used < balloc.n_tokens:
            return KVCacheContext(self, MemoryStatus.FAILED_PREPARE, reason=balloc.split_error)
        sinfos = self.prepare(ubatches)
        if sinfos is None:
            used = ", ".join(str(c.n_used) for c in self._cells)
            return KVCacheContext(
                self,
                MemoryStatus.FAILED_PREPARE,
                reason=f"failed to find a memory slot for batch of size {balloc.n_tokens}: "
                f"{used} of {self.kv_size} cells are used",
            )
        return KVCacheContext(self, MemoryStatus.SUCCESS, ubatches=ubatches, sinfos=sinfos)

    def init_full(self) -> KVCacheContext:
        """Return a context with the largest `n_kv`, for sizing graphs."""
        dummy = SlotInfo(
            0,
            self.n_stream - 1,
            list(range(self.n_stream)),
            [np.zeros(1, np.int64) for _ in range(self.n_stream)],
        )
        return KVCacheContext(self, MemoryStatus.SUCCESS, sinfos=[dummy], n_kv=self.kv_size)

    def init_update(
        self, apply_shift: ApplyShift | None = None, optimize: bool = False
    ) -> KVCacheContext:
        """Plan the pending rotations and stream copies; status NO_UPDATE when there are none.

        Parameters
        ----------
        apply_shift : callable or None
            See `ApplyShift`. None: the keys carry no position (no RoPE).
        optimize : bool
            Not used by this memory.
        """
        pending = self.has_shift or bool(self._stream_copies)
        status = MemoryStatus.SUCCESS if pending else MemoryStatus.NO_UPDATE
        return KVCacheContext(self, status, apply_shift=apply_shift)

    def find_slot(self, ubatch: Ubatch, cont: bool = False) -> SlotInfo | None:
        """Cells for a ubatch, or None; see `slots.find_slot`."""
        return find_slot(
            ubatch,
            self._cells,
            self._heads,
            self.seq_to_stream,
            cont=cont,
            n_swa=self.n_swa,
            swa_type=self.swa_type,
        )

    def prepare(self, ubatches: list[Ubatch]) -> list[SlotInfo] | None:
        """Slots for all ubatches, each found as if those before it were in place.

        None if one of them has no room.
        """
        sinfos: list[SlotInfo] = []
        undo: Any = self._save_meta() if len(ubatches) > 1 else None
        try:
            for i, ubatch in enumerate(ubatches):
                sinfo = self.find_slot(ubatch)
                if sinfo is None:
                    return None
                sinfos.append(sinfo)
                if i + 1 < len(ubatches):
                    self.apply_ubatch(sinfo, ubatch)
        finally:
            if undo is not None:
                self._restore_meta(undo)
        return sinfos

    # -- carrying out ----------------------------------------------------------------------------

    def apply_ubatch(self, sinfo: SlotInfo, ubatch: Ubatch) -> None:
        """Enter a ubatch into the cells.

        A cell that is taken over from a sequence (possible behind its window) takes all earlier
        positions of that sequence with it: what a sequence holds has no holes.
        """
        overwritten: dict[int, int] = {}  # sequence -> last position lost
        n = sinfo.size
        for s, idxs in enumerate(sinfo.idxs):
            cells = self._cells[sinfo.strm[s]]
            taken = idxs[cells.pos[idxs] >= 0]
            for i in taken.tolist():
                for seq_id in cells.seq_get_all(i):
                    overwritten[seq_id] = max(overwritten.get(seq_id, -1), int(cells.pos[i]))
            cells.rm(taken)
            part = slice(s * n, (s + 1) * n)
            cells.put(idxs, ubatch.pos[part], ubatch.token[part], ubatch.seq_id[part])
        for seq_id, last in overwritten.items():
            if 0 <= self.seq_pos_min(seq_id) <= last:
                self.seq_rm(seq_id, self.seq_pos_min(seq_id), last + 1)
        for s, idxs in enumerate(sinfo.idxs):
            self._heads[sinfo.strm[s]] = int(idxs[-1]) + 1

    def update(self, apply_shift: ApplyShift | None = None) -> bool:
        """Carry out pending stream copies and rotations; True when keys were rotated."""
        self.data_version += bool(self._stream_copies)
        for src, dst in self._stream_copies:
            for layer in self.layers:
                layer.copy_stream(src, dst)
        self._stream_copies = []
        if not self.has_shift:
            return False
        if not self.can_shift:
            raise CacheError(
                "the positions of this cache were moved, but its keys cannot be rotated (K-shift): "
                "clear it and decode again"
            )
        if apply_shift is not None:
            shift = np.empty((self.n_stream, self.kv_size), np.int32)
            self.set_input_k_shift(shift)
            for layer in self.layers:
                apply_shift(layer.il, shift)
        for cells in self._cells:
            cells.reset_shift()
        return apply_shift is not None

    def get_n_kv(self, sinfo: SlotInfo) -> int:
        """Cells that the attention looks at: the used part, padded so that graphs can be reused."""
        pad = max(self.n_pad, 256)
        used = max(self._cells[s].used_max_p1 for s in sinfo.strm)
        return min(self.kv_size, max(pad, -(-used // pad) * pad))

    def get_k(self, il: int, n_kv: int, sinfo: SlotInfo) -> np.ndarray:
        """[ns, n_kv, n_embd_k_gqa or blocks]: the keys that a ubatch looks at, a view."""
        return self._by_il[il].k[sinfo.s0 : sinfo.s1 + 1, :n_kv]

    def get_v(self, il: int, n_kv: int, sinfo: SlotInfo) -> np.ndarray:
        """The values that a ubatch looks at, a view.

        [ns, n_embd_v, n_kv] where V is transposed, else [ns, n_kv, n_embd_v or blocks].
        """
        v = self._by_il[il].v
        if v is None:
            raise CacheError(f"layer {il} keeps no values")
        streams = v[sinfo.s0 : sinfo.s1 + 1]
        return streams[:, :, :n_kv] if self.v_trans else streams[:, :n_kv]

    # -- graph inputs ----------------------------------------------------------------------------

    def set_input_k_idxs(self, dst: np.ndarray, sinfo: SlotInfo) -> None:
        """Fill int64[n_tokens]: the row of each token in K; see `kv_inputs.set_k_idxs`."""
        kv_inputs.set_k_idxs(dst, sinfo, self.kv_size)

    def set_input_v_idxs(self, dst: np.ndarray, sinfo: SlotInfo) -> None:
        """Fill where V goes.

        Rows, int64[n_tokens]; elements, int64[n_tokens * n_embd_v_gqa_max], where transposed.
        """
        if self.v_trans:
            kv_inputs.set_v_idxs_trans(dst, sinfo, self.kv_size, self.n_embd_v_gqa_max)
        else:
            kv_inputs.set_k_idxs(dst, sinfo, self.kv_size)

    def set_input_kq_mask(self, dst: np.ndarray, ubatch: Ubatch, causal_attn: bool = True) -> None:
        """Fill float32[n_stream, n_tokens / n_stream, n_kv]; see `kv_inputs.set_kq_mask`."""
        kv_inputs.set_kq_mask(
            dst,
            ubatch,
            self._cells,
            self.seq_to_stream,
            causal=causal_attn,
            n_swa=self.n_swa,
            swa_type=self.swa_type,
            alibi=self.use_alibi,
        )

    def set_input_k_shift(self, dst: np.ndarray) -> None:
        """Fill int32[n_stream, kv_size]: how far each key is to be rotated."""
        kv_inputs.set_k_shift(dst, self._cells)

    # -- copies ----------------------------------------------------------------------------------

    def _save_meta(self) -> Any:
        return [c.snapshot() for c in self._cells], list(self._heads)

    def _restore_meta(self, saved: Any) -> None:
        for cells, snapshot in zip(self._cells, saved[0], strict=True):
            cells.restore(snapshot)
        self._heads = list(saved[1])

    def snapshot(self) -> Any:
        """Metadata of this moment (not K and V: see `save_rows`); opaque, for `restore`."""
        return (*self._save_meta(), list(self._stream_copies))

    def restore(self, snapshot: Any) -> None:
        """Come back to a `snapshot`."""
        self._restore_meta(snapshot[:2])
        self._stream_copies = list(snapshot[2])

    def save_rows(self, sinfo: SlotInfo | None = None) -> list[KVRows]:
        """Copy K and V of the cells that `sinfo` is about to overwrite; None: of all used cells."""
        if sinfo is None:
            where = [(s, np.arange(c.used_max_p1)) for s, c in enumerate(self._cells)]
        else:
            where = list(zip(sinfo.strm, sinfo.idxs, strict=True))
        return [layer.save_rows(s, idxs) for s, idxs in where for layer in self.layers]

    def restore_rows(self, saved: list[KVRows]) -> None:
        """Put back what `save_rows` copied."""
        self.data_version += 1
        for rows in saved:
            self._by_il[rows.il].restore_rows(rows)

    def state_write(self, seq_id: int = -1) -> bytes:
        """State of one sequence (-1: of all) in llama.cpp's format; see `kv_state`."""
        return kv_state.state_write(self, seq_id)

    def state_read(self, data: bytes, seq_id: int = -1) -> int:
        """Take over a saved state in place of what is held; returns the bytes used."""
        self.data_version += 1
        return kv_state.state_read(self, data, seq_id)

    def __repr__(self) -> str:
        used = ", ".join(str(c.n_used) for c in self._cells)
        return (
            f"<KVCache {len(self.layers)} layers, {self.n_stream} "
            f"stream{'' if self.n_stream == 1 else 's'} x {self.kv_size} cells ({used} used), "
            f"K {TYPES[self.type_k].name}, V {TYPES[self.type_v].name}, "
            f"{self.total_size() / 2**20:.2f} MiB>"
        )
