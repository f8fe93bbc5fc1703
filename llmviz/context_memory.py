"""What a context needs on each device, whether it fits, and what would.

↔ src/llama-context.cpp (memory_breakdown, sched_reserve), common/fit.cpp

Everything is measured before anything is taken: the graphs are built and laid out without memory,
as they would be for every number of layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from llmviz.errors import DeviceMemoryError
from llmviz.ggml.backends.backend import Backend
from llmviz.ggml.graph import Graph
from llmviz.ggml.sched import Sched
from llmviz.model.arch import ModelWeights
from llmviz.model.cparams import CParams
from llmviz.model.graph_result import GraphResult
from llmviz.model.memory import kv_tensors
from llmviz.model.model import Model
from llmviz.model.placement import Placement, leaves_of, mib, weight_bytes

__all__ = ["MemoryUse", "memory_breakdown", "pinned_nodes", "place_memory"]


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The memory of one device. ↔ llama_memory_breakdown_data

    Attributes
    ----------
    device, description : str
    total, free : int
        Bytes of the device as it is now; 0 where unknown.
    weights, kv, compute : int
        Bytes that the model, the cache and the graphs take there.
    is_simulated : bool
    """

    device: str
    description: str
    total: int
    free: int
    weights: int
    kv: int
    compute: int
    is_simulated: bool = False

    @property
    def used(self) -> int:
        """The three together."""
        return self.weights + self.kv + self.compute


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that a context would take on each device of a placement."""

    kv: tuple[int, ...]
    compute: tuple[int, ...]


def pinned_nodes(
    graph: Graph, placement: Placement, host: Backend, n_tokens: int, offload_kqv: bool
) -> dict[int, Backend]:
    """Nodes whose backend the graph's builder decides. ↔ llama_context::graph_get_cb

    A norm is computed with its own layer, not with the one before it, which would copy more. With
    the cache on the host, so is what reads it.
    """
    pinned: dict[int, Backend] = {}
    if not placement.devices:
        return pinned
    with_layer = n_tokens < 32 or placement.full_offload
    for node in graph.nodes:
        name, _, il = node.name.rpartition("-")
        if not il.isdigit():
            continue
        if with_layer and name in ("norm", "l_last"):
            pinned[id(node)] = placement.layers[int(il)] or host
        elif name == "kqv_out" and not offload_kqv:
            pinned[id(node)] = host
    return pinned


def place_memory(
    model: Model,
    c: CParams,
    memory: Any,
    sched: Sched,
    graphs: Callable[[Any], list[GraphResult]],
) -> None:
    """Move each layer's K and V to its device, once it is certain that a context fits everywhere.

    Parameters
    ----------
    memory : KVCache or KVCacheISWA
        Still empty, on the host.
    graphs : callable
        ``graphs(kv)``: the largest graphs of the context over a cache's tensors.

    Raises
    ------
    DeviceMemoryError
        Nothing was moved; with the largest ``n_gpu_layers`` that fits.
    """
    placement, weights = model.placement, model.weights
    assert weights is not None
    layers = [layer for cache in memory.caches.values() for layer in cache.layers]
    at = {id(device): i for i, device in enumerate(placement.devices)}

    def homes(other: Placement) -> list[Backend | None]:
        return [other.layers[layer.il] if c.offload_kqv else None for layer in layers]

    def need(other: Placement) -> Need:
        kv, compute = [0] * len(at), [0] * len(at)
        for layer, home in zip(layers, homes(other), strict=True):
            layer.home = home
            if home is not None:
                kv[at[id(home)]] += layer.nbytes
        with _pretended(weights, other):
            for result in graphs(kv_tensors(memory, model.hparams)):
                n_tokens = result.params.ubatch.n_tokens
                pinned = pinned_nodes(result.gf, other, sched.backends[-1], n_tokens, c.offload_kqv)
                sizes = sched.measure(result.gf, result.outputs(), pinned)
                compute = [max(a, b) for a, b in zip(compute, sizes, strict=False)]
        for layer in layers:
            layer.home = None
        return Need(tuple(kv), tuple(compute))

    _check(placement, lambda other: weight_bytes(weights, other), need, c)
    for layer, home in zip(layers, homes(placement), strict=True):
        layer.move_to(home)


@contextmanager
def _pretended(weights: ModelWeights, placement: Placement) -> Iterator[None]:
    """Inside, every weight says that it lies where another placement would put it."""
    before = [(leaf, leaf.home) for _, _, leaf in leaves_of(weights)]
    for field, il, leaf in leaves_of(weights):
        leaf.home = placement.home_of(field, il)
    try:
        yield
    finally:
        for leaf, home in before:
            leaf.home = home


def _check(
    placement: Placement,
    weights: Callable[[Placement], list[int]],
    need: Callable[[Placement], Need],
    c: CParams,
) -> None:
    free = [d.device.memory_free for d in placement.devices]
    now, there = need(placement), weights(placement)
    sums = [k + n for k, n in zip(now.kv, now.compute, strict=True)]
    bad = next((i for i, n in enumerate(sums) if n > free[i]), None)
    if bad is None:
        return
    device = placement.devices[bad].device
    room = [f + w for f, w in zip(free, there, strict=True)]
    fits = _largest_fit(placement, room, weights, need)
    advice = (
        "No number of layers would fit: with op_offload=True large batches are computed there too"
        if fits is None
        else f"Loaded with n_gpu_layers={fits} (now {placement.n_gpu_layers}) it would fit"
    )
    raise DeviceMemoryError(
        f"{device.name} has {mib(free[bad])} of {mib(device.memory_total)} free, this context "
        f"needs {mib(sums[bad])} there: KV cache {mib(now.kv[bad])}, compute buffers "
        f"{mib(now.compute[bad])} (the model's weights have taken {mib(there[bad])}). {advice}; "
        f"or make the context smaller: n_ctx (now {c.n_ctx}), n_ubatch (now {c.n_ubatch}), type_k "
        f"and type_v (now {c.type_k}, {c.type_v}), or keep the cache on the host with "
        "offload_kqv=False",
        device=device.name,
        needed=sums[bad],
        free=free[bad],
        fits=fits,
    )


def _largest_fit(
    placement: Placement,
    room: Sequence[int],
    weights: Callable[[Placement], list[int]],
    need: Callable[[Placement], Need],
) -> int | None:
    """The largest ``n_gpu_layers`` below the present one that fits; None where not even 0 does."""
    for n in range(min(placement.n_gpu_layers, len(placement.layers) + 1) - 1, -1, -1):
        other = placement.with_layers(n, room)
        found = need(other)
        sums = zip(weights(other), found.kv, found.compute, room, strict=True)
        if all(w + k + c <= r for w, k, c, r in sums):
            return n
    return None


def memory_breakdown(model: Model, memory: Any, sched: Sched) -> list[MemoryUse]:
    """What a context's devices hold, the host last. ↔ llama_context::memory_breakdown"""
    homes = [allocator.home for allocator in sched.allocators]
    weights, kv = dict.fromkeys(map(id, homes), 0), dict.fromkeys(map(id, homes), 0)
    assert model.weights is not None
    for leaf in {id(leaf): leaf for _, _, leaf in leaves_of(model.weights)}.values():
        weights[id(leaf.home)] += leaf.nbytes
    for cache in memory.caches.values():
        for layer in cache.layers:
            kv[id(layer.home)] += layer.nbytes
    out = []
    for allocator in sched.allocators:
        backend, key = allocator.home or sched.backends[-1], id(allocator.home)
        device = backend.device
        out.append(
            MemoryUse(
                device.name,
                device.description,
                device.memory_total,
                device.memory_free,
                weights[key],
                kv[key],
                allocator.size,
                device.is_simulated,
            )
        )
    return out
