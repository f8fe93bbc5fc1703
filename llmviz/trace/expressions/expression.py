"""A compiled expression: its value, whether it holds, and what it needs to be asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from llmviz.errors import LlmvizError
from llmviz.trace.expressions import syntax
from llmviz.trace.expressions.parser import LAYER, ExpressionError, nearest, parse
from llmviz.trace.expressions.syntax import Node
from llmviz.trace.values import VARIABLES, Missing, Values, matching

__all__ = ["Expression", "compile_expression"]


class Expression:
    """A compiled expression.

    Attributes
    ----------
    text : str
        As it was written; ``str(expression)`` is its one canonical form.
    names : frozenset of str
        Nodes and globs whose values it reads: what a recorder must keep.
    variables : frozenset of str
        Other names that it reads.
    needs_lens : bool
        Whether it computes a logit lens (about 10 ms where the layer's output is new).
    is_condition : bool
        Whether it is true or false by its form, as a breakpoint's condition must be.
    """

    def __init__(self, text: str, root: Node) -> None:
        self.text = text
        self._root = root
        parts = list(root.walk())
        self._nodes = [part for part in parts if isinstance(part, syntax.NodeName)]
        self.variables = frozenset(p.name for p in parts if isinstance(p, syntax.Name))
        read = {name for v in self.variables & VARIABLES.keys() for name in VARIABLES[v].nodes}
        self.names = frozenset(part.name for part in self._nodes) | read
        self.needs_lens = any(isinstance(p, syntax.Call) and p.name == "lens" for p in parts)
        self.is_condition = root.boolean
        self._follows = any(isinstance(p, syntax.AnyOf) and p.of is None for p in parts) or any(
            VARIABLES[v].here for v in self.variables & VARIABLES.keys()
        )
        self._wanted: dict[str, bool] = {}

    def evaluate(self, values: Values) -> Any:
        """Compute it.

        Returns
        -------
        bool, int, float, str, tuple, ndarray or Missing
            `Missing`, which is false, where something it needs is not there yet.

        Raises
        ------
        ExpressionError
            The values do not fit: another shape, a text that is no token, an index outside.
        """
        return self._compute(self._root.value, values)

    def holds(self, values: Values) -> bool:
        """Whether it is true now; what is not there yet does not hold, nor does its ``not``."""
        return bool(self._compute(partial(syntax.truth_at, self._root), values))

    def _compute(self, call: Callable[[Values], Any], values: Values) -> Any:
        try:
            with np.errstate(all="ignore"):
                return call(values)
        except syntax.EvaluationError as error:
            raise ExpressionError(str(error), self.text, error.column) from None

    def keeps(self, name: str) -> bool:
        """Whether it reads this node's value: for ``recorder.ask``."""
        return any(matching(pattern, (name,)) for pattern in self.names)

    def wants(self, name: str) -> bool:
        """Whether a node of this name must be an event for the condition to see all it asks for.

        ``layer == 3 and name ~ "kq*"`` wants the kq nodes of layer 3 only; ``any NaN`` all nodes.
        """
        wanted = self._wanted.get(name)
        if wanted is None:
            wanted = self._wanted[name] = self.keeps(name) or (
                self._follows and self._may_hold_at(name)
            )
        return wanted

    def _may_hold_at(self, name: str) -> bool:
        test = partial(syntax.truth_at, self._root)
        try:
            return self._compute(test, _OnlyName(name)) is not False
        except ExpressionError:
            return True  # it will say so when it is asked there

    def check(self, nodes: Iterable[str]) -> None:
        """Refuse names that are none of a graph's nodes: such a condition could never hold.

        Raises
        ------
        ExpressionError
            With the nearest names that there are.
        """
        known = list(nodes)
        for part in self._nodes:
            if not matching(part.name, known):
                near = nearest(part.name, known)
                raise ExpressionError(f"no node {part.name!r}{near}", self.text, part.column)

    def __str__(self) -> str:
        return str(self._root)

    def __repr__(self) -> str:
        return f"Expression({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


class _OnlyName:
    """Values of which only a node event's name, kind, step and layer are known."""

    def __init__(self, name: str) -> None:
        self.known = {"name": name, "kind": "node", "step": 13}
        layer = LAYER.fullmatch(name)
        if layer and layer[2] != "*":
            self.known["layer"] = int(layer[2])

    def get(self, name: str) -> Any:
        return self.known.get(name, Missing)

    def node(self, name: str) -> Any:
        return Missing

    def lens(self, row: Any) -> Any:
        raise LlmvizError("nothing to look through yet")

    def token_id(self, text: str) -> int:
        raise LlmvizError("no vocabulary yet")


def compile_expression(text: str, nodes: Iterable[str] | None = None) -> Expression:
    """Read an expression.

    Parameters
    ----------
    text : str
        At most `MAX_LENGTH` characters.
    nodes : iterable of str, optional
        All node and input names of the graph, where they are known: other names are then refused.

    Raises
    ------
    ExpressionError
        What is wrong, where, and what may have been meant.
    """
    if not isinstance(text, str):
        raise ExpressionError(f"an expression is a text, not {type(text).__name__}", "", 1)
    known = None if nodes is None else list(nodes)
    expression = Expression(text, parse(text, known or []))
    if known is not None:
        expression.check(known)
    return expression
