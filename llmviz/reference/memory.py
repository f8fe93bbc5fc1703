"""Operations on llama.cpp's memory, and its state as bytes. ↔ include/llama.h (Memory, State)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llmviz.errors import LlmvizError
from llmviz.reference.capi import Api, LogLine, capture_log

__all__ = ["MemoryOps"]


class MemoryOps:
    """The part of a `Reference` that changes and copies its context's memory."""

    _api: Api
    _context: Any
    log: list[LogLine]

    @property
    def _ctx(self) -> Any:
        if self._context is None:
            raise LlmvizError("there is no context: opened with vocab_only=True, or closed")
        return self._context

    def _mem(self) -> Any:
        return self._api.lib.llama_get_memory(self._ctx)

    def seq_rm(self, seq_id: int, p0: int = -1, p1: int = -1) -> bool:
        """Remove the tokens of `seq_id` at positions [p0, p1)."""
        return self._api.lib.llama_memory_seq_rm(self._mem(), seq_id, p0, p1)

    def seq_cp(self, seq_id_src: int, seq_id_dst: int, p0: int = -1, p1: int = -1) -> None:
        """Put the tokens of one sequence into another, too."""
        self._api.lib.llama_memory_seq_cp(self._mem(), seq_id_src, seq_id_dst, p0, p1)

    def seq_keep(self, seq_id: int) -> None:
        """Remove all tokens of other sequences."""
        self._api.lib.llama_memory_seq_keep(self._mem(), seq_id)

    def seq_add(self, seq_id: int, p0: int, p1: int, delta: int) -> None:
        """Shift positions by `delta`."""
        self._api.lib.llama_memory_seq_add(self._mem(), seq_id, p0, p1, delta)

    def seq_div(self, seq_id: int, p0: int, p1: int, d: int) -> None:
        """Divide positions by `d`."""
        self._api.lib.llama_memory_seq_div(self._mem(), seq_id, p0, p1, d)

    def seq_pos_min(self, seq_id: int = 0) -> int:
        """Smallest position of a sequence; -1 if empty."""
        return self._api.lib.llama_memory_seq_pos_min(self._mem(), seq_id)

    def seq_pos_max(self, seq_id: int = 0) -> int:
        """Largest position of a sequence; -1 if empty."""
        return self._api.lib.llama_memory_seq_pos_max(self._mem(), seq_id)

    def can_shift(self) -> bool:
        """Whether positions may be shifted."""
        return self._api.lib.llama_memory_can_shift(self._mem())

    def clear(self, data: bool = True) -> None:
        """Empty the memory."""
        self._api.lib.llama_memory_clear(self._mem(), data)

    def state_get(self) -> bytes:
        """The whole context's state."""
        lib = self._api.lib
        n = lib.llama_state_get_size(self._ctx)
        return self._bytes(n, lambda dst: lib.llama_state_get_data(self._ctx, dst, n))

    def state_set(self, data: bytes) -> int:
        """Restore `state_get`'s bytes; how many were read (0 = refused)."""
        with capture_log(self.log):
            return self._api.lib.llama_state_set_data(self._ctx, data, len(data))

    def state_seq_get(self, seq_id: int = 0) -> bytes:
        """The memory of one sequence."""
        lib = self._api.lib
        n = lib.llama_state_seq_get_size(self._ctx, seq_id)
        return self._bytes(n, lambda dst: lib.llama_state_seq_get_data(self._ctx, dst, n, seq_id))

    def state_seq_set(self, data: bytes, seq_id: int = 0) -> int:
        """Restore `state_seq_get`'s bytes into a sequence; how many were read (0 = refused)."""
        with capture_log(self.log):
            return self._api.lib.llama_state_seq_set_data(self._ctx, data, len(data), seq_id)

    def _bytes(self, n: int, fill: Callable[[Any], int]) -> bytes:
        dst = self._api.ffi.new("uint8_t[]", max(n, 1))
        return bytes(self._api.ffi.buffer(dst, fill(dst)))
