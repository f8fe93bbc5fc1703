"""StarCoder 2: grouped-query attention with biases everywhere. ↔ src/models/starcoder2.cpp"""

from __future__ import annotations

from llmviz.ggml import ops
from llmviz.model.arch import Architecture, ModelWeights
from llmviz.model.graph import GraphContext
from llmviz.model.hparams import HParams
from llmviz.model.keys import Keys
from llmviz.model.tensors import TensorLoader

__all__ = ["StarCoder2"]


class StarCoder2(Architecture):
    """Pre-norm transformer with layer norms, rotation and GELU."""

    name = "starcoder2"
    rope_type = "neox"
    sizes = {30: "3B", 32: "7B", 40: "15B", 52: "20B", 88: "34B"}

    # hyperparameters

    @staticmethod
    def load_arch_hparams(hp: HParams, keys: Keys) -> None:
        """Layer norm epsilon."""
        hp.f_norm_eps = keys.norm_eps()

    # tensors

    @staticmethod
    def load_arch_tensors(hp: HParams, weights: ModelWeights, create: TensorLoader) -> None:
        """Weights and biases."""
        t = create.create_tensor
        n_embd, n_kv = hp.n_embd, hp.n_embd_k_gqa()
        create.create_output(hp, weights)
        weights.output_norm_b = t("output_norm.bias", n_embd)
        for il, layer in enumerate(weights.layers):
            b = f"blk.{il}."
            create.create_norm(layer, il, "attn_norm", n_embd, bias=True)
            create.create_qkv(layer, il, n_embd, n_embd, n_kv, n_kv)
            layer.wo = t(b + "attn_output.weight", n_embd, n_embd)
            layer.wo_b = t(b + "attn_output.bias", n_embd)
            create.create_norm(layer, il, "ffn_norm", n_embd, bias=True)
            create.create_mlp(layer, il, n_embd, hp.n_ff(), bias=True)

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
            cur = g.build_norm(cur, layer.attn_norm, layer.attn_norm_b, "layer", il)
            g.cb(cur, "attn_norm", il)
            q, k, v = g.build_qkv_of_layer(layer, cur, il)
            q, k = g.build_rope_qk(q, k, inp_pos, il)
            cur = g.build_attn(inp_attn, layer.wo, layer.wo_b, q, k, v, g.head_scale(), il)
            if il == g.n_layer - 1:
                cur = ops.get_rows(cur, inp_out_ids)
                residual = ops.get_rows(residual, inp_out_ids)
            ffn_inp = g.cb(ops.add(cur, residual), "ffn_inp", il)
            cur = g.build_norm(ffn_inp, layer.ffn_norm, layer.ffn_norm_b, "layer", il)
            g.cb(cur, "ffn_norm", il)
            cur = g.build_ffn(
                cur,
                (layer.ffn_up, layer.ffn_up_b),
                (None, None),
                (layer.ffn_down, layer.ffn_down_b),
                il,
                act="gelu",
            )
            g.cb(cur, "ffn_out", il)
            cur = g.cb(ops.add(cur, ffn_inp), "l_out", il)
        g.build_output(cur, "layer")
