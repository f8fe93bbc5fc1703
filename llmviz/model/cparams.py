"""A context's settled parameters: what the graph builder reads. ↔ src/llama-cparams.h"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CParams"]


@dataclass
class CParams:
    """Values after defaults, clamps and padding; `llmviz.context.ContextParams` is what the user
    asked for.
    """

    n_ctx: int = 0
    n_ctx_seq: int = 0
    n_batch: int = 0
    n_ubatch: int = 0
    n_seq_max: int = 1
    n_outputs_max: int = 0
    n_threads: int = 0
    n_threads_batch: int = 0
    rope_freq_base: float = 0.0
    rope_freq_scale: float = 0.0
    rope_scaling_type: str = "none"
    n_ctx_orig_yarn: int = 0
    yarn_ext_factor: float = 0.0
    yarn_attn_factor: float = 1.0
    yarn_beta_fast: float = 32.0
    yarn_beta_slow: float = 1.0
    causal_attn: bool = True
    embeddings: bool = False
    flash_attn: bool = False
    kv_unified: bool = False
    offload_kqv: bool = True
    op_offload: bool = True
    type_k: str = "f16"
    type_v: str = "f16"
