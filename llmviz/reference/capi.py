"""llama.cpp's shared object: loading it, checking it, its log. ↔ include/llama.h

A wrong structure layout does not fail, it corrupts memory; so `api` compares the default parameters
that the library returns with the known ones, field by field, before anything is passed. The
declarations are in ``declarations.h`` beside this file.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from llmviz.errors import LlmvizError, UnsupportedError

__all__ = ["LogLine", "api", "available", "capture_log", "system_info", "unavailable_reason"]

WHEEL = "xllamacpp"
KNOWN_VERSION = "2026.10.11549"  # the release whose layout is declared below
INFO, CONTINUED = 2, 5  # ggml_log_level; the latter continues the line before it
HINT = f"pip install cffi {WHEEL}=={KNOWN_VERSION}"


MODEL_DEFAULTS: dict[str, Any] = {
    "n_gpu_layers": -1, "split_mode": 1, "load_mode": -1, "lazy_mode": 1, "main_gpu": 0,
    "vocab_only": False, "check_tensors": False, "use_extra_bufts": True, "no_host": False,
    "no_alloc": False,
}  # fmt: skip
CONTEXT_DEFAULTS: dict[str, Any] = {
    "n_ctx": 512, "n_batch": 2048, "n_ubatch": 512, "n_seq_max": 1, "n_rs_seq": 0,
    "n_outputs_max": 0, "n_outputs_max_per_seq": 1, "ctx_type": 0, "rope_scaling_type": -1,
    "pooling_type": -1, "attention_type": -1, "flash_attn_type": -1, "rope_freq_base": 0.0,
    "rope_freq_scale": 0.0, "yarn_ext_factor": -1.0, "yarn_attn_factor": -1.0,
    "yarn_beta_fast": -1.0, "yarn_beta_slow": -1.0, "yarn_orig_ctx": 0, "defrag_thold": -1.0,
    "type_k": 1, "type_v": 1, "moe_cache_size": 0, "embeddings": False, "offload_kqv": True,
    "no_perf": True, "op_offload": True, "swa_full": True, "kv_unified": False, "n_samplers": 0,
}  # fmt: skip


class LogLine(NamedTuple):
    """One line that llama.cpp logged: ``level`` is 1 debug, 2 info, 3 warning, 4 error."""

    level: int
    text: str


class Api(NamedTuple):
    """The loaded library: ``ffi`` (cffi), ``lib`` (its functions), default parameter structures."""

    ffi: Any
    lib: Any
    model_params: Any
    context_params: Any


def unavailable_reason() -> str:
    """Why llama.cpp cannot be used here, and what to install; empty where it can."""
    try:
        api()
    except LlmvizError as error:
        return str(error)
    return ""


def available() -> bool:
    """Whether llama.cpp is installed and laid out as declared here."""
    return not unavailable_reason()


def system_info() -> str:
    """Version of the wheel and the CPU features that llama.cpp uses on this machine."""
    a = api()
    info = a.ffi.string(a.lib.llama_print_system_info()).decode()
    return f"{WHEEL} {importlib.metadata.version(WHEEL)} | {info}"


@cache
def api() -> Api:
    """Load the library once and check it.

    Raises
    ------
    UnsupportedError
        The wheel or cffi is missing, the library does not load here, lacks a function, or returns
        other defaults than expected (another version with another structure layout).
    """
    try:
        import cffi
    except ImportError as error:
        raise UnsupportedError(
            "reference engine", "llama.cpp", hint=f"cffi is missing: {HINT}"
        ) from error
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or spec.origin is None:
        raise UnsupportedError("reference engine", "llama.cpp", hint=f"{WHEEL} is missing: {HINT}")
    path = os.path.join(os.path.dirname(spec.origin), f"{WHEEL}.abi3.so")
    ffi = cffi.FFI()
    declarations = resources.files(__package__).joinpath("declarations.h").read_text("utf-8")
    ffi.cdef(declarations)
    # Room to spare: should the library's structure be larger than ours, nothing is overwritten.
    ffi.cdef("""
        struct roomy { char bytes[2048]; };
        struct roomy llama_model_default_params(void);
        struct roomy llama_context_default_params(void);
    """)
    try:
        lib = ffi.dlopen(path)
        for name in re.findall(r"\b((?:llama|ggml)_\w+)\(", declarations):
            getattr(lib, name)
    except (OSError, AttributeError) as error:
        raise UnsupportedError(
            "reference engine", "llama.cpp", hint=f"{path} does not load ({error}): {HINT}"
        ) from error
    model = _checked(ffi, lib.llama_model_default_params(), "llama_model_params", MODEL_DEFAULTS)
    context = _checked(
        ffi, lib.llama_context_default_params(), "llama_context_params", CONTEXT_DEFAULTS
    )
    lib.llama_log_set(_log_callback(ffi), ffi.NULL)
    lib.llama_backend_init()
    return Api(ffi, lib, model, context)


def _checked(ffi: Any, roomy: Any, struct: str, expected: dict[str, Any]) -> Any:
    """Read `roomy` as ``struct`` and compare each default with the known one."""
    raw = ffi.new("struct roomy *", roomy)
    params = ffi.cast(f"struct {struct} *", raw)[0]
    wrong = [
        f"{k} is {getattr(params, k)}, not {v}"
        for k, v in expected.items()
        if getattr(params, k) != v
    ]
    if wrong:
        version = importlib.metadata.version(WHEEL)
        raise UnsupportedError(
            "reference engine", f"{WHEEL} {version}",
            hint=f"another layout of {struct} ({'; '.join(wrong[:3])}): {HINT}",
        )  # fmt: skip
    return ffi.new(f"struct {struct} *", params)[0]


# llama.cpp's logger is one per process: lines go to the collector that was opened last.
_sinks: list[list[LogLine]] = []
_keep: list[Any] = []


def _log_callback(ffi: Any) -> Any:
    def on_log(level: int, text: Any, _user_data: Any) -> None:
        if not _sinks:
            return
        line = ffi.string(text).decode(errors="replace")
        sink = _sinks[-1]
        if sink and not sink[-1].text.endswith("\n"):  # a line arrives in pieces
            sink[-1] = LogLine(sink[-1].level, sink[-1].text + line)
        elif line:
            sink.append(LogLine(INFO if level == CONTINUED else level, line))

    _keep.append(ffi.callback("void(int, const char *, void *)", on_log))
    return _keep[-1]


@contextmanager
def capture_log(sink: list[LogLine]) -> Iterator[list[LogLine]]:
    """Collect into `sink` what llama.cpp logs inside the block."""
    _sinks.append(sink)
    try:
        yield sink
    finally:
        _sinks.pop()
