"""DeepSeek, first generation: dense layers first, then experts with a shared one.

↔ src/models/deepseek.cpp
"""

from __future__ import annotations

from llmviz.ggml import ops
from llmviz.ggml.graph import Tensor
from llmviz.model.arch import Architecture, Layer, ModelWeights
from llmviz.model.graph import GraphContext
from llmviz.model.hparams import HParams
from llmviz.model.hparams_check import refuse_without_experts
from llmviz.model.keys import Keys
from llmviz.model.tensors import TensorLoader

__all__ = ["DeepSeek"]


class DeepSeek(Architecture):
    """llama's attention; some experts see every token."""

    name = "deepseek"
    rope_type = "norm"

    # hyperparameters

    @staticmethod
    def load_arch_hparams(hp: HParams, keys: Keys) -> None:
        """RMS epsilon, how many layers are dense, the experts' width and number."""
        hp.f_norm_rms_eps = keys.rms_eps()
        hp.n_layer_dense_lead = keys.get(
            "n_layer_dense_lead", "{arch}.leading_dense_block_count", "u32", 0
        )
        key = "{arch}.expert_feed_forward_length"
        keys.require(key)
        hp.n_ff_exp_arr = keys.get_or_arr("n_ff_exp_arr", key, hp.n_layer_all)
        hp.n_expert_shared = keys.get("n_expert_shared", "{arch}.expert_shared_count", "u32")
        hp.expert_weights_scale = keys.get(
            "expert_weights_scale", "{arch}.expert_weights_scale", "f32", 0.0
        )
        if hp.n_layer_dense_lead < hp.n_layer:
            refuse_without_experts(hp, keys)

    @classmethod
    def size_name(cls, hp: HParams) -> str:
        """Name by the experts' width."""
        return {1408: "16B", 1792: "20B"}.get(hp.n_ff_exp(), "?B")

    # tensors

    @staticmethod
    def load_arch_tensors(hp: HParams, weights: ModelWeights, create: TensorLoader) -> None:
        """A layer is dense, or has experts."""
        t = create.create_tensor
        n_embd, n_kv, n_ff_exp = hp.n_embd, hp.n_embd_k_gqa(), hp.n_ff_exp()
        create.create_output(hp, weights)
        for il, layer in enumerate(weights.layers):
            b = f"blk.{il}."
            layer.attn_norm = t(b + "attn_norm.weight", n_embd)
            create.create_qkv(layer, il, n_embd, n_embd, n_kv, n_kv)
            layer.wo = t(b + "attn_output.weight", n_embd, n_embd)
            layer.ffn_norm = t(b + "ffn_norm.weight", n_embd)
            if il < hp.n_layer_dense_lead:
                create.create_ffn(layer, il, n_embd, hp.n_ff())
            else:
                create.create_experts(layer, il, n_embd, n_ff_exp, hp.n_expert)
                create.create_shared_expert(layer, il, n_embd, n_ff_exp * hp.n_expert_shared)

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
            cur = g.build_attn(inp_attn, layer.wo, None, q, k, v, g.kq_scale(), il)
            if il == g.n_layer - 1:
                cur = ops.get_rows(cur, inp_out_ids)
                residual = ops.get_rows(residual, inp_out_ids)
            ffn_inp = g.cb(ops.add(cur, residual), "ffn_inp", il)
            cur = g.cb(g.build_norm(ffn_inp, layer.ffn_norm, None, "rms", il), "ffn_norm", il)
            cur = _feed_forward(g, layer, cur, il)
            cur = g.cb(ops.add(cur, ffn_inp), "l_out", il)
        g.build_output(cur)


def _feed_forward(g: GraphContext, layer: Layer, cur: Tensor, il: int) -> Tensor:
    if il < g.hparams.n_layer_dense_lead:
        cur = g.build_ffn(
            cur, (layer.ffn_up, None), (layer.ffn_gate, None), (layer.ffn_down, None), il
        )
        return g.cb(cur, "ffn_out", il)
    moe_out = g.build_moe_ffn(
        cur,
        (layer.ffn_gate_inp, None),
        (layer.ffn_up_exps, None),
        (layer.ffn_gate_exps, None),
        (layer.ffn_down_exps, None),
        il,
        norm_w=False,
    )
    shared = g.build_ffn(
        cur,
        (layer.ffn_up_shexp, None),
        (layer.ffn_gate_shexp, None),
        (layer.ffn_down_shexp, None),
        il,
    )
    return g.cb(ops.add(moe_out, g.cb(shared, "ffn_shexp", il)), "ffn_out", il)
