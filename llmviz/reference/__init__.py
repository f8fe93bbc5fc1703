"""llama.cpp itself, through its C API where it is installed. ↔ include/llama.h

What the tests and ``llmviz parity`` compare llmviz with: tokens, every node of the graph, logits,
memory operations, samplers. The engine never imports this package, and this package imports nothing
of the engine, so neither can lean on the other's mistakes.

Needs the wheel ``xllamacpp`` (its one shared object exports all of ``llama.h``) and ``cffi``.
Reading order: `capi` (loading), `vocab`, `nodes`, `memory`, `engine`, `sampling`, `graph` (a decode
shown while it runs). `llmviz.record_llamacpp` records a run for the views.
"""

from __future__ import annotations

from llmviz.reference.capi import LogLine, available, system_info, unavailable_reason
from llmviz.reference.engine import Reference
from llmviz.reference.nodes import COMPUTE, Node
from llmviz.reference.sampling import Candidates, ReferenceChain
from llmviz.reference.vocab import ReferenceVocab

__all__ = [
    "COMPUTE",
    "Candidates",
    "LogLine",
    "Node",
    "Reference",
    "ReferenceChain",
    "ReferenceVocab",
    "available",
    "system_info",
    "unavailable_reason",
]
