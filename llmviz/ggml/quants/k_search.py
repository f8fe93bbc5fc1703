"""How the K types choose scales: several are tried, the best fit stays. ↔ ggml/src/ggml-quants.c

Each function works on many parts at a time, [n, 16 or 32] values, and follows
llama.cpp's float32 arithmetic step by step, so that the choice is the same to the bit.
"""

from __future__ import annotations

import numpy as np

from llmviz.ggml.quants.rounding import nearest, peak, total

__all__ = ["scale_and_minimum", "symmetric_scale", "symmetric_scale_by_turns"]

_TINY = np.float32(1e-15)
_F = np.float32


def scale_and_minimum(
    x: np.ndarray, weights: np.ndarray, top: int, first: float, tries: int, *, absolute: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fit ``x = scale * q - minimum`` with q from 0 to `top`, by weighted least squares.

    The codes come from stretching the range by a little less or more than `top` steps (from
    `first` on, a tenth further at each try); for them the best scale and minimum are solved for,
    and the try with the least error wins.

    Parameters
    ----------
    x, weights : float32[n, k]
    top : int
        The largest code.
    first : float
    tries : int
        Beyond the first.
    absolute : bool
        Errors count by their size, not by their square.

    Returns
    -------
    scale, minimum : float32[n]
    q : int32[n, k]
    """
    low = np.minimum(x.min(axis=1), _F(0))  # [n]
    high = x.max(axis=1)
    flat = high == low
    sum_w, sum_x = total(weights), total(weights * x)

    def error(scale: np.ndarray, q: np.ndarray, minimum: np.ndarray) -> np.ndarray:
        off = scale[:, None] * q + minimum[:, None] - x
        return total(weights * (np.abs(off) if absolute else off * off))

    def codes(stretch: np.ndarray, minimum: np.ndarray) -> np.ndarray:
        return np.clip(nearest(stretch[:, None] * (x - minimum[:, None])), 0, top)

    stretch = _F(top) / (high - low)
    scale, minimum = _F(1) / stretch, low
    q = codes(stretch, minimum)
    best = error(scale, q.astype(_F), minimum)
    for i in range(tries + 1):
        # the range starts at the best minimum so far, not at the smallest value
        stretch = (_F(first) + _F(0.1) * _F(i) + _F(top)) / (high - minimum)
        tried = codes(stretch, minimum)
        as_float = tried.astype(_F)  # [n, k]
        wq = weights * as_float
        sum_q, sum_qq, sum_xq = total(wq), total(wq * as_float), total(wq * x)
        determinant = sum_w * sum_qq - sum_q * sum_q
        this_scale = (sum_w * sum_xq - sum_x * sum_q) / determinant
        this_minimum = (sum_qq * sum_x - sum_q * sum_xq) / determinant
        above = this_minimum > 0
        this_minimum = np.where(above, _F(0), this_minimum)
        this_scale = np.where(above, sum_xq / sum_qq, this_scale)
        this_error = error(this_scale, as_float, this_minimum)
        better = (determinant > 0) & (this_error < best)
        best = np.where(better, this_error, best)
        scale = np.where(better, this_scale, scale)
        minimum = np.where(better, this_minimum, minimum)
        q = np.where(better[:, None], tried, q)
    scale = np.where(flat, _F(0), scale)
    minimum = np.where(flat, low, minimum)
    q[flat] = 0
    return scale, -minimum, q


def symmetric_scale(x: np.ndarray, half: int) -> tuple[np.ndarray, np.ndarray]:
    """Fit ``x = scale * (q - half)`` with q from 0 to 2 half - 1, squares weighted by x*x.

    Nineteen stretches around the one that gives the value furthest from zero the code 0.

    Returns
    -------
    scale : float32[n]
    q : int32[n, k]
    """
    top = peak(x)  # [n]
    weights = x * x

    def sums(stretch: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        q = np.clip(nearest(stretch[:, None] * x), -half, half - 1)
        as_float = q.astype(_F)
        return q, total(weights * x * as_float), total(weights * as_float * as_float)

    q, qx, qq = sums(_F(-half) / top)
    scale = np.where(qq != 0, qx / qq, _F(0))
    best = scale * qx
    for i in (*range(-9, 0), *range(1, 10)):
        tried, qx, qq = sums(-(_F(half) + _F(0.1) * _F(i)) / top)
        better = (qq > 0) & (qx * qx > best * qq)
        scale = np.where(better, qx / qq, scale)
        best = np.where(better, scale * qx, best)
        q = np.where(better[:, None], tried, q)
    zero = np.abs(top) < _TINY
    return np.where(zero, _F(0), scale), np.where(zero[:, None], 0, q + half)


def symmetric_scale_by_turns(x: np.ndarray, half: int) -> tuple[np.ndarray, np.ndarray]:
    """Fit as `symmetric_scale` does, changing one code at a time while that helps, five rounds.

    Returns
    -------
    scale : float32[n]
    q : int32[n, k]
    """
    top = peak(x)  # [n]
    weights = x * x
    q = np.clip(nearest((_F(-half) / top)[:, None] * x), -half, half - 1)  # [n, k]
    as_float = q.astype(_F)
    qx, qq = total(weights * x * as_float), total(weights * as_float * as_float)
    for _ in range(5):
        any_changed = False
        for i in range(x.shape[1]):
            w, xi, old = weights[:, i], x[:, i], q[:, i].astype(_F)
            rest_x = qx - w * xi * old
            rest_q = qq - w * old * old
            new = np.clip(nearest(xi * rest_q / rest_x), -half, half - 1)
            as_new = new.astype(_F)
            new_x = rest_x + w * xi * as_new
            new_q = rest_q + w * as_new * as_new
            better = (rest_x > 0) & (new != q[:, i]) & (new_q > 0)
            better &= new_x * new_x * qq > qx * qx * new_q
            if better.any():
                any_changed = True
                q[:, i] = np.where(better, new, q[:, i])
                qx, qq = np.where(better, new_x, qx), np.where(better, new_q, qq)
        if not any_changed:
            break
    zero = np.abs(top) < _TINY
    scale = np.where(zero | ~(qq > 0), _F(0), qx / qq)
    return scale, np.where(zero[:, None], 0, q + half)
