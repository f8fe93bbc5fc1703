"""Launches of matrix products. ↔ ggml/src/ggml-cuda/ggml-cuda.cu (ggml_cuda_mul_mat)

Few columns are multiplied with a file's own blocks and activations in eight bits, as the CPU does:
the integers are the same, the sums of floats are made in another order. For many columns tiles of
the matrix are decoded, and cuBLAS multiplies them with the activations as they were rounded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from llmviz.ggml.backends.backend import Kernel
from llmviz.ggml.backends.cuda.base import (
    MAX_GRID,
    THREADS,
    Binding,
    Steps,
    memory_of,
    op,
    strided,
)
from llmviz.ggml.backends.cuda.library import BLOCK_TYPES, COLUMNS, WITH_MINIMUM
from llmviz.ggml.backends.cuda.ops_rows import PLAIN
from llmviz.ggml.graph import Tensor
from llmviz.ggml.types import TYPES, GGMLType, row_size

WARPS = 4
"""Rows of a matrix that a block of threads works on, one warp each."""

TILE_BYTES = 64 << 20
"""How much of a matrix is decoded at a time."""


def _takes_mul_mat(node: Tensor) -> bool:
    a, b = node.src
    if b.type != GGMLType.F32 or b.nb[0] != 4 or b.ne[2] * b.ne[3] > MAX_GRID:
        return False
    if a.type in BLOCK_TYPES:
        return a.ne[2] == a.ne[3] == 1 and a.is_contiguous
    return a.type in PLAIN


@op("MUL_MAT", _takes_mul_mat)
def _bind_mul_mat(b: Binding) -> Kernel:
    a, x = b.node.src
    n_columns = x.ne[1] if a.type in PLAIN else x.nelements // x.ne[0]
    few = n_columns <= COLUMNS[-1]
    if a.type in BLOCK_TYPES:
        return _blocks_few(b) if few else _blocks_many(b)
    whole = a.type == GGMLType.F32 and a.is_contiguous and x.is_contiguous
    if few and a.nb[0] == TYPES[a.type].type_size:
        return _floats_few(b)
    if whole and a.ne[2] == a.ne[3] == x.ne[2] == x.ne[3] == 1:
        n, k = a.ne[1], a.ne[0]
        return _gemm(b, memory_of(a), memory_of(x), 0, n, k)
    return _floats_many(b)


# float matrices


def _product(b: Binding) -> dict[str, Any]:
    a, x = b.node.src[:2]
    return {
        "a": memory_of(a),
        "b": memory_of(x),
        "out": memory_of(b.node),
        "a_nb": a.nb,
        "b_nb": x.nb,
        "k": a.ne[0],
        "n": a.ne[1],
        "step": a.ne[1],
        "m": x.ne[1],
        "heads": x.ne[2],
        "group": x.ne[2] // a.ne[2],
        "group3": x.ne[3] // a.ne[3],
    }


def _floats_few(b: Binding) -> Kernel:
    a, x = b.node.src[:2]
    grid = (-(-a.ne[1] // WARPS), x.ne[2], x.ne[3])
    name = f"mul_vec_{PLAIN[a.type]}_{_columns(x.ne[1])}"
    return b.cuda.library.launch(name, grid, (32, WARPS), **_product(b))


def _floats_many(b: Binding) -> Kernel:
    a, x = b.node.src[:2]
    grid = (-(-a.ne[1] // 32), -(-x.ne[1] // 32), x.ne[2] * x.ne[3])
    return b.cuda.library.launch(f"mul_tile_{PLAIN[a.type]}", grid, (32, 8), **_product(b))


def _columns(m: int) -> int:
    """The kernel for m columns: the one for as few as will do."""
    return next(c for c in COLUMNS if c >= m)


# blocks


def _activations(b: Binding, x: Tensor, group: int) -> tuple[tuple[Any, Any, Any], list[Any]]:
    """Codes, scales and sums of x, and what fills them: nothing where an earlier product does."""
    key = ("q8", id(x), group)
    found: Any = b.scope.shared.get(key)
    if found is not None:
        return found, []
    k, rows = x.ne[0], x.nelements // x.ne[0]
    n_groups = rows * k // group
    q, d = b.empty((rows, k), np.int8), b.empty((rows, k // group), np.float32)
    sums = (k // 32, np.float32) if group == 32 else (k // 16, np.int16)
    s = b.empty((rows, sums[0]), sums[1])
    b.scope.shared[key] = q, d, s
    fill = b.cuda.library.launch(
        f"quantize_{group}",
        (-(-n_groups // WARPS),),
        (32, WARPS),
        keep=(q, d, s),
        x=memory_of(x),
        q=q,
        d=d,
        s=s,
        x_at=strided(x),
        k=k,
        n_groups=n_groups,
    )
    return (q, d, s), [fill]


def _blocks_few(b: Binding) -> Kernel:
    a, x = b.node.src[:2]
    (q, d, s), first = _activations(b, x, BLOCK_TYPES[a.type])
    m = x.nelements // x.ne[0]
    multiply = b.cuda.library.launch(
        f"mul_vec_{a.type.name}_{_columns(m)}",
        (-(-a.ne[1] // WARPS),),
        (32, WARPS),
        keep=(q, d, s),
        type_=a.type,
        w=memory_of(a),
        q=q,
        d=d,
        s=s,
        out=memory_of(b.node),
        row_bytes=row_size(a.type, a.ne[0]),
        k=a.ne[0],
        n=a.ne[1],
        m=m,
    )
    return Steps(*first, multiply) if first else multiply


def _blocks_many(b: Binding) -> Kernel:
    a, x = b.node.src[:2]
    k, n = a.ne[0], a.ne[1]
    group = BLOCK_TYPES[a.type]
    rounded, steps = _rounded(b, x, group)
    has_minimum = a.type in WITH_MINIMUM
    n_tile = min(n, max(TILE_BYTES // (4 * k), 1))
    tile = _shared(b, "tile", n_tile * k)
    for row in range(0, n, n_tile):
        rows = min(n_tile, n - row)
        decode = _decode(b, "above" if has_minimum else "decode", row, rows * k, tile)
        steps += [decode, _gemm(b, tile, rounded, row, rows, k)]
        if has_minimum:
            minimums = _shared(b, "minimums", n_tile * k // 32)
            (_, _, sums), _ = _activations(b, x, group)
            steps.append(_decode(b, "minimums", row, rows * k // 32, minimums))
            steps.append(_gemm(b, minimums, sums, row, rows, k // 32, adds=True))
    return Steps(*steps)


def _decode(b: Binding, what: str, row: int, count: int, out: Any) -> Kernel:
    """`count` numbers of the matrix's rows from `row` on, as floats."""
    a = b.node.src[0]
    size = row_size(a.type, a.ne[0])
    return b.cuda.library.launch(
        f"{what}_{a.type.name}",
        (min(-(-count // THREADS), MAX_GRID),),
        (THREADS,),
        keep=(out,),
        type_=a.type,
        w=memory_of(a).data.ptr + row * size,
        out=out,
        row_bytes=size,
        n=count,
        k=a.ne[0],
    )


def _rounded(b: Binding, x: Tensor, group: int) -> tuple[Any, list[Any]]:
    """What the eight-bit codes of x stand for: float32[rows, k]."""
    key = ("rounded", id(x), group)
    found: Any = b.scope.shared.get(key)
    if found is not None:
        return found, []
    (q, d, _), steps = _activations(b, x, group)
    out = b.empty(q.shape, np.float32)
    b.scope.shared[key] = out
    fill = b.each("rounded_f32", q.size, (q, d, out), q=q, d=d, out=out, n=q.size, group=group)
    return out, [*steps, fill]


def _shared(b: Binding, what: str, count: int) -> Any:
    """Room for `count` floats; one product at a time uses it."""
    room: Any = b.scope.shared.get(what)
    if room is None or room.size < count:
        room = b.scope.shared[what] = b.empty((count,), np.float32)
    return room


def _gemm(b: Binding, a: Any, x: Any, row: int, rows: int, k: int, *, adds: bool = False) -> Kernel:
    """Rows `row` and on of the result: a float32[rows, k] times x float32[m, k], both whole.

    With `adds` it is added to what is there.
    """
    out = memory_of(b.node)
    n, m = b.node.ne[0], b.node.nelements // b.node.ne[0]
    try:
        from cupy.cuda import cublas, device
    except ImportError:  # CuPy without cuBLAS: the kernel for any strides does it, more slowly
        fields: dict[str, Any] = {
            "a": a,
            "b": x,
            "out": out.data.ptr + 4 * row,
            "step": n,
            "adds": adds,
        }
        nb = (4, 4 * k, 0, 0)
        fields |= {"k": k, "n": rows, "m": m, "heads": 1, "group": 1, "group3": 1}
        grid = (-(-rows // 32), -(-m // 32))
        launch = b.cuda.library.launch
        return launch("mul_tile_f32", grid, (32, 8), (a, x), a_nb=nb, b_nb=nb, **fields)
    handle = device.get_cublas_handle()
    return _Gemm(b.cuda, cublas, handle, (a, x, out), (row, rows, n, m, k), adds)


class _Gemm:
    """A float32 product by cuBLAS."""

    recordable = False  # CuPy refuses cuBLAS while a stream is recorded

    def __init__(
        self,
        cuda: Any,
        cublas: Any,
        handle: int,
        arrays: tuple[Any, Any, Any],
        sizes: tuple[int, int, int, int, int],
        adds: bool,
    ) -> None:
        a, x, out = self.keep = arrays
        row, rows, n, m, k = sizes
        self.cuda, self.cublas = cuda, cublas
        self.one, self.kept = np.ones(1, np.float32), np.full(1, adds, np.float32)
        # column by column, as cuBLAS counts: (rows x m) = (k x rows)^T (k x m)
        first = handle, cublas.CUBLAS_OP_T, cublas.CUBLAS_OP_N, rows, m, k
        left, right = (a.data.ptr, k), (x.data.ptr, k)
        result = out.data.ptr + 4 * row, n
        self.args = (*first, self.one.ctypes.data, *left, *right, self.kept.ctypes.data, *result)

    def __call__(self) -> None:
        with self.cuda.active():
            self.cublas.sgemm(*self.args)

    def wait(self) -> None:
        """Until it has run."""
        self.cuda.synchronize()


# experts


def _takes_mul_mat_id(node: Tensor) -> bool:
    a, x, ids = node.src
    known = a.type in BLOCK_TYPES or (a.type in PLAIN and a.nb[0] == TYPES[a.type].type_size)
    return (
        known
        and a.is_contiguous
        and x.type == GGMLType.F32
        and x.nb[0] == 4
        and ids.type == GGMLType.I32
        and ids.nb[0] == 4
        and ids.ne[0] * ids.ne[1] <= MAX_GRID
    )


@op("MUL_MAT_ID", _takes_mul_mat_id)
def _bind_mul_mat_id(b: Binding) -> Kernel:
    a, x, ids = b.node.src
    grid = (-(-a.ne[1] // WARPS), ids.ne[0] * ids.ne[1])
    chosen = {
        "ids": memory_of(ids),
        "ids_nb": ids.nb[1],
        "used": ids.ne[0],
        "b_rows": x.ne[1],
        "m": 1,
    }
    if a.type in PLAIN:
        fields = {**_product(b), "group": 1, "group3": 1, **chosen}
        return b.cuda.library.launch(f"mul_vec_{PLAIN[a.type]}_1", grid, (32, WARPS), **fields)
    (q, d, s), first = _activations(b, x, BLOCK_TYPES[a.type])
    multiply = b.cuda.library.launch(
        f"mul_vec_{a.type.name}_1",
        grid,
        (32, WARPS),
        keep=(q, d, s),
        type_=a.type,
        w=memory_of(a),
        q=q,
        d=d,
        s=s,
        out=memory_of(b.node),
        row_bytes=row_size(a.type, a.ne[0]),
        k=a.ne[0],
        n=a.ne[1],
        **chosen,
    )
    return Steps(*first, multiply) if first else multiply
