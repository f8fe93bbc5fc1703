"""The attention blocks: projections, rotary positions, the cache, scores.

↔ src/llama-graph.cpp (build_qkv, build_attn, build_attn_mha)
"""

from __future__ import annotations

from math import sqrt
from typing import Any

from llmviz.ggml import ops
from llmviz.ggml.graph import Tensor
from llmviz.model.arch import Layer
from llmviz.model.graph_base import GraphBase
from llmviz.model.inputs import InputAttnKV, InputAttnKVISWA

__all__ = ["AttentionBlocks"]

NAMES = ("Qcur", "Kcur", "Vcur")


class AttentionBlocks(GraphBase):
    """Blocks around attention; see the module's docstring."""

    def build_qkv(
        self,
        layer: Layer,
        cur: Tensor,
        n_embd_head: int,
        n_head: int,
        n_head_kv: int,
        il: int,
        *,
        reshape: bool = True,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys, values: ``[n_embd_head, n_head, n_tokens]`` each (n_head_kv heads for K
        and V); without `reshape` ``[n_embd_head * n_head, n_tokens]``, unnamed.

        One product where the layer has a fused matrix, else three.
        """
        heads = (n_head, n_head_kv, n_head_kv)
        if layer.wqkv is not None:
            return self._build_fused_qkv(layer, cur, n_embd_head, heads, il, reshape)
        weights = ((layer.wq, layer.wq_b), (layer.wk, layer.wk_b), (layer.wv, layer.wv_b))
        made = []
        for name, (w, b) in zip(NAMES, weights, strict=True):
            x = self.build_lora_mm(w, cur)
            if reshape:
                self.cb(x, name, il)
            if b is not None:
                x = ops.add(x, b)
                if reshape:
                    self.cb(x, name, il)
            made.append(self._clamped(x, f"{name}_clamped", il) if reshape else x)
        if not reshape:
            return made[0], made[1], made[2]
        q, k, v = (
            self.cb(ops.reshape(x, n_embd_head, n, self.n_tokens), name, il)
            for name, x, n in zip(NAMES, made, heads, strict=True)
        )
        return q, k, v

    def _clamped(self, cur: Tensor, name: str, il: int) -> Tensor:
        limit = self.hparams.f_clamp_kqv
        return self.cb(ops.clamp(cur, -limit, limit), name, il) if limit > 0 else cur

    def _build_fused_qkv(
        self,
        layer: Layer,
        cur: Tensor,
        n_embd_head: int,
        heads: tuple[int, int, int],
        il: int,
        reshape: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One product for all three; queries, keys and values are windows on its rows."""
        qkv = self.cb(self.build_lora_mm(layer.wqkv, cur), "wqkv", il)
        if layer.wqkv_b is not None:
            qkv = self.cb(ops.add(qkv, layer.wqkv_b), "wqkv_b", il)
        elif layer.wq_b is not None and layer.wk_b is not None and layer.wv_b is not None:
            joined = ops.concat(ops.concat(layer.wq_b, layer.wk_b), layer.wv_b)
            qkv = self.cb(ops.add(qkv, joined), "wqkv_b", il)
        if reshape:
            qkv = self._clamped(qkv, "wqkv_clamped", il)
        row = ops.row_stride(qkv, n_embd_head)
        windows, offset = [], 0
        for name, n in zip(NAMES, heads, strict=True):
            if reshape:
                x = ops.view(qkv, (n_embd_head, n, self.n_tokens), (row, qkv.nb[1]), offset)
                windows.append(self.cb(x, name, il))
            else:
                x = ops.view(qkv, (n_embd_head * n, self.n_tokens), (qkv.nb[1],), offset)
                windows.append(ops.cont(x))
            offset += row * n
        return windows[0], windows[1], windows[2]

    def build_rope(
        self,
        cur: Tensor,
        inp_pos: Tensor,
        factors: Tensor | None,
        name: str,
        il: int,
        **settings: Any,
    ) -> Tensor:
        """Rotate by position with the context's RoPE settings; `settings` replace some of them."""
        c = self.cparams
        used: dict[str, Any] = {
            "n_dims": self.n_rot,
            "mode": self.rope_type,
            "n_ctx_orig": c.n_ctx_orig_yarn,
            "freq_base": c.rope_freq_base,
            "freq_scale": c.rope_freq_scale,
            "ext_factor": c.yarn_ext_factor,
            "attn_factor": c.yarn_attn_factor,
            "beta_fast": c.yarn_beta_fast,
            "beta_slow": c.yarn_beta_slow,
        } | settings
        return self.cb(ops.rope_ext(cur, inp_pos, factors, **used), name, il)

    def build_rope_qk(
        self,
        q: Tensor,
        k: Tensor,
        inp_pos: Tensor,
        il: int,
        factors: Tensor | None = None,
        **settings: Any,
    ) -> tuple[Tensor, Tensor]:
        """`build_rope` of queries and keys, named ``Qcur`` and ``Kcur``."""
        return (
            self.build_rope(q, inp_pos, factors, "Qcur", il, **settings),
            self.build_rope(k, inp_pos, factors, "Kcur", il, **settings),
        )

    def rope_of_layer(self, il: int) -> dict[str, Any]:
        """`build_rope`'s settings of a layer: those with a window may have frequencies of their
        own. ↔ llama_model::get_rope_freq_base, get_rope_freq_scale
        """
        base, scale = self.hparams.rope_freqs_of(il, self.cparams)
        return {"freq_base": base, "freq_scale": scale}

    def rope_factors(self, il: int) -> Tensor | None:
        """RoPE frequency factors of a layer, by the context's length."""
        return self.weights.rope_factors(il, self.cparams.n_ctx_seq > self.hparams.n_ctx_orig_yarn)

    def build_qkv_of_layer(
        self, layer: Layer, cur: Tensor, il: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`build_qkv` with the layer's own head counts."""
        hp = self.hparams
        return self.build_qkv(layer, cur, hp.n_embd_head_k, hp.n_head(il), hp.n_head_kv(il), il)

    def kq_scale(self) -> float:
        """What scores are multiplied with: 1 / sqrt(n_embd_head) unless the file says otherwise."""
        return self.hparams.f_attention_scale or self.head_scale()

    def head_scale(self) -> float:
        """1 / sqrt(n_embd_head)."""
        return 1.0 / sqrt(self.hparams.n_embd_head_k)

    def build_attn(
        self,
        inp: InputAttnKV | InputAttnKVISWA,
        wo: Tensor | None,
        wo_b: Tensor | None,
        q_cur: Tensor,
        k_cur: Tensor,
        v_cur: Tensor,
        kq_scale: float,
        il: int,
        *,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """Store K and V in the cache, attend over it, project: ``[n_embd, n_tokens]``."""
        keys_first = isinstance(inp, InputAttnKVISWA)  # the order of llama.cpp's nodes
        if isinstance(inp, InputAttnKVISWA):
            inp = inp.swa if self.hparams.is_swa(il) else inp.base
        q_cur, k_cur = self._mixed(q_cur, inp.k_rot), self._mixed(k_cur, inp.k_rot)
        v_cur = self._mixed(v_cur, inp.v_rot)
        for cur in (q_cur, k_cur, v_cur) if keys_first else (q_cur, v_cur, k_cur):
            self.gf.build_forward_expand(cur)
        kv, mctx = inp.kv_of(self.params), inp.mctx_of(self.params)
        self.gf.build_forward_expand(kv.cpy_k(k_cur, inp.k_idxs, il))
        self.gf.build_forward_expand(kv.cpy_v(v_cur, inp.v_idxs, il))
        k = kv.get_k(mctx.get_n_kv(), mctx.sinfo, il)
        v = kv.get_v(mctx.get_n_kv(), mctx.sinfo, il)
        cur = self.build_attn_mha(q_cur, k, v, inp.kq_mask, kq_scale, il, sinks=sinks)
        self.cb(cur, "kqv_out", il)
        cur = self._mixed(cur, inp.v_rot)  # back: the matrix is its own inverse
        if wo is not None:
            cur = self.build_lora_mm(wo, cur)
        return cur if wo_b is None else ops.add(cur, wo_b)

    def _mixed(self, cur: Tensor, rot: Tensor | None) -> Tensor:
        """Multiply stretches of rows with a Hadamard matrix. ↔ llama_mul_mat_hadamard"""
        if rot is None:
            return cur
        n, ne = rot.ne[0], cur.ne[: cur.n_dims]
        rows = cur.nelements // n
        flat = ops.reshape(cur, n, rows) if cur.is_contiguous else ops.cont(cur, n, rows)
        return ops.reshape(ops.mul_mat(rot, flat, hadamard=True), *ne)

    def build_attn_mha(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        kq_mask: Tensor,
        kq_scale: float,
        il: int,
        *,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """Attention of every head: ``[n_embd_head * n_head, n_tokens]``.

        q ``[n_embd_head, n_head, n_tokens]``, k and v windows of the cache, mask ``[n_kv,
        n_tokens]``, sinks ``[n_head]``.
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
        if self.hparams.attn_soft_cap:
            kq = self.soft_capped(
                kq,
                self.hparams.f_attn_logit_softcapping,
                ("kq_scaled_1", "kq_tanh", "kq_scaled_2"),
                il,
            )
        kq = ops.soft_max_ext(kq, kq_mask, kq_scale, self.hparams.f_max_alibi_bias, sinks)
        self.cb(kq, "kq_soft_max", il)
        if not v_trans:
            v = self.cb(ops.cont(ops.transpose(v)), "v_cont", il)
        kqv = self.cb(ops.mul_mat(v, kq), "kqv", il)  # [n_embd_head, n_tokens, n_head]
        cur = ops.permute(kqv, 0, 2, 1, 3)
        cur = ops.cont(cur, cur.ne[0] * cur.ne[1], cur.ne[2] * cur.ne[3])
        self.gf.build_forward_expand(cur)
        return cur

    def soft_capped(
        self, cur: Tensor, cap: float, names: tuple[str, str, str] | None = None, il: int = -1
    ) -> Tensor:
        """``cap * tanh(cur / cap)``: nothing beyond the cap; `names` of the three steps."""
        tanh = ops.unary(ops.scale(cur, 1.0 / cap), "tanh")
        out = ops.scale(tanh, cap)
        for step, name in zip((tanh.src[0], tanh, out), names or (), strict=False):
            self.cb(step, name, il)
        return out
