"""Nodes of a one-token graph as rows of a tape, which compiled code runs without coming back.

↔ ggml/src/ggml-cpu/ggml-cpu.c (ggml_graph_compute_thread)

A node that has no rows here runs as its own kernel, between two stretches of the tape. The values
are the same: both forms call the same functions.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from llmviz.ggml import dots
from llmviz.ggml.backends import cpu_halfs, kernels
from llmviz.ggml.backends.backend import BindScope
from llmviz.ggml.backends.cpu_base import array_of, float_of
from llmviz.ggml.backends.kernels.tape import ALONE, Range, Row
from llmviz.ggml.backends.rope import RopeTable
from llmviz.ggml.graph import Tensor
from llmviz.ggml.types import TYPES, GGMLType

__all__ = ["rows_of"]

_Maker = Callable[[Tensor, BindScope], "list[Row] | None"]
_makers: dict[str, _Maker] = {}


def rows_of(node: Tensor, scope: BindScope) -> list[Row] | None:
    """The rows that compute `node`; None where it has none."""
    maker = _makers.get(node.op)
    return None if maker is None else maker(node, scope)


def _makes(op: str) -> Callable[[_Maker], _Maker]:
    def add(maker: _Maker) -> _Maker:
        _makers[op] = maker
        return maker

    return add


def _at(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]  # faster than array.ctypes
    return address


def _range(array: np.ndarray) -> Range:
    if array.flags.c_contiguous:
        at = _at(array)
        return at, at + array.nbytes
    low, high = np.lib.array_utils.byte_bounds(array)
    return int(low), int(high)


def _bits(value: float) -> int:
    """A float32 as a parameter: the bits of it as float64."""
    return int(np.float64(np.float32(value)).view(np.int64))


def _row(
    step: str,
    n: int,
    numbers: tuple[int, ...],
    reads: tuple[np.ndarray, ...],
    writes: tuple[np.ndarray, ...],
    split: tuple[str, int] = ALONE,
    weight: int = 0,
) -> Row:
    ranges = tuple(map(_range, reads)), tuple(map(_range, writes))
    return Row(step, n, numbers, split, *ranges, keep=(*reads, *writes), weight=weight)


def _plain(*arrays: np.ndarray) -> bool:
    return all(a.dtype == np.float32 and a.flags.c_contiguous for a in arrays)


@_makes("RMS_NORM")
def _norm(node: Tensor, scope: BindScope) -> list[Row] | None:
    x, out = float_of(node.src[0]), array_of(node)
    width = x.shape[-1]
    if not _plain(x) or x.size // width > _MANY:
        return None
    numbers = (_at(x), _at(out), width, _bits(node.params["eps"]))
    return [_row("norm", x.size // width, numbers, (x,), (out,))]


_MANY = 64
"""Rows of a norm or a sum from which it is not one token's."""


def _two(step: str, node: Tensor) -> list[Row] | None:
    x, y, out = float_of(node.src[0]), float_of(node.src[1]), array_of(node)
    if not _plain(x, y, out) or x.shape != out.shape or x.size // x.shape[-1] > _MANY:
        return None
    if x.size == y.size:
        n, width = 1, x.size
    elif y.size == x.shape[-1]:
        n, width = x.size // y.size, y.size
    else:
        return None
    return [_row(step, n, (_at(x), _at(y), _at(out), width), (x, y), (out,))]


@_makes("ADD")
def _add(node: Tensor, scope: BindScope) -> list[Row] | None:
    return _two("add", node)


@_makes("MUL")
def _mul(node: Tensor, scope: BindScope) -> list[Row] | None:
    return _two("mul", node)


@_makes("CONT")
def _cont(node: Tensor, scope: BindScope) -> list[Row] | None:
    x, out = float_of(node.src[0]), array_of(node)
    if not _plain(x, out) or x.size // x.shape[-1] > _MANY:
        return None
    return [_row("copy", x.size, (_at(x), _at(out)), (x,), (out,))]


@_makes("MUL_MAT")
def _mul_mat(node: Tensor, scope: BindScope) -> list[Row] | None:
    if node.params.get("hadamard"):
        return None
    if node.src[0].blocks is None:
        return _attend(node)
    weight, out = node.src[0], array_of(node)
    raw = weight.blocks
    x = float_of(node.src[1])
    if raw is None or out.size != len(raw) or not _plain(x):
        return None
    if cpu_halfs.is_product(weight):
        return _halfs(weight, x, out)
    if not kernels.load().supports(weight.type):
        return None
    q, rows = _quantized(x, node.src[1], dots.group_of(weight.type), scope)
    n_blocks = raw.shape[1] // TYPES[weight.type].type_size
    numbers = (_at(raw), raw.strides[0], 0, n_blocks, *map(_at, q), 0, 0, 0, 1, _at(out), 0)
    n, step = len(raw), TYPES[weight.type].name
    return [*rows, _row(step, n, numbers, tuple(q), (out,), ("rows", n), raw.nbytes)]


def _halfs(weight: Tensor, x: np.ndarray, out: np.ndarray) -> list[Row]:
    """A product with half floats, the column rounded to them first."""
    raw, name = weight.blocks, TYPES[weight.type].name
    assert raw is not None
    rounded = np.empty(x.size, np.float32)
    first = _row(f"round_{name}", 1, (_at(x), _at(rounded), x.size), (x,), (rounded,))
    n = len(raw)
    numbers = (_at(raw), raw.strides[0], n, x.size, _at(rounded), 1, _at(out))
    return [first, _row(name, n, numbers, (rounded,), (out,), ("rows", n), raw.nbytes)]


def _quantized(
    x: np.ndarray, tensor: Tensor, group: int, scope: BindScope
) -> tuple[dots.Activations, list[Row]]:
    """x in eight bits, and the row that makes it so unless one before does."""
    key = ("tape q8", id(tensor), group)
    found = scope.shared.get(key)
    if isinstance(found, dots.Activations):
        return found, []
    q = dots.Activations.empty(1, x.size, group)
    scope.shared[key] = q
    numbers = (x.size, _at(x), *map(_at, q))
    return q, [_row(f"quantize_{group}", 1, numbers, (x,), tuple(q))]


def _attend(node: Tensor) -> list[Row] | None:
    """Scores, or weighted values, of one token."""
    root = node.src[0].root
    if node.src[0].n_dims != 3 or root.type not in (GGMLType.F16, GGMLType.F32) or root.stored:
        return None
    own = array_of(node.src[0])
    b, out = float_of(node.src[1]), array_of(node)
    a = own if own.dtype == np.float16 else float_of(node.src[0])
    if not a.ndim == b.ndim == 3 or b.shape[1] != 1 or b.shape[2] % 32 or len(b) % len(a):
        return None
    if a.strides[2] != a.itemsize or b.strides[2] != 4 or not _plain(out):
        return None
    n_head, k, n = len(b), b.shape[2], out.shape[-1]
    rounded = np.empty((n_head, k), np.float32)
    numbers = (
        _at(a), a.strides[0], a.strides[1], _at(b), b.strides[0], n_head // len(a), k,
        _at(rounded), _at(out), n,
    )  # fmt: skip
    step = "attend_f16" if a.dtype == np.float16 else "attend_f32"
    return [_row(step, n_head, numbers, (a, b), (out, rounded), ("heads", n_head), a.nbytes)]


@_makes("SOFT_MAX")
def _soft_max(node: Tensor, scope: BindScope) -> list[Row] | None:
    x, out = float_of(node.src[0]), array_of(node)  # [n_head, 1, n_kv]
    if node.params.get("sinks") or node.params["max_bias"] > 0 or len(node.src) != 2:
        return None
    mask = float_of(node.src[1])
    if x.ndim != 3 or x.shape[1] != 1 or x.shape[2] % 8 or not _plain(x, out, mask):
        return None
    if mask.size != x.shape[2]:
        return None
    n_head, n = len(x), x.shape[2]
    numbers = (_at(x), _at(mask), _at(out), n, _bits(node.params["scale"]))
    return [_row("soft_max", n_head, numbers, (x, mask), (out,), ("heads", n_head))]


@_makes("ROPE")
def _rope(node: Tensor, scope: BindScope) -> list[Row] | None:
    x, out = float_of(node.src[0]), array_of(node)  # [1, n_head, n_embd_head]
    key = ("rope", *map(id, node.src[1:]), *sorted(node.params.items()))
    table, seen = scope.shared.get(key), ("tape", key)
    if seen not in scope.shared:  # the first one of a graph computes the angles: numpy does
        scope.shared[seen] = True
        return None
    if not isinstance(table, RopeTable) or table.compiled is None:
        return None
    if x.ndim != 3 or len(x) != 1 or not _plain(x, out):
        return None
    half = table.cis.shape[-1]
    apart = 1 if node.params["mode"] == "norm" else half
    numbers = (_at(x), _at(table.cis), _at(out), x.shape[1], x.shape[2], half, apart)
    return [_row("rotate", 1, numbers, (x, table.cis), (out,))]


@_makes("SET_ROWS")
def _set_rows(node: Tensor, scope: BindScope) -> list[Row] | None:
    rows, ids, out = float_of(node.src[0]), array_of(node.src[1]), array_of(node)
    root = node.root
    if ids.ndim > 1 or root.stored is not None or root.mirror is None:
        return None
    mirror = root.mirror
    if out.dtype != np.float16 or not _plain(rows, mirror) or ids.dtype != np.int64:
        return None
    if not out.flags.c_contiguous or out.size != mirror.size or rows.size % ids.size:
        return None
    width = out.shape[-1]
    if rows.size != ids.size * width or ids.size > 4096:
        return None
    numbers = (_at(rows), _at(ids), _at(out), _at(mirror), width, out.size // width)
    return [_row("store", ids.size, numbers, (rows, ids), (out, mirror))]


@_makes("GLU")
def _glu(node: Tensor, scope: BindScope) -> list[Row] | None:
    if node.params["glu"] != "swiglu" or len(node.src) < 2:
        return None
    gate, up, out = float_of(node.src[0]), float_of(node.src[1]), array_of(node)
    if not _plain(gate, up, out) or out.size != out.shape[-1]:
        return None
    numbers = (_at(gate), _at(up), _at(out))
    return [_row("swiglu", out.size, numbers, (gate, up), (out,), ("rows", out.size))]
