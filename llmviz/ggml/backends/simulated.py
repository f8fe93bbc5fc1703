"""A device that does not exist: numpy with memory of its own, a limit on it, all copies counted.

↔ ggml/src/ggml-cuda/ggml-cuda.cu, for what a backend of a GPU does around its kernels

For machines without a GPU: where layers go, what is copied when and what does not fit are the
same questions there. Speed is not: a simulated device computes with the CPU's kernels, so it is
never faster, and its numbers are the CPU's bit for bit. It says that it is simulated wherever it
shows.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmviz.errors import DeviceMemoryError, LlmvizError
from llmviz.ggml.backends.backend import BindScope, Device, Kernel
from llmviz.ggml.backends.cpu import CPU
from llmviz.ggml.graph import Tensor

__all__ = ["SimulatedDevice", "Traffic"]

_NEED = {"weights": "weights need", "kv": "a KV cache needs", "compute": "compute buffers need"}

OFFLOAD_BATCH = 32
"""Tokens from which on a weight is worth copying. ↔ GGML_OP_OFFLOAD_MIN_BATCH"""


@dataclass
class Traffic:
    """What went over the bus of a device, since it was made or since `clear`.

    Attributes
    ----------
    n_in, bytes_in : int
        Copies to the device, from the host or from another device.
    n_out, bytes_out : int
        Copies from it to the host: results, and values that somebody looked at.
    """

    n_in: int = 0
    bytes_in: int = 0
    n_out: int = 0
    bytes_out: int = 0

    def clear(self) -> None:
        """Begin to count anew."""
        self.n_in = self.bytes_in = self.n_out = self.bytes_out = 0


class SimulatedDevice:
    """A GPU that is only imagined; see `backend.Backend`.

    Parameters
    ----------
    memory : int
        Bytes that it has.
    name : str
        The word "simulated" is added where it is missing.

    Attributes
    ----------
    memory : int
    used : dict of str to int
        Bytes in use for ``"weights"``, ``"kv"`` and ``"compute"``.
    traffic : Traffic

    Examples
    --------
    >>> SimulatedDevice(8 * 2**20, "GPU1").name
    'GPU1 (simulated)'
    """

    is_host = False
    is_simulated = True

    def __init__(self, memory: int = 8 * 2**30, name: str = "GPU0 (simulated)") -> None:
        if isinstance(memory, bool) or not isinstance(memory, int) or memory <= 0:
            raise LlmvizError(
                f"memory = {memory!r}: a device has a number of bytes, for example 8 * 2**30"
            )
        if "#" in name or not name:
            raise LlmvizError(f"name = {name!r}: a device needs a name without '#'")
        self.memory = memory
        self.name = name if "simulated" in name else f"{name} (simulated)"
        self.used = {"weights": 0, "kv": 0, "compute": 0}
        self.traffic = Traffic()
        self._cpu = CPU()

    def __repr__(self) -> str:
        return f"<SimulatedDevice {self.name!r}, {_mib(self.free)} of {_mib(self.memory)} free>"

    @property
    def free(self) -> int:
        """Bytes that are not in use."""
        return self.memory - sum(self.used.values())

    @property
    def device(self) -> Device:
        """Its entry in a list of devices."""
        about = f"numpy stands in for it, {_mib(self.memory)}"
        return Device(
            self.name, "gpu", about, self.memory, self.free, is_simulated=True, init=lambda: self
        )

    def supports(self, node: Tensor) -> bool:
        """What the CPU's kernels can."""
        return self._cpu.supports(node)

    def offload_op(self, node: Tensor) -> bool:
        """True from 32 tokens on. ↔ ggml_backend_cuda_device_offload_op"""
        return _batch_size(node) >= OFFLOAD_BATCH

    def bind(self, node: Tensor, scope: BindScope) -> Kernel | None:
        """The CPU's kernel over this device's arrays."""
        return self._cpu.bind(node, scope)

    def alloc(self, nbytes: int, usage: str) -> np.ndarray:
        """See `backend.Backend`."""
        if nbytes > self.free:
            raise DeviceMemoryError(
                f"{self.name} has {_mib(self.free)} of {_mib(self.memory)} free, {_NEED[usage]} "
                f"{_mib(nbytes)}",
                device=self.name,
                needed=nbytes,
                free=self.free,
            )
        buffer = (np.zeros if usage == "kv" else np.empty)(nbytes, np.uint8)
        self.used[usage] += nbytes
        weakref.finalize(buffer, _give_back, self.used, usage, nbytes).atexit = False
        return buffer

    def view(
        self,
        buffer: Any,
        shape: tuple[int, ...],
        dtype: np.dtype[Any] | type,
        offset: int = 0,
        strides: tuple[int, ...] | None = None,
    ) -> np.ndarray:
        """See `backend.Backend`."""
        return np.ndarray(shape, dtype, buffer=buffer.data, offset=offset, strides=strides)

    def set(self, array: np.ndarray, value: np.ndarray) -> None:
        """See `backend.Backend`."""
        array[...] = value
        self.traffic.n_in += 1
        self.traffic.bytes_in += array.nbytes

    def get(self, array: np.ndarray) -> np.ndarray:
        """See `backend.Backend`; a copy, as it would be."""
        self.traffic.n_out += 1
        self.traffic.bytes_out += array.nbytes
        return array.copy()

    def take(self, array: np.ndarray, where: tuple[Any, ...]) -> np.ndarray:
        """See `backend.Backend`."""
        return self.get(array[where])

    def put(self, array: np.ndarray, where: tuple[Any, ...], value: np.ndarray) -> None:
        """See `backend.Backend`."""
        array[where] = value
        self.traffic.n_in += 1
        self.traffic.bytes_in += array[where].nbytes

    def copy_from(self, source: Any, array: np.ndarray) -> bool:
        """Never: real ones may have a way past the host, or not."""
        return False

    def synchronize(self) -> None:
        """Nothing to wait for: a kernel returns when it is done."""


def _batch_size(node: Tensor) -> int:
    """Rows that share a weight. ↔ get_op_batch_size"""
    if node.op == "GET_ROWS":
        return 0
    if node.op == "MUL_MAT":
        return node.ne[1]
    if node.op in ("MUL_MAT_ID", "ROPE"):
        return node.ne[2]
    return node.ne[1] * node.ne[2] * node.ne[3]


def _give_back(used: dict[str, int], usage: str, nbytes: int) -> None:
    used[usage] -= nbytes


def _mib(n: int) -> str:
    return f"{n / 2**20:,.1f} MiB"
