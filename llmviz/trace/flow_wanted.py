"""Which nodes the recorder keeps for a flow view."""

from __future__ import annotations

from llmviz.trace.flow_graph import layer_of, stem

__all__ = ["Wanted", "cache_names", "every_layer"]

_INPUTS = frozenset({"inp_pos", "out_ids", "attn_inp_kq_mask", "attn_inp_kq_mask_swa"})
_OUTSIDE = frozenset({"embd", "result_norm", "result_output"})


def every_layer(name: str) -> bool:
    """Whether a flow of any layer shows a node: what to ask a recorder to keep for all of them."""
    if name in _OUTSIDE or name in _INPUTS:
        return True
    return layer_of(name) >= 0 and " (" not in name and stem(name) != "norm"


class Wanted:
    """Which nodes the recorder keeps for one view; holds no reference to the view.

    `cache` adds the layer's windows on the KV cache, for tokens that were decoded before anybody
    asked for their keys and values.
    """

    def __init__(self, layer: int, cache: bool = False) -> None:
        self.layer, self.cache = layer, cache

    def __call__(self, name: str) -> bool:
        base = stem(name)
        if name in _OUTSIDE or name in _INPUTS or base == "l_out":
            return True
        if self.cache and name in cache_names(self.layer):
            return True
        return layer_of(name) == self.layer and " (" not in name and base != "norm"


def cache_names(layer: int) -> tuple[str, str]:
    """The nodes that read a layer's keys and values from the cache."""
    return f"cache_k_l{layer} (view)", f"cache_v_l{layer} (view)"
