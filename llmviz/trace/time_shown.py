"""A pass's time as views and figures write it: which pass, its name, the lines of a division."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llmviz.trace.time_parts import Part, parts_of
from llmviz.trace.times import Pass

__all__ = ["ROWS", "chosen_pass", "label_of", "milliseconds", "rows_of"]

ROWS = 30
"""Nodes that are shown; the others stand in one line."""


def chosen_pass(passes: Sequence[Pass], number: int) -> Pass | None:
    """The pass of this number; for -1 the newest that came to its end, else the one under way."""
    if number >= 0:
        return next((p for p in passes if p.number == number), None)
    whole = [p for p in passes if p.whole and p.number]
    return whole[-1] if whole else passes[-1] if passes else None


def label_of(pass_: Pass, most: int = 24) -> str:
    """``token 3 " Paris"``, ``the prompt``, ``before the first batch``."""
    if pass_.kind == "start":
        return "before the first batch"
    text = pass_.text.replace("\n", "\u23ce")[:most]
    chose = f"“{text}”" if text else ""
    if pass_.kind == "prompt":
        return f"the prompt, then {chose}" if chose else "the prompt"
    return f"pass {pass_.number}, {chose}" if chose else f"pass {pass_.number}"


def milliseconds(ns: float) -> str:
    """A time with its unit, three digits of it."""
    for unit, size in (("s", 1e9), ("ms", 1e6)):
        if abs(ns) >= size:
            x = ns / size
            return f"{x:.{0 if x >= 100 else 1 if x >= 10 else 2}f} {unit}"
    return f"{ns / 1e3:.{0 if abs(ns) >= 1e5 else 1}f} µs"


def rows_of(
    pass_: Pass, by: str, most: int = ROWS, against: Pass | None = None
) -> list[dict[str, Any]]:
    """The lines of a division; their ``ns`` sum to the total.

    Parameters
    ----------
    most : int
        Of nodes at most so many, the others together in one line.
    against : Pass, optional
        ``against`` of each line is what the same part took there, for one token; None without it.
    """
    parts = parts_of(pass_, by)
    other = {} if against is None else {_key(p): p for p in parts_of(against, by)}
    rows = [_row(p, other.get(_key(p)), against) for p in parts]
    nodes = [r for r in rows if r["index"] >= 0]
    if len(nodes) <= most:
        return rows
    rest = nodes[most:]
    sums: dict[str, Any] = {k: sum(r[k] for r in rest) for k in ("ns", "whole", "count")}
    known = [r["against"] for r in rest if r["against"] is not None]
    line = {**rest[0], **sums, "name": f"{len(rest):,} other nodes", "op": "", "index": -1}
    line["against"] = sum(known) if known else None
    line["layer"] = -1
    return [*nodes[:most], line, *(r for r in rows if r["index"] < 0)]


def _key(p: Part) -> tuple[Any, ...]:
    return (p.name, p.group, p.depth, p.layer, p.op, p.index)


def _row(p: Part, other: Part | None, against: Pass | None) -> dict[str, Any]:
    per = None
    if other is not None and against is not None:
        per = other.whole / max(against.n_tokens, 1)
    return {
        "name": p.name,
        "ns": p.ns,
        "whole": p.whole,
        "group": p.group,
        "depth": p.depth,
        "count": p.count,
        "layer": p.layer,
        "kernels": p.kernels,
        "op": p.op,
        "index": p.index,
        "against": per,
    }
