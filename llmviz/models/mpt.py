"""MPT: ALiBi or learned positions, clamped projections. ↔ src/models/mpt.cpp"""

from __future__ import annotations

from llmviz.errors import UnsupportedError
from llmviz.ggml import ops
from llmviz.model.arch import Architecture, ModelWeights
from llmviz.model.graph import GraphContext
from llmviz.model.hparams import HParams
from llmviz.model.keys import Keys
from llmviz.model.tensors import TensorLoader

__all__ = ["MPT"]


class MPT(Architecture):
    """Pre-norm transformer with layer norms; nearly every bias and norm is optional."""

    name = "mpt"
    rope_type = "none"
    sizes = {32: "7B", 48: "30B"}

    # hyperparameters

    @staticmethod
    def load_arch_hparams(hp: HParams, keys: Keys) -> None:
        """Layer norm epsilon, clamp, slope of the scores."""
        hp.f_norm_eps = keys.norm_eps()
        hp.f_clamp_kqv = keys.get("f_clamp_kqv", "{arch}.attention.clamp_kqv", "f32", 0.0)
        hp.f_max_alibi_bias = keys.get(
            "f_max_alibi_bias", "{arch}.attention.max_alibi_bias", "f32", 0.0
        )

    # tensors

    @staticmethod
    def load_arch_tensors(hp: HParams, weights: ModelWeights, create: TensorLoader) -> None:
        """Queries, keys and values are fused."""
        t = create.create_tensor
        n_embd, n_ff = hp.n_embd, hp.n_ff()
        n_qkv = n_embd + 2 * hp.n_embd_k_gqa()
        create.create_output(hp, weights)
        weights.pos_embd = t("position_embd.weight", n_embd, hp.n_ctx_train, required=False)
        weights.output_norm_b = t("output_norm.bias", n_embd, required=False)
        for il, layer in enumerate(weights.layers):
            b = f"blk.{il}."
            create.create_norm(layer, il, "attn_norm", n_embd, bias=None)
            layer.wqkv = t(b + "attn_qkv.weight", n_embd, n_qkv)
            layer.wqkv_b = t(b + "attn_qkv.bias", n_qkv, required=False)
            layer.wo = t(b + "attn_output.weight", n_embd, n_embd)
            layer.wo_b = t(b + "attn_output.bias", n_embd, required=False)
            create.create_norm(layer, il, "ffn_norm", n_embd, bias=None)
            create.create_mlp(layer, il, n_embd, n_ff, bias=None)
            if t(b + "attn_q_norm.weight", n_embd, required=False) is not None:
                raise UnsupportedError(
                    "norm of queries",
                    "mpt",
                    hint="llama.cpp loads such a file and then aborts: it normalizes windows on "
                    "the fused projection, which cannot be reshaped",
                )
            layer.ffn_act = t(b + "ffn.act.scales", n_ff, required=False)

    # graph

    @staticmethod
    def build_graph(g: GraphContext) -> None:
        """One ubatch through all layers to the logits of the rows that are wanted."""
        cur = g.build_inp_embd(g.weights.tok_embd)
        inp_attn = g.build_attn_inp_kv()
        if g.weights.pos_embd is not None:
            pos = ops.get_rows(g.weights.pos_embd, g.build_inp_pos())
            cur = g.cb(ops.add(cur, g.cb(pos, "pos_embd", -1)), "inpL", -1)
        inp_out_ids = g.build_inp_out_ids()
        for il, layer in enumerate(g.weights.layers):
            residual = cur
            cur = g.build_norm(cur, layer.attn_norm, layer.attn_norm_b, "layer", il)
            g.cb(cur, "attn_norm", il)
            q, k, v = g.build_qkv_of_layer(layer, cur, il)
            for x, name in ((q, "Qcur"), (k, "Kcur"), (v, "Vcur")):
                g.cb(x, name, il)
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
                act_scales=layer.ffn_act,
            )
            g.cb(cur, "ffn_out", il)
            cur = g.cb(ops.add(cur, ffn_inp), "l_out", il)
        g.build_output(cur, "layer")
