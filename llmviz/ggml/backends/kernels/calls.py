"""How compiled kernels are called: functions by address, their parameters in memory, in chunks.

A kernel is a C function ``kernel(args, first, n)``: it does the items ``first .. first + n - 1`` of
its work and finds everything else in an array of int64 at the address `args`. One loop for all
kernels shares the items among threads. So only this loop is compiled as a parallel one, which
takes numba a second, and a kernel alone in a tenth of that; a call passes only whole numbers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import cfunc, njit, prange, types
from numba.extending import intrinsic

from llmviz.ggml.backends.kernels.emit import I64, Emitter

__all__ = [
    "SIGNATURE",
    "Job",
    "arg",
    "bits",
    "compiled",
    "drive",
    "float_arg",
    "pointer",
    "use_threads",
]

SIGNATURE = types.void(types.int64, types.int64, types.int64)
"""``kernel(args, first, n)``."""

_SETTINGS: dict[str, Any] = {"cache": True, "nogil": True, "boundscheck": False}


def _call_address(typingctx: Any, fn: Any, args: Any, first: Any, n: Any) -> Any:
    """Call the kernel at an address."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [I64, I64, I64])
        builder.call(builder.inttoptr(values[0], kind.as_pointer()), values[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), codegen


def _arg_of(typingctx: Any, args: Any, i: Any) -> Any:
    """Parameter i of a kernel."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        e = Emitter(builder)
        return e.load(builder.add(values[0], e.times(values[1], 8)), I64)

    return types.int64(types.int64, types.int64), codegen


def _float_arg_of(typingctx: Any, args: Any, i: Any) -> Any:
    """Parameter i of a kernel, the bits of a float64, as float32."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        e = Emitter(builder)
        wide = e.load(builder.add(values[0], e.times(values[1], 8)), ir.DoubleType())
        return builder.fptrunc(wide, ir.FloatType())

    return types.float32(types.int64, types.int64), codegen


def _pointer_to(typingctx: Any, address: Any) -> Any:
    """An address as `numba.carray` takes it."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), codegen


_call: Any = intrinsic(_call_address)
arg: Any = intrinsic(_arg_of)
float_arg: Any = intrinsic(_float_arg_of)
pointer: Any = intrinsic(_pointer_to)


def _take_next(typingctx: Any, address: Any) -> Any:
    """The int64 at an address, which is one more afterwards; no two threads get the same."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        counter = builder.inttoptr(values[0], I64.as_pointer())
        return builder.atomic_rmw("add", counter, ir.Constant(I64, 1), "monotonic")

    return types.int64(types.int64), codegen


_next: Any = intrinsic(_take_next)


@njit(parallel=True, **_SETTINGS)
def drive(fn: int, args: int, n: int, chunk: int, n_threads: int) -> None:
    """Do a kernel's n items, `chunk` of them at a time; one thread wakes no other.

    Who is done takes the next chunk: a thread whose core is busy with something else takes fewer.
    """
    if n_threads == 1:
        _call(fn, args, 0, n)
        return
    counter = np.zeros(1, np.int64)
    for _ in prange(n_threads):
        while True:
            first = _next(counter.ctypes.data) * chunk
            if first >= n:
                break
            _call(fn, args, first, min(chunk, n - first))


_made: dict[Callable[..., None], Any] = {}  # kept: an address is good as long as its function lives


def compiled(body: Callable[..., None]) -> int:
    """The address of a kernel; it is compiled when first asked for, or read from the disk."""
    from llmviz.ggml.backends.kernels import cached_on_disk

    if body not in _made:
        with cached_on_disk():
            _made[body] = cfunc(SIGNATURE, cache=True, error_model="numpy")(body)
    address: int = _made[body].address
    return address


class Job:
    """A kernel with its parameters: called again and again without arguments.

    Parameters
    ----------
    fn : int
        Address of the kernel.
    args : sequence of int
        Its parameters; floats as `bits`.
    n : int
        Items of work.
    chunk : int
        Items a thread takes at a time; with n or more no other thread is woken.
    n_threads : int
    lock : threading.Lock
        Held while several threads run: numba's serve one caller at a time.
    keep : object
        What the addresses among the parameters point into.
    """

    __slots__ = ("_args", "_call", "_keep", "_lock", "_n_threads")

    def __init__(
        self,
        fn: int,
        args: Sequence[int],
        n: int,
        chunk: int,
        n_threads: int,
        lock: threading.Lock,
        keep: object,
    ) -> None:
        self._keep, self._lock = keep, lock
        self._args = np.array(args, np.int64)
        self._n_threads = max(1, min(n_threads, -(-n // chunk)))
        self._call = (fn, self._args.ctypes.data, n, chunk, self._n_threads)

    def __call__(self) -> None:
        """Run the kernel."""
        if self._n_threads == 1:
            drive(*self._call)
            return
        with self._lock:
            use_threads(self._n_threads)
            drive(*self._call)


_used = threading.local()  # numba keeps the number for each thread by itself


def use_threads(n: int) -> None:
    """Let numba use n threads; asked for again and again, it costs nothing."""
    if getattr(_used, "n", 0) != n:
        numba.set_num_threads(n)
        _used.n = n


def bits(x: float) -> int:
    """A float as a parameter."""
    return int(np.float64(x).view(np.int64))
