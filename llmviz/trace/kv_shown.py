"""What a KV cache holds, as its views show it: cells, the next search, sizes, norms of K and V.

A memory may be two caches (layers that see everything, layers with a sliding window): `caches` is
the one place that knows. Norms are read from the engine's own arrays, as they are at this moment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from llmviz.ggml import quants
from llmviz.ggml.types import GGMLType
from llmviz.memory.slots import SlotInfo
from llmviz.trace.lookback import first_unfinished
from llmviz.trace.records import CellsRecord, read_cells
from llmviz.trace.shown import cells_window

__all__ = ["KVStrip", "Norms", "Sizes", "caches", "row_norms", "strips"]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of one cache.

    Attributes
    ----------
    total, used, read : int
        All cells; those that hold something; those that attention reads (padded, so that graphs can
        be reused).
    n_read : int
        How many cells that is.
    formula : str
        How the total comes about, with its numbers.
    """

    total: int
    used: int
    read: int
    n_read: int
    formula: str


@dataclass(frozen=True, slots=True, eq=False)
class KVStrip:
    """One cache.

    Attributes
    ----------
    title : str
        Which layers it is of; empty where there is only one cache.
    record : CellsRecord
    first, end : int
        The window of its cells that is shown.
    heads : tuple of int
        Of each stream, the cell at which the next search for free cells begins; empty where the run
        has no engine.
    sizes : Sizes or None
    norms : Norms or None
    """

    title: str
    record: CellsRecord
    first: int
    end: int
    heads: tuple[int, ...] = ()
    sizes: Sizes | None = None
    norms: Norms | None = None


@dataclass(slots=True, eq=False)
class Norms:
    """Length (L2 norm) of each cell's key and value in each layer; kept up to date by `update`.

    Attributes
    ----------
    layers : list of int
    k, v : float32 [n_layer, n_cells]
        NaN where a cell is empty or its row is not written yet. All cells of all streams.
    """

    cache: Any
    layers: list[int] = field(default_factory=list)
    k: np.ndarray = field(default_factory=lambda: np.empty((0, 0), np.float32))
    v: np.ndarray = field(default_factory=lambda: np.empty((0, 0), np.float32))
    _of: Any = None

    def update(self, record: CellsRecord, first: int, end: int, key: Any, reached: Any) -> None:
        """Read what may have changed: all shown cells where `key` changed, else the fresh ones.

        Parameters
        ----------
        first, end : int
            Only cells of this window are read.
        key
            Anything that changes when rows of older cells may have changed.
        reached : int or None
            First layer that has not written the fresh cells yet; None: all have.
        """
        cache = self.cache
        fresh = np.array(sorted(i for i in record.fresh if first <= i < end), np.int64)
        cells = np.arange(first, end)
        cells = cells[record.pos[first:end] >= 0]
        state = (key, first, end, getattr(cache, "data_version", 0))
        if state != self._of:
            self._of = state
            self.layers = [layer.il for layer in cache.layers]
            shape = len(self.layers), len(record.pos)
            self.k, self.v = (np.full(shape, np.nan, np.float32) for _ in range(2))
        else:
            cells = fresh
        for row, layer in enumerate(cache.layers):
            if not cells.size:
                break
            self.k[row, cells] = row_norms(cache, layer, cells, "k")
            self.v[row, cells] = row_norms(cache, layer, cells, "v")
            if reached is not None and layer.il >= reached:
                self.k[row, fresh] = self.v[row, fresh] = np.nan


def row_norms(cache: Any, layer: Any, cells: np.ndarray, what: str) -> np.ndarray:
    """Norms of some cells' keys (``"k"``) or values (``"v"``) in a layer: float32 [n].

    All KV heads of a cell together. NaN where the layer keeps no values.
    """
    array = layer.k if what == "k" else layer.v
    if array is None:
        return np.full(len(cells), np.nan, np.float32)
    kind = quants.get(GGMLType(cache.type_k if what == "k" else cache.type_v))
    out = np.empty(len(cells), np.float32)
    streams, inside = np.divmod(cells, cache.kv_size)
    for stream in np.unique(streams):
        mine = streams == stream
        part = (layer.read_k if what == "k" else layer.read_v)(stream, inside[mine])
        if what == "v" and layer.v_trans:
            part = part[: layer.n_embd_v_gqa].T  # [n, n_embd_v_gqa]; else [n, n_embd or blocks]
        raw = np.ascontiguousarray(part).view(np.uint8).reshape(-1)
        rows = kind.dequantize(raw).reshape(int(mine.sum()), -1)  # [n, n_embd]
        out[mine] = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return out


def caches(memory: Any) -> list[tuple[str, Any]]:
    """Title and cache of each KV cache that a memory is made of; none for other memories."""
    parts = getattr(memory, "caches", None)
    if not isinstance(parts, dict):
        return [("", memory)] if hasattr(memory, "size_formula") else []
    if len(parts) == 1:
        return [("", next(iter(parts.values())))]
    return [(_title(cache), cache) for cache in parts.values() if cache.layers]


def _title(cache: Any) -> str:
    n = len(cache.layers)
    which = f"{n} layer{'' if n == 1 else 's'}"
    if getattr(cache, "n_swa", 0):
        return f"{which} with a window of {cache.n_swa:,} tokens"
    return f"{which} that see everything"


def strips(dbg: Any, most: int, step: int, norms: dict[int, Norms] | None = None) -> list[KVStrip]:
    """Every cache of a run, the one that the recorder follows first; none before its first cells.

    Parameters
    ----------
    dbg : Debugger or Recorder
    most, step : int
        Cells of each window, see `shown.cells_window`.
    norms : dict, optional
        Remembers norms from call to call; without it they are not read.
    """
    recorder = getattr(dbg, "recorder", dbg)
    record: CellsRecord | None = recorder.cells
    if record is None:
        return []
    memory = getattr(getattr(dbg, "ctx", None), "memory", None)
    parts = caches(memory)
    if not parts:
        return [KVStrip("", record, *cells_window(record, most, step))]
    out = []
    reached = first_unfinished(dbg)
    for i, (title, cache) in enumerate(parts):
        own = record if i == 0 else _record(cache, record)
        first, end = cells_window(own, most, step)
        found = None
        if norms is not None:
            found = norms.get(id(cache))
            if found is None or found.cache is not cache:
                found = norms[id(cache)] = Norms(cache)
            branch = getattr(getattr(dbg, "branch", None), "name", "")
            found.update(own, first, end, (record.n, branch, len(dbg.edits)), reached)
        heads = tuple(s * cache.kv_size + h for s, h in enumerate(cache.heads))
        out.append(KVStrip(title, own, first, end, heads, _sizes(cache, own), found))
    if norms is not None:
        for gone in set(norms) - {id(cache) for _, cache in parts}:
            del norms[gone]
    return out


def _record(cache: Any, base: CellsRecord) -> CellsRecord:
    """The cells of another cache as they are; new are those that hold the same new tokens."""
    pos, tok, seq = read_cells(cache.cells)
    new = {int(base.pos[i]) for i in base.fresh}
    fresh = frozenset(np.flatnonzero(np.isin(pos, list(new))).tolist()) if new else frozenset()
    return CellsRecord(pos, tok, seq, fresh, base.n)


def _sizes(cache: Any, record: CellsRecord) -> Sizes:
    total = int(cache.total_size())
    each = total / max(1, len(record.pos))
    n_stream = cache.n_stream
    everything = SlotInfo(
        0, n_stream - 1, list(range(n_stream)), [np.zeros(1, np.int64)] * n_stream
    )
    n_read = int(cache.get_n_kv(everything)) * n_stream
    return Sizes(
        total, round(each * record.used), round(each * n_read), n_read, cache.size_formula()
    )
