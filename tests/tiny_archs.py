"""A random tiny GGUF of any architecture: the tensors are those that its own file declares.

llama.cpp checks their names and shapes when it loads the file, so nothing is taken on trust. A case
says which keys differ from the usual ones and which optional tensors the file has.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import tiny_models

from llmviz.events import drain
from llmviz.ggml.graph import Tensor
from llmviz.ggml.types import GGMLType
from llmviz.gguf import open_gguf
from llmviz.model.arch import ModelWeights, get_arch
from llmviz.model.hparams import load_hparams_steps
from llmviz.model.keys import Keys
from llmviz.model.tensors import TensorLoader

KEYS: dict[str, Any] = {
    "context_length": 512,
    "embedding_length": 64,
    "block_count": 2,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "attention.layer_norm_epsilon": 1e-5,
    "rope.freq_base": 10000.0,
}


class _Declared(TensorLoader):
    """Takes every required tensor for given, and the optional ones that a pattern names."""

    def __init__(self, optional: Sequence[str]) -> None:
        self.optional = optional
        self.created: dict[str, Tensor] = {}
        self._skip = False  # a file holds those too

    def create_tensor(self, name: str, *ne: int, required: bool = True) -> Tensor | None:
        if name not in self.created:
            if not required and not any(fnmatch(name, o) for o in self.optional):
                return None
            self.created[name] = Tensor(GGMLType.F32, ne, name=name)
        return self.created[name]


def write_arch(
    path: str | os.PathLike[str],
    arch: str,
    *,
    keys: dict[str, Any] | None = None,
    optional: Sequence[str] = ("output.weight",),
    weight_type: str = "F32",
    seed: int = 0,
) -> str:
    """Write a random model of architecture `arch` and return its path.

    Parameters
    ----------
    keys : dict
        Keys without the architecture's name in front; they replace or extend `KEYS`. None as a
        value leaves a key out.
    optional : sequence of str
        Patterns of optional tensors that the file has.
    weight_type : str
        Of the matrices, but for the routers: a type that can be quantized to.
    """
    merged = {k: v for k, v in {**KEYS, **(keys or {})}.items() if v is not None}
    path = os.fspath(path)
    _write(path, arch, merged, {}, weight_type, seed)
    file = open_gguf(path)
    kind = get_arch(arch)
    hp = drain(load_hparams_steps(Keys(file, arch), kind))
    hp.n_vocab = len(file.kv["tokenizer.ggml.tokens"])  # type: ignore[arg-type]
    file.close()
    declared = _Declared(optional)
    kind.load_arch_tensors(hp, ModelWeights(hp.n_layer), declared)
    shapes = {name: t.ne[: t.n_dims] for name, t in declared.created.items()}
    _write(path, arch, merged, shapes, weight_type, seed)
    return path


def _write(
    path: str,
    arch: str,
    keys: dict[str, Any],
    shapes: dict[str, tuple[int, ...]],
    weight_type: str,
    seed: int,
) -> None:
    Path(path).unlink(missing_ok=True)
    rng = np.random.default_rng(seed)
    w = gguf.GGUFWriter(path, arch)
    for key, value in keys.items():
        _add_key(w, f"{arch}.{key}", value)
    tiny_models.add_spm(w)
    for name, ne in shapes.items():
        matrix = len(ne) > 1 and "gate_inp" not in name
        kind = weight_type if matrix else "F32"
        tiny_models.add_tensor(w, name, _values(name, ne[::-1], rng), kind, rng)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def _add_key(w: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, list):
        w.add_array(key, value)
    elif isinstance(value, bool):
        w.add_bool(key, value)
    elif isinstance(value, int):
        w.add_uint32(key, value)
    elif isinstance(value, float):
        w.add_float32(key, value)
    else:
        w.add_string(key, value)


def _values(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Random values of a size that keeps a layer's output as large as its input."""
    x = rng.standard_normal(shape)
    if name.startswith("rope_"):  # frequency factors
        x = np.geomspace(1, 4 if "short" in name else 16, shape[0])
    elif name.endswith(".bias"):
        x *= 0.1
    elif "norm" in name:
        x = 1 + 0.1 * x
    elif name.startswith(("token_embd.", "position_embd.")):
        x *= 1.0 if name.startswith("token") else 0.1
    elif len(shape) > 1:
        x *= shape[-1] ** -0.5
    return x.astype(np.float32)
