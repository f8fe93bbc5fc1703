"""What the graph is told about the cells. ↔ src/llama-kv-cache.cpp (set_input_*)

Indices to write to, the attention mask, pending shifts. Pure functions: each fills an array that
the caller owns.
"""

from __future__ import annotations

import numpy as np

from llmviz.batch import Ubatch
from llmviz.memory.cells import KVCells
from llmviz.memory.slots import SlotInfo, is_masked_swa

__all__ = ["set_k_idxs", "set_k_shift", "set_kq_mask", "set_v_idxs_trans"]

_KEEP, _DROP = np.float32(0.0), np.float32(-np.inf)


def _shaped(dst: np.ndarray, *shape: int) -> np.ndarray:
    """View of `dst` in another shape; an error where that would be a copy that nobody reads."""
    if not dst.flags.c_contiguous:
        raise ValueError("the array to fill must be contiguous")
    return dst.reshape(shape)


def set_k_idxs(dst: np.ndarray, sinfo: SlotInfo, kv_size: int) -> None:
    """Row of each token in K with all streams laid end to end.

    `dst` is int64[n_tokens]; token j of stream s goes to ``s * kv_size + cell``.
    """
    out = _shaped(dst, sinfo.n_stream, sinfo.size)  # [n_stream, n_tokens / n_stream]
    for s, idxs in enumerate(sinfo.idxs):
        np.add(idxs, sinfo.strm[s] * kv_size, out=out[s])


def set_v_idxs_trans(dst: np.ndarray, sinfo: SlotInfo, kv_size: int, n_embd_v_gqa: int) -> None:
    """Flat element index of each value in the transposed V.

    `dst` is int64[n_tokens * n_embd_v_gqa]; element j of a token goes to
    ``s * kv_size * n_embd_v_gqa + j * kv_size + cell``.
    """
    out = _shaped(
        dst, sinfo.n_stream, sinfo.size, n_embd_v_gqa
    )  # [n_stream, n_tokens / n_stream, n_embd]
    rows = np.arange(n_embd_v_gqa, dtype=np.int64) * kv_size  # [n_embd]
    for s, idxs in enumerate(sinfo.idxs):
        first = idxs + sinfo.strm[s] * kv_size * n_embd_v_gqa  # [n_tokens / n_stream]
        np.add(first[:, None], rows, out=out[s])


def set_k_shift(dst: np.ndarray, cells: list[KVCells]) -> None:
    """Pending shift of every cell: int32[n_stream, kv_size] (any shape of that many elements)."""
    np.stack([c.shift for c in cells], out=_shaped(dst, len(cells), -1))


def set_kq_mask(
    dst: np.ndarray,
    ubatch: Ubatch,
    cells: list[KVCells],
    seq_to_stream: list[int],
    *,
    causal: bool = True,
    n_swa: int = 0,
    swa_type: str = "none",
    alibi: bool = False,
) -> None:
    """What is added to each attention score: 0 where the token may look, -inf where not.

    A token sees the cells of its (first) sequence that do not lie after it, inside its window.

    Parameters
    ----------
    dst : numpy.ndarray
        float32[n_stream, n_tokens / n_stream, n_kv], contiguous (dimensions of length 1 may be
        added).
    ubatch : Ubatch
        Already applied to the cells.
    cells : list of KVCells
        Per stream.
    causal : bool
        False: later positions are visible too.
    alibi : bool
        Minus the distance instead of 0.
    """
    n_kv = dst.shape[-1]
    rows = _shaped(dst, ubatch.n_tokens, n_kv)  # [n_tokens, n_kv]
    first = ubatch.seq_id[0][0]
    if ubatch.n_seqs_unq == 1 or all(s[0] == first for s in ubatch.seq_id):
        groups = {first: slice(None)}
    else:
        of = np.fromiter((s[0] for s in ubatch.seq_id), np.int32, ubatch.n_tokens)
        groups = {s: of == s for s in set(of.tolist())}

    for s, tokens in groups.items():
        c = cells[seq_to_stream[s]]
        p0 = c.pos[:n_kv]  # [n_kv]
        member = c.seq_row(s)[:n_kv]  # [n_kv]
        p1 = ubatch.pos[tokens]  # [n]

        if alibi:
            see = member & _visible(p0, p1[:, None], causal, n_swa, swa_type)  # [n, n_kv]
            distance = -np.abs(p0 - p1[:, None]).astype(np.float32)  # [n, n_kv]
            rows[tokens] = np.where(see, distance, _DROP)
            continue

        low = p1.min()
        see = member & _visible(p0, low, causal, n_swa, swa_type)  # [n_kv]
        same = np.where(see, _KEEP, _DROP)  # [n_kv]
        if len(p1) == 1:
            rows[tokens] = same
            continue
        whole = len(p1) == ubatch.n_tokens
        block = rows if whole else np.empty((len(p1), n_kv), np.float32)  # [n, n_kv]
        block[:] = same
        # the rows differ only in cells at the positions of the ubatch and one window before it
        reach = n_swa if swa_type != "none" else 0
        cols = np.flatnonzero(member & (p0 >= low - reach))  # [n_cols]
        if len(cols):
            see = _visible(p0[cols], p1[:, None], causal, n_swa, swa_type)  # [n, n_cols]
            if cols[-1] - cols[0] + 1 == len(cols):  # in place, several times faster
                part = block[:, cols[0] : cols[-1] + 1]  # [n, n_cols]
                part[:] = _DROP
                np.copyto(part, _KEEP, where=see)
            else:
                block[:, cols] = np.where(see, _KEEP, _DROP)
        if not whole:
            rows[tokens] = block


def _visible(p0: np.ndarray, p1: np.ndarray, causal: bool, n_swa: int, swa_type: str) -> np.ndarray:
    """bool, `p0` broadcast against `p1`: may a query at p1 look at a key at p0?"""
    see = p0 <= p1 if causal else np.ones(np.broadcast(p0, p1).shape, bool)
    if swa_type != "none":
        see &= ~is_masked_swa(n_swa, swa_type, p0, p1)
    return see
