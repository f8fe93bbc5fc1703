"""K and V themselves: one pair of arrays per model layer. ↔ src/llama-kv-cache.h (kv_layer)

Plain numpy arrays that the graph wraps; the cells that describe their columns are in `cells.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from llmviz.errors import UnsupportedError
from llmviz.ggml.types import TYPES, GGMLType
from llmviz.memory.memory import CacheError

__all__ = ["ApplyShift", "KVLayer", "KVRows", "make_layers", "size_formula"]

ApplyShift = Callable[[int, np.ndarray], None]
"""``apply_shift(il, shift)``: rotate the keys of layer il, in place, by ``shift`` positions
(int32[n_stream, kv_size])."""

_KV_TYPES = (GGMLType.F32, GGMLType.F16)


@dataclass(slots=True, eq=False)
class KVLayer:
    """Keys and values of one model layer.

    Attributes
    ----------
    il : int
        Layer index in the model.
    n_embd_k_gqa, n_embd_v_gqa : int
        Values per token, all KV heads together.
    k : numpy.ndarray
        [n_stream, kv_size, n_embd_k_gqa].
    v : numpy.ndarray or None
        Transposed [n_stream, n_embd_v, kv_size], else [n_stream, kv_size, n_embd_v_gqa]. The
        transposed form is as wide as the widest layer. None where the layer keeps no values.
    """

    il: int
    n_embd_k_gqa: int
    n_embd_v_gqa: int
    k: np.ndarray
    v: np.ndarray | None
    v_trans: bool

    @property
    def v_shape(self) -> tuple[int, int, int]:
        """(streams, cells, width) of V, however it is laid out; all 0 where there is none."""
        if self.v is None:
            return 0, 0, 0
        a, b, c = self.v.shape
        return (a, c, b) if self.v_trans else (a, b, c)

    def copy_stream(self, src: int, dst: int) -> None:
        """Copy K and V of one stream to another."""
        self.k[dst] = self.k[src]
        if self.v is not None:
            self.v[dst] = self.v[src]

    def save_rows(self, stream: int, idxs: np.ndarray) -> KVRows:
        """Copy K and V of some cells."""
        v = None  # [n_embd_v, n] if transposed, else [n, n_embd_v_gqa]
        if self.v is not None:
            v = self.v[stream][:, idxs] if self.v_trans else self.v[stream, idxs]
        return KVRows(self.il, stream, idxs, self.k[stream, idxs], v)

    def restore_rows(self, rows: KVRows) -> None:
        """Put back what `save_rows` copied."""
        self.k[rows.stream, rows.idxs] = rows.k
        self._write_v(rows.stream, rows.idxs, rows.v)

    def zero_rows(self, stream: int, idxs: np.ndarray) -> None:
        """Zero K and V of some cells."""
        self.k[stream, idxs] = 0
        self._write_v(stream, idxs, 0)

    def _write_v(self, stream: int, idxs: np.ndarray, value: np.ndarray | int | None) -> None:
        if self.v is None:
            return
        if self.v_trans:
            self.v[stream][:, idxs] = value
        else:
            self.v[stream, idxs] = value


@dataclass(slots=True, eq=False)
class KVRows:
    """Copy of some cells' K and V in one layer and stream; see `KVLayer.save_rows`."""

    il: int
    stream: int
    idxs: np.ndarray
    k: np.ndarray
    v: np.ndarray | None


def make_layers(
    layers: Sequence[tuple[int, int, int]],
    *,
    n_stream: int,
    kv_size: int,
    type_k: GGMLType,
    type_v: GGMLType,
    v_trans: bool,
    n_embd_v_max: int = 0,
) -> list[KVLayer]:
    """Allocate the layers (il, n_embd_k_gqa, n_embd_v_gqa); memory is taken as it is written.

    A transposed V is as wide as the widest layer, at least `n_embd_v_max`.
    """
    dtype_k, dtype_v = _dtype("type_k", type_k), _dtype("type_v", type_v)
    n_v_max = max([n_embd_v_max, *(n_v for _, _, n_v in layers)])
    made = []
    try:
        for il, n_k, n_v in layers:
            # zeros: a cell never written must not bring NaN into the masked part of a product
            k = np.zeros((n_stream, kv_size, n_k), dtype_k)  # [n_stream, kv_size, n_embd_k_gqa]
            # [n_stream, n_embd_v_gqa_max, kv_size], else [n_stream, kv_size, n_embd_v_gqa]
            shape = (n_stream, n_v_max, kv_size) if v_trans else (n_stream, kv_size, n_v)
            v = np.zeros(shape, dtype_v) if n_v else None
            made.append(KVLayer(il, n_k, n_v, k, v, v_trans))
    except (MemoryError, ValueError) as error:
        raise CacheError(
            f"the KV cache cannot be allocated ({error}): {len(layers)} layers, "
            f"{n_stream} x {kv_size} cells; use a smaller n_ctx"
        ) from None
    return made


def _dtype(what: str, type_: GGMLType) -> np.dtype | None:
    if type_ in _KV_TYPES:
        return TYPES[type_].dtype
    raise UnsupportedError(
        f"KV cache type ({what})",
        TYPES[type_].name if type_ in TYPES else str(type_),
        supported=[TYPES[t].name for t in _KV_TYPES],
    )


def size_formula(what: str, type_: GGMLType, shapes: Iterable[tuple[int, int, int]]) -> str:
    """How many bytes arrays of the shapes (streams, cells, width) take, with all numbers.

    >>> size_formula("K", GGMLType.F16, [(1, 512, 192)] * 30)
    'K (f16): 30 layers x 512 cells x 192 x 2 bytes = 5.62 MiB'
    """
    shapes = list(shapes)
    traits = TYPES[type_]
    terms = []
    for n_stream, n_cells, width in sorted(set(shapes)):
        n = shapes.count((n_stream, n_cells, width))
        streams = f"{n_stream} streams x " if n_stream > 1 else ""
        terms.append(
            f"{n} layer{'' if n == 1 else 's'} x {streams}{n_cells} cells x {width} "
            f"x {traits.type_size} bytes"
        )
    n_bytes = sum(a * b * c for a, b, c in shapes) * traits.type_size
    return f"{what} ({traits.name}): {' + '.join(terms) or '0'} = {n_bytes / 2**20:.2f} MiB"
