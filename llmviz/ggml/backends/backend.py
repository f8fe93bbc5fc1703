"""Backends and devices: who can compute a graph.

↔ ggml/include/ggml-backend.h, ggml/src/ggml-backend-reg.cpp

Does not compute: a backend turns each node into one callable (`bind`), the scheduler calls them.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from llmviz.errors import LlmvizError
from llmviz.events import Event, Steps
from llmviz.ggml.graph import Tensor

__all__ = ["Backend", "BindScope", "Device", "devices", "devices_steps", "register"]

Kernel = Callable[[], object]


@dataclass
class BindScope:
    """What the nodes of one graph share while they are bound.

    Attributes
    ----------
    shared : dict
        Things made for one node that others use too (RoPE's cosines, quantized activations).
    n_threads : tuple of (int, int)
        Threads for one column and for several; 0 is all there are.
    compiled : bool
        Whether ops may use their compiled form where there is one.
    """

    shared: dict[object, object] = field(default_factory=dict)
    n_threads: tuple[int, int] = (0, 0)
    compiled: bool = False


class Backend(Protocol):
    """Computes nodes.

    `bind` is called once per node after the graph has memory; the kernel it returns reads the
    sources'
    arrays and may write only the node's own array (SET_ROWS: the tensor it views).
    """

    name: str

    def supports(self, node: Tensor) -> bool:
        """True where `bind` knows the node's op and types."""
        ...

    def bind(self, node: Tensor, scope: BindScope) -> Kernel | None:
        """One callable that computes `node`; None for a pure view."""
        ...


@dataclass(frozen=True)
class Device:
    """A place where tensors can live. ↔ ggml_backend_dev_props

    Attributes
    ----------
    name : str
        ``"CPU"``, ``"CUDA0"``.
    type : str
        ``"cpu"`` or ``"gpu"``.
    description : str
    memory_total, memory_free : int
        Bytes; 0 where unknown.
    computes : bool
        False for a device that is only listed: this version has no kernels for it.
    """

    name: str
    type: str
    description: str
    memory_total: int = 0
    memory_free: int = 0
    computes: bool = True


_registry: dict[str, Callable[[], list[Device]]] = {}


def register(name: str, find: Callable[[], list[Device]]) -> None:
    """Add a backend's device finder to the registry (a later one of the same name replaces it)."""
    _registry[name] = find


def devices() -> list[Device]:
    """All devices of all registered backends.

    Raises
    ------
    LlmvizError
        Where no backend offers a device that computes.
    """
    found = [device for find in _registry.values() for device in find()]
    if not any(device.computes for device in found):
        listed = ", ".join(_registry) or "none"
        raise LlmvizError(
            f"no device can compute: registered backends: {listed}; devices found: "
            f"{', '.join(d.name for d in found) or 'none'}. Reinstall llmviz-debugger: the CPU "
            "backend is part of it."
        )
    return found


def devices_steps(*, depth: int = 0) -> Steps[list[Device]]:
    """Step 1 as events: one per device."""
    yield Event("enter", "backends", depth, 1, sorted(_registry))
    found = devices()
    for device in found:
        yield Event("data", device.name, depth + 1, 1, device)
    yield Event("exit", "backends", depth, 1, found)
    return found


def _cpu_memory() -> tuple[int, int]:
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        return page * os.sysconf("SC_PHYS_PAGES"), page * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0, 0


def _find_cpu() -> list[Device]:
    total, free = _cpu_memory()
    cores = os.cpu_count() or 1
    name = platform.processor() or platform.machine() or "processor"
    return [Device("CPU", "cpu", f"{name}, {cores} cores, numpy", total, free)]


def _find_cuda() -> list[Device]:
    """CuPy's devices where CuPy can be imported and sees one; their kernels are not part of this
    version.
    """
    try:
        import cupy
    except ImportError:
        return []
    try:
        n = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        return []
    found = []
    for i in range(n):
        props = cupy.cuda.runtime.getDeviceProperties(i)
        with cupy.cuda.Device(i):
            free, total = cupy.cuda.runtime.memGetInfo()
        label = props["name"].decode(errors="replace")
        found.append(Device(f"CUDA{i}", "gpu", label, total, free, computes=False))
    return found


register("CPU", _find_cpu)
register("CUDA", _find_cuda)
