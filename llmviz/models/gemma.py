"""Gemma: embeddings scaled by the root of their width, GELU gates. ↔ src/models/gemma.cpp"""

from __future__ import annotations

from math import sqrt

from llmviz.ggml import ops
from llmviz.model.arch import Architecture, ModelWeights
from llmviz.model.graph import GraphContext
from llmviz.model.hparams import HParams
from llmviz.model.keys import Keys
from llmviz.model.tensors import TensorLoader

__all__ = ["Gemma"]


class Gemma(Architecture):
    """Pre-norm transformer with GeGLU and a tied output."""

    name = "gemma"
    rope_type = "neox"
    partial_rotary = True
    sizes = {18: "2B", 28: "7B"}

    # hyperparameters

    @staticmethod
    def load_arch_hparams(hp: HParams, keys: Keys) -> None:
        """RMS epsilon."""
        hp.f_norm_rms_eps = keys.rms_eps()

    # tensors

    @staticmethod
    def load_arch_tensors(hp: HParams, weights: ModelWeights, create: TensorLoader) -> None:
        """Embedding, and per layer: norms, attention, feed-forward."""
        t = create.create_tensor
        n_embd = hp.n_embd
        n_q = hp.n_embd_head_k * hp.n_head()
        create.create_output(hp, weights, tied=True)
        for il, layer in enumerate(weights.layers):
            b = f"blk.{il}."
            layer.attn_norm = t(b + "attn_norm.weight", n_embd)
            create.create_qkv(layer, il, n_embd, n_q, hp.n_embd_k_gqa(), hp.n_embd_v_gqa())
            layer.wo = t(b + "attn_output.weight", n_q, n_embd)
            layer.ffn_norm = t(b + "ffn_norm.weight", n_embd)
            create.create_ffn(layer, il, n_embd, hp.n_ff())

    # graph

    @staticmethod
    def build_graph(g: GraphContext) -> None:
        """One ubatch through all layers to the logits of the rows that are wanted."""
        cur = g.build_inp_embd(g.weights.tok_embd)
        cur = g.cb(ops.scale(cur, sqrt(g.hparams.n_embd)), "inp_scaled", -1)
        inp_pos = g.build_inp_pos()
        inp_attn = g.build_attn_inp_kv()
        inp_out_ids = g.build_inp_out_ids()
        for il, layer in enumerate(g.weights.layers):
            residual = cur
            cur = g.cb(g.build_norm(cur, layer.attn_norm, None, "rms", il), "attn_norm", il)
            q, k, v = g.build_qkv_of_layer(layer, cur, il)
            q, k = g.build_rope_qk(q, k, inp_pos, il)
            q = g.cb(ops.scale(q, g.head_scale()), "Qcur_scaled", il)
            cur = g.build_attn(inp_attn, layer.wo, None, q, k, v, 1.0, il)
            if il == g.n_layer - 1:
                cur = ops.get_rows(cur, inp_out_ids)
                residual = ops.get_rows(residual, inp_out_ids)
            sa_out = g.cb(ops.add(cur, residual), "sa_out", il)
            cur = g.cb(g.build_norm(sa_out, layer.ffn_norm, None, "rms", il), "ffn_norm", il)
            cur = g.build_ffn(
                cur,
                (layer.ffn_up, None),
                (layer.ffn_gate, None),
                (layer.ffn_down, None),
                il,
                act="gelu",
            )
            g.cb(cur, "ffn_out", il)
            cur = g.cb(ops.add(cur, sa_out), "l_out", il)
        g.build_output(cur)
