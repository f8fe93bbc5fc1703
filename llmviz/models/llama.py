"""LLaMA and everything shaped like it: Llama 1-3, SmolLM, Mistral. ↔ src/models/llama.cpp"""

from __future__ import annotations

from llmviz.errors import GGUFError, UnsupportedError
from llmviz.ggml import ops
from llmviz.ggml.graph import Tensor
from llmviz.model.arch import Architecture, Layer, ModelWeights
from llmviz.model.graph import GraphContext
from llmviz.model.hparams import HParams
from llmviz.model.inputs import InputAttnKV
from llmviz.model.keys import Keys
from llmviz.model.tensors import TensorLoader

__all__ = ["Llama"]

SIZES = {
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


class Llama(Architecture):
    """Pre-norm transformer: RMS norm, rotary grouped-query attention, SwiGLU feed-forward."""

    name = "llama"
    rope_type = "norm"

    # hyperparameters

    @staticmethod
    def load_arch_hparams(hp: HParams, keys: Keys) -> None:
        """RMS epsilon; all layers alike, head size and rotary dimensions must agree."""
        hp.f_norm_rms_eps = keys.get(
            "f_norm_rms_eps", "{arch}.attention.layer_norm_rms_epsilon", "f32"
        )
        for name, values in (
            ("attention.head_count", hp.n_head_arr),
            ("attention.head_count_kv", hp.n_head_kv_arr),
            ("feed_forward_length", hp.n_ff_arr),
        ):
            if (values != values[0]).any():
                raise GGUFError(
                    f"layers differ in {name}: {values.tolist()}; in this architecture all layers "
                    "have the same shape",
                    field=keys.name("{arch}." + name),
                    path=keys.gguf.path,
                )
        if hp.n_rot != hp.n_embd_head_k:
            raise GGUFError(
                f"invalid n_rot: {hp.n_rot}, expected {hp.n_embd_head_k}",
                field=keys.name("{arch}.rope.dimension_count"),
                path=keys.gguf.path,
            )
        if hp.n_embd_head_k != hp.n_embd_head_v:
            raise GGUFError(
                f"heads of {hp.n_embd_head_k} for keys and {hp.n_embd_head_v} for values: "
                "must be equal",
                field=keys.name("{arch}.attention.value_length"),
                path=keys.gguf.path,
            )
        if hp.n_expert:
            raise UnsupportedError(
                "feed-forward kind",
                f"mixture of {hp.n_expert} experts",
                supported=["dense"],
                hint="This version runs dense llama models only",
            )

    @staticmethod
    def size_name(hp: HParams) -> str:
        """Name by depth, as llama.cpp guesses it."""
        if hp.n_layer == 32:
            return "3B" if hp.n_vocab == 49152 else "7B" if hp.n_vocab < 40000 else "8B"
        if hp.n_layer == 80:
            return "65B" if hp.n_head() == hp.n_head_kv() else "70B"
        return SIZES.get(hp.n_layer, "?B")

    # tensors

    @staticmethod
    def load_arch_tensors(hp: HParams, weights: ModelWeights, create: TensorLoader) -> None:
        """Embedding, output, and per layer: norms, attention, feed-forward; biases where the file
        has them.
        """
        t = create.create_tensor
        n_embd, n_ff = hp.n_embd, hp.n_ff()
        n_q, n_k, n_v = hp.n_embd_head_k * hp.n_head(), hp.n_embd_k_gqa(), hp.n_embd_v_gqa()
        weights.tok_embd = t("token_embd.weight", n_embd, hp.n_vocab)
        weights.output_norm = t("output_norm.weight", n_embd)
        weights.output = t("output.weight", n_embd, hp.n_vocab, required=False) or weights.tok_embd
        rope_freqs = t("rope_freqs.weight", hp.n_rot // 2, required=False)
        for il, layer in enumerate(weights.layers):
            b = f"blk.{il}."
            layer.attn_norm = t(b + "attn_norm.weight", n_embd)
            create.create_qkv(layer, il, n_embd, n_q, n_k, n_v)
            layer.wo = t(b + "attn_output.weight", n_q, n_embd)
            layer.wo_b = t(b + "attn_output.bias", n_embd, required=False)
            layer.rope_freqs = rope_freqs
            layer.ffn_norm = t(b + "ffn_norm.weight", n_embd)
            layer.ffn_gate = t(b + "ffn_gate.weight", n_embd, n_ff)
            layer.ffn_up = t(b + "ffn_up.weight", n_embd, n_ff)
            layer.ffn_down = t(b + "ffn_down.weight", n_ff, n_embd)
            layer.ffn_gate_b = t(b + "ffn_gate.bias", n_ff, required=False)
            layer.ffn_up_b = t(b + "ffn_up.bias", n_ff, required=False)
            layer.ffn_down_b = t(b + "ffn_down.bias", n_embd, required=False)

    # graph

    @staticmethod
    def build_graph(g: GraphContext) -> None:
        """One ubatch through all layers to the logits of the rows that are wanted."""
        w = g.weights
        assert w.tok_embd is not None and w.output is not None
        cur = g.build_inp_embd(w.tok_embd)
        inp_pos = g.build_inp_pos()
        inp_attn = g.build_attn_inp_kv()
        inp_out_ids = g.build_inp_out_ids()
        for il, layer in enumerate(w.layers):
            residual = cur
            cur = g.cb(g.build_norm(cur, layer.attn_norm, None, "rms", il), "attn_norm", il)
            cur = _attention(g, layer, cur, inp_pos, inp_attn, il)
            if il == g.n_layer - 1:  # from here on only rows whose logits are wanted
                cur = ops.get_rows(cur, inp_out_ids)
                residual = ops.get_rows(residual, inp_out_ids)
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
        cur = g.cb(g.build_norm(cur, w.output_norm, None, "rms", -1), "result_norm", -1)
        g.res.t_embd = cur
        cur = g.cb(g.build_lora_mm(w.output, cur), "result_output", -1)
        g.res.t_logits = cur
        g.gf.build_forward_expand(cur)


def _attention(
    g: GraphContext, layer: Layer, cur: Tensor, inp_pos: Tensor, inp: InputAttnKV, il: int
) -> Tensor:
    hp = g.hparams
    factors = g.rope_factors(il)
    q, k, v = g.build_qkv(layer, cur, hp.n_embd_head_k, hp.n_head(il), hp.n_head_kv(il), il)
    q = g.build_rope(q, inp_pos, factors, "Qcur", il)
    k = g.build_rope(k, inp_pos, factors, "Kcur", il)
    cur = g.build_attn(inp, layer.wo, layer.wo_b, q, k, v, g.kq_scale(), il)
    return g.cb(cur, "attn_out", il)
