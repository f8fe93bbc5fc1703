"""What a context is asked for, and how it is settled: defaults, clamps, padding.

↔ include/llama.h (llama_context_params), src/llama-context.cpp
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from llmviz.batch import LLAMA_MAX_SEQ
from llmviz.errors import LlmvizError, UnsupportedError
from llmviz.ggml.types import TYPES
from llmviz.memory.kv_layers import KV_TYPES
from llmviz.model.cparams import CParams
from llmviz.model.hparams import ROPE_SCALING_TYPES, HParams

__all__ = ["ContextParams", "resolve"]


@dataclass
class ContextParams:
    """Parameters of a context, named and defaulted as in llama_context_params.

    Attributes
    ----------
    n_ctx : int
        Cells of the cache; 0 = the model's training length. Padded to a multiple of 256.
    n_batch, n_ubatch : int
        Most tokens in a batch, most computed at once; at most n_ctx and n_batch.
    n_seq_max : int
        Sequences that can be told apart.
    n_outputs_max : int
        Most rows of logits in a batch; 0 = n_batch.
    n_threads, n_threads_batch : int or None
        Recorded; numpy's BLAS chooses its own threads.
    rope_scaling_type : str or None
        ``"none"``, ``"linear"``, ``"yarn"``, ``"longrope"``; None = the model's.
    rope_freq_base, rope_freq_scale : float
        0 = the model's.
    yarn_ext_factor, yarn_attn_factor, yarn_beta_fast, yarn_beta_slow : float
        Negative = the model's.
    yarn_orig_ctx : int
        0 = the model's.
    attention_type : str or None
        ``"causal"`` or ``"non-causal"``; None = the model's.
    flash_attn_type : str
        ``"auto"`` or ``"disabled"``: attention is computed node by node, so that it can be seen.
        A quantized V needs ``"auto"``: it is kept by rows, as with flash attention.
    type_k, type_v : str
        ``"f32"``, ``"f16"``, ``"bf16"``, ``"q8_0"``, ``"q4_0"``, ``"q4_1"``, ``"iq4_nl"``,
        ``"q5_0"`` or ``"q5_1"``.
    abort_callback : callable or None
        Asked before every node; true ends decode with `DecodeStatus.ABORTED`.
    embeddings : bool
        Keep the final hidden state of every token.
    swa_full : bool
        For models with sliding windows: keep all cells of those layers, not only a window of them.
    kv_unified : bool
        One buffer for all sequences instead of one each.
    offload_kqv : bool
        Keep a layer's K and V on the layer's device; False: on the host, and compute there what
        reads them.
    op_offload : bool
        Copy weights that are on the host to a device for a large batch, and compute it there.
    """

    n_ctx: int = 0
    n_batch: int = 2048
    n_ubatch: int = 512
    n_seq_max: int = 1
    n_outputs_max: int = 0
    n_threads: int | None = None
    n_threads_batch: int | None = None
    rope_scaling_type: str | None = None
    rope_freq_base: float = 0.0
    rope_freq_scale: float = 0.0
    yarn_ext_factor: float = -1.0
    yarn_attn_factor: float = -1.0
    yarn_beta_fast: float = -1.0
    yarn_beta_slow: float = -1.0
    yarn_orig_ctx: int = 0
    attention_type: str | None = None
    flash_attn_type: str = "auto"
    type_k: str = "f16"
    type_v: str = "f16"
    abort_callback: Callable[[], bool] | None = None
    embeddings: bool = False
    swa_full: bool = False
    kv_unified: bool = False
    offload_kqv: bool = True
    op_offload: bool = True

    @classmethod
    def from_kwargs(cls, params: dict[str, Any]) -> ContextParams:
        """Refuse names that do not exist and values of the wrong type, naming them."""
        known = {f.name: f for f in fields(cls)}
        for name, value in params.items():
            if name not in known:
                raise LlmvizError(f"unknown context parameter {name!r}; known: {', '.join(known)}")
            default = known[name].default
            wanted = type(default)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            ok = (
                value is None or callable(value) or isinstance(value, (int, str))
                if default is None
                else number
                if wanted is float
                else number and value == int(value)
                if wanted is int
                else isinstance(value, wanted)
            )
            if not ok:
                raise LlmvizError(
                    f"context parameter {name} = {value!r}: expected {wanted.__name__}"
                )
            if wanted is int and value < 0:
                raise LlmvizError(f"context parameter {name} = {value}: must not be negative")
            if wanted is float and not math.isfinite(value):
                raise LlmvizError(f"context parameter {name} = {value}: must be finite")
        return cls(**params)


def _pad(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def resolve(p: ContextParams, hp: HParams) -> CParams:
    """Settle the parameters against a model.

    Raises
    ------
    LlmvizError
        A value that llama.cpp refuses (n_batch and n_ubatch both zero, too many sequences ...).
    """
    _check(p, hp)
    c = CParams()
    c.n_seq_max = max(1, p.n_seq_max)
    c.n_threads = p.n_threads or os.cpu_count() or 1
    c.n_threads_batch = p.n_threads_batch or c.n_threads
    c.embeddings = p.embeddings
    c.kv_unified = p.kv_unified
    c.offload_kqv = p.offload_kqv
    c.op_offload = p.op_offload
    c.type_k, c.type_v = p.type_k, p.type_v
    c.flash_attn = _block_size(p.type_v) > 1  # only for how V is laid out
    c.causal_attn = hp.causal_attn if p.attention_type is None else p.attention_type == "causal"

    n_ctx = p.n_ctx or hp.n_ctx_train
    c.n_batch = min(n_ctx, p.n_batch) if c.causal_attn else p.n_batch
    c.n_ubatch = min(c.n_batch, p.n_ubatch or p.n_batch)
    if c.n_batch == 0:  # n_batch 0 with n_ubatch set: nothing could ever be decoded
        raise LlmvizError(f"n_batch is 0 while n_ubatch is {p.n_ubatch}: give n_batch >= 1")
    c.n_outputs_max = p.n_outputs_max or c.n_batch
    c.n_ctx = _pad(n_ctx, 256)
    c.n_ctx_seq = c.n_ctx if c.kv_unified else _pad(c.n_ctx // c.n_seq_max, 256)
    if not c.kv_unified:
        c.n_ctx = c.n_ctx_seq * c.n_seq_max

    _resolve_rope(c, p, hp)
    return c


def _resolve_rope(c: CParams, p: ContextParams, hp: HParams) -> None:
    def given(value: float, default: float) -> float:
        return value if value >= 0 else default

    c.rope_freq_base = p.rope_freq_base or hp.rope_freq_base_train
    c.rope_freq_scale = p.rope_freq_scale or hp.rope_freq_scale_train
    c.n_ctx_orig_yarn = p.yarn_orig_ctx or hp.n_ctx_orig_yarn or hp.n_ctx_train
    c.rope_scaling_type = p.rope_scaling_type or hp.rope_scaling_type_train
    if c.rope_scaling_type == "none":
        c.rope_freq_scale = 1.0
    c.yarn_ext_factor = given(p.yarn_ext_factor, hp.yarn_ext_factor)
    c.yarn_attn_factor = given(p.yarn_attn_factor, hp.yarn_attn_factor)
    c.yarn_beta_fast = given(p.yarn_beta_fast, hp.yarn_beta_fast)
    c.yarn_beta_slow = given(p.yarn_beta_slow, hp.yarn_beta_slow)
    if c.yarn_ext_factor < 0:
        c.yarn_ext_factor = 1.0 if c.rope_scaling_type == "yarn" else 0.0
    if c.yarn_ext_factor != 0:
        factor = 1.0 / c.rope_freq_scale
        c.yarn_attn_factor = _mscale(factor, 1.0)
        if hp.rope_yarn_log_mul:
            c.yarn_attn_factor /= _mscale(factor, hp.rope_yarn_log_mul)
        # the rotation multiplies this in again, so it is taken out here
        c.yarn_attn_factor *= 1.0 / (1.0 + 0.1 * math.log(factor))
    c.yarn_attn_factor *= hp.rope_attn_factor


def _mscale(factor: float, mscale: float) -> float:
    """How much longer YaRN makes queries and keys."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def _block_size(kind: str) -> int:
    return TYPES[KV_TYPES[kind]].block_size


def _check_blocks(p: ContextParams, hp: HParams) -> None:
    """What llama_init_from_model asks of quantized caches."""
    if _block_size(p.type_v) > 1 and p.flash_attn_type == "disabled":
        raise LlmvizError(
            f"type_v = {p.type_v!r}: a quantized V cache requires flash_attn to be enabled; leave "
            'flash_attn_type at "auto"'
        )
    sides = (("K", p.type_k, hp.n_embd_head_k), ("V", p.type_v, hp.n_embd_head_v))
    for what, kind, width in sides:
        if width % _block_size(kind):
            raise LlmvizError(
                f"{what} cache type {kind} with block size {_block_size(kind)} does not divide "
                f"n_embd_head_{what.lower()} = {width}: use f16 or bf16"
            )


def _check(p: ContextParams, hp: HParams) -> None:
    if p.n_batch == 0 and p.n_ubatch == 0:
        raise LlmvizError("n_batch and n_ubatch cannot both be zero")
    if p.n_ctx == 0 and hp.n_ctx_train == 0:
        raise LlmvizError("n_ctx and the model's n_ctx_train cannot both be zero: give n_ctx")
    if p.n_seq_max > LLAMA_MAX_SEQ:
        raise LlmvizError(f"n_seq_max = {p.n_seq_max} must be <= {LLAMA_MAX_SEQ}")
    for name, kind in (("type_k", p.type_k), ("type_v", p.type_v)):
        if kind not in KV_TYPES:
            raise UnsupportedError(f"KV cache type ({name})", kind, supported=list(KV_TYPES))
    if p.flash_attn_type not in ("auto", "disabled"):
        raise UnsupportedError("flash_attn_type", p.flash_attn_type, supported=["auto", "disabled"])
    _check_blocks(p, hp)
    if p.attention_type not in (None, "causal", "non-causal"):
        raise UnsupportedError(
            "attention_type", str(p.attention_type), supported=["causal", "non-causal"]
        )
    if p.rope_scaling_type not in (None, *ROPE_SCALING_TYPES):
        raise UnsupportedError(
            "rope_scaling_type", str(p.rope_scaling_type), supported=ROPE_SCALING_TYPES
        )
