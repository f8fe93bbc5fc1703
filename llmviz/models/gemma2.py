"""Gemma 2: layers with and without a window in turn, scores and logits capped by tanh.

↔ src/models/gemma2.cpp
"""

from __future__ import annotations

from math import sqrt

from llmviz.ggml import ops
from llmviz.model.arch import Architecture, ModelWeights
from llmviz.model.graph import GraphContext
from llmviz.model.hparams import HParams
from llmviz.model.keys import Keys
from llmviz.model.tensors import TensorLoader

__all__ = ["Gemma2"]


class Gemma2(Architecture):
    """Gemma with norms before and after attention and feed-forward."""

    name = "gemma2"
    rope_type = "neox"
    partial_rotary = True
    sizes = {26: "2B", 42: "9B", 46: "27B"}

    # hyperparameters

    @staticmethod
    def load_arch_hparams(hp: HParams, keys: Keys) -> None:
        """Window and caps, all with defaults; the 27B model scales its queries differently."""
        get = keys.get
        hp.swa_type = "standard"
        hp.attn_soft_cap = True
        hp.n_swa = get("n_swa", "{arch}.attention.sliding_window", "u32", 4096)
        hp.load_swa_pattern(keys, 2)
        hp.rope_freq_base_train_swa = get(
            "rope_freq_base_train_swa",
            "{arch}.rope.freq_base_swa",
            "f32",
            hp.rope_freq_base_train,
        )
        hp.rope_freq_scale_train_swa = hp.rope_freq_scale_train
        hp.f_norm_rms_eps = keys.rms_eps()
        hp.f_attn_logit_softcapping = get(
            "f_attn_logit_softcapping", "{arch}.attn_logit_softcapping", "f32", 50.0
        )
        hp.f_final_logit_softcapping = get(
            "f_final_logit_softcapping", "{arch}.final_logit_softcapping", "f32", 30.0
        )
        head = hp.n_embd // hp.n_head() if hp.n_layer == 46 else hp.n_embd_head_k
        hp.f_attention_scale = 1.0 / sqrt(head)

    # tensors

    @staticmethod
    def load_arch_tensors(hp: HParams, weights: ModelWeights, create: TensorLoader) -> None:
        """Embedding, and per layer: four norms, attention, feed-forward."""
        t = create.create_tensor
        n_embd = hp.n_embd
        n_q = hp.n_embd_head_k * hp.n_head()
        create.create_output(hp, weights, tied=True)
        for il, layer in enumerate(weights.layers):
            b = f"blk.{il}."
            layer.attn_norm = t(b + "attn_norm.weight", n_embd)
            create.create_qkv(layer, il, n_embd, n_q, hp.n_embd_k_gqa(), hp.n_embd_v_gqa())
            layer.wo = t(b + "attn_output.weight", n_q, n_embd)
            layer.attn_post_norm = t(b + "post_attention_norm.weight", n_embd)
            layer.ffn_norm = t(b + "ffn_norm.weight", n_embd)
            create.create_ffn(layer, il, n_embd, hp.n_ff())
            layer.ffn_post_norm = t(b + "post_ffw_norm.weight", n_embd)

    # graph

    @staticmethod
    def build_graph(g: GraphContext) -> None:
        """One ubatch through all layers to the logits of the rows that are wanted."""
        hp = g.hparams
        cur = g.build_inp_embd(g.weights.tok_embd)
        cur = g.cb(ops.scale(cur, sqrt(hp.n_embd)), "inp_scaled", -1)
        inp_pos = g.build_inp_pos()
        inp_attn = g.build_attn_inp_kv_iswa()
        inp_out_ids = g.build_inp_out_ids()
        for il, layer in enumerate(g.weights.layers):
            residual = cur
            cur = g.cb(g.build_norm(cur, layer.attn_norm, None, "rms", il), "attn_norm", il)
            q, k, v = g.build_qkv_of_layer(layer, cur, il)
            q, k = g.build_rope_qk(q, k, inp_pos, il, **g.rope_of_layer(il))
            q = ops.scale(q, hp.f_attention_scale)
            cur = g.build_attn(inp_attn, layer.wo, None, q, k, v, 1.0, il)
            if il == g.n_layer - 1:
                cur = ops.get_rows(cur, inp_out_ids)
                residual = ops.get_rows(residual, inp_out_ids)
            cur = g.build_norm(cur, layer.attn_post_norm, None, "rms", il)
            g.cb(cur, "attn_post_norm", il)
            sa_out = g.cb(ops.add(cur, residual), "sa_out", il)
            cur = g.cb(g.build_norm(sa_out, layer.ffn_norm, None, "rms", il), "ffn_norm", il)
            cur = g.build_ffn(
                cur,
                (layer.ffn_up, None),
                (layer.ffn_gate, None),
                (layer.ffn_down, None),
                il,
                act="gelu",
            )
            g.cb(cur, "ffn_out", il)
            cur = g.build_norm(cur, layer.ffn_post_norm, None, "rms", -1)
            g.cb(cur, "ffn_post_norm", -1)
            cur = g.cb(ops.add(cur, sa_out), "l_out", il)
        cur = g.build_lora_mm(g.weights.output, g.build_output_norm(cur))
        g.build_logits(g.soft_capped(cur, hp.f_final_logit_softcapping))
