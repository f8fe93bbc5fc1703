"""Decoded weights that all models of one file have in common, for as long as one of them lives.

A debugger over a path loads the file again; the 32-bit values of its weights, which are the large
part of a model, are the same. They are held weakly: with the last model they are gone. A file is
the same while its path, size and time of change are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from weakref import WeakValueDictionary

import numpy as np

__all__ = ["decoded", "file_key", "is_mapped"]

_held: WeakValueDictionary[Hashable, np.ndarray] = WeakValueDictionary()


def file_key(path: str) -> Hashable | None:
    """What tells a file from others and from itself after a change; None where it is gone."""
    try:
        about = os.stat(path)
    except OSError:
        return None
    return os.path.realpath(path), about.st_size, about.st_mtime_ns


def decoded(key: Hashable | None, decode: Callable[[], np.ndarray]) -> np.ndarray:
    """What `decode` gives, or what it gave for the same key before, if somebody still holds that.

    Parameters
    ----------
    key : hashable or None
        None: it is shared with nobody.
    decode : callable
        ``decode() -> float32 ndarray``. An array that has memory of its own becomes read-only when
        it is shared; a view of a mapped file is shared by the system.

    Returns
    -------
    ndarray
        Flat.
    """
    known = _held.get(key) if key is not None else None
    if known is not None:
        return _values(known)
    made = decode().reshape(-1)
    owner = _owner(made)
    # Only an owner lives as long as its views do; one of another size would not be this tensor.
    if key is None or not owner.flags.owndata or owner.nbytes != made.nbytes:
        return made
    owner.flags.writeable = False
    _held[key] = owner  # itself, not a view of it: that would be gone when this function returns
    return _values(owner)


def is_mapped(array: np.ndarray) -> bool:
    """Whether an array looks at a mapped file rather than at memory of its own."""
    return not _owner(array).flags.owndata


def _owner(array: np.ndarray) -> np.ndarray:
    """The array that a view of a view of it looks at in the end."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _values(owner: np.ndarray) -> np.ndarray:
    """What an owner's memory holds: float32 that nobody decoded is owned as the bytes read."""
    return owner.reshape(-1).view(np.float32)
