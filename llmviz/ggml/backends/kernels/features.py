"""What this machine offers to the kernels. Importing it needs numba."""

from __future__ import annotations

import platform

import llvmlite.binding as llvm

__all__ = ["AVX2", "AVX512", "SUPPORTED", "describe"]

_found = {name for name, there in llvm.get_host_cpu_features().items() if there}
_x86 = platform.machine().lower() in ("x86_64", "amd64")
_arm = platform.machine().lower() in ("aarch64", "arm64")

AVX2 = _x86 and {"avx2", "f16c", "fma"} <= _found
"""Whether the byte multiply-add of AVX2 is there, with half floats and fused multiply-add."""

AVX512 = _x86 and "avx512f" in _found
"""Whether ggml itself computes with wider registers here, and so adds in another order."""

SUPPORTED = AVX2 or _arm
"""Whether half floats and fused multiply-add are instructions here; the kernels need both."""


def describe() -> str:
    """One line for logs and reports: the processor as LLVM names it, and what is used of it."""
    used = "AVX2" if AVX2 else "NEON" if _arm else "nothing (numpy computes)"
    return f"{llvm.get_host_cpu_name()}: {used}"
