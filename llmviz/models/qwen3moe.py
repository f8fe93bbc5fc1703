"""Qwen 3 MoE: qwen3 with a mixture of experts. ↔ src/models/qwen3moe.cpp"""

from __future__ import annotations

from llmviz.ggml import ops
from llmviz.model.arch import Architecture, ModelWeights
from llmviz.model.graph import GraphContext
from llmviz.model.hparams import HParams
from llmviz.model.hparams_check import refuse_without_experts
from llmviz.model.keys import Keys
from llmviz.model.tensors import TensorLoader

__all__ = ["Qwen3MoE"]


class Qwen3MoE(Architecture):
    """Normalized queries and keys; the weights of the chosen experts sum up to 1."""

    name = "qwen3moe"
    rope_type = "neox"
    sizes = {48: "30B.A3B", 94: "235B.A22B"}

    # hyperparameters

    @staticmethod
    def load_arch_hparams(hp: HParams, keys: Keys) -> None:
        """RMS epsilon and the experts' width."""
        refuse_without_experts(hp, keys)
        hp.n_ff_exp_arr = keys.get_or_arr(
            "n_ff_exp_arr", "{arch}.expert_feed_forward_length", hp.n_layer_all
        )
        hp.f_norm_rms_eps = keys.rms_eps()

    # tensors

    @staticmethod
    def load_arch_tensors(hp: HParams, weights: ModelWeights, create: TensorLoader) -> None:
        """An expert is ``n_ff / n_expert_used`` wide unless the file says otherwise."""
        t = create.create_tensor
        n_embd, n_kv = hp.n_embd, hp.n_embd_k_gqa()
        n_q = hp.n_embd_head_k * hp.n_head()
        n_ff_exp = hp.n_ff_exp() or hp.n_ff() // hp.n_expert_used()
        create.create_output(hp, weights)
        for il, layer in enumerate(weights.layers):
            b = f"blk.{il}."
            layer.attn_norm = t(b + "attn_norm.weight", n_embd)
            create.create_qkv(layer, il, n_embd, n_q, n_kv, n_kv)
            layer.wo = t(b + "attn_output.weight", n_q, n_embd)
            layer.attn_k_norm = t(b + "attn_k_norm.weight", hp.n_embd_head_k)
            layer.attn_q_norm = t(b + "attn_q_norm.weight", hp.n_embd_head_k)
            layer.ffn_norm = t(b + "ffn_norm.weight", n_embd)
            create.create_experts(layer, il, n_embd, n_ff_exp, hp.n_expert)

    # graph

    @staticmethod
    def build_graph(g: GraphContext) -> None:
        """One ubatch through all layers to the logits of the rows that are wanted."""
        cur = g.build_inp_embd(g.weights.tok_embd)
        inp_pos = g.build_inp_pos()
        inp_attn = g.build_attn_inp_kv()
        inp_out_ids = g.build_inp_out_ids()
        for il, layer in enumerate(g.weights.layers):
            residual = cur
            cur = g.cb(g.build_norm(cur, layer.attn_norm, None, "rms", il), "attn_norm", il)
            q, k, v = g.build_qkv_of_layer(layer, cur, il)
            q = g.cb(g.build_norm(q, layer.attn_q_norm, None, "rms", il), "Qcur_normed", il)
            k = g.cb(g.build_norm(k, layer.attn_k_norm, None, "rms", il), "Kcur_normed", il)
            q, k = g.build_rope_qk(q, k, inp_pos, il)
            cur = g.build_attn(inp_attn, layer.wo, None, q, k, v, g.head_scale(), il)
            if il == g.n_layer - 1:
                cur = ops.get_rows(cur, inp_out_ids)
                residual = ops.get_rows(residual, inp_out_ids)
            ffn_inp = g.cb(ops.add(cur, residual), "ffn_inp", il)
            cur = g.cb(g.build_norm(ffn_inp, layer.ffn_norm, None, "rms", il), "ffn_norm", il)
            cur = g.build_moe_ffn(
                cur,
                (layer.ffn_gate_inp, None),
                (layer.ffn_up_exps, None),
                (layer.ffn_gate_exps, None),
                (layer.ffn_down_exps, None),
                il,
                norm_w=True,
            )
            cur = g.cb(ops.add(cur, ffn_inp), "l_out", il)
        g.build_output(cur)
