"""Which part of a model a node of its graph belongs to: embedding, attention, feed-forward, output.

Goes by llama.cpp's names; a node that ggml named itself works for the next one that has a name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from llmviz.ggml.graph import COPY_OP

__all__ = ["PARTS", "layers_of", "part_of"]

PARTS = ("embedding", "attention", "feed-forward", "other", "output", "copies")
"""Outside of the layers stand ``embedding`` and ``output``; ``other`` is a layer's node of neither;
``copies`` are those between devices.
"""

_SUFFIX = re.compile(r"(?:-\d+)?(?: \([a-z]+\))*$")
_ATTENTION = re.compile(
    r"(?:attn|[qkv]cur|[qkv](?:_|$)|kq|kv|wqkv|wo(?:_|$)|cache_[kv]_|q_pe|k_pe|ffn_inp$)", re.I
)
_FEED_FORWARD = re.compile(r"(?:ffn|mlp|l_out$|moe)")
_OTHER = re.compile(r"(?:ssm|conv|mamba|time_mix|channel_mix|wkv|cache_[rs]_|z$|dt)")


def layers_of(nodes: Sequence[Any]) -> list[int]:
    """The layer in whose scope each node is computed, -1 for none; as in `Graph.by_layer`.

    One that ggml named itself belongs where the next named one does. One that was named without its
    layer, but stands between nodes of the same one, is in it.
    """
    named, il = [], -1
    for t in reversed(nodes):
        il = il if t.il is None else int(t.il)
        named.append(il)
    named.reverse()
    after, following = -1, [-1] * len(named)
    for i in range(len(named) - 1, -1, -1):
        following[i] = after
        after = named[i] if named[i] >= 0 else after
    out, before = [], -1
    for il, then in zip(named, following, strict=True):
        before = il if il >= 0 else before
        out.append(il if il >= 0 or before != then else before)
    return out


def part_of(nodes: Sequence[Any]) -> list[str]:
    """The part of each node, one of `PARTS`.

    Parameters
    ----------
    nodes : sequence of Tensor
        In the order in which they are computed.
    """
    layers = layers_of(nodes)
    first = next((i for i, il in enumerate(layers) if il >= 0), 0)
    out: list[str] = []
    after, layer = "other", -1
    for i in range(len(nodes) - 1, -1, -1):
        if getattr(nodes[i], "op", "") == COPY_OP:
            out.append("copies")
            continue
        if layers[i] < 0:
            out.append("embedding" if i < first else "output")
            continue
        if layers[i] != layer:
            after, layer = "other", layers[i]
        after = _named(_SUFFIX.sub("", nodes[i].name)) or after
        out.append(after)
    return out[::-1]


def _named(stem: str) -> str:
    """What a name says of itself, empty for one that says nothing."""
    if _ATTENTION.match(stem):
        return "attention"
    if _FEED_FORWARD.match(stem):
        return "feed-forward"
    return "other" if _OTHER.match(stem) else ""
