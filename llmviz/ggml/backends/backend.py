"""Backends and devices: who can compute a graph, and where its tensors live.

↔ ggml/include/ggml-backend.h, ggml/src/ggml-backend-reg.cpp

Does not compute: a backend turns each node into one callable (`bind`), the scheduler calls them.
A backend that is not the host has memory of its own. Nothing outside it looks into that memory:
values come and go through `Backend.get` and `Backend.set`.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from llmviz.errors import LlmvizError
from llmviz.events import Event, Steps
from llmviz.ggml.graph import Graph, Tensor

__all__ = [
    "Backend",
    "BindScope",
    "Device",
    "Joins",
    "Kernel",
    "Taped",
    "cpu_device",
    "devices",
    "devices_steps",
    "register",
]

Kernel = Callable[[], object]


class Taped:
    """A kernel that can also run as rows of a tape, together with its neighbours.

    Parameters
    ----------
    bind : callable
        Makes the kernel by itself; asked when that is first called.
    rows : list of llmviz.ggml.backends.kernels.tape.Row
    """

    __slots__ = ("_bind", "_plain", "rows")

    def __init__(self, bind: Callable[[], Kernel], rows: list[Any]) -> None:
        self._bind, self.rows = bind, rows
        self._plain: Kernel | None = None

    def __call__(self) -> None:
        """Run the kernel by itself."""
        if self._plain is None:
            self._plain = self._bind()
        self._plain()


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
    """Computes nodes, and owns the memory they lie in. ↔ ggml_backend_i, ggml_backend_buffer_i

    Attributes
    ----------
    name : str
        ``"CPU"``, ``"CUDA0"``; stands in the names of copies, ``"CUDA0#inp_pos#0"``.
    is_host : bool
        True where its arrays are numpy arrays in the process's own memory. A tensor on the host
        has ``home is None``; every other has its backend there.
    is_simulated : bool
        True where the device does not exist: shown wherever its name is.
    """

    name: str
    is_host: bool
    is_simulated: bool

    @property
    def device(self) -> Device:
        """What it runs on, with its memory as it is now."""
        ...

    def supports(self, node: Tensor) -> bool:
        """True where `bind` knows the node's op and types. ↔ supports_op"""
        ...

    def offload_op(self, node: Tensor) -> bool:
        """True where the node is worth copying its weight here from the host's memory."""
        ...

    def bind(self, node: Tensor, scope: BindScope) -> Kernel | None:
        """One callable that computes `node`; None for a pure view.

        Called once per node after the graph has memory. All its sources lie here. The kernel
        reads their arrays and may write only the node's own (SET_ROWS: the tensor it views). It
        need not wait for its result: whoever reads it calls `get`, and whoever measures it calls
        the kernel's own ``wait()``, where it has one.
        """
        ...

    def alloc(self, nbytes: int, usage: str) -> Any:
        """Memory of this device: an array uint8 ``[nbytes]``, given back when nobody holds it.

        `usage`: ``"weights"``, ``"kv"`` (zeros, as a cache begins) or ``"compute"``.

        Raises
        ------
        DeviceMemoryError
            It does not fit.
        """
        ...

    def view(
        self,
        buffer: Any,
        shape: tuple[int, ...],
        dtype: np.dtype[Any] | type,
        offset: int = 0,
        strides: tuple[int, ...] | None = None,
    ) -> Any:
        """An array of `shape` over `buffer` from byte `offset` on; strides in bytes, no copy."""
        ...

    def set(self, array: Any, value: np.ndarray) -> None:
        """Write the host's values into an array of this device. ↔ ggml_backend_tensor_set"""
        ...

    def get(self, array: Any) -> np.ndarray:
        """The values of an array of this device, on the host, once all kernels called so far have
        run. ↔ ggml_backend_tensor_get
        """
        ...

    def take(self, array: Any, where: tuple[Any, ...]) -> np.ndarray:
        """``array[where]`` on the host, a copy; one of the indices is an array of integers."""
        ...

    def put(self, array: Any, where: tuple[Any, ...], value: np.ndarray) -> None:
        """``array[where] = value``, the other way round."""
        ...

    def copy_from(self, source: Any, array: Any) -> bool:
        """Copy straight from another backend's array into one of this; False: go through the host.

        ↔ cpy_tensor
        """
        ...

    def synchronize(self) -> None:
        """Wait until all kernels called so far have run."""
        ...


@runtime_checkable
class Joins(Protocol):
    """A backend that puts fewer launches in place of those of neighbours nobody looks at."""

    def bind_unseen(
        self, nodes: Sequence[Tensor], kernels: Sequence[Kernel | None], graph: Graph
    ) -> Sequence[Kernel]:
        """What to call in place of `kernels` when nobody watches these nodes of `graph`.

        Called after all of the graph is bound. What a node outside reads must be there afterwards.
        """
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
    is_simulated : bool
        It does not exist; its memory and its copies are counted as if it did.
    init : callable or None
        ``init() -> Backend``, for a device that the model's layers can be put on.
        ↔ ggml_backend_dev_init
    """

    name: str
    type: str
    description: str
    memory_total: int = 0
    memory_free: int = 0
    computes: bool = True
    is_simulated: bool = False
    init: Callable[[], Backend] | None = field(default=None, compare=False, repr=False)


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


def devices_steps(more: Sequence[Device] = (), *, depth: int = 0) -> Steps[list[Device]]:
    """Step 1 as events: one per device; `more` are devices that nobody has registered."""
    yield Event("enter", "backends", depth, 1, sorted(_registry))
    found = devices()
    found += [device for device in more if all(device.name != d.name for d in found)]
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


def cpu_device() -> Device:
    """The processor, with the memory that is free now."""
    total, free = _cpu_memory()
    cores = os.cpu_count() or 1
    name = platform.processor() or platform.machine() or "processor"
    return Device("CPU", "cpu", f"{name}, {cores} cores, numpy", total, free)


def _find_cpu() -> list[Device]:
    return [cpu_device()]


def _find_cuda() -> list[Device]:
    """CuPy's devices, where it is installed and finds a driver; their backend is imported then."""
    try:
        import cupy
    except ImportError:
        return []
    from llmviz.ggml.backends.cuda.device import find

    return find(cupy)


register("CPU", _find_cpu)
register("CUDA", _find_cuda)
