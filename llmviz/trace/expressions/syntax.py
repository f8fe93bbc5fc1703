"""The tree of an expression: a dozen kinds of nodes, each with its value and its text.

Made by `llmviz.trace.expressions`, which holds the grammar. Truth has three values: what needs
something that is not there yet is `Missing`, ``not`` of it too; ``and`` with something false is
false all the same.

Over 400 lines: a dozen small classes that evaluate one another.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from llmviz.errors import LlmvizError
from llmviz.trace.expressions import functions
from llmviz.trace.expressions.functions import FUNCTIONS
from llmviz.trace.values import Missing, Values

OR, AND, NOT, COMPARE, SUM, TERM, UNARY, POWER, ATOM = range(9)  # how tightly they bind
LARGEST_EXACT = 2**53  # integers above it are read as floats


class EvaluationError(LlmvizError):
    """A node cannot be computed; `column` says which, counted from 1."""

    def __init__(self, message: str, column: int) -> None:
        self.column = column
        super().__init__(message)


def _at(column: int, call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except LlmvizError as error:
        raise EvaluationError(str(error), column) from error


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the tree; `column` is where it stands and no part of what it is."""

    column: int = field(compare=False)
    level: ClassVar[int] = ATOM
    boolean: ClassVar[bool] = False

    def value(self, values: Values) -> Any:
        """What it is now, `Missing` where something it needs is not there yet."""
        raise NotImplementedError

    def children(self) -> list[Node]:
        """The nodes right below."""
        return []

    def walk(self) -> Iterator[Node]:
        """It and all nodes below."""
        todo = [self]
        while todo:
            node = todo.pop()
            yield node
            todo.extend(node.children())

    def text(self, least: int) -> str:
        """As written where operators bind as tightly as `least`."""
        return str(self) if self.level >= least else f"({self})"


def truth_at(node: Node, values: Values) -> Any:
    """True, False or `Missing`."""
    return _at(node.column, functions.truth, node.value(values))


# -- leaves ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Number(Node):
    """``3``, ``0.9``, ``inf``, ``nan``."""

    number: int | float

    def value(self, values: Values) -> Any:
        return self.number

    def __str__(self) -> str:
        return repr(self.number)


NAN = float("nan")  # one object, so that trees that hold it compare equal


def number(column: int, text: str) -> Number:
    """A literal's node."""
    if text == "nan":
        return Number(column, NAN)
    value = float(text)
    whole = text.isdigit() and value < LARGEST_EXACT
    return Number(column, int(text) if whole else value)


@dataclass(frozen=True, slots=True)
class Truth(Node):
    """``true``, ``false``."""

    truth: bool
    boolean: ClassVar[bool] = True

    def value(self, values: Values) -> Any:
        return self.truth

    def __str__(self) -> str:
        return str(self.truth).lower()


@dataclass(frozen=True, slots=True)
class Text(Node):
    """``"text"``."""

    content: str

    def value(self, values: Values) -> Any:
        return self.content

    def __str__(self) -> str:
        return json.dumps(self.content, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A variable or a sampler's parameter."""

    name: str

    def value(self, values: Values) -> Any:
        return values.get(self.name)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class NodeName(Node):
    """A node of the graph or a glob; `bare` where it needs no ``node("...")`` around it."""

    name: str
    bare: bool = field(compare=False)

    def value(self, values: Values) -> Any:
        return values.node(self.name)

    def __str__(self) -> str:
        return self.name if self.bare else f"node({json.dumps(self.name, ensure_ascii=False)})"


# -- operators ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class List(Node):
    """``[a, b]``."""

    items: tuple[Node, ...]

    def value(self, values: Values) -> Any:
        out = [item.value(values) for item in self.items]
        return Missing if any(x is Missing for x in out) else tuple(out)

    def children(self) -> list[Node]:
        return list(self.items)

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.items))}]"


@dataclass(frozen=True, slots=True)
class Call(Node):
    """``name(arguments)``."""

    name: str
    arguments: tuple[Node, ...]

    def value(self, values: Values) -> Any:
        given = [argument.value(values) for argument in self.arguments]
        if any(x is Missing for x in given):
            return Missing
        return _at(self.column, FUNCTIONS[self.name].call, values, *given)

    def children(self) -> list[Node]:
        return list(self.arguments)

    @property
    def boolean(self) -> bool:  # type: ignore[override]
        return self.name in ("any", "all")

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})"


Place = Node | tuple[Node | None, Node | None]
"""One index, or a range with either end left out."""


@dataclass(frozen=True, slots=True)
class Index(Node):
    """``base[0, -1, 2:5][3]``: one tuple of places for each pair of brackets."""

    base: Node
    brackets: tuple[tuple[Place, ...], ...]

    def value(self, values: Values) -> Any:
        out = self.base.value(values)
        for bracket in self.brackets:
            places = [self._place(place, values) for place in bracket]
            if out is Missing or any(p is Missing for p in places):
                return Missing
            out = _at(self.column, functions.index, out, tuple(places))
        return out

    def _place(self, place: Place, values: Values) -> Any:
        if isinstance(place, Node):
            return _whole(place, values)
        ends = [None if end is None else _whole(end, values) for end in place]
        return Missing if any(end is Missing for end in ends) else slice(*ends)

    def children(self) -> list[Node]:
        out = [self.base]
        for bracket in self.brackets:
            for place in bracket:
                ends = (place,) if isinstance(place, Node) else place
                out.extend(end for end in ends if end is not None)
        return out

    def __str__(self) -> str:
        text = self.base.text(ATOM)
        for bracket in self.brackets:
            text += f"[{', '.join(map(_place_text, bracket))}]"
        return text


def _whole(node: Node, values: Values) -> Any:
    x = node.value(values)
    if x is Missing or type(x) is int:
        return x
    if isinstance(x, float) and x.is_integer():
        return int(x)
    raise EvaluationError("an index is a whole number", node.column)


def _place_text(place: Place) -> str:
    if isinstance(place, Node):
        return place.text(SUM)
    return ":".join("" if end is None else end.text(SUM) for end in place)


@dataclass(frozen=True, slots=True)
class Unary(Node):
    """``-x``."""

    operand: Node
    level: ClassVar[int] = UNARY

    def value(self, values: Values) -> Any:
        x = self.operand.value(values)
        return Missing if x is Missing else _at(self.column, functions.negative, x)

    def children(self) -> list[Node]:
        return [self.operand]

    def __str__(self) -> str:
        return f"-{self.operand.text(UNARY)}"


@dataclass(frozen=True, slots=True)
class Power(Node):
    """``base ** exponent``, from right to left."""

    base: Node
    exponent: Node
    level: ClassVar[int] = POWER

    def value(self, values: Values) -> Any:
        a, b = self.base.value(values), self.exponent.value(values)
        if a is Missing or b is Missing:
            return Missing
        return _at(self.column, functions.arithmetic, "**", a, b)

    def children(self) -> list[Node]:
        return [self.base, self.exponent]

    def __str__(self) -> str:
        return f"{self.base.text(ATOM)} ** {self.exponent.text(UNARY)}"


Rest = tuple[tuple[str, int, Node], ...]
"""Operators with their columns and right operands."""


@dataclass(frozen=True, slots=True)
class _Run(Node):
    """An operand, then operators of one level with theirs; columns count for equality here."""

    first: Node
    rest: Rest

    def children(self) -> list[Node]:
        return [self.first, *(operand for _, _, operand in self.rest)]

    def __eq__(self, other: object) -> bool:
        return (
            type(self) is type(other)
            and isinstance(other, _Run)
            and self.first == other.first
            and [(op, x) for op, _, x in self.rest] == [(op, x) for op, _, x in other.rest]
        )

    def __hash__(self) -> int:
        return hash((type(self), str(self)))

    def __str__(self) -> str:
        parts = [self.first.text(self.level + 1)]
        parts += [f" {op} {operand.text(self.level + 1)}" for op, _, operand in self.rest]
        return "".join(parts)


@dataclass(frozen=True, slots=True, eq=False)
class Chain(_Run):
    """``a + b - c`` or ``a * b / c``, from left to right."""

    def value(self, values: Values) -> Any:
        out = self.first.value(values)
        for op, column, operand in self.rest:
            x = operand.value(values)
            if out is Missing or x is Missing:
                out = Missing
            else:
                out = _at(column, functions.arithmetic, op, out, x)
        return out

    @property
    def level(self) -> int:  # type: ignore[override]
        return SUM if self.rest[0][0] in "+-" else TERM


@dataclass(frozen=True, slots=True, eq=False)
class Compare(_Run):
    """``a < b <= c``: each neighbour with the next, all must hold."""

    level: ClassVar[int] = COMPARE
    boolean: ClassVar[bool] = True

    def value(self, values: Values) -> Any:
        out: Any = None
        left = self.first.value(values)
        for op, column, operand in self.rest:
            right = operand.value(values)
            if left is Missing or right is Missing:
                part: Any = Missing
            else:
                part = _at(column, functions.compare, op, left, right)
            out = part if out is None else _at(column, _both, out, part)
            left = right
        return out


def _both(a: Any, b: Any) -> Any:
    if a is False or b is False:
        return False
    if a is Missing or b is Missing:
        return Missing
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return functions.arithmetic("*", a, b) != 0
    return a and b


# -- truth ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Junction(Node):
    operands: tuple[Node, ...]
    word: ClassVar[str]
    decides: ClassVar[bool]  # the operand that settles it
    boolean: ClassVar[bool] = True

    def value(self, values: Values) -> Any:
        missing = False
        for operand in self.operands:
            x = truth_at(operand, values)
            if x is self.decides:
                return x
            missing = missing or x is Missing
        return Missing if missing else not self.decides

    def children(self) -> list[Node]:
        return list(self.operands)

    def __str__(self) -> str:
        return f" {self.word} ".join(x.text(self.level + 1) for x in self.operands)


@dataclass(frozen=True, slots=True)
class And(_Junction):
    """``a and b``."""

    level: ClassVar[int] = AND
    word: ClassVar[str] = "and"
    decides: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Or(_Junction):
    """``a or b``."""

    level: ClassVar[int] = OR
    word: ClassVar[str] = "or"
    decides: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Not(Node):
    """``not a``."""

    operand: Node
    level: ClassVar[int] = NOT
    boolean: ClassVar[bool] = True

    def value(self, values: Values) -> Any:
        x = truth_at(self.operand, values)
        return Missing if x is Missing else not x

    def children(self) -> list[Node]:
        return [self.operand]

    def __str__(self) -> str:
        return f"not {self.operand.text(NOT)}"


@dataclass(frozen=True, slots=True)
class AnyOf(Node):
    """``any NaN``, ``any inf``; ``any NaN in x`` (without: in the current event's value)."""

    what: str
    of: Node | None
    level: ClassVar[int] = COMPARE
    boolean: ClassVar[bool] = True

    def value(self, values: Values) -> Any:
        x = values.get("here") if self.of is None else self.of.value(values)
        if x is Missing or (self.of is None and isinstance(x, (str, tuple))):
            return Missing  # the current event has no numbers
        return _at(self.column, FUNCTIONS[self.what].call, values, x) > 0

    def children(self) -> list[Node]:
        return [] if self.of is None else [self.of]

    def __str__(self) -> str:
        text = f"any {'NaN' if self.what == 'nan' else 'inf'}"
        return text if self.of is None else f"{text} in {self.of.text(SUM)}"
