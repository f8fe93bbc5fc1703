"""Arrays with named dimensions and attributes, written as one zip of zarr arrays.

The arrays are zarr format 3, in C order, little-endian, compressed with zarr's default (zstd); the
zip's members are stored as they are. zarr and plain xarray read the same file.
"""

from __future__ import annotations

import math
import os
import tempfile
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from llmviz.trace.storage_zip import need_zarr

__all__ = ["Variable", "chunks_of", "table", "write_zip"]

_CHUNK = 8 << 20


@dataclass
class Variable:
    """One array to be written.

    Attributes
    ----------
    name : str
        With its group, ``"values/l_out-3"``.
    dims : tuple of str
    data : ndarray
        Or, with `shape`, `dtype` and `chunks`, None: `parts` fill what they fill, the rest is NaN.
    parts : iterable of (tuple of int and slice, ndarray)
    """

    name: str
    dims: tuple[str, ...]
    data: np.ndarray | None = None
    attrs: dict[str, Any] = field(default_factory=dict)
    shape: tuple[int, ...] = ()
    dtype: Any = None
    chunks: tuple[int, ...] = ()
    parts: Iterable[tuple[Any, np.ndarray]] = ()


def table(prefix: str, dim: str, **columns: Any) -> Iterator[Variable]:
    """Columns of one length: ``table("event", "event", n=...)`` gives ``event_n`` (event)."""
    for name, data in columns.items():
        yield Variable(f"{prefix}_{name}", (dim,), np.asarray(data))


def chunks_of(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Chunks of at most 8 MiB, halved along the longest axis."""
    out = [max(1, n) for n in shape]
    while math.prod(out) * itemsize > _CHUNK and max(out) > 1:
        i = out.index(max(out))
        out[i] = -(-out[i] // 2)
    return tuple(out)


def write_zip(
    path: str | os.PathLike[str], attrs: dict[str, Any], variables: Iterable[Variable]
) -> None:
    """Write arrays and attributes; the file appears complete or not at all.

    Raises
    ------
    TraceError
        zarr is missing.
    OSError
        The file cannot be written.
    """
    zarr = need_zarr()
    members: dict[str, Any] = {}
    store = zarr.storage.MemoryStore(members)
    with warnings.catch_warnings():
        # consolidated metadata is an extension that zarr and xarray both read
        warnings.filterwarnings("ignore", message="Consolidated metadata")
        root = zarr.create_group(store, zarr_format=3, attributes=attrs)
        for v in variables:
            _write_array(root, v)
        zarr.consolidate_metadata(store)
    path = os.fspath(path)
    folder, name = os.path.split(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w") as archive:
            for key in sorted(members, key=lambda k: (k != "zarr.json", k)):
                info = zipfile.ZipInfo(key)  # of 1980: the same run gives the same file
                info.external_attr = 0o644 << 16
                archive.writestr(info, members[key].to_bytes())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _write_array(root: Any, v: Variable) -> None:
    shape = v.shape if v.data is None else v.data.shape
    given = np.dtype(v.dtype if v.data is None else v.data.dtype)
    dtype = np.dtype(given.newbyteorder("<").str)  # by its size: zarr knows no "long long"
    out = root.create_array(
        v.name,
        shape=shape,
        dtype=dtype,
        chunks=v.chunks or chunks_of(shape, dtype.itemsize),
        fill_value=np.nan if dtype.kind == "f" else 0,
        dimension_names=v.dims,
        attributes=v.attrs,
        config={"write_empty_chunks": v.data is not None},
    )
    if v.data is not None:
        out[...] = v.data.astype(dtype, copy=False)
    for index, part in v.parts:
        out[index] = part
