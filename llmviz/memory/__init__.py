"""What decode keeps between tokens. ↔ src/llama-memory.h

Reading order: `memory` (the interface), `cells` (who sits where), `slots` (finding room), `kv_cache` (putting it
together), `kv_inputs` (what the graph is told), `kv_state` (saving).
"""

from llmviz.memory.cells import KVCells
from llmviz.memory.kv_cache import KVCache, KVCacheContext, KVLayer
from llmviz.memory.memory import CacheError, Memory, MemoryContext, MemoryStatus
from llmviz.memory.slots import SlotInfo

__all__ = [
    "CacheError",
    "KVCache",
    "KVCacheContext",
    "KVCells",
    "KVLayer",
    "Memory",
    "MemoryContext",
    "MemoryStatus",
    "SlotInfo",
]
