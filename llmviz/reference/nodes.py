"""Nodes of llama.cpp's graph as it computes them. ↔ ggml/include/ggml.h (ggml_tensor), cb_eval

A node's value is copied out of its buffer when its turn comes, before a later node overwrites it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from llmviz.errors import LlmvizError
from llmviz.reference.capi import Api

__all__ = ["COMPUTE", "INPUT", "OUTPUT", "Node", "read_node"]

INPUT, OUTPUT, COMPUTE = 1, 2, 16  # ggml_tensor.flags

BF16 = 30
DTYPES = {
    0: np.float32, 1: np.float16, 24: np.int8, 25: np.int16, 26: np.int32, 27: np.int64,
    28: np.float64, BF16: np.uint16,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a computed graph.

    Attributes
    ----------
    name, op : str
        ``"kq_soft_max-3"``, ``"SOFT_MAX"``.
    desc : str
        As `op`, but the function's own name for unary and gated ones: ``"SILU"``, ``"SWIGLU"``.
    ne : tuple of int
        Four sizes in ggml order.
    type : str
        ``"F32"``, ``"F16"``, ...
    src : tuple of str
        Names of the sources.
    view_src : str or None
        Name of the tensor that this one is a view of.
    flags : int
        See `COMPUTE`: a node without it is in the graph, but not computed.
    op_params : tuple of int
        The 16 raw 32-bit parameters.
    value : ndarray or None
        Shape is ``ne`` reversed. None where the type is a block format. bfloat16 comes as float32.
    """

    name: str
    op: str
    desc: str
    ne: tuple[int, int, int, int]
    type: str
    src: tuple[str, ...]
    view_src: str | None
    flags: int
    op_params: tuple[int, ...]
    value: npt.NDArray[Any] | None

    @property
    def compute(self) -> bool:
        """Whether the backend computes it (an unselected branch is skipped)."""
        return bool(self.flags & COMPUTE)


def read_node(api: Api, t: Any) -> Node:
    """Copy a ``struct ggml_tensor *`` whose data lies in CPU memory."""
    ffi, lib, *_ = api
    ne = tuple(t.ne)
    if prod(ne) != lib.ggml_nelements(t) or min(ne) < 0:
        raise LlmvizError(f"ggml_tensor is laid out differently than declared: sizes read as {ne}")
    return Node(
        name=_name(ffi, t),
        op=ffi.string(lib.ggml_op_name(t.op)).decode(),
        desc=ffi.string(lib.ggml_op_desc(t)).decode(),
        ne=ne,
        type=ffi.string(lib.ggml_type_name(t.type)).decode().upper(),
        src=tuple(_name(ffi, s) for s in t.src if s != ffi.NULL),
        view_src=None if t.view_src == ffi.NULL else _name(ffi, t.view_src),
        flags=t.flags,
        op_params=tuple(t.op_params),
        value=_value(ffi, lib, t),
    )


def _name(ffi: Any, t: Any) -> str:
    return ffi.string(t.name).decode(errors="replace")


def _value(ffi: Any, lib: Any, t: Any) -> npt.NDArray[Any] | None:
    dtype = DTYPES.get(t.type)
    shape = tuple(t.ne)[::-1]
    if dtype is None or t.data == ffi.NULL:
        return None
    if prod(shape) == 0:
        return np.empty(shape, np.float32 if t.type == BF16 else dtype)
    raw = np.frombuffer(ffi.buffer(ffi.cast("char *", t.data), lib.ggml_nbytes(t)), np.uint8)
    a = np.ndarray(shape, dtype, buffer=raw, strides=tuple(t.nb)[::-1]).copy()
    return (a.astype(np.uint32) << 16).view(np.float32) if t.type == BF16 else a
