"""Saving and restoring what a KV cache holds. ↔ src/llama-kv-cache.cpp (state_write, state_read)

The bytes are llama.cpp's own (little endian): the number of streams; per stream the number of
cells; per cell position and sequences; then layer by layer the keys (a row per cell), then the
values (a row per cell, or per value where V is transposed). A count in the data is compared with
what is left before anything is sized by it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from llmviz.batch import Ubatch
from llmviz.memory.cells import KVCells
from llmviz.memory.memory import CacheError
from llmviz.memory.slots import SlotInfo, is_masked_swa

if TYPE_CHECKING:
    from llmviz.memory.kv_cache import KVCache, KVLayer

__all__ = ["state_read", "state_write"]


def state_write(kv: KVCache, seq_id: int = -1) -> bytes:
    """State of one sequence, or with -1 of all.

    Cells behind the window of the sequence are left out. Pending shifts are not saved: update
    first.
    """
    if seq_id != -1:
        kv._stream(seq_id)
    out = [struct.pack("<I", kv.n_stream)]
    for stream, cells in enumerate(kv.cells):
        idxs = cells.in_range(seq_id, -1, -1)
        if seq_id != -1 and len(idxs):
            last = cells.seq_pos_max(seq_id)
            idxs = idxs[~is_masked_swa(kv.n_swa, kv.swa_type, cells.pos[idxs], last)]
        out.append(struct.pack("<I", len(idxs)))
        if not len(idxs):
            continue
        out += [_cell(cells, i, seq_id, kv.n_seq_max) for i in idxs.tolist()]
        out.append(struct.pack("<IIII", kv.v_trans, len(kv.layers), *kv.rotation))
        for layer in kv.layers:
            out.append(struct.pack("<iQ", kv.type_k, layer.k.shape[2] * layer.k.itemsize))
            out.append(layer.read_k(stream, idxs).tobytes())
        for layer in kv.layers:
            values = layer.read_v(stream, idxs)
            if layer.v is None or values is None:
                continue
            n = layer.n_embd_v_gqa
            if kv.v_trans:
                out.append(struct.pack("<iII", kv.type_v, layer.v.itemsize, n))
                out.append(values[:n].tobytes())
            else:
                row = layer.v.shape[2] * layer.v.itemsize
                out.append(struct.pack("<iQ", kv.type_v, row))
                out.append(values.tobytes())
    return b"".join(out)


def _cell(cells: KVCells, i: int, seq_id: int, n_seq_max: int) -> bytes:
    seqs = [s for s in cells.seq_get_all(i) if seq_id in (-1, s) and s < n_seq_max]
    return struct.pack(f"<iI{len(seqs)}i", cells.pos[i], len(seqs), *seqs)


def state_read(kv: KVCache, data: bytes, seq_id: int = -1) -> int:
    """Restore a state into one sequence, or with -1 into the whole cache.

    Returns
    -------
    int
        Bytes used.

    Raises
    ------
    CacheError
        The data is cut short, does not fit this cache, or there is no room. The sequence (with -1
        the cache) is then empty, unless not even the number of streams was right.
    """
    if seq_id != -1:
        kv._stream(seq_id)
    reader = _Reader(data)
    n_stream = reader.unpack("I", "number of streams")
    if n_stream != kv.n_stream:
        raise CacheError(
            f"failed to restore kv cache: the state has {n_stream} streams, "
            f"this cache has {kv.n_stream}"
        )
    if seq_id == -1:
        kv.clear()
    for s in range(n_stream):
        stream = s if seq_id == -1 else kv.seq_to_stream[seq_id]
        idxs = np.zeros(0, np.int64)
        try:
            n_cells = reader.unpack("I", "number of cells")
            if n_cells:
                idxs = _read_cells(kv, reader, stream, n_cells, seq_id)
                _read_data(kv, reader, stream, idxs)
        except CacheError as error:
            _clear(kv, stream, idxs, seq_id)
            raise CacheError(f"failed to restore kv cache: {error}") from None
    return reader.offset


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = memoryview(data)
        self.offset = 0

    def take(self, n: int, what: str) -> memoryview:
        left = len(self.data) - self.offset
        if n > left:
            raise CacheError(
                f"{what} needs {n} bytes at offset {self.offset}, but only {left} are left"
            )
        self.offset += n
        return self.data[self.offset - n : self.offset]

    def unpack(self, code: str, what: str) -> int:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code), what))[0]

    def expect(self, code: str, value: int, what: str) -> None:
        found = self.unpack(code, what)
        if found != value:
            raise CacheError(f"{what} is {found}, but this cache has {value}")


def _read_cells(kv: KVCache, reader: _Reader, stream: int, n_cells: int, seq_id: int) -> np.ndarray:
    """Read the cells' metadata and enter it; the cells taken."""
    if n_cells > kv.kv_size:
        raise CacheError(f"not enough cells: the state has {n_cells}, this cache {kv.kv_size}")
    if seq_id != -1:
        kv.seq_rm(seq_id)
    pos = np.empty(n_cells, np.int32)
    seqs: list[tuple[int, ...]] = []
    for i in range(n_cells):
        pos[i] = reader.unpack("i", f"position of cell {i}")
        if pos[i] < 0:
            raise CacheError(f"cell {i} has position {pos[i]}")
        n_seq = reader.unpack("I", f"number of sequences of cell {i}")
        if seq_id != -1 and n_seq != 1:
            raise CacheError(f"cell {i} has {n_seq} sequences, expected 1")
        ids = np.frombuffer(reader.take(4 * n_seq, f"sequences of cell {i}"), "<i4").tolist()
        bad = [x for x in ids if not 0 <= x < kv.n_seq_max]
        if bad and seq_id == -1:
            raise CacheError(
                f"cell {i} is in sequence {bad[0]}, out of range 0..{kv.n_seq_max - 1}"
            )
        seqs.append(tuple(ids) if seq_id == -1 else (seq_id,))
    tok = np.full(n_cells, -1, np.int32)  # not part of a state
    if seq_id == -1:
        idxs = np.arange(n_cells)
        kv.cells[stream].put(idxs, pos, tok, seqs)
        return idxs
    ubatch = Ubatch.reserve(n_cells, 1)
    ubatch.pos, ubatch.token = pos, tok
    ubatch.seq_id, ubatch.seq_id_unq = seqs, [seq_id]
    sinfo: SlotInfo | None = kv.find_slot(ubatch)
    if sinfo is None:
        raise CacheError(f"failed to find {n_cells} available cells")
    kv.apply_ubatch(sinfo, ubatch)
    return sinfo.idxs[0]


def _read_data(kv: KVCache, reader: _Reader, stream: int, idxs: np.ndarray) -> None:
    reader.expect("I", int(kv.v_trans), "V transposition")
    reader.expect("I", len(kv.layers), "number of layers")
    reader.expect("I", kv.rotation[0], "key rotation")
    reader.expect("I", kv.rotation[1], "value rotation")
    for layer in kv.layers:
        width = layer.k.shape[2]
        reader.expect("i", int(kv.type_k), f"key type of layer {layer.il}")
        reader.expect("Q", width * layer.k.itemsize, f"key row size of layer {layer.il}")
        layer.write_k(stream, idxs, _array(reader, layer.k.dtype, (len(idxs), width), layer))
    for layer in kv.layers:
        v, n = layer.v, layer.n_embd_v_gqa
        if v is None:
            continue
        reader.expect("i", int(kv.type_v), f"value type of layer {layer.il}")
        if kv.v_trans:
            reader.expect("I", v.itemsize, f"value element size of layer {layer.il}")
            reader.expect("I", n, f"value width of layer {layer.il}")
            layer.write_v(stream, idxs, _array(reader, v.dtype, (n, len(idxs)), layer))
        else:
            width = v.shape[2]
            reader.expect("Q", width * v.itemsize, f"value row size of layer {layer.il}")
            layer.write_v(stream, idxs, _array(reader, v.dtype, (len(idxs), width), layer))


def _array(reader: _Reader, dtype: np.dtype, shape: tuple[int, int], layer: KVLayer) -> np.ndarray:
    raw = reader.take(shape[0] * shape[1] * dtype.itemsize, f"data of layer {layer.il}")
    return np.frombuffer(raw, dtype).reshape(shape)


def _clear(kv: KVCache, stream: int, idxs: np.ndarray, seq_id: int) -> None:
    """Undo a restore that failed: nothing of it may be left, not even in free cells."""
    if seq_id == -1:
        kv.clear()
        return
    kv.seq_rm(seq_id)
    for layer in kv.layers:
        layer.zero_rows(stream, idxs)
