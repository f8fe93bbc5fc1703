"""gpt-oss: attention sinks, windows in every other layer, biased experts.

↔ src/models/openai-moe.cpp
"""

from __future__ import annotations

from math import sqrt

from llmviz.ggml import ops
from llmviz.model.arch import Architecture, ModelWeights
from llmviz.model.graph import GraphContext
from llmviz.model.hparams import HParams
from llmviz.model.hparams_check import refuse_without_experts
from llmviz.model.keys import Keys
from llmviz.model.tensors import TensorLoader

__all__ = ["GptOss"]


class GptOss(Architecture):
    """Pre-norm mixture of experts whose gates are clamped; heads may look at nothing (the sink)."""

    name = "gpt-oss"
    rope_type = "neox"
    sizes = {24: "20B", 36: "120B"}

    # hyperparameters

    @staticmethod
    def load_arch_hparams(hp: HParams, keys: Keys) -> None:
        """RMS epsilon, the experts' width, the window."""
        refuse_without_experts(hp, keys)
        hp.f_norm_rms_eps = keys.rms_eps()
        key = "{arch}.expert_feed_forward_length"
        keys.require(key)
        hp.n_ff_exp_arr = keys.get_or_arr("n_ff_exp_arr", key, hp.n_layer_all)
        hp.swa_type = "standard"
        hp.n_swa = keys.get("n_swa", "{arch}.attention.sliding_window", "u32")
        hp.load_swa_pattern(keys, 2)
        hp.rope_freq_base_train_swa = keys.get(
            "rope_freq_base_train_swa",
            "{arch}.rope.freq_base_swa",
            "f32",
            hp.rope_freq_base_train,
        )
        hp.rope_freq_scale_train_swa = hp.rope_freq_scale_train

    # tensors

    @staticmethod
    def load_arch_tensors(hp: HParams, weights: ModelWeights, create: TensorLoader) -> None:
        """Experts and their biases, a sink per head."""
        t = create.create_tensor
        n_embd, n_ff, n_expert = hp.n_embd, hp.n_ff_exp(), hp.n_expert
        n_q, n_kv = hp.n_head() * hp.n_rot, hp.n_head_kv() * hp.n_rot
        create.create_output(hp, weights, tied=False)
        for il, layer in enumerate(weights.layers):
            b = f"blk.{il}."
            layer.attn_norm = t(b + "attn_norm.weight", n_embd)
            layer.attn_post_norm = t(b + "post_attention_norm.weight", n_embd)
            create.create_qkv(layer, il, n_embd, n_q, n_kv, n_kv)
            layer.wo = t(b + "attn_output.weight", n_q, n_embd)
            layer.wo_b = t(b + "attn_output.bias", n_embd)
            layer.attn_sinks = t(b + "attn_sinks.weight", hp.n_head())
            create.create_experts(layer, il, n_embd, n_ff, n_expert)
            layer.ffn_gate_inp_b = t(b + "ffn_gate_inp.bias", n_expert)
            layer.ffn_gate_exps_b = t(b + "ffn_gate_exps.bias", n_ff, n_expert)
            layer.ffn_down_exps_b = t(b + "ffn_down_exps.bias", n_embd, n_expert)
            layer.ffn_up_exps_b = t(b + "ffn_up_exps.bias", n_ff, n_expert)

    # graph

    @staticmethod
    def build_graph(g: GraphContext) -> None:
        """One ubatch through all layers to the logits of the rows that are wanted."""
        kq_scale = 1.0 / sqrt(g.n_rot)
        cur = g.build_inp_embd(g.weights.tok_embd)
        inp_pos = g.build_inp_pos()
        inp_attn = g.build_attn_inp_kv_iswa()
        inp_out_ids = g.build_inp_out_ids()
        for il, layer in enumerate(g.weights.layers):
            residual = cur
            cur = g.cb(g.build_norm(cur, layer.attn_norm, None, "rms", il), "attn_norm", il)
            q, k, v = g.build_qkv_of_layer(layer, cur, il)
            q, k = g.build_rope_qk(q, k, inp_pos, il, **g.rope_of_layer(il))
            cur = g.build_attn(
                inp_attn, layer.wo, layer.wo_b, q, k, v, kq_scale, il, sinks=layer.attn_sinks
            )
            g.cb(cur, "attn_out", il)
            if il == g.n_layer - 1:
                cur = ops.get_rows(cur, inp_out_ids)
                residual = ops.get_rows(residual, inp_out_ids)
            ffn_inp = g.cb(ops.add(cur, residual), "ffn_inp", il)
            cur = g.build_norm(ffn_inp, layer.attn_post_norm, None, "rms", il)
            g.cb(cur, "attn_post_norm", il)
            cur = g.build_moe_ffn(
                cur,
                (layer.ffn_gate_inp, layer.ffn_gate_inp_b),
                (layer.ffn_up_exps, layer.ffn_up_exps_b),
                (layer.ffn_gate_exps, layer.ffn_gate_exps_b),
                (layer.ffn_down_exps, layer.ffn_down_exps_b),
                il,
                act="swiglu_oai",
                norm_w=False,
                gating="softmax_weight",
            )
            cur = g.cb(ops.add(cur, ffn_inp), "l_out", il)
        g.build_output(cur)
