"""The KV cache as graph leaves: how a graph writes to it and reads from it.

↔ src/llama-kv-cache.cpp (get_k, get_v, cpy_k, cpy_v)

The cache itself (cells, slots, sequences) is `llmviz.memory.kv_cache`; this file only makes tensors
that look at its arrays.
"""

from __future__ import annotations

import numpy as np

from llmviz.errors import UnsupportedError
from llmviz.ggml import ops
from llmviz.ggml.backends.backend import Backend
from llmviz.ggml.graph import Tensor
from llmviz.ggml.stored import StoredRows
from llmviz.ggml.types import TYPES, GGMLType
from llmviz.memory.kv_cache import KVCache
from llmviz.memory.kv_cache_iswa import KVCacheISWA
from llmviz.memory.slots import SlotInfo
from llmviz.model.hparams import HParams

__all__ = ["KVTensors", "KVTensorsISWA"]


class KVTensors:
    """K and V of every layer as leaves ``cache_k_l<il>`` ``[n_embd_gqa, kv_size, n_stream]``.

    A float16 cache gets a float32 mirror, so that attention need not widen all of it for every
    token; one of another type is float32 to the graph, with its blocks behind (`StoredRows`). The
    cache stays the truth, `refresh` copies it where something else than the graph wrote to it.

    Parameters
    ----------
    cache : KVCache
    hparams : HParams
    """

    def __init__(self, cache: KVCache, hparams: HParams) -> None:
        self.cache = cache
        self.hparams = hparams
        self.k: dict[int, Tensor] = {}
        self.v: dict[int, Tensor] = {}
        for layer in cache.layers:
            il = layer.il
            self.k[il] = self._leaf(
                f"cache_k_l{il}", cache.type_k, layer.k, layer.home, transposed=False
            )
            if layer.v is not None:
                self.v[il] = self._leaf(
                    f"cache_v_l{il}", cache.type_v, layer.v, layer.home, transposed=cache.v_trans
                )
        self._version = cache.data_version
        self._used = 0

    def _leaf(
        self,
        name: str,
        type_: GGMLType,
        array: np.ndarray,
        home: Backend | None,
        transposed: bool,
    ) -> Tensor:
        n_stream, rows, columns = array.shape
        columns *= TYPES[type_].block_size
        n_embd, kv_size = (rows, columns) if transposed else (columns, rows)
        ne = (n_embd, kv_size, n_stream)
        in_numpy = home is None or home.is_simulated
        if type_ in (GGMLType.F32, GGMLType.F16):
            leaf = Tensor(type_, ne, name=name).adopt(array)
            leaf.home = home
            if type_ != GGMLType.F32 and in_numpy:
                leaf.mirror = np.zeros(array.size, np.float32)
            return leaf
        if not in_numpy:
            assert home is not None
            raise UnsupportedError(
                f"KV cache type on {home.name}", TYPES[type_].name.lower(), supported=["f32", "f16"]
            )
        values = np.zeros((n_stream, rows, columns), np.float32)
        leaf = Tensor(GGMLType.F32, ne, name=name).adopt(values)
        leaf.home = home
        leaf.stored = StoredRows(type_, array, values)
        return leaf

    def refresh(self) -> None:
        """Bring the mirrors up to date where the cache's data was changed outside the graph."""
        # cells above the highest that was ever used still hold zeros on both sides
        self._used = used = max(self._used, *(c.used_max_p1 for c in self.cache.cells))
        if self._version == self.cache.data_version:
            return
        for leaves, transposed in ((self.k, False), (self.v, self.cache.v_trans)):
            for il, leaf in leaves.items():
                window = (..., slice(used)) if transposed else (slice(None), slice(used))
                if leaf.stored is not None:
                    leaf.stored.refresh(window)
                if leaf.mirror is None:
                    continue
                layer = self.cache.layer(il)
                source = layer.v if leaves is self.v else layer.k
                assert source is not None
                mirror = leaf.mirror.reshape(source.shape)
                mirror[window] = source[window]
        self._version = self.cache.data_version

    def get_k(self, n_kv: int, sinfo: SlotInfo, il: int) -> Tensor:
        """The first `n_kv` cells' keys: ``[n_embd_head, n_head_kv, n_kv, n_stream]``."""
        k = self.k[il]
        head, n_head = self.hparams.n_embd_head_k, self.hparams.n_head_kv(il)
        size = ops.row_stride(k, 1)
        row = size * k.ne[0]
        stream = row * k.ne[1]
        return _window(
            k, (head, n_head, n_kv, sinfo.s1 - sinfo.s0 + 1), (size * head, row, stream), sinfo.s0
        )

    def get_v(self, n_kv: int, sinfo: SlotInfo, il: int) -> Tensor:
        """The first `n_kv` cells' values.

        ``[n_embd_head, n_head_kv, n_kv, n_stream]``, or ``[n_kv, n_head_kv, n_embd_head,
        n_stream]`` where
        the cache is transposed.
        """
        v = self.v[il]
        head, n_head = self.hparams.n_embd_head_v, self.hparams.n_head_kv(il)
        size = ops.row_stride(v, 1)
        ns = sinfo.s1 - sinfo.s0 + 1
        stream = size * v.ne[0] * v.ne[1]
        if not self.cache.v_trans:
            row = size * v.ne[0]
            return _window(v, (head, n_head, n_kv, ns), (size * head, row, stream), sinfo.s0)
        row = size * v.ne[1]
        return _window(v, (n_kv, n_head, head, ns), (row * head, row, stream), sinfo.s0)

    def cpy_k(self, k_cur: Tensor, k_idxs: Tensor, il: int) -> Tensor:
        """Write k_cur ``[n_embd_head, n_head_kv, n_tokens]`` into the cells `k_idxs`."""
        k = self.k[il]
        n_embd = k_cur.ne[0] * k_cur.ne[1]
        k_cur = ops.view(k_cur, (n_embd, k_cur.ne[2]), (k_cur.nb[2],))
        return ops.set_rows(_merge_streams(k), k_cur, k_idxs)

    def cpy_v(self, v_cur: Tensor, v_idxs: Tensor, il: int) -> Tensor:
        """Write v_cur ``[n_embd_head, n_head_kv, n_tokens]`` at `v_idxs`; one value each where
        transposed.
        """
        v = self.v[il]
        n_embd, n_tokens = v_cur.ne[0] * v_cur.ne[1], v_cur.ne[2]
        if not self.cache.v_trans:
            v_cur = ops.view(v_cur, (n_embd, n_tokens), (v_cur.nb[2],))
            return ops.set_rows(_merge_streams(v), v_cur, v_idxs)
        contiguous = ops.row_stride(v_cur, n_embd) == v_cur.nb[2]
        v_cur = (ops.reshape if contiguous else ops.cont)(v_cur, n_embd, n_tokens)
        if n_embd < v.ne[0]:  # another layer's V is wider
            v_cur = ops.pad(v_cur, v.ne[0] - n_embd)
        v_all = ops.reshape(v, 1, v.nelements)
        v_cur = ops.reshape(v_cur, 1, v_cur.nelements)
        return ops.set_rows(v_all, v_cur, v_idxs)


class KVTensorsISWA:
    """The tensors of both caches of a `KVCacheISWA`.

    Attributes
    ----------
    base, swa : KVTensors
    """

    def __init__(self, cache: KVCacheISWA, hparams: HParams) -> None:
        self.base = KVTensors(cache.base, hparams)
        self.swa = KVTensors(cache.swa, hparams)

    @property
    def k(self) -> dict[int, Tensor]:
        """The keys of all layers."""
        return {**self.base.k, **self.swa.k}

    def refresh(self) -> None:
        """Bring the mirrors up to date; see `KVTensors.refresh`."""
        self.base.refresh()
        self.swa.refresh()


def _merge_streams(cache: Tensor) -> Tensor:
    """All streams as one block of rows, where there are several: the indices count through them."""
    if cache.ne[2] > 1:
        return ops.reshape(cache, cache.ne[0], cache.ne[1] * cache.ne[2])
    return cache


def _window(
    cache: Tensor, ne: tuple[int, int, int, int], nb: tuple[int, int, int], s0: int
) -> Tensor:
    if ne[3] == 1:  # one stream: three dimensions are enough
        return ops.view(cache, ne[:3], nb[:2], offset=nb[2] * s0)
    return ops.view(cache, ne, nb, offset=nb[2] * s0)
