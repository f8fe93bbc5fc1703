"""Tensor types that can be decoded to float32, one class each. ↔ ggml/src/ggml-quants.c

Reading order: `plain.py`, `legacy.py` (start with Q8_0), `k_quants.py`; `base.py` is shared.
"""

from llmviz.ggml.quants.base import QuantType, get, supported
from llmviz.ggml.quants.k_quants import Q4_K, Q5_K, Q6_K
from llmviz.ggml.quants.legacy import Q4_0, Q4_1, Q5_0, Q5_1, Q8_0
from llmviz.ggml.quants.plain import BF16, F16, F32

__all__ = [
    "BF16",
    "F16",
    "F32",
    "Q4_0",
    "Q4_1",
    "Q4_K",
    "Q5_0",
    "Q5_1",
    "Q5_K",
    "Q6_K",
    "Q8_0",
    "QuantType",
    "get",
    "supported",
]
