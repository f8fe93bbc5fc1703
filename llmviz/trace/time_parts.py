"""Divisions of a pass's time: by kind of work, scope, layer, op, or node.

Each division sums to exactly ``Pass.total``: what is no kernel of a node stands beside them as the
Python around the nodes, and what looking on took stands last. Computes nothing of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from llmviz.trace.graph_blocks import PARTS
from llmviz.trace.times import Pass, Path

__all__ = ["DIVISIONS", "Part", "Rate", "parts_of", "rate"]

DIVISIONS = ("work", "scope", "layer", "op", "node")
"""What `parts_of` takes."""

KERNEL, AROUND, WATCHING = "kernel", "around", "watching"

_STEPS = {
    **dict.fromkeys(range(1, 7), "loading the model"),
    7: "making the context",
    **dict.fromkeys((8, 9), "prompt and tokens"),
    **dict.fromkeys((10, 11, 12), "batch, slots"),
    13: "graph, inputs",
    14: "logits",
    15: "sampling",
    16: "text",
}
_BETWEEN = "between the nodes"


@dataclass(frozen=True, slots=True)
class Part:
    """One line of a division.

    Attributes
    ----------
    name : str
    ns : int
        Nanoseconds of this part itself; these sum to the pass's total.
    group : str
        ``"kernel"``, ``"around"`` (the engine's Python) or ``"watching"``.
    depth : int
        Nesting, for scopes.
    whole : int
        Nanoseconds with all parts inside it, the deeper ones that follow; `ns` where there are
        none.
    count : int
        Nodes, or scopes of this name, that it stands for.
    layer : int
        -1 outside of the layers.
    kernels : int
        Of a scope: nanoseconds of `whole` in the kernels of nodes.
    op : str
        Of a node.
    index : int
        Of a node in its graph, else -1.
    """

    name: str
    ns: int
    group: str
    depth: int = 0
    whole: int = 0
    count: int = 1
    layer: int = -1
    kernels: int = 0
    op: str = ""
    index: int = -1


@dataclass(frozen=True, slots=True)
class Rate:
    """Tokens a second over some passes: as they ran, and without what looking on took."""

    n_tokens: int
    seconds: float
    watching: float

    @property
    def per_second(self) -> float:
        """As it ran."""
        return self.n_tokens / self.seconds if self.seconds else 0.0

    @property
    def unwatched(self) -> float:
        """Without watching: the engine's time alone."""
        engine = self.seconds - self.watching
        return self.n_tokens / engine if engine > 0 else 0.0


def rate(passes: Sequence[Pass]) -> Rate:
    """The rate of passes that came to their end."""
    done = [p for p in passes if p.whole]
    return Rate(
        sum(p.n_tokens for p in done),
        sum(p.total for p in done) / 1e9,
        sum(p.watching for p in done) / 1e9,
    )


def parts_of(pass_: Pass, by: str = "work") -> list[Part]:
    """Divide a pass.

    Parameters
    ----------
    by : str
        ``"work"``: attention, feed-forward and so on, a few parts. ``"scope"``: the scopes, each
        before those inside it. ``"layer"``, ``"op"``, ``"node"``: kernels, the largest op or node
        first.

    Raises
    ------
    ValueError
        There is no such division.
    """
    if by not in DIVISIONS:
        raise ValueError(f"there is no division by {by!r}; there are: {', '.join(DIVISIONS)}")
    if by == "scope":
        return _scopes(pass_)
    parts = {"work": _work, "layer": _layers, "op": _ops, "node": _nodes}[by](pass_)
    if by != "work":
        around = pass_.engine - pass_.kernels
        if around or not parts:
            parts.append(Part("Python around the nodes", around, AROUND, whole=around))
    parts.append(Part("watching", pass_.watching, WATCHING, whole=pass_.watching))
    return parts


def _in_graph(path: Path) -> bool:
    return "graph_compute" in path


def _work(pass_: Pass) -> list[Part]:
    kernels = np.zeros(len(PARTS), np.int64)
    counts = np.zeros(len(PARTS), np.int64)
    for c in pass_.computed:
        np.add.at(kernels, c.graph.parts, c.ns)
        counts += np.bincount(c.graph.parts, minlength=len(PARTS))
    out = [
        Part(name, int(ns), KERNEL, whole=int(ns), count=int(n))
        for name, ns, n in zip(PARTS, kernels, counts, strict=True)
        if n
    ]
    around: dict[str, int] = {}
    for path, step, ns in zip(pass_.paths, pass_.steps, pass_.ns[:, 0].tolist(), strict=True):
        name = _BETWEEN if _in_graph(path) else _STEPS.get(step, path[-1] if path else "the run")
        around[name] = around.get(name, 0) + ns
    if _BETWEEN in around:
        around[_BETWEEN] -= pass_.kernels
    return out + [Part(name, ns, AROUND, whole=ns) for name, ns in around.items()]


def _layers(pass_: Pass) -> list[Part]:
    """A line for each layer, those of its parts below it; outside of the layers the part itself."""
    sums: dict[tuple[int, int], list[int]] = {}
    for c in pass_.computed:
        for key in sorted(set(zip(c.graph.layers.tolist(), c.graph.parts.tolist(), strict=True))):
            here = (c.graph.layers == key[0]) & (c.graph.parts == key[1])
            found = sums.setdefault(key, [0, 0])
            found[0] += int(c.ns[here].sum())
            found[1] += int(here.sum())
    out: list[Part] = []
    last = -1
    for il, part in sorted(sums, key=lambda k: (k[0] < 0 and k[1] > 0, k)):
        if il >= 0 and il != last:
            all_ = [sums[k] for k in sums if k[0] == il]
            whole, count = sum(a[0] for a in all_), sum(a[1] for a in all_)
            out.append(Part(f"layer {il}", 0, KERNEL, whole=whole, count=count, layer=il))
        last = il
        ns, count = sums[il, part]
        out.append(Part(PARTS[part], ns, KERNEL, int(il >= 0), ns, count, il))
    return out


def _both(sums: list[int], group: str) -> tuple[int, str, int, int, int]:
    """The fields of a `Part` from `ns` to `count`."""
    return sums[0], group, 0, sums[0], sums[1]


def _ops(pass_: Pass) -> list[Part]:
    sums: dict[str, list[int]] = {}
    for c in pass_.computed:
        for op, ns in zip(c.graph.ops, c.ns.tolist(), strict=True):
            found = sums.setdefault(op, [0, 0])
            found[0] += ns
            found[1] += 1
    order = sorted(sums, key=lambda op: (-sums[op][0], op))
    return [Part(op, *_both(sums[op], KERNEL), op=op) for op in order]


def _nodes(pass_: Pass) -> list[Part]:
    sums: dict[tuple[int, str, str], list[int]] = {}
    for c in pass_.computed:  # the same node of several ubatches is one line
        layers, ns = c.graph.layers.tolist(), c.ns.tolist()
        for i, (name, op) in enumerate(zip(c.graph.names, c.graph.ops, strict=True)):
            found = sums.setdefault((i, name, op), [0, 0, layers[i]])
            found[0] += ns[i]
            found[1] += 1
    order = sorted(sums, key=lambda k: (-sums[k][0], k))
    return [
        Part(k[1], *_both(sums[k], KERNEL), layer=sums[k][2], op=k[2], index=k[0]) for k in order
    ]


def _scopes(pass_: Pass) -> list[Part]:
    """The tree of scopes; a scope's watching is taken out of it and stands at the end."""
    own: dict[Path, int] = {}
    for path, ns in zip(pass_.paths, pass_.ns[:, 0].tolist(), strict=True):
        own[path] = ns
        for k in range(1, len(path)):
            own.setdefault(path[:k], 0)
    inside: dict[Path, list[Path]] = {}
    for path in own:
        if path:
            inside.setdefault(path[:-1], []).append(path)
    whole: dict[Path, int] = {}
    for path in sorted(own, key=len, reverse=True):
        whole[path] = own[path] + sum(whole[p] for p in inside.get(path, ()))
    kernels = _kernels_in(pass_, list(own))
    out: list[Part] = []

    def walk(path: Path, depth: int) -> None:
        n, il = kernels.get(path, 0), _layer(path[-1])
        out.append(Part(path[-1], own[path], AROUND, depth, whole[path], layer=il, kernels=n))
        below = inside.get(path, [])
        layers = [p for p in below if _layer(p[-1]) >= 0]
        for p in below:
            if p not in layers:
                walk(p, depth + 1)
            elif p is layers[0]:
                all_, n = (sum(d.get(p, 0) for p in layers) for d in (whole, kernels))
                line = Part("layers", 0, AROUND, depth + 1, all_, len(layers), kernels=n)
                out.append(line)
                for layer in layers:
                    walk(layer, depth + 2)

    for path in inside.get((), ()):
        walk(path, 0)
    if own.get((), 0):
        out.append(Part("the run", own[()], AROUND, whole=own[()]))
    out.append(Part("watching", pass_.watching, WATCHING, whole=pass_.watching))
    return out


def _kernels_in(pass_: Pass, paths: list[Path]) -> dict[Path, int]:
    """Nanoseconds of kernels in each scope, those of the scopes inside it included."""
    layers: dict[int, int] = {}
    for c in pass_.computed:
        for il in np.unique(c.graph.layers).tolist():
            layers[il] = layers.get(il, 0) + int(c.ns[c.graph.layers == il].sum())
    out: dict[Path, int] = {}
    for path in paths:
        if not _in_graph(path):
            continue
        inside = path[path.index("graph_compute") + 1 :]
        if inside:
            out[path] = layers.get(_layer(inside[0]), 0)
            continue
        for k in range(1, len(path) + 1):
            out[path[:k]] = out.get(path[:k], 0) + sum(layers.values())
    return out


def _layer(name: str) -> int:
    head, _, tail = name.partition("layer-")
    return int(tail) if not head and tail.isdigit() else -1
