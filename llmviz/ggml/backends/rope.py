"""Rotary position embedding: the angles of a ubatch and the rotation.

↔ ggml_rope_cache_init, rope_yarn (ops.cpp)

Pair i of a head is turned by ``theta_i = pos * freq_base ** (-2 i / n_rot)``, optionally divided by
a frequency factor, scaled (linear) or blended between both (YaRN).
"""

from __future__ import annotations

from math import ceil, floor, log, pi
from typing import Any

import numpy as np

__all__ = ["RopeTable", "yarn_corr_dims"]


def yarn_corr_dims(
    n_rot: int, n_ctx_orig: int, freq_base: float, beta_fast: float, beta_slow: float
) -> tuple[float, float]:
    """First and last dimension between which YaRN blends. ↔ ggml_rope_yarn_corr_dims"""

    def corr_dim(turns: float) -> float:
        return n_rot * log(n_ctx_orig / (turns * 2 * pi)) / (2 * log(freq_base))

    return max(0.0, floor(corr_dim(beta_fast))), min(n_rot - 1.0, ceil(corr_dim(beta_slow)))


def _follows(sections: tuple[int, ...], n_pairs: int) -> np.ndarray:
    """Which of the four positions each pair follows, int64 ``[n_pairs]``; the sections recur."""
    of_one_round = np.repeat(np.arange(4), sections)
    return of_one_round[np.arange(n_pairs) % len(of_one_round)]


class RopeTable:
    """cos + i sin of every position and pair, complex64 ``[n_tokens, 1, n_rot / 2]``.

    Parameters
    ----------
    pos : ndarray of int32, [n_tokens]
        Read again on every `refresh`. With ``sections`` (M-RoPE) ``[4 * n_tokens]``: time, height,
        width and one more of every token; each pair follows one of the four.
    factors : ndarray of float32, [n_rot / 2], or None
        ``rope_freqs``: each pair's angle is divided by its factor.
    params : dict
        The ROPE node's parameters.
    """

    def __init__(self, pos: np.ndarray, factors: np.ndarray | None, params: dict[str, Any]) -> None:
        self.pos = pos
        half = params["n_rot"] // 2
        self.factors = None if factors is None else factors.reshape(-1)[:half]
        self.freq_scale = np.float32(params["freq_scale"])
        self.ext_factor = np.float32(params["ext_factor"])
        self.mscale = np.float32(params["attn_factor"])
        # theta is multiplied on from pair to pair in float32, as ggml does: the errors add up the
        # same way
        theta_scale = np.float32(params["freq_base"]) ** np.float32(-2.0 / params["n_rot"])
        self.steps = np.full((len(pos), half), theta_scale, np.float32)  # [n_tokens, n_rot / 2]
        self.follows = _follows(params["sections"], half) if params.get("sections") else None
        self.ramp = None
        if self.ext_factor != 0:
            low, high = yarn_corr_dims(
                params["n_rot"],
                params["n_ctx_orig"],
                params["freq_base"],
                params["beta_fast"],
                params["beta_slow"],
            )
            y = (np.arange(half, dtype=np.float32) - low) / max(0.001, high - low)
            self.ramp = (1 - np.clip(y, 0, 1)).astype(np.float32) * self.ext_factor
            self.mscale = self.mscale * np.float32(1.0 + 0.1 * log(1.0 / params["freq_scale"]))
        n_tokens = len(pos) if self.follows is None else len(pos) // 4
        self.cis = np.empty((n_tokens, 1, half), np.complex64)
        self.compiled: Any = None  # `kernels.ops.cos_sin` where compiled forms are used

    def refresh(self) -> None:
        """Compute the angles for the positions that are in `pos` now."""
        self.steps[:, 0] = self.pos
        theta = np.multiply.accumulate(self.steps, axis=1)  # [n_tokens, n_rot / 2]
        if self.follows is not None:
            four = theta.reshape(4, -1, theta.shape[1])  # [4, n_tokens, n_rot / 2]
            theta = four[self.follows, :, np.arange(theta.shape[1])].T  # [n_tokens, n_rot / 2]
        if self.factors is not None:
            theta /= self.factors
        interpolated = theta * self.freq_scale
        if self.ramp is not None:
            theta = interpolated * (1 - self.ramp) + theta * self.ramp
        else:
            theta = interpolated
        if self.compiled is not None:
            self.compiled(theta, self.mscale, self.cis)
            return
        np.multiply(np.cos(theta), self.mscale, out=self.cis.real[:, 0])
        np.multiply(np.sin(theta), self.mscale, out=self.cis.imag[:, 0])

    def rotate_norm(self, x: np.ndarray, out: np.ndarray) -> None:
        """Turn pairs of neighbours: values 2 i and 2 i + 1. x, out: float32 [n_tokens, n_head,
        n_embd_head]
        """
        n = 2 * self.cis.shape[-1]
        # a pair of neighbours in memory is one complex number
        np.multiply(x[..., :n].view(np.complex64), self.cis, out=out[..., :n].view(np.complex64))

    def rotate_neox(self, x: np.ndarray, out: np.ndarray) -> None:
        """Turn values i and i + n_rot / 2. x, out: float32 [n_tokens, n_head, n_embd_head]"""
        half = self.cis.shape[-1]
        cos, sin = self.cis.real, self.cis.imag
        x0, x1 = x[..., :half], x[..., half : 2 * half]
        np.subtract(x0 * cos, x1 * sin, out=out[..., :half])
        np.add(x0 * sin, x1 * cos, out=out[..., half : 2 * half])
