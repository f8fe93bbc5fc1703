"""The ``llmviz`` command: one file per subcommand.

Does not do: computing anything that the library does not offer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from llmviz.cli import devices, generate, inspect, lab, models, parity, tokenize, trace
from llmviz.cli.output import print_error
from llmviz.errors import LlmvizError

__all__ = ["app", "main"]


class _Commands(TyperGroup):
    """Errors that llmviz raises on purpose are one red line, not a traceback; Ctrl-C is silent."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except LlmvizError as error:
            print_error(str(error))
            raise typer.Exit(1) from error
        except KeyboardInterrupt as stop:
            raise typer.Exit(130) from stop


app = typer.Typer(
    name="llmviz",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A visual debugger for LLM inference. FILE is the path of a GGUF file, the name of a "
    "known model (`llmviz models`), or hf:owner/repository/file.gguf.",
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"llmviz {version('llmviz-debugger')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def _add(command: Callable[..., None], examples: str, **settings: Any) -> None:
    """Register a command; its docstring is its help, paragraphs filled anew to the terminal."""
    paragraphs = (command.__doc__ or "").split("\n\n")
    text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    app.command(help=text, epilog=examples, **settings)(command)


_add(inspect.inspect, inspect.EXAMPLES)
_add(tokenize.tokenize, tokenize.EXAMPLES)
_add(generate.generate, generate.EXAMPLES)
_add(trace.trace, trace.EXAMPLES)
_add(parity.parity, parity.EXAMPLES)
_add(devices.devices, devices.EXAMPLES)
app.add_typer(models.app, name="models", epilog=models.EXAMPLES)
_add(
    lab.lab,
    lab.EXAMPLES,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)


def main() -> None:
    """Entry point of the ``llmviz`` script and of ``python -m llmviz``."""
    app()
