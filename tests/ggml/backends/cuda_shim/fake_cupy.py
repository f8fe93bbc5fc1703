"""As much of CuPy as the CUDA backend uses, over memory of the process; kernels run in the shim.

As strict as CuPy where it matters: an array does not turn into a numpy array by itself, nothing
runs while a stream is recorded, cuBLAS refuses to be recorded, a host array must fit exactly.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from . import build

MEMORY = 1 << 30  # bytes of a device


class Pointer:
    """cupy.cuda.MemoryPointer."""

    def __init__(self, owner: np.ndarray, ptr: int) -> None:
        self.owner, self.ptr = owner, ptr

    def __add__(self, offset: int) -> Pointer:
        return Pointer(self.owner, self.ptr + int(offset))

    def memset_async(self, value: int, size: int, stream: Stream) -> None:
        ctypes.memset(self.ptr, value, size)

    def copy_from_device_async(self, source: Pointer, size: int, stream: Stream) -> None:
        stream.must_not_record("a copy")
        ctypes.memmove(self.ptr, source.ptr, size)


class Array:
    """cupy.ndarray."""

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: Any = float,
        memptr: Pointer | None = None,
        strides: tuple[int, ...] | None = None,
    ) -> None:
        dtype = np.dtype(dtype)
        if dtype.fields:
            raise TypeError(f"Unsupported dtype {dtype}")
        device = Device.current
        if memptr is None:
            nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            if nbytes > device.free():
                raise OutOfMemoryError(nbytes)
            owner = np.full(nbytes + 256, 0xA5, np.uint8)  # what was there before is no zero
            memptr = Pointer(owner, -(-owner.ctypes.data // 256) * 256)
        self.data, self.device = memptr, device
        own, start = memptr.owner, memptr.ptr - memptr.owner.ctypes.data
        self.values = np.ndarray(shape, dtype, own.data, start, strides)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def dtype(self) -> np.dtype:
        return self.values.dtype

    @property
    def strides(self) -> tuple[int, ...]:
        return self.values.strides

    @property
    def size(self) -> int:
        return self.values.size

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    @property
    def itemsize(self) -> int:
        return self.values.itemsize

    @property
    def ndim(self) -> int:
        return self.values.ndim

    @property
    def flags(self) -> Any:
        return self.values.flags

    def __len__(self) -> int:
        return len(self.values)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def _like(self, values: np.ndarray) -> Array:
        pointer = Pointer(self.data.owner, values.ctypes.data)
        return Array(values.shape, values.dtype, pointer, values.strides)

    def reshape(self, *shape: Any) -> Array:
        return self._like(self.values.reshape(*shape))

    def view(self, dtype: Any) -> Array:
        return self._like(self.values.view(dtype))

    def __getitem__(self, where: Any) -> Array:
        if _takes_arrays(where):
            Stream.current.must_not_record("a gather")
            found = self.values[_on_host(where)]
            out = Array(found.shape, found.dtype)
            out.values[...] = found
            return out
        found = self.values[where]
        if found.size and not np.shares_memory(found, self.values):
            raise NotImplementedError("only windows")
        return self._like(found)

    def __setitem__(self, where: Any, value: Any) -> None:
        Stream.current.must_not_record("an assignment")
        if isinstance(value, np.ndarray):
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        self.values[_on_host(where)] = value.values if isinstance(value, Array) else value

    def set(self, value: np.ndarray, stream: Stream | None = None) -> None:
        (stream or Stream.current).must_not_record("a copy from the host")
        if type(value) is not np.ndarray or value.dtype != self.dtype:
            raise TypeError(f"{value.dtype} array cannot be set to {self.dtype} array")
        if value.shape != self.shape:
            raise ValueError(f"Shape mismatch: {self.shape}, {value.shape}")
        if not (self.flags.c_contiguous and value.flags.c_contiguous):
            raise RuntimeError("Cannot set to non-contiguous array")
        self.values[...] = value

    def get(self, stream: Stream | None = None) -> np.ndarray:
        (stream or Stream.current).must_not_record("a copy to the host")
        return self.values.copy()


def _takes_arrays(where: Any) -> bool:
    return isinstance(where, tuple) and any(isinstance(i, Array) for i in where)


def _on_host(where: Any) -> Any:
    if not isinstance(where, tuple):
        return where
    assert not any(isinstance(i, np.ndarray) for i in where), "indices of the host"
    return tuple(i.values if isinstance(i, Array) else i for i in where)


class OutOfMemoryError(MemoryError):
    """cupy.cuda.memory.OutOfMemoryError."""


class Stream:
    """cupy.cuda.Stream. Calls run at once, or are noted while it is recorded."""

    current: Any = None
    ptr = 1

    def __init__(self, non_blocking: bool = False) -> None:
        self.recorded: list[Any] | None = None
        self._before: list[Any] = []
        self.device = Device.current
        self.n_launches = self.n_synchronized = 0

    def __enter__(self) -> Stream:
        self._before.append(Stream.current)
        Stream.current = self
        return self

    def __exit__(self, *_: Any) -> None:
        Stream.current = self._before.pop()

    def must_not_record(self, what: str) -> None:
        if self.recorded is not None:
            raise RuntimeError(f"cudaErrorStreamCaptureUnsupported: {what} while recording")

    def submit(self, call: Any) -> None:
        if self.recorded is None:
            self.n_launches += 1
            call()
        else:
            self.recorded.append(call)

    def begin_capture(self) -> None:
        self.must_not_record("a recording")
        self.recorded = []

    def end_capture(self) -> Graph:
        assert self.recorded is not None
        graph, self.recorded = Graph(self.recorded), None
        return graph

    def synchronize(self) -> None:
        self.must_not_record("waiting")
        self.n_synchronized += 1


class Graph:
    """cupy.cuda.Graph."""

    def __init__(self, calls: list[Any]) -> None:
        self.calls = calls
        self.n_launched = 0

    def launch(self, stream: Stream) -> None:
        stream.must_not_record("a launch")
        assert Device.current.id == stream.device.id
        stream.n_launches += 1
        self.n_launched += 1
        for call in self.calls:
            call()


class Device:
    """cupy.cuda.Device."""

    current: Any = None
    compute_capability = "90"
    used = 0  # what a test pretends that other programs take

    def __init__(self, index: int = 0) -> None:
        self.id = index
        self._before: list[Any] = []

    def __enter__(self) -> Device:
        self._before.append(Device.current)
        Device.current = self
        return self

    def __exit__(self, *_: Any) -> None:
        Device.current = self._before.pop()

    def free(self) -> int:
        return MEMORY - Device.used

    def synchronize(self) -> None:
        """Nothing is ever pending."""


Device.current = Device(0)
Stream.current = Stream()


class RawModule:
    """cupy.RawModule: any source is the one that the shim was built from."""

    def __init__(self, *, code: str) -> None:
        self.code = code

    def get_function(self, name: str) -> SimpleNamespace:
        if name not in build.all_kernels():
            raise RuntimeError(f"CUDA_ERROR_NOT_FOUND: named symbol not found: {name}")
        for type_ in build.library.BLOCK_TYPES:  # there where the last line asked for the type
            own = name in build.library.type_kernels(type_)
            if own and f"({type_.name})\n" not in self.code:
                raise RuntimeError(f"CUDA_ERROR_NOT_FOUND: {name} was not asked for")

        def call(grid: Any, threads: Any, args: Any, *, stream: Stream) -> None:
            assert Device.current.id == stream.device.id, "launched with another device current"
            (struct,) = args
            assert isinstance(struct, np.ndarray) and struct.size == 1
            assert struct.nbytes == build.size(name)
            now = struct.copy()  # arguments are read when the launch is made
            stream.submit(lambda: build.run(name, grid, threads, now))

        return SimpleNamespace(kernel=call)


def _matrix(address: int, rows: int, columns: int, ld: int) -> np.ndarray:
    """A matrix of floats, column by column, as cuBLAS counts."""
    raw = (ctypes.c_float * (ld * (columns - 1) + rows)).from_address(address)
    return np.ndarray((rows, columns), np.float32, raw, strides=(4, 4 * ld))


def sgemm(
    handle: int, transa: int, transb: int, m: int, n: int, k: int, alpha: int, a: int, lda: int,
    b: int, ldb: int, beta: int, c: int, ldc: int,
) -> None:  # fmt: skip
    """cublasSgemm."""
    Stream.current.must_not_record("cuBLAS")
    assert Device.current.id == Stream.current.device.id
    assert Stream.current.ptr and handle == 7
    left = _matrix(a, k, m, lda).T if transa else _matrix(a, m, k, lda)
    right = _matrix(b, n, k, ldb).T if transb else _matrix(b, k, n, ldb)
    scale, keep = (ctypes.c_float.from_address(p).value for p in (alpha, beta))
    assert scale == 1 and keep in (0, 1)
    out = _matrix(c, m, n, ldc)
    Stream.current.submit(lambda: out.__setitem__(..., left @ right + (out if keep else 0)))


class CUDARuntimeError(RuntimeError):
    """cupy.cuda.runtime.CUDARuntimeError."""


@contextmanager
def installed(n_devices: int = 1, cublas: bool = True) -> Iterator[Any]:
    """`import cupy` finds this module's stand-in."""
    fake: Any = ModuleType("cupy")
    fake.__version__ = "0.fake"
    fake.ndarray = Array
    fake.RawModule = RawModule
    fake.ascontiguousarray = _whole
    fake.asarray = _uploaded
    runtime = SimpleNamespace(
        getDeviceCount=lambda: n_devices,
        CUDARuntimeError=CUDARuntimeError,
        getDeviceProperties=lambda i: {"name": b"shim"},
        memGetInfo=lambda: (Device.current.free(), MEMORY),
    )
    cuda: Any = ModuleType("cupy.cuda")
    cuda.runtime, cuda.Device, cuda.Stream = runtime, Device, Stream
    cuda.memory = SimpleNamespace(OutOfMemoryError=OutOfMemoryError)
    cuda.device = SimpleNamespace(get_cublas_handle=lambda: 7)
    if cublas:
        cuda.cublas = SimpleNamespace(sgemm=sgemm, CUBLAS_OP_N=0, CUBLAS_OP_T=1)
    fake.cuda = cuda
    before = {name: sys.modules.get(name) for name in ("cupy", "cupy.cuda")}
    sys.modules["cupy"], sys.modules["cupy.cuda"] = fake, cuda
    try:
        yield fake
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def _uploaded(a: np.ndarray) -> Array:
    out = Array(a.shape, a.dtype)
    out.set(np.ascontiguousarray(a).reshape(a.shape))
    return out


def _whole(a: Array) -> Array:
    out = Array(a.shape, a.dtype)
    out.values[...] = a.values
    return out
