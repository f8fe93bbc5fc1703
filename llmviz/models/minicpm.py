"""MiniCPM: granite's graph with multipliers of its own. ↔ src/models/minicpm.cpp"""

from __future__ import annotations

from math import sqrt

from llmviz.model.hparams import HParams
from llmviz.model.hparams_check import refuse
from llmviz.model.keys import Keys
from llmviz.models.granite import Granite

__all__ = ["MiniCPM"]


class MiniCPM(Granite):
    """Multipliers that older files do not have follow from depth and width."""

    name = "minicpm"
    rope_type = "norm"
    sizes = {52: "1B", 40: "2B"}

    # hyperparameters

    @staticmethod
    def load_arch_hparams(hp: HParams, keys: Keys) -> None:
        """Epsilon and multipliers."""
        get = keys.get
        hp.f_norm_rms_eps = keys.rms_eps()
        residual = 1.4 / sqrt(hp.n_layer)
        logits = 256.0 / hp.n_embd if hp.n_embd else 1.0
        hp.f_embedding_scale = get("f_embedding_scale", "{arch}.embedding_scale", "f32", 12.0)
        hp.f_residual_scale = get("f_residual_scale", "{arch}.residual_scale", "f32", residual)
        hp.f_logit_scale = get("f_logit_scale", "{arch}.logit_scale", "f32", logits)
        if hp.f_logit_scale == 0:
            refuse(keys, "{arch}.logit_scale", "0; the logits are divided by it")
        hp.rope_finetuned = True

    @classmethod
    def size_name(cls, hp: HParams) -> str:
        """Name by depth."""
        return cls.sizes.get(hp.n_layer, "?B")

    # tensors and graph: granite's
