"""The pass as columns and edges: what the flow view draws, read from the engine's graph.

A column is a node that a person can follow (``attn_norm-3``, ``kq_soft_max-3``, ``l_out-3``). The
nodes between two columns (reshapes, views, a norm before its weight, cache writes) are walked
through, so every edge here is a chain of real `Tensor.src` links.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Column", "Layout", "lay_out", "layer_of", "stem"]

_HIDDEN = re.compile(r"^(norm|norm_w|node_\d+|leaf_\d+|cache_.*|v_cont|.*_b)$")
_SUFFIX = re.compile(r"( \([a-z ]+\))+$")

#: What a column is called above its strip. Names that are not here keep llama.cpp's.
LABELS = {
    "embd": "embedding",
    "attn_norm": "norm",
    "Qcur": "Q",
    "Kcur": "K",
    "Vcur": "V",
    "kq": "scores",
    "kq_soft_max": "softmax",
    "kqv": "mix",
    "kqv_out": "heads",
    "attn_out": "out",
    "ffn_inp": "+",
    "ffn_norm": "norm",
    "ffn_gate": "gate",
    "ffn_up": "up",
    "ffn_swiglu": "×",
    "ffn_out": "down",
    "l_out": "+",
    "result_norm": "norm",
    "result_output": "logits",
}

#: One sentence each, for the reading line and for screen readers.
ABOUT = {
    "embd": "the token's row of the embedding table",
    "attn_norm": "the stream, scaled to unit size",
    "Qcur": "query: what this token looks for",
    "Kcur": "key: what this token offers to be found by",
    "Vcur": "value: what this token hands on when it is found",
    "kq": "query times key: how well they fit, one number for each pair",
    "kq_soft_max": "scores after the mask, as weights that sum to 1",
    "kqv": "the values, mixed by those weights",
    "kqv_out": "the mixes of all heads, side by side",
    "attn_out": "what attention adds to the stream",
    "ffn_inp": "the stream after attention: what came in plus what was added",
    "ffn_norm": "the stream, scaled to unit size",
    "ffn_gate": "which of the hidden units open",
    "ffn_up": "what the hidden units hold",
    "ffn_swiglu": "gate times value, unit by unit",
    "ffn_out": "what the feed-forward network adds to the stream",
    "l_out": "the stream as it leaves the layer",
    "result_norm": "the stream, scaled for the last time",
    "result_output": "one number for each token of the vocabulary",
}


@dataclass(frozen=True, slots=True)
class Column:
    """One drawn node.

    Attributes
    ----------
    id : str
        The node's name.
    label, about : str
    group : {"in", "before", "attention", "mlp", "after", "out"}
    kind : {"vector", "head", "matrix"}
        A row of numbers per token; one head's part of it; one head's row over the keys.
    op : str
        ggml's op of the node that computed it.
    n : int
        Values per token that are shown (of one head for ``head`` and ``matrix``).
    heads : int
        How many heads the node holds; 0 where it has none.
    layer : int
        -1 outside of all layers.
    shape : tuple of int
        numpy order.
    """

    id: str
    label: str
    about: str
    group: str
    kind: str
    op: str
    n: int
    heads: int
    layer: int
    shape: tuple[int, ...]


@dataclass
class Layout:
    """Columns from left to right, edges between them, and which node belongs to which column.

    Attributes
    ----------
    edges : list of (int, int)
        Indices of columns, from and to.
    owner : dict
        ``id(tensor)`` of every node to the index of the column it works for, for the open layer
        and outside of the layers.
    """

    columns: list[Column] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)
    owner: dict[int, int] = field(default_factory=dict)

    def index(self, name: str) -> int:
        """Of the column with this name, -1 where there is none."""
        return next((i for i, c in enumerate(self.columns) if c.id == name), -1)


def stem(name: str) -> str:
    """``"kq_soft_max-3"`` to ``"kq_soft_max"``."""
    head, _, tail = name.rpartition("-")
    return head if head and tail.isdigit() else name


def layer_of(name: str) -> int:
    """``"kq_soft_max-3"`` to 3; -1 for a name of no layer."""
    head, _, tail = name.rpartition("-")
    return int(tail) if head and tail.isdigit() else -1


def lay_out(nodes: Sequence[Any], layer: int, n_layer: int) -> Layout:
    """Columns and edges of a graph with one layer open.

    Parameters
    ----------
    nodes : sequence of Tensor
        In the order in which they are computed.
    layer : int
        The open layer.
    """
    last: dict[str, Any] = {}
    for t in nodes:
        if _is_column(t, layer, n_layer):
            last[t.name] = t
    order = _by_flow(list(last))
    groups = _groups(order, layer)
    out = Layout([_column(last[name], groups[name]) for name in order])
    where = {name: i for i, name in enumerate(order)}
    writers = {id(t.src[2].root): t for t in nodes if t.op == "SET_ROWS" and len(t.src) > 2}
    for name, i in where.items():
        sources = {where[s] for s in _sources(last[name], name, where, writers)}
        out.edges += [(j, i) for j in sorted(sources) if j < i]
    out.owner = _owners(nodes, where, layer)
    return out


def _is_column(t: Any, layer: int, n_layer: int) -> bool:
    name, il = t.name, layer_of(t.name)
    if " (" in name or t.op in ("NONE", "SET_ROWS", "CPY"):
        return False
    base = stem(name)
    if il >= 0 and il != layer:
        return base == "l_out"
    return not _HIDDEN.match(base)


def _by_flow(names: list[str]) -> list[str]:
    """Graph order, but Q K before the scores and V beside what mixes it."""
    out = list(names)
    for first, then in (("Kcur", "kq"), ("Vcur", "kqv")):
        a = next((n for n in out if stem(n) == first), None)
        b = next((n for n in out if stem(n) == then), None)
        if a is not None and b is not None:
            out.remove(a)
            out.insert(out.index(b), a)
    return out


def _groups(order: list[str], layer: int) -> dict[str, str]:
    out, mlp, inside = {}, False, False
    for name in order:
        il = layer_of(name)
        if il < 0:
            out[name] = "out" if inside else "in"
            continue
        inside = True
        if il != layer:
            out[name] = "before" if il < layer else "after"
            continue
        mlp = mlp or (stem(name).startswith("ffn_") and stem(name) != "ffn_inp")
        out[name] = "mlp" if mlp else "attention"
    return out


def _column(t: Any, group: str) -> Column:
    base, shape = stem(t.name), tuple(t.shape)
    kind, n, heads = "vector", shape[-1] if shape else 1, 0
    if base in ("kq", "kq_soft_max") or (t.op == "SOFT_MAX" and len(shape) == 3):
        kind, heads = "matrix", shape[0]
    elif len(shape) == 3:
        kind = "head"
        heads = shape[0] if base == "kqv" else shape[1]
    label = LABELS.get(base, base.replace("_", " "))
    about = ABOUT.get(base, f"{base}, computed by {t.op}")
    return Column(
        t.name, label, about, group, kind, t.op, int(n), int(heads), layer_of(t.name), shape
    )


def _sources(t: Any, own: str, where: dict[str, int], writers: dict[int, Any]) -> set[str]:
    """Columns that a column is computed from, through the nodes that are not drawn."""
    found: set[str] = set()
    seen: set[int] = set()
    stack = list(t.src)
    while stack:
        s = stack.pop()
        if s is None or id(s) in seen:
            continue
        seen.add(id(s))
        if s.name in where and s.name != own:
            found.add(s.name)
            continue
        stack.extend(s.src)
        writer = writers.get(id(s.root))  # through the cache: what was written is what is read
        if writer is not None and writer is not s:
            stack.extend(writer.src[:1])
    return found


def _owners(nodes: Sequence[Any], where: dict[str, int], layer: int) -> dict[int, int]:
    owner: dict[int, int] = {}
    waiting: list[int] = []
    for t in nodes:
        base = _SUFFIX.sub("", t.name)
        cache = re.match(r"^cache_([kv])_l(\d+)$", base)
        if cache:
            base = f"{cache[1].upper()}cur-{cache[2]}"
        if base in where:
            owner[id(t)] = where[base]
            if " (" not in t.name:
                owner.update(dict.fromkeys(waiting, where[base]))
                waiting.clear()
        else:
            waiting.append(id(t))
    return owner
