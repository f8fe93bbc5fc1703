"""Models in several files. ↔ src/llama-model-loader.cpp, src/llama.cpp (llama_split_path)

They are called ``name-00001-of-00003.gguf`` and so on. The first part's header holds the
key-values; each part has its own tensor infos. ``split.no`` counts from 0, the names from 1.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from llmviz.errors import GGUFError
from llmviz.events import Steps, scope
from llmviz.gguf import constants as c
from llmviz.gguf.constants import ValueType

if TYPE_CHECKING:
    from llmviz.gguf.reader import GGUF

__all__ = ["open_parts", "split_path", "split_prefix"]


def split_path(prefix: str, i: int, n: int) -> str:
    """Return the file name of part ``i`` (from 0) of ``n``."""
    return f"{prefix}-{i + 1:05d}-of-{n:05d}.gguf"


def split_prefix(path: str, i: int, n: int) -> str | None:
    """Return what stands before part ``i``'s ending, or None if the path does not end so."""
    ending = split_path("", i, n)
    return path[: -len(ending)] if path.endswith(ending) and path != ending else None


def open_parts(
    first: GGUF, open_part: Callable[[str, GGUF, int], Steps[GGUF]], depth: int = 0
) -> Steps[tuple[GGUF, ...]]:
    """Open the further parts of a split model; none if the model is not split.

    Parameters
    ----------
    first : GGUF
        The first part, opened.
    open_part : callable
        Generator that opens one file: (path, first, depth).
    depth : int
        Depth of the events.

    Raises
    ------
    GGUFError
        This is not the first part, its file was renamed, a part is missing or in the wrong place, a
        tensor stands in two parts, or tensors are missing.
    """
    n = _key(first, c.KEY_SPLIT_COUNT, ValueType.UINT16, 0)
    if n <= 1:
        return ()
    no = _key(first, c.KEY_SPLIT_NO, ValueType.UINT16)
    if no != 0:
        prefix = split_prefix(first.path, no, n)
        hint = f": open {split_path(prefix, 0, n)!r}" if prefix else ""
        raise GGUFError(
            f"illegal split file idx: {no}, this is part {no + 1} of {n}, "
            f"but a split model must be loaded with the first split{hint}",
            field=c.KEY_SPLIT_NO,
            path=first.path,
        )
    prefix = split_prefix(first.path, 0, n)
    if prefix is None:
        raise GGUFError(
            f"invalid split file name: the first of {n} parts must be called "
            f"{split_path('<name>', 0, n)!r} so that the others can be found; rename it back",
            field=c.KEY_SPLIT_COUNT,
            path=first.path,
        )

    parts: list[GGUF] = []
    try:
        names = set(first.tensor_infos)
        for i in range(1, n):
            path = split_path(prefix, i, n)
            part = yield from _open_one(first, open_part, path, i, n, depth)
            parts.append(part)
            for name, info in part.tensor_infos.items():
                if name in names:
                    raise GGUFError(
                        f"invalid model: tensor '{name}' is duplicated in part {i + 1} of {n}",
                        field=name,
                        path=path,
                    )
                names.add(name)
                part.tensor_infos[name] = dataclasses.replace(info, part=i)
        claimed = _key(first, c.KEY_SPLIT_TENSORS, ValueType.INT32)
        if claimed != len(names):
            raise GGUFError(
                f"corrupted model: {claimed} tensors expected but {len(names)} found in {n} parts; "
                "the parts may come from different downloads",
                field=c.KEY_SPLIT_TENSORS,
                path=first.path,
            )
    except BaseException:
        for part in parts:
            part.close()
        raise
    return tuple(parts)


def _open_one(
    first: GGUF,
    open_part: Callable[[str, GGUF, int], Steps[GGUF]],
    path: str,
    i: int,
    n: int,
    depth: int,
) -> Steps[GGUF]:
    if not os.path.exists(path):
        raise GGUFError(
            f"failed to load GGUF split: part {i + 1} of {n} is missing; put it beside the first",
            path=path,
        )
    part = yield from scope("gguf_split", 2, depth, open_part(path, first, depth + 1), path)
    try:
        no = _key(part, c.KEY_SPLIT_NO, ValueType.UINT16)
        if no != i:
            raise GGUFError(
                f"invalid split file idx: {no}, expected {i}; the parts may have been renamed",
                field=c.KEY_SPLIT_NO,
                path=path,
            )
    except BaseException:
        part.close()
        raise
    return part


def _key(gguf: GGUF, key: str, kind: ValueType, default: int | None = None) -> int:
    if key not in gguf.kv and default is not None:
        return default
    return gguf.expect(key, kind)
