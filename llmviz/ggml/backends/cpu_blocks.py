"""CPU kernels that read a weight as the file's own blocks.

↔ ggml/src/ggml-cpu/ggml-cpu.c (ggml_compute_forward_mul_mat), ops.cpp (get_rows)

Activations are quantized to eight bits once for all products that share them. Compiled where that
is possible, else plain numpy; both give the same bits, but for the order in which many columns'
sums are added (see `kernels.exact`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from llmviz.ggml import dots
from llmviz.ggml.backends import kernels
from llmviz.ggml.backends.backend import BindScope, Kernel
from llmviz.ggml.backends.cpu_base import array_of, float_of
from llmviz.ggml.decode import decoded_rows
from llmviz.ggml.graph import Tensor

__all__ = ["bind_get_rows", "bind_mul_mat", "bind_mul_mat_id"]


def bind_mul_mat(node: Tensor, scope: BindScope) -> Kernel:
    """Blocks times quantized activations."""
    weight, x = node.src
    assert weight.blocks is not None
    out = array_of(node).reshape(-1, weight.ne[1])  # [m, n]
    q, quantize = _activations(x, dots.group_of(weight.type), scope)
    multiply = _product(weight, q, out, scope)

    def run() -> None:
        quantize()
        multiply()

    return run


@dataclass(eq=False)
class _Room:
    """Room for activations in eight bits, which all nodes of one shape use in turn.

    Each node's own would be most of a long prompt's memory.

    Attributes
    ----------
    q : Activations
    rows : float32[m, k] or None
        For activations that are not contiguous: a copy that is.
    holds : Tensor or None
        What is in it now.
    """

    q: dots.Activations
    rows: np.ndarray | None = None
    holds: Tensor | None = None


def _activations(x: Tensor, group: int, scope: BindScope) -> tuple[dots.Activations, Kernel]:
    """The quantized form of x, and what fills it unless a product before this one did."""
    values = float_of(x)
    k = values.shape[-1]
    m = values.size // k
    key = ("q8", m, k, group)
    room = scope.shared.get(key)
    if not isinstance(room, _Room):
        room = scope.shared[key] = _Room(dots.Activations.empty(m, k, group))
    if values.flags.c_contiguous:
        rows, copy = values.reshape(-1, k), None
    else:
        if room.rows is None:
            room.rows = np.empty((m, k), np.float32)
        rows, copy = room.rows, values
    if kernels.usable():
        n_threads = scope.n_threads[0 if m == 1 else 1]
        quantize: Kernel = kernels.load().quantizer(rows, room.q, n_threads)
    else:
        plain = dots.quantize_q8 if group == 32 else dots.quantize_q8_k
        quantize = partial(plain, rows, room.q)
    met = scope.shared.setdefault(("q8 of", group), set())
    assert isinstance(met, set)
    # In a run of the graph: what the room holds of x is an earlier run's. With one column each
    # product does it, since another one may run on a tape instead, which has room of its own.
    first = m == 1 or x not in met
    met.add(x)

    def run(room: _Room = room) -> None:
        if room.holds is x and not first:
            return
        if copy is not None:
            rows[...] = copy.reshape(rows.shape)
        quantize()
        room.holds = x

    return room.q, run


def _product(
    weight: Tensor,
    q: dots.Activations,
    out: np.ndarray,
    scope: BindScope,
    rows: np.ndarray | None = None,
) -> Kernel:
    """A weight's rows, or some of them, times all columns of q."""
    raw, type_ = weight.blocks if rows is None else rows, weight.type
    assert raw is not None
    if kernels.usable():
        n_threads = scope.n_threads[0 if len(out) == 1 else 1]
        return kernels.load().product(type_, raw, q, out, n_threads, kernels.exact())
    return lambda: dots.mul_mat(type_, raw, q, out)


def bind_mul_mat_id(node: Tensor, scope: BindScope) -> Kernel:
    """Each token's row times the blocks of the experts chosen for it.

    A row is quantized once for all its experts. ↔ ggml_compute_forward_mul_mat_id
    """
    weight, x = node.src[0], node.src[1]
    assert weight.blocks is not None
    experts = weight.blocks.reshape(weight.ne[2], weight.ne[1], -1)  # [n_expert, n, row_bytes]
    out, ids = array_of(node), array_of(node.src[2])  # [n_tokens, n_used, n], [n_tokens, n_used]
    q, quantize = _activations(x, dots.group_of(weight.type), scope)
    n_rows = x.ne[1]  # of a token: one for all its experts, or one for each
    per_token = np.arange(len(ids))[:, None] * n_rows  # [n_tokens, 1]
    row_of = per_token + np.arange(ids.shape[1]) % n_rows  # [n_tokens, n_used]

    def multiply() -> None:
        if len(ids) == 1:
            for j, e in enumerate(ids[0].tolist()):
                row = row_of[0, j]
                one = dots.Activations(*(part[row : row + 1] for part in q))
                _product(weight, one, out[0, j : j + 1], scope, experts[e])()
            return
        for e in np.unique(ids).tolist():  # all rows of an expert at once
            token, slot = np.nonzero(ids == e)
            some = dots.Activations(*(part[row_of[token, slot]] for part in q))
            result = np.empty((len(token), weight.ne[1]), np.float32)
            _product(weight, some, result, scope, experts[e])()
            out[token, slot] = result

    def run() -> None:
        quantize()
        multiply()

    return run


def bind_get_rows(node: Tensor, scope: BindScope) -> Kernel:
    """Some rows of blocks, decoded."""
    weight, ids, out = node.src[0], array_of(node.src[1]), array_of(node)

    def run() -> None:
        out[...] = decoded_rows(weight, ids).reshape(out.shape)

    return run
