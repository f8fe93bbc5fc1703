"""Inputs of a graph: each makes its tensors, fills them for a ubatch, and says whether a graph can
be reused.

↔ src/llama-graph.h (llm_graph_input_i)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from llmviz.ggml.backends.cpu_matmul import hadamard
from llmviz.ggml.graph import Tensor, new_tensor
from llmviz.ggml.types import GGMLType

if TYPE_CHECKING:
    from llmviz.model.graph_result import GraphParams

__all__ = [
    "GraphInput",
    "InputAttnKV",
    "InputAttnKVISWA",
    "InputAttnTemp",
    "InputEmbd",
    "InputOutIds",
    "InputPos",
    "InputScaleRows",
]


class GraphInput(Protocol):
    """One kind of input."""

    def tensors(self) -> list[Tensor]:
        """The leaves it fills."""
        ...

    def set_input(self, params: GraphParams) -> None:
        """Write the ubatch's data into the leaves."""
        ...

    def can_reuse(self, params: GraphParams) -> bool:
        """True where the leaves' shapes fit another ubatch."""
        ...


def _array(tensor: Tensor) -> np.ndarray:
    assert tensor.array is not None
    return tensor.array


@dataclass
class InputEmbd:
    """Token ids, int32 ``[n_tokens]``."""

    tokens: Tensor

    @classmethod
    def make(cls, params: GraphParams) -> InputEmbd:
        """Create the leaf."""
        n = params.ubatch.n_tokens
        return cls(new_tensor(GGMLType.I32, n, name="inp_tokens", is_input=True))

    def tensors(self) -> list[Tensor]:
        """See `GraphInput`."""
        return [self.tokens]

    def set_input(self, params: GraphParams) -> None:
        """See `GraphInput`."""
        _array(self.tokens)[...] = params.ubatch.token

    def can_reuse(self, params: GraphParams) -> bool:
        """See `GraphInput`."""
        return self.tokens.ne[0] == params.ubatch.n_tokens


@dataclass
class InputPos:
    """Positions, int32 ``[n_tokens]``.

    With M-RoPE ``[4 * n_tokens]``: for text the position three times, then 0.
    """

    pos: Tensor
    n_pos: int = 1

    @classmethod
    def make(cls, params: GraphParams) -> InputPos:
        """Create the leaf."""
        n_pos = params.hparams.n_pos_per_embd
        n = params.ubatch.n_tokens * n_pos
        return cls(new_tensor(GGMLType.I32, n, name="inp_pos", is_input=True), n_pos)

    def tensors(self) -> list[Tensor]:
        """See `GraphInput`."""
        return [self.pos]

    def set_input(self, params: GraphParams) -> None:
        """See `GraphInput`."""
        if self.n_pos == 1:
            _array(self.pos)[...] = params.ubatch.pos
            return
        rows = _array(self.pos).reshape(self.n_pos, -1)  # [4, n_tokens]
        rows[:3] = params.ubatch.pos
        rows[3:] = 0

    def can_reuse(self, params: GraphParams) -> bool:
        """See `GraphInput`."""
        return self.pos.ne[0] == params.ubatch.n_tokens * self.n_pos


@dataclass
class InputScaleRows:
    """What each row of the embeddings is multiplied with, float32 ``[1, n_tokens]``.

    It stands for rows that are no tokens (a picture's), which would keep their size.
    """

    scale_rows: Tensor
    scale: float

    @classmethod
    def make(cls, params: GraphParams, scale: float) -> InputScaleRows:
        """Create the leaf."""
        n = params.ubatch.n_tokens
        leaf = new_tensor(GGMLType.F32, 1, n, name="inp_scale_rows", is_input=True)
        return cls(leaf, scale)

    def tensors(self) -> list[Tensor]:
        """See `GraphInput`."""
        return [self.scale_rows]

    def set_input(self, params: GraphParams) -> None:
        """See `GraphInput`."""
        _array(self.scale_rows)[...] = self.scale

    def can_reuse(self, params: GraphParams) -> bool:
        """See `GraphInput`."""
        return self.scale_rows.ne[1] == params.ubatch.n_tokens


@dataclass
class InputAttnTemp:
    """What queries are multiplied with, growing with the logarithm of the position.

    float32 ``[1, 1, n_tokens]``. ↔ llm_graph_input_attn_temp
    """

    attn_scale: Tensor

    @classmethod
    def make(cls, params: GraphParams) -> InputAttnTemp:
        """Create the leaf."""
        n = params.ubatch.n_tokens
        return cls(new_tensor(GGMLType.F32, 1, 1, n, name="inp_attn_scale", is_input=True))

    def tensors(self) -> list[Tensor]:
        """See `GraphInput`."""
        return [self.attn_scale]

    def set_input(self, params: GraphParams) -> None:
        """See `GraphInput`."""
        hp = params.hparams
        pos = params.ubatch.pos.astype(np.float32) + np.float32(hp.f_attn_temp_offset)
        steps = np.floor(pos / np.float32(hp.n_attn_temp_floor_scale))
        scale = np.log(steps.astype(np.float64) + 1.0) * hp.f_attn_temp_scale + 1.0
        _array(self.attn_scale)[:, 0, 0] = scale

    def can_reuse(self, params: GraphParams) -> bool:
        """See `GraphInput`."""
        return self.attn_scale.ne[2] == params.ubatch.n_tokens


@dataclass
class InputOutIds:
    """Rows whose logits are wanted, int32 ``[n_outputs]``."""

    out_ids: Tensor

    @classmethod
    def make(cls, params: GraphParams) -> InputOutIds:
        """Create the leaf."""
        return cls(new_tensor(GGMLType.I32, params.n_outputs, name="out_ids", is_input=True))

    def tensors(self) -> list[Tensor]:
        """See `GraphInput`."""
        return [self.out_ids]

    def set_input(self, params: GraphParams) -> None:
        """See `GraphInput`."""
        n_tokens = params.ubatch.n_tokens
        rows = (
            np.arange(n_tokens)
            if params.n_outputs == n_tokens
            else np.flatnonzero(params.ubatch.output)
        )
        _array(self.out_ids)[...] = rows

    def can_reuse(self, params: GraphParams) -> bool:
        """See `GraphInput`."""
        return self.out_ids.ne[0] == params.n_outputs


@dataclass
class InputAttnKV:
    """Where K and V are written, and which cells each token may look at.

    ``attn_inp_k_idxs`` int64 ``[n_tokens]``, ``attn_inp_v_idxs`` int64 ``[n_tokens *
    n_embd_v_gqa]``
    (the V cache is transposed), ``attn_inp_kq_mask`` float32 ``[n_kv, n_tokens / n_stream, 1,
    n_stream]``.

    `k_rot` and `v_rot` are the Hadamard matrices that a quantized K and V are mixed with, float32
    ``[n, n]``; None where they are not. `part` is the cache of a pair that it belongs to,
    ``"base"`` or ``"swa"``; empty: the only one.
    """

    k_idxs: Tensor
    v_idxs: Tensor
    kq_mask: Tensor
    part: str = ""
    k_rot: Tensor | None = None
    v_rot: Tensor | None = None

    @classmethod
    def make(cls, params: GraphParams, part: str = "") -> InputAttnKV:
        """Create the leaves."""
        kv, mctx = _part(params.kv, part), _part(params.mctx, part)
        suffix = "_swa" if part == "swa" else ""
        n = params.ubatch.n_tokens
        n_v = n * params.hparams.n_embd_v_gqa_max() if kv.cache.v_trans else n
        n_stream = 1 if params.cparams.kv_unified else params.ubatch.n_seqs_unq
        mask = new_tensor(
            GGMLType.F32,
            *_mask_ne(mctx.get_n_kv(), n, n_stream),
            name=f"attn_inp_kq_mask{suffix}",
            is_input=True,
        )
        return cls(
            new_tensor(GGMLType.I64, n, name=f"attn_inp_k_idxs{suffix}", is_input=True),
            new_tensor(GGMLType.I64, n_v, name=f"attn_inp_v_idxs{suffix}", is_input=True),
            mask,
            part,
            *(
                new_tensor(GGMLType.F32, n, n, name=f"attn_inp_{x}_rot{suffix}", is_input=True)
                if n
                else None
                for x, n in zip("kv", kv.cache.rotation, strict=True)
            ),
        )

    def kv_of(self, params: GraphParams) -> Any:
        """The cache's tensors."""
        return _part(params.kv, self.part)

    def mctx_of(self, params: GraphParams) -> Any:
        """The plan for the cache."""
        return _part(params.mctx, self.part)

    def tensors(self) -> list[Tensor]:
        """See `GraphInput`."""
        rotations = [t for t in (self.k_rot, self.v_rot) if t is not None]
        return [self.k_idxs, self.v_idxs, self.kq_mask, *rotations]

    def set_input(self, params: GraphParams) -> None:
        """See `GraphInput`."""
        mctx = _part(params.mctx, self.part)
        mctx.set_input_k_idxs(_array(self.k_idxs))
        mctx.set_input_v_idxs(_array(self.v_idxs))
        mctx.set_input_kq_mask(_array(self.kq_mask), params.cparams.causal_attn)
        for rot in (self.k_rot, self.v_rot):
            if rot is not None:
                _array(rot)[...] = hadamard(np.eye(rot.ne[0], dtype=np.float32))

    def can_reuse(self, params: GraphParams) -> bool:
        """See `GraphInput`."""
        n = params.ubatch.n_tokens
        n_stream = 1 if params.cparams.kv_unified else params.ubatch.n_seqs_unq
        ne = _mask_ne(_part(params.mctx, self.part).get_n_kv(), n, n_stream)
        return self.k_idxs.ne[0] == n and self.kq_mask.ne == (*ne, *(1,) * (4 - len(ne)))


@dataclass
class InputAttnKVISWA:
    """Two of them: for dense layers, and for layers with a sliding window."""

    base: InputAttnKV
    swa: InputAttnKV

    @classmethod
    def make(cls, params: GraphParams) -> InputAttnKVISWA:
        """Create the leaves."""
        return cls(InputAttnKV.make(params, "base"), InputAttnKV.make(params, "swa"))


def _part(of: Any, part: str) -> Any:
    return getattr(of, part) if part else of


def _mask_ne(n_kv: int, n_tokens: int, n_stream: int) -> tuple[int, ...]:
    return (n_kv, n_tokens) if n_stream == 1 else (n_kv, n_tokens // n_stream, 1, n_stream)
