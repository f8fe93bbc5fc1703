"""The error family: every failure llmviz can explain derives from `LlmvizError`.

A message names what failed, where (byte offset, position, setting) and what to do about it.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "BatchError",
    "DecodeError",
    "DeviceMemoryError",
    "GGUFError",
    "HubError",
    "LlmvizError",
    "LoadCancelled",
    "SamplerError",
    "UnsupportedError",
    "VocabError",
]


class LlmvizError(Exception):
    """Base of all errors that llmviz raises on purpose."""


class GGUFError(LlmvizError):
    """A file is not a GGUF file, is damaged, or lacks what a model needs.

    Parameters
    ----------
    message : str
        What is wrong and what to do.
    offset : int or None
        Byte offset in the file where the fault was seen.
    field : str or None
        Header field, key or tensor name.
    path : str or None
        The file.
    """

    def __init__(
        self,
        message: str,
        *,
        offset: int | None = None,
        field: str | None = None,
        path: str | None = None,
    ) -> None:
        self.offset = offset
        self.field = field
        self.path = path
        where = []
        if field is not None:
            where.append(f"field {field!r}")
        if offset is not None:
            where.append(f"at byte offset {offset}")
        if path is not None:
            where.append(f"in {path}")
        super().__init__(message + (f" ({' '.join(where)})" if where else ""))


class DeviceMemoryError(LlmvizError):
    """Something does not fit into the memory of a device; the message says what would.

    Parameters
    ----------
    message : str
        What is needed, what there is, and which setting to change.
    device : str
        Its name.
    needed, free : int
        Bytes.
    fits : int or None
        Largest ``n_gpu_layers`` that would fit, where that is known.
    """

    def __init__(
        self,
        message: str,
        *,
        device: str = "",
        needed: int = 0,
        free: int = 0,
        fits: int | None = None,
    ) -> None:
        self.device = device
        self.needed = needed
        self.free = free
        self.fits = fits
        super().__init__(message)


class UnsupportedError(LlmvizError):
    """The input is valid but llmviz does not know this kind of it.

    Parameters
    ----------
    what : str
        Kind of thing: ``"architecture"``, ``"tensor type"``, ``"tokenizer"`` ...
    name : str
        The one that was asked for.
    supported : iterable of str
        Names that are supported, listed in the message.
    hint : str
        What to do instead.
    """

    def __init__(
        self, what: str, name: str, *, supported: Iterable[str] = (), hint: str = ""
    ) -> None:
        self.what = what
        self.name = name
        self.supported = tuple(supported)
        message = f"unsupported {what}: {name!r}"
        if self.supported:
            message += f"; supported: {', '.join(self.supported)}"
        if hint:
            message += f". {hint}"
        super().__init__(message)


class VocabError(LlmvizError):
    """The vocabulary of a file is incomplete or inconsistent, or a token id is out of range."""


class LoadCancelled(LlmvizError):
    """The caller's progress callback returned ``False`` while a model was loading."""


class DecodeError(LlmvizError):
    """A decode failed with one of llama.cpp's negative return codes.

    Parameters
    ----------
    message : str
        What is wrong.
    code : int
        ``-1`` invalid batch, ``-2`` could not be allocated, ``-3`` computation failed.
    """

    def __init__(self, message: str, code: int = -1) -> None:
        self.code = code
        super().__init__(message)


class BatchError(DecodeError):
    """A batch is invalid: token or sequence id out of range, positions that do not continue, too
    large.
    """


class SamplerError(LlmvizError):
    """A sampler's parameter is invalid, or a chain has no sampler that selects a token."""


class HubError(LlmvizError):
    """A model file could not be found or fetched."""
