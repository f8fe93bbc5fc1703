"""Batches and how they are cut into ubatches. ↔ src/llama-batch.h, src/llama-batch.cpp

A `Batch` is what the caller hands to decode: tokens, each with a position, the sequences it belongs
to and whether its logits are wanted. `BatchAllocr` checks it, fills in what was left out and cuts
it into `Ubatch` pieces that the graph can process in one go.

Does not do: token embeddings as input, several positions per token (M-RoPE). Knows of the memory
only ``seq_pos_min`` and ``seq_pos_max``; changes nothing but itself.
"""

from llmviz.batch.allocr import BatchAllocr
from llmviz.batch.batch import Batch
from llmviz.batch.checks import LLAMA_MAX_SEQ, SeqPositions
from llmviz.batch.ubatch import Ubatch

__all__ = ["LLAMA_MAX_SEQ", "Batch", "BatchAllocr", "SeqPositions", "Ubatch"]
