"""How closely this version was measured to agree with llama.cpp on models like one.

Reads what ``make parity`` wrote; nothing here is computed anew, and nothing is said of an
architecture that was not measured.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

__all__ = ["Fidelity", "fidelity"]


class Fidelity(NamedTuple):
    """What was measured.

    Attributes
    ----------
    same_graph : bool
        Whether every node was there with llama.cpp's name, op, shape and place.
    worst : float
        Largest relative error of a node's values, with float32 weights.
    rounding : float or None
        Largest relative error of the logits for the file's tensor types as they are kept now;
        None where nothing is quantized, or the type was not measured.
    measured : str
        With which versions, and when.
    """

    same_graph: bool
    worst: float
    rounding: float | None
    measured: str


@cache
def _table() -> dict[str, Any] | None:
    source = files("llmviz").joinpath("parity.json")
    return json.loads(source.read_text("utf-8")) if source.is_file() else None


def fidelity(model: Any) -> Fidelity | None:
    """What was measured for a model's architecture and tensor types; None where nothing was.

    Parameters
    ----------
    model : llmviz.Model
    """
    table = _table()
    if table is None:
        return None
    of_arch: dict[str, list[dict[str, Any]]] = {}
    for r in table["rows"]:
        if r["part"] == "architecture":
            of_arch.setdefault(r["arch"], []).append(r)
    rows = of_arch.get(model.arch)
    if not rows:
        return None
    kept = "quantized" if model.keeps_blocks else "f32"
    types = {kind.name for kind in model.gguf.type_counts()}
    errors = [
        r["logits"]
        for r in table["rows"]
        if r["part"] == "type" and r["name"] in types and r["weights"] == kept
    ]
    v = table["versions"]
    return Fidelity(
        all(r["same_graph"] for r in rows),
        max(r["worst"] for r in rows),
        max(errors, default=None),
        f"llmviz {v['llmviz']}, xllamacpp {v['xllamacpp']}, {v['date']}",
    )
