"""Granite 3: llama with four multipliers, of embeddings, scores, residuals and logits.

↔ src/models/granite.cpp
"""

from __future__ import annotations

import numpy as np

from llmviz.ggml import ops
from llmviz.ggml.graph import Tensor
from llmviz.model.arch import Architecture, Layer, ModelWeights
from llmviz.model.graph import GraphContext
from llmviz.model.hparams import HParams
from llmviz.model.hparams_check import refuse
from llmviz.model.keys import Keys
from llmviz.model.tensors import TensorLoader

__all__ = ["Granite"]


class Granite(Architecture):
    """Pre-norm transformer, dense or a mixture of experts with a shared one."""

    name = "granite"
    rope_type = "norm"
    sizes = {32: "3B", 64: "30B"}

    # hyperparameters

    @staticmethod
    def load_arch_hparams(hp: HParams, keys: Keys) -> None:
        """Epsilon and multipliers; ``rope.scaling.finetuned`` false switches rotation off."""
        get = keys.get
        hp.f_norm_rms_eps = keys.rms_eps()
        hp.f_logit_scale = get("f_logit_scale", "{arch}.logit_scale", "f32")
        if hp.f_logit_scale == 0:
            refuse(keys, "{arch}.logit_scale", "0; the logits are divided by it")
        hp.f_residual_scale = get("f_residual_scale", "{arch}.residual_scale", "f32", 0.0)
        hp.f_embedding_scale = get("f_embedding_scale", "{arch}.embedding_scale", "f32", 0.0)
        hp.f_attention_scale = get("f_attention_scale", "{arch}.attention.scale", "f32", 0.0)
        hp.rope_finetuned = get("rope_finetuned", "{arch}.rope.scaling.finetuned", "bool", True)
        hp.rope_pattern = np.full(hp.n_layer_all, int(hp.rope_finetuned))
        hp.n_ff_shexp = get("n_ff_shexp", "{arch}.expert_shared_feed_forward_length", "u32", 0)

    @classmethod
    def size_name(cls, hp: HParams) -> str:
        """Name by depth and width."""
        if hp.n_layer == 40:
            return {2048: "2B", 2560: "3B", 4096: "8B"}.get(hp.n_embd, "?B")
        return super().size_name(hp)

    # tensors

    @staticmethod
    def load_arch_tensors(hp: HParams, weights: ModelWeights, create: TensorLoader) -> None:
        """As llama, and the shared expert where there is one."""
        t = create.create_tensor
        n_embd, n_ff = hp.n_embd, hp.n_ff()
        n_q = hp.n_embd_head_k * hp.n_head()
        create.create_output(hp, weights)
        for il, layer in enumerate(weights.layers):
            b = f"blk.{il}."
            layer.attn_norm = t(b + "attn_norm.weight", n_embd)
            create.create_qkv(layer, il, n_embd, n_q, hp.n_embd_k_gqa(), hp.n_embd_v_gqa())
            layer.wo = t(b + "attn_output.weight", n_q, n_embd)
            layer.wo_b = t(b + "attn_output.bias", n_embd, required=False)
            layer.ffn_norm = t(b + "ffn_norm.weight", n_embd)
            create.create_rope_factors(layer, hp)
            if hp.n_expert == 0:
                create.create_ffn(layer, il, n_embd, n_ff, biases=True)
                continue
            create.create_experts(layer, il, n_embd, n_ff, hp.n_expert, gate=False)
            if hp.n_ff_shexp > 0:
                create.create_shared_expert(layer, il, n_embd, hp.n_ff_shexp)

    # graph

    @staticmethod
    def build_graph(g: GraphContext) -> None:
        """One ubatch through all layers to the logits of the rows that are wanted."""
        hp = g.hparams
        cur = g.build_inp_embd(g.weights.tok_embd)
        inp_pos = g.build_inp_pos() if hp.has_rope(0) else None
        inp_attn = g.build_attn_inp_kv()
        inp_out_ids = g.build_inp_out_ids()
        for il, layer in enumerate(g.weights.layers):
            residual = cur
            cur = g.cb(g.build_norm(cur, layer.attn_norm, None, "rms", il), "attn_norm", il)
            q, k, v = g.build_qkv_of_layer(layer, cur, il)
            if inp_pos is not None:
                q, k = g.build_rope_qk(q, k, inp_pos, il, g.rope_factors(il))
            cur = g.build_attn(inp_attn, layer.wo, layer.wo_b, q, k, v, g.kq_scale(), il)
            g.cb(cur, "attn_out", il)
            if il == g.n_layer - 1:
                cur = ops.get_rows(cur, inp_out_ids)
                residual = ops.get_rows(residual, inp_out_ids)
            if hp.f_residual_scale:
                cur = ops.scale(cur, hp.f_residual_scale)
            ffn_inp = g.cb(ops.add(cur, residual), "ffn_inp", il)
            cur = g.cb(g.build_norm(ffn_inp, layer.ffn_norm, None, "rms", il), "ffn_norm", il)
            cur = feed_forward(g, layer, cur, il)
            if hp.f_residual_scale:
                cur = ops.scale(cur, hp.f_residual_scale)
            cur = g.cb(ops.add(cur, ffn_inp), "l_out", il)
        cur = g.build_lora_mm(g.weights.output, g.build_output_norm(cur))
        g.build_logits(ops.scale(cur, 1.0 / hp.f_logit_scale))


def feed_forward(g: GraphContext, layer: Layer, cur: Tensor, il: int) -> Tensor:
    """One network, or experts and the one that they share."""
    if layer.ffn_gate_inp is None:
        out = g.build_ffn(
            cur,
            (layer.ffn_up, layer.ffn_up_b),
            (layer.ffn_gate, layer.ffn_gate_b),
            (layer.ffn_down, layer.ffn_down_b),
            il,
        )
        return g.cb(out, "ffn_out", il)
    moe_out = g.build_moe_ffn(
        cur,
        (layer.ffn_gate_inp, None),
        (layer.ffn_up_exps, None),
        (layer.ffn_gate_exps, None),
        (layer.ffn_down_exps, None),
        il,
        norm_w=True,
    )
    if g.hparams.n_ff_shexp == 0:
        return moe_out
    shared = g.build_ffn(
        cur,
        (layer.ffn_up_shexp, None),
        (layer.ffn_gate_shexp, None),
        (layer.ffn_down_shexp, None),
        il,
    )
    return g.cb(ops.add(moe_out, g.cb(shared, "ffn_shexp", il)), "ffn_out", il)
