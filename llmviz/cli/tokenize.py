"""``llmviz tokenize``: a text as token ids, and the merges that led there."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from llmviz.cli.output import (
    FileArg,
    JsonOption,
    examples,
    open_file,
    stdout,
    table,
    write_json,
)
from llmviz.events import Event
from llmviz.gguf import open_gguf
from llmviz.vocab import Vocab

EXAMPLES = examples(
    'llmviz tokenize smollm2-135m "Hello world"',
    'llmviz tokenize smollm2-135m "unbelievable" --steps',
    'llmviz tokenize smollm2-135m "<|im_start|>user" --parse-special --no-special',
)


def tokenize(
    file: FileArg,
    text: Annotated[str, typer.Argument(help="The text; - reads it from standard input.")],
    steps: Annotated[
        bool, typer.Option("--steps", help="Show the words, every merge, every byte fallback.")
    ] = False,
    no_special: Annotated[
        bool, typer.Option("--no-special", help="Leave out the tokens that the model adds (BOS).")
    ] = False,
    parse_special: Annotated[
        bool, typer.Option("--parse-special", help="Read special tokens written in the text.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Tokenize a text: one row per token with its id, text and bytes."""
    data = sys.stdin.buffer.read() if text == "-" else text.encode("utf-8", "surrogateescape")
    with open_gguf(open_file(file)) as gguf:
        vocab = Vocab.from_gguf(gguf)
        walk = vocab.tokenize_steps(data, add_special=not no_special, parse_special=parse_special)
        seen: list[Event] = []
        while True:
            try:
                seen.append(next(walk))
            except StopIteration as stop:
                ids = stop.value
                break
        rows = [_row(vocab, i) for i in ids]
    if as_json:
        document: dict[str, Any] = {"tokens": rows}
        if steps:
            document["steps"] = [_step(event) for event in seen if event.kind == "data"]
        write_json(document)
        return
    console = stdout()
    if steps:
        _print_steps(console, seen)
    _print_tokens(console, rows)


def _row(vocab: Vocab, token: int) -> dict[str, Any]:
    piece = vocab.token_to_piece(token, special=True)
    return {
        "id": token,
        "text": vocab.token_text(token),
        "piece": piece.decode("utf-8", "backslashreplace"),
        "bytes": piece.hex(" "),
        "special": vocab.is_control(token),
    }


def _print_tokens(console: Console, rows: list[dict[str, Any]]) -> None:
    shown = table(f"{len(rows)} tokens", "", "id", "piece", "bytes", "", right=("", "id"))
    for i, row in enumerate(rows):
        shown.add_row(
            str(i),
            str(row["id"]),
            Text(repr(row["piece"])),
            row["bytes"],
            "special" if row["special"] else "",
        )
    console.print(shown)


def _print_steps(console: Console, events: list[Event]) -> None:
    for event in events:
        if event.kind == "data":
            line = Text(f"{event.name:>18}  {_sentence(event)}")
            console.print(line, soft_wrap=True)
    console.print()


def _sentence(event: Event) -> str:
    value = event.value
    if event.name == "special_partition":
        return "  ".join(
            f"{f.text!r} is token {f.id}" if f.kind == "token" else repr(f.text) for f in value
        )
    if event.name == "pre_tokenize":
        return "  ".join(repr(word.text) for word in value)
    if event.name == "merge":
        by = f"rank {value.rank}" if value.rank is not None else f"score {value.score:g}"
        return f"{value.left!r} + {value.right!r} = {value.result!r}, {by}, token {value.id}"
    if event.name == "byte_fallback":
        return f"{value.text!r} is no token: bytes as {value.ids}"
    return str(value)


def _step(event: Event) -> dict[str, Any]:
    value = event.value
    if isinstance(value, list):
        return {"name": event.name, "value": [_fields(item) for item in value]}
    return {"name": event.name, "value": _fields(value)}


def _fields(value: Any) -> Any:
    """The public fields of one of the vocabulary's small records, else the value itself."""
    names = getattr(value, "_fields", None) or getattr(value, "__dataclass_fields__", None)
    if names is None:
        return value
    picked = {name: getattr(value, name) for name in names if name != "film"}
    return {
        name: item.decode("utf-8", "backslashreplace") if isinstance(item, bytes) else item
        for name, item in picked.items()
    }
