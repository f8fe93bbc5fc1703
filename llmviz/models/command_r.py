"""Command R: attention and feed-forward side by side, scaled logits. ↔ src/models/command-r.cpp"""

from __future__ import annotations

from llmviz.ggml import ops
from llmviz.model.arch import Architecture, ModelWeights
from llmviz.model.graph import GraphContext
from llmviz.model.hparams import HParams
from llmviz.model.keys import Keys
from llmviz.model.tensors import TensorLoader

__all__ = ["CommandR"]

PLUS = 64  # Command R+ has as many layers, and norms of queries and keys


class CommandR(Architecture):
    """Parallel residual, layer norms without biases, SwiGLU, tied output."""

    name = "command-r"
    rope_type = "norm"
    partial_rotary = True
    sizes = {40: "35B"}

    # hyperparameters

    @staticmethod
    def load_arch_hparams(hp: HParams, keys: Keys) -> None:
        """Layer norm epsilon and the logits' scale."""
        hp.f_norm_eps = keys.norm_eps()
        hp.f_logit_scale = keys.get("f_logit_scale", "{arch}.logit_scale", "f32", 0.0)

    # tensors

    @staticmethod
    def load_arch_tensors(hp: HParams, weights: ModelWeights, create: TensorLoader) -> None:
        """One norm per layer; the large model has those of heads too."""
        t = create.create_tensor
        n_embd, n_kv, head = hp.n_embd, hp.n_embd_k_gqa(), hp.n_embd_head_k
        create.create_output(hp, weights, tied=True)
        for il, layer in enumerate(weights.layers):
            b = f"blk.{il}."
            layer.attn_norm = t(b + "attn_norm.weight", n_embd)
            if hp.n_layer >= PLUS:
                layer.attn_q_norm = t(b + "attn_q_norm.weight", head, hp.n_head())
                layer.attn_k_norm = t(b + "attn_k_norm.weight", head, hp.n_head_kv())
            create.create_qkv(layer, il, n_embd, n_embd, n_kv, n_kv)
            layer.wo = t(b + "attn_output.weight", n_embd, n_embd)
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
            ffn_inp = g.build_norm(cur, layer.attn_norm, None, "layer", il)
            g.cb(ffn_inp, "attn_norm", il)
            q, k, v = g.build_qkv_of_layer(layer, ffn_inp, il)
            if layer.attn_q_norm is not None:
                q = g.cb(g.build_norm(q, layer.attn_q_norm, None, "layer", il), "Qcur", il)
            if layer.attn_k_norm is not None:
                k = g.cb(g.build_norm(k, layer.attn_k_norm, None, "layer", il), "Kcur", il)
            q, k = g.build_rope_qk(q, k, inp_pos, il)
            attn_out = g.build_attn(inp_attn, layer.wo, None, q, k, v, g.head_scale(), il)
            if il == g.n_layer - 1:
                attn_out = ops.get_rows(attn_out, inp_out_ids)
                residual = ops.get_rows(residual, inp_out_ids)
                ffn_inp = ops.get_rows(ffn_inp, inp_out_ids)
            cur = g.build_ffn(
                ffn_inp, (layer.ffn_up, None), (layer.ffn_gate, None), (layer.ffn_down, None), il
            )
            g.cb(cur, "ffn_out", il)
            cur = g.cb(ops.add(ops.add(cur, residual), attn_out), "l_out", il)
        cur = g.build_lora_mm(g.weights.output, g.build_output_norm(cur, "layer"))
        if g.hparams.f_logit_scale:
            cur = ops.scale(cur, g.hparams.f_logit_scale)
        g.build_logits(cur)
