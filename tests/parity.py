"""Running llmviz and llama.cpp side by side and measuring how far apart they are.

The measure is ``|ours - theirs| / |theirs|`` with the Euclidean norm over all values of a node, or
of a row of logits; where theirs is all zeros, ``|ours|``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmviz.reference import Node


@dataclass
class Ours:
    """A node that llmviz computed, its value copied while it was valid."""

    name: str
    op: str
    ne: tuple[int, ...]
    value: np.ndarray


def relative_error(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Distance of two arrays, relative to the second's length."""
    a, b = np.asarray(ours, np.float64).ravel(), np.asarray(theirs, np.float64).ravel()
    if not np.isfinite(b).all():  # masked out in both: no distance
        same = a == b
        a, b = np.where(same, 0.0, a), np.where(same, 0.0, b)
    size = float(np.linalg.norm(b))
    return float(np.linalg.norm(a - b)) / (size or 1.0)


def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Cosine of the angle between rows, ``float64[n_rows]``."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


def watched(name: str) -> bool:
    """The `want` of a consumer that watches everything."""
    return True


def decode_watched(ctx: Any, batch: Any, want: Callable[[str], bool] = watched) -> list[Ours]:
    """Decode and keep every node."""
    nodes = []
    for event in ctx.decode_steps(batch, want=want):
        if event.kind == "node":
            t = event.about
            ne = (*t.ne, *(1,) * (4 - len(t.ne)))
            nodes.append(Ours(event.name, t.op, ne, np.array(event.value).reshape(ne[::-1])))
    return nodes


def plain(name: str) -> str:
    """A node's name; where the graph numbered it, without the number.

    llama.cpp counts the nodes of a branch that it does not compute (token embeddings mixed into the
    input), which llmviz does not build.
    """
    return re.sub(r"^node_\d+", "node_#", name)


def first_difference(ours: Sequence[Ours], theirs: Iterable[Node], limit: float) -> str:
    """What is wrong with the first node that is not llama.cpp's, or ``""``."""
    computed = [node for node in theirs if node.compute]
    for i, (a, b) in enumerate(zip(ours, computed, strict=False)):
        if plain(a.name) != plain(b.name):
            return f"node {i}: {a.name!r} ({a.op}) where llama.cpp has {b.name!r} ({b.op})"
        where = f"node {i}, {b.name} = {b.op}({', '.join(b.src)})"
        if a.op not in (b.op, b.desc):
            return f"{where}: op is {a.op}"
        if a.ne != b.ne:
            return f"{where}: ne is {a.ne}, not {b.ne}"
        if b.value is None:
            continue
        error = relative_error(a.value, b.value)
        if not error <= limit:
            worst = np.unravel_index(
                np.argmax(np.abs(np.float64(a.value) - np.float64(b.value))), b.value.shape
            )
            return (
                f"{where}: relative error {error:.2e} > {limit:.0e}; at {tuple(map(int, worst))}: "
                f"{a.value[worst]} where llama.cpp has {b.value[worst]}"
            )
    if len(ours) != len(computed):
        return f"{len(ours)} nodes where llama.cpp computes {len(computed)}"
    return ""


def worst_error(ours: Sequence[Ours], theirs: Iterable[Node]) -> tuple[float, str]:
    """The largest relative error of a node, and the node's name."""
    computed = [node for node in theirs if node.compute]
    pairs = [(a, b) for a, b in zip(ours, computed, strict=True) if b.value is not None]
    return max(((relative_error(a.value, b.value), b.name) for a, b in pairs), default=(0.0, ""))
