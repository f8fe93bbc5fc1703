"""Tensor types: how numbers are stored, decoded, written, and explained. ↔ ggml/src/ggml-quants.c

Reading order: `plain.py`, `legacy.py` (start with Q8_0), `k_quants.py`, `iq_nonlinear.py`,
`fp4.py`, `ternary.py`, `iq2.py`; `base.py` and `explain.py` are shared. A new type is a new class.
"""

from llmviz.ggml.quants.base import QuantType, get, quantizable, quantize, supported
from llmviz.ggml.quants.explain import BlockField, Explanation, Number, Span
from llmviz.ggml.quants.fp4 import MXFP4, NVFP4
from llmviz.ggml.quants.iq1 import IQ1_M, IQ1_S
from llmviz.ggml.quants.iq2 import IQ2_S, IQ2_XS, IQ2_XXS
from llmviz.ggml.quants.iq3 import IQ3_S, IQ3_XXS
from llmviz.ggml.quants.iq_nonlinear import IQ4_NL, IQ4_XS
from llmviz.ggml.quants.k_quants import Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, Q8_K
from llmviz.ggml.quants.legacy import Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1
from llmviz.ggml.quants.plain import BF16, F16, F32, F64, I8, I16, I32, I64
from llmviz.ggml.quants.small import Q1_0, Q2_0
from llmviz.ggml.quants.ternary import TQ1_0, TQ2_0

__all__ = [
    "BF16",
    "F16",
    "F32",
    "F64",
    "I8",
    "I16",
    "I32",
    "I64",
    "IQ1_M",
    "IQ1_S",
    "IQ2_S",
    "IQ2_XS",
    "IQ2_XXS",
    "IQ3_S",
    "IQ3_XXS",
    "IQ4_NL",
    "IQ4_XS",
    "MXFP4",
    "NVFP4",
    "Q1_0",
    "Q2_0",
    "Q2_K",
    "Q3_K",
    "Q4_0",
    "Q4_1",
    "Q4_K",
    "Q5_0",
    "Q5_1",
    "Q5_K",
    "Q6_K",
    "Q8_0",
    "Q8_1",
    "Q8_K",
    "TQ1_0",
    "TQ2_0",
    "BlockField",
    "Explanation",
    "Number",
    "QuantType",
    "Span",
    "get",
    "quantizable",
    "quantize",
    "supported",
]
