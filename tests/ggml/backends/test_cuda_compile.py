"""The CUDA sources compile for GPUs, without one: by nvcc and by the run-time compiler."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from llmviz.ggml.backends.cuda import library
from tests.ggml.backends.cuda_shim import build

ARCHES = ["sm_90"]
if os.environ.get("LLMVIZ_CUDA_ARCHES"):  # "sm_75 sm_80 sm_120": seconds each
    ARCHES = os.environ["LLMVIZ_CUDA_ARCHES"].split()


@pytest.mark.parametrize("arch", ARCHES)
def test_nvcc_compiles_all_kernels(tmp_path: Path, arch: str) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc: the CUDA toolkit's compiler is not installed")
    source = tmp_path / "all.cu"
    source.write_text(build.everything(), encoding="utf-8")
    command = [nvcc, "-std=c++17", "-cubin", f"-arch={arch}", "-Werror", "all-warnings"]
    done = subprocess.run(
        [*command, "-o", str(tmp_path / "all.cubin"), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "all.cubin").stat().st_size > 10000


def _nvrtc() -> ctypes.CDLL | None:
    """The run-time compiler, from the toolkit or from a wheel beside this Python."""
    names = ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"]
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        names += sorted(str(p) for p in Path(folder).glob("*/lib/libnvrtc.so.*"))
    found = ctypes.util.find_library("nvrtc")
    for name in [*([found] if found else []), *names]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def test_nvrtc_compiles_them_without_any_header() -> None:
    """What CuPy does on a machine with a GPU: base kernels, and one type of blocks."""
    nvrtc = _nvrtc()
    if nvrtc is None:
        pytest.skip("no libnvrtc: neither the CUDA toolkit nor nvidia-cuda-nvrtc is installed")
    options = ["--std=c++17", "--gpu-architecture=compute_75"]  # CuPy's own standard
    given = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
    from llmviz.ggml.types import GGMLType

    for source in (library.base_source(), library.type_source(GGMLType.Q4_K)):
        program = ctypes.c_void_p()
        text = source.encode()
        made = nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"kernels.cu", 0, None, None)
        assert made == 0
        failed = nvrtc.nvrtcCompileProgram(program, len(options), given)
        size = ctypes.c_size_t()
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        assert not failed, log.value.decode()[:3000]
