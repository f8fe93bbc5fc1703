"""Qwen 2 MoE: routed experts, and a shared one behind its own gate. ↔ src/models/qwen2moe.cpp"""

from __future__ import annotations

from llmviz.ggml import ops
from llmviz.ggml.graph import Tensor
from llmviz.model.arch import Architecture, Layer, ModelWeights
from llmviz.model.graph import GraphContext
from llmviz.model.hparams import HParams
from llmviz.model.hparams_check import refuse_without_experts
from llmviz.model.keys import Keys
from llmviz.model.tensors import TensorLoader

__all__ = ["Qwen2MoE"]


class Qwen2MoE(Architecture):
    """qwen2 with a mixture of experts."""

    name = "qwen2moe"
    rope_type = "neox"
    sizes = {24: "A2.7B", 28: "57B.A14B"}

    # hyperparameters

    @staticmethod
    def load_arch_hparams(hp: HParams, keys: Keys) -> None:
        """RMS epsilon and the experts' widths."""
        refuse_without_experts(hp, keys)
        hp.f_norm_rms_eps = keys.rms_eps()
        hp.n_ff_exp_arr = keys.get_or_arr(
            "n_ff_exp_arr", "{arch}.expert_feed_forward_length", hp.n_layer_all
        )
        hp.n_ff_shexp = keys.get("n_ff_shexp", "{arch}.expert_shared_feed_forward_length", "u32", 0)

    # tensors

    @staticmethod
    def load_arch_tensors(hp: HParams, weights: ModelWeights, create: TensorLoader) -> None:
        """An expert is ``n_ff / n_expert_used`` wide unless the file says otherwise."""
        t = create.create_tensor
        n_embd, n_kv = hp.n_embd, hp.n_embd_k_gqa()
        n_ff_exp = hp.n_ff_exp() or hp.n_ff() // hp.n_expert_used()
        create.create_output(hp, weights, tied=False)
        for il, layer in enumerate(weights.layers):
            b = f"blk.{il}."
            layer.attn_norm = t(b + "attn_norm.weight", n_embd)
            create.create_qkv(layer, il, n_embd, n_embd, n_kv, n_kv)
            layer.wo = t(b + "attn_output.weight", n_embd, n_embd)
            layer.ffn_norm = t(b + "ffn_norm.weight", n_embd)
            create.create_experts(layer, il, n_embd, n_ff_exp, hp.n_expert)
            layer.ffn_gate_inp_shexp = t(b + "ffn_gate_inp_shexp.weight", n_embd)
            create.create_shared_expert(layer, il, n_embd, hp.n_ff_shexp or hp.n_ff())

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
            q, k = g.build_rope_qk(q, k, inp_pos, il)
            cur = g.build_attn(inp_attn, layer.wo, None, q, k, v, g.head_scale(), il)
            if il == g.n_layer - 1:
                cur = ops.get_rows(cur, inp_out_ids)
                residual = ops.get_rows(residual, inp_out_ids)
            ffn_inp = g.cb(ops.add(cur, residual), "ffn_inp", il)
            cur = g.cb(g.build_norm(ffn_inp, layer.ffn_norm, None, "rms", il), "ffn_norm", il)
            cur = _experts(g, layer, cur, il)
            cur = g.cb(ops.add(cur, ffn_inp), "l_out", il)
        g.build_output(cur)


def _experts(g: GraphContext, layer: Layer, cur: Tensor, il: int) -> Tensor:
    moe_out = g.build_moe_ffn(
        cur,
        (layer.ffn_gate_inp, None),
        (layer.ffn_up_exps, None),
        (layer.ffn_gate_exps, None),
        (layer.ffn_down_exps, None),
        il,
        norm_w=False,
    )
    gate = g.cb(g.build_lora_mm(layer.ffn_gate_inp_shexp, cur), "ffn_shexp_gate_inp", il)
    # silu(x) / x is the sigmoid
    gate = g.cb(ops.div(ops.unary(gate, "silu"), gate), "ffn_shexp_gate", il)
    shared = g.build_ffn(
        cur,
        (layer.ffn_up_shexp, None),
        (layer.ffn_gate_shexp, None),
        (layer.ffn_down_shexp, None),
        il,
    )
    shared = g.cb(ops.mul(g.cb(shared, "ffn_shexp", il), gate), "ffn_shexp_out", il)
    return g.cb(ops.add(moe_out, shared), "ffn_out", il)
