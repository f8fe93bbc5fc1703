"""The CUDA backend over a stand-in for CuPy whose kernels run on the processor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.ggml.backends.cuda_shim import build, fake_cupy
from tests.ggml.backends.cuda_shim.device import ON_GPU


@pytest.fixture(scope="module")
def cupy() -> Iterator[Any]:
    """The stand-in, installed as ``cupy``."""
    if ON_GPU:
        pytest.skip("about the stand-in for CuPy; this run is on a device (LLMVIZ_GPU)")
    if build.compiler() is None:
        pytest.skip("no g++ on Linux: the CUDA kernels are tested by compiling them for the CPU")
    with fake_cupy.installed() as module:
        yield module


@pytest.fixture(scope="module")
def cuda(request: pytest.FixtureRequest) -> Any:
    """A CUDA device over the stand-in; with ``LLMVIZ_GPU`` set, a real one."""
    from llmviz.ggml.backends.cuda.device import CUDA

    if not ON_GPU:
        request.getfixturevalue("cupy")
    return CUDA()


@pytest.fixture
def gpu() -> Any:
    """A real CUDA device."""
    reason = why_no_gpu()
    if reason:
        pytest.skip(reason)
    from llmviz.ggml.backends.cuda.device import CUDA

    return CUDA()


def why_no_gpu() -> str:
    """Why nothing can run on a GPU here; empty where it can."""
    try:
        import cupy
    except ImportError:
        return "no GPU tests: CuPy is not installed (pip install 'llmviz-debugger[cuda]')"
    try:
        n = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"no GPU tests: {error}"
    return "" if n else "no GPU tests: the driver shows no device"
