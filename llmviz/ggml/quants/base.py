"""What a tensor type offers: a block layout and a way back to float32. ↔ ggml/src/ggml-quants.c

A quantized tensor is a row of blocks. A block holds a few dozen small integers and one or two
scales that turn them back into numbers. A subclass of `QuantType` registers itself.
Does not quantize, and does not multiply: that is the backends' part.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from llmviz.errors import UnsupportedError
from llmviz.ggml.types import TYPES, GGMLType

__all__ = ["QuantType", "get", "supported"]

_REGISTRY: dict[GGMLType, type[QuantType]] = {}

_CHUNK_VALUES = 1 << 15
"""Values decoded at a time: 128 KiB of floats, so that temporaries stay in cache."""


class QuantType(ABC):
    """One way of storing numbers.

    A subclass sets `type` and `block_dtype`, and writes `dequantize_blocks`.

    Attributes
    ----------
    type : GGMLType
        The id in the file.
    block_dtype : numpy.dtype
        Structured dtype of one block, its fields named as in ggml's structs.
    block_size : int
        Values per block.
    type_size : int
        Bytes per block.
    """

    type: ClassVar[GGMLType]
    block_dtype: ClassVar[np.dtype]
    block_size: ClassVar[int]
    type_size: ClassVar[int]

    def __init_subclass__(cls) -> None:
        traits = TYPES[cls.type]
        cls.block_size, cls.type_size = traits.block_size, traits.type_size
        if cls.block_dtype.itemsize != cls.type_size:
            raise TypeError(f"{cls.__name__}.block_dtype must take {cls.type_size} bytes")
        if cls.type in _REGISTRY:
            raise TypeError(f"{cls.type.name} is registered already")
        _REGISTRY[cls.type] = cls

    @classmethod
    @abstractmethod
    def dequantize_blocks(cls, blocks: np.ndarray, out: np.ndarray) -> None:
        """Decode blocks.

        Parameters
        ----------
        blocks : block_dtype[n]
            Read only.
        out : float32[n, block_size]
            Written.
        """

    @classmethod
    def blocks(cls, raw: np.ndarray) -> np.ndarray:
        """Look at bytes as blocks, without a copy.

        Parameters
        ----------
        raw : uint8[n_bytes]
            Contiguous, any shape; a whole number of blocks.

        Returns
        -------
        block_dtype[n_blocks]

        Raises
        ------
        ValueError
            The bytes are not a whole number of blocks, or not contiguous.
        """
        if raw.dtype != np.uint8 or raw.size % cls.type_size:
            raise ValueError(
                f"{cls.type.name} needs uint8 in blocks of {cls.type_size} bytes, "
                f"got {raw.dtype} of {raw.size}"
            )
        if not raw.flags.c_contiguous:
            raise ValueError(f"{cls.type.name}: the bytes must be contiguous; copy them first")
        return raw.reshape(-1).view(cls.block_dtype)

    @classmethod
    def dequantize(cls, raw: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Decode a tensor's bytes, bit for bit as gguf-py does.

        Parameters
        ----------
        raw : uint8[n_bytes]
            Whole blocks, contiguous.
        out : float32[n_values], optional
            Where to write, contiguous; else a new array is made.

        Returns
        -------
        float32[n_values]
            `out`, flat.

        Raises
        ------
        ValueError
            The bytes are not whole blocks, or `out` does not fit them.
        """
        blocks = cls.blocks(raw)
        n = len(blocks)
        if out is None:
            out = np.empty(n * cls.block_size, np.float32)
        elif (
            out.dtype != np.float32 or out.size != n * cls.block_size or not out.flags.c_contiguous
        ):
            raise ValueError(
                f"out must be contiguous float32[{n * cls.block_size}], got {out.dtype}{out.shape}"
            )
        flat = out.reshape(-1)
        rows = flat.reshape(n, cls.block_size)
        step = max(_CHUNK_VALUES // cls.block_size, 1)
        with np.errstate(invalid="ignore"):  # scales may be inf or NaN; they decode to inf or NaN
            for i in range(0, n, step):
                cls.dequantize_blocks(blocks[i : i + step], rows[i : i + step])
        return flat


def get(type_: GGMLType) -> type[QuantType]:
    """Return the class that decodes a tensor type.

    Raises
    ------
    UnsupportedError
        There is none; the error lists those there are.
    """
    try:
        return _REGISTRY[type_]
    except KeyError:
        raise UnsupportedError(
            "tensor type",
            GGMLType(type_).name,
            supported=(t.name for t in supported()),
            hint="Use a file quantized to one of these",
        ) from None


def supported() -> list[GGMLType]:
    """Return the tensor types that can be decoded, in the order of their ids."""
    return sorted(_REGISTRY)
