"""``llmviz models``: which models have a name, and fetching one into the cache."""

from __future__ import annotations

from typing import Annotated

import typer

from llmviz import hub
from llmviz.cli.output import JsonOption, examples, human_bytes, stdout, table, write_json

EXAMPLES = examples("llmviz models", "llmviz models fetch smollm2-135m")

app = typer.Typer(invoke_without_command=True, help="List the models that have a name; fetch one.")


@app.callback()
def models(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List the models that have a name, and which of them are in the cache."""
    if ctx.invoked_subcommand is None:
        list_(as_json)


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List the models that have a name, and which of them are in the cache."""
    known = hub.list_models()
    if as_json:
        write_json(
            [
                {
                    "name": model.name,
                    "title": model.title,
                    "licence": model.licence,
                    "bytes": model.nbytes,
                    "sha256": model.sha256,
                    "path": str(model.path) if model.path else None,
                }
                for model in known
            ]
        )
        return
    rows = table("", "name", "model", "size", "licence", "in the cache", right=("size",))
    for model in known:
        rows.add_row(
            model.name,
            model.title,
            human_bytes(model.nbytes),
            model.licence,
            "yes" if model.path else "no",
        )
    console = stdout()
    console.print(rows)
    console.print(f"cache: {hub.cache_dir()}", soft_wrap=True)


@app.command(epilog=examples("llmviz models fetch smollm2-135m"))
def fetch(
    name: Annotated[
        str,
        typer.Argument(help="Name of a known model, or hf:owner/repository/file.gguf."),
    ],
) -> None:
    """Fetch a model into the cache, check it, print its path."""
    print(hub.resolve(name))
