"""Compiled kernels for products on a file's own blocks, where numba and the processor allow them.

The rest of the backend runs without this package's compiled parts: importing it needs no numba.
`load` compiles (seconds, once; kept on disk for the next process), `warm` says whether that has
been done already, `warm_up` does it beside other work.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmviz.ggml.dots import DOTS
from llmviz.ggml.types import TYPES, GGMLType

if TYPE_CHECKING:
    from llmviz.ggml.backends.kernels.compiled import Kernels

__all__ = [
    "HALFS",
    "allowed",
    "cache_folder",
    "cached_on_disk",
    "compile_now",
    "exact",
    "kept",
    "load",
    "supported",
    "usable",
    "warm",
    "warm_up",
]

SETTING = "LLMVIZ_KERNELS"
"""Environment variable; ``off`` keeps everything on numpy, ``exact`` on llama.cpp's order."""

HALFS = frozenset({GGMLType.F16, GGMLType.BF16})
"""Types without blocks that there are compiled products with."""

_log = logging.getLogger("llmviz")


def allowed() -> bool:
    """Whether kernels may be used: numba is installed, and the environment does not forbid it."""
    off = os.environ.get(SETTING, "").lower() in ("off", "0", "no")
    return not off and importlib.util.find_spec("numba") is not None


def kept() -> frozenset[GGMLType]:
    """Types of matrices that products can be made with as a file has them."""
    return frozenset(DOTS) | HALFS if usable() else frozenset(DOTS)


def exact() -> bool:
    """Whether products of many columns add in the order in which llama.cpp does, too.

    Without it they are made in tiles, several times as fast, whose float sums differ in the last
    bits; products of less than 32 columns, and so decoding, are llama.cpp's bit for bit anyway.
    """
    return os.environ.get(SETTING, "").lower() == "exact"


@cache
def supported() -> bool:
    """Whether this machine can run them: numba, and AVX2 or NEON."""
    if importlib.util.find_spec("numba") is None:
        return False
    from llmviz.ggml.backends.kernels import features

    return features.SUPPORTED


def usable() -> bool:
    """Whether products are compiled here, rather than plain numpy."""
    return allowed() and supported()


@cache
def cache_folder() -> Path:
    """Where compiled kernels are kept: one folder for each state of the sources here, and for where
    they lie (numba finds what it kept by the path of its source).
    """
    moved = os.environ.get("LLMVIZ_CACHE")
    base = Path(moved).expanduser() if moved else Path(_home_cache()) / "llmviz"
    here = Path(__file__).resolve().parent
    digest = hashlib.sha256(os.fsencode(here))
    for source in sorted(here.glob("*.py")):
        digest.update(source.read_bytes())
    return base / "kernels" / digest.hexdigest()[:16]


def _home_cache() -> str:
    return os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")


@contextmanager
def cached_on_disk() -> Iterator[None]:
    """Functions decorated inside keep their machine code in `cache_folder`.

    numba would look at the time stamp of one source file only; an inner loop that was changed in
    another would go on running as it was.
    """
    import numba

    config: Any = numba.config
    before = config.CACHE_DIR
    if not before:
        config.CACHE_DIR = str(cache_folder())
    try:
        yield
    finally:
        config.CACHE_DIR = before


@cache
def load() -> Kernels:
    """The kernels; each is compiled when it is first called.

    Raises
    ------
    ImportError
        numba is not installed.
    """
    # Between two products OpenMP's threads would spin for milliseconds, and where another program
    # wants the core, all of them wait for the one that has none. A tenth of a millisecond is as
    # long as a listener takes between two. Read once, when it is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "6000")
    with cached_on_disk():
        from llmviz.ggml.backends.kernels.compiled import Kernels
    return Kernels()


def _stamp(type_: GGMLType) -> Path:
    """A file that says: the kernels for a type have been compiled on this processor."""
    from llmviz.ggml.backends.kernels import features

    return cache_folder() / f"{TYPES[type_].name} {features.describe()}".replace(": ", " ")


def warm(types: Iterable[GGMLType]) -> bool:
    """Whether products with all these types start at once, without compiling."""
    return all(_stamp(type_).exists() for type_ in types)


def compile_now(types: Iterable[GGMLType]) -> None:
    """Compile the products with these types, and leave word that it is done."""
    kernels = load()
    types = list(types)
    if types:
        kernels.compile_ops()
    for type_ in types:
        kernels.compile(type_)
        stamp = _stamp(type_)
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.touch()


def warm_up(types: Iterable[GGMLType]) -> threading.Thread:
    """`compile_now` beside other work; the models loaded afterwards use what it made.

    Another process compiles, with little priority: in this one the compiler would take turns with
    whatever Python does, and leave 100 MB behind.
    """
    types = list(types)
    names = ", ".join(TYPES[t].name for t in types)

    def run() -> None:
        start = time.perf_counter()
        _compile_elsewhere(types)
        if warm(types):
            seconds = time.perf_counter() - start
            _log.info(
                "kernels for %s were compiled in %.0f s: models loaded from now on use them",
                names,
                seconds,
            )

    thread = threading.Thread(target=run, name="llmviz kernels", daemon=True)
    thread.start()
    return thread


def _compile_elsewhere(types: list[GGMLType]) -> None:
    """`compile_now` in another process; in this one where none can be started."""
    code = (
        f"import os, sys; sys.path[:] = {sys.path!r}; hasattr(os, 'nice') and os.nice(10)\n"
        "from llmviz.ggml.backends import kernels; from llmviz.ggml.types import GGMLType\n"
        f"kernels.compile_now(map(GGMLType, {[int(t) for t in types]}))"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
    except OSError:  # no processes here
        compile_now(types)
        return
    if done.returncode != 0:
        _log.warning("compiling kernels failed: %s", done.stderr.strip()[-300:])
