"""OLMo 2 and 3: norms after attention and feed-forward, none before. ↔ src/models/olmo2.cpp"""

from __future__ import annotations

from typing import Any

from llmviz.ggml import ops
from llmviz.model.arch import Architecture, ModelWeights
from llmviz.model.graph import GraphContext
from llmviz.model.hparams import HParams
from llmviz.model.keys import Keys
from llmviz.model.tensors import TensorLoader

__all__ = ["OLMo2"]


class OLMo2(Architecture):
    """Queries and keys are normalized over all heads; version 3 has sliding windows."""

    name = "olmo2"
    rope_type = "neox"
    sizes = {16: "1B", 32: "7B", 40: "13B", 64: "32B"}

    # hyperparameters

    @staticmethod
    def load_arch_hparams(hp: HParams, keys: Keys) -> None:
        """RMS epsilon, and a window where the file has one."""
        hp.f_norm_rms_eps = keys.rms_eps()
        hp.n_swa = keys.get("n_swa", "{arch}.attention.sliding_window", "u32", 0)
        if hp.n_swa > 0:
            hp.swa_type = "standard"
            hp.load_swa_pattern(keys, 4)
            hp.rope_freq_base_train_swa = keys.get(
                "rope_freq_base_train_swa",
                "{arch}.rope.freq_base_swa",
                "f32",
                hp.rope_freq_base_train,
            )
            hp.rope_freq_scale_train_swa = 1.0

    # tensors

    @staticmethod
    def load_arch_tensors(hp: HParams, weights: ModelWeights, create: TensorLoader) -> None:
        """Heads are ``n_embd / n_head`` wide."""
        t = create.create_tensor
        n_embd, n_kv = hp.n_embd, hp.n_embd_k_gqa()
        create.create_output(hp, weights, tied=False)
        for il, layer in enumerate(weights.layers):
            b = f"blk.{il}."
            create.create_qkv(layer, il, n_embd, n_embd, n_kv, n_kv)
            layer.wo = t(b + "attn_output.weight", n_embd, n_embd)
            layer.attn_q_norm = t(b + "attn_q_norm.weight", n_embd)
            layer.attn_k_norm = t(b + "attn_k_norm.weight", n_kv)
            layer.attn_post_norm = t(b + "post_attention_norm.weight", n_embd)
            create.create_ffn(layer, il, n_embd, hp.n_ff())
            layer.ffn_post_norm = t(b + "post_ffw_norm.weight", n_embd)

    # graph

    @staticmethod
    def build_graph(g: GraphContext) -> None:
        """One ubatch through all layers to the logits of the rows that are wanted."""
        hp, head = g.hparams, g.hparams.n_embd_head_k
        cur = g.build_inp_embd(g.weights.tok_embd)
        inp_pos = g.build_inp_pos()
        inp_attn = g.build_attn_inp()
        inp_out_ids = g.build_inp_out_ids()
        for il, layer in enumerate(g.weights.layers):
            residual = cur
            n_head, n_head_kv = hp.n_head(il), hp.n_head_kv(il)
            q, k, v = g.build_qkv(layer, cur, head, n_head, n_head_kv, il, reshape=False)
            for x, name in ((q, "Qcur"), (k, "Kcur"), (v, "Vcur")):
                g.cb(x, name, il)
            q = g.cb(g.build_norm(q, layer.attn_q_norm, None, "rms", il), "Qcur_normed", il)
            k = g.cb(g.build_norm(k, layer.attn_k_norm, None, "rms", il), "Kcur_normed", il)
            q = ops.reshape(q, head, n_head, g.n_tokens)
            k = ops.reshape(k, head, n_head_kv, g.n_tokens)
            v = ops.reshape(v, head, n_head_kv, g.n_tokens)
            plain: dict[str, Any] = {}
            if hp.is_swa(il):  # a window needs no stretching
                plain = {"freq_scale": 1.0, "ext_factor": 0.0, "attn_factor": 1.0}
            q, k = g.build_rope_qk(q, k, inp_pos, il, **plain)
            g.cb(v, "Vcur", il)
            cur = g.build_attn(inp_attn, layer.wo, None, q, k, v, g.head_scale(), il)
            if il == g.n_layer - 1:
                cur = ops.get_rows(cur, inp_out_ids)
                residual = ops.get_rows(residual, inp_out_ids)
            cur = g.build_norm(cur, layer.attn_post_norm, None, "rms", il)
            g.cb(cur, "attn_post_norm", il)
            ffn_inp = g.cb(ops.add(cur, residual), "ffn_inp", il)
            cur = g.build_ffn(
                ffn_inp, (layer.ffn_up, None), (layer.ffn_gate, None), (layer.ffn_down, None), il
            )
            g.cb(cur, "ffn_out", il)
            cur = g.build_norm(cur, layer.ffn_post_norm, None, "rms", -1)
            g.cb(cur, "ffn_post_norm", -1)
            cur = g.cb(ops.add(cur, ffn_inp), "l_out", il)
        g.build_output(cur)
