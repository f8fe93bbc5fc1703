"""Tensors and the compute graph: names, shapes, sources; no arithmetic.

↔ ggml/src/ggml.c (ggml_tensor, ggml_cgraph)

A graph is data. Model files create tensors with the functions of `llmviz.ggml.ops` and hand the
results to `Graph.build_forward_expand`; the order of the nodes is llama.cpp's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from llmviz.ggml.types import TYPES, GGMLType, row_size

if TYPE_CHECKING:
    from llmviz.ggml.backends.backend import Backend
    from llmviz.ggml.splits import Split
    from llmviz.ggml.stored import StoredRows

__all__ = ["COPY_OP", "VIEW_OPS", "Graph", "Tensor", "contiguous_strides", "new_tensor"]

VIEW_OPS = frozenset({"VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"})
"""Ops that only look at their source's memory in another way: they compute nothing."""

COPY_OP = "CPY"
"""Op of the tensors that the inputs of a split are copied into (`llmviz.ggml.splits`)."""

MAX_NAME = 63  # ggml keeps 64 bytes with the closing zero


class Tensor:
    """One tensor of a graph: an op, its sources, its shape; and, once allocated, its memory.

    Attributes
    ----------
    name : str
        llama.cpp's name, ``"kq_soft_max-3"``.
    op : str
        ggml's op without its prefix, ``"MUL_MAT"``; ``"NONE"`` for a leaf.
    type : GGMLType
    ne : tuple of 4 int
        Elements per dimension, fastest first (ggml's order).
    nb : tuple of 4 int
        Bytes per step of each dimension.
    n_dims : int
        How many dimensions the builder declared; `array` has that many.
    src : list of Tensor
    params : dict
        The op's parameters by name (``eps``, ``scale``, ``mode`` ...).
    view_src, view_offs : Tensor or None, int
        The tensor whose memory this one looks at, and the byte offset in it.
    il : int
        Layer, -1 where it belongs to none (None until the graph is complete for tensors that ggml
        names itself).
    mirror : ndarray or None
        For a float16 cache leaf: the same values as float32, kept in step by whoever writes the
        cache.
    stored : StoredRows or None
        For a float32 cache leaf whose values are kept in a narrower type: the blocks.
    is_input : bool
        Filled by `set_inputs`, never computed.
    origin : tuple of (str, int)
        Source lines that named the tensor, (file, line), the innermost first; empty where a
        builder named nothing.
    buffer : numpy.ndarray or None
        uint8[nbytes], the memory (of the root tensor for a view).
    array : numpy.ndarray or None
        The values in numpy order, ``shape == reversed(ne[:n_dims])``.
    blocks : numpy.ndarray or None
        For a weight that is kept as the file has it: uint8[n_rows, row_bytes]. Its `array` is
        None unless something needed the values (`llmviz.ggml.decode`).
    is_weight : bool
        A weight of the model: ops prefer the device that holds it.
    home : Backend or None
        Whose memory the tensor lies in; None for the host's. Elsewhere `buffer`, `array` and
        `blocks` are arrays of that backend, and `read` and `write` are the way to the values.
    """

    __slots__ = (
        "array",
        "blocks",
        "buffer",
        "home",
        "il",
        "is_input",
        "is_weight",
        "mirror",
        "n_dims",
        "name",
        "nb",
        "ne",
        "op",
        "origin",
        "params",
        "src",
        "stored",
        "type",
        "view_offs",
        "view_src",
    )

    def __init__(
        self,
        type_: GGMLType,
        ne: tuple[int, ...],
        *,
        op: str = "NONE",
        name: str = "",
        src: tuple[Tensor, ...] = (),
        params: dict[str, Any] | None = None,
        nb: tuple[int, ...] | None = None,
        view_src: Tensor | None = None,
        view_offs: int = 0,
        n_dims: int = 0,
    ) -> None:
        self.name = name[:MAX_NAME]
        self.op = op
        self.type = type_
        self.n_dims = n_dims or len(ne)
        self.ne = (*ne, *(1,) * (4 - len(ne)))
        self.nb = nb if nb is not None else contiguous_strides(type_, self.ne)
        self.src = list(src)
        self.params = params or {}
        if view_src is not None:  # a view of a view looks at the root's memory
            view_offs += view_src.view_offs
            view_src = view_src.root
        self.view_src: Tensor | None = view_src
        self.view_offs: int = view_offs
        self.il: int | None = None
        self.is_input = False
        self.is_weight = False
        self.home: Backend | None = None
        self.origin: tuple[tuple[str, int], ...] = ()
        self.mirror: np.ndarray | None = None
        self.stored: StoredRows | None = None
        self.blocks: np.ndarray | None = None
        self.buffer: np.ndarray | None = None
        self.array: np.ndarray | None = None

    def __repr__(self) -> str:
        ne = " x ".join(map(str, self.ne[: self.n_dims]))
        return f"<{self.op} {self.name!r} {TYPES[self.type].name} [{ne}]>"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in numpy order, ``reversed(ne[:n_dims])``."""
        return self.ne[: self.n_dims][::-1]

    @property
    def nelements(self) -> int:
        """Number of values."""
        return self.ne[0] * self.ne[1] * self.ne[2] * self.ne[3]

    @property
    def nbytes(self) -> int:
        """Bytes of a contiguous tensor of this type and shape."""
        return row_size(self.type, self.ne[0]) * self.ne[1] * self.ne[2] * self.ne[3]

    @property
    def span(self) -> int:
        """Bytes from the first value to the end of the last one: `nbytes`, more where the strides
        leave gaps. ↔ ggml_nbytes
        """
        if self.nelements == 0:
            return 0
        row = row_size(self.type, self.ne[0])
        if TYPES[self.type].block_size == 1:
            row = (self.ne[0] - 1) * self.nb[0] + TYPES[self.type].type_size
        return row + sum((n - 1) * nb for n, nb in zip(self.ne[1:], self.nb[1:], strict=True))

    @property
    def is_contiguous(self) -> bool:
        """True where the values lie one after the other."""
        expected = contiguous_strides(self.type, self.ne)
        return all(
            n == 1 or have == want for n, have, want in zip(self.ne, self.nb, expected, strict=True)
        )

    @property
    def is_view(self) -> bool:
        """True where the tensor has no memory of its own."""
        return self.view_src is not None

    @property
    def root(self) -> Tensor:
        """The tensor that owns the memory."""
        return self if self.view_src is None else self.view_src

    def set_name(self, name: str, il: int = -1) -> Tensor:
        """Name the tensor as llama.cpp's graph callback does: ``name-il`` inside a layer."""
        self.name = (f"{name}-{il}" if il >= 0 else name)[:MAX_NAME]
        self.il = il
        return self

    def bind(self, buffer: np.ndarray) -> None:
        """Give the tensor its memory: `buffer` is uint8, at least `nbytes` long (the root's, for
        a view).
        """
        dtype = TYPES[self.type].dtype
        if dtype is None:
            raise ValueError(f"{self.name}: a {TYPES[self.type].name} tensor is not a plain array")
        self.buffer = buffer
        if self.nelements == 0:  # a window may begin outside of nothing
            self.array = np.empty(self.shape, dtype)
            return
        strides = self.nb[: self.n_dims][::-1]
        if self.home is not None:
            self.array = self.home.view(buffer, self.shape, dtype, self.view_offs, strides)
            return
        self.array = np.ndarray(
            self.shape, dtype, buffer=buffer.data, offset=self.view_offs, strides=strides
        )

    def mirror_window(self) -> np.ndarray | None:
        """This tensor's window on its root's float32 mirror; None where there is no mirror."""
        mirror = self.root.mirror
        if mirror is None or self.array is None:
            return None
        scale = 4 // TYPES[self.type].type_size  # the same window, strides and offset in float32
        return np.ndarray(
            self.array.shape,
            np.float32,
            buffer=mirror.data,
            offset=self.view_offs * scale,
            strides=tuple(s * scale for s in self.array.strides),
        )

    def read(self) -> np.ndarray:
        """The values on the host: the array itself, or a copy of what lies on a device."""
        assert self.array is not None
        return self.array if self.home is None else self.home.get(self.array)

    def write(self, value: np.ndarray) -> None:
        """Put other values in place of the ones there are (in the mirror or the blocks too)."""
        assert self.array is not None
        if self.root.stored is not None:
            self.root.stored.rewrite(self.array, value)
            return
        if self.home is None:
            self.array[...] = value
        else:
            self.home.set(self.array, value)
        window = self.mirror_window()
        if window is not None:
            window[...] = self.array

    def adopt_blocks(self, raw: np.ndarray) -> Tensor:
        """Use a file's blocks (uint8, contiguous) as this weight, without a copy or decoding."""
        if raw.nbytes != self.nbytes:
            raise ValueError(f"{self.name}: {raw.nbytes} bytes do not fit {self.nbytes}")
        self.blocks = raw.reshape(-1, row_size(self.type, self.ne[0]))  # [n_rows, row_bytes]
        return self

    def adopt(self, array: np.ndarray) -> Tensor:
        """Use an existing contiguous array (a weight, a cache) as this leaf's memory, without a
        copy.
        """
        if array.nbytes != self.nbytes or not array.flags.c_contiguous:
            raise ValueError(
                f"{self.name}: array of {array.nbytes} bytes does not fit {self.nbytes}"
            )
        self.array = array.reshape(self.shape)
        flat = array.reshape(-1)
        self.buffer = flat.view(np.uint8)
        return self


def contiguous_strides(type_: GGMLType, ne: tuple[int, ...]) -> tuple[int, ...]:
    """Byte strides of a contiguous tensor: ``(type size, row, plane, cube)``."""
    row = row_size(type_, ne[0])
    return (TYPES[type_].type_size, row, row * ne[1], row * ne[1] * ne[2])


def new_tensor(type_: GGMLType, *ne: int, name: str = "", is_input: bool = False) -> Tensor:
    """A leaf without memory yet. ↔ ggml_new_tensor_1d .. 4d, ggml_set_input"""
    tensor = Tensor(type_, ne, name=name)
    tensor.is_input = is_input
    return tensor


@dataclass
class Graph:
    """Nodes in the order they are computed, leaves in the order they were met. ↔ ggml_cgraph

    Attributes
    ----------
    nodes, leafs : list of Tensor
    splits : list of Split
        How the scheduler divided the nodes between several backends; empty while it has not, and
        where there is only one.
    """

    nodes: list[Tensor] = field(default_factory=list)
    leafs: list[Tensor] = field(default_factory=list)
    splits: list[Split] = field(default_factory=list)
    _visited: set[int] = field(default_factory=set)

    def __repr__(self) -> str:
        return f"<Graph {len(self.nodes)} nodes, {len(self.leafs)} leafs>"

    def build_forward_expand(self, tensor: Tensor) -> None:
        """Append `tensor` and everything it needs that is not yet there, sources first, left to
        right.
        """
        if id(tensor) in self._visited:
            return
        self._visited.add(id(tensor))
        for src in tensor.src:
            self.build_forward_expand(src)
        if tensor.op == "NONE":
            if not tensor.name:
                tensor.name = f"leaf_{len(self.leafs)}"
            self.leafs.append(tensor)
        else:
            if not tensor.name:
                tensor.name = f"node_{len(self.nodes)}"
            self.nodes.append(tensor)

    def by_layer(self) -> Iterator[tuple[int, list[Tensor]]]:
        """Runs of neighbouring nodes that belong to the same layer: ``(il, nodes)``, -1 outside
        the layers.

        A node that ggml named itself (a view) belongs where the next named one does.
        """
        il: int = -1
        for node in reversed(self.nodes):
            if node.il is None:
                node.il = il
            il = node.il
        inside = self._inside()
        run: list[Tensor] = []
        at = -1
        for node, il in zip(self.nodes, inside, strict=True):
            if run and il != at:
                yield at, run
                run = []
            run.append(node)
            at = il
        if run:
            yield at, run

    def _inside(self) -> list[int]:
        """The layer of each node; one named without its layer, but between nodes of the same one,
        is in it.
        """
        layers = [-1 if node.il is None else node.il for node in self.nodes]
        before = -1
        start = 0
        for i, il in enumerate(layers):
            if il < 0:
                continue
            if il == before:
                layers[start + 1 : i] = [il] * (i - start - 1)
            before, start = il, i
        return layers
