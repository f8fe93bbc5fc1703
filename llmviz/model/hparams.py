"""Hyperparameters: what the file says about the model's shape, each with the key it came from.

↔ src/llama-hparams.h, llama_model::load_hparams
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from llmviz.errors import GGUFError
from llmviz.events import Event, Steps
from llmviz.model.keys import Keys

__all__ = ["HParams", "load_hparams_steps"]

LLAMA_MAX_LAYERS = 512
ROPE_SCALING_TYPES = ("none", "linear", "yarn", "longrope")


@dataclass
class HParams:
    """Hyperparameters by llama.cpp's names; per-layer ones are arrays of length `n_layer`.

    Attributes
    ----------
    origin : dict
        ``name -> key`` of the file, ``"default"``, ``"override: key"`` or what it follows from.
    """

    n_ctx_train: int = 0
    n_embd: int = 0
    n_layer: int = 0
    n_vocab: int = 0
    n_expert: int = 0
    n_expert_used: int = 0
    n_head_arr: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    n_head_kv_arr: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    n_ff_arr: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    n_embd_head_k: int = 0
    n_embd_head_v: int = 0
    n_rot: int = 0
    f_norm_eps: float = 0.0
    f_norm_rms_eps: float = 0.0
    f_attention_scale: float = 0.0
    rope_type: str = "none"
    rope_finetuned: bool = False
    rope_freq_base_train: float = 10000.0
    rope_freq_scale_train: float = 1.0
    rope_scaling_type_train: str = "linear"
    n_ctx_orig_yarn: int = 0
    rope_attn_factor: float = 1.0
    yarn_ext_factor: float = -1.0
    yarn_attn_factor: float = 1.0
    yarn_beta_fast: float = 32.0
    yarn_beta_slow: float = 1.0
    causal_attn: bool = True
    origin: dict[str, str] = field(default_factory=dict)

    def n_head(self, il: int = 0) -> int:
        """Query heads of layer `il`."""
        return int(self.n_head_arr[il])

    def n_head_kv(self, il: int = 0) -> int:
        """Key/value heads of layer `il`."""
        return int(self.n_head_kv_arr[il])

    def n_ff(self, il: int = 0) -> int:
        """Width of the feed-forward network of layer `il`."""
        return int(self.n_ff_arr[il])

    def n_gqa(self, il: int = 0) -> int:
        """Query heads that share one key/value head."""
        return self.n_head(il) // self.n_head_kv(il) if self.n_head_kv(il) else 0

    def n_embd_k_gqa(self, il: int = 0) -> int:
        """Values of all key heads of layer `il` together."""
        return self.n_embd_head_k * self.n_head_kv(il)

    def n_embd_v_gqa(self, il: int = 0) -> int:
        """Values of all value heads of layer `il` together."""
        return self.n_embd_head_v * self.n_head_kv(il)

    def as_dict(self) -> dict[str, tuple[Any, str]]:
        """``name -> (value, origin)``; a per-layer array of equal values is shown as one number."""
        out: dict[str, tuple[Any, str]] = {}
        for name in self.__dataclass_fields__:
            if name == "origin":
                continue
            value = getattr(self, name)
            if isinstance(value, np.ndarray):
                same = len(value) > 0 and bool((value == value[0]).all())
                value = value[0].item() if same else value.tolist()
            out[name] = (value, self.origin.get(name, "default"))
        return out


def load_hparams_steps(keys: Keys, arch: Any, *, depth: int = 0) -> Steps[HParams]:
    """Step 4: read the hyperparameters every architecture has, then the architecture's own.

    Parameters
    ----------
    keys : Keys
    arch : type of llmviz.model.arch.Architecture
        Its `load_arch_hparams` reads the rest.

    Yields
    ------
    Event
        One ``data`` event per hyperparameter: value, and the key it came from in `about`.

    Raises
    ------
    GGUFError
        A required key is missing, of the wrong type, or holds a value that cannot be.
    """
    yield Event("enter", "load_hparams", depth, 4, keys.arch)
    hp = HParams(origin=keys.origin)
    _load_general(hp, keys)
    arch.load_arch_hparams(hp, keys)
    hp.rope_type = arch.rope_type
    hp.origin["rope_type"] = f"architecture {keys.arch}"
    _check(hp, keys)
    for name, (value, origin) in hp.as_dict().items():
        yield Event("data", name, depth + 1, 4, value, origin)
    yield Event("exit", "load_hparams", depth, 4, hp)
    return hp


def _load_general(hp: HParams, keys: Keys) -> None:
    get = keys.get
    hp.n_ctx_train = get("n_ctx_train", "{arch}.context_length", "u32")
    hp.n_embd = get("n_embd", "{arch}.embedding_length", "u32")
    hp.n_layer = get("n_layer", "{arch}.block_count", "u32")
    hp.causal_attn = get("causal_attn", "{arch}.attention.causal", "bool", True)
    if not 0 < hp.n_layer <= LLAMA_MAX_LAYERS:
        _refuse(keys, "{arch}.block_count", f"{hp.n_layer} layers; expected 1..{LLAMA_MAX_LAYERS}")
    hp.n_expert = get("n_expert", "{arch}.expert_count", "u32", 0)
    hp.n_expert_used = get("n_expert_used", "{arch}.expert_used_count", "u32", 0)
    if hp.n_expert_used > hp.n_expert:
        _refuse(
            keys,
            "{arch}.expert_used_count",
            f"{hp.n_expert_used} experts used of only {hp.n_expert}",
        )

    n = hp.n_layer
    hp.n_ff_arr = keys.get_or_arr("n_ff_arr", "{arch}.feed_forward_length", n)
    hp.n_head_arr = keys.get_or_arr("n_head_arr", "{arch}.attention.head_count", n)
    hp.n_head_kv_arr = keys.get_or_arr(
        "n_head_kv_arr", "{arch}.attention.head_count_kv", n, hp.n_head_arr
    )
    if hp.origin["n_head_kv_arr"] == "default":
        hp.origin["n_head_kv_arr"] = "default: n_head"

    _load_rope(hp, keys)

    n_head = hp.n_head()
    if n_head > 0:
        per_head = hp.n_embd // n_head
        hp.n_embd_head_k = get("n_embd_head_k", "{arch}.attention.key_length", "u32", per_head)
        hp.n_embd_head_v = get("n_embd_head_v", "{arch}.attention.value_length", "u32", per_head)
        hp.n_rot = get("n_rot", "{arch}.rope.dimension_count", "u32", hp.n_embd_head_k)
        for name in ("n_embd_head_k", "n_embd_head_v"):
            if hp.origin[name] == "default":
                hp.origin[name] = "default: n_embd / n_head"
        if hp.origin["n_rot"] == "default":
            hp.origin["n_rot"] = "default: n_embd_head_k"


def _load_rope(hp: HParams, keys: Keys) -> None:
    get = keys.get
    hp.rope_finetuned = get("rope_finetuned", "{arch}.rope.scaling.finetuned", "bool", False)
    hp.n_ctx_orig_yarn = get(
        "n_ctx_orig_yarn", "{arch}.rope.scaling.original_context_length", "u32", hp.n_ctx_train
    )
    if hp.origin["n_ctx_orig_yarn"] == "default":
        hp.origin["n_ctx_orig_yarn"] = "default: n_ctx_train"
    hp.rope_freq_base_train = get("rope_freq_base_train", "{arch}.rope.freq_base", "f32", 10000.0)
    kind = get("rope_scaling_type_train", "{arch}.rope.scaling.type", "str", "linear")
    if kind not in ROPE_SCALING_TYPES:
        _refuse(
            keys,
            "{arch}.rope.scaling.type",
            f"unknown scaling {kind!r}; known: {', '.join(ROPE_SCALING_TYPES)}",
        )
    hp.rope_scaling_type_train = kind
    factor = get(
        "rope_freq_scale_train",
        "{arch}.rope.scaling.factor",
        "f32",
        0.0,
        also="{arch}.rope.scale_linear",
    )
    hp.rope_freq_scale_train = 1.0 if factor == 0.0 else float(np.float32(1.0) / np.float32(factor))
    hp.rope_attn_factor = get(
        "rope_attn_factor", "{arch}.rope.scaling.attn_factor", "f32", hp.rope_attn_factor
    )


def _refuse(keys: Keys, key: str, why: str) -> None:
    name = keys.name(key)
    raise GGUFError(f"{name}: {why}", field=name, path=keys.gguf.path)


def _check(hp: HParams, keys: Keys) -> None:
    """Shapes with which llama.cpp would load and then abort while decoding: refused here, with
    the reason.
    """
    for il in range(hp.n_layer):
        n_head, n_head_kv = hp.n_head(il), hp.n_head_kv(il)
        if n_head <= 0:
            _refuse(
                keys, "{arch}.attention.head_count", f"layer {il} has {n_head} heads; expected >= 1"
            )
        if n_head_kv <= 0 or n_head % n_head_kv:
            _refuse(
                keys,
                "{arch}.attention.head_count_kv",
                f"layer {il}: {n_head_kv} key/value heads do not divide {n_head} heads",
            )
    if hp.n_rot % 2:
        _refuse(
            keys,
            "{arch}.rope.dimension_count",
            f"{hp.n_rot} rotary dimensions; RoPE turns pairs, so the number must be even",
        )
    if hp.n_rot > hp.n_embd_head_k:
        _refuse(
            keys,
            "{arch}.rope.dimension_count",
            f"{hp.n_rot} rotary dimensions in heads of {hp.n_embd_head_k}",
        )
