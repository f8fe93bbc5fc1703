"""The kernels' sources, compiled when they are first used, and how a launch is put together.

↔ ggml/src/ggml-cuda/common.cuh

A kernel takes one struct by value. Its fields are read from the source, so that they are written
down once. Kernels for a type of blocks are compiled for the types that a model has, not for all.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from llmviz.ggml.types import GGMLType

__all__ = ["BLOCK_TYPES", "KERNELS", "Launch", "Library", "base_source", "structs", "type_source"]

SOURCES = Path(__file__).parent / "sources"

BLOCK_TYPES: dict[GGMLType, int] = {
    GGMLType.Q4_0: 32,
    GGMLType.Q4_1: 32,
    GGMLType.Q5_0: 32,
    GGMLType.Q5_1: 32,
    GGMLType.Q8_0: 32,
    GGMLType.IQ4_NL: 32,
    GGMLType.MXFP4: 32,
    GGMLType.Q2_K: 256,
    GGMLType.Q3_K: 256,
    GGMLType.Q4_K: 256,
    GGMLType.Q5_K: 256,
    GGMLType.Q6_K: 256,
    GGMLType.IQ4_XS: 256,
}
"""Types with kernels for their blocks, and how many activations share a scale beside them."""

WITH_MINIMUM = (GGMLType.Q4_1, GGMLType.Q5_1)
"""Types whose minimums are multiplied with sums of activations that were rounded."""

COLUMNS = (1, 4, 8)
"""Numbers of columns that kernels for few columns are made for."""

_BASE: tuple[str, ...] = ("common.cuh", "elementwise.cu", "norm.cu", "attention.cu", "floats.cu")
_BASE += ("rows.cu", "activations.cu")
_BLOCKS = ("common.cuh", "blocks32.cuh", "blocks256.cuh", "quantized.cu")

_BY_STRUCT = {
    "Binary": "add_f32 mul_f32 div_f32",
    "Unary": "scale_f32 sqr_f32 clamp_f32 gelu_f32 relu_f32 sigmoid_f32 silu_f32 tanh_f32",
    "Fill": "fill_f32",
    "Gate": "swiglu_f32 geglu_f32 reglu_f32 swiglu_oai_f32",
    "Norm": "rms_norm_f32 norm_f32 sum_rows_f32",
    "SoftMax": "soft_max_f32",
    "Angles": "rope_angles",
    "Rotate": "rope_rotate",
    "Product": " ".join(
        [f"mul_vec_{t}_{n}" for t in ("f32", "f16", "bf16") for n in COLUMNS]
        + [f"mul_tile_{t}" for t in ("f32", "f16", "bf16")]
    ),
    "GetRows": "get_rows_f32 get_rows_f16 get_rows_bf16",
    "SetRows": "set_rows_f32 set_rows_f16 set_rows_bf16",
    "Copy": "copy_16 copy_32",
    "Join": "join_f32",
    "Order": "argsort_f32",
    "AddId": "add_id_f32",
    "Activations": "quantize_32 quantize_256",
    "Rounded": "rounded_f32",
}

KERNELS: dict[str, str] = {k: s for s, names in _BY_STRUCT.items() for k in names.split()}
"""Every kernel of the base source -> the struct that it takes."""


def type_kernels(type_: GGMLType) -> dict[str, str]:
    """The same for the source of one type of blocks."""
    products = {f"mul_vec_{type_.name}_{n}": "BlockProduct" for n in COLUMNS}
    decoding = ["decode", *(["above", "minimums"] if type_ in WITH_MINIMUM else [])]
    return {**products, **{f"{what}_{type_.name}": "Decode" for what in decoding}}


def _joined(names: tuple[str, ...]) -> str:
    return "\n".join((SOURCES / name).read_text(encoding="utf-8") for name in names)


@cache
def base_source() -> str:
    """All kernels that know nothing of blocks."""
    return _joined(_BASE)


@cache
def type_source(*types: GGMLType) -> str:
    """Products and decoding of blocks, for the given types."""
    lines = []
    for type_ in types:
        lines.append(
            f"{'FOR_TYPE_WITH_MINIMUM' if type_ in WITH_MINIMUM else 'FOR_TYPE'}({type_.name})"
        )
    return "\n".join([_joined(_BLOCKS), *lines, ""])


_SCALARS = {"float": "<f4", "int": "<i4", "i64": "<i8", "u32": "<u4"}
_STRUCT = re.compile(r"^struct (\w+) \{\n(.*?)^\};", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^ {4}(?:const )?(\w+) (\*? ?)(\w+)(?:\[(\d+)\])?;", re.MULTILINE)


def structs(source: str) -> dict[str, np.dtype]:
    """The structs of plain fields that a source defines, laid out as the compiler does.

    A pointer becomes a uint64.
    """
    found: dict[str, np.dtype] = {}
    for name, body in _STRUCT.findall(source):
        if "static" in body:  # a type of blocks: functions, no fields
            continue
        fields: list[Any] = []
        for type_, star, field, length in _FIELD.findall(body):
            dtype = np.dtype("<u8") if star else found.get(type_, _SCALARS.get(type_))
            fields.append((field, dtype, int(length)) if length else (field, dtype))
        found[name] = np.dtype(fields, align=True)
    return found


@cache
def _layouts() -> dict[str, np.dtype]:
    return {**structs(type_source()), **structs(base_source())}


class Launch:
    """One kernel with its grid and its arguments: call it to put it into the stream.

    Attributes
    ----------
    device : cupy.cuda.Device or None
        What to make the current device first; None where there is only one.
    keep : tuple
        What must live as long: arrays that only the arguments' addresses point to.
    recordable : bool
        Whether it may be called while a stream is recorded.
    """

    __slots__ = ("args", "device", "function", "grid", "keep", "stream", "threads")

    recordable = True

    def __init__(
        self,
        function: Any,
        grid: tuple[int, int, int],
        threads: tuple[int, int, int],
        args: np.ndarray,
        stream: Any,
        device: Any,
        keep: tuple[Any, ...],
    ) -> None:
        self.function, self.grid, self.threads = function, grid, threads
        self.args, self.stream, self.device, self.keep = (args,), stream, device, keep

    def __call__(self) -> None:
        if self.device is None:
            self.function(self.grid, self.threads, self.args, stream=self.stream)
            return
        with self.device:
            self.function(self.grid, self.threads, self.args, stream=self.stream)

    def wait(self) -> None:
        """Until it has run."""
        self.stream.synchronize()


class Library:
    """Compiled kernels of one device.

    Parameters
    ----------
    cupy : module
    stream : cupy.cuda.Stream
        Where everything is launched.
    index : int
        The stream's device.
    """

    def __init__(self, cupy: Any, stream: Any, index: int) -> None:
        self.cupy = cupy
        self.stream = stream
        several = cupy.cuda.runtime.getDeviceCount() > 1
        self._device = cupy.cuda.Device(index) if several else None
        self._functions: dict[str, Any] = {}
        self._structs: dict[str, str] = dict(KERNELS)
        self._module = cupy.RawModule(code=base_source())
        self._modules: dict[GGMLType, Any] = {}

    def launch(
        self,
        name: str,
        grid: tuple[int, ...],
        threads: tuple[int, ...],
        keep: tuple[Any, ...] = (),
        type_: GGMLType | None = None,
        **fields: Any,
    ) -> Launch:
        """Kernel `name` with these fields of its struct; compiled now if it never was.

        Parameters
        ----------
        grid, threads : tuple of int
            Blocks, and threads of a block; missing dimensions are 1.
        keep : tuple
            See `Launch`.
        type_ : GGMLType or None
            For a kernel of a type of blocks.
        **fields
            Numbers, arrays of the device (their address), or dicts for structs inside. Those not
            given are 0.
        """
        function = self._function(name, type_)
        args = np.zeros(1, _layouts()[self._structs[name]])
        _fill(args[0], fields)
        sizes = _three(grid), _three(threads)
        return Launch(function, *sizes, args, self.stream, self._device, keep)

    def _function(self, name: str, type_: GGMLType | None) -> Any:
        if name not in self._functions:
            module = self._module
            if type_ is not None:
                if type_ not in self._modules:
                    source = type_source(type_)
                    self._modules[type_] = self.cupy.RawModule(code=source)
                    self._structs.update(type_kernels(type_))
                module = self._modules[type_]
            self._functions[name] = module.get_function(name).kernel
        return self._functions[name]


def _three(sizes: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _fill(record: Any, fields: dict[str, Any]) -> None:
    for name, value in fields.items():
        if value is None:
            continue
        if isinstance(value, dict):
            _fill(record[name], value)
        else:
            pointer = getattr(getattr(value, "data", None), "ptr", None)
            record[name] = value if pointer is None else pointer
