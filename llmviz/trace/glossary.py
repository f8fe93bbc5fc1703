"""What the nodes of a graph are, in one sentence each, and what their axes count.

For people who meet a name such as ``kq_soft_max`` for the first time. A name that is not here
simply has no sentence: nothing is guessed.
"""

from __future__ import annotations

import re

__all__ = ["NODES", "gloss"]

_ROW = ("token", "feature")
_HEADS = ("token", "head", "feature")

NODES: dict[str, tuple[str, dict[int, tuple[str, ...]]]] = {
    "embd": ("each token's row of the embedding table: its meaning before any context", {2: _ROW}),
    "norm": ("every row scaled to the same size, so that the next product stays tame", {2: _ROW}),
    "attn_norm": ("the normalized rows that attention reads", {2: _ROW}),
    "Qcur": ("queries: what each token is looking for", {2: _ROW, 3: _HEADS}),
    "Kcur": ("keys: what each token offers to be found by", {2: _ROW, 3: _HEADS}),
    "Vcur": ("values: what each token hands over to those who look at it", {2: _ROW, 3: _HEADS}),
    "kq": (
        "scores: how well each query fits each key, before the mask",
        {3: ("head", "query token", "cell")},
    ),
    "kq_soft_max": (
        "attention: the share of its attention that each token gives to each cell; rows sum to 1",
        {3: ("head", "query token", "cell")},
    ),
    "kqv": ("values mixed by attention, head by head", {3: ("head", "token", "feature")}),
    "kqv_out": ("the heads' results side by side again", {2: _ROW}),
    "attn_out": ("what attention adds to each token", {2: _ROW}),
    "ffn_inp": ("the token rows with attention's part added", {2: _ROW}),
    "ffn_norm": ("the normalized rows that the feed-forward network reads", {2: _ROW}),
    "ffn_gate": (
        "the gate: which hidden features are let through",
        {2: ("token", "hidden feature")},
    ),
    "ffn_up": ("the hidden features themselves", {2: ("token", "hidden feature")}),
    "ffn_swiglu": ("hidden features times their gate", {2: ("token", "hidden feature")}),
    "ffn_out": ("what the feed-forward network adds to each token", {2: _ROW}),
    "l_out": ("the token rows as this layer leaves them", {2: _ROW}),
    "result_norm": ("the last normalized rows, of the tokens whose logits are wanted", {2: _ROW}),
    "result_output": (
        "one logit for every token of the vocabulary",
        {2: ("output", "vocabulary id")},
    ),
    "logits": ("one logit for every token of the vocabulary", {2: ("output", "vocabulary id")}),
    "inp_tokens": ("the token ids of this ubatch", {1: ("token",)}),
    "inp_pos": ("the position of each token in its sequence", {1: ("token",)}),
    "attn_inp_kq_mask": (
        "the mask: 0 where a token may look, -inf where it may not",
        {2: ("query token", "cell")},
    ),
    "attn_inp_k_idxs": ("the cache cells that the new keys are written to", {1: ("token",)}),
    "attn_inp_v_idxs": ("the places in the cache that the new values are written to", {}),
    "out_ids": ("which tokens' results are kept for the output", {1: ("output",)}),
}

_SEEN_AGAIN = re.compile(r" \((?:view|reshaped|permuted|transposed|cont|copy of .*)\)")
_LAYER = re.compile(r"-\d+$")


def gloss(name: str, op: str, shape: tuple[int, ...]) -> tuple[str, tuple[str, ...]]:
    """A sentence on a node and what each axis of this shape counts; empty where unknown."""
    base = _SEEN_AGAIN.sub("", name)
    base = _LAYER.sub("", base)
    if base.startswith(("cache_k_l", "cache_v_l")):
        what = "keys" if base.startswith("cache_k") else "values"
        if op == "SET_ROWS":
            return f"the new {what} are written into this layer's part of the KV cache", ()
        return f"this layer's part of the KV cache, its {what}, seen in another shape", ()
    text, axes = NODES.get(base, ("", {}))
    if op == "ROPE" and text:
        return f"{text}, turned by an angle that tells the position", axes.get(len(shape), ())
    if _SEEN_AGAIN.search(name):
        return (f"the same numbers in another shape: {text}" if text else ""), ()
    return text, axes.get(len(shape), ())
