"""What the commands share: consoles, tables that lose nothing, JSON, progress, opening FILE."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from llmviz import hub

__all__ = [
    "FileArg",
    "JsonOption",
    "examples",
    "human_bytes",
    "loading",
    "open_file",
    "print_error",
    "stderr",
    "stdout",
    "table",
    "write_json",
]

WIDTH_WITHOUT_TERMINAL = 160

FileArg = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="Path of a GGUF file, name of a known model, or hf:owner/repository/file.gguf.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def examples(*lines: str) -> str:
    """Epilog of a command's help: one example a line."""
    # typer joins lines into paragraphs, but keeps those of a paragraph that starts with \b
    return "\n".join(["\b", "[bold]Examples[/bold]", *(f"  {escape(line)}" for line in lines)])


def stdout() -> Console:
    """Console for results. Wide where it is no terminal, so that a pipe gets whole lines."""
    return _console(stderr=False)


def stderr() -> Console:
    """Console for everything that is not a result: progress, notes, errors."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False, markup=False)
    if not console.is_terminal:
        console.width = WIDTH_WITHOUT_TERMINAL
    return console


def print_error(message: str) -> None:
    """One red line on stderr (longer ones fold in the terminal, they are not cut)."""
    stderr().print(Text(f"error: {message}", style="red"), soft_wrap=True)


def table(title: str, *columns: str, right: tuple[str, ...] = ()) -> Table:
    """A plain table whose cells fold rather than lose their end."""
    made = Table(
        title=title or None, title_justify="left", title_style="bold", box=None, pad_edge=False
    )
    for column in columns:
        made.add_column(
            column, justify="right" if column in right else "left", overflow="fold", style=""
        )
    return made


def human_bytes(n: int) -> str:
    """Bytes with a binary unit: ``"93.8 MiB"``."""
    value = float(n)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{n} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def write_json(value: Any, *, indent: int | None = 2) -> None:
    """Print a JSON document, or with ``indent=None`` one line of JSON lines."""
    sys.stdout.write(json.dumps(_plain(value), ensure_ascii=False, indent=indent) + "\n")


def _plain(value: Any) -> Any:
    """Only what JSON has: infinities and NaN, which it has not, become strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return _plain(value.tolist())
    return value


def open_file(ref: str) -> Path:
    """The local path of FILE; fetched first, with a progress bar, if it has to be."""
    return hub.resolve(ref)


@contextmanager
def loading(what: str) -> Iterator[Callable[[float], bool]]:
    """Show a bar on stderr, while there is a terminal, that the yielded function moves (0 to 1)."""
    console = stderr()
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task(what, total=1.0)

        def move(fraction: float) -> bool:
            bar.update(task, completed=fraction)
            return True

        yield move
