"""Launches of softmax and rotary positions. ↔ ggml/src/ggml-cuda/{softmax,rope}.cu"""

from __future__ import annotations

from typing import Any

import numpy as np

from llmviz.ggml.backends.backend import Kernel
from llmviz.ggml.backends.cpu_attention import alibi_slopes
from llmviz.ggml.backends.cuda.base import Binding, Steps, floats, memory_of, op, strided
from llmviz.ggml.backends.rope import RopeTable
from llmviz.ggml.graph import Tensor
from llmviz.ggml.types import GGMLType


def _rows(node: Tensor) -> bool:
    return floats(node) and all(s.nb[0] == 4 for s in node.src)


@op("SOFT_MAX", _rows)
def _bind_soft_max(b: Binding) -> Kernel:
    node = b.node
    x = node.src[0]
    has_sinks = node.params.get("sinks", False)
    masks = node.src[1 : len(node.src) - has_sinks]
    max_bias = node.params["max_bias"]
    slopes = b.upload(alibi_slopes(x.ne[2], max_bias)) if max_bias > 0 else None
    return b.per_row(
        "soft_max_f32",
        x.nelements // x.ne[0],
        x.ne[0],
        keep=(slopes,),
        x=memory_of(x),
        mask=memory_of(masks[0]) if masks else None,
        slopes=slopes,
        sinks=memory_of(node.src[-1]) if has_sinks else None,
        out=memory_of(node),
        x_at=strided(x),
        mask_at=strided(masks[0]) if masks else None,
        scale=node.params["scale"],
    )


def _takes_rope(node: Tensor) -> bool:
    x, pos = node.src[:2]
    return (
        node.type == x.type == GGMLType.F32
        and pos.type == GGMLType.I32
        and x.nb[0] == 4
        and x.ne[3] == 1
        and pos.is_contiguous
        and all(t.type == GGMLType.F32 for t in node.src[2:])
    )


@op("ROPE", _takes_rope)
def _bind_rope(b: Binding) -> Kernel:
    node = b.node
    x, params = node.src[0], node.params
    half = params["n_rot"] // 2
    key = ("rope", *map(id, node.src[1:]), *sorted(params.items()))
    cis: Any = b.scope.shared.get(key)
    angles = None
    if cis is None:  # the graph's first: the angles are the same for all
        cis = b.empty((x.ne[2], half, 2), np.float32)
        b.scope.shared[key] = cis
        angles = _angles(b, cis, half)
    per_row = (x.ne[0] + 1) // 2
    n = per_row * x.ne[1] * x.ne[2]
    turn = b.each(
        "rope_rotate",
        n,
        keep=(cis,),
        x=memory_of(x),
        cis=cis,
        out=memory_of(node),
        x_at=strided(x),
        n=n,
        width=x.ne[0],
        half=half,
        apart=1 if params["mode"] == "norm" else half,
    )
    return turn if angles is None else Steps(angles, turn)


def _angles(b: Binding, cis: Any, half: int) -> Any:
    params = b.node.params
    table = RopeTable(np.zeros(4, np.int32), None, params)  # its constants, not its angles
    follows = None if table.follows is None else b.upload(table.follows.astype(np.int32))
    ramp = None if table.ramp is None else b.upload(table.ramp)
    return b.each(
        "rope_angles",
        cis.shape[0],
        keep=(cis, follows, ramp),
        pos=memory_of(b.node.src[1]),
        factors=memory_of(b.node.src[2]) if len(b.node.src) > 2 else None,
        follows=follows,
        ramp=ramp,
        cis=cis,
        n_tokens=cis.shape[0],
        half=half,
        theta_scale=np.float32(params["freq_base"]) ** np.float32(-2.0 / params["n_rot"]),
        freq_scale=table.freq_scale,
        mscale=table.mscale,
    )
