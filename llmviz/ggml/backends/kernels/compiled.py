"""The compiled kernels as functions of arrays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numba
import numpy as np

from llmviz.ggml.backends.kernels import (
    activations,
    attention,
    many,
    mul_mat_tiles,
    ops,
    tape_steps,
)
from llmviz.ggml.backends.kernels.calls import Job, bits, compiled
from llmviz.ggml.backends.kernels.features import AVX2
from llmviz.ggml.backends.kernels.halfs import HALFS
from llmviz.ggml.backends.kernels.halfs import ROWS as HALF_ROWS
from llmviz.ggml.backends.kernels.mul_mat import KERNELS
from llmviz.ggml.backends.kernels.tape import ALONE, Row, Tape
from llmviz.ggml.backends.kernels.tiles import ROWS
from llmviz.ggml.dots import Activations, group_of
from llmviz.ggml.types import TYPES, GGMLType

__all__ = ["MANY", "Kernels"]

MANY = 32
"""Columns from which on products are made in tiles, which adds in another order."""

_CHUNKS = 8  # for each thread, so that a late one is not waited for long
_FEWEST = 16  # rows in a chunk
_FEW = 16  # tokens whose attention is not worth waking another thread for
_PART = 32 << 10  # values of a simple op that a thread takes at least
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
        if type_ in HALFS:
            for body in HALFS[type_]:
                compiled(body)
            return
        k = max(TYPES[type_].block_size, 32)
        raw = np.zeros((ROWS, TYPES[type_].type_size * k // TYPES[type_].block_size), np.uint8)
        for m in (1, MANY):
            q = Activations.empty(m, k, group_of(type_))
            self.quantize(np.zeros((m, k), np.float32), q)
            self.mul_mat(type_, raw, q, np.empty((m, len(raw)), np.float32))

    def compile_ops(self) -> None:
        """Make the ops around the products ready, by themselves and as steps of a tape."""
        for body in tape_steps.OPS.values():
            compiled(body)
        nothing = Row("copy", 0, (0, 0), ALONE, (), (), weight=1 << 30)
        tape = self.tape([nothing])
        for _ in range(3):  # alone first, then by all threads
            tape.run(0, 1)
        x = np.zeros((1, 32), np.float32)
        ops.rms_norm(x, np.float32(1), np.empty_like(x))
        ops.soft_max(x[None], x, np.float32(1), np.empty_like(x[None]))
        ops.swiglu(x, x, np.empty_like(x))
        cis = np.zeros((1, 1, 16), np.complex64)
        ops.cos_sin(x[:, :16].copy(), np.float32(1), cis)
        ops.rotate(x[None], cis, 1, np.empty_like(x[None]))
        for kind in (np.float32, np.float16):
            self.attend(x[None].astype(kind), x[None], np.empty((1, 1, 1), np.float32))()
        ops.store_half(x, np.zeros(1, np.int64), np.zeros((1, 32), np.uint16), np.empty_like(x))
        for body in (
            many.rms_norm, many.soft_max, many.swiglu, many.rotate, many.store_half,
            attention.attend, attention.attend_apart,
        ):  # fmt: skip
            compiled(body)

    def attend(
        self,
        a: np.ndarray,
        b: np.ndarray,
        out: np.ndarray,
        floats: np.ndarray | None = None,
        n_threads: int = 0,
    ) -> Callable[[], None]:
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
        floats : float32[n_head_kv, n, k], optional
            The values of `a` where it holds half floats and m > 1.
        """
        if b.shape[1] > 1:
            half = a.dtype == np.float16
            return self._attend_many(a if floats is None else floats, half, b, out, n_threads)
        args = (
            a.ctypes.data,
            a.strides[0],
            a.strides[1],
            b.ctypes.data,
            b.strides[0],
            len(b) // len(a),
            b.shape[2],
        )
        flat = out.reshape(len(b), -1)
        if a.dtype == np.float16:
            rounded = np.empty((len(b), b.shape[2]), np.float32)

            def run_half(keep: object = (a, b)) -> None:
                ops.rows_dot_half(args, 0, len(flat), rounded, flat)

            return run_half

        def run(keep: object = (a, b)) -> None:  # their memory is used by address
            ops.rows_dot(args, 0, len(flat), flat)

        return run

    def _attend_many(
        self, a: np.ndarray, half: bool, b: np.ndarray, out: np.ndarray, n_threads: int
    ) -> Job:
        if a.dtype != np.float32:
            raise TypeError(f"several tokens need the matrix as float32 too, not {a.dtype}")
        n_head, m, k = b.shape
        block = attention.tokens_at_a_time(m, k)
        args = (
            a.ctypes.data, a.strides[0], a.strides[1], a.shape[1],
            b.ctypes.data, b.strides[0], b.strides[1], m, k,
            n_head // len(a), int(half), block, out.ctypes.data,
        )  # fmt: skip
        # ggml's matrix product takes only contiguous rows, where it need not convert them
        together = half or b.flags.c_contiguous
        body = attention.attend if together else attention.attend_apart
        n = n_head * -(-m // block) if together else n_head
        if m < _FEW:
            n_threads = 1
        return self._job(body, args, n, n_threads, (a, b, out))

    def _job(
        self,
        body: Callable[..., None],
        args: Sequence[int],
        n: int,
        n_threads: int,
        keep: object,
        fewest: int = 1,
    ) -> Job:
        """A kernel on n items, at least `fewest` of them at a time."""
        threads = min(n_threads or self.n_threads, self.n_threads)
        chunk = max(fewest, -(-n // (_CHUNKS * threads)), 1)
        return Job(compiled(body), args, n, chunk, threads, self._lock, keep)

    def _rows_job(
        self, body: Callable[..., None], args: Sequence[int], n: int, width: int, n_threads: int,
        keep: object,
    ) -> Job:  # fmt: skip
        """A kernel on n items of `width` values each."""
        return self._job(body, args, n, n_threads, keep, 1 + _PART // width)

    def norm_rows(self, x: np.ndarray, eps: np.float32, out: np.ndarray, n_threads: int = 0) -> Job:
        """`ops.rms_norm` of many rows, float32[m, n] and contiguous."""
        args = (x.ctypes.data, out.ctypes.data, x.shape[1], bits(float(eps)))
        return self._rows_job(many.rms_norm, args, len(x), x.shape[1], n_threads, (x, out))

    def soft_max_rows(
        self, x: np.ndarray, mask: np.ndarray, scale: np.float32, out: np.ndarray,
        n_threads: int = 0,
    ) -> Job:  # fmt: skip
        """`ops.soft_max` of many tokens; all arrays contiguous."""
        n_head, m, n = x.shape
        args = (x.ctypes.data, mask.ctypes.data, out.ctypes.data, n_head, m, n, bits(float(scale)))
        return self._rows_job(many.soft_max, args, m, 4 * n_head * n, n_threads, (x, mask, out))

    def swiglu_all(
        self, gate: np.ndarray, up: np.ndarray, out: np.ndarray, n_threads: int = 0
    ) -> Job:
        """`ops.swiglu` of many values; all arrays contiguous."""
        args = (gate.ctypes.data, up.ctypes.data, out.ctypes.data)
        return self._rows_job(many.swiglu, args, out.size, 1, n_threads, (gate, up, out))

    def rotate_rows(
        self, x: np.ndarray, cis: np.ndarray, apart: int, out: np.ndarray, n_threads: int = 0
    ) -> Job:
        """`ops.rotate` of many tokens; all arrays contiguous."""
        m, n_head, n = x.shape
        args = (x.ctypes.data, cis.ctypes.data, out.ctypes.data, n_head, n, cis.shape[2], apart)
        return self._rows_job(many.rotate, args, m, n_head * n, n_threads, (x, cis, out))

    def store_rows(
        self, rows: np.ndarray, ids: np.ndarray, cache: np.ndarray, mirror: np.ndarray,
        n_threads: int = 0,
    ) -> Job:  # fmt: skip
        """`ops.store_half` of many rows, no two into the same; all arrays contiguous."""
        width = rows.shape[1]
        addresses = (a.ctypes.data for a in (rows, ids, cache, mirror))
        keep = (rows, ids, cache, mirror)
        args = (*addresses, width, len(cache))
        return self._rows_job(many.store_half, args, len(rows), width, n_threads, keep)

    def tape(self, rows: Sequence[Row], n_threads: int = 0) -> Tape:
        """Rows that compiled code runs one after the other; see `tape`."""
        return Tape(rows, min(n_threads or self.n_threads, self.n_threads), self._lock)

    def quantize(self, x: np.ndarray, out: Activations) -> None:
        """Activations, float32[m, k] and contiguous, in eight bits; see `dots.quantize_q8`."""
        self.quantizer(x, out)()

    def quantizer(self, x: np.ndarray, out: Activations, n_threads: int = 0) -> Job:
        """`quantize` with its arrays given once."""
        body = activations.quantize_q8 if out.s.dtype == np.float32 else activations.quantize_q8_k
        args = (x.shape[1], x.ctypes.data, *(a.ctypes.data for a in out))
        fewest = 1 + (_SMALL // 16) // x.shape[1]
        return self._job(body, args, len(x), n_threads, (x, out), fewest)

    def mul_mat(
        self,
        type_: GGMLType,
        raw: np.ndarray,
        q: Activations,
        out: np.ndarray,
        exact: bool = False,
    ) -> None:
        """Rows of blocks times columns of activations; see `dots.mul_mat`."""
        self.product(type_, raw, q, out, exact=exact)()

    def product(
        self,
        type_: GGMLType,
        raw: np.ndarray,
        q: Activations,
        out: np.ndarray,
        n_threads: int = 0,
        exact: bool = False,
    ) -> Callable[[], None]:
        """`mul_mat` with its arrays given once: a function to be called again and again.

        Parameters
        ----------
        exact : bool
            Add as for one column also where there are many.
        """
        rows, m = len(raw), len(q.q)
        tiles = AVX2 and not exact and m >= MANY and rows >= ROWS
        s, before = q.s, None
        if tiles and mul_mat_tiles.wants_sums(type_):
            s = np.empty(q.s.shape, np.int32)
            sums = (q.q.ctypes.data, q.q.shape[1], s.ctypes.data)
            before = self._job(mul_mat_tiles.sums_of_codes, sums, m, n_threads, (q, s), _FEWEST)
        args = (
            raw.ctypes.data,
            raw.strides[0],
            rows,
            raw.shape[1] // TYPES[type_].type_size,
            q.q.ctypes.data,
            q.d.ctypes.data,
            s.ctypes.data,
            q.q.strides[0],
            q.d.strides[0],
            s.strides[0],
            m,
            out.ctypes.data,
            out.strides[0],
        )
        keep = (raw, q, s, out)
        if not tiles:
            fewest = rows if raw.size * m < _SMALL else _FEWEST
            return self._job(KERNELS[type_], args, rows, n_threads, keep, fewest)
        body = mul_mat_tiles.TILES[type_]
        multiply = self._job(body, args, -(-rows // ROWS), n_threads, keep)
        if before is None:
            return multiply
        first = before

        def run() -> None:
            first()
            multiply()

        return run

    def half_rounder(
        self, type_: GGMLType, x: np.ndarray, out: np.ndarray, n_threads: int = 0
    ) -> Job:
        """Rounds float32[m, k], contiguous and k a multiple of 8, to F16 or BF16, as float32."""
        args = (x.ctypes.data, out.ctypes.data, x.shape[1])
        return self._rows_job(HALFS[type_].round, args, len(x), x.shape[1], n_threads, (x, out))

    def half_product(
        self, type_: GGMLType, raw: np.ndarray, x: np.ndarray, out: np.ndarray, n_threads: int = 0
    ) -> Job:
        """Rows of F16 or BF16 times columns.

        Parameters
        ----------
        raw : uint8[n_rows, 2 k]
            Four rows or more, k a multiple of 32.
        x : float32[m, k]
            Rounded to the same type; contiguous.
        out : float32[m, n_rows]
            Contiguous.
        """
        n_rows, m = len(raw), len(x)
        args = (
            raw.ctypes.data, raw.strides[0], n_rows, x.shape[1], x.ctypes.data, m, out.ctypes.data
        )  # fmt: skip
        if m == 1:
            fewest = n_rows if raw.size < _SMALL else _FEWEST
            return self._job(HALFS[type_].one, args, n_rows, n_threads, (raw, x, out), fewest)
        n = -(-n_rows // min(HALF_ROWS, n_rows // 4 * 4))
        return self._job(HALFS[type_].many, args, n, n_threads, (raw, x, out))
