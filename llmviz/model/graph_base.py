"""What all parts of the graph builder share: naming, products, norms.

↔ src/llama-graph.cpp (llm_graph_context)
"""

from __future__ import annotations

import os
import sys
from types import FrameType

from llmviz.ggml import ops
from llmviz.ggml.graph import Tensor
from llmviz.model.graph_result import GraphParams, GraphResult

__all__ = ["GraphBase"]

_BUILDERS = os.path.dirname(__file__) + os.sep  # the blocks
_MODELS = os.path.join("llmviz", "models") + os.sep  # one file for each architecture
_MAX_ORIGIN = 6


class GraphBase:
    """Holds what a graph is built from; `graph.GraphContext` adds the blocks."""

    def __init__(self, params: GraphParams) -> None:
        self.params = params
        self.hparams = params.hparams
        self.cparams = params.cparams
        self.weights = params.weights
        self.n_layer = params.hparams.n_layer
        self.n_tokens = params.ubatch.n_tokens
        self.n_rot = params.hparams.n_rot
        self.rope_type = params.hparams.rope_type
        self.res = GraphResult(params)
        self.gf = self.res.gf

    def cb(self, cur: Tensor, name: str, il: int) -> Tensor:
        """Name a tensor, ``name-il`` inside a layer, and note the lines that asked for it."""
        cur.origin = _origin(sys._getframe(1))
        return cur.set_name(name, il)

    def build_norm(
        self, cur: Tensor, mw: Tensor | None, mb: Tensor | None, kind: str, il: int
    ) -> Tensor:
        """Normalize each row, then weight and bias. `kind`: ``"rms"`` or ``"layer"``."""
        hp = self.hparams
        if kind == "rms":
            cur = ops.rms_norm(cur, hp.f_norm_rms_eps)
        elif kind == "layer":
            cur = ops.norm(cur, hp.f_norm_eps)
        else:
            raise ValueError(f"norm {kind!r} is neither 'rms' nor 'layer'")
        if mw is not None or mb is not None:
            self.cb(cur, "norm", il)
        if mw is not None:
            cur = ops.mul(cur, mw)
            if mb is not None:
                self.cb(cur, "norm_w", il)
        return cur if mb is None else ops.add(cur, mb)

    def build_lora_mm(self, w: Tensor | None, cur: Tensor) -> Tensor:
        """``w · cur``; the place where LoRA deltas would be added."""
        assert w is not None
        return ops.mul_mat(w, cur)

    def build_lora_mm_id(self, w: Tensor | None, cur: Tensor, ids: Tensor) -> Tensor:
        """`build_lora_mm` with the matrices of the experts `ids`."""
        assert w is not None
        return ops.mul_mat_id(w, cur, ids)


def _origin(frame: FrameType | None) -> tuple[tuple[str, int], ...]:
    """The line that named a tensor, and the lines that called for it from the same builder.

    Read only when a graph is built: who watches a node can show where it comes from.
    """
    lines: list[tuple[str, int]] = []
    while frame is not None and len(lines) < _MAX_ORIGIN:
        file = frame.f_code.co_filename
        if not file.startswith(_BUILDERS) and _MODELS not in file:
            break
        lines.append((file, frame.f_lineno))
        frame = frame.f_back
    return tuple(lines)
