"""A zip of zarr arrays, read without believing what it claims.

A trace may come from anybody. Before a chunk is decoded, its name, its codecs, its claimed shape
and the size that its compressed frame claims are checked against the file and against limits.
Nothing that a file holds is executed, and no name in it is ever used as a path outside of it.
What is read is what `storage_write` writes; zarr's other codecs and grids are refused.

A little over 400 lines: every check of a claim stands beside the code that would believe it.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import struct
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from operator import contains
from typing import Any

import numpy as np

from llmviz.errors import LlmvizError

__all__ = ["MOST_BYTES", "ArrayInfo", "TraceError", "TraceZip", "need_zarr"]

MOST_BYTES = 1 << 30  # of all arrays together, decoded
MOST_CHUNK = 64 << 20
MOST_JSON = 64 << 20
MOST_MEMBERS = 200_000

_DTYPES = {
    "bool": "|b1",
    "uint8": "|u1",
    "int8": "|i1",
    "int16": "<i2",
    "uint16": "<u2",
    "int32": "<i4",
    "uint32": "<u4",
    "int64": "<i8",
    "uint64": "<u8",
    "float16": "<f2",
    "float32": "<f4",
    "float64": "<f8",
}
_PART = re.compile(r"[A-Za-z0-9_\-+=()\[\], ][A-Za-z0-9_\-+=()\[\], .]*")
_FLAG_ENCRYPTED = 1
# What damaged bytes make of zipfile, json, numcodecs and zarr.
_DAMAGE = (
    zipfile.BadZipFile,
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    NotImplementedError,
    OSError,
    RuntimeError,  # RecursionError among them
    TypeError,
    ValueError,  # UnicodeDecodeError among them
    struct.error,
)


class TraceError(LlmvizError):
    """A trace file is no trace, is damaged, or of another version; or it lacks what was asked for.

    Parameters
    ----------
    message : str
        What is wrong and what to do.
    where : str
        The array or member.
    path : str
        The file.
    """

    def __init__(self, message: str, *, where: str = "", path: str = "") -> None:
        self.where, self.path = where, path
        place = [f"in {w!r}" for w in (where[:120], path) if w]
        super().__init__(message + (f" ({' '.join(place)})" if place else ""))


def need_zarr() -> Any:
    """The zarr package, or an error that says how to get it."""
    try:
        import zarr
    except ImportError as error:
        raise TraceError(
            f"trace files need zarr ({error}): install it with  pip install 'llmviz-debugger[lab]'"
        ) from error
    return zarr


@dataclass(frozen=True)
class ArrayInfo:
    """What an array's metadata claims, checked for form."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    chunks: tuple[int, ...]
    dims: tuple[str, ...]
    attrs: dict[str, Any]
    compressed: bool


class TraceZip:
    """A zip of zarr arrays that is opened with suspicion.

    Parameters
    ----------
    path : str or PathLike
    max_bytes : int
        What all arrays that are read may take together, decoded.

    Attributes
    ----------
    path : str
    attrs : dict
        Of the root.
    arrays : dict of str to ArrayInfo
        Metadata of arrays; filled when they are asked for.
    """

    def __init__(self, path: str | os.PathLike[str], max_bytes: int = MOST_BYTES) -> None:
        self.path = os.fspath(path)
        self.max_bytes = self._left = max_bytes
        self.arrays: dict[str, ArrayInfo] = {}
        if not os.path.exists(self.path):
            raise TraceError("there is no such file", path=self.path)
        if os.path.isdir(self.path):
            raise TraceError("this is a folder, a trace is one file", path=self.path)
        need_zarr()
        from numcodecs.zstd import decompress  # zarr's own

        self._decode = decompress
        try:
            self._zip = zipfile.ZipFile(self.path)
        except _DAMAGE as error:
            raise TraceError(
                f"this is no trace, or only a part of one ({error}): save it again",
                path=self.path,
            ) from error
        try:
            self._members = self._checked_members()
            self._grids: dict[str, list[tuple[int, ...]]] | None = None
            meta = self._json("zarr.json")
            if meta.get("zarr_format") != 3 or meta.get("node_type") != "group":
                raise self._error("this zip holds no zarr group of format 3", "zarr.json")
            self.attrs: dict[str, Any] = self._dict(meta.get("attributes"), "zarr.json")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the file."""
        self._zip.close()

    def _error(self, message: str, where: str = "") -> TraceError:
        return TraceError(message, where=where, path=self.path)

    def _checked_members(self) -> dict[str, zipfile.ZipInfo]:
        infos = self._zip.infolist()
        if len(infos) > MOST_MEMBERS:
            raise self._error(f"the zip holds {len(infos):,} members, more than {MOST_MEMBERS:,}")
        size = os.path.getsize(self.path)
        out: dict[str, zipfile.ZipInfo] = {}
        for info in infos:
            name = info.filename
            parts = name.split("/")
            if not all(_PART.fullmatch(p) or p == "zarr.json" for p in parts) or len(name) > 400:
                raise self._error("a name in the zip leaves it or is no array's", name)
            if name in out:
                raise self._error("the zip holds this name twice", name)
            if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & _FLAG_ENCRYPTED:
                raise self._error("a member of a trace is stored as it is, not compressed", name)
            if info.file_size != info.compress_size or info.file_size > size:
                raise self._error(
                    f"{info.file_size:,} bytes are claimed, the file has {size:,}", name
                )
            out[name] = info
        if sum(i.file_size for i in infos) > size:
            raise self._error(f"the members claim more than the {size:,} bytes of the file")
        return out

    def _bytes(self, name: str, most: int) -> bytes:
        info = self._members.get(name)
        if info is None:
            raise self._error("this is missing: the trace is not complete", name)
        if info.file_size > most:
            raise self._error(f"{info.file_size:,} bytes are more than the {most:,} allowed", name)
        try:
            return self._zip.read(info)
        except _DAMAGE as error:
            raise self._error(f"the file is damaged here: {error}", name) from error

    def _json(self, name: str) -> dict[str, Any]:
        try:
            found = json.loads(self._bytes(name, MOST_JSON))
        except TraceError:
            raise
        except _DAMAGE as error:
            raise self._error(f"this is no JSON: {type(error).__name__}: {error}", name) from error
        return self._dict(found, name)

    def _dict(self, x: Any, where: str) -> dict[str, Any]:
        if not isinstance(x, dict):
            raise self._error(f"a mapping is expected, not {type(x).__name__}", where)
        return x

    def names(self, group: str = "") -> list[str]:
        """Names of the arrays of a group, with the group's."""
        found = [n[: -len("/zarr.json")] for n in self._members if n.endswith("/zarr.json")]
        groups = {n.rpartition("/")[0] for n in found}
        return sorted(n for n in found if n.rpartition("/")[0] == group and n not in groups)

    def has(self, name: str) -> bool:
        """Whether there is an array of this name."""
        return f"{name}/zarr.json" in self._members

    def info(self, name: str) -> ArrayInfo:
        """The checked metadata of an array.

        Raises
        ------
        TraceError
        """
        if name not in self.arrays:
            try:
                self.arrays[name] = self._checked_info(name)
            except TraceError:
                raise
            except _DAMAGE as error:
                raise self._error(
                    f"the array's description is wrong: {type(error).__name__}: {error}", name
                ) from error
        return self.arrays[name]

    def _checked_info(self, name: str) -> ArrayInfo:
        meta = self._json(f"{name}/zarr.json")
        if meta.get("zarr_format") != 3 or meta.get("node_type") != "array":
            raise self._error("this is no array of zarr format 3", name)
        shape, kind, dims = meta["shape"], meta["data_type"], meta.get("dimension_names")
        grid, keys = meta["chunk_grid"], meta["chunk_key_encoding"]
        chunks = grid["configuration"]["chunk_shape"]
        if not isinstance(kind, str) or kind not in _DTYPES:
            raise self._error(f"values of type {str(kind)[:60]!r} are not read", name)
        for numbers in (shape, chunks):
            ok = isinstance(numbers, list) and all(
                type(n) is int and 0 <= n < 1 << 48 for n in numbers
            )
            if not ok or len(numbers) != len(shape) or len(numbers) > 8:
                raise self._error("the shape is no short list of whole numbers", name)
        dims = [None] * len(shape) if dims is None else dims
        if not isinstance(dims, list) or len(dims) != len(shape):
            raise self._error(f"{len(shape)} axes need as many names", name)
        codecs = [c.get("name") for c in meta["codecs"]]
        config = keys.get("configuration", {})
        if (
            grid.get("name") != "regular"
            or keys.get("name") != "default"
            or config.get("separator", "/") != "/"
            or codecs[:1] != ["bytes"]
            or codecs[1:] not in ([], ["zstd"])
            or meta.get("storage_transformers")
            or 0 in chunks
        ):
            raise self._error(f"codecs {codecs} with this grid are not what a trace has", name)
        dtype = np.dtype(_DTYPES[kind])
        if math.prod(chunks) * dtype.itemsize > MOST_CHUNK:
            raise self._error(
                f"chunks of {chunks} {kind} are larger than {MOST_CHUNK >> 20} MiB", name
            )
        return ArrayInfo(
            name,
            tuple(shape),
            dtype,
            tuple(chunks),
            tuple(str(d)[:60] for d in dims),
            self._dict(meta.get("attributes", {}), name),
            codecs[1:] == ["zstd"],
        )

    def array(self, name: str, first: int | None = None, *, sparse: bool = False) -> np.ndarray:
        """Decode an array, or of its first axis one index.

        Parameters
        ----------
        sparse : bool
            Whether chunks may be missing; they read as NaN or 0.

        Raises
        ------
        TraceError
            It is missing or damaged, or with it more than `max_bytes` would have been read.
        """
        info = self.info(name)
        shape = info.shape if first is None else info.shape[1:]
        nbytes = math.prod(shape) * info.dtype.itemsize
        if nbytes > self._left:
            raise self._error(
                f"{list(shape)} {info.dtype} would take {nbytes:,} bytes; {self._left:,} of the "
                f"{self.max_bytes:,} that may be read are left: open it with a larger max_bytes",
                name,
            )
        if first is not None and not 0 <= first < info.shape[0]:
            raise self._error(f"there is no index {first} along {info.dims[0]}", name)
        counts = [-(-n // c) for n, c in zip(info.shape, info.chunks)]
        if math.prod(counts[first is not None :]) > len(self._members) and not sparse:
            raise self._error(f"{list(info.shape)} needs more chunks than the file has", name)
        keys = list(self._chunk_keys(info, counts, first, sparse))
        self._left -= nbytes
        out = np.full(shape, np.nan if info.dtype.kind == "f" else 0, info.dtype)
        for key in keys:
            self._place(key, info, first, out)
        out.flags.writeable = False
        return out

    def _chunk_keys(
        self, info: ArrayInfo, counts: list[int], first: int | None, sparse: bool
    ) -> Iterable[tuple[int, ...]]:
        """Where the chunks lie in the grid."""
        axes = [range(n) for n in counts]
        if first is not None:
            axes[0] = range(first // info.chunks[0], first // info.chunks[0] + 1)
        if not sparse:
            return itertools.product(*axes)
        # The grid may be far larger than what is there.
        there = self._chunks_there(info.name)
        return [at for at in there if len(at) == len(axes) and all(map(contains, axes, at))]

    def _chunks_there(self, name: str) -> list[tuple[int, ...]]:
        if self._grids is None:
            self._grids = {}
            for member in self._members:
                array, found, key = member.rpartition("/c/")
                if found and all(k.isdecimal() and len(k) < 12 for k in key.split("/")):
                    at = tuple(map(int, key.split("/")))
                    self._grids.setdefault(array, []).append(at)
        return self._grids.get(name, [])

    def _place(
        self, at: tuple[int, ...], info: ArrayInfo, first: int | None, out: np.ndarray
    ) -> None:
        """Decode one chunk into its place in `out`."""
        where = "/".join((info.name, "c", *map(str, at)))
        start = [i * c for i, c in zip(at, info.chunks)]
        stop = [min(a + c, n) for a, c, n in zip(start, info.chunks, info.shape)]
        if first is not None and not start[0] <= first < stop[0]:
            return
        chunk = self._chunk(where, info).reshape(info.chunks)
        source: list[Any] = [slice(b - a) for a, b in zip(start, stop)]
        target: list[Any] = [slice(a, b) for a, b in zip(start, stop)]
        if first is not None:
            source[0] = first - start[0]
            del target[0]
        out[tuple(target)] = chunk[tuple(source)]

    def _chunk(self, where: str, info: ArrayInfo) -> np.ndarray:
        """A chunk's values, flat; checked to be exactly as large as its array says."""
        raw = self._bytes(where, 2 * MOST_CHUNK)
        whole = math.prod(info.chunks) * info.dtype.itemsize
        claimed = frame_size(raw) if info.compressed else len(raw)
        if claimed != whole:
            raise self._error(
                f"the chunk claims {'no size' if claimed is None else f'{claimed:,} bytes'}, "
                f"its array says {whole:,}",
                where,
            )
        try:
            return np.frombuffer(self._decode(raw) if info.compressed else raw, info.dtype)
        except _DAMAGE as error:
            raise self._error(f"the chunk cannot be decoded: {error}", where) from error


def frame_size(raw: bytes) -> int | None:
    """Bytes that a chunk claims to hold: it must be one zstd frame that says so; None otherwise.

    ↔ RFC 8878, 3.1.1
    """
    if len(raw) < 6 or raw[:4] != b"\x28\xb5\x2f\xfd":
        return None
    flags = raw[4]
    single, checksum = flags >> 5 & 1, flags >> 2 & 1
    at = 5 + (not single) + (0, 1, 2, 4)[flags & 3]
    width = (single, 2, 4, 8)[flags >> 6]
    if not width or len(raw) < at + width:
        return None
    size = int.from_bytes(raw[at : at + width], "little") + (256 if width == 2 else 0)
    at += width
    while True:  # to the end of its blocks: a second frame would not be counted
        if len(raw) < at + 3:
            return None
        block = int.from_bytes(raw[at : at + 3], "little")
        at += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)
        if block & 1:
            return size if at + 4 * checksum == len(raw) else None
