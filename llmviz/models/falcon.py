"""Falcon: attention and feed-forward side by side; the 40B model has a norm for each.

↔ src/models/falcon.cpp
"""

from __future__ import annotations

from llmviz.ggml import ops
from llmviz.model.arch import Architecture, ModelWeights
from llmviz.model.graph import GraphContext
from llmviz.model.hparams import HParams
from llmviz.model.keys import Keys
from llmviz.model.tensors import TensorLoader

__all__ = ["Falcon"]


class Falcon(Architecture):
    """Parallel residual, layer norms, one key/value head for many queries, no biases."""

    name = "falcon"
    rope_type = "neox"
    sizes = {32: "7B", 60: "40B"}

    # hyperparameters

    @staticmethod
    def load_arch_hparams(hp: HParams, keys: Keys) -> None:
        """Layer norm epsilon."""
        hp.f_norm_eps = keys.norm_eps()

    # tensors

    @staticmethod
    def load_arch_tensors(hp: HParams, weights: ModelWeights, create: TensorLoader) -> None:
        """Queries, keys and values are fused; the second norm is optional."""
        t = create.create_tensor
        n_embd, n_ff = hp.n_embd, hp.n_ff()
        create.create_output(hp, weights)
        weights.output_norm_b = t("output_norm.bias", n_embd)
        for il, layer in enumerate(weights.layers):
            b = f"blk.{il}."
            create.create_norm(layer, il, "attn_norm", n_embd, bias=True)
            layer.attn_norm_2 = t(b + "attn_norm_2.weight", n_embd, required=False)
            layer.attn_norm_2_b = t(b + "attn_norm_2.bias", n_embd, required=False)
            layer.wqkv = t(b + "attn_qkv.weight", n_embd, n_embd + 2 * hp.n_embd_k_gqa())
            layer.wo = t(b + "attn_output.weight", n_embd, n_embd)
            create.create_mlp(layer, il, n_embd, n_ff)

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
            normed = g.build_norm(cur, layer.attn_norm, layer.attn_norm_b, "layer", il)
            cur = g.cb(normed, "attn_norm", il)
            if layer.attn_norm_2 is not None:
                cur = g.build_norm(residual, layer.attn_norm_2, layer.attn_norm_2_b, "layer", il)
                g.cb(cur, "attn_norm_2", il)
            q, k, v = g.build_qkv_of_layer(layer, cur, il)
            q, k = g.build_rope_qk(q, k, inp_pos, il)
            cur = g.build_attn(inp_attn, layer.wo, None, q, k, v, g.head_scale(), il)
            if il == g.n_layer - 1:
                cur = ops.get_rows(cur, inp_out_ids)
                residual = ops.get_rows(residual, inp_out_ids)
                normed = ops.get_rows(normed, inp_out_ids)
            ffn = g.build_ffn(
                normed, (layer.ffn_up, None), (None, None), (layer.ffn_down, None), il, act="gelu"
            )
            g.cb(ffn, "ffn_out", il)
            cur = g.cb(ops.add(ops.add(ffn, cur), residual), "l_out", il)
        g.build_output(cur, "layer")
