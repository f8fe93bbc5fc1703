"""Measures llmviz against llama.cpp and writes the result down: ``make parity``.

Writes ``docs/parity.md`` for people and ``llmviz/parity.json`` for the panel. Every figure comes
from this run; nothing in either file is written by hand.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import tiny_models
from parity import decode_watched, first_difference, relative_error, worst_error
from test_parity_archs import CASES
from test_parity_nodes import PROMPT
from test_parity_smollm2 import TEXTS
from tiny_archs import write_arch

import llmviz
from llmviz import reference
from llmviz.batch import Batch
from llmviz.hub import resolve

ROOT = Path(__file__).parent.parent
EXACT = {"n_ctx": 512, "type_k": "f32", "type_v": "f32", "swa_full": False}
UBATCH = 8


@dataclass
class Row:
    """What was found for one model and one way of keeping its weights.

    Attributes
    ----------
    part : str
        ``"architecture"``, ``"type"`` or ``"model"``.
    name : str
    arch : str
    weights : str
        ``"f32"`` or ``"quantized"``.
    nodes : int
        Nodes compared.
    same_graph : bool
        Whether every node is there with llama.cpp's name, op, shape and place.
    worst, worst_node : float, str
        Largest relative error of a node's values.
    logits : float
        Largest (model: median) relative error of a row of logits.
    same_token : float
        Share of positions at which both choose the same next token.
    positions : int
    note : str
    """

    part: str
    name: str
    arch: str
    weights: str
    nodes: int = 0
    same_graph: bool = True
    worst: float = 0.0
    worst_node: str = ""
    logits: float = 0.0
    same_token: float = 0.0
    positions: int = 0
    note: str = ""
    _same: list[bool] = field(default_factory=list, repr=False)

    def add(self, ours: Any, theirs: Any, nodes: list[Any]) -> None:
        """One batch: its nodes, and the logits of its last token."""
        self.nodes += len(nodes)
        difference = first_difference(nodes, theirs.nodes, float("inf"))
        if difference:
            self.same_graph, self.note = False, difference
        else:
            error, name = worst_error(nodes, theirs.nodes)
            if error > self.worst:
                self.worst, self.worst_node = error, name
        a, b = ours.get_logits_ith(-1), theirs.logits_ith(-1)
        self.logits = max(self.logits, relative_error(a, b))
        self._same.append(bool(np.argmax(a) == np.argmax(b)))
        self.same_token, self.positions = float(np.mean(self._same)), len(self._same)


def measure_nodes(part: str, name: str, path: str, weights: str, batches: list[list[int]]) -> Row:
    """Both engines fed with the same batches, every node compared."""
    model = llmviz.load(path, weights=weights)
    row = Row(part, name, model.arch, weights)
    ctx = model.context(n_ubatch=UBATCH, **EXACT)
    with reference.Reference(path, nodes=True, n_ubatch=UBATCH, **EXACT) as theirs:
        for tokens in batches:
            theirs.nodes.clear()
            if theirs.decode(tokens) != 0:
                raise SystemExit(f"llama.cpp cannot decode {name}")
            row.add(ctx, theirs, decode_watched(ctx, Batch(token=tokens)))
    return row


def prompt_of(path: str) -> list[int]:
    """The prompt's tokens."""
    with reference.Reference(path, vocab_only=True) as engine:
        return engine.tokenize(PROMPT)


def architectures(folder: Path) -> Iterator[Row]:
    """Random float32 models of every architecture: a prompt in ubatches of 8, then tokens."""
    for name, case in CASES.items():
        path = str(write_arch(folder / "arch.gguf", **case))
        prompt = prompt_of(path)
        yield measure_nodes(
            "architecture", name, path, "f32", [prompt[:1], prompt[1:], [17], [300], [42]]
        )


def types(folder: Path) -> Iterator[Row]:
    """A random llama model in every type: weights decoded, and kept as the file has them."""
    from llmviz.ggml.dots import DOTS
    from llmviz.ggml.types import GGMLType

    for name in tiny_models.WEIGHT_TYPES:
        path = str(tiny_models.write_tiny(folder / "type.gguf", weight_type=name))
        prompt = prompt_of(path)
        for weights in ("f32", "quantized") if GGMLType[name] in DOTS else ("f32",):
            yield measure_nodes("type", name, path, weights, [[t] for t in prompt[:8]])


def models(names: list[str]) -> Iterator[Row]:
    """Real models: the next token at every position of three texts, caches in f16."""
    settings = {"n_ctx": 512, "n_batch": 512, "type_k": "f16", "type_v": "f16"}
    for name in names:
        path = str(resolve(name))
        for weights in ("f32", "quantized"):
            model = llmviz.load(path, weights=weights)
            row = Row("model", name, model.arch, weights)
            ctx = model.context(**settings)
            errors, same = [], []
            with reference.Reference(path, **settings) as theirs:
                for text in TEXTS.values():
                    ids = theirs.tokenize(text)
                    theirs.clear()
                    ctx.memory.clear()
                    every = [True] * len(ids)
                    theirs.decode(ids, logits=every)
                    ctx.decode(Batch(token=ids, logits=every))
                    for i in range(len(ids)):
                        a, b = ctx.get_logits_ith(i), theirs.logits_ith(i)
                        errors.append(relative_error(a, b))
                        same.append(bool(np.argmax(a) == np.argmax(b)))
            row.logits, row.positions = float(np.median(errors)), len(same)
            row.same_token = float(np.mean(same))
            row.note = "median over positions"
            yield row


def versions() -> dict[str, str]:
    """What was compared, and where."""
    found = {"llmviz": llmviz.__version__, "python": platform.python_version()}
    for package in ("numpy", "xllamacpp", "numba"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return {**found, "machine": platform.machine(), "date": date.today().isoformat()}


HEAD = """# Agreement with llama.cpp

Written by `make parity`; do not edit. {summary}

Compared: {versions}.

A node's error is `|ours - theirs| / |theirs|` over all its values. With `weights="f32"` llmviz
multiplies decoded weights with float32 activations; llama.cpp rounds activations to eight bits
where weights are quantized, so there the two differ by the rounding. `weights="quantized"` rounds
as llama.cpp does; it is measured with `LLMVIZ_KERNELS=exact`: without that, prompts of 32 tokens
and more are added up in another order, and values that then round the other way make the logits of
SmolLM2 after a prompt of 300 tokens differ by 1.4 % (median). Where an architecture has GELU,
llama.cpp looks it up for a value rounded to 16 bits, and one value in a thousand rounds the other
way.
"""

TITLES = {
    "architecture": (
        "Architectures",
        "Random float32 models, float32 cache; a prompt in ubatches of 8, then single tokens.",
    ),
    "type": ("Tensor types", "A random `llama` model in each type, token by token."),
    "model": ("Models", "Three texts (English, code, emoji), cache in f16, all positions."),
}


def as_markdown(rows: list[Row], found: dict[str, str]) -> str:
    """The page."""
    archs = [r for r in rows if r.part == "architecture"]
    summary = (
        f"{sum(r.same_graph for r in archs)} of {len(archs)} architecture set-ups have llama.cpp's "
        f"graph node by node; worst node {max((r.worst for r in archs), default=0):.1e}, worst "
        f"logits {max((r.logits for r in archs), default=0):.1e}."
    )
    text = [HEAD.format(summary=summary, versions=", ".join(f"{k} {v}" for k, v in found.items()))]
    for part, (title, about) in TITLES.items():
        own = [r for r in rows if r.part == part]
        if not own:
            continue
        text.append(f"## {title}\n\n{about}\n")
        text.append(
            "| name | arch | weights | nodes | same graph | worst node | error | logits | "
            "same token |\n|---|---|---|--:|---|---|--:|--:|--:|"
        )
        for r in own:
            nodes = (r.nodes, "yes" if r.same_graph else r.note, r.worst_node, f"{r.worst:.1e}")
            shown = nodes if r.nodes else ("", "", "", "")
            text.append(
                f"| {r.name} | {r.arch} | {r.weights} | {' | '.join(map(str, shown))} | "
                f"{r.logits:.1e} | {r.same_token:.1%} of {r.positions} |"
            )
        text.append("")
    return "\n".join(text)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=["smollm2-135m"], help="known names")
    parser.add_argument("--only", nargs="*", choices=list(TITLES), default=list(TITLES))
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "parity.md")
    parser.add_argument("--json", type=Path, default=ROOT / "llmviz" / "parity.json")
    args = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        parts = {
            "architecture": lambda: architectures(Path(folder)),
            "type": lambda: types(Path(folder)),
            "model": lambda: models(args.models),
        }
        for part in args.only:
            for row in parts[part]():
                print(
                    f"{row.part:12} {row.name:20} {row.weights:9} worst {row.worst:.1e} "
                    f"{row.worst_node:18} logits {row.logits:.1e} {row.note}",
                    file=sys.stderr,
                )
                rows.append(row)
    found = versions()
    args.out.write_text(as_markdown(rows, found))
    plain = [{k: v for k, v in asdict(r).items() if not k.startswith("_")} for r in rows]
    args.json.write_text(json.dumps({"versions": found, "rows": plain}, indent=1) + "\n")


if __name__ == "__main__":
    main()
