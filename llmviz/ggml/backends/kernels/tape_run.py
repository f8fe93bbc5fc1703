"""Runs a tape: rows of numbers, each a compiled step of a graph, one after the other.
↔ ggml/src/ggml-cpu/ggml-cpu.c (ggml_graph_compute_thread, ggml_barrier)

A row is `WIDTH` int64: the address of a kernel (see `calls`), 1 where all threads must be done with
the rows before, how many items there are, how many a thread takes at least (0: the first thread
takes all), then the kernel's parameters. All threads walk the whole tape.
"""

from __future__ import annotations

import platform
import sys
from typing import Any

from llvmlite import ir
from numba import njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic

from llmviz.ggml.backends.kernels.calls import _call
from llmviz.ggml.backends.kernels.emit import I32, I64, Emitter, Value

__all__ = ["ARGS_AT", "SYNC", "WIDTH", "run_alone", "run_together"]

WIDTH = 20
"""int64 in a row."""

ARGS_AT = 4
"""Where a row's parameters begin."""

SYNC = 24
"""int64 of shared state: arrived threads, how they go on, threads at barriers; a line apart."""

_ARRIVED, _MODE, _WAITING = 0, 8, 16
_UNDECIDED, _TOGETHER, _ALONE = 0, 1, 2
_SPINS_TO_ARRIVE = 20_000
_SPINS_TO_YIELD = 2_000

_SETTINGS: dict[str, Any] = {"cache": True, "nogil": True, "boundscheck": False}
_X86 = platform.machine().lower() in ("x86_64", "amd64")
_POSIX = sys.platform != "win32"


def _pointer(builder: Any, address: Value) -> Value:
    return builder.inttoptr(address, I64.as_pointer())


def _load(typingctx: Any, address: Any) -> Any:
    """The int64 at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return Emitter(builder).load(args[0], I64)

    return types.int64(types.int64), codegen


def _store(typingctx: Any, address: Any, value: Any) -> Any:
    """Write the int64 at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        Emitter(builder).store(args[1], args[0])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


def _load_shared(typingctx: Any, address: Any) -> Any:
    """The int64 at an address that another thread writes."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_pointer(builder, args[0]), "acquire", 8)

    return types.int64(types.int64), codegen


def _add_shared(typingctx: Any, address: Any, value: Any) -> Any:
    """Add to the int64 at an address that others add to as well; what it was before."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _pointer(builder, args[0]), args[1], "acq_rel")

    return types.int64(types.int64, types.int64), codegen


def _decide(typingctx: Any, address: Any, value: Any) -> Any:
    """Put a value where 0 is, unless another thread was first; what is there then."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pair = builder.cmpxchg(
            _pointer(builder, args[0]), ir.Constant(I64, 0), args[1], "acq_rel", "acquire"
        )
        before, first = builder.extract_value(pair, 0), builder.extract_value(pair, 1)
        return builder.select(first, args[1], before)

    return types.int64(types.int64, types.int64), codegen


def _rest(typingctx: Any) -> Any:
    """Let the processor rest for a moment in a loop that waits."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if _X86:
            kind = ir.FunctionType(ir.VoidType(), [])
            fn = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause")
            builder.call(fn, [])
        return context.get_dummy_value()

    return types.void(), codegen


def _give_way(typingctx: Any) -> Any:
    """Let another thread have the core."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if _POSIX:
            kind = ir.FunctionType(I32, [])
            fn = cgutils.get_or_insert_function(builder.module, kind, "sched_yield")
            builder.call(fn, [])
        return context.get_dummy_value()

    return types.void(), codegen


_field: Any = intrinsic(_load)
_put: Any = intrinsic(_store)
_shared: Any = intrinsic(_load_shared)
_add: Any = intrinsic(_add_shared)
_first_says: Any = intrinsic(_decide)
_pause: Any = intrinsic(_rest)
_yield: Any = intrinsic(_give_way)


@njit(**_SETTINGS)
def _walk(tape: int, low: int, high: int, sync: int, thread: int, n_threads: int) -> None:
    passed = 0
    for i in range(low, high):
        row = tape + 8 * WIDTH * i
        if n_threads > 1 and i > low and _field(row + 8):
            passed += n_threads
            waiting = sync + 8 * _WAITING
            _add(waiting, 1)
            spins = 0
            while _shared(waiting) < passed:
                _pause()
                spins += 1
                if spins == _SPINS_TO_YIELD:
                    spins = 0
                    _yield()
        n, unit = _field(row + 16), _field(row + 24)
        if unit == 0:
            if thread == 0:
                _call(_field(row), row + 8 * ARGS_AT, 0, n)
            continue
        most = (n + n_threads * unit - 1) // (n_threads * unit) * unit
        first = thread * most
        if first < n:
            _call(_field(row), row + 8 * ARGS_AT, first, min(most, n - first))


@njit(**_SETTINGS)
def _together(sync: int, n_threads: int) -> int:
    """Wait for the others; one that comes too late finds the work taken."""
    mode = sync + 8 * _MODE
    if _add(sync + 8 * _ARRIVED, 1) == n_threads - 1:
        return _first_says(mode, _TOGETHER)
    spins = 0
    while _shared(mode) == _UNDECIDED:
        _pause()
        spins += 1
        if spins == _SPINS_TO_ARRIVE:
            if _first_says(mode, _ALONE) == _ALONE:
                return _UNDECIDED  # this thread does it all
            break
    return _shared(mode)


@njit(**_SETTINGS)
def run_alone(tape: int, low: int, high: int) -> None:
    """Rows low .. high - 1 of the tape at an address, by this thread."""
    _walk(tape, low, high, 0, 0, 1)


@njit(parallel=True, **_SETTINGS)
def run_together(tape: int, low: int, high: int, sync: int, n_threads: int) -> None:
    """Rows low .. high - 1 by several threads; `sync` is the address of `SYNC` int64.

    Where the other threads do not come within a moment, one does all the work.
    """
    for i in range(SYNC):
        _put(sync + 8 * i, 0)
    for thread in prange(n_threads):
        mode = _together(sync, n_threads)
        if mode == _TOGETHER:
            _walk(tape, low, high, sync, thread, n_threads)
        elif mode == _UNDECIDED:
            _walk(tape, low, high, sync, 0, 1)
