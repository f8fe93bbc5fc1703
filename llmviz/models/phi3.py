"""Phi 3 and 4: fused projections, and rotary factors for long contexts. ↔ src/models/phi3.cpp"""

from __future__ import annotations

from llmviz.ggml import ops
from llmviz.model.arch import Architecture, ModelWeights
from llmviz.model.graph import GraphContext
from llmviz.model.hparams import HParams
from llmviz.model.keys import Keys
from llmviz.model.tensors import TensorLoader

__all__ = ["Phi3"]


class Phi3(Architecture):
    """Pre-norm transformer whose matrices hold queries, keys, values, and gate and up, together."""

    name = "phi3"
    rope_type = "neox"
    partial_rotary = True
    sizes = {24: "1B", 32: "3B", 40: "14B"}

    # hyperparameters

    @staticmethod
    def load_arch_hparams(hp: HParams, keys: Keys) -> None:
        """RMS epsilon. A sliding window in the file is not used: llama.cpp looks at everything."""
        hp.f_norm_rms_eps = keys.rms_eps()

    # tensors

    @staticmethod
    def load_arch_tensors(hp: HParams, weights: ModelWeights, create: TensorLoader) -> None:
        """The attention may be fused; ``ffn_up`` is twice as wide."""
        t = create.create_tensor
        n_embd, n_ff, half = hp.n_embd, hp.n_ff(), hp.n_rot // 2
        create.create_output(hp, weights)
        for il, layer in enumerate(weights.layers):
            b = f"blk.{il}."
            layer.attn_norm = t(b + "attn_norm.weight", n_embd)
            create.create_qkv(layer, il, n_embd, n_embd, hp.n_embd_k_gqa(), hp.n_embd_k_gqa())
            layer.wo = t(b + "attn_output.weight", n_embd, n_embd)
            layer.ffn_norm = t(b + "ffn_norm.weight", n_embd)
            layer.ffn_down = t(b + "ffn_down.weight", n_ff, n_embd)
            layer.ffn_up = t(b + "ffn_up.weight", n_embd, 2 * n_ff)
            layer.rope_long = t("rope_factors_long.weight", half, required=False)
            layer.rope_short = t("rope_factors_short.weight", half, required=False)

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
            q, k = g.build_rope_qk(q, k, inp_pos, il, g.rope_factors(il))
            q = g.cb(ops.scale(q, g.head_scale()), "Qcur", il)
            cur = g.build_attn(inp_attn, layer.wo, None, q, k, v, 1.0, il)
            if il == g.n_layer - 1:
                cur = ops.get_rows(cur, inp_out_ids)
                residual = ops.get_rows(residual, inp_out_ids)
            residual = ops.add(cur, residual)
            cur = g.build_norm(residual, layer.ffn_norm, None, "rms", il)
            g.cb(cur, "ffn_norm", il)
            cur = g.build_ffn(
                cur, (layer.ffn_up, None), (None, None), (layer.ffn_down, None), il, act="swiglu"
            )
            g.cb(cur, "ffn_out", il)
            cur = g.cb(ops.add(residual, cur), "l_out", il)
        g.build_output(cur)
