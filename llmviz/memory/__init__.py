"""What decode keeps between tokens. ↔ src/llama-memory.h

Reading order: `memory` (the interface), `cells` (who sits where), `slots` (finding room),
`kv_layers` (K and V), `kv_cache` (all together), `kv_cache_iswa` (two of them), `kv_context` (a
plan for one batch), `kv_inputs` (what the graph is told), `kv_state` (saving).
"""

from llmviz.memory.cells import KVCells
from llmviz.memory.kv_cache import KVCache
from llmviz.memory.kv_cache_iswa import KVCacheISWA, KVCacheISWAContext
from llmviz.memory.kv_context import KVCacheContext
from llmviz.memory.kv_layers import KVLayer
from llmviz.memory.memory import CacheError, Memory, MemoryContext, MemoryStatus
from llmviz.memory.slots import SlotInfo

__all__ = [
    "CacheError",
    "KVCache",
    "KVCacheContext",
    "KVCacheISWA",
    "KVCacheISWAContext",
    "KVCells",
    "KVLayer",
    "Memory",
    "MemoryContext",
    "MemoryStatus",
    "SlotInfo",
]
