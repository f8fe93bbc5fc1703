"""StableLM: partial rotation; the 12B model normalizes heads and runs both halves side by side.

↔ src/models/stablelm.cpp
"""

from __future__ import annotations

from llmviz.ggml import ops
from llmviz.model.arch import Architecture, ModelWeights
from llmviz.model.graph import GraphContext
from llmviz.model.hparams import HParams
from llmviz.model.keys import Keys
from llmviz.model.tensors import TensorLoader

__all__ = ["StableLM"]


class StableLM(Architecture):
    """Layer norms, SwiGLU; without a second norm the feed-forward reads what the attention does."""

    name = "stablelm"
    rope_type = "neox"
    partial_rotary = True
    sizes = {24: "1B", 32: "3B", 40: "12B"}

    # hyperparameters

    @staticmethod
    def load_arch_hparams(hp: HParams, keys: Keys) -> None:
        """Layer norm epsilon."""
        hp.f_norm_eps = keys.norm_eps()

    # tensors

    @staticmethod
    def load_arch_tensors(hp: HParams, weights: ModelWeights, create: TensorLoader) -> None:
        """The norms of heads and the second norm of a layer are optional."""
        t = create.create_tensor
        n_embd, n_kv, head = hp.n_embd, hp.n_embd_k_gqa(), hp.n_embd_head_k
        create.create_output(hp, weights, tied=False)
        weights.output_norm_b = t("output_norm.bias", n_embd)
        for il, layer in enumerate(weights.layers):
            b = f"blk.{il}."
            create.create_norm(layer, il, "attn_norm", n_embd, bias=True)
            create.create_qkv(layer, il, n_embd, n_embd, n_kv, n_kv)
            layer.wo = t(b + "attn_output.weight", n_embd, n_embd)
            layer.attn_q_norm = t(b + "attn_q_norm.weight", head, hp.n_head(), required=False)
            layer.attn_k_norm = t(b + "attn_k_norm.weight", head, hp.n_head_kv(), required=False)
            layer.ffn_norm = t(b + "ffn_norm.weight", n_embd, required=False)
            layer.ffn_norm_b = t(b + "ffn_norm.bias", n_embd, required=False)
            create.create_ffn(layer, il, n_embd, hp.n_ff())

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
            g.cb(normed, "attn_norm", il)
            q, k, v = g.build_qkv_of_layer(layer, normed, il)
            if layer.attn_q_norm is not None:
                q = g.cb(g.build_norm(q, layer.attn_q_norm, None, "layer", il), "Qcur", il)
            if layer.attn_k_norm is not None:
                k = g.cb(g.build_norm(k, layer.attn_k_norm, None, "layer", il), "Kcur", il)
            q, k = g.build_rope_qk(q, k, inp_pos, il)
            cur = g.build_attn(inp_attn, layer.wo, None, q, k, v, g.head_scale(), il)
            if il == g.n_layer - 1:
                cur = ops.get_rows(cur, inp_out_ids)
                residual = ops.get_rows(residual, inp_out_ids)
                normed = ops.get_rows(normed, inp_out_ids)
            ffn_inp = g.cb(ops.add(cur, residual), "ffn_inp", il)
            cur = normed
            if layer.ffn_norm is not None:
                cur = g.build_norm(ffn_inp, layer.ffn_norm, layer.ffn_norm_b, "layer", il)
                g.cb(cur, "ffn_norm", il)
            cur = g.build_ffn(
                cur, (layer.ffn_up, None), (layer.ffn_gate, None), (layer.ffn_down, None), il
            )
            g.cb(cur, "ffn_out", il)
            cur = g.cb(ops.add(cur, ffn_inp), "l_out", il)
        g.build_output(cur, "layer")
