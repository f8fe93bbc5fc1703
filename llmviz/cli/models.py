"""``llmviz models``: which models have a name, and fetching one into the cache."""

from __future__ import annotations

from typing import Annotated

import typer

from llmviz import hub
from llmviz.cli.output import JsonOption, examples, human_bytes, stdout, table, write_json
from llmviz.model.arch import supported_archs

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
    runs = set(supported_archs())
    if as_json:
        write_json(
            [
                {
                    "name": model.name,
                    "title": model.title,
                    "arch": model.arch,
                    "runs": model.arch in runs,
                    "licence": model.licence,
                    "bytes": model.nbytes,
                    "sha256": model.sha256,
                    "path": str(model.path) if model.path else None,
                }
                for model in known
            ]
        )
        return
    columns = ("name", "model", "size", "licence", "in the cache", "can be")
    rows = table("", *columns, right=("size",))
    for model in known:
        rows.add_row(
            model.name,
            model.title,
            human_bytes(model.nbytes),
            model.licence,
            "yes" if model.path else "no",
            "run"
            if model.arch in runs
            else f"inspected, tokenized ({model.arch} does not run yet)",
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
