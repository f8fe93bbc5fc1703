"""An opened GGUF file. ↔ ggml/src/gguf.cpp (gguf_context), src/llama-model-loader.cpp

`open_gguf` opens a file, `open_steps` does the same and shows every header field as an event.
Reads no weights and builds no model: that is `llmviz.model.loader`.
"""

from __future__ import annotations

import os
import re
from types import TracebackType
from typing import Any, Self

import numpy as np

from llmviz.errors import GGUFError
from llmviz.events import Steps, drain
from llmviz.ggml.types import GGMLType
from llmviz.gguf import constants as c
from llmviz.gguf.constants import ValueType
from llmviz.gguf.fields import Field, TensorInfo
from llmviz.gguf.header import Header
from llmviz.gguf.source import Source
from llmviz.gguf.split import open_parts
from llmviz.gguf.walk import walk_header

__all__ = ["GGUF", "open_gguf", "open_steps"]

_LAYER = re.compile(r"blk\.(\d+)")


class GGUF:
    """An open GGUF file, or all parts of a split one.

    Use it as a context manager, or call `close`. It is made by `open_gguf`.

    Attributes
    ----------
    path : str
        The (first) file.
    version : int
        2 or 3.
    alignment : int
        Every tensor's bytes start at a multiple of this.
    data_offset : int
        Where the (first) file's data section starts.
    file_size : int
        Bytes of the (first) file.
    byte_order : str
        ``"little"``; big-endian files are refused.
    kv : dict of str to object
        Values by key: int, float, bool, str, a numpy array, or `StringArray` (decoded lazily).
    kv_types : dict of str to ValueType
        Type of each value.
    arr_types : dict of str to ValueType or None
        Type of an array's elements, None for other values.
    tensor_infos : dict of str to TensorInfo
        All tensors, of all parts, in file order.
    fields : list of Field
        The (first) file's header, without gap from byte 0 to `data_offset`.
    parts : tuple of GGUF
        This file, then the other parts of a split model.
    """

    byte_order = "little"

    def __init__(self, source: Source, header: Header, rest: tuple[GGUF, ...] = ()) -> None:
        self._source = source
        self._rest = rest
        self.path = source.path
        self.file_size = source.size
        self.version = header.version
        self.alignment = header.alignment
        self.data_offset = header.data_offset
        self.kv: dict[str, Any] = header.kv
        self.kv_types: dict[str, ValueType] = header.kv_types
        self.arr_types: dict[str, ValueType | None] = header.arr_types
        self.tensor_infos: dict[str, TensorInfo] = dict(header.tensor_infos)
        for part in rest:
            self.tensor_infos |= part.tensor_infos
        self.fields: list[Field] = header.fields

    def __repr__(self) -> str:
        return (
            f"GGUF({self.path!r}, version {self.version}, {len(self.kv)} key-values, "
            f"{len(self.tensor_infos)} tensors)"
        )

    @property
    def parts(self) -> tuple[GGUF, ...]:
        """This file, then the other parts of a split model."""
        return (self, *self._rest)

    @property
    def is_mapped(self) -> bool:
        """Whether the weights are memory-mapped (else `tensor_bytes` reads a copy)."""
        return self._source.is_mapped

    @property
    def is_direct(self) -> bool:
        """Whether `tensor_bytes` reads past the system's page cache."""
        return self._source.is_direct

    @property
    def fallback(self) -> str:
        """Why the file is read in another way than was asked for; empty where it is not."""
        return next((p._source.fallback for p in self.parts if p._source.fallback), "")

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._source.closed

    def close(self) -> None:
        """Let go of the file and its parts; arrays from `tensor_bytes` stay valid."""
        for part in self._rest:
            part.close()
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def tensor_bytes(self, info: TensorInfo) -> np.ndarray:
        """Return a tensor's bytes.

        Parameters
        ----------
        info : TensorInfo
            One of `tensor_infos`.

        Returns
        -------
        uint8[nbytes]
            Read-only: the mapping itself (no copy), or where the file is not mapped, a fresh copy.

        Raises
        ------
        GGUFError
            The file was closed.
        """
        return self.parts[info.part]._source.view(info.abs_offset, info.nbytes)

    def forget_bytes(self, info: TensorInfo | None = None) -> None:
        """Let go of the mapped pages of one tensor, or of all headers, until they are looked at
        again; arrays of them stay valid.
        """
        if info is not None:
            self.parts[info.part]._source.forget(info.abs_offset, info.nbytes)
            return
        for part in self.parts:
            part._source.forget(0, part.data_offset)

    def field_at(self, offset: int) -> Field:
        """Return the header field that the byte at a file offset belongs to.

        Raises
        ------
        IndexError
            The byte lies outside the header.
        """
        low, high = 0, len(self.fields)
        while low < high:
            mid = (low + high) // 2
            if self.fields[mid].end <= offset:
                low = mid + 1
            else:
                high = mid
        if offset < 0 or low == len(self.fields):
            raise IndexError(f"byte {offset} lies outside the header [0, {self.data_offset})")
        return self.fields[low]

    def type_label(self, key: str) -> str:
        """Name a key's type as llama.cpp prints it: ``"u32"``, ``"arr[str,49152]"``."""
        kind = self.arr_types[key]
        if kind is None:
            return self.kv_types[key].label
        return f"arr[{kind.label},{len(self.kv[key])}]"

    def expect(self, key: str, kind: ValueType) -> Any:
        """Return the value of a key that has to be there and of one type.

        Raises
        ------
        GGUFError
            The key is missing, or of another type.
        """
        if key not in self.kv:
            raise GGUFError(f"key not found in model: {key}", field=key, path=self.path)
        if self.kv_types[key] is not kind:
            at = next(f.offset for f in self.fields if f.owner == key and f.kind == "value_type")
            raise GGUFError(
                f"key {key} has wrong type {self.kv_types[key].label} "
                f"but expected type {kind.label}",
                offset=at,
                field=key,
                path=self.path,
            )
        return self.kv[key]

    @property
    def n_elements(self) -> int:
        """Number of weights in all tensors."""
        return sum(info.n_elements for info in self.tensor_infos.values())

    @property
    def n_bytes(self) -> int:
        """Bytes of all tensors, without padding."""
        return sum(info.nbytes for info in self.tensor_infos.values())

    def type_counts(self) -> dict[GGMLType, int]:
        """Count the tensors of each type, in the order of the types' ids."""
        counts: dict[GGMLType, int] = {}
        for info in self.tensor_infos.values():
            counts[info.type] = counts.get(info.type, 0) + 1
        return dict(sorted(counts.items()))

    @property
    def ftype(self) -> int:
        """The file type (a llama_ftype): stated by the file, else guessed from the tensors.

        A guess has the bit `constants.FTYPE_GUESSED` set.

        Raises
        ------
        GGUFError
            The key ``general.file_type`` is not a u32.
        """
        if c.KEY_FILE_TYPE in self.kv:
            return self.expect(c.KEY_FILE_TYPE, ValueType.UINT32)
        return self._guess_ftype() | c.FTYPE_GUESSED

    def ftype_name(self) -> str:
        """Name the file type as llama.cpp prints it: ``"Q4_1"``, ``"(guessed) all F32"``."""
        name = c.FTYPE_NAMES.get(self.ftype & ~c.FTYPE_GUESSED, "unknown, may not work")
        return f"(guessed) {name}" if self.ftype & c.FTYPE_GUESSED else name

    def _guess_ftype(self) -> int:
        """Take the commonest tensor type; of equals, the first to get there in layer order."""
        counts: dict[GGMLType, int] = {}
        most, best = 0, GGMLType.F32
        for name in sorted(self.tensor_infos, key=_layer_then_name):
            kind = self.tensor_infos[name].type
            counts[kind] = counts.get(kind, 0) + 1
            if counts[kind] > most:
                most, best = counts[kind], kind
        return c.FTYPE_OF_TYPE.get(best, 0)


def _layer_then_name(name: str) -> tuple[int, bytes]:
    found = _LAYER.match(name)
    return (int(found[1]) if found else -1), name.encode()


def open_gguf(
    path: str | os.PathLike[str],
    *,
    use_mmap: bool = True,
    direct: bool = False,
    follow_splits: bool = True,
) -> GGUF:
    """Open a GGUF file: read its header, check everything in it, touch no weights.

    Parameters
    ----------
    path : str or os.PathLike
        A GGUF file of version 2 or 3; of a split model, the first part.
    use_mmap : bool
        ``False`` reads the file instead of mapping it into memory (also done where mapping fails).
    direct : bool
        ``True`` reads weights past the system's page cache, where the file system allows it; the
        file is not mapped then.
    follow_splits : bool
        ``False`` opens only this part of a split model.

    Returns
    -------
    GGUF

    Raises
    ------
    GGUFError
        With the byte offset and the field: not a GGUF file, an unsupported version, damaged, cut
        off, or a split model that is incomplete or not opened by its first part.

    See Also
    --------
    open_steps : the same, one event per header field.
    """
    return drain(open_steps(path, use_mmap=use_mmap, direct=direct, follow_splits=follow_splits))


def open_steps(
    path: str | os.PathLike[str],
    *,
    depth: int = 0,
    use_mmap: bool = True,
    direct: bool = False,
    follow_splits: bool = True,
) -> Steps[GGUF]:
    """Open a GGUF file, yielding one event per header field.

    Parameters are those of `open_gguf`; `depth` is the depth of the events.

    Yields
    ------
    Event
        ``"data"`` events of step 2: name and value of the field, about the `Field`. Each further
        part of a split model is a scope named ``"gguf_split"``.

    Returns
    -------
    GGUF
    """
    source = Source(path, use_mmap=use_mmap, direct=direct)
    try:
        header = yield from walk_header(source, depth)
        first = GGUF(source, header)
        if not follow_splits:
            return first
        rest = yield from open_parts(first, _open_part, depth)
        return GGUF(source, header, rest) if rest else first
    except BaseException:  # also when a stepping consumer walks away: do not keep the file open
        source.close()
        raise


def _open_part(path: str, like: GGUF, depth: int) -> Steps[GGUF]:
    return open_steps(
        path, depth=depth, use_mmap=like.is_mapped, direct=like.is_direct, follow_splits=False
    )
