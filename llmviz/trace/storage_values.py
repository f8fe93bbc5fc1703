"""Kept copies of nodes and inputs as arrays with named axes, one array for each name.

The copies of one name differ in how many tokens they have (and, for attention, in how many cells):
they lie one after another along the axis of tokens, other axes are padded to the longest. A name
that stands for arrays of several ranks (``Qcur-0`` before and after its reshape) gives several.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from llmviz.trace.glossary import gloss
from llmviz.trace.kept import Kept
from llmviz.trace.storage_write import Variable

__all__ = ["GROUP", "kept_variables", "unpack"]

GROUP = "values"
_TOKENS = ("token", "query token", "output")


def kept_variables(recorder: Any, names: Iterable[str]) -> list[Variable]:
    """What the recorder holds of these names, as arrays of the group ``values``."""
    out: list[Variable] = []
    used: set[str] = set()
    sizes: dict[str, int] = {}
    for name in names:
        for copies in _alike(recorder.values(name)):
            stem = re.sub(r"[^A-Za-z0-9_\-+=()\[\], .]", "_", name).lstrip(". ") or "node"
            free, i = stem, 1
            while free in used:
                i += 1
                free = f"{stem} {i}"
            used.add(free)
            out.append(_packed(f"{GROUP}/{free}", copies, sizes))
    return out


def _alike(copies: list[Kept]) -> list[list[Kept]]:
    """Copies of the same rank and type together."""
    groups: dict[tuple[int, str], list[Kept]] = {}
    for kept in copies:
        groups.setdefault((kept.array.ndim, kept.array.dtype.str), []).append(kept)
    return list(groups.values())


def _packed(name: str, copies: list[Kept], sizes: dict[str, int]) -> Variable:
    shapes = [k.array.shape for k in copies]
    rank = len(shapes[0])
    op = str(getattr(copies[-1].tensor, "op", ""))
    _, axes = gloss(copies[0].name, op, shapes[0])
    labels = list(axes) if len(axes) == rank else [f"axis_{i}" for i in range(rank)]
    along = next((i for i, label in enumerate(labels) if label in _TOKENS), -1)
    arrays = [k.array for k in copies]
    if along < 0:
        arrays = [a[None] for a in arrays]
        labels, along = ["copy", *labels], 0
    whole = np.max([a.shape for a in arrays], axis=0)
    whole[along] = sum(a.shape[along] for a in arrays)
    fill = np.nan if arrays[0].dtype.kind == "f" else 0
    data = np.full(whole, fill, arrays[0].dtype)
    start = 0
    for a in arrays:
        place = [slice(n) for n in a.shape]
        place[along] = slice(start, start + a.shape[along])
        data[tuple(place)] = a
        start += a.shape[along]
    attrs = {
        "name": copies[0].name,
        "ops": [str(getattr(k.tensor, "op", "")) for k in copies],
        "n": [k.n for k in copies],
        "pass": [k.pass_ for k in copies],
        "shapes": [list(s) for s in shapes],
        "along": along,
    }
    return Variable(name, _dims(labels, data.shape, sizes), data, attrs)


def _dims(labels: list[str], shape: tuple[int, ...], sizes: dict[str, int]) -> tuple[str, ...]:
    """Names of axes; one of another length than the first of its name carries its length."""
    out: list[str] = []
    for label, size in zip(labels, shape):
        dim = label.replace(" ", "_")
        if sizes.setdefault(dim, size) != size:
            dim = f"{dim}_{size}"
        while dim in out or sizes.setdefault(dim, size) != size:
            dim += "_"
        out.append(dim)
    return tuple(out)


def unpack(data: np.ndarray, shapes: list[tuple[int, ...]], along: int) -> list[np.ndarray]:
    """The copies again, as read-only views.

    Raises
    ------
    ValueError
        The array does not hold these shapes.
    """
    stacked = len(shapes) > 0 and len(shapes[0]) < data.ndim
    out = []
    start = 0
    for shape in shapes:
        full = (1, *shape) if stacked else shape
        if len(full) != data.ndim or not 0 <= along < max(data.ndim, 1):
            raise ValueError(f"shape {list(shape)} in an array of {data.ndim} axes")
        place = [slice(n) for n in full]
        place[along] = slice(start, start + full[along])
        part = data[tuple(place)]
        if part.shape != full:
            raise ValueError(f"shape {list(shape)} is not inside {list(data.shape)}")
        start += full[along]
        out.append(part[0] if stacked else part)
    return out
