"""Which memory a model needs, by its hyperparameters. ↔ src/llama-model.cpp (create_memory)"""

from __future__ import annotations

from typing import Any

from llmviz.ggml.types import TYPES
from llmviz.memory.kv_cache import KVCache
from llmviz.memory.kv_cache_iswa import KVCacheISWA
from llmviz.memory.kv_layers import KV_TYPES
from llmviz.model.cparams import CParams
from llmviz.model.hparams import HParams
from llmviz.model.kv_tensors import KVTensors, KVTensorsISWA

__all__ = ["KV_TYPES", "create_memory", "kv_tensors", "rotation"]


def rotation(hp: HParams, c: CParams) -> tuple[int, int]:
    """Width of the Hadamard rotation of K and of V, 0 for none.

    Values that are mixed before they are quantized lose less: no single one decides the scale of
    its block. llama.cpp does so where the type is quantized and heads are multiples of 64 wide.
    """
    k = v = 0
    if TYPES[KV_TYPES[c.type_k]].block_size > 1 and hp.n_embd_head_k % 64 == 0:
        k = 64
        while hp.n_embd_head_k % (2 * k) == 0:
            k *= 2
    if TYPES[KV_TYPES[c.type_v]].block_size > 1 and hp.n_embd_head_v % 64 == 0:
        v = 64
    return k, v


def create_memory(hp: HParams, c: CParams, *, swa_full: bool = False) -> KVCache | KVCacheISWA:
    """A KV cache for the layers that have attention; two where some of them have a window.

    Parameters
    ----------
    c : CParams
        Its `n_ctx_seq`, `n_seq_max`, `n_ubatch`, `kv_unified` and types decide the sizes.
    swa_full : bool
        Make the windows' cache as long as the other.
    """
    layers = [
        (il, hp.n_embd_k_gqa(il), hp.n_embd_v_gqa(il))
        for il in range(hp.n_layer)
        if hp.n_head(il) and hp.n_head_kv(il)
    ]
    params: dict[str, Any] = {
        "layers": layers,
        "kv_size": c.n_ctx_seq,
        "n_seq_max": c.n_seq_max,
        "unified": c.kv_unified or c.n_seq_max == 1,
        "type_k": KV_TYPES[c.type_k],
        "type_v": KV_TYPES[c.type_v],
        "v_trans": not c.flash_attn,
        "use_alibi": hp.use_alibi,
        "can_shift": hp.n_pos_per_embd == 1,
        "n_embd_v_gqa_max": hp.n_embd_v_gqa_max(),
        "rotation": rotation(hp, c),
    }
    if hp.swa_type == "none":
        return KVCache(**params)
    return KVCacheISWA(
        is_swa=[hp.is_swa(il) for il, _, _ in layers],
        n_swa=hp.n_swa,
        swa_type=hp.swa_type,
        n_ubatch=c.n_ubatch,
        swa_full=swa_full,
        **params,
    )


def kv_tensors(memory: KVCache | KVCacheISWA, hp: HParams) -> KVTensors | KVTensorsISWA:
    """The memory as graph leaves."""
    if isinstance(memory, KVCacheISWA):
        return KVTensorsISWA(memory, hp)
    return KVTensors(memory, hp)
