"""``llmviz trace``: every node of a decode, as it is computed. ↔ examples/eval-callback

With ``--html`` or ``--save`` a whole run is recorded instead, see `llmviz.cli.record`.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.text import Text

from llmviz.batch import Batch
from llmviz.cli.generate import ChatOption, ContextOption, open_context, read_prompt
from llmviz.cli.output import examples, stdout, write_json
from llmviz.cli.record import ENGINE, record_run, trace_to_page
from llmviz.errors import LlmvizError
from llmviz.events import Event

EXAMPLES = examples(
    'llmviz trace smollm2-135m -p "Hello"',
    "llmviz trace smollm2-135m -p \"Hello\" --filter 'kq_soft_max' --values",
    'llmviz trace model.gguf -p "Hello" --jsonl > nodes.jsonl',
    'llmviz trace smollm2-135m -p "The capital of France is" -n 20 --html run.html',
    'llmviz trace smollm2-135m -p "Hello" -n 20 --save run.zarr.zip',
    'llmviz trace model.gguf -p "Hello" --engine llama.cpp --html theirs.html',
    "llmviz trace run.zarr.zip --html run.html",
)
SAVED = ".zip"
EDGE = 3


def trace(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Path of a GGUF file, name of a known model, hf:owner/repository/file.gguf; or a "
            "saved trace, with --html.",
            show_default=False,
        ),
    ],
    prompt: Annotated[
        str | None,
        typer.Option(
            "--prompt", "-p", help="The text to go on from; - reads it from standard input."
        ),
    ] = None,
    ctx: ContextOption = 512,
    chat: ChatOption = False,
    filter_: Annotated[
        str, typer.Option("--filter", help="Only nodes whose name matches this regular expression.")
    ] = "",
    values: Annotated[
        bool, typer.Option("--values", help="Print the values at the edges.")
    ] = False,
    jsonl: Annotated[bool, typer.Option("--jsonl", help="One JSON object a line.")] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Record a run and write it as a page that opens from disk."),
    ] = None,
    save: Annotated[
        Path | None, typer.Option("--save", help="Record a run and write it as run.zarr.zip.")
    ] = None,
    n_predict: Annotated[
        int, typer.Option("--n-predict", "-n", min=1, help="Tokens of a recorded run.")
    ] = 20,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of a recorded run; a new one if not given.")
    ] = None,
    temp: Annotated[
        float, typer.Option(help="Temperature of a recorded run; 0: the likeliest token.")
    ] = 0.8,
    engine: Annotated[
        str, typer.Option(help="What computes a recorded run: llmviz or llama.cpp itself.")
    ] = "llmviz",
) -> None:
    """Decode a prompt and print every node: name, operation, sources, shape and sum.

    With --html or --save: generate, record the whole run and write it.
    """
    if file.endswith(SAVED):
        if html is None or save is not None or prompt is not None:
            raise LlmvizError(f"{file} is a saved trace: all that can be asked of it is --html")
        trace_to_page(Path(file), html)
        return
    if engine not in ("llmviz", ENGINE):
        raise LlmvizError(f"--engine is llmviz or {ENGINE}, not {engine!r}")
    if prompt is None:
        raise LlmvizError("a run needs a prompt: give it with -p")
    if html is not None or save is not None:
        if filter_ or values or jsonl:
            raise LlmvizError("--filter, --values and --jsonl print nodes; they record nothing")
        record_run(
            file,
            prompt,
            n_predict=n_predict,
            n_ctx=ctx,
            chat=chat,
            seed=secrets.randbits(32) if seed is None else seed,
            temp=temp,
            html=html,
            save=save,
            engine=engine,
        )
        return
    if engine != "llmviz":
        raise LlmvizError(f"--engine {engine} records a run: say where to, with --html or --save")
    wanted = _matcher(filter_)
    model, context = open_context(file, ctx)
    ids = model.vocab.tokenize(read_prompt(model, prompt, chat), parse_special=True)
    if not ids:
        raise LlmvizError("the prompt has no tokens: nothing to decode")
    console = stdout()
    for event in context.decode_steps(Batch.get_one(ids), want=wanted):
        if event.kind != "node":
            continue
        if jsonl:
            write_json(_record(event, values), indent=None)
        else:
            console.print(Text(_line(event)), soft_wrap=True)
            if values:
                console.print(Text(_edges(np.asarray(event.value))), soft_wrap=True)


def _matcher(pattern: str) -> Any:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise LlmvizError(f"--filter {pattern!r} is no regular expression: {error}") from error
    return lambda name: compiled.search(name) is not None


def _ne(tensor: Any) -> list[int]:
    return [*tensor.ne, *(1,) * (4 - len(tensor.ne))]


def _line(event: Event) -> str:
    tensor = event.about
    sources = ", ".join(f"{src.name}{{{_sizes(src)}}}" for src in tensor.src)
    value = np.asarray(event.value)
    return (
        f"{event.name:>24} = ({value.dtype}) {tensor.op:>10}({sources}) = "
        f"{{{_sizes(tensor)}}}  sum {_sum(value):.6f}"
    )


def _sizes(tensor: Any) -> str:
    return ", ".join(str(n) for n in _ne(tensor))


def _sum(value: np.ndarray) -> float:
    return float(value.sum(dtype=np.float64))


def _record(event: Event, values: bool) -> dict[str, Any]:
    tensor, value = event.about, np.asarray(event.value)
    record = {
        "name": event.name,
        "op": tensor.op,
        "ne": _ne(tensor),
        "dtype": str(value.dtype),
        "src": [src.name for src in tensor.src],
        "layer": tensor.il,
        "sum": _sum(value),
    }
    if values:
        record["values"] = value
    return record


def _edges(value: np.ndarray) -> str:
    """The first and last values along each axis, numpy's way: what is left out shows as dots."""
    return np.array2string(
        value, threshold=4 * EDGE * EDGE, edgeitems=EDGE, precision=4, suppress_small=True
    )
