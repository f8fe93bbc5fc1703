"""Ministral 3 and later Mistrals: llama with queries that grow far into the text.

↔ src/models/mistral3.cpp
"""

from __future__ import annotations

from llmviz.ggml import ops
from llmviz.ggml.graph import Tensor
from llmviz.model.arch import Architecture, Layer, ModelWeights
from llmviz.model.graph import GraphContext
from llmviz.model.hparams import HParams
from llmviz.model.hparams_check import refuse
from llmviz.model.keys import Keys
from llmviz.model.tensors import TensorLoader

__all__ = ["Mistral3"]


class Mistral3(Architecture):
    """Pre-norm transformer, dense or a mixture of experts, with attention temperature."""

    name = "mistral3"
    rope_type = "norm"
    sizes = {26: "3B", 34: "8B", 40: "14B"}

    # hyperparameters

    @staticmethod
    def load_arch_hparams(hp: HParams, keys: Keys) -> None:
        """Epsilon, temperature, and YaRN's own settings."""
        get = keys.get
        hp.f_norm_rms_eps = keys.rms_eps()
        hp.f_attn_temp_scale = get(
            "f_attn_temp_scale", "{arch}.attention.temperature_scale", "f32", 0.0
        )
        yarn = "{arch}.rope.scaling.yarn_"
        hp.yarn_beta_fast = get("yarn_beta_fast", yarn + "beta_fast", "f32", hp.yarn_beta_fast)
        hp.yarn_beta_slow = get("yarn_beta_slow", yarn + "beta_slow", "f32", hp.yarn_beta_slow)
        hp.rope_yarn_log_mul = get("rope_yarn_log_mul", yarn + "log_multiplier", "f32", 0.0)
        if hp.f_attn_temp_scale != 0.0:
            hp.n_attn_temp_floor_scale = hp.n_ctx_orig_yarn
            if hp.n_ctx_orig_yarn == 0:
                why = "0; the attention's temperature grows once per that many tokens"
                refuse(keys, "{arch}.rope.scaling.original_context_length", why)

    # tensors

    @staticmethod
    def load_arch_tensors(hp: HParams, weights: ModelWeights, create: TensorLoader) -> None:
        """As llama."""
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
            else:
                create.create_experts(layer, il, n_embd, n_ff, hp.n_expert, gate=False)

    # graph

    @staticmethod
    def build_graph(g: GraphContext) -> None:
        """One ubatch through all layers to the logits of the rows that are wanted."""
        cur = g.build_inp_embd(g.weights.tok_embd)
        inp_pos = g.build_inp_pos()
        temperature = None
        if g.hparams.f_attn_temp_scale != 0.0:
            temperature = g.build_inp_attn_scale()
        inp_attn = g.build_attn_inp_kv()
        inp_out_ids = g.build_inp_out_ids()
        for il, layer in enumerate(g.weights.layers):
            residual = cur
            cur = g.cb(g.build_norm(cur, layer.attn_norm, None, "rms", il), "attn_norm", il)
            q, k, v = g.build_qkv_of_layer(layer, cur, il)
            q, k = g.build_rope_qk(q, k, inp_pos, il, g.rope_factors(il))
            if temperature is not None:
                q = g.cb(ops.mul(q, temperature), "Qcur_attn_temp_scaled", il)
            cur = g.build_attn(inp_attn, layer.wo, layer.wo_b, q, k, v, g.kq_scale(), il)
            g.cb(cur, "attn_out", il)
            if il == g.n_layer - 1:
                cur = ops.get_rows(cur, inp_out_ids)
                residual = ops.get_rows(residual, inp_out_ids)
            ffn_inp = g.cb(ops.add(cur, residual), "ffn_inp", il)
            cur = g.cb(g.build_norm(ffn_inp, layer.ffn_norm, None, "rms", il), "ffn_norm", il)
            cur = _feed_forward(g, layer, cur, il)
            cur = g.cb(ops.add(cur, ffn_inp), "l_out", il)
        g.build_output(cur)


def _feed_forward(g: GraphContext, layer: Layer, cur: Tensor, il: int) -> Tensor:
    if layer.ffn_gate_inp is None:
        cur = g.build_ffn(
            cur,
            (layer.ffn_up, layer.ffn_up_b),
            (layer.ffn_gate, layer.ffn_gate_b),
            (layer.ffn_down, layer.ffn_down_b),
            il,
        )
        return g.cb(cur, "ffn_out", il)
    return g.build_moe_ffn(
        cur,
        (layer.ffn_gate_inp, None),
        (layer.ffn_up_exps, None),
        (layer.ffn_gate_exps, None),
        (layer.ffn_down_exps, None),
        il,
        norm_w=True,
    )
