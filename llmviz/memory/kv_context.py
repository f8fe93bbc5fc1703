"""A plan over the KV cache. ↔ src/llama-kv-cache.h (llama_kv_cache_context)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from llmviz.batch import Ubatch
from llmviz.memory.kv_layers import ApplyShift, KVRows
from llmviz.memory.memory import CacheError, MemoryStatus
from llmviz.memory.slots import SlotInfo

if TYPE_CHECKING:
    from llmviz.memory.kv_cache import KVCache

__all__ = ["KVCacheContext"]


class KVCacheContext:
    """A plan over a `KVCache` (a `MemoryContext`): ubatches with their slots, or a pending update.

    Attributes
    ----------
    reason : str
        Why the plan failed; empty when it did not.
    ubatches, sinfos : list
        The pieces and their slots, in order.
    """

    def __init__(
        self,
        kv: KVCache,
        status: MemoryStatus,
        *,
        ubatches: Sequence[Ubatch] = (),
        sinfos: Sequence[SlotInfo] = (),
        n_kv: int = 0,
        apply_shift: ApplyShift | None = None,
        reason: str = "",
    ) -> None:
        self.kv = kv
        self.ubatches = list(ubatches)
        self.sinfos = list(sinfos)
        self.reason = reason
        self._status = status
        self._apply_shift = apply_shift
        self._n_kv = n_kv
        self._i_cur = 0

    def next(self) -> bool:
        """Go to the next ubatch; False, and stay, when this is the last one."""
        if self._i_cur + 1 >= len(self.ubatches):
            return False
        self._i_cur += 1
        return True

    def apply(self) -> bool:
        """Enter the current ubatch into the cells, or carry out the update.

        The only method that changes the cache.
        """
        if self._status.is_fail:
            raise CacheError(f"a failed plan cannot be applied: {self.reason}")
        if not self.ubatches:
            if self._status is MemoryStatus.SUCCESS:
                self.kv.update(self._apply_shift)
            return True
        self.kv.apply_ubatch(self.sinfo, self.get_ubatch())
        self._n_kv = self.kv.get_n_kv(self.sinfo)
        return True

    def get_ubatch(self) -> Ubatch:
        """Return the current ubatch."""
        return self.ubatches[self._i_cur]

    def get_status(self) -> MemoryStatus:
        """Return the outcome of the plan."""
        return self._status

    @property
    def sinfo(self) -> SlotInfo:
        """The slot of the current ubatch."""
        return self.sinfos[self._i_cur]

    def get_n_kv(self) -> int:
        """How many cells the current ubatch looks at; known once it is applied."""
        return self._n_kv

    def save_rows(self) -> list[KVRows]:
        """Copy K and V of the cells that the current ubatch is about to overwrite."""
        return self.kv.save_rows(self.sinfo)

    def get_k(self, il: int) -> np.ndarray:
        """Keys that the current ubatch looks at; see `KVCache.get_k`."""
        return self.kv.get_k(il, self._n_kv, self.sinfo)

    def get_v(self, il: int) -> np.ndarray:
        """Values that the current ubatch looks at; see `KVCache.get_v`."""
        return self.kv.get_v(il, self._n_kv, self.sinfo)

    def set_input_k_idxs(self, dst: np.ndarray) -> None:
        """Fill where K rows of the current ubatch go."""
        self.kv.set_input_k_idxs(dst, self.sinfo)

    def set_input_v_idxs(self, dst: np.ndarray) -> None:
        """Fill where V of the current ubatch goes."""
        self.kv.set_input_v_idxs(dst, self.sinfo)

    def set_input_kq_mask(self, dst: np.ndarray, causal_attn: bool = True) -> None:
        """Fill the attention mask of the current ubatch."""
        self.kv.set_input_kq_mask(dst, self.get_ubatch(), causal_attn)

    def set_input_k_shift(self, dst: np.ndarray) -> None:
        """Fill the pending shift of every cell."""
        self.kv.set_input_k_shift(dst)
