"""``llmviz models``: which models have a name, and fetching one into the cache."""

from __future__ import annotations

from typing import Annotated

import typer

from llmviz import hub
from llmviz.cli.output import JsonOption, examples, human_bytes, stderr, stdout, table, write_json
from llmviz.model.arch import supported_archs

EXAMPLES = examples("llmviz models", "llmviz models fetch smollm2-135m")

app = typer.Typer(invoke_without_command=True, help="List the models that have a name; fetch one.")


@app.callback()
def models(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List the models that have a name, and which of them are here already."""
    if ctx.invoked_subcommand is None:
        list_(as_json)


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List the models that have a name, and which of them are here already."""
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
    columns = ("name", "model", "size", "licence", "is here", "can be")
    rows = table("", *columns, right=("size",))
    for model in known:
        rows.add_row(
            model.name,
            model.title,
            human_bytes(model.nbytes),
            model.licence,
            "always" if model.shipped else "yes" if model.path else "no",
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
    """Fetch a model into the cache, check it, make its kernels ready, print its path."""
    path = hub.resolve(name)
    _make_ready(path)
    print(path)


def _make_ready(path: object) -> None:
    """Compile what products with this file's tensor types need, where that has not been done."""
    from llmviz.ggml.backends import kernels
    from llmviz.ggml.dots import DOTS
    from llmviz.ggml.types import TYPES
    from llmviz.gguf import open_gguf

    if not kernels.usable():
        return
    with open_gguf(str(path)) as gguf:
        types = sorted({t.type for t in gguf.tensor_infos.values() if t.type in DOTS})
    if types and not kernels.warm(types):
        names = ", ".join(TYPES[t].name for t in types)
        stderr().print(f"compiling kernels for {names}, once", style="dim")
        kernels.compile_now(types)
