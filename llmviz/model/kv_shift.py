"""Moving cached keys to new positions: rotate each by its shift.

↔ src/llama-kv-cache.cpp (build_rope_shift)

A key was stored rotated by its position; turning it by the difference is the same as storing it
anew. One that was also mixed by a Hadamard matrix, as before it was quantized, is mixed back first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from llmviz.ggml.backends.cpu_matmul import hadamard
from llmviz.ggml.backends.rope import RopeTable
from llmviz.model.arch import ModelWeights
from llmviz.model.cparams import CParams
from llmviz.model.hparams import HParams
from llmviz.model.kv_tensors import KVTensors, KVTensorsISWA

__all__ = ["make_k_shift"]


def make_k_shift(
    kv: KVTensors | KVTensorsISWA, hp: HParams, c: CParams, weights: ModelWeights
) -> Callable[[int, np.ndarray], None] | None:
    """The function that `KVCache.update` calls for each layer.

    Returns
    -------
    callable or None
        None where keys carry no position (no RoPE).
        ``shift_keys(il, shift)`` with shift int32 ``[n_stream, kv_size]``: positions to turn each
        cell's keys by.
    """
    if hp.rope_type == "none":
        return None
    leaves = kv.k
    rotation = (kv.base if isinstance(kv, KVTensorsISWA) else kv).cache.rotation
    params: dict[str, Any] = {
        "n_rot": hp.n_rot,
        "n_ctx_orig": c.n_ctx_orig_yarn,
        "freq_base": c.rope_freq_base,
        "freq_scale": c.rope_freq_scale,
        "ext_factor": c.yarn_ext_factor,
        "attn_factor": c.yarn_attn_factor,
        "beta_fast": c.yarn_beta_fast,
        "beta_slow": c.yarn_beta_slow,
    }
    # YaRN's rotation also multiplies by a magnitude. llama.cpp rotates every cell at every shift,
    # so that keys which stay in place grow too: followed here, to have its numbers.
    stretches = RopeTable(np.zeros(1, np.int32), None, params).mscale != 1

    def shift_keys(il: int, shift: np.ndarray) -> None:
        if not hp.has_rope(il):
            return
        leaf = leaves[il]
        assert leaf.array is not None
        in_numpy = leaf.home is None or leaf.home.is_simulated
        values = leaf.array if in_numpy else leaf.read()
        cells = np.arange(shift.size) if stretches else np.flatnonzero(shift)
        if not len(cells):
            return
        rows = values.reshape(-1, leaf.ne[0])  # [n_stream * kv_size, n_embd_k_gqa]
        keys = rows[cells].astype(np.float32)
        width = rotation[0]
        if width:
            keys = hadamard(keys.reshape(-1, width))
        keys = keys.reshape(len(cells), hp.n_head_kv(il), -1)
        base, scale = hp.rope_freqs_of(il, c)
        factors = weights.rope_factors(il, c.n_ctx_seq > hp.n_ctx_orig_yarn)
        table = RopeTable(
            shift.reshape(-1)[cells],
            factors.read() if factors is not None else None,
            {**params, "freq_base": base, "freq_scale": scale},
        )
        table.refresh()
        turned = keys.copy()
        (table.rotate_norm if hp.rope_type == "norm" else table.rotate_neox)(keys, turned)
        if width:
            turned = hadamard(turned.reshape(-1, width))
        if leaf.stored is not None:
            leaf.stored.store(cells, turned.reshape(len(cells), -1))
            return
        rows[cells] = turned.reshape(len(cells), -1)
        if leaf.mirror is not None:
            leaf.mirror.reshape(rows.shape)[cells] = rows[cells]
        if not in_numpy:
            leaf.write(values)

    return shift_keys
