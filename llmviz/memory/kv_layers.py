"""K and V themselves: one pair of arrays per model layer. ↔ src/llama-kv-cache.h (kv_layer)

Plain numpy arrays that the graph wraps; the cells that describe their columns are in `cells.py`. An
array of a quantized type holds blocks (the type's structured dtype), a whole number of them a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from llmviz.errors import UnsupportedError
from llmviz.ggml import quants
from llmviz.ggml.types import TYPES, GGMLType
from llmviz.memory.memory import CacheError

if TYPE_CHECKING:
    from llmviz.ggml.backends.backend import Backend

__all__ = ["KV_TYPES", "ApplyShift", "KVLayer", "KVRows", "make_layers", "places", "size_formula"]

ApplyShift = Callable[[int, np.ndarray], None]
"""``apply_shift(il, shift)``: rotate the keys of layer il, in place, by ``shift`` positions
(int32[n_stream, kv_size])."""

KV_TYPES: dict[str, GGMLType] = {
    t.name.lower(): t
    for t in (
        GGMLType.F32,
        GGMLType.F16,
        GGMLType.BF16,
        GGMLType.Q8_0,
        GGMLType.Q4_0,
        GGMLType.Q4_1,
        GGMLType.IQ4_NL,
        GGMLType.Q5_0,
        GGMLType.Q5_1,
    )
}
"""The types that K and V can be kept in, as llama.cpp's tools offer them."""


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
        [n_stream, kv_size, n_embd_k_gqa], of a quantized type [..., n_embd_k_gqa / block_size].
    v : numpy.ndarray or None
        Transposed [n_stream, n_embd_v, kv_size], else [n_stream, kv_size, n_embd_v_gqa], of a
        quantized type [..., n_embd_v_gqa / block_size]. The transposed form is as wide as the
        widest layer. None where the layer keeps no values.
    home : Backend or None
        Whose arrays they are; None: numpy's.
    """

    il: int
    n_embd_k_gqa: int
    n_embd_v_gqa: int
    k: np.ndarray
    v: np.ndarray | None
    v_trans: bool
    home: Backend | None = None

    def move_to(self, home: Backend | None) -> None:
        """Keep K and V, still all zeros, in the memory of a device; None: where they are."""
        if home is None:
            return
        self.home = home
        self.k = self._there(home, self.k)
        self.v = None if self.v is None else self._there(home, self.v)

    @staticmethod
    def _there(home: Backend, array: np.ndarray) -> Any:
        return home.view(home.alloc(array.nbytes, "kv"), array.shape, array.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of K and V."""
        return self.k.nbytes + (0 if self.v is None else self.v.nbytes)

    @property
    def k_shape(self) -> tuple[int, int, int]:
        """(streams, cells, width) of K, the width in values."""
        return (*self.k.shape[:2], self.n_embd_k_gqa)

    @property
    def v_shape(self) -> tuple[int, int, int]:
        """(streams, cells, width) of V, however it is laid out; all 0 where there is none."""
        if self.v is None:
            return 0, 0, 0
        a, b, c = self.v.shape
        return (a, c, b) if self.v_trans else (a, b, self.n_embd_v_gqa)

    def clear(self) -> None:
        """Zero K and V."""
        for array in (self.k, self.v):
            if array is None:
                continue
            if self.home is None:
                array.reshape(-1).view(np.uint8).fill(0)
            else:
                self.home.set(array, np.zeros((), array.dtype))

    def copy_stream(self, src: int, dst: int) -> None:
        """Copy K and V of one stream to another."""
        for array in (self.k, self.v):
            if array is None:
                continue
            if self.home is None:
                array[dst] = array[src]
            else:
                self.home.set(array[dst], self.home.get(array[src]))

    def read_k(self, stream: int, idxs: np.ndarray) -> np.ndarray:
        """Keys of some cells, a copy on the host: [n, n_embd_k_gqa or blocks]."""
        return self._take(self.k[stream], (idxs,))

    def write_k(self, stream: int, idxs: np.ndarray, value: np.ndarray) -> None:
        """Put keys into some cells; `value` as `read_k` returns it."""
        self._put(self.k[stream], (idxs,), value)

    def read_v(self, stream: int, idxs: np.ndarray) -> np.ndarray | None:
        """Values of some cells, a copy on the host; None where there are none.

        [n_embd_v, n] where V is transposed, else [n, n_embd_v_gqa or blocks].
        """
        if self.v is None:
            return None
        return self._take(self.v[stream], (slice(None), idxs) if self.v_trans else (idxs,))

    def write_v(self, stream: int, idxs: np.ndarray, value: np.ndarray | None) -> None:
        """Put values into some cells; of transposed ones perhaps only the first rows."""
        if self.v is None or value is None:
            return
        if self.v_trans:
            rows = slice(len(value) if value.ndim else None)
            self._put(self.v[stream], (rows, idxs), value)
        else:
            self._put(self.v[stream], (idxs,), value)

    def _take(self, array: np.ndarray, where: tuple[Any, ...]) -> np.ndarray:
        return array[where] if self.home is None else self.home.take(array, where)

    def _put(self, array: np.ndarray, where: tuple[Any, ...], value: np.ndarray) -> None:
        if self.home is None:
            array[where] = value
        else:
            self.home.put(array, where, value)

    def save_rows(self, stream: int, idxs: np.ndarray) -> KVRows:
        """Copy K and V of some cells."""
        k, v = self.read_k(stream, idxs), self.read_v(stream, idxs)
        return KVRows(self.il, stream, idxs, k, v)

    def restore_rows(self, rows: KVRows) -> None:
        """Put back what `save_rows` copied."""
        self.write_k(rows.stream, rows.idxs, rows.k)
        self.write_v(rows.stream, rows.idxs, rows.v)

    def zero_rows(self, stream: int, idxs: np.ndarray) -> None:
        """Zero K and V of some cells."""
        self.write_k(stream, idxs, np.zeros((), self.k.dtype))
        if self.v is not None:
            self.write_v(stream, idxs, np.zeros((), self.v.dtype))


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

    Raises
    ------
    UnsupportedError
        A type that a cache cannot have.
    CacheError
        Rows of a quantized type that are not whole blocks, a quantized V that is transposed, or
        there is not enough memory.
    """
    quant_k, quant_v = _quant("type_k", type_k), _quant("type_v", type_v)
    if v_trans and quant_v.block_size > 1:
        raise CacheError(f"a V cache of type {TYPES[type_v].name} cannot be kept transposed")
    for il, n_k, n_v in layers:
        for what, quant, n in (("K", quant_k, n_k), ("V", quant_v, n_v)):
            if n % quant.block_size:
                raise CacheError(
                    f"{what} cache type {TYPES[quant.type].name} with block size "
                    f"{quant.block_size} does not divide the {n} values of layer {il}"
                )
    dtype_k, dtype_v = quant_k.block_dtype, quant_v.block_dtype
    n_v_max = max([n_embd_v_max, *(n_v for _, _, n_v in layers)])
    made = []
    try:
        for il, n_k, n_v in layers:
            # zeros: a cell never written must not bring NaN into the masked part of a product
            k = np.zeros((n_stream, kv_size, n_k // quant_k.block_size), dtype_k)
            # [n_stream, n_embd_v_gqa_max, kv_size], else [n_stream, kv_size, n_embd_v_gqa]
            width = n_v // quant_v.block_size
            shape = (n_stream, n_v_max, kv_size) if v_trans else (n_stream, kv_size, width)
            v = np.zeros(shape, dtype_v) if n_v else None
            made.append(KVLayer(il, n_k, n_v, k, v, v_trans))
    except (MemoryError, ValueError) as error:
        raise CacheError(
            f"the KV cache cannot be allocated ({error}): {len(layers)} layers, "
            f"{n_stream} x {kv_size} cells; use a smaller n_ctx"
        ) from None
    return made


def _quant(what: str, type_: GGMLType) -> type[quants.QuantType]:
    if type_ in KV_TYPES.values():
        return quants.get(type_)
    raise UnsupportedError(
        f"KV cache type ({what})",
        TYPES[type_].name if type_ in TYPES else str(type_),
        supported=list(KV_TYPES),
    )


def places(layers: Iterable[KVLayer]) -> list[str]:
    """A line that says on which device how many layers are; none where all are on the host."""
    held: dict[str, list[KVLayer]] = {}
    for layer in layers:
        held.setdefault("CPU" if layer.home is None else layer.home.name, []).append(layer)
    if set(held) <= {"CPU"}:
        return []
    parts = (
        f"{len(of)} layer{'' if len(of) == 1 else 's'} on {name} "
        f"({sum(layer.nbytes for layer in of) / 2**20:.2f} MiB)"
        for name, of in held.items()
    )
    return [", ".join(parts)]


def size_formula(what: str, type_: GGMLType, shapes: Iterable[tuple[int, int, int]]) -> str:
    """How many bytes arrays of the shapes (streams, cells, width) take, with all numbers.

    >>> size_formula("K", GGMLType.F16, [(1, 512, 192)] * 30)
    'K (f16): 30 layers x 512 cells x 192 x 2 bytes = 5.62 MiB'
    >>> size_formula("K", GGMLType.Q8_0, [(1, 512, 192)] * 30)
    'K (q8_0): 30 layers x 512 cells x 192 / 32 x 34 bytes = 2.99 MiB'
    """
    shapes = list(shapes)
    traits = TYPES[type_]
    blocks = f"/ {traits.block_size} " if traits.block_size > 1 else ""
    terms = []
    for n_stream, n_cells, width in sorted(set(shapes)):
        n = shapes.count((n_stream, n_cells, width))
        streams = f"{n_stream} streams x " if n_stream > 1 else ""
        terms.append(
            f"{n} layer{'' if n == 1 else 's'} x {streams}{n_cells} cells x {width} "
            f"{blocks}x {traits.type_size} bytes"
        )
    n_bytes = sum(a * b * c for a, b, c in shapes) // traits.block_size * traits.type_size
    return f"{what} ({traits.name}): {' + '.join(terms) or '0'} = {n_bytes / 2**20:.2f} MiB"
