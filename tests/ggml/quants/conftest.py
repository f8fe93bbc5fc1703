"""The reference: ggml's own row functions, out of llama.cpp's library."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from llmviz.ggml.types import TYPES, GGMLType

DECLARATIONS = """
struct traits { const char * name; int64_t blck_size; int64_t interleave; size_t type_size;
                bool is_quantized; void (*to_float)(const void *, float *, int64_t);
                void (*from_float_ref)(const float *, void *, int64_t); };
const struct traits * ggml_get_type_traits(int type);
struct traits_cpu { void (*from_float)(const float *, void *, int64_t); void * vec_dot;
                    int vec_dot_type; int64_t nrows; };
const struct traits_cpu * ggml_get_type_traits_cpu(int type);
size_t ggml_quantize_chunk(int type, const float * src, void * dst, int64_t start, int64_t nrows,
                           int64_t n_per_row, const float * imatrix);
void ggml_cpu_init(void);
void quantize_row_q8_K_ref(const float * x, void * y, int64_t k);
void dequantize_row_q8_K(const void * x, float * y, int64_t k);
"""


class Ggml:
    """ggml's conversions of rows, on numpy arrays."""

    def __init__(self) -> None:
        import cffi

        spec = importlib.util.find_spec("xllamacpp")
        assert spec is not None and spec.origin is not None
        self.ffi = cffi.FFI()
        self.ffi.cdef(DECLARATIONS)
        self.lib = self.ffi.dlopen(str(Path(spec.origin).parent / "xllamacpp.abi3.so"))
        self.lib.ggml_cpu_init()

    def facts(self, type_: GGMLType) -> tuple[str, int, int]:
        """Name, values per block, bytes per block."""
        t = self.lib.ggml_get_type_traits(int(type_))
        return self.ffi.string(t.name).decode(), t.blck_size, t.type_size

    def dequantize(self, raw: np.ndarray, type_: GGMLType) -> np.ndarray | None:
        """float32[n_values], or None where ggml has no such function."""
        to_float = self.lib.ggml_get_type_traits(int(type_)).to_float
        if type_ is GGMLType.Q8_K:
            to_float = self.lib.dequantize_row_q8_K
        elif not to_float:
            return None
        out = np.empty(raw.size // TYPES[type_].type_size * TYPES[type_].block_size, np.float32)
        to_float(self._void(raw), self._float(out), out.size)
        return out

    def quantize(self, rows: np.ndarray, type_: GGMLType) -> np.ndarray:
        """uint8[n_rows, n_bytes], as a file is written."""
        out = self._room(rows, type_)
        n, width = rows.shape
        if type_ is GGMLType.Q8_K:
            self.lib.quantize_row_q8_K_ref(self._float(rows), self._void(out), rows.size)
        elif type_ is GGMLType.Q8_1:
            row = self.lib.ggml_get_type_traits(int(type_)).from_float_ref
            row(self._float(rows), self._void(out), rows.size)
        else:
            self.lib.ggml_quantize_chunk(
                int(type_), self._float(rows), self._void(out), 0, n, width, self.ffi.NULL
            )
        return out

    def store(self, rows: np.ndarray, type_: GGMLType) -> np.ndarray:
        """uint8[n_rows, n_bytes], as the CPU backend writes rows of a tensor."""
        out = self._room(rows, type_)
        row = self.lib.ggml_get_type_traits_cpu(int(type_)).from_float
        for x, y in zip(rows, out, strict=True):
            row(self._float(x), self._void(y), x.size)
        return out

    def _room(self, rows: np.ndarray, type_: GGMLType) -> np.ndarray:
        assert rows.dtype == np.float32 and rows.flags.c_contiguous
        n_bytes = rows.shape[1] // TYPES[type_].block_size * TYPES[type_].type_size
        return np.zeros((len(rows), n_bytes), np.uint8)

    def _float(self, a: np.ndarray) -> object:
        return self.ffi.cast("float *", a.ctypes.data)

    def _void(self, a: np.ndarray) -> object:
        return self.ffi.cast("void *", a.ctypes.data)


@pytest.fixture(scope="session")
def ggml(llamacpp: ModuleType) -> Ggml:
    """`Ggml`, where llama.cpp is installed."""
    return Ggml()
