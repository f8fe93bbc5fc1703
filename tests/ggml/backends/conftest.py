"""The CUDA backend over a stand-in for CuPy whose kernels run on the processor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.ggml.backends.cuda_shim import build, fake_cupy


@pytest.fixture(scope="module")
def cupy() -> Iterator[Any]:
    """The stand-in, installed as ``cupy``."""
    if build.compiler() is None:
        pytest.skip("no g++: the CUDA kernels' arithmetic is tested by compiling them for the CPU")
    with fake_cupy.installed() as module:
        yield module


@pytest.fixture(scope="module")
def cuda(cupy: Any) -> Any:
    """A CUDA device over the stand-in."""
    from llmviz.ggml.backends.cuda.device import CUDA

    return CUDA()
