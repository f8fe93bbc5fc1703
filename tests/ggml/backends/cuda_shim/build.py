"""Compiles the CUDA sources for the processor and launches kernels there; see shim.hpp."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from llmviz.ggml.backends.cuda import library

HERE = Path(__file__).parent
FLAGS = ("-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-shared", "-w", "-U_FORTIFY_SOURCE")


def everything() -> str:
    """All kernels in one source."""
    base, blocks = library.base_source(), library.type_source(*library.BLOCK_TYPES)
    common = (library.SOURCES / "common.cuh").read_text(encoding="utf-8")
    return base + blocks.replace(common, "", 1)


def all_kernels() -> dict[str, str]:
    """Every kernel -> the struct that it takes."""
    kernels = dict(library.KERNELS)
    for type_ in library.BLOCK_TYPES:
        kernels.update(library.type_kernels(type_))
    return kernels


def _source() -> str:
    exports = "".join(f"EXPORT({name}, {args})\n" for name, args in all_kernels().items())
    # asm and the toolkit's own definitions are left out by LLMVIZ_ON_CPU
    return f'#include "shim.hpp"\n{everything()}\n{exports}'


def compiler() -> str | None:
    """A C++ compiler, where there is one; the stand-in's fibers are written for Linux."""
    return shutil.which("g++") if sys.platform == "linux" else None


@cache
def load() -> ctypes.CDLL:
    """The kernels as a shared library, built once for each state of the sources."""
    from llmviz import hub

    source = _source()
    shim = (HERE / "shim.hpp").read_text(encoding="utf-8")
    version = subprocess.run(
        ["g++", "--version"], capture_output=True, text=True, check=True
    ).stdout
    key = hashlib.sha256("".join((source, shim, version, *FLAGS)).encode()).hexdigest()[:16]
    folder = hub.cache_dir() / "tests" / "cuda-shim"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{key}.so"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=folder) as work:
            path, out = Path(work) / "kernels.cpp", Path(work) / "kernels.so"
            path.write_text(source, encoding="utf-8")
            command = ["g++", *FLAGS, f"-I{HERE}", str(path), "-o", str(out)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"the kernels do not compile: {done.stderr[:3000]}")
            os.replace(out, target)
    return ctypes.CDLL(str(target))


_GRID = ctypes.c_int * 3


def run(name: str, grid: tuple[int, ...], threads: tuple[int, ...], args: np.ndarray) -> None:
    """Launch a kernel and wait for it.

    Parameters
    ----------
    args : structured array of one element
    """
    function: Any = getattr(load(), f"launch_{name}")
    function.restype = ctypes.c_char_p
    error = function(_GRID(*grid), _GRID(*threads), ctypes.c_void_p(args.ctypes.data))
    if error:
        raise RuntimeError(f"{name}: {error.decode()}")


def size(name: str) -> int:
    """Bytes that the compiler gives the struct of kernel `name`."""
    return int(getattr(load(), f"size_{name}")())


@cache
def names_in_source() -> set[str]:
    """Kernels that the sources define, macros looked through."""
    done = subprocess.run(
        ["g++", "-E", "-P", "-DLLMVIZ_ON_CPU", "-DDEVICE=", "-DKERNEL=@KERNEL@", "-x", "c++", "-"],
        input=everything(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(re.findall(r"@KERNEL@\s+(\w+)\s*\(", done.stdout))
