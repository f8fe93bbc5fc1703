"""The graph of a trace: tensors with names, ops, shapes and sources, without memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from llmviz.trace.storage_columns import Attributes, Checked

__all__ = ["HeldTensor", "read_graph"]

_SCALARS = (bool, int, float)


@dataclass(eq=False, slots=True)
class HeldTensor:
    """A tensor as a trace tells of it; attributes as `llmviz.ggml.graph.Tensor`."""

    name: str
    op: str = ""
    type: str = ""
    ne: tuple[int, ...] = (0, 1, 1, 1)
    n_dims: int = 1
    src: list[HeldTensor] = field(default_factory=list, repr=False)
    view_src: HeldTensor | None = field(default=None, repr=False)
    il: int = -1
    is_input: bool = False
    params: dict[str, Any] = field(default_factory=dict, repr=False)
    origin: tuple[tuple[str, int], ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in numpy order."""
        return self.ne[: self.n_dims][::-1]

    @property
    def root(self) -> HeldTensor:
        """The tensor that owns the memory."""
        t = self
        while t.view_src is not None:  # always a tensor before it: this ends
            t = t.view_src
        return t


def read_graph(stored: Checked) -> list[HeldTensor]:
    """Nodes of a trace's graph in order; sources always come before what is computed from them.

    Raises
    ------
    TraceError
        A number points nowhere, or at a tensor that comes later.
    """
    if not stored.zip.has("graph_tensor"):
        return []
    count = len(stored.column("graph_tensor", "i"))
    attrs = stored.zip.info("graph_tensor").attrs
    about = Attributes(attrs, "graph_tensor", stored.zip.path)
    names, ops, types = (about.texts(k) for k in ("names", "ops", "types"))
    if not len(names) == len(ops) == len(types) == count:
        raise stored.error(f"other numbers of names than {count} tensors need", "graph_tensor")
    ne = stored.column("graph_ne", "iu", 2, count)
    src = stored.column("graph_src", "i", 2, count)
    t = stored.table("graph", n_dims="i", view="i", layer="i", input="b")
    before = np.arange(count)
    if len(t["view"]) != count or (src >= before[:, None]).any() or (t["view"] >= before).any():
        raise stored.error("a tensor is computed from one that comes later", "graph_src")
    stored.within("graph_n_dims", t["n_dims"], 0, ne.shape[1] + 1)
    params = about.get("params", dict, {})
    for found in params.values():
        if not isinstance(found, dict) or not all(type(x) in _SCALARS for x in found.values()):
            raise stored.error("a parameter of an op is a number", "graph_tensor.params")
    order = stored.within("graph_order", stored.column("graph_order", "i"), 0, count)
    tensors: list[HeldTensor] = []
    for i in range(count):
        view = int(t["view"][i])
        tensors.append(
            HeldTensor(
                names[i],
                ops[i],
                types[i],
                tuple(ne[i].tolist()),
                int(t["n_dims"][i]),
                [tensors[s] for s in src[i].tolist() if s >= 0],
                tensors[view] if view >= 0 else None,
                int(t["layer"][i]),
                bool(t["input"][i]),
                params.get(str(i), {}),
            )
        )
    return [tensors[i] for i in order.tolist()]
