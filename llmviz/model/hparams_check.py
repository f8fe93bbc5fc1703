"""Shapes with which llama.cpp would load a file and then abort, refused with the reason.

↔ the assertions of src/llama-model.cpp and src/models/*.cpp
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from llmviz.errors import GGUFError
from llmviz.model.keys import Keys

if TYPE_CHECKING:
    from llmviz.model.arch import ModelWeights
    from llmviz.model.hparams import HParams

__all__ = ["check_hparams", "check_projections", "refuse", "refuse_without_experts"]


def refuse(keys: Keys, key: str, why: str) -> NoReturn:
    """Raise the error that names `key` and says why its value cannot be."""
    name = keys.name(key)
    raise GGUFError(f"{name}: {why}", field=name, path=keys.gguf.path)


def refuse_without_experts(hp: HParams, keys: Keys) -> None:
    """For architectures whose layers are always mixtures of experts."""
    if hp.n_expert == 0:
        refuse(keys, "{arch}.expert_count", "0; this architecture needs experts")


def check_hparams(hp: HParams, keys: Keys, arch: Any) -> None:
    """Check head counts and sizes against what the architecture can do.

    Parameters
    ----------
    arch : type of llmviz.model.arch.Architecture
        Its `layers_differ` and `partial_rotary` say what is allowed.
    """
    if not arch.layers_differ:
        _check_layers_alike(hp, keys)
    _check_heads(hp, keys, arch.layers_differ)
    if hp.n_embd_head_k != hp.n_embd_head_v:
        refuse(
            keys,
            "{arch}.attention.value_length",
            f"heads of {hp.n_embd_head_k} for keys and {hp.n_embd_head_v} for values: "
            "must be equal",
        )
    if hp.rope_type != "none":
        _check_rotation(hp, keys, arch.partial_rotary)
    if hp.swa_type != "none" and hp.n_swa == 0:
        refuse(keys, "{arch}.attention.sliding_window", "0; a window sees at least one token")


def check_projections(hp: HParams, weights: ModelWeights, path: str) -> None:
    """Check that the heads fill the rows that the query and fused matrices make.

    Some architectures take a matrix as wide as the embedding for given, whatever the heads' size.

    Raises
    ------
    GGUFError
        They do not; the field is the matrix.
    """
    for il, layer in enumerate(weights.layers):
        n_q = hp.n_embd_head_k * hp.n_head(il)
        n_qkv = n_q + hp.n_embd_k_gqa(il) + hp.n_embd_v_gqa(il)
        for w, n in ((layer.wq, n_q), (layer.wqkv, n_qkv)):
            if w is not None and w.ne[1] != n:
                raise GGUFError(
                    f"tensor '{w.name}' makes rows of {w.ne[1]}; {hp.n_head(il)} query and "
                    f"{hp.n_head_kv(il)} key/value heads of {hp.n_embd_head_k} need {n}",
                    field=w.name,
                    path=path,
                )


def _check_layers_alike(hp: HParams, keys: Keys) -> None:
    for name, values in (
        ("attention.head_count", hp.n_head_arr),
        ("attention.head_count_kv", hp.n_head_kv_arr),
        ("feed_forward_length", hp.n_ff_arr),
        ("expert_feed_forward_length", hp.n_ff_exp_arr),
        ("expert_used_count", hp.n_expert_used_arr),
    ):
        if len(values) and (values != values[0]).any():
            refuse(
                keys,
                "{arch}." + name,
                f"layers differ in {name}: {values.tolist()}; in this architecture all layers "
                "have the same shape",
            )


def _check_heads(hp: HParams, keys: Keys, may_be_none: bool) -> None:
    for il in range(hp.n_layer_all):
        n_head, n_head_kv = hp.n_head(il), hp.n_head_kv(il)
        if may_be_none and (n_head == 0 or n_head_kv == 0) and hp.n_head() > 0:
            continue  # a layer without attention
        if n_head <= 0:
            why = f"layer {il} has {n_head} heads; expected >= 1"
            refuse(keys, "{arch}.attention.head_count", why)
        if n_head_kv <= 0 or n_head % n_head_kv:
            refuse(
                keys,
                "{arch}.attention.head_count_kv",
                f"layer {il}: {n_head_kv} key/value heads do not divide {n_head} heads",
            )


def _check_rotation(hp: HParams, keys: Keys, partial: bool) -> None:
    key = "{arch}.rope.dimension_count"
    if not partial and hp.n_rot != hp.n_embd_head_k:
        refuse(keys, key, f"invalid n_rot: {hp.n_rot}, expected {hp.n_embd_head_k}")
    if hp.n_rot % 2:
        why = f"{hp.n_rot} rotary dimensions; RoPE turns pairs, so the number must be even"
        refuse(keys, key, why)
    if hp.n_rot > hp.n_embd_head_k:
        refuse(keys, key, f"{hp.n_rot} rotary dimensions in heads of {hp.n_embd_head_k}")
