"""The graph builder: the blocks that all transformer architectures are made of.

↔ src/llama-graph.cpp (llm_graph_context)

A model file calls `build_*` and names tensors with `cb`; it knows nothing of who computes or
watches. The blocks are in `graph_base` (names, products, norms), `graph_attention` and `graph_ffn`;
here are the inputs and the head.
"""

from __future__ import annotations

from llmviz.ggml import ops
from llmviz.ggml.graph import Tensor
from llmviz.model.graph_attention import AttentionBlocks
from llmviz.model.graph_ffn import FeedForwardBlocks
from llmviz.model.graph_result import GraphParams, GraphResult
from llmviz.model.inputs import (
    InputAttnKV,
    InputAttnKVISWA,
    InputAttnTemp,
    InputEmbd,
    InputOutIds,
    InputPos,
    InputScaleRows,
)

__all__ = ["GraphContext", "GraphParams", "GraphResult"]


class GraphContext(AttentionBlocks, FeedForwardBlocks):
    """Builds one graph; see the module's docstring."""

    # inputs

    def build_inp_embd(self, tok_embd: Tensor | None) -> Tensor:
        """Embedding rows of the ubatch's tokens, scaled where the model does: ``[n_embd,
        n_tokens]``.
        """
        assert tok_embd is not None
        inp = InputEmbd.make(self.params)
        self.res.inputs.append(inp)
        cur = ops.get_rows(tok_embd, inp.tokens)
        if self.hparams.f_embedding_scale != 0.0:
            cur = ops.scale(cur, self.hparams.f_embedding_scale)
        self.cb(cur, "embd", -1)
        self.gf.build_forward_expand(cur)
        return cur

    def build_inp_embd_scaled(self, tok_embd: Tensor | None, scale: float) -> Tensor:
        """Embedding rows, each multiplied with what an input says: `scale` for tokens."""
        assert tok_embd is not None
        inp = InputEmbd.make(self.params)
        rows = InputScaleRows.make(self.params, scale)
        self.res.inputs += [inp, rows]
        cur = ops.get_rows(tok_embd, inp.tokens)
        self.gf.build_forward_expand(cur)
        return self.cb(ops.mul(cur, rows.scale_rows), "inp_scaled", -1)

    def build_inp_pos(self) -> Tensor:
        """Positions: int32 ``[n_tokens]``; with M-RoPE ``[4 * n_tokens]``."""
        inp = InputPos.make(self.params)
        self.res.inputs.append(inp)
        return inp.pos

    def build_inp_attn_scale(self) -> Tensor:
        """What queries far into the text are multiplied with: float32 ``[1, 1, n_tokens]``."""
        inp = InputAttnTemp.make(self.params)
        self.res.inputs.append(inp)
        return inp.attn_scale

    def build_inp_out_ids(self) -> Tensor:
        """Rows whose logits are wanted: int32 ``[n_outputs]``."""
        inp = InputOutIds.make(self.params)
        self.res.inputs.append(inp)
        return inp.out_ids

    def build_attn_inp_kv(self) -> InputAttnKV:
        """Cache indices and mask."""
        inp = InputAttnKV.make(self.params)
        self.res.inputs.append(inp)
        return inp

    def build_attn_inp_kv_iswa(self) -> InputAttnKVISWA:
        """Cache indices and mask of the dense layers, and of those with a window."""
        inp = InputAttnKVISWA.make(self.params)
        self.res.inputs += [inp.base, inp.swa]
        return inp

    def build_attn_inp(self) -> InputAttnKV | InputAttnKVISWA:
        """The one of the two that fits the model's memory."""
        if self.hparams.swa_type != "none":
            return self.build_attn_inp_kv_iswa()
        return self.build_attn_inp_kv()

    # the end of a decoder

    def build_output(self, cur: Tensor, norm: str = "rms") -> None:
        """Norm, output matrix and its bias: the graph's results."""
        cur = self.build_output_norm(cur, norm)
        cur = self.build_lora_mm(self.weights.output, cur)
        if self.weights.output_b is not None:
            cur = ops.add(cur, self.weights.output_b)
        self.build_logits(cur)

    def build_output_norm(self, cur: Tensor, norm: str = "rms") -> Tensor:
        """The last norm, which is also the tokens' embedding."""
        w = self.weights
        cur = self.build_norm(cur, w.output_norm, w.output_norm_b, norm, -1)
        self.res.t_embd = self.cb(cur, "result_norm", -1)
        return cur

    def build_logits(self, cur: Tensor) -> None:
        """Name the logits and end the graph."""
        self.res.t_logits = self.cb(cur, "result_output", -1)
        self.gf.build_forward_expand(cur)
