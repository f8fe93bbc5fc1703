"""Conditions and watches: a small expression language over named values.

``entropy > 3``, ``any NaN in l_out-5``, ``layer == 3 and name ~ "kq*"``,
``rank(" Paris", lens(l_out-12))``. `compile_expression` reads the text with a parser of its own
(`parser`, with the grammar) into a tree (`syntax`) over functions (`functions`) and names
(`llmviz.trace.values`); nothing is ever handed to Python to run.
"""

from __future__ import annotations

from llmviz.trace.expressions.expression import Expression, compile_expression
from llmviz.trace.expressions.functions import FUNCTIONS, Function, show_value
from llmviz.trace.expressions.parser import MAX_DEPTH, MAX_LENGTH, ExpressionError

__all__ = [
    "FUNCTIONS",
    "MAX_DEPTH",
    "MAX_LENGTH",
    "Expression",
    "ExpressionError",
    "Function",
    "compile_expression",
    "show_value",
]
