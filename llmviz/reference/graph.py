"""The graph as llama.cpp computes it: tensors linked to their sources, values as views.

↔ ggml/src/ggml-backend.cpp (ggml_backend_sched_eval_callback), ggml/include/ggml.h (ggml_tensor)

`Watched` is a `Reference` that shows a decode while it runs: every ubatch, every input when the
first node reads it, every wanted node when it has been computed. Nothing is copied here. A decode
cannot be paused in the middle: llama.cpp calls, and goes on when the call returns.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import prod
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from llmviz.errors import LlmvizError
from llmviz.reference.capi import Api
from llmviz.reference.engine import Reference
from llmviz.reference.nodes import BF16, COMPUTE, DTYPES, INPUT

__all__ = ["GraphTensor", "Watched", "Watcher", "array_of"]

_NUMBERED = re.compile(r"^node_(\d+)")
_UNNAMED = re.compile(r"^(?:node_\d+\b| \()")  # and what was made of such a one
_LAYER = re.compile(r"-(\d+)(?: \(\w+\))*$|^cache_\w+_l(\d+)\b")
_SAME_RANK = re.compile(r"^(VIEW|RESHAPE|CONT|DUP|CPY)$")


@dataclass(eq=False, slots=True)
class GraphTensor:
    """A tensor of llama.cpp's graph; attributes as `llmviz.ggml.graph.Tensor`.

    Attributes
    ----------
    name : str
        llama.cpp's. A name that ggml made of the node's number (``node_65``) counts the nodes that
        are computed; llama.cpp counts others too.
    op, desc : str
        ``"GLU"``, and the function's own name: ``"SWIGLU"``.
    type : str
        ``"F32"``, ``"Q4_1"``, ...
    ne : tuple of int
        Four sizes in ggml order, of which `n_dims` count.
    il : int
        The layer that the name tells, -1 for none.
    """

    name: str
    op: str
    desc: str
    type: str
    ne: tuple[int, ...]
    n_dims: int
    src: list[GraphTensor] = field(default_factory=list, repr=False)
    view_src: GraphTensor | None = field(default=None, repr=False)
    il: int = -1
    is_input: bool = False
    op_params: tuple[int, ...] = field(default=(), repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in numpy order."""
        return self.ne[: self.n_dims][::-1]

    @property
    def unnamed(self) -> bool:
        """Whether ggml made the name up: it tells no layer."""
        return _UNNAMED.match(self.name) is not None


class Watcher(Protocol):
    """Who is shown a decode. Values are read-only views, valid during the call only."""

    def wants(self, name: str) -> bool:
        """Whether the value of a node is to be shown."""
        ...

    def begin(self) -> None:
        """A ubatch's graph begins."""
        ...

    def input(self, tensor: GraphTensor, value: npt.NDArray[Any] | None) -> None:
        """An input, just before the first node that reads it."""
        ...

    def meet(self, tensor: GraphTensor) -> None:
        """A node that is computed next, wanted or not."""
        ...

    def node(self, tensor: GraphTensor, value: npt.NDArray[Any] | None) -> None:
        """A wanted node that was computed; no value where its type is a block format."""
        ...


class Watched(Reference):
    """llama.cpp, shown to a `Watcher` while it computes; parameters as `Reference`.

    Attributes
    ----------
    graph : list of GraphTensor
        The computed nodes of the last ubatch, in order.
    """

    def __init__(self, path: Any, **params: Any) -> None:
        self.graph: list[GraphTensor] = []
        self._watcher: Watcher | None = None
        self._known: dict[int, GraphTensor] = {}  # of this ubatch, by address
        self._made: dict[tuple[Any, ...], GraphTensor] = {}  # of all ubatches, by what they are
        self._first: tuple[str, str] | None = None
        self._skipped = 0
        self._rank = _Ranks()
        super().__init__(path, nodes=True, **params)

    def decode_watched(self, tokens: Any, watcher: Watcher) -> int:
        """As `decode`, shown to `watcher`."""
        self._watcher, self._first = watcher, None
        try:
            return self.decode(tokens)
        finally:
            self._watcher = None
            self._known.clear()  # addresses mean nothing any more

    def _on_node(self, t: Any, ask: bool, _user_data: Any) -> bool:
        watcher = self._watcher
        if watcher is None:
            return not ask
        if not ask:
            tensor = self._known[_address(self._api, t)]
            watcher.node(tensor, array_of(self._api, t, tensor.n_dims))
            return True
        key = _name(self._api, t), _op(self._api, t)
        if self._first is None or key == self._first:  # this is how the next ubatch is told
            self._first = key
            self.graph = []
            self._known.clear()
            self._skipped = 0
            self._rank.begin()
            watcher.begin()
        if not t.flags & COMPUTE:
            self._skipped += 1
            return False
        tensor = self._tensor(t)
        self.graph.append(tensor)
        watcher.meet(tensor)
        return watcher.wants(tensor.name)

    def _tensor(self, t: Any) -> GraphTensor:
        """A tensor with all that it is computed from; inputs are shown as they are met."""
        api = self._api
        known = self._known.get(_address(api, t))
        if known is not None:
            return known
        ffi, lib, *_ = api
        ne = tuple(t.ne)
        if prod(ne) != lib.ggml_nelements(t) or min(ne) < 0:
            raise LlmvizError(
                f"ggml_tensor is laid out differently than declared: sizes read as {ne}"
            )
        op = _op(api, t)
        src = [self._tensor(s) for s in t.src if s != ffi.NULL]
        view = None if t.view_src == ffi.NULL else self._tensor(t.view_src)
        name = _NUMBERED.sub(lambda m: f"node_{int(m[1]) - self._skipped}", _name(api, t))
        params = tuple(t.op_params)
        n_dims, nth = self._rank(name, op, ne, src, params)
        type_ = ffi.string(lib.ggml_type_name(t.type)).decode().upper()
        # The next token's graph mostly has the same tensors: those who keep one keep no other graph
        key = (name, op, nth, type_, ne, n_dims, tuple(map(id, src)), id(view), params)
        out = self._made.get(key)
        if out is None:
            desc = ffi.string(lib.ggml_op_desc(t)).decode()
            is_input = bool(t.flags & INPUT)
            out = self._made[key] = GraphTensor(
                name, op, desc, type_, ne, n_dims, src, view, _layer(name), is_input, params
            )
        self._known[_address(api, t)] = out
        if out.is_input and self._watcher is not None:
            self._watcher.input(out, array_of(api, t, out.n_dims))
        return out


class _Ranks:
    """How many of a tensor's four sizes count, which ggml does not keep: ``[64, 1]`` may be a row
    or a matrix of one column.

    As many as the same node had in an earlier ubatch, which mostly had more tokens; else what the
    op makes of those of its sources. At least those that are not 1.
    """

    def __init__(self) -> None:
        self._before: dict[tuple[str, str, int], int] = {}
        self._count: dict[tuple[str, str], int] = {}

    def begin(self) -> None:
        self._count.clear()

    def __call__(
        self,
        name: str,
        op: str,
        ne: tuple[int, ...],
        src: list[GraphTensor],
        params: tuple[int, ...],
    ) -> tuple[int, int]:
        """The rank, and which one of the tensors of this name and op in its graph it is."""
        least = max((i + 1 for i, n in enumerate(ne) if n != 1), default=1)
        nth = self._count.get((name, op), 0)
        self._count[name, op] = nth + 1
        key = (name, op, nth)
        before = self._before.get(key)
        rank = max(least, self._by_op(name, op, ne, src, params) if before is None else before)
        self._before[key] = rank
        return rank, nth

    def _by_op(
        self,
        name: str,
        op: str,
        ne: tuple[int, ...],
        src: list[GraphTensor],
        params: tuple[int, ...],
    ) -> int:
        if not src:
            if name.startswith("cache_"):
                return 3  # [row, cell, stream]
            return 2 if "mask" in name else 1
        a = src[0]
        if op == "GET_ROWS":
            return 1 + src[1].n_dims
        if op == "MUL_MAT":
            return max(2, src[1].n_dims)
        if op == "MUL_MAT_ID":
            return 3
        if op == "SET_ROWS":
            return src[2].n_dims if len(src) > 2 else a.n_dims
        if op == "PERMUTE":
            return max(a.n_dims, *(ax + 1 for i, ax in enumerate(params[:4]) if a.ne[i] > 1), 1)
        if _SAME_RANK.match(op) and ne != a.ne:
            if 1 < ne[0] < a.ne[0] and ne[0] * ne[1] == a.ne[0]:  # a row is cut into heads
                return 3
            return 2  # heads become a row again, or a column
        return a.n_dims


def array_of(api: Api, t: Any, n_dims: int = 4) -> npt.NDArray[Any] | None:
    """A read-only view of a ``struct ggml_tensor *`` in CPU memory; bfloat16 as a float32 copy.

    None where its type is a block format, or it has no memory.
    """
    ffi, lib, *_ = api
    dtype = DTYPES.get(t.type)
    shape, strides = tuple(t.ne)[:n_dims][::-1], tuple(t.nb)[:n_dims][::-1]
    if dtype is None or t.data == ffi.NULL:
        return None
    if prod(shape) == 0:
        return np.empty(shape, np.float32 if t.type == BF16 else dtype)
    raw = np.frombuffer(ffi.buffer(ffi.cast("char *", t.data), lib.ggml_nbytes(t)), np.uint8)
    out: npt.NDArray[Any] = np.ndarray(shape, dtype, buffer=raw, strides=strides)
    if t.type == BF16:
        out = (out.astype(np.uint32) << 16).view(np.float32)
    out.flags.writeable = False
    return out


def _address(api: Api, t: Any) -> int:
    return int(api.ffi.cast("uintptr_t", t))


def _name(api: Api, t: Any) -> str:
    return api.ffi.string(t.name).decode(errors="replace")


def _op(api: Api, t: Any) -> str:
    return api.ffi.string(api.lib.ggml_op_name(t.op)).decode()


def _layer(name: str) -> int:
    found = _LAYER.search(name)
    return int(found[1] or found[2]) if found else -1
