"""The compiled kernels as functions of arrays."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numba
import numpy as np

from llmviz.ggml.backends.kernels import ops
from llmviz.ggml.backends.kernels.activations import quantize_q8, quantize_q8_k
from llmviz.ggml.backends.kernels.mul_mat import KERNELS
from llmviz.ggml.dots import Activations, group_of
from llmviz.ggml.types import TYPES, GGMLType

__all__ = ["Kernels"]

_CHUNKS = 8  # for each thread, so that a late one is not waited for long
_FEWEST = 16  # rows in a chunk
_SMALL = 256 << 10  # bytes of weights times columns that a second thread would not speed up


class Kernels:
    """Quantizes activations and multiplies with them.

    numba's threads serve one caller at a time: a lock makes the others wait.
    """

    rms_norm = staticmethod(ops.rms_norm)
    soft_max = staticmethod(ops.soft_max)
    swiglu = staticmethod(ops.swiglu)
    store_half = staticmethod(ops.store_half)
    cos_sin = staticmethod(ops.cos_sin)
    rotate = staticmethod(ops.rotate)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.n_threads = 0
        self.set_threads(0)

    def set_threads(self, n: int) -> None:
        """Use n threads, at most as many as there are; 0 is all of them."""
        most: int = getattr(numba, "config").NUMBA_NUM_THREADS  # noqa: B009  numba sets it late
        self.n_threads = min(n, most) if n > 0 else most

    @staticmethod
    def supports(type_: GGMLType) -> bool:
        """Whether there is a product with matrices of this type."""
        return type_ in KERNELS

    def compile(self, type_: GGMLType) -> None:
        """Make the product with one type ready."""
        k = max(TYPES[type_].block_size, 32)
        raw = np.zeros((2, TYPES[type_].type_size * k // TYPES[type_].block_size), np.uint8)
        for m in (1, 2):
            q = Activations.empty(m, k, group_of(type_))
            self.quantize(np.zeros((m, k), np.float32), q)
            self.mul_mat(type_, raw, q, np.empty((m, 2), np.float32))

    def compile_ops(self) -> None:
        """Make the ops around the products ready."""
        x = np.zeros((1, 32), np.float32)
        ops.rms_norm(x, np.float32(1), np.empty_like(x))
        ops.soft_max(x[None], x, np.float32(1), np.empty_like(x[None]))
        ops.swiglu(x, x, np.empty_like(x))
        cis = np.zeros((1, 1, 16), np.complex64)
        ops.cos_sin(x[:, :16].copy(), np.float32(1), cis)
        ops.rotate(x[None], cis, 1, np.empty_like(x[None]))
        two = np.zeros((1, 2, 32), np.float32)
        for kind in (np.float32, np.float16):
            self.attend(x[None].astype(kind), x[None], np.empty((1, 1, 1), np.float32))()
            self.attend(np.zeros((1, 4, 32), kind), two, np.empty((1, 2, 4), np.float32))()
        ops.store_half(x, np.zeros(1, np.int64), np.zeros((1, 32), np.uint16), np.empty_like(x))

    def attend(self, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> Callable[[], None]:
        """Each head's rows times the rows of its kv head's matrix, to be called again and again.

        Parameters
        ----------
        a : float32 or float16[n_head_kv, n, k]
            Rows contiguous, k a multiple of 32; n of 4 where m > 1. With half floats b is
            rounded to them first, as ggml does.
        b : float32[n_head, m, k]
            Rows contiguous.
        out : float32[n_head, m, n]
            Contiguous.
        """
        args = (
            a.ctypes.data,
            a.strides[0],
            a.strides[1],
            b.ctypes.data,
            b.strides[0],
            len(b) // len(a),
            b.shape[2],
        )
        if b.shape[1] > 1:
            more, is_half = (*args, b.strides[1]), a.dtype == np.float16
            chain = bool(b.flags.c_contiguous)  # ggml's matrix product takes only such rows
            room = np.empty((len(b), b.shape[2]), np.float32)
            lock, n_threads = self._lock, self.n_threads

            def run_many(keep: object = (a, b)) -> None:
                with lock:
                    numba.set_num_threads(n_threads)
                    ops.many_rows_dot(more, is_half, chain, room, out)

            return run_many
        flat = out.reshape(len(b), -1)
        if a.dtype == np.float16:
            rounded = np.empty((len(b), b.shape[2]), np.float32)

            def run_half(keep: object = (a, b)) -> None:
                ops.rows_dot_half(args, rounded, flat)

            return run_half

        def run(keep: object = (a, b)) -> None:  # their memory is used by address
            ops.rows_dot(args, flat)

        return run

    def quantize(self, x: np.ndarray, out: Activations) -> None:
        """Activations, float32[m, k] and contiguous, in eight bits; see `dots.quantize_q8`."""
        quantize = quantize_q8 if out.s.dtype == np.float32 else quantize_q8_k
        with self._lock:
            numba.set_num_threads(self.n_threads)
            quantize(x, *out)

    def mul_mat(self, type_: GGMLType, raw: np.ndarray, q: Activations, out: np.ndarray) -> None:
        """Rows of blocks times columns of activations; see `dots.mul_mat`."""
        run = self.product(type_, raw, q, out)
        run()

    def product(
        self,
        type_: GGMLType,
        raw: np.ndarray,
        q: Activations,
        out: np.ndarray,
        n_threads: int = 0,
    ) -> Callable[[], None]:
        """`mul_mat` with its arrays given once: a function to be called again and again."""
        kernel, lock = KERNELS[type_], self._lock
        rows = len(raw)
        args = (
            raw.ctypes.data,
            raw.strides[0],
            rows,
            raw.shape[1] // TYPES[type_].type_size,
            q.q.ctypes.data,
            q.d.ctypes.data,
            q.s.ctypes.data,
            q.q.strides[0],
            q.d.strides[0],
            q.s.strides[0],
            len(q.q),
            out.ctypes.data,
            out.strides[0],
        )
        n_threads = min(n_threads or self.n_threads, self.n_threads)
        chunk = max(_FEWEST, -(-rows // (_CHUNKS * n_threads)))
        if n_threads == 1 or raw.size * len(q.q) < _SMALL:
            chunk = rows

        def run(keep: object = (raw, q, out)) -> None:  # their memory is used by address
            with lock:
                numba.set_num_threads(n_threads)
                kernel(args, chunk)

        return run
