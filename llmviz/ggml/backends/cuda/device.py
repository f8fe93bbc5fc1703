"""A CUDA device: its memory, its stream, and which nodes it computes.

↔ ggml/src/ggml-cuda/ggml-cuda.cu

Everything runs in one stream, so launches wait for one another and nobody waits for them:
values are copied to the host, and the stream waited for, only where somebody reads them.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from llmviz.errors import DeviceMemoryError, LlmvizError, UnsupportedError
from llmviz.ggml.backends.backend import BindScope, Device, Kernel
from llmviz.ggml.backends.cuda import (  # noqa: F401  (importing them registers their launches)
    ops_attention,
    ops_elementwise,
    ops_matmul,
    ops_norm,
    ops_rows,
)
from llmviz.ggml.backends.cuda.base import Binding, Steps, binders
from llmviz.ggml.backends.cuda.capture import Recording
from llmviz.ggml.backends.cuda.library import Library
from llmviz.ggml.graph import VIEW_OPS, Graph, Tensor

__all__ = ["CUDA", "find"]

LEAST_CAPABILITY = 61
"""Compute capability times ten: from 6.1 on, GPUs have the product of four bytes (`__dp4a`)."""

OFFLOAD_BATCH = 32
"""Tokens from which on a weight is worth copying. ↔ GGML_OP_OFFLOAD_MIN_BATCH"""


def _cupy() -> Any:
    try:
        return importlib.import_module("cupy")
    except ImportError as error:
        raise LlmvizError(
            f"the CUDA backend needs CuPy ({error}): pip install 'llmviz-debugger[cuda]', or "
            "CuPy's package for your version of CUDA"
        ) from error


def find(cupy: Any) -> list[Device]:
    """The devices that CuPy sees; none where it finds no driver."""
    runtime = cupy.cuda.runtime
    try:
        n = runtime.getDeviceCount()
    except runtime.CUDARuntimeError:
        return []
    return [_describe(cupy, i) for i in range(n)]


def _describe(cupy: Any, index: int) -> Device:
    runtime = cupy.cuda.runtime
    props = runtime.getDeviceProperties(index)
    with cupy.cuda.Device(index):
        free, total = runtime.memGetInfo()
    label = props["name"].decode(errors="replace")
    return Device(f"CUDA{index}", "gpu", label, total, free, init=lambda: CUDA(index))


class CUDA:
    """One CUDA device; see `backend.Backend`.

    Parameters
    ----------
    index : int
        Which of those that the driver shows.

    Attributes
    ----------
    library : Library
        The kernels.
    stream : cupy.cuda.Stream
        Where all of them run.
    records : bool
        Whether graphs that nobody watches are recorded once and then launched as one.

    Raises
    ------
    LlmvizError
        CuPy is not installed, or the device is too old.
    """

    is_host = False
    is_simulated = False

    def __init__(self, index: int = 0) -> None:
        self.cupy = _cupy()
        self.index = index
        self.name = f"CUDA{index}"
        self.records = True
        self.gelu_table: Any = None  # made when the first GELU is bound
        device = self.cupy.cuda.Device(index)
        capability = int(device.compute_capability)
        if capability < LEAST_CAPABILITY:
            raise LlmvizError(
                f"{self.name} has compute capability {capability / 10}, the kernels need "
                f"{LEAST_CAPABILITY / 10}: load with n_gpu_layers=0"
            )
        with device:
            self.stream = self.cupy.cuda.Stream(non_blocking=True)
        self.library = Library(self.cupy, self.stream, index)

    def __repr__(self) -> str:
        return f"<CUDA {self.name!r}, {self.device.description}>"

    @property
    def device(self) -> Device:
        """Its entry in a list of devices, memory as it is now."""
        return _describe(self.cupy, self.index)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make this device and its stream CuPy's current ones."""
        with self.cupy.cuda.Device(self.index), self.stream:
            yield

    def supports(self, node: Tensor) -> bool:
        """True where there is a kernel for the op and the types of its operands."""
        if node.op in VIEW_OPS:
            return True
        binding = binders.get(node.op)
        return binding is not None and binding.takes(node)

    def offload_op(self, node: Tensor) -> bool:
        """True for products of 32 tokens or more. ↔ ggml_backend_cuda_device_offload_op"""
        n = node.ne[1] if node.op == "MUL_MAT" else node.ne[2] if node.op == "MUL_MAT_ID" else 0
        return n >= OFFLOAD_BATCH

    def bind(self, node: Tensor, scope: BindScope) -> Kernel | None:
        """The node's launches as one callable, None for a view."""
        if node.op in VIEW_OPS:
            return None
        if not self.supports(node):
            raise UnsupportedError(f"op on {self.name}", node.op, supported=sorted(binders))
        if node.nelements == 0:  # rows of a ubatch that nobody asked for
            return Steps()
        with self.active():
            return binders[node.op].bind(Binding(node, self, scope))

    def bind_unseen(
        self, nodes: Sequence[Tensor], kernels: Sequence[Kernel | None], graph: Graph
    ) -> Sequence[Kernel]:
        """What to call in place of `kernels` when nobody looks at these nodes of `graph`.

        Neighbours whose results nobody else reads become one launch, and the whole is recorded as
        a CUDA graph when it runs the second time.
        """
        with self.active():
            recording = Recording(self, nodes, kernels, graph)
        return [recording] if recording.launches else []

    def alloc(self, nbytes: int, usage: str) -> Any:
        """See `backend.Backend`."""
        try:
            with self.active():
                buffer = self.cupy.ndarray((nbytes,), np.uint8)
                if usage == "kv":
                    buffer.data.memset_async(0, nbytes, self.stream)
                return buffer
        except self.cupy.cuda.memory.OutOfMemoryError as error:
            device = self.device
            free, total = device.memory_free, device.memory_total
            raise DeviceMemoryError(
                f"{self.name} has {free / 2**20:,.1f} of {total / 2**20:,.1f} MiB free, {usage} "
                f"need {nbytes / 2**20:,.1f} MiB",
                device=self.name,
                needed=nbytes,
                free=free,
            ) from error

    def view(
        self,
        buffer: Any,
        shape: tuple[int, ...],
        dtype: np.dtype[Any] | type,
        offset: int = 0,
        strides: tuple[int, ...] | None = None,
    ) -> Any:
        """See `backend.Backend`."""
        return self.cupy.ndarray(shape, dtype, memptr=buffer.data + offset, strides=strides)

    def set(self, array: Any, value: np.ndarray) -> None:
        """See `backend.Backend`."""
        if array.size == 0:
            return
        host = np.ascontiguousarray(np.broadcast_to(value, array.shape), array.dtype)
        with self.active():
            if array.flags.c_contiguous:
                array.set(host, stream=self.stream)
            else:
                whole = self.cupy.ndarray(array.shape, array.dtype)
                whole.set(host, stream=self.stream)
                array[...] = whole
        # CUDA has read ordinary host memory when the call returns: `host` may go

    def get(self, array: Any) -> np.ndarray:
        """See `backend.Backend`."""
        if array.size == 0:
            return np.empty(array.shape, array.dtype)
        with self.active():
            whole = array if array.flags.c_contiguous else self.cupy.ascontiguousarray(array)
            value: np.ndarray = whole.get(stream=self.stream)
            self.stream.synchronize()
        return value

    def take(self, array: Any, where: tuple[Any, ...]) -> np.ndarray:
        """See `backend.Backend`."""
        with self.active():
            return self.get(array[self._indices(where)])

    def put(self, array: Any, where: tuple[Any, ...], value: np.ndarray) -> None:
        """See `backend.Backend`."""
        with self.active():
            array[self._indices(where)] = self.cupy.asarray(np.asarray(value, array.dtype))

    def _indices(self, where: tuple[Any, ...]) -> tuple[Any, ...]:
        """The same with arrays of the device."""
        return tuple(self.cupy.asarray(i) if isinstance(i, np.ndarray) else i for i in where)

    def copy_from(self, source: Any, array: Any) -> bool:
        """Copy from another CUDA device's array where both are whole and alike."""
        if not isinstance(source, self.cupy.ndarray) or source.dtype != array.dtype:
            return False
        if source.size != array.size:
            return False
        if not (source.flags.c_contiguous and array.flags.c_contiguous):
            return False
        source.device.synchronize()  # whatever computes it runs in another stream
        with self.active():
            array.data.copy_from_device_async(source.data, array.nbytes, self.stream)
            self.stream.synchronize()  # the source's stream may write there next
        return True

    def synchronize(self) -> None:
        """See `backend.Backend`."""
        self.stream.synchronize()
