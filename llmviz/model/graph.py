"""The graph builder: the blocks that all transformer architectures are made of.

↔ src/llama-graph.cpp (llm_graph_context)

A model file calls `build_*` and names tensors with `cb`; it knows nothing of who computes or
watches.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from math import sqrt
from types import FrameType
from typing import Any

from llmviz.batch import Ubatch
from llmviz.errors import UnsupportedError
from llmviz.ggml import ops
from llmviz.ggml.graph import Graph, Tensor
from llmviz.model.arch import Layer, ModelWeights
from llmviz.model.cparams import CParams
from llmviz.model.hparams import HParams
from llmviz.model.inputs import GraphInput, InputAttnKV, InputEmbd, InputOutIds, InputPos
from llmviz.model.kv_tensors import KVTensors

__all__ = ["GraphContext", "GraphParams", "GraphResult"]

_MODELS = os.path.join("llmviz", "models") + os.sep  # one file for each architecture
_MAX_ORIGIN = 6


@dataclass
class GraphParams:
    """Everything a graph's topology follows from. ↔ llm_graph_params

    Attributes
    ----------
    mctx : llmviz.memory.kv_cache.KVCacheContext
        The memory's plan for this ubatch: n_kv, slots.
    kv : KVTensors
        The cache as graph leaves.
    n_outputs : int
        Rows whose logits are wanted.
    """

    hparams: HParams
    cparams: CParams
    weights: ModelWeights
    ubatch: Ubatch
    mctx: Any
    kv: KVTensors
    n_outputs: int
    streams: list[int] = field(init=False)

    def __post_init__(self) -> None:
        # the plan moves on to the next ubatch, a graph is compared with the one it was built for
        self.streams = list(self.mctx.sinfo.strm)

    def allow_reuse(self, other: GraphParams) -> bool:
        """True where a graph built for `other` has the topology this ubatch needs."""
        a, b = self.ubatch, other.ubatch
        same_streams = self.cparams.kv_unified or (
            list(a.seq_id_unq) == list(b.seq_id_unq) and self.streams == other.streams
        )
        return (
            a.n_tokens == b.n_tokens
            and a.n_seq_tokens == b.n_seq_tokens
            and a.n_seqs == b.n_seqs
            and a.n_seqs_unq == b.n_seqs_unq
            and bool(a.equal_seqs) == bool(b.equal_seqs)
            and same_streams
            and self.n_outputs == other.n_outputs
            and self.weights is other.weights
            and self.kv is other.kv
        )


@dataclass
class GraphResult:
    """A built graph, its inputs and the tensors that are read after it has run.

    ↔ llm_graph_result
    """

    params: GraphParams
    gf: Graph = field(default_factory=Graph)
    inputs: list[GraphInput] = field(default_factory=list)
    t_embd: Tensor | None = None
    t_logits: Tensor | None = None

    def outputs(self) -> list[Tensor]:
        """Results whose memory must outlive the run."""
        return [t for t in (self.t_embd, self.t_logits) if t is not None]

    def can_reuse(self, params: GraphParams) -> bool:
        """True where only the inputs' data changes. ↔ llm_graph_result::can_reuse"""
        if not params.allow_reuse(self.params):
            return False
        return all(inp.can_reuse(params) for inp in self.inputs)

    def set_inputs(self, params: GraphParams) -> None:
        """Fill every input for the ubatch in `params`."""
        self.params = params
        for inp in self.inputs:
            inp.set_input(params)


class GraphContext:
    """Builds one graph; see the module's docstring."""

    def __init__(self, params: GraphParams, rope_type: str) -> None:
        self.params = params
        self.hparams = params.hparams
        self.cparams = params.cparams
        self.weights = params.weights
        self.n_layer = params.hparams.n_layer
        self.n_tokens = params.ubatch.n_tokens
        self.n_rot = params.hparams.n_rot
        self.rope_type = rope_type
        self.res = GraphResult(params)
        self.gf = self.res.gf

    def cb(self, cur: Tensor, name: str, il: int) -> Tensor:
        """Name a tensor, ``name-il`` inside a layer, and note the lines that asked for it."""
        cur.origin = _origin(sys._getframe(1))
        return cur.set_name(name, il)

    # inputs

    def build_inp_embd(self, tok_embd: Tensor) -> Tensor:
        """Embedding rows of the ubatch's tokens: ``[n_embd, n_tokens]``."""
        inp = InputEmbd.make(self.params)
        self.res.inputs.append(inp)
        cur = self.cb(ops.get_rows(tok_embd, inp.tokens), "embd", -1)
        self.gf.build_forward_expand(cur)
        return cur

    def build_inp_pos(self) -> Tensor:
        """Positions: int32 ``[n_tokens]``."""
        inp = InputPos.make(self.params)
        self.res.inputs.append(inp)
        return inp.pos

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

    # blocks

    def build_norm(
        self, cur: Tensor, mw: Tensor | None, mb: Tensor | None, kind: str, il: int
    ) -> Tensor:
        """Normalize each row, then weight and bias. `kind`: ``"rms"``."""
        if kind != "rms":
            raise UnsupportedError("norm", kind, supported=["rms"])
        cur = ops.rms_norm(cur, self.hparams.f_norm_rms_eps)
        if mw is not None or mb is not None:
            self.cb(cur, "norm", il)
        if mw is not None:
            cur = ops.mul(cur, mw)
            if mb is not None:
                self.cb(cur, "norm_w", il)
        return cur if mb is None else ops.add(cur, mb)

    def build_lora_mm(self, w: Tensor, cur: Tensor) -> Tensor:
        """``w · cur``; the place where LoRA deltas would be added."""
        return ops.mul_mat(w, cur)

    def build_qkv(
        self, layer: Layer, cur: Tensor, n_embd_head: int, n_head: int, n_head_kv: int, il: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys, values: ``[n_embd_head, n_head, n_tokens]`` each (n_head_kv heads for K
        and V).
        """
        heads = (n_head, n_head_kv, n_head_kv)
        if layer.wqkv is not None:
            return self._build_fused_qkv(layer, cur, n_embd_head, heads, il)
        parts = (
            ("Qcur", layer.wq, layer.wq_b),
            ("Kcur", layer.wk, layer.wk_b),
            ("Vcur", layer.wv, layer.wv_b),
        )
        made = []
        for name, w, b in parts:
            assert w is not None
            x = self.cb(self.build_lora_mm(w, cur), name, il)
            if b is not None:
                x = self.cb(ops.add(x, b), name, il)
            made.append(x)
        q, k, v = (
            self.cb(ops.reshape(x, n_embd_head, n, self.n_tokens), name, il)
            for (name, _, _), x, n in zip(parts, made, heads, strict=True)
        )
        return q, k, v

    def _build_fused_qkv(
        self, layer: Layer, cur: Tensor, n_embd_head: int, heads: tuple[int, int, int], il: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One product for all three; queries, keys and values are windows on its rows."""
        assert layer.wqkv is not None
        qkv = self.cb(self.build_lora_mm(layer.wqkv, cur), "wqkv", il)
        if layer.wqkv_b is not None:
            qkv = self.cb(ops.add(qkv, layer.wqkv_b), "wqkv_b", il)
        row = ops.row_stride(qkv, n_embd_head)
        windows, offset = [], 0
        for name, n in zip(("Qcur", "Kcur", "Vcur"), heads, strict=True):
            x = ops.view(qkv, (n_embd_head, n, self.n_tokens), (row, qkv.nb[1]), offset)
            windows.append(self.cb(x, name, il))
            offset += row * n
        return windows[0], windows[1], windows[2]

    def build_rope(
        self, cur: Tensor, inp_pos: Tensor, factors: Tensor | None, name: str, il: int
    ) -> Tensor:
        """Rotate by position with the context's RoPE settings."""
        c = self.cparams
        cur = ops.rope_ext(
            cur,
            inp_pos,
            factors,
            n_dims=self.n_rot,
            mode=self.rope_type,
            n_ctx_orig=c.n_ctx_orig_yarn,
            freq_base=c.rope_freq_base,
            freq_scale=c.rope_freq_scale,
            ext_factor=c.yarn_ext_factor,
            attn_factor=c.yarn_attn_factor,
            beta_fast=c.yarn_beta_fast,
            beta_slow=c.yarn_beta_slow,
        )
        return self.cb(cur, name, il)

    def rope_factors(self, il: int) -> Tensor | None:
        """RoPE frequency factors of a layer. ↔ llama_model::get_rope_factors"""
        layer = self.weights.layers[il]
        if layer.rope_freqs is not None:
            return layer.rope_freqs
        if self.cparams.n_ctx_seq > self.hparams.n_ctx_orig_yarn:
            return layer.rope_long
        return layer.rope_short

    def kq_scale(self) -> float:
        """What scores are multiplied with: 1 / sqrt(n_embd_head) unless the file says otherwise."""
        return self.hparams.f_attention_scale or 1.0 / sqrt(self.hparams.n_embd_head_k)

    def build_attn(
        self,
        inp: InputAttnKV,
        wo: Tensor | None,
        wo_b: Tensor | None,
        q_cur: Tensor,
        k_cur: Tensor,
        v_cur: Tensor,
        kq_scale: float,
        il: int,
    ) -> Tensor:
        """Store K and V in the cache, attend over it, project: ``[n_embd, n_tokens]``."""
        for cur in (q_cur, v_cur, k_cur):  # q and v first: llama.cpp's node order
            self.gf.build_forward_expand(cur)
        kv, mctx = self.params.kv, self.params.mctx
        self.gf.build_forward_expand(kv.cpy_k(k_cur, inp.k_idxs, il))
        self.gf.build_forward_expand(kv.cpy_v(v_cur, inp.v_idxs, il))
        k = kv.get_k(mctx.get_n_kv(), mctx.sinfo, il)
        v = kv.get_v(mctx.get_n_kv(), mctx.sinfo, il)
        cur = self.build_attn_mha(q_cur, k, v, inp.kq_mask, kq_scale, il)
        self.cb(cur, "kqv_out", il)
        if wo is not None:
            cur = self.build_lora_mm(wo, cur)
        return cur if wo_b is None else ops.add(cur, wo_b)

    def build_attn_mha(
        self, q: Tensor, k: Tensor, v: Tensor, kq_mask: Tensor, kq_scale: float, il: int
    ) -> Tensor:
        """Attention of every head: ``[n_embd_head * n_head, n_tokens]``.

        q ``[n_embd_head, n_head, n_tokens]``, k and v windows of the cache, mask ``[n_kv,
        n_tokens]``.
        """
        n_stream = k.ne[3]
        v_trans = v.nb[1] > v.nb[2]
        if n_stream == 1:
            q = ops.view(q, q.ne[:3], (q.nb[1], q.nb[2]))
        else:
            n = q.ne[2] // n_stream
            q = ops.view(q, (q.ne[0], q.ne[1], n, n_stream), (q.nb[1], q.nb[2], q.nb[2] * n))
        q, k, v = (ops.permute(t, 0, 2, 1, 3) for t in (q, k, v))

        kq = self.cb(ops.mul_mat(k, q), "kq", il)  # [n_kv, n_tokens, n_head]
        kq = self.cb(ops.soft_max_ext(kq, kq_mask, kq_scale), "kq_soft_max", il)
        if not v_trans:
            v = self.cb(ops.cont(ops.transpose(v)), "v_cont", il)
        kqv = self.cb(ops.mul_mat(v, kq), "kqv", il)  # [n_embd_head, n_tokens, n_head]
        cur = ops.permute(kqv, 0, 2, 1, 3)
        cur = ops.cont(cur, cur.ne[0] * cur.ne[1], cur.ne[2] * cur.ne[3])
        self.gf.build_forward_expand(cur)
        return cur

    def build_ffn(
        self,
        cur: Tensor,
        up: tuple[Tensor | None, Tensor | None],
        gate: tuple[Tensor | None, Tensor | None],
        down: tuple[Tensor | None, Tensor | None],
        il: int,
    ) -> Tensor:
        """Gated feed-forward network with SiLU; each of `up`, `gate`, `down` is (weight, bias)."""
        assert up[0] is not None and gate[0] is not None and down[0] is not None
        tmp = self.cb(self.build_lora_mm(up[0], cur), "ffn_up", il)
        if up[1] is not None:
            tmp = self.cb(ops.add(tmp, up[1]), "ffn_up_b", il)
        cur = self.cb(self.build_lora_mm(gate[0], cur), "ffn_gate", il)
        if gate[1] is not None:
            cur = self.cb(ops.add(cur, gate[1]), "ffn_gate_b", il)
        cur = self.cb(ops.swiglu_split(cur, tmp), "ffn_swiglu", il)
        cur = self.build_lora_mm(down[0], cur)
        if down[1] is not None:
            cur = ops.add(self.cb(cur, "ffn_down", il), down[1])
        return cur


def _origin(frame: FrameType | None) -> tuple[tuple[str, int], ...]:
    """The line that named a tensor, and the lines that called for it from the same builder.

    Read only when a graph is built: who watches a node can show where it comes from.
    """
    lines: list[tuple[str, int]] = []
    while frame is not None and len(lines) < _MAX_ORIGIN:
        file = frame.f_code.co_filename
        if file != __file__ and _MODELS not in file:
            break
        lines.append((file, frame.f_lineno))
        frame = frame.f_back
    return tuple(lines)
