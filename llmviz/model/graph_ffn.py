"""The feed-forward blocks: one network, or a mixture of experts.

↔ src/llama-graph.cpp (build_ffn, build_moe_ffn)
"""

from __future__ import annotations

from math import inf

from llmviz.ggml import ops
from llmviz.ggml.graph import Tensor
from llmviz.model.graph_base import GraphBase

__all__ = ["FeedForwardBlocks", "WeightBias"]

WeightBias = tuple[Tensor | None, Tensor | None]
NONE: WeightBias = (None, None)

GATED = {"silu": "swiglu", "gelu": "geglu", "relu": "reglu"}  # what a gate makes of an activation
SMALLEST_F16 = 6.103515625e-5  # sums of weights are not divided by less
OAI = {"alpha": 1.702, "limit": 7.0}


class FeedForwardBlocks(GraphBase):
    """Blocks of the second half of a layer; see the module's docstring."""

    def build_ffn(
        self,
        cur: Tensor,
        up: WeightBias,
        gate: WeightBias,
        down: WeightBias,
        il: int,
        *,
        act: str = "silu",
        act_scales: Tensor | None = None,
    ) -> Tensor:
        """Feed-forward network; each of `up`, `gate`, `down` is (weight, bias).

        Parameters
        ----------
        act : str
            ``"silu"``, ``"gelu"``, ``"relu"``, ``"relu_sqr"``; with a gate its gated form. Without
            one also ``"swiglu"``, ``"geglu"``, ``"reglu"``: `up` holds gate and up, one after the
            other.
        act_scales : Tensor or None
            What the activations are divided by.
        """
        tmp = self.cb(self.build_lora_mm(up[0], cur), "ffn_up", il)
        if up[1] is not None:
            tmp = self.cb(ops.add(tmp, up[1]), "ffn_up_b", il)
        if gate[0] is not None:
            cur = self.cb(self.build_lora_mm(gate[0], cur), "ffn_gate", il)
            if gate[1] is not None:
                cur = self.cb(ops.add(cur, gate[1]), "ffn_gate_b", il)
            cur = self.cb(ops.glu_split(cur, tmp, GATED[act]), f"ffn_{GATED[act]}", il)
        else:
            cur = self._activated(tmp, act, il)
            if act_scales is not None:
                cur = self.cb(ops.div(cur, act_scales), "ffn_act", il)
        cur = self.build_lora_mm(down[0], cur)
        if down[1] is not None:
            cur = ops.add(self.cb(cur, "ffn_down", il), down[1])
        return cur

    def _activated(self, cur: Tensor, act: str, il: int) -> Tensor:
        if act in GATED.values():
            return self.cb(ops.glu(cur, act), f"ffn_{act}", il)
        if act == "relu_sqr":
            cur = self.cb(ops.unary(cur, "relu"), "ffn_relu", il)
            return self.cb(ops.sqr(cur), "ffn_sqr(relu)", il)
        return self.cb(ops.unary(cur, act), f"ffn_{act}", il)

    def build_moe_ffn(
        self,
        cur: Tensor,
        gate_inp: WeightBias,
        up_exps: WeightBias,
        gate_exps: WeightBias,
        down_exps: WeightBias,
        il: int,
        *,
        act: str = "silu",
        norm_w: bool,
        gating: str = "softmax",
        exp_probs_b: Tensor | None = None,
    ) -> Tensor:
        """Mixture of experts: a router chooses some for each token and weighs their results.

        Parameters
        ----------
        gate_inp : (weight, bias)
            The router, ``[n_embd, n_expert]``.
        up_exps, gate_exps, down_exps : (weight, bias)
            One matrix per expert, ``[n_in, n_out, n_expert]``.
        act : str
            ``"silu"``, ``"gelu"``, ``"relu"`` or ``"swiglu_oai"``.
        norm_w : bool
            Divide the weights of the chosen experts by their sum.
        gating : str
            ``"softmax"``, ``"sigmoid"``, or ``"softmax_weight"``: softmax over the chosen ones.
        exp_probs_b : Tensor or None
            Added to the probabilities for choosing, not for weighing.
        """
        n_embd, n_tokens = cur.ne[0], cur.ne[1]
        selected, weights = self._route(cur, gate_inp, il, norm_w, gating, exp_probs_b)

        cur = ops.reshape(cur, n_embd, 1, n_tokens)
        up = self._experts(up_exps, cur, selected, "ffn_moe_up", il)  # [n_ff, n_used, n_tokens]
        if gate_exps[0] is not None:
            cur = self._experts(gate_exps, cur, selected, "ffn_moe_gate", il)
            kind = GATED.get(act, act)
            params = OAI if kind == "swiglu_oai" else {}
            cur = self.cb(ops.glu_split(cur, up, kind, **params), f"ffn_moe_{kind}", il)
        else:
            cur = self.cb(ops.unary(up, act), f"ffn_moe_{act}", il)
        experts = self._experts(down_exps, cur, selected, "ffn_moe_down", il)
        experts = self.cb(ops.mul(experts, weights), "ffn_moe_weighted", il)
        self.gf.build_forward_expand(experts)
        return self._summed(experts, n_tokens, il)

    def _experts(self, w: WeightBias, cur: Tensor, selected: Tensor, name: str, il: int) -> Tensor:
        cur = self.cb(self.build_lora_mm_id(w[0], cur, selected), name, il)
        if w[1] is not None:
            cur = self.cb(ops.add_id(cur, w[1], selected), f"{name}_biased", il)
        return cur

    def _summed(self, experts: Tensor, n_tokens: int, il: int) -> Tensor:
        """The sum over the experts, one after the other: ``[n_embd, n_tokens]``."""
        parts = [
            ops.view(experts, (experts.ne[0], n_tokens), (experts.nb[2],), i * experts.nb[1])
            for i in range(self.hparams.n_expert_used(il))
        ]
        for part in parts:
            self.gf.build_forward_expand(part)
        out = parts[0]
        for part in parts[1:]:
            out = ops.add(out, part)
            self.gf.build_forward_expand(out)
        if len(parts) == 1:
            out = ops.cont(out)
        return self.cb(out, "ffn_moe_out", il)

    def _route(
        self,
        cur: Tensor,
        gate_inp: WeightBias,
        il: int,
        norm_w: bool,
        gating: str,
        exp_probs_b: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Chosen experts int32 ``[n_used, n_tokens]``, their weights ``[1, n_used, n_tokens]``."""
        hp, n_tokens = self.hparams, cur.ne[1]
        n_used = hp.n_expert_used(il)
        logits = self.cb(self.build_lora_mm(gate_inp[0], cur), "ffn_moe_logits", il)
        if gate_inp[1] is not None:
            logits = self.cb(ops.add(logits, gate_inp[1]), "ffn_moe_logits_biased", il)
        probs = logits
        if gating == "softmax":
            probs = ops.soft_max_ext(logits, None, 1.0)
        elif gating == "sigmoid":
            probs = ops.unary(logits, "sigmoid")
        self.cb(probs, "ffn_moe_probs", il)

        chosen_by = probs
        if exp_probs_b is not None:
            chosen_by = self.cb(ops.add(probs, exp_probs_b), "ffn_moe_probs_biased", il)
        if hp.n_expert_groups > 1 and n_tokens > 0:
            chosen_by = self._only_best_groups(chosen_by, il)
        selected = ops.argsort_top_k(chosen_by, n_used)
        self.cb(selected.src[0], "ffn_moe_argsort", il)
        self.cb(selected, "ffn_moe_topk", il)

        weights = ops.get_rows(ops.reshape(probs, 1, hp.n_expert, n_tokens), selected)
        self.cb(weights, "ffn_moe_weights", il)  # [1, n_used, n_tokens]
        if gating == "softmax_weight":
            weights = ops.soft_max_ext(ops.reshape(weights, n_used, n_tokens), None, 1.0)
            weights = ops.reshape(weights, 1, n_used, n_tokens)
            self.cb(weights, "ffn_moe_weights_softmax", il)
        if norm_w:
            weights = ops.reshape(weights, n_used, n_tokens)
            total = self.cb(ops.sum_rows(weights), "ffn_moe_weights_sum", il)
            total = ops.clamp(total, SMALLEST_F16, inf)
            self.cb(total, "ffn_moe_weights_sum_clamped", il)
            weights = self.cb(ops.div(weights, total), "ffn_moe_weights_norm", il)
            weights = ops.reshape(weights, 1, n_used, n_tokens)
        if hp.expert_weights_scale not in (0.0, 1.0):
            weights = ops.scale(weights, hp.expert_weights_scale)
            self.cb(weights, "ffn_moe_weights_scaled", il)
        self.gf.build_forward_expand(weights)
        return selected, weights

    def _only_best_groups(self, probs: Tensor, il: int) -> Tensor:
        """-inf for all experts outside the groups whose two best experts sum up highest."""
        hp, n_tokens = self.hparams, probs.ne[1]
        n_groups = hp.n_expert_groups
        n_each = hp.n_expert // n_groups
        groups = ops.reshape(probs, n_each, n_groups, n_tokens)
        best = ops.argsort_top_k(groups, 2)  # [2, n_groups, n_tokens]
        scores = ops.get_rows(ops.reshape(groups, 1, n_each, n_groups, n_tokens), best)
        scores = ops.sum_rows(ops.reshape(scores, 2, n_groups, n_tokens))
        scores = ops.reshape(scores, n_groups, n_tokens)
        top = self.cb(ops.argsort_top_k(scores, hp.n_group_used), "ffn_moe_group_topk", il)
        kept = ops.get_rows(groups, top)  # [n_each, n_group_used, n_tokens]
        masked = ops.set_rows(ops.fill(groups, -inf), kept, top)
        masked = ops.reshape(masked, hp.n_expert, n_tokens)
        return self.cb(masked, "ffn_moe_probs_masked", il)
