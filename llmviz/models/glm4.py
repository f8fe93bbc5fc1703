"""GLM-4: norms before and after both halves of a layer, optionally M-RoPE. ↔ src/models/glm4.cpp"""

from __future__ import annotations

from typing import Any

from llmviz.ggml import ops
from llmviz.model.arch import Architecture, Layer, ModelWeights
from llmviz.model.graph import GraphContext
from llmviz.model.hparams import HParams
from llmviz.model.keys import Keys
from llmviz.model.tensors import TensorLoader

__all__ = ["GLM4"]


class GLM4(Architecture):
    """Fused SwiGLU, partial rotation; layers for multi-token prediction are left out."""

    name = "glm4"
    rope_type = "norm"
    partial_rotary = True
    sizes = {17: "1B", 40: "9B", 61: "32B"}

    # hyperparameters

    @staticmethod
    def load_arch_hparams(hp: HParams, keys: Keys) -> None:
        """RMS epsilon, and how many pairs follow time, height and width."""
        hp.f_norm_rms_eps = keys.rms_eps()
        sections = keys.get_or_arr("rope_sections", "{arch}.rope.dimension_sections", 4)
        if sections[0] > 0 and sections[1] > 0:
            hp.rope_sections = tuple(sections.tolist())
            hp.rope_type = "mrope"
        elif hp.origin["rope_sections"] == "default":
            del hp.origin["rope_sections"]

    # tensors

    @staticmethod
    def load_arch_tensors(hp: HParams, weights: ModelWeights, create: TensorLoader) -> None:
        """Four norms per layer; ``ffn_up`` is twice as wide."""
        t, n_embd = create.create_tensor, hp.n_embd
        create.create_output(hp, weights)
        for il, layer in enumerate(weights.layers):
            _layer_tensors(hp, layer, create, il)
        with create.skipping():
            for il in range(hp.n_layer, hp.n_layer_all):
                b = f"blk.{il}.nextn."
                _layer_tensors(hp, Layer(), create, il)
                t(b + "eh_proj.weight", 2 * n_embd, n_embd)
                for name in ("enorm", "hnorm", "shared_head_norm"):
                    t(f"{b}{name}.weight", n_embd, required=not name.startswith("shared"))
                for name in ("embed_tokens", "shared_head_head"):
                    t(f"{b}{name}.weight", n_embd, hp.n_vocab, required=False)

    # graph

    @staticmethod
    def build_graph(g: GraphContext) -> None:
        """One ubatch through all layers to the logits of the rows that are wanted."""
        mrope = g.rope_type == "mrope"
        settings: dict[str, Any] = {"sections": g.hparams.rope_sections} if mrope else {}
        cur = g.build_inp_embd(g.weights.tok_embd)
        inp_pos = g.build_inp_pos()
        inp_attn = g.build_attn_inp_kv()
        inp_out_ids = g.build_inp_out_ids()
        for il, layer in enumerate(g.weights.layers):
            residual = cur
            cur = g.cb(g.build_norm(cur, layer.attn_norm, None, "rms", il), "attn_norm", il)
            q, k, v = g.build_qkv_of_layer(layer, cur, il)
            q, k = g.build_rope_qk(q, k, inp_pos, il, **settings)
            cur = g.build_attn(inp_attn, layer.wo, None, q, k, v, g.head_scale(), il)
            if il == g.n_layer - 1:
                cur = ops.get_rows(cur, inp_out_ids)
                residual = ops.get_rows(residual, inp_out_ids)
            cur = g.build_norm(cur, layer.attn_post_norm, None, "rms", il)
            g.cb(cur, "post_attn_norm", il)
            ffn_inp = g.cb(ops.add(cur, residual), "ffn_inp", il)
            cur = g.cb(g.build_norm(ffn_inp, layer.ffn_norm, None, "rms", il), "ffn_norm", il)
            cur = g.build_ffn(
                cur, (layer.ffn_up, None), (None, None), (layer.ffn_down, None), il, act="swiglu"
            )
            g.cb(cur, "ffn_out", il)
            cur = g.build_norm(cur, layer.ffn_post_norm, None, "rms", il)
            g.cb(cur, "post_mlp_norm", il)
            cur = g.cb(ops.add(cur, ffn_inp), "l_out", il)
        g.build_output(cur)


def _layer_tensors(hp: HParams, layer: Layer, create: TensorLoader, il: int) -> None:
    t, n_embd, n_ff = create.create_tensor, hp.n_embd, hp.n_ff()
    b = f"blk.{il}."
    n_q = hp.n_embd_head_k * hp.n_head()
    layer.attn_norm = t(b + "attn_norm.weight", n_embd)
    create.create_qkv(layer, il, n_embd, n_q, hp.n_embd_k_gqa(), hp.n_embd_v_gqa())
    layer.wo = t(b + "attn_output.weight", n_q, n_embd)
    layer.attn_post_norm = t(b + "post_attention_norm.weight", n_embd)
    layer.ffn_norm = t(b + "ffn_norm.weight", n_embd)
    layer.ffn_down = t(b + "ffn_down.weight", n_ff, n_embd)
    layer.ffn_up = t(b + "ffn_up.weight", n_embd, 2 * n_ff)
    layer.ffn_post_norm = t(b + "post_ffw_norm.weight", n_embd)
