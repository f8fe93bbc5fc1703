"""The ops as graph builders: shapes, strides and names of the results; no arithmetic.

↔ ggml/src/ggml.c

Each function returns a new `Tensor`; what it computes stands in `llmviz.ggml.backends`.
A shape that does not fit raises `ValueError` with both shapes.
"""

from __future__ import annotations

from llmviz.ggml.graph import Tensor, contiguous_strides
from llmviz.ggml.types import TYPES, GGMLType

__all__ = [
    "GLU_OPS",
    "UNARY_OPS",
    "add",
    "add_id",
    "argsort_top_k",
    "clamp",
    "concat",
    "cont",
    "div",
    "fill",
    "get_rows",
    "glu",
    "glu_split",
    "mul",
    "mul_mat",
    "mul_mat_id",
    "norm",
    "pad",
    "permute",
    "reshape",
    "rms_norm",
    "rope_ext",
    "row_stride",
    "scale",
    "set_rows",
    "soft_max_ext",
    "sqr",
    "sum_rows",
    "swiglu_split",
    "transpose",
    "unary",
    "view",
]

F32 = GGMLType.F32
UNARY_OPS = ("gelu", "relu", "sigmoid", "silu", "tanh")
GLU_OPS = ("geglu", "reglu", "swiglu", "swiglu_oai")


def _new(op: str, ne: tuple[int, ...], *src: Tensor, n_dims: int, **params: object) -> Tensor:
    return Tensor(F32, ne, op=op, src=src, params=params, n_dims=n_dims)


def _can_repeat(b: Tensor, a: Tensor) -> bool:
    return all(na == nb or (nb and na % nb == 0) for na, nb in zip(a.ne, b.ne, strict=True))


def _binary(op: str, a: Tensor, b: Tensor) -> Tensor:
    if not _can_repeat(b, a):
        raise ValueError(f"{op}: {b} cannot be repeated over {a}")
    return _new(op, a.ne, a, b, n_dims=a.n_dims)


def add(a: Tensor, b: Tensor) -> Tensor:
    """``a + b``, with b repeated over a's dimensions. ↔ ggml_add"""
    return _binary("ADD", a, b)


def mul(a: Tensor, b: Tensor) -> Tensor:
    """``a * b``, with b repeated over a's dimensions. ↔ ggml_mul"""
    return _binary("MUL", a, b)


def div(a: Tensor, b: Tensor) -> Tensor:
    """``a / b``, with b repeated over a's dimensions. ↔ ggml_div"""
    return _binary("DIV", a, b)


def unary(a: Tensor, op: str) -> Tensor:
    """One of `UNARY_OPS` on every value. ↔ ggml_unary, ggml_tanh, ggml_silu ..."""
    if op not in UNARY_OPS:
        raise ValueError(f"UNARY: {op!r} is none of {', '.join(UNARY_OPS)}")
    return _new("UNARY", a.ne, a, n_dims=a.n_dims, unary=op)


def sqr(a: Tensor) -> Tensor:
    """``a * a``. ↔ ggml_sqr"""
    return _new("SQR", a.ne, a, n_dims=a.n_dims)


def clamp(a: Tensor, low: float, high: float) -> Tensor:
    """Values below `low` and above `high` become these. ↔ ggml_clamp"""
    return _new("CLAMP", a.ne, a, n_dims=a.n_dims, min=low, max=high)


def fill(a: Tensor, value: float) -> Tensor:
    """A tensor of a's shape with the same value everywhere. ↔ ggml_fill"""
    return _new("FILL", a.ne, a, n_dims=a.n_dims, value=value)


def sum_rows(a: Tensor) -> Tensor:
    """The sum of each row: ``[1, ...]``. ↔ ggml_sum_rows"""
    return _new("SUM_ROWS", (1, *a.ne[1:]), a, n_dims=a.n_dims)


def scale(a: Tensor, s: float) -> Tensor:
    """``a * s``. ↔ ggml_scale"""
    return _new("SCALE", a.ne, a, n_dims=a.n_dims, scale=s)


def rms_norm(a: Tensor, eps: float) -> Tensor:
    """Each row divided by the root of its mean square plus `eps`. ↔ ggml_rms_norm"""
    return _new("RMS_NORM", a.ne, a, n_dims=a.n_dims, eps=eps)


def norm(a: Tensor, eps: float) -> Tensor:
    """Each row minus its mean, divided by the root of its variance plus `eps`. ↔ ggml_norm"""
    return _new("NORM", a.ne, a, n_dims=a.n_dims, eps=eps)


def mul_mat(a: Tensor, b: Tensor, *, hadamard: bool = False) -> Tensor:
    """Matrix product ``b · aᵀ``: a ``[k, n, ...]``, b ``[k, m, ...]`` give ``[n, m, ...]``. ↔
    ggml_mul_mat

    a's dimensions 2 and 3 are repeated over b's (grouped-query attention). `hadamard` says that a
    is a Hadamard matrix, which a backend can use without looking at it.
    """
    if a.ne[0] != b.ne[0] or b.ne[2] % a.ne[2] or b.ne[3] % a.ne[3]:
        raise ValueError(f"MUL_MAT: {a} and {b} do not fit")
    ne = (a.ne[1], b.ne[1], b.ne[2], b.ne[3])
    hint = {"hadamard": True} if hadamard else {}
    return _new("MUL_MAT", ne, a, b, n_dims=max(b.n_dims, 2), **hint)


def mul_mat_id(a: Tensor, b: Tensor, ids: Tensor) -> Tensor:
    """Products with the matrices that `ids` chooses. ↔ ggml_mul_mat_id

    a ``[k, n, n_expert]``, b ``[k, n_used or 1, n_tokens]``, ids int32 ``[n_used, n_tokens]`` give
    ``[n, n_used, n_tokens]``.
    """
    if a.ne[0] != b.ne[0] or ids.ne[1] != b.ne[2] or ids.ne[0] % b.ne[1]:
        raise ValueError(f"MUL_MAT_ID: {a}, {b} and {ids} do not fit")
    return _new("MUL_MAT_ID", (a.ne[1], ids.ne[0], b.ne[2], 1), a, b, ids, n_dims=3)


def add_id(a: Tensor, b: Tensor, ids: Tensor) -> Tensor:
    """a ``[n, n_used, n_tokens]`` plus the rows of b ``[n, n_expert]`` that `ids` chooses.

    ↔ ggml_add_id
    """
    if a.ne[0] != b.ne[0] or a.ne[1] != ids.ne[0] or a.ne[2] != ids.ne[1]:
        raise ValueError(f"ADD_ID: {a}, {b} and {ids} do not fit")
    return _new("ADD_ID", a.ne, a, b, ids, n_dims=a.n_dims)


def argsort_top_k(a: Tensor, k: int) -> Tensor:
    """Where the `k` largest values of each row are, the largest first: int32 ``[k, ...]``.

    ↔ ggml_argsort_top_k: a window on the whole order, which is its `src`.
    """
    if a.ne[0] < k:
        raise ValueError(f"ARGSORT: the {k} largest of only {a.ne[0]} values in {a}")
    order = Tensor(GGMLType.I32, a.ne, op="ARGSORT", src=(a,), n_dims=a.n_dims)
    return view(order, (k, *order.ne[1 : a.n_dims]), order.nb[1 : a.n_dims])


def get_rows(a: Tensor, ids: Tensor) -> Tensor:
    """Rows of a chosen by the int32 `ids`: ``[ne0, n_ids]``. ↔ ggml_get_rows

    ids of more dimensions choose in each matrix of a on its own: a ``[ne0, n, m]``, ids
    ``[n_ids, m]`` give ``[ne0, n_ids, m]``.
    """
    if a.ne[2] != ids.ne[1] or a.ne[3] != ids.ne[2]:
        raise ValueError(f"GET_ROWS: {a} and {ids} do not fit")
    ne = (a.ne[0], ids.ne[0], ids.ne[1], ids.ne[2])
    return _new("GET_ROWS", ne, a, ids, n_dims=1 + ids.n_dims)


def set_rows(a: Tensor, b: Tensor, ids: Tensor) -> Tensor:
    """Write b's rows into a at `ids` (int64 or int32); the result is a view of all of a.

    ↔ ggml_set_rows
    """
    if a.ne[0] != b.ne[0] or b.ne[1] != ids.ne[0]:
        raise ValueError(f"SET_ROWS: {b} at {ids} does not fit {a}")
    return Tensor(
        a.type,
        a.ne,
        op="SET_ROWS",
        name=f"{a.name} (view)",
        src=(b, ids, a),
        nb=a.nb,
        view_src=a,
        n_dims=a.n_dims,
    )


def pad(a: Tensor, n: int) -> Tensor:
    """`n` zeros after each row. ↔ ggml_pad"""
    return _new("PAD", (a.ne[0] + n, *a.ne[1:]), a, n_dims=a.n_dims)


def concat(a: Tensor, b: Tensor) -> Tensor:
    """b's rows after a's: ``[ne0 of a + ne0 of b, ...]``. ↔ ggml_concat along dimension 0"""
    if a.ne[1:] != b.ne[1:]:
        raise ValueError(f"CONCAT: {a} and {b} do not fit")
    return _new("CONCAT", (a.ne[0] + b.ne[0], *a.ne[1:]), a, b, n_dims=a.n_dims)


def reshape(a: Tensor, *ne: int) -> Tensor:
    """The same values under another shape. ↔ ggml_reshape_1d .. 4d"""
    out = Tensor(
        a.type, ne, op="RESHAPE", name=f"{a.name} (reshaped)", src=(a,), view_src=a, n_dims=len(ne)
    )
    if out.nelements != a.nelements or not a.is_contiguous:
        raise ValueError(f"RESHAPE: {a} cannot become {ne}")
    return out


def view(a: Tensor, ne: tuple[int, ...], nb: tuple[int, ...] = (), offset: int = 0) -> Tensor:
    """A window on a: shape `ne`, byte strides ``nb`` of dimensions 1 and up, byte `offset`.

    ↔ ggml_view_1d .. 4d
    """
    strides = [TYPES[a.type].type_size, *nb]
    full = (*ne, *(1,) * (4 - len(ne)))
    while len(strides) < 4:
        strides.append(strides[-1] * full[len(strides) - 1])
    return Tensor(
        a.type,
        ne,
        op="VIEW",
        name=f"{a.name} (view)",
        src=(a,),
        nb=tuple(strides),
        view_src=a,
        view_offs=offset,
        n_dims=len(ne),
    )


def permute(a: Tensor, *axes: int) -> Tensor:
    """Dimension i of a becomes dimension ``axes[i]``. ↔ ggml_permute"""
    ne, nb = [1] * 4, [0] * 4
    for i, axis in enumerate(axes):
        ne[axis], nb[axis] = a.ne[i], a.nb[i]
    n_dims = max(a.n_dims, max((ax + 1 for i, ax in enumerate(axes) if a.ne[i] > 1), default=1))
    return Tensor(
        a.type,
        tuple(ne),
        op="PERMUTE",
        name=f"{a.name} (permuted)",
        src=(a,),
        params={"axes": axes},
        nb=tuple(nb),
        view_src=a,
        n_dims=n_dims,
    )


def transpose(a: Tensor) -> Tensor:
    """Dimensions 0 and 1 swapped. ↔ ggml_transpose"""
    out = permute(a, 1, 0, 2, 3)
    out.op, out.name, out.params = "TRANSPOSE", f"{a.name} (transposed)", {}
    return out


def cont(a: Tensor, *ne: int) -> Tensor:
    """A contiguous copy, optionally under another shape. ↔ ggml_cont, ggml_cont_2d"""
    shape = ne or a.ne
    out = Tensor(
        a.type, shape, op="CONT", name=f"{a.name} (cont)", src=(a,), n_dims=len(ne) or a.n_dims
    )
    if out.nelements != a.nelements:
        raise ValueError(f"CONT: {a} cannot become {ne}")
    return out


def soft_max_ext(
    a: Tensor,
    mask: Tensor | None,
    kq_scale: float,
    max_bias: float = 0.0,
    sinks: Tensor | None = None,
) -> Tensor:
    """Softmax over each row of ``a * kq_scale + slope * mask``. ↔ ggml_soft_max_ext

    mask is ``[n_kv, n_tokens, 1, n_stream]``, 0 where a token may look and -inf where it may not.
    With a `max_bias` above 0 each head has its own slope (ALiBi), otherwise it is 1. sinks
    ``[n_head]`` are scores that take part in the sum but get no weight.
    """
    if max_bias > 0 and mask is None:
        raise ValueError(f"SOFT_MAX: {a}: ALiBi needs a mask")
    if sinks is not None and sinks.ne[0] != a.ne[2]:
        raise ValueError(f"SOFT_MAX: {sinks} does not fit the heads of {a}")
    src = [t for t in (a, mask, sinks) if t is not None]
    params: dict[str, object] = {"scale": kq_scale, "max_bias": max_bias}
    if sinks is not None:
        params["sinks"] = True
    return _new("SOFT_MAX", a.ne, *src, n_dims=a.n_dims, **params)


def rope_ext(
    a: Tensor,
    pos: Tensor,
    freq_factors: Tensor | None,
    *,
    n_dims: int,
    mode: str,
    n_ctx_orig: int,
    freq_base: float,
    freq_scale: float,
    ext_factor: float,
    attn_factor: float,
    beta_fast: float,
    beta_slow: float,
    sections: tuple[int, ...] = (),
) -> Tensor:
    """Rotary position embedding of the first `n_dims` values of each head. ↔ ggml_rope_ext

    a is ``[n_embd_head, n_head, n_tokens]``, pos int32 ``[n_tokens]``. `mode` is ``"norm"`` (pairs
    of neighbours), ``"neox"`` (first half with second half) or ``"mrope"``: as neox, but four
    positions per token, pos ``[4 * n_tokens]``, and `sections` says how many pairs follow each of
    them (↔ ggml_rope_multi).
    """
    n_pos = 4 if mode == "mrope" else 1
    if a.ne[2] * n_pos != pos.ne[0]:
        raise ValueError(f"ROPE: {a} and {pos} do not fit")
    if n_dims % 2 or n_dims > a.ne[0]:
        raise ValueError(f"ROPE: n_dims {n_dims} must be even and at most {a.ne[0]}")
    src = (a, pos) if freq_factors is None else (a, pos, freq_factors)
    return _new(
        "ROPE",
        a.ne,
        *src,
        n_dims=a.n_dims,
        n_rot=n_dims,
        mode=mode,
        n_ctx_orig=n_ctx_orig,
        freq_base=freq_base,
        freq_scale=freq_scale,
        ext_factor=ext_factor,
        attn_factor=attn_factor,
        beta_fast=beta_fast,
        beta_slow=beta_slow,
        **({"sections": tuple(sections)} if sections else {}),
    )


def glu_split(a: Tensor, b: Tensor, op: str, **params: float) -> Tensor:
    """``act(a) * b`` with one of `GLU_OPS`. ↔ ggml_glu_split, ggml_swiglu_split, ggml_swiglu_oai"""
    if a.ne != b.ne:
        raise ValueError(f"GLU: {a} and {b} differ in shape")
    return _glu(a, op, a.ne, (a, b), params)


def glu(a: Tensor, op: str) -> Tensor:
    """``act(first half) * second half`` of each row. ↔ ggml_glu, ggml_swiglu"""
    if a.ne[0] % 2:
        raise ValueError(f"GLU: the rows of {a} have no two halves")
    return _glu(a, op, (a.ne[0] // 2, *a.ne[1:]), (a,), {})


def _glu(
    a: Tensor, op: str, ne: tuple[int, ...], src: tuple[Tensor, ...], params: dict[str, float]
) -> Tensor:
    if op not in GLU_OPS:
        raise ValueError(f"GLU: {op!r} is none of {', '.join(GLU_OPS)}")
    return Tensor(F32, ne, op="GLU", src=src, params={"glu": op, **params}, n_dims=a.n_dims)


def swiglu_split(a: Tensor, b: Tensor) -> Tensor:
    """``silu(a) * b``. ↔ ggml_swiglu_split"""
    return glu_split(a, b, "swiglu")


def row_stride(a: Tensor, n: int) -> int:
    """Bytes of `n` values of a's type. ↔ ggml_row_size"""
    return contiguous_strides(a.type, (n, 1, 1, 1))[1]
