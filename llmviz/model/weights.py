"""Whether a model's matrices stay as the file has them, or become float32."""

from __future__ import annotations

import logging
import warnings

from llmviz.ggml.backends import kernels
from llmviz.ggml.types import TYPES
from llmviz.gguf import GGUF

__all__ = ["keeps_blocks"]

_log = logging.getLogger("llmviz")


def keeps_blocks(gguf: GGUF, weights: str, on_devices: bool = False) -> bool:
    """Settle what ``weights`` means for a file on this machine; compiles kernels where needed.

    Parameters
    ----------
    gguf : GGUF
    weights : str
        ``"f32"``, ``"quantized"`` or ``"auto"``, as for `llmviz.load`.
    on_devices : bool
        All layers lie on devices that multiply with blocks by themselves: then ``"auto"`` is
        ``"quantized"``, and nothing is compiled for this processor.
    """
    kept = kernels.kept()
    types = sorted({t.type for t in gguf.tensor_infos.values() if t.type in kept})
    if weights == "f32" or not types:
        return False
    if on_devices:
        return True
    if weights == "quantized":
        if kernels.usable():
            kernels.compile_now(t for t in types if not kernels.warm([t]))
        else:
            warnings.warn(
                "weights='quantized' is computed by numpy, many times slower than "
                "weights='f32': numba is not installed, switched off (LLMVIZ_KERNELS), or this "
                "processor has neither AVX2 nor NEON",
                stacklevel=2,
            )
        return True
    if not kernels.usable():
        return False
    if kernels.warm(types):
        return True
    names = ", ".join(TYPES[t].name for t in types)
    _log.info("weights as float32: kernels for %s are being compiled for the next load", names)
    kernels.warm_up(types)
    return False
