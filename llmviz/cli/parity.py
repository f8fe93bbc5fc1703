"""``llmviz parity``: llmviz beside llama.cpp, node by node."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import typer
from rich.text import Text

import llmviz
from llmviz import reference
from llmviz.batch import Batch
from llmviz.cli.generate import PromptOption
from llmviz.cli.output import (
    FileArg,
    JsonOption,
    examples,
    loading,
    open_file,
    stdout,
    table,
    write_json,
)
from llmviz.errors import LlmvizError

EXAMPLES = examples(
    "llmviz parity smollm2-135m",
    'llmviz parity model.gguf -p "def main():" --tolerance 1e-4',
)
N_CTX = 512
# llama.cpp rounds activations to the type that it multiplies a weight's type with.
TOLERANCES = {"F32": 1e-4, "F16": 5e-3, "BF16": 5e-3}


@dataclass
class Pair:
    """One node in both engines: name, operation, ``|ours - theirs| / |theirs|``."""

    name: str
    op: str
    error: float


def parity(
    file: FileArg,
    prompt: PromptOption = "The capital of France is",
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Largest relative error of a node that counts as equal. If not given: "
            "0.0001 for a file of 32-bit floats, 0.005 for 16-bit ones, 0.2 for quantized ones.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare every node of a decode with llama.cpp's own. Exit code 1 if one differs.

    Needs the packages xllamacpp and cffi. llama.cpp multiplies quantized weights with activations
    that it quantizes too; llmviz computes with exact ones. So a quantized file differs by a few
    per cent, a file of 16- or 32-bit floats by rounding only.
    """
    if not reference.available():
        raise LlmvizError(
            f"llama.cpp cannot be loaded: {reference.unavailable_reason()}. "
            "It comes with: pip install 'llmviz-debugger[test]'"
        )
    path = open_file(file)
    settings: dict[str, Any] = {"n_ctx": N_CTX, "type_k": "f32", "type_v": "f32"}
    with loading(f"loading {path.name}") as progress:
        model = llmviz.load(path, weights="f32", progress=progress)
    if tolerance is None:
        tolerance = max(TOLERANCES.get(kind.name, 0.2) for kind in model.gguf.type_counts())
    context = model.context(**settings)
    ids = model.vocab.tokenize(prompt, parse_special=True)
    if not 0 < len(ids) <= N_CTX:
        raise LlmvizError(f"the prompt has {len(ids)} tokens; 1 to {N_CTX} can be compared")
    with reference.Reference(path, nodes=True, **settings) as theirs:
        if theirs.decode(ids) != 0:
            raise LlmvizError("llama.cpp could not decode the prompt")
        pairs, difference = _compare(context, ids, [n for n in theirs.nodes if n.compute])
        logits = theirs.logits_ith(-1)
    ours = context.get_logits_ith(-1)
    assert logits is not None  # the last token of a batch is an output
    over = next((p for p in pairs if not p.error <= tolerance), None)
    result = {
        "file": str(path),
        "tokens": len(ids),
        "nodes": len(pairs),
        "tolerance": tolerance,
        "difference": difference or None,
        "first_over_tolerance": over.name if over else None,
        "logits_error": relative_error(ours, logits),
        "same_next_token": bool(np.argmax(ours) == np.argmax(logits)),
    }
    if as_json:
        write_json(result | {"errors": [{"name": p.name, "error": p.error} for p in pairs]})
    else:
        _print(result, pairs, over, tolerance)
    if difference or over:
        raise typer.Exit(1)


def _compare(context: Any, ids: list[int], theirs: list[Any]) -> tuple[list[Pair], str]:
    """Walk both graphs in step until they part; the pairs so far, and where they part."""
    pairs: list[Pair] = []
    rest = iter(theirs)
    difference = ""
    for event in context.decode_steps(Batch.get_one(ids), want=lambda name: True):
        if event.kind != "node" or difference:
            continue
        node = next(rest, None)
        if node is None or _unnumbered(node.name) != _unnumbered(event.name):
            difference = (
                f"{event.name} where llama.cpp has {node.name if node else 'no more nodes'}"
            )
        elif node.value is not None:
            pairs.append(Pair(node.name, node.op, relative_error(event.value, node.value)))
    left = next(rest, None)
    if not difference and left is not None:
        difference = f"no more nodes where llama.cpp has {left.name}"
    return pairs, difference


def _unnumbered(name: str) -> str:
    """llama.cpp also counts nodes of branches that it does not compute, so numbers may differ."""
    return re.sub(r"^node_\d+", "node_#", name)


def relative_error(ours: Any, theirs: Any) -> float:
    """``|ours - theirs| / |theirs|`` over all values; ``|ours|`` where theirs is all zeros."""
    a, b = np.asarray(ours, np.float64).ravel(), np.asarray(theirs, np.float64).ravel()
    if a.size != b.size:
        return float("inf")
    return float(np.linalg.norm(a - b)) / (float(np.linalg.norm(b)) or 1.0)


def _print(result: dict[str, Any], pairs: list[Pair], over: Pair | None, limit: float) -> None:
    console = stdout()
    worst: dict[str, Pair] = {}
    for pair in pairs:
        kind = re.sub(r"-\d+|_l\d+|^node_\d+", "", pair.name) or pair.op  # not which layer
        if kind not in worst or pair.error > worst[kind].error:
            worst[kind] = pair
    rows = table("Largest relative error of each kind of node", "node", "op", "error")
    for pair in sorted(worst.values(), key=lambda p: -p.error):
        rows.add_row(pair.name, pair.op, f"{pair.error:.1e}")
    console.print(rows)
    same = "the same next token" if result["same_next_token"] else "another next token"
    console.print(
        f"\n{result['nodes']} nodes over {result['tokens']} tokens; "
        f"logits differ by {result['logits_error']:.1e}, {same}"
    )
    if result["difference"]:
        console.print(Text(f"the graphs part: {result['difference']}", style="red"))
    elif over:
        console.print(
            Text(f"first node over {limit:g}: {over.name}, {over.error:.1e}", style="red")
        )
    else:
        console.print(Text(f"every node is within {limit:g}", style="green"))
