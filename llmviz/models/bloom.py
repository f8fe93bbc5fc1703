"""BLOOM: scores fall with the distance (ALiBi) instead of rotation. ↔ src/models/bloom.cpp"""

from __future__ import annotations

from llmviz.ggml import ops
from llmviz.model.arch import Architecture, ModelWeights
from llmviz.model.graph import GraphContext
from llmviz.model.hparams import HParams
from llmviz.model.keys import Keys
from llmviz.model.tensors import TensorLoader

__all__ = ["Bloom"]


class Bloom(Architecture):
    """Layer norms, also of the embeddings; GELU; biases everywhere."""

    name = "bloom"
    rope_type = "none"
    sizes = {24: "1B"}

    # hyperparameters

    @staticmethod
    def load_arch_hparams(hp: HParams, keys: Keys) -> None:
        """Layer norm epsilon; the slope of the scores is fixed."""
        hp.f_norm_eps = keys.norm_eps()
        hp.f_max_alibi_bias = 8.0

    @classmethod
    def size_name(cls, hp: HParams) -> str:
        """Name by depth and width."""
        if hp.n_layer == 30:
            return {2560: "3B", 4096: "7B"}.get(hp.n_embd, "?B")
        return super().size_name(hp)

    # tensors

    @staticmethod
    def load_arch_tensors(hp: HParams, weights: ModelWeights, create: TensorLoader) -> None:
        """Weights and biases; queries, keys and values are fused."""
        t = create.create_tensor
        n_embd = hp.n_embd
        n_qkv = n_embd + 2 * hp.n_embd_k_gqa()
        create.create_output(hp, weights)
        weights.tok_norm = t("token_embd_norm.weight", n_embd)
        weights.tok_norm_b = t("token_embd_norm.bias", n_embd)
        weights.output_norm_b = t("output_norm.bias", n_embd)
        for il, layer in enumerate(weights.layers):
            b = f"blk.{il}."
            create.create_norm(layer, il, "attn_norm", n_embd, bias=True)
            layer.wqkv = t(b + "attn_qkv.weight", n_embd, n_qkv)
            layer.wqkv_b = t(b + "attn_qkv.bias", n_qkv)
            layer.wo = t(b + "attn_output.weight", n_embd, n_embd)
            layer.wo_b = t(b + "attn_output.bias", n_embd)
            create.create_norm(layer, il, "ffn_norm", n_embd, bias=True)
            create.create_mlp(layer, il, n_embd, hp.n_ff(), bias=True)

    # graph

    @staticmethod
    def build_graph(g: GraphContext) -> None:
        """One ubatch through all layers to the logits of the rows that are wanted."""
        w = g.weights
        cur = g.build_inp_embd(w.tok_embd)
        inp_attn = g.build_attn_inp_kv()
        cur = g.cb(g.build_norm(cur, w.tok_norm, w.tok_norm_b, "layer", 0), "inp_norm", 0)
        inp_out_ids = g.build_inp_out_ids()
        for il, layer in enumerate(w.layers):
            residual = cur
            cur = g.build_norm(cur, layer.attn_norm, layer.attn_norm_b, "layer", il)
            g.cb(cur, "attn_norm", il)
            q, k, v = g.build_qkv_of_layer(layer, cur, il)
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
