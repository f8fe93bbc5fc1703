"""Writes reference.md from the docstrings of the public names: ``python docs/make_reference.py``.

A test runs it and compares, so the page cannot fall behind.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llmviz
from llmviz import sampling, show
from llmviz.model import loader

PAGE = Path(__file__).parent / "reference.md"

ENGINE = (
    "load", "open_gguf", "generate", "generate_steps", "Model", "Context", "ContextParams",
    "DecodeStatus", "Batch", "Chain", "devices", "SimulatedDevice", "Event", "drain",
)  # fmt: skip
DEBUGGER = ("Debugger", "open_trace", "compare", "record_llamacpp")
SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.M)


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """All of it as Markdown."""
    errors = [n for n in llmviz.__all__ if _is_error(getattr(llmviz, n))]
    parts = [
        "# Reference\n",
        "Public names and their docstrings; `python docs/make_reference.py` makes this page.\n",
        "\n## The engine\n",
        *(_entry(f"lv.{name}", getattr(llmviz, name)) for name in ENGINE),
        _entry("llmviz.model.loader.load", loader.load),
        "\n## The debugger\n",
        *(_entry(f"lv.{name}", getattr(llmviz, name)) for name in DEBUGGER),
        "\n## Views: `lv.show`\n",
        *(_entry(f"lv.show.{name}", view) for name, view in _views()),
        "\n## Samplers: `lv.sampling`\n",
        *(_entry(f"lv.sampling.{n}", getattr(sampling, n)) for n in _samplers()),
        "\n## Errors\n",
        *(_entry(f"lv.{name}", getattr(llmviz, name)) for name in errors),
    ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"


def _is_error(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, Exception)


def _views() -> Iterator[tuple[str, Any]]:
    for name, thing in sorted(vars(show).items()):
        if not inspect.isfunction(thing) or thing.__module__ != show.__name__ or name[0] == "_":
            continue
        if "View" in str(inspect.signature(thing).return_annotation) or name == "panel":
            yield name, thing


def _samplers() -> list[str]:
    return [n for n in sampling.__all__ if inspect.isclass(getattr(sampling, n)) and n != "Chain"]


def _entry(name: str, thing: Any) -> str:
    out = [f"\n### `{name}`\n"]
    if inspect.isfunction(thing) or (inspect.isclass(thing) and not _is_error(thing)):
        out.append(f"```text\n{_signature(name, thing)}\n```\n")
    out.append(_markdown(inspect.getdoc(thing) or ""))
    if inspect.isclass(thing) and not _is_error(thing):
        methods = [f"* `{_signature(n, m)}`: {_first(m)}" for n, m in _methods(thing)]
        out += ["", *methods]
    return "\n".join(out)


def _signature(name: str, thing: Any) -> str:
    try:
        found = inspect.signature(thing)
    except ValueError:
        return name
    given = [p.replace(annotation=p.empty) for n, p in found.parameters.items() if n != "self"]
    shown = [p.replace(default=_Plain(p.default)) if p.default is not p.empty else p for p in given]
    return f"{name}{found.replace(parameters=shown, return_annotation=found.empty)}"


class _Plain:
    """A default as the page shows it: no address in memory."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        text = repr(self.value)
        return "..." if " at 0x" in text or text == "<factory>" else text


def _methods(cls: type) -> Iterator[tuple[str, Any]]:
    for name, thing in sorted(inspect.getmembers(cls)):
        if name[0] == "_" or not inspect.getdoc(thing):
            continue
        if inspect.isfunction(thing) or inspect.ismethod(thing):
            yield name, thing


def _first(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ")


def _markdown(doc: str) -> str:
    """A numpydoc docstring: sections in bold, what they list as items."""
    heads = list(SECTION.finditer(doc))
    text = [_prose(doc[: heads[0].start()] if heads else doc)]
    ends = [head.start() for head in heads[1:]] + [len(doc)]
    for head, end in zip(heads, ends, strict=False):
        body = doc[head.end() : end].strip("\n")
        title = head.group(1)
        if title == "Examples":
            shown = re.sub(r" +# doctest: .*", "", body)
            text.append(f"**{title}**\n\n```pycon\n{shown}\n```\n")
        else:
            text.append(f"**{title}**\n\n{_items(body)}\n")
    return "\n".join(text)


def _items(body: str) -> str:
    out: list[str] = []
    for line in body.splitlines():
        if line and not line[0].isspace():
            name, colon, kind = line.partition(" : ")
            out.append(f"* `{name}`" + (f": {_prose(kind)}" if colon else ""))
        elif line.strip():
            out.append(f"  {_prose(line.strip())}")
    return "\n".join(out)


def _prose(text: str) -> str:
    return text.replace("``", "`")


if __name__ == "__main__":
    main()
