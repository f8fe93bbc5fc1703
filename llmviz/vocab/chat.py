"""Chat templates: messages to a prompt, by the Jinja template in the file.
↔ common/chat.cpp, common/jinja/ (and Hugging Face's apply_chat_template, which templates are
written for)

A template comes with a downloaded file, so it runs in Jinja's sandbox and with limits on how
often its loops turn and how large its values get.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    Sequence,
    ValuesView,
)
from datetime import datetime
from typing import Any

import jinja2
import jinja2.ext
import jinja2.parser
from jinja2 import nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from llmviz.errors import VocabError

__all__ = ["ChatTemplate"]

MAX_TURNS = 1_000_000
"""Loop turns and calls in one rendering."""
MAX_SIZE = 1 << 24
"""Characters of the prompt, and size of any value in between."""

_LONG_NUMBER = re.compile(r"\d{6,}")


class _Refusal(Exception):
    """The template itself refuses the messages, or a limit is reached."""


class ChatTemplate:
    """A compiled chat template.

    Parameters
    ----------
    text : str
        Jinja source.

    Raises
    ------
    VocabError
        The source is not valid; the message has the line.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._environment = _Environment()
        try:
            self._template = self._environment.from_string(text)
        except jinja2.TemplateSyntaxError as error:
            raise VocabError(
                f"the chat template is not valid Jinja: {error.message} (line {error.lineno})"
            ) from error
        except (RecursionError, SyntaxError, ValueError, OverflowError, MemoryError) as error:
            raise VocabError(f"the chat template cannot be compiled: {error}") from error

    def render(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> str:
        """The prompt for `messages`; the other variables are passed to the template.

        Raises
        ------
        VocabError
            The messages are not a list of dictionaries, the template refuses them or fails, or it
            goes beyond a limit.
        """
        if isinstance(messages, (str, bytes, Mapping)) or not all(
            isinstance(message, Mapping) for message in messages
        ):
            raise VocabError(
                "messages must be a list of dictionaries such as "
                '[{"role": "user", "content": "Hello"}]'
            )
        self._environment.turns = 0
        given = {"tools": None, "documents": None, **variables}
        chunks: list[str] = []
        size = 0
        try:
            for chunk in self._template.generate(messages=[dict(m) for m in messages], **given):
                chunks.append(chunk)
                size += len(chunk)
                if size > MAX_SIZE:
                    raise _Refusal(f"it wrote more than {MAX_SIZE} characters")
        except _Refusal as refusal:
            raise VocabError(f"the chat template gave up: {refusal}") from refusal
        except Exception as error:  # a template is somebody else's program: it may raise anything
            kind = type(error).__name__
            raise VocabError(f"the chat template failed: {kind}: {error}") from error
        return "".join(chunks)


def _check_size(value: Any) -> Any:
    if isinstance(value, (str, list, tuple)) and len(value) > MAX_SIZE:
        raise _Refusal(f"a value grew beyond {MAX_SIZE} elements")
    return value


def _check_format(text: str) -> None:
    if _LONG_NUMBER.search(text):
        raise _Refusal("a format asks for an absurd width")


def _check_arguments(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Refuse arguments with which a function on text could fill the memory; return the others.

    A width or count must not be absurd. A function that puts one text into another many times makes
    at most the product of their lengths.
    """
    values = [*args, *kwargs.values()]
    values += [inner for value in values if isinstance(value, dict) for inner in value.values()]
    if any(isinstance(value, int) and value > MAX_SIZE for value in values):
        raise _Refusal(f"{name} was called with a number beyond {MAX_SIZE}")
    texts = [value for value in values if isinstance(value, str)]
    if name in ("format", "format_map") and texts:
        _check_format(texts[0])
    longest = sorted(map(len, texts))[-2:]
    if len(longest) == 2 and longest[0] * longest[1] > 16 * MAX_SIZE:
        raise _Refusal(f"{name} was called with texts that are too long")
    if name == "join":
        extra = longest[0] if longest else 0
        return [_counted(a, extra) if isinstance(a, _JOINABLE) else a for a in args]
    return list(args)


_JOINABLE = (list, tuple, set, Iterator, KeysView, ValuesView)


def _counted(items: Iterable[Any], extra: int) -> Iterator[Any]:
    """The items to be joined, until they are too long together."""
    total = 0
    for item in items:
        total += extra + (len(item) if isinstance(item, str) else 1)
        if total > MAX_SIZE:
            raise _Refusal(f"join would make more than {MAX_SIZE} characters")
        yield item


def _limited(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter with its arguments and its result checked."""

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        return _check_size(function(*_check_arguments(name, args, kwargs), **kwargs))

    return checked


class _Limits(NodeTransformer):
    """Puts a counter into every loop and macro, and a size check around every ``~``."""

    def _counted(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        count = nodes.EnvironmentAttribute("next_turn")  # a property: cheaper than a call
        node.body.insert(0, nodes.ExprStmt(count, lineno=node.lineno))
        return node

    visit_For = visit_Macro = visit_CallBlock = _counted  # names that Jinja looks up

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        join = nodes.EnvironmentAttribute("join_checked")
        return nodes.Call(join, node.nodes, [], None, None, lineno=node.lineno)


class _Generation(jinja2.ext.Extension):
    """``{% generation %} ... {% endgeneration %}``: marks the answer; only its body counts."""

    tags = {"generation"}

    def parse(self, parser: jinja2.parser.Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja as chat templates expect it, with limits."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _Generation],
        )
        self.turns = 0
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now
        self.globals.pop("lipsum", None)
        self.filters = {name: _limited(name, f) for name, f in self.filters.items()}
        self.filters["tojson"] = _to_json

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        return _Limits().visit(tree).set_environment(self)

    @property
    def next_turn(self) -> int:
        """Read at the start of every loop turn and macro."""
        self.turns += 1
        if self.turns > MAX_TURNS:
            raise _Refusal(f"its loops turned more than {MAX_TURNS} times")
        return self.turns

    def join_checked(self, *parts: Any) -> str:
        """What ``~`` does."""
        return "".join(_counted(map(str, parts), 0))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Refuse an operation whose result would be absurdly large before it is computed."""
        if operator == "%" and isinstance(left, str):
            _check_format(left)
        elif operator == "*":
            for sequence, times in ((left, right), (right, left)):
                if isinstance(sequence, (str, list, tuple)) and isinstance(times, int):
                    _check_arguments("*", [len(sequence) * times], {})
        if operator in ("*", "**") and isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * right if operator == "**" else 0
            if max(bits, left.bit_length(), right.bit_length()) > 10_000:
                raise _Refusal("a number grew beyond 10000 bits")
        return _check_size(super().call_binop(context, operator, left, right))

    def call(self, context: Context, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Call something on the template's behalf."""
        method = getattr(function, "__wrapped__", function)  # Jinja wraps str.format
        text = getattr(method, "__self__", None)
        if not isinstance(text, str):
            return super().call(context, function, *args, **kwargs)
        _, *checked = _check_arguments(method.__name__, [text, *args], kwargs)
        return _check_size(super().call(context, function, *checked, **kwargs))


def _raise_exception(message: str) -> None:
    """Lets a template refuse a conversation."""
    raise _Refusal(message)


def _strftime_now(pattern: str) -> str:
    """Today's date or time, for templates that tell the model."""
    return datetime.now().strftime(pattern)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it is, without the escapes for HTML that Jinja's own filter makes."""
    _check_arguments("tojson", [indent], {})
    text = json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    return _check_size(text)
