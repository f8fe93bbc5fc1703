"""DeciLM and Nemotron 51B: layers with head counts and widths of their own, or without either half.

↔ src/models/deci.cpp
"""

from __future__ import annotations

from llmviz.ggml import ops
from llmviz.model.arch import Architecture, ModelWeights
from llmviz.model.graph import GraphContext
from llmviz.model.hparams import HParams
from llmviz.model.hparams_check import refuse
from llmviz.model.keys import Keys
from llmviz.model.tensors import TensorLoader

__all__ = ["Deci"]


class Deci(Architecture):
    """llama with per-layer arrays.

    A layer with query heads but no key/value heads has a matrix in place of attention ("linear
    attention"); one without heads, or with a feed-forward width of 0, leaves that half out.
    """

    name = "deci"
    rope_type = "norm"
    layers_differ = True
    sizes = {32: "7B", 80: "70B", 162: "405B"}

    # hyperparameters

    @staticmethod
    def load_arch_hparams(hp: HParams, keys: Keys) -> None:
        """RMS epsilon. In the last layer the wanted rows are picked between the halves."""
        hp.f_norm_rms_eps = keys.rms_eps()
        if hp.n_ff(hp.n_layer - 1) == 0:
            why = f"the last layer, {hp.n_layer - 1}, has no feed-forward network; it needs one"
            refuse(keys, "{arch}.feed_forward_length", why)

    # tensors

    @staticmethod
    def load_arch_tensors(hp: HParams, weights: ModelWeights, create: TensorLoader) -> None:
        """What a layer has follows from its head counts and width."""
        t = create.create_tensor
        n_embd = hp.n_embd
        create.create_output(hp, weights)
        for il, layer in enumerate(weights.layers):
            b = f"blk.{il}."
            n_head, n_head_kv, n_ff = hp.n_head(il), hp.n_head_kv(il), hp.n_ff(il)
            if n_head > 0 or n_head_kv > 0:
                layer.attn_norm = t(b + "attn_norm.weight", n_embd)
            if n_head_kv > 0:
                n_q = hp.n_embd_head_k * n_head
                n_k, n_v = hp.n_embd_k_gqa(il), hp.n_embd_v_gqa(il)
                create.create_qkv(layer, il, n_embd, n_q, n_k, n_v)
                layer.wo = t(b + "attn_output.weight", n_q, n_embd)
            elif n_head > 0:
                layer.wo = t(b + "attn_output.weight", n_embd, n_embd)
            layer.wo_b = t(b + "attn_output.bias", n_embd, required=False)
            create.create_rope_factors(layer, hp)
            if n_ff > 0:
                layer.ffn_norm = t(b + "ffn_norm.weight", n_embd)
                create.create_ffn(layer, il, n_embd, n_ff, biases=True)

    # graph

    @staticmethod
    def build_graph(g: GraphContext) -> None:
        """One ubatch through all layers to the logits of the rows that are wanted."""
        hp = g.hparams
        cur = g.build_inp_embd(g.weights.tok_embd)
        inp_pos = g.build_inp_pos()
        inp_attn = g.build_attn_inp_kv()
        inp_out_ids = g.build_inp_out_ids()
        for il, layer in enumerate(g.weights.layers):
            residual = before = cur
            n_head, n_head_kv = hp.n_head(il), hp.n_head_kv(il)
            if n_head > 0:
                cur = g.cb(g.build_norm(cur, layer.attn_norm, None, "rms", il), "attn_norm", il)
            if n_head > 0 and n_head_kv == 0:
                cur = g.cb(g.build_lora_mm(layer.wo, cur), "wo", il)
            elif n_head > 0:
                q, k, v = g.build_qkv_of_layer(layer, cur, il)
                q, k = g.build_rope_qk(q, k, inp_pos, il, g.rope_factors(il))
                cur = g.build_attn(inp_attn, layer.wo, layer.wo_b, q, k, v, g.kq_scale(), il)
            if il == g.n_layer - 1:
                cur = ops.get_rows(cur, inp_out_ids)
                residual = ops.get_rows(residual, inp_out_ids)
            if hp.n_ff(il) == 0:
                cur = before  # llama.cpp goes on with the layer's input
                continue
            ffn_inp = cur
            if n_head > 0:
                ffn_inp = g.cb(ops.add(cur, residual), "ffn_inp", il)
            cur = g.cb(g.build_norm(ffn_inp, layer.ffn_norm, None, "rms", il), "ffn_norm", il)
            cur = g.build_ffn(
                cur,
                (layer.ffn_up, layer.ffn_up_b),
                (layer.ffn_gate, layer.ffn_gate_b),
                (layer.ffn_down, layer.ffn_down_b),
                il,
            )
            g.cb(cur, "ffn_out", il)
            cur = g.cb(ops.add(cur, ffn_inp), "l_out", il)
        g.build_output(cur)
