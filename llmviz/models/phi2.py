"""Phi 1 to 2: attention and feed-forward side by side, both from one norm. ↔ src/models/phi2.cpp"""

from __future__ import annotations

from llmviz.ggml import ops
from llmviz.model.arch import Architecture, ModelWeights
from llmviz.model.graph import GraphContext
from llmviz.model.hparams import HParams
from llmviz.model.keys import Keys
from llmviz.model.tensors import TensorLoader

__all__ = ["Phi2"]


class Phi2(Architecture):
    """Parallel residual, layer norms, partial rotation, biases everywhere."""

    name = "phi2"
    rope_type = "neox"
    partial_rotary = True
    sizes = {24: "1B", 32: "3B"}

    # hyperparameters

    @staticmethod
    def load_arch_hparams(hp: HParams, keys: Keys) -> None:
        """Layer norm epsilon."""
        hp.f_norm_eps = keys.norm_eps()

    # tensors

    @staticmethod
    def load_arch_tensors(hp: HParams, weights: ModelWeights, create: TensorLoader) -> None:
        """Weights and biases; the attention may be fused."""
        t = create.create_tensor
        n_embd, n_ff = hp.n_embd, hp.n_ff()
        create.create_output(hp, weights, tied=False)
        weights.output_norm_b = t("output_norm.bias", n_embd)
        weights.output_b = t("output.bias", hp.n_vocab)
        for il, layer in enumerate(weights.layers):
            b = f"blk.{il}."
            create.create_norm(layer, il, "attn_norm", n_embd, bias=True)
            create.create_qkv(layer, il, n_embd, n_embd, hp.n_embd_k_gqa(), hp.n_embd_k_gqa())
            layer.wo = t(b + "attn_output.weight", n_embd, n_embd)
            layer.wo_b = t(b + "attn_output.bias", n_embd)
            layer.ffn_down = t(b + "ffn_down.weight", n_ff, n_embd)
            layer.ffn_down_b = t(b + "ffn_down.bias", n_embd)
            layer.ffn_up = t(b + "ffn_up.weight", n_embd, n_ff)
            layer.ffn_up_b = t(b + "ffn_up.bias", n_ff)

    # graph

    @staticmethod
    def build_graph(g: GraphContext) -> None:
        """One ubatch through all layers to the logits of the rows that are wanted."""
        w = g.weights
        cur = g.build_inp_embd(w.tok_embd)
        inp_pos = g.build_inp_pos()
        inp_attn = g.build_attn_inp_kv()
        inp_out_ids = g.build_inp_out_ids()
        for il, layer in enumerate(w.layers):
            residual = cur
            normed = g.build_norm(cur, layer.attn_norm, layer.attn_norm_b, "layer", il)
            g.cb(normed, "attn_norm", il)
            q, k, v = g.build_qkv_of_layer(layer, normed, il)
            q, k = g.build_rope_qk(q, k, inp_pos, il)
            q = ops.scale(q, g.head_scale())
            cur = g.build_attn(inp_attn, layer.wo, layer.wo_b, q, k, v, 1.0, il)
            if il == g.n_layer - 1:
                cur = ops.get_rows(cur, inp_out_ids)
                residual = ops.get_rows(residual, inp_out_ids)
                normed = ops.get_rows(normed, inp_out_ids)
            ffn = g.build_ffn(
                normed,
                (layer.ffn_up, layer.ffn_up_b),
                (None, None),
                (layer.ffn_down, layer.ffn_down_b),
                il,
                act="gelu",
            )
            g.cb(ffn, "ffn_out", il)
            cur = g.cb(ops.add(ops.add(cur, ffn), residual), "l_out", il)
        cur = g.build_lora_mm(w.output, g.build_output_norm(cur, "layer"))
        assert w.output_b is not None
        g.build_logits(ops.add(g.cb(cur, "result_output_no_bias", -1), w.output_b))
