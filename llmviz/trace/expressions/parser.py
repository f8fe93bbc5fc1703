"""From text to tree: the tokens and the grammar of expressions.

Grammar, from the loosest binding to the tightest::

    or:  and:  not x  any NaN [in x]  any inf [in x]
    a < b <= c  ==  !=  ~ (glob)  in  not in
    a + b - c:  a * b / c % d:  -a  +a:  a ** b:  x[0, -1, 2:5]
    12  1.5e3  inf  nan  true  false  "text"  [a, b]  (a)  f(a, b)
    entropy  kv.used  top_k.k        a variable, a sampler's parameter
    l_out-5  l_out-*  result_norm    a node: no space before the minus; a difference has one
    node("Kcur-0 (view)")            a node with any other name, or a glob
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from llmviz.errors import LlmvizError
from llmviz.trace.expressions import syntax
from llmviz.trace.expressions.functions import FUNCTIONS
from llmviz.trace.expressions.syntax import Node
from llmviz.trace.values import LAYER_NODES, PLAIN_NODES, VARIABLES, sampler_parameters

__all__ = ["LAYER", "MAX_DEPTH", "MAX_LENGTH", "ExpressionError", "nearest", "parse"]

MAX_LENGTH: Final = 1000  # characters
MAX_DEPTH: Final = 32  # expressions inside each other
_SHOWN = 72  # characters of the text around the caret

_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<name>[A-Za-z_]\w*(?:\.\w+)*(?:-(?:\d+(?![\w.])|\*))?)
      | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<op>\*\*|<=|>=|==|!=|[-+*/%<>~()\[\],:])""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
LAYER = re.compile(r"(.+)-(\d+|\*)")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_WORDS = {"and", "or", "not", "in", "any", "true", "false", "nan", "inf"}
_HINTS = {"=": "use == to compare", "&": "use 'and'", "|": "use 'or'", "!": "use 'not'"}
_LEVELS: Final = {
    "or": syntax.OR,
    "and": syntax.AND,
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!=", "~", "in", "not"), syntax.COMPARE),
    **dict.fromkeys("+-", syntax.SUM),
    **dict.fromkeys("*/%", syntax.TERM),
    "**": syntax.POWER,
    "[": syntax.ATOM,
}


class ExpressionError(LlmvizError):
    """An expression cannot be read, or cannot be computed with the values there are.

    Attributes
    ----------
    reason : str
        One line, without the place.
    text : str
        The expression.
    column : int
        Where it is, counted from 1.
    """

    def __init__(self, reason: str, text: str, column: int) -> None:
        self.reason = reason
        self.text = text
        self.column = column
        start = max(0, min(column - 1 - _SHOWN // 2, len(text) - _SHOWN))
        shown = "".join(c if c.isprintable() else " " for c in text[start : start + _SHOWN])
        caret = " " * (column - 1 - start) + "^"
        super().__init__(f"{reason} (column {column})\n  {shown}\n  {caret}")


def nearest(name: str, known: Iterable[str]) -> str:
    """``": did you mean entropy?"``, or nothing where no known name is near."""
    close = get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f": did you mean {' or '.join(close)}?" if close else ""


def parse(text: str, nodes: list[str]) -> Node:
    """The tree of a text; `nodes` are further names that need no ``node("...")``."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(
            f"an expression of {len(text):,} characters; at most {MAX_LENGTH:,} are read",
            text[:_SHOWN],
            1,
        )
    return _Parser(text, nodes).all()


class _Parser:
    """Precedence climbing over the tokens of one text."""

    def __init__(self, text: str, nodes: list[str]) -> None:
        self.text = text
        self.nodes = nodes
        self.depth = 0
        self.at = 0
        self.tokens: list[tuple[str, str, int]] = []  # kind, text, column
        place = 0
        while place < len(text):
            found = _TOKEN.match(text, place)
            if found is None:
                raise self.error(self._unreadable(text[place]), place + 1)
            if found.lastgroup != "space":
                self.tokens.append((found.lastgroup or "", found[0], place + 1))
            place = found.end()
        self.tokens.append(("end", "", len(text) + 1))

    def _unreadable(self, char: str) -> str:
        if char in "\"'":
            return f"the text that begins here has no closing {char}"
        hint = _HINTS.get(char)
        return f"{char!r} has no meaning here" + (f": {hint}" if hint else "")

    def error(self, reason: str, column: int | None = None) -> ExpressionError:
        return ExpressionError(reason, self.text, column or self.tokens[self.at][2])

    # -- tokens ------------------------------------------------------------------------------------

    def peek(self, ahead: int = 0) -> str:
        """The text of a token; nothing for a string, so that none is taken for an operator."""
        kind, text, _ = self.tokens[min(self.at + ahead, len(self.tokens) - 1)]
        return "" if kind in ("string", "end") else text

    def take(self) -> tuple[str, str, int]:
        token = self.tokens[self.at]
        self.at += token[0] != "end"
        return token

    def expect(self, text: str, after: str) -> None:
        if self.peek() != text:
            raise self.error(f"expected '{text}' {after}, found {self.found()}")
        self.take()

    def found(self) -> str:
        kind, text, _ = self.tokens[self.at]
        return "the end" if kind == "end" else text[:24] if kind == "string" else f"'{text[:24]}'"

    # -- grammar -----------------------------------------------------------------------------------

    def all(self) -> Node:
        if self.tokens[0][0] == "end":
            raise self.error("an empty expression: write a condition such as entropy > 3")
        root = self.parse(syntax.OR)
        if self.tokens[self.at][0] != "end":
            raise self.error(f"expected an operator or the end, found {self.found()}")
        return root

    def parse(self, level: int) -> Node:
        """An expression whose operators bind at least as tightly as `level`."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(f"more than {MAX_DEPTH} expressions inside each other")
        left = self.prefix(level)
        while (bound := self.level()) >= level:
            left = self.infix(left, bound)
        self.depth -= 1
        return left

    def level(self) -> int:
        """How tightly the operator that comes next binds, -1 where none comes."""
        if self.peek() == "not" and self.peek(1) != "in":
            return -1
        return _LEVELS.get(self.peek(), -1)

    def infix(self, left: Node, bound: int) -> Node:
        if bound == syntax.ATOM:
            column = self.tokens[self.at][2]
            base, brackets = left, []
            if isinstance(left, syntax.Index):  # (x[0])[1] is x[0][1]
                base, brackets = left.base, list(left.brackets)
            while self.peek() == "[":
                brackets.append(self.bracket())
            return syntax.Index(column, base, tuple(brackets))
        if bound == syntax.POWER:
            column = self.take()[2]
            return syntax.Power(column, left, self.parse(syntax.UNARY))
        rest = []
        while self.level() == bound:  # a whole run of them is one node: long sums stay flat
            _, op, column = self.take()
            if op == "not":
                op = f"not {self.take()[1]}"
            rest.append((op, column, self.parse(bound + 1)))
        if bound in (syntax.OR, syntax.AND):
            kind = syntax.Or if bound == syntax.OR else syntax.And
            return kind(left.column, (left, *(operand for _, _, operand in rest)))
        if bound == syntax.COMPARE:
            return syntax.Compare(left.column, left, tuple(rest))
        return syntax.Chain(left.column, left, tuple(rest))

    def prefix(self, level: int) -> Node:
        kind, text, column = self.take()
        if kind == "number":
            return syntax.number(column, text)
        if kind == "string":
            return syntax.Text(column, _unescape(text))
        if text == "not" or (text == "any" and self.peek() != "("):
            if level > syntax.COMPARE:
                raise self.error(f"put '{text} ...' in parentheses here", column)
            return self.negation(column) if text == "not" else self.any_of(column)
        if kind == "name":
            return self.name(text, column)
        if text == "-":
            return syntax.Unary(column, self.parse(syntax.UNARY))
        if text == "+":
            return self.parse(syntax.UNARY)
        if text == "(":
            inner = self.parse(syntax.OR)
            self.expect(")", "to close the parenthesis")
            return inner
        if text == "[":
            return syntax.List(column, tuple(self.items("]", "the list")))
        self.at -= kind != "end"
        raise self.error(f"expected a value, found {self.found()}", column)

    def negation(self, column: int) -> Node:
        return syntax.Not(column, self.parse(syntax.COMPARE))

    def any_of(self, column: int) -> Node:
        kind, what, _ = self.tokens[self.at]
        if kind != "name" or what.lower() not in ("nan", "inf"):
            raise self.error("after 'any' comes NaN, inf, or (...) around what is asked")
        self.take()
        of = None
        if self.peek() == "in":
            self.take()
            of = self.parse(syntax.SUM)
        return syntax.AnyOf(column, what.lower(), of)

    def items(self, close: str, what: str) -> list[Node]:
        """Expressions between commas, up to the closing bracket."""
        out: list[Node] = []
        while self.peek() != close:
            if out:
                self.expect(",", f"or '{close}' in {what}")
            out.append(self.parse(syntax.OR))
        self.take()
        return out

    def bracket(self) -> tuple[syntax.Place, ...]:
        self.take()
        places = [self.place()]
        while self.peek() == ",":
            self.take()
            places.append(self.place())
        self.expect("]", "after the index")
        return tuple(places)

    def place(self) -> syntax.Place:
        start = None
        if self.peek() != ":":
            start = self.parse(syntax.SUM)
            if self.peek() != ":":
                return start
        self.take()
        return start, None if self.peek() in (",", "]") else self.parse(syntax.SUM)

    # -- names -------------------------------------------------------------------------------------

    def name(self, text: str, column: int) -> Node:
        if self.peek() == "(":
            return self.call(text, column)
        if text.lower() in ("nan", "inf"):
            return syntax.number(column, text.lower())
        if text.lower() in ("true", "false"):
            return syntax.Truth(column, text.lower() == "true")
        if text in _WORDS:
            raise self.error(f"expected a value, found '{text}'", column)
        if text in VARIABLES or text in sampler_parameters():
            return syntax.Name(column, text)
        layer = LAYER.fullmatch(text)
        if layer and (layer[1] in VARIABLES or layer[1].lower() in _WORDS):
            raise self.error(
                f"{text!r} reads as a node's name; for a difference put spaces: "
                f"{layer[1]} - {layer[2]}",
                column,
            )
        if layer or text in PLAIN_NODES or text in self.nodes:
            return syntax.NodeName(column, text, _bare(text))
        raise self.unknown(text, column)

    def unknown(self, text: str, column: int) -> ExpressionError:
        if text in FUNCTIONS:
            usage = FUNCTIONS[text].usage
            return self.error(f"{text} is a function: {usage}", column)
        bases = {layer[1] for n in self.nodes if (layer := LAYER.fullmatch(n))} or set(LAYER_NODES)
        if text in bases:
            return self.error(f"{text} is in every layer: write {text}-3, or {text}-*", column)
        known = {*VARIABLES, *FUNCTIONS, *PLAIN_NODES, *sampler_parameters()}
        known |= {f"{base}-3" for base in bases}
        near = nearest(text, sorted(known)) or f'; a node can be written node("{text[:40]}")'
        return self.error(f"unknown name {text[:40]!r}{near}", column)

    def call(self, text: str, column: int) -> Node:
        self.take()
        if text == "node":
            return self.node(column)
        function = FUNCTIONS.get(text.lower() if text.lower() in ("nan", "inf") else text)
        if function is None:
            raise self.error(f"unknown function {text[:40]!r}{nearest(text, FUNCTIONS)}", column)
        arguments = self.items(")", f"{text}(...)")
        if not function.least <= len(arguments) <= function.most:
            raise self.error(f"{function.usage} does not take {len(arguments)} arguments", column)
        return syntax.Call(column, function.usage.partition("(")[0], tuple(arguments))

    def node(self, column: int) -> Node:
        kind, text, _ = self.take()
        name = _unescape(text) if kind == "string" else ""
        if not name.strip():
            raise self.error('node(...) takes a name in quotes: node("Kcur-0 (view)")', column)
        self.expect(")", "after the node's name")
        return syntax.NodeName(column, name, _bare(name))


def _unescape(quoted: str) -> str:
    def one(found: re.Match[str]) -> str:
        code = found[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)

    return _ESCAPE.sub(one, quoted[1:-1])


def _bare(name: str) -> bool:
    """Whether a node's name can be written without ``node("...")``."""
    found = _TOKEN.fullmatch(name)
    if found is None or found.lastgroup != "name":
        return False
    layer = LAYER.fullmatch(name)
    if layer is None:
        return name in PLAIN_NODES
    return not (layer[1] in VARIABLES or layer[1].lower() in _WORDS)
