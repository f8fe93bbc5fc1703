"""GPT-NeoX and Pythia: attention and feed-forward side by side, or one after the other.

↔ src/models/gptneox.cpp
"""

from __future__ import annotations

from llmviz.ggml import ops
from llmviz.ggml.graph import Tensor
from llmviz.model.arch import Architecture, Layer, ModelWeights
from llmviz.model.graph import GraphContext
from llmviz.model.hparams import HParams
from llmviz.model.keys import Keys
from llmviz.model.tensors import TensorLoader

__all__ = ["GPTNeoX"]

# layers -> width of the feed-forward network -> size
SIZES = {
    6: {512: "14M", 2048: "70M"},
    12: {3072: "160M"},
    16: {8192: "1B"},
    24: {4096: "410M", 8192: "1.4B"},
    32: {10240: "2.8B", 16384: "6.9B"},
    36: {20480: "12B"},
    44: {24576: "20B"},
}


class GPTNeoX(Architecture):
    """Layer norms with biases, partial rotation, GELU."""

    name = "gptneox"
    rope_type = "neox"
    partial_rotary = True

    # hyperparameters

    @staticmethod
    def load_arch_hparams(hp: HParams, keys: Keys) -> None:
        """Layer norm epsilon, and whether the two halves of a layer run side by side."""
        hp.f_norm_eps = keys.norm_eps()
        hp.use_par_res = keys.get("use_par_res", "{arch}.use_parallel_residual", "bool")

    @classmethod
    def size_name(cls, hp: HParams) -> str:
        """Name by depth and width."""
        return SIZES.get(hp.n_layer, {}).get(hp.n_ff(), "?B")

    # tensors

    @staticmethod
    def load_arch_tensors(hp: HParams, weights: ModelWeights, create: TensorLoader) -> None:
        """Weights and biases; queries, keys and values are fused."""
        t = create.create_tensor
        n_embd = hp.n_embd
        n_qkv = n_embd + 2 * hp.n_embd_k_gqa()
        create.create_output(hp, weights, tied=False)
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
            if g.hparams.use_par_res:  # x + attn(norm 1(x)) + ffn(norm 2(x))
                ffn = _feed_forward(g, layer, residual, il)
                ffn = g.cb(ops.add(ffn, residual), "ffn_out", il)
                cur = g.cb(ops.add(ffn, cur), "l_out", il)
            else:
                ffn_inp = g.cb(ops.add(cur, residual), "ffn_inp", il)
                cur = _feed_forward(g, layer, ffn_inp, il)
                cur = g.cb(ops.add(cur, ffn_inp), "l_out", il)
        g.build_output(cur, "layer")


def _feed_forward(g: GraphContext, layer: Layer, cur: Tensor, il: int) -> Tensor:
    cur = g.build_norm(cur, layer.ffn_norm, layer.ffn_norm_b, "layer", il)
    g.cb(cur, "ffn_norm", il)
    cur = g.build_ffn(
        cur,
        (layer.ffn_up, layer.ffn_up_b),
        (None, None),
        (layer.ffn_down, layer.ffn_down_b),
        il,
        act="gelu",
    )
    return g.cb(cur, "ffn_out", il)
