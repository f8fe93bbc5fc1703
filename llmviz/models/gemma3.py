"""Gemma 3: five layers with a window to one without, each kind with its own rotary frequencies.

↔ src/models/gemma3.cpp
"""

from __future__ import annotations

from math import sqrt

from llmviz.ggml import ops
from llmviz.model.arch import Architecture, ModelWeights
from llmviz.model.graph import GraphContext
from llmviz.model.hparams import HParams
from llmviz.model.keys import Keys
from llmviz.model.tensors import TensorLoader

__all__ = ["Gemma3"]


class Gemma3(Architecture):
    """Gemma 2 with normalized queries and keys instead of capped scores."""

    name = "gemma3"
    rope_type = "neox"
    embedding_node = "inp_scaled"
    partial_rotary = True
    sizes = {18: "270M", 26: "1B", 32: "8B", 34: "4B", 48: "12B", 62: "27B"}

    # hyperparameters

    @staticmethod
    def load_arch_hparams(hp: HParams, keys: Keys) -> None:
        """Window, where the file has one; the 27B model scales its queries differently."""
        get = keys.get
        hp.n_swa = get("n_swa", "{arch}.attention.sliding_window", "u32", 0)
        if hp.n_swa > 0:
            hp.swa_type = "standard"
            hp.load_swa_pattern(keys, 6)
            hp.rope_freq_base_train_swa = get(
                "rope_freq_base_train_swa", "{arch}.rope.freq_base_swa", "f32", 10000.0
            )
        hp.f_final_logit_softcapping = get(
            "f_final_logit_softcapping", "{arch}.final_logit_softcapping", "f32", 0.0
        )
        hp.f_norm_rms_eps = keys.rms_eps()
        head = hp.n_embd // hp.n_head() if hp.n_layer == 62 else hp.n_embd_head_k
        hp.f_attention_scale = 1.0 / sqrt(head)

    # tensors

    @staticmethod
    def load_arch_tensors(hp: HParams, weights: ModelWeights, create: TensorLoader) -> None:
        """Embedding, and per layer: six norms, attention, feed-forward."""
        t = create.create_tensor
        n_embd = hp.n_embd
        n_q = hp.n_embd_head_k * hp.n_head()
        create.create_output(hp, weights)
        for il, layer in enumerate(weights.layers):
            b = f"blk.{il}."
            layer.attn_norm = t(b + "attn_norm.weight", n_embd)
            create.create_qkv(layer, il, n_embd, n_q, hp.n_embd_k_gqa(), hp.n_embd_v_gqa())
            layer.wo = t(b + "attn_output.weight", n_q, n_embd)
            layer.attn_post_norm = t(b + "post_attention_norm.weight", n_embd)
            layer.attn_k_norm = t(b + "attn_k_norm.weight", hp.n_embd_head_k)
            layer.attn_q_norm = t(b + "attn_q_norm.weight", hp.n_embd_head_k)
            layer.ffn_norm = t(b + "ffn_norm.weight", n_embd)
            create.create_ffn(layer, il, n_embd, hp.n_ff())
            layer.ffn_post_norm = t(b + "post_ffw_norm.weight", n_embd)

    # graph

    @staticmethod
    def build_graph(g: GraphContext) -> None:
        """One ubatch through all layers to the logits of the rows that are wanted."""
        hp = g.hparams
        cur = g.build_inp_embd_scaled(g.weights.tok_embd, sqrt(hp.n_embd))
        inp_pos = g.build_inp_pos()
        inp_attn = g.build_attn_inp()
        inp_out_ids = g.build_inp_out_ids()
        for il, layer in enumerate(g.weights.layers):
            residual = cur
            cur = g.cb(g.build_norm(cur, layer.attn_norm, None, "rms", il), "attn_norm", il)
            q, k, v = g.build_qkv_of_layer(layer, cur, il)
            q = g.cb(g.build_norm(q, layer.attn_q_norm, None, "rms", il), "Qcur_normed", il)
            k = g.cb(g.build_norm(k, layer.attn_k_norm, None, "rms", il), "Kcur_normed", il)
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
            g.cb(cur, "ffn_post_norm", il)
            cur = g.cb(ops.add(cur, sa_out), "l_out", il)
        cur = g.build_lora_mm(g.weights.output, g.build_output_norm(cur))
        if hp.f_final_logit_softcapping:
            cur = g.soft_capped(cur, hp.f_final_logit_softcapping)
        g.build_logits(cur)
