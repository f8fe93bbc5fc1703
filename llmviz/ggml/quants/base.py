"""What a tensor type offers: block layout, ways to and from float32. ↔ ggml/src/ggml-quants.c

A quantized tensor is a row of blocks. A block holds a few dozen small integers and one or two
scales that turn them back into numbers. A subclass of `QuantType` registers itself, and says what
its blocks hold; so a new type is a new class and nothing else. Does not multiply: that is the
backends' part.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from llmviz.errors import UnsupportedError
from llmviz.ggml.quants.explain import Explanation, explain_block
from llmviz.ggml.types import TYPES, GGMLType

__all__ = ["QuantType", "get", "quantizable", "quantize", "supported"]

_REGISTRY: dict[GGMLType, type[QuantType]] = {}

_CHUNK_VALUES = 1 << 15
"""Values worked on at a time: 128 KiB of floats, so that temporaries stay in cache."""


class QuantType:
    """One way of storing numbers: ``value = scale * (code - zero) + offset``.

    A subclass sets `type` and `block_dtype`, and writes `codes` and `scales`; where that is too
    slow, `dequantize_blocks` as well. `quantize_blocks` is for types that can be written.

    Attributes
    ----------
    type : GGMLType
        The id in the file.
    block_dtype : numpy.dtype
        Structured dtype of one block, its fields named as in ggml's structs (an array of a struct
        that holds two things is two fields here).
    block_size : int
        Values per block.
    type_size : int
        Bytes per block.
    zero : int
        The code that stands for nothing but the offset.
    levels : int
        How many codes there are.
    table : tuple of int or None
        The codes that there are, where they do not simply follow one another.
    """

    type: ClassVar[GGMLType]
    block_dtype: ClassVar[np.dtype]
    block_size: ClassVar[int]
    type_size: ClassVar[int]
    zero: ClassVar[int] = 0
    levels: ClassVar[int] = 0
    table: ClassVar[tuple[int, ...] | None] = None

    def __init_subclass__(cls) -> None:
        if "type" not in cls.__dict__:
            return  # a base class of several types
        traits = TYPES[cls.type]
        cls.block_size, cls.type_size = traits.block_size, traits.type_size
        if cls.block_dtype.itemsize != cls.type_size:
            raise TypeError(f"{cls.__name__}.block_dtype must take {cls.type_size} bytes")
        if cls.type in _REGISTRY:
            raise TypeError(f"{cls.type.name} is registered already")
        if cls.table is not None:
            cls.levels = len(cls.table)
        _REGISTRY[cls.type] = cls

    @classmethod
    def codes(cls, blocks: np.ndarray) -> np.ndarray:
        """Unpack the small integer of each value.

        Parameters
        ----------
        blocks : block_dtype[n]
            Read only.

        Returns
        -------
        integers [n, block_size]
        """
        raise NotImplementedError(f"{cls.type.name} stores the values themselves")

    @classmethod
    def scales(cls, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Work out what the codes are multiplied by, and what is added.

        Parameters
        ----------
        blocks : block_dtype[n]
            Read only.

        Returns
        -------
        scale : float32[n, m]
            One for each of the m parts of a block.
        offset : float32[n, m] or None
            None where nothing is added.
        """
        raise NotImplementedError(f"{cls.type.name} stores the values themselves")

    @classmethod
    def parts(cls, blocks: np.ndarray) -> dict[str, np.ndarray]:
        """Unpack the other small integers of blocks: ``{"scale": integers [n, k], ...}``."""
        return {}

    @classmethod
    def held_in(cls, blocks: np.ndarray) -> list[np.ndarray]:
        """What each value's code is made from, where that is more than its own bits.

        Returns
        -------
        list of integers [n, block_size]
            The number of its group in a grid, its sign, the byte it shares with others.
        """
        return [cls.codes(blocks)]

    @classmethod
    def dequantize_blocks(cls, blocks: np.ndarray, out: np.ndarray) -> None:
        """Decode blocks.

        Parameters
        ----------
        blocks : block_dtype[n]
            Read only.
        out : float32[n, block_size]
            Written.
        """
        out[...] = cls.codes(blocks)
        if cls.zero:
            out -= cls.zero
        scale, offset = cls.scales(blocks)  # [n, m]
        sub = out.reshape(*scale.shape, -1)  # [n, m, block_size / m]
        np.multiply(scale[:, :, None], sub, out=sub)
        if offset is not None:
            sub += offset[:, :, None]

    @classmethod
    def quantize_blocks(cls, values: np.ndarray) -> np.ndarray:
        """Encode blocks as llama.cpp's quantizer without an importance matrix does, bit for bit.

        Parameters
        ----------
        values : float32[n, block_size]
            Finite.

        Returns
        -------
        block_dtype[n]
        """
        raise NotImplementedError(f"{cls.type.name} is not written here")

    @classmethod
    def store_blocks(cls, values: np.ndarray) -> np.ndarray:
        """Encode blocks as ggml's CPU backend does while a model runs (a cache's rows).

        For most types that is `quantize_blocks`; see the two classes that say otherwise.
        """
        return cls.quantize_blocks(values)

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
        """Decode a tensor's bytes, bit for bit as gguf-py and llama.cpp do.

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
        # scales may be inf or NaN; they decode to inf or NaN
        with np.errstate(invalid="ignore", over="ignore"):
            for i in range(0, n, step):
                cls.dequantize_blocks(blocks[i : i + step], rows[i : i + step])
        return flat

    @classmethod
    def quantize(cls, values: np.ndarray, *, store: bool = False) -> np.ndarray:
        """Encode values, bit for bit as llama.cpp does.

        Parameters
        ----------
        values : float32[..., n]
            Rows of whole blocks.
        store : bool
            As a running model's cache does (`store_blocks`), where also NaN and infinity are
            taken: they make their block's values meaningless, as there.

        Returns
        -------
        uint8[..., n_bytes]
            The rows' bytes.

        Raises
        ------
        ValueError
            A row is not whole blocks, or a value is not finite.
        UnsupportedError
            The type is not written here.
        """
        if not cls._is_written():
            raise UnsupportedError(
                "tensor type to quantize to",
                cls.type.name,
                supported=(t.name for t in quantizable()),
            )
        values = np.ascontiguousarray(values, np.float32)
        if values.ndim == 0 or values.shape[-1] % cls.block_size:
            raise ValueError(
                f"{cls.type.name} needs rows of whole blocks of {cls.block_size} values, "
                f"got {values.shape}"
            )
        if not store and not np.isfinite(values).all():
            bad = np.unravel_index(int(np.argmin(np.isfinite(values))), values.shape)
            raise ValueError(
                f"{cls.type.name} cannot hold {values[bad]}, which is value "
                f"{tuple(map(int, bad))}: quantize finite values"
            )
        rows = values.reshape(-1, cls.block_size)
        n = len(rows)
        out = np.empty(n, cls.block_dtype)
        step = max(_CHUNK_VALUES // cls.block_size, 1)
        encode = cls.store_blocks if store else cls.quantize_blocks
        with np.errstate(all="ignore"):  # as in C: a scale may overflow or be 0
            for i in range(0, n, step):
                out[i : i + step] = encode(rows[i : i + step])
        n_bytes = values.shape[-1] // cls.block_size * cls.type_size
        return out.view(np.uint8).reshape(*values.shape[:-1], n_bytes)

    @classmethod
    def _is_written(cls) -> bool:
        own = QuantType.quantize_blocks.__func__  # type: ignore[attr-defined]
        return cls.quantize_blocks.__func__ is not own  # type: ignore[attr-defined]

    @classmethod
    def explain(cls, raw: np.ndarray) -> Explanation:
        """Take one block apart: its fields, codes, scales, values, and the bits of each.

        Parameters
        ----------
        raw : uint8[type_size]
            Of a type without blocks: one value or several.
        """
        return explain_block(cls, raw)


def get(type_: GGMLType | int | str) -> type[QuantType]:
    """Return the class of a tensor type, given by its id or its name (``"q4_0"``).

    Raises
    ------
    UnsupportedError
        There is none; the error lists those there are.
    """
    if isinstance(type_, str):
        found = [t for t in _REGISTRY if t.name == type_.upper()]
        name = type_
    else:
        found = [t for t in _REGISTRY if t == type_]
        name = type_.name if isinstance(type_, GGMLType) else str(type_)
    if not found:
        raise UnsupportedError(
            "tensor type",
            name,
            supported=(t.name for t in supported()),
            hint="Use a file quantized to one of these",
        )
    return _REGISTRY[found[0]]


def supported() -> list[GGMLType]:
    """Return the tensor types that can be decoded, in the order of their ids."""
    return sorted(_REGISTRY)


def quantizable() -> list[GGMLType]:
    """Return the tensor types that can be written, in the order of their ids."""
    return [t for t in supported() if _REGISTRY[t]._is_written()]


def quantize(values: np.ndarray, type_: GGMLType | int | str) -> np.ndarray:
    """Quantize rows of values: ``quantize(x, "q4_0")``.

    Parameters
    ----------
    values : float32[..., n]
        Rows of whole blocks, finite.
    type_ : GGMLType, int or str
        One of `quantizable`.

    Returns
    -------
    uint8[..., n_bytes]
        Bit for bit what ``ggml_quantize_chunk`` writes without an importance matrix;
        ``get(type_).dequantize`` turns it back into numbers.

    Raises
    ------
    UnsupportedError
        The type is not known, or not written here.
    ValueError
        A row is not whole blocks, or a value is not finite.
    """
    return get(type_).quantize(values)
