"""LLaMA and everything shaped like it: Llama 1-3, SmolLM, Mistral, Mixtral.

↔ src/models/llama.cpp
"""

from __future__ import annotations

from llmviz.ggml import ops
from llmviz.ggml.graph import Tensor
from llmviz.model.arch import Architecture, Layer, ModelWeights
from llmviz.model.graph import GraphContext
from llmviz.model.hparams import HParams
from llmviz.model.inputs import InputAttnKV
from llmviz.model.keys import Keys
from llmviz.model.tensors import TensorLoader

__all__ = ["Llama"]


class Llama(Architecture):
    """Pre-norm transformer: RMS norm, rotary grouped-query attention, SwiGLU feed-forward (or a
    mixture of experts of that kind).
    """

    name = "llama"
    rope_type = "norm"
    sizes = {
        16: "1B",
        22: "1B",
        26: "3B",
        28: "3B",
        30: "256M",
        36: "8B",
        40: "13B",
        48: "34B",
        60: "30B",
    }

    # hyperparameters

    @staticmethod
    def load_arch_hparams(hp: HParams, keys: Keys) -> None:
        """RMS epsilon."""
        hp.f_norm_rms_eps = keys.rms_eps()

    @classmethod
    def size_name(cls, hp: HParams) -> str:
        """Name by depth, as llama.cpp guesses it."""
        if hp.n_expert == 8:
            return {32: "8x7B", 56: "8x22B"}.get(hp.n_layer, "?B")
        if hp.n_layer == 32:
            return "3B" if hp.n_vocab == 49152 else "7B" if hp.n_vocab < 40000 else "8B"
        if hp.n_layer == 80:
            return "65B" if hp.n_head() == hp.n_head_kv() else "70B"
        return super().size_name(hp)

    # tensors

    @staticmethod
    def load_arch_tensors(hp: HParams, weights: ModelWeights, create: TensorLoader) -> None:
        """Embedding, output, and per layer: norms, attention, feed-forward; biases where the file
        has them.
        """
        t = create.create_tensor
        n_embd, n_ff = hp.n_embd, hp.n_ff()
        n_q = hp.n_embd_head_k * hp.n_head()
        create.create_output(hp, weights)
        for il, layer in enumerate(weights.layers):
            b = f"blk.{il}."
            layer.attn_norm = t(b + "attn_norm.weight", n_embd)
            create.create_qkv(layer, il, n_embd, n_q, hp.n_embd_k_gqa(), hp.n_embd_v_gqa())
            layer.wo = t(b + "attn_output.weight", n_q, n_embd)
            layer.wo_b = t(b + "attn_output.bias", n_embd, required=False)
            layer.ffn_norm = t(b + "ffn_norm.weight", n_embd)
            create.create_rope_factors(layer, hp)
            if hp.n_expert == 0:
                create.create_ffn(layer, il, n_embd, n_ff, biases=True)
            else:
                create.create_experts(layer, il, n_embd, n_ff, hp.n_expert, gate=False)

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
            cur = _attention(g, layer, cur, inp_pos, inp_attn, il)
            if il == g.n_layer - 1:  # from here on only rows whose logits are wanted
                cur = ops.get_rows(cur, inp_out_ids)
                residual = ops.get_rows(residual, inp_out_ids)
            ffn_inp = g.cb(ops.add(cur, residual), "ffn_inp", il)
            cur = g.cb(g.build_norm(ffn_inp, layer.ffn_norm, None, "rms", il), "ffn_norm", il)
            cur = _feed_forward(g, layer, cur, il)
            cur = g.cb(ops.add(cur, ffn_inp), "l_out", il)
        g.build_output(cur)


def _attention(
    g: GraphContext,
    layer: Layer,
    cur: Tensor,
    inp_pos: Tensor,
    inp: InputAttnKV,
    il: int,
) -> Tensor:
    hp = g.hparams
    factors = g.rope_factors(il)
    q, k, v = g.build_qkv(layer, cur, hp.n_embd_head_k, hp.n_head(il), hp.n_head_kv(il), il)
    q = g.build_rope(q, inp_pos, factors, "Qcur", il)
    k = g.build_rope(k, inp_pos, factors, "Kcur", il)
    cur = g.build_attn(inp, layer.wo, layer.wo_b, q, k, v, g.kq_scale(), il)
    return g.cb(cur, "attn_out", il)


def _feed_forward(g: GraphContext, layer: Layer, cur: Tensor, il: int) -> Tensor:
    if layer.ffn_gate_inp is None:
        cur = g.build_ffn(
            cur,
            (layer.ffn_up, layer.ffn_up_b),
            (layer.ffn_gate, layer.ffn_gate_b),
            (layer.ffn_down, layer.ffn_down_b),
            il,
        )
        return g.cb(cur, "ffn_out", il)
    return g.build_moe_ffn(
        cur,
        (layer.ffn_gate_inp, None),
        (layer.ffn_up_exps, None),
        (layer.ffn_gate_exps, None),
        (layer.ffn_down_exps, None),
        il,
        norm_w=True,
    )
