"""Hyperparameters: what the file says about the model's shape, each with the key it came from.

↔ src/llama-hparams.h, llama_model::load_hparams
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields
from typing import Any

import numpy as np

from llmviz.events import Event, Steps
from llmviz.model.cparams import CParams
from llmviz.model.hparams_check import check_hparams, refuse
from llmviz.model.keys import Keys

__all__ = ["HParams", "load_hparams_steps"]

LLAMA_MAX_LAYERS = 512
LLAMA_MAX_EXPERTS = 1024
ROPE_SCALING_TYPES = ("none", "linear", "yarn", "longrope")


ASKED = {"asked": True}


def _asked(default: Any) -> Any:
    """A field that only some architectures have: shown where a file or an architecture set it."""
    return field(default=default, metadata=ASKED)


def _ints() -> np.ndarray:
    return np.zeros(0, np.int64)


@dataclass
class HParams:
    """Hyperparameters by llama.cpp's names; per-layer ones are arrays of length `n_layer_all`.

    Attributes
    ----------
    n_layer : int
        Layers that run: `n_layer_all` without the `n_layer_nextn` for multi-token prediction.
    is_swa_arr : ndarray of int64
        1 where the layer has a sliding window.
    rope_pattern : ndarray of int64
        1 where the layer has rotary positions; empty: all of them.
    origin : dict
        ``name -> key`` of the file, ``"default"``, ``"override: key"`` or what it follows from.
    """

    n_ctx_train: int = 0
    n_embd: int = 0
    n_layer: int = 0
    n_layer_all: int = _asked(0)
    n_layer_nextn: int = _asked(0)
    n_vocab: int = 0
    n_expert: int = 0
    n_expert_used_arr: np.ndarray = field(default_factory=_ints)
    n_expert_groups: int = _asked(0)
    n_group_used: int = _asked(0)
    n_expert_shared: int = _asked(0)
    expert_weights_scale: float = _asked(0.0)
    n_layer_dense_lead: int = _asked(0)
    n_ff_exp_arr: np.ndarray = field(default_factory=_ints, metadata=ASKED)
    n_ff_shexp: int = _asked(0)
    n_head_arr: np.ndarray = field(default_factory=_ints)
    n_head_kv_arr: np.ndarray = field(default_factory=_ints)
    n_ff_arr: np.ndarray = field(default_factory=_ints)
    n_embd_head_k: int = 0
    n_embd_head_v: int = 0
    n_rot: int = 0
    f_norm_eps: float = 0.0
    f_norm_rms_eps: float = 0.0
    f_attention_scale: float = 0.0
    f_embedding_scale: float = _asked(0.0)
    f_residual_scale: float = _asked(0.0)
    f_logit_scale: float = _asked(0.0)
    f_max_alibi_bias: float = _asked(0.0)
    f_clamp_kqv: float = _asked(0.0)
    attn_soft_cap: bool = _asked(False)
    f_attn_logit_softcapping: float = _asked(50.0)
    f_final_logit_softcapping: float = _asked(30.0)
    f_attn_temp_scale: float = _asked(0.0)
    f_attn_temp_offset: float = _asked(0.0)
    n_attn_temp_floor_scale: int = _asked(0)
    use_par_res: bool = _asked(False)
    swa_type: str = _asked("none")
    n_swa: int = _asked(0)
    is_swa_arr: np.ndarray = field(default_factory=_ints, metadata=ASKED)
    n_no_rope_layer_step: int = _asked(0)
    rope_pattern: np.ndarray = field(default_factory=_ints, metadata=ASKED)
    rope_type: str = "none"
    rope_sections: tuple[int, ...] = _asked(())
    rope_finetuned: bool = False
    rope_freq_base_train: float = 10000.0
    rope_freq_scale_train: float = 1.0
    rope_freq_base_train_swa: float = _asked(10000.0)
    rope_freq_scale_train_swa: float = _asked(1.0)
    rope_scaling_type_train: str = "linear"
    n_ctx_orig_yarn: int = 0
    rope_attn_factor: float = 1.0
    rope_yarn_log_mul: float = _asked(0.0)
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

    def n_ff_exp(self, il: int = 0) -> int:
        """Width of one expert of layer `il`; 0 where the file does not say."""
        return int(self.n_ff_exp_arr[il]) if len(self.n_ff_exp_arr) else 0

    def n_expert_used(self, il: int = 0) -> int:
        """Experts that each token of layer `il` goes through."""
        return int(self.n_expert_used_arr[il]) if len(self.n_expert_used_arr) else 0

    def is_swa(self, il: int) -> bool:
        """True where layer `il` has a sliding window."""
        return bool(len(self.is_swa_arr)) and bool(self.is_swa_arr[il])

    def set_swa_pattern(self, n_pattern: int, *, dense_first: bool = False) -> None:
        """Every `n_pattern`-th layer is dense, the others have a window; 0: all have one.

        The dense layer is the last of its group, or with `dense_first` the first.
        """
        il = np.arange(self.n_layer_all)
        if n_pattern == 0:
            swa = il >= 0
        elif dense_first:
            swa = il % n_pattern != 0
        else:
            swa = il % n_pattern < n_pattern - 1
        self.is_swa_arr = np.asarray(swa & (il < self.n_layer), np.int64)

    def load_swa_pattern(self, keys: Keys, n_pattern: int, *, dense_first: bool = False) -> None:
        """Which layers have a window: an array of the file, its period, or the period given."""
        key = "{arch}.attention.sliding_window_pattern"
        array = keys.get_arr("is_swa_arr", key, LLAMA_MAX_LAYERS)
        if array is None:
            n_pattern = keys.get("is_swa_arr", key, "u32", n_pattern)
            self.set_swa_pattern(n_pattern, dense_first=dense_first)
        else:
            self.is_swa_arr = np.zeros(self.n_layer_all, np.int64)
            self.is_swa_arr[: len(array)] = array[: self.n_layer_all] != 0
        if not self.is_swa_arr.any():
            refuse(keys, key, "no layer has a sliding window")

    def has_rope(self, il: int) -> bool:
        """True where layer `il` has rotary positions."""
        return not len(self.rope_pattern) or bool(self.rope_pattern[il])

    def rope_freqs_of(self, il: int, c: CParams) -> tuple[float, float]:
        """RoPE's base and scale in layer `il`: a layer with a window may have its own."""
        if self.is_swa(il):
            return self.rope_freq_base_train_swa, self.rope_freq_scale_train_swa
        return c.rope_freq_base, c.rope_freq_scale

    @property
    def use_alibi(self) -> bool:
        """True where scores fall with the distance instead of rotary positions."""
        return self.f_max_alibi_bias > 0

    @property
    def n_pos_per_embd(self) -> int:
        """Positions per token: 4 with M-RoPE, else 1."""
        return 4 if self.rope_type == "mrope" else 1

    def n_embd_v_gqa_max(self) -> int:
        """The largest `n_embd_v_gqa` of all layers."""
        return self.n_embd_head_v * int(self.n_head_kv_arr.max(initial=0))

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
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name == "origin" or (f.metadata.get("asked") and f.name not in self.origin):
                continue
            if isinstance(value, np.ndarray):
                same = len(value) > 0 and bool((value == value[0]).all())
                value = value[0].item() if same else value.tolist()
            out[f.name] = (value, self.origin.get(f.name, "default"))
        return out


def _is_default(f: Field[Any], value: Any) -> bool:
    return len(value) == 0 if isinstance(value, np.ndarray) else bool(value == f.default)


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
    hp.rope_type = arch.rope_type
    hp.origin["rope_type"] = f"architecture {keys.arch}"
    arch.load_arch_hparams(hp, keys)
    for f in fields(hp):  # what the architecture set itself
        set_here = f.metadata.get("asked") and not _is_default(f, getattr(hp, f.name))
        if set_here and f.name != "n_layer_all":
            hp.origin.setdefault(f.name, f"architecture {keys.arch}")
    check_hparams(hp, keys, arch)
    for name, (value, origin) in hp.as_dict().items():
        yield Event("data", name, depth + 1, 4, value, origin)
    yield Event("exit", "load_hparams", depth, 4, hp)
    return hp


def _load_general(hp: HParams, keys: Keys) -> None:
    get = keys.get
    hp.n_ctx_train = get("n_ctx_train", "{arch}.context_length", "u32")
    hp.n_embd = get("n_embd", "{arch}.embedding_length", "u32")
    hp.n_layer = hp.n_layer_all = get("n_layer", "{arch}.block_count", "u32")
    hp.causal_attn = get("causal_attn", "{arch}.attention.causal", "bool", True)
    if not 0 < hp.n_layer <= LLAMA_MAX_LAYERS:
        refuse(keys, "{arch}.block_count", f"{hp.n_layer} layers; expected 1..{LLAMA_MAX_LAYERS}")
    n = hp.n_layer_all
    hp.n_layer_nextn = get("n_layer_nextn", "{arch}.nextn_predict_layers", "u32", 0)
    if hp.n_layer_nextn:
        if hp.n_layer_nextn >= n:
            why = f"{hp.n_layer_nextn} of {n} layers: none are left to run"
            refuse(keys, "{arch}.nextn_predict_layers", why)
        hp.n_layer = n - hp.n_layer_nextn
        hp.origin["n_layer"] = "n_layer_all - n_layer_nextn"
        hp.origin["n_layer_all"] = keys.name("{arch}.block_count")
    else:
        del hp.origin["n_layer_nextn"]
    _load_experts(hp, keys)

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


def _load_experts(hp: HParams, keys: Keys) -> None:
    get = keys.get
    hp.n_expert = get("n_expert", "{arch}.expert_count", "u32", 0)
    hp.n_expert_used_arr = keys.get_or_arr(
        "n_expert_used_arr", "{arch}.expert_used_count", hp.n_layer_all
    )
    most, key = int(hp.n_expert_used_arr.max()), "{arch}.expert_used_count"
    if hp.n_expert > LLAMA_MAX_EXPERTS:
        refuse(keys, "{arch}.expert_count", f"{hp.n_expert}; at most {LLAMA_MAX_EXPERTS}")
    if most > hp.n_expert:
        refuse(keys, key, f"{most} experts used of only {hp.n_expert}")
    if hp.n_expert and not most:
        refuse(keys, key, f"none of {hp.n_expert} experts are used")
    groups = keys.name("{arch}.expert_group_count")
    if groups not in keys.gguf.kv:
        return
    hp.n_expert_groups = get("n_expert_groups", groups, "u32")
    hp.n_group_used = get("n_group_used", "{arch}.expert_group_used_count", "u32", 0)
    if hp.n_expert_groups > 1 and (
        hp.n_expert % hp.n_expert_groups
        or hp.n_expert_groups >= hp.n_expert
        or not 0 < hp.n_group_used < hp.n_expert_groups
    ):
        why = (
            f"{hp.n_expert_groups} groups, {hp.n_group_used} of them used, do not fit "
            f"{hp.n_expert} experts"
        )
        refuse(keys, "{arch}.expert_group_count", why)


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
        refuse(
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
