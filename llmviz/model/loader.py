"""Loading a model: steps 1 to 6 as events.

↔ src/llama.cpp (llama_model_load), src/llama-model-loader.cpp
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llmviz.errors import GGUFError, LlmvizError, LoadCancelled, UnsupportedError
from llmviz.events import Event, Steps, drain, scope
from llmviz.ggml.backends.backend import Backend, Device, devices_steps
from llmviz.gguf import GGUF, open_steps
from llmviz.model.arch import Architecture, ModelWeights, get_arch, supported_archs
from llmviz.model.hparams import HParams, load_hparams_steps
from llmviz.model.hparams_check import check_projections
from llmviz.model.keys import Keys, OverriddenGGUF
from llmviz.model.load_mode import LoadMode
from llmviz.model.model import Model
from llmviz.model.placement import Placement, choose_devices, settle
from llmviz.model.tensors import TensorLoader
from llmviz.model.weights import keeps_blocks
from llmviz.vocab import Vocab

__all__ = ["load", "load_steps"]

WEIGHTS = ("auto", "f32", "quantized")
Progress = Callable[[float], "bool | None"]


def load(path: str | os.PathLike[str], **params: Any) -> Model:
    """Load a model.

    Parameters
    ----------
    path : str or path
        A GGUF file (the first part of a split one).
    weights : str
        ``"f32"``: dequantize at load, exact arithmetic. ``"quantized"``: keep the file's blocks and
        multiply as ggml's CPU does, with activations in eight bits (F16 and BF16: rounded to the
        same type); types without such a product are dequantized. From 32 tokens on products add in
        an order of their own, ``LLMVIZ_KERNELS=exact`` in llama.cpp's. ``"auto"``: quantized where
        compiled kernels are ready, else f32, and the kernels are compiled meanwhile for the next
        load.
    n_gpu_layers : int
        Layers that lie on devices, counted from the end, the output as one of them; negative: all.
        Without a device that computes it is ignored with a warning.
    tensor_split : sequence of float or None
        Share of the layers that each device gets; None: by their free memory.
    devices : sequence of Backend or str, or None
        The devices that may be used: names such as ``"CUDA0"``, or `SimulatedDevice` objects on a
        machine without a GPU. None: all GPUs that were found.
    load_mode : str
        How the file's bytes get into memory, by llama.cpp's names: ``"mmap"`` maps the file,
        ``"none"`` reads it, ``"dio"`` reads it past the system's page cache; ``"mmap+mlock"`` and
        ``"mlock"`` (read) also keep it from being swapped out. ``"auto"``: mapped where the system
        can. What the system refuses is done without, with a warning; `Model.load_mode` says what it
        became. Weights that are dequantized take memory of their own in all of them.
    vocab_only : bool
        Stop after the vocabulary.
    kv_overrides : mapping or None
        Values that replace the file's scalar keys.
    check_tensors : bool
        Refuse NaN and infinite weights.
    progress : callable or None
        Called with 0..1; returning False cancels.

    Returns
    -------
    Model

    Raises
    ------
    GGUFError
        The file is damaged or lacks something; with byte offset and field.
    UnsupportedError
        Architecture, tensor type or tokenizer that this version does not know.
    LoadCancelled
        The progress callback returned False.
    DeviceMemoryError
        The weights of the layers do not fit on a device; with the number of layers that would.
    """
    return drain(load_steps(path, **params))


def load_steps(
    path: str | os.PathLike[str],
    *,
    weights: str = "auto",
    n_gpu_layers: int = 0,
    tensor_split: Sequence[float] | None = None,
    devices: Sequence[Backend | str] | None = None,
    load_mode: str = "auto",
    vocab_only: bool = False,
    kv_overrides: Mapping[str, Any] | None = None,
    check_tensors: bool = False,
    progress: Progress | None = None,
    depth: int = 0,
) -> Steps[Model]:
    """`load` as events: backends, file, architecture, hyperparameters, vocabulary, tensors."""
    if weights not in WEIGHTS:
        raise UnsupportedError("weights mode", str(weights), supported=WEIGHTS)
    mode = LoadMode(load_mode)
    given = [d.device for d in devices or () if hasattr(d, "device")]
    found = yield from devices_steps(given, depth=depth)
    backends = choose_devices(devices, found, n_gpu_layers)
    if (n_gpu_layers or tensor_split) and not backends and devices is None:
        warnings.warn(
            f"n_gpu_layers={n_gpu_layers} is ignored: no GPU that this version can compute on",
            stacklevel=2,
        )
    if progress is not None and progress(0.0) is False:
        raise LoadCancelled("loading was cancelled before it began")
    file = yield from scope(
        "gguf_init_from_file", 2, depth, _open(os.fspath(path), mode, depth + 1), os.fspath(path)
    )
    try:
        mode.opened(file)
        model = yield from _load_model(
            file,
            found,
            mode,
            lambda n_layer: settle(n_layer, backends, n_gpu_layers, tensor_split),
            weights,
            vocab_only,
            kv_overrides,
            check_tensors,
            progress,
            depth,
        )
    except BaseException:
        file.close()
        raise
    return model


def _open(path: str, mode: LoadMode, depth: int) -> Steps[GGUF]:
    """Step 2: the header field by field, then what it says about the tensors."""
    file = yield from open_steps(path, depth=depth, use_mmap=mode.use_mmap, direct=mode.direct)
    yield Event("data", "weights_map", depth, 2, file.tensor_infos)
    return file


def _load_model(
    file: GGUF,
    found: list[Device],
    mode: LoadMode,
    place: Callable[[int], Placement],
    weights: str,
    vocab_only: bool,
    kv_overrides: Mapping[str, Any] | None,
    check_tensors: bool,
    progress: Progress | None,
    depth: int,
) -> Steps[Model]:
    gguf: Any = OverriddenGGUF(file, kv_overrides) if kv_overrides else file
    arch, keys = yield from scope("llm_arch_from_string", 3, depth, _find_arch(gguf, depth + 1))

    hparams = None
    if not vocab_only:
        hparams = yield from load_hparams_steps(keys, arch, depth=depth)
    vocab: Vocab = yield from scope("load_vocab", 5, depth, Vocab.load_steps(gguf, depth=depth + 1))
    placement = place(hparams.n_layer) if hparams is not None else Placement()
    keeps = hparams is not None and keeps_blocks(file, weights, placement.on_real_devices)
    loader = TensorLoader(file, keeps, mode)
    if hparams is None:
        return Model(gguf, arch, None, vocab, None, loader.tensors, found, mode)

    hparams.n_vocab = vocab.n_tokens
    hparams.origin["n_vocab"] = "tokenizer.ggml.tokens"
    leaves = yield from scope(
        "load_tensors",
        6,
        depth,
        _load_tensors(arch, hparams, loader, placement, check_tensors, progress, depth + 1),
    )
    return Model(gguf, arch, hparams, vocab, leaves, loader.tensors, found, mode, placement)


def _find_arch(gguf: Any, depth: int) -> Steps[tuple[type[Architecture], Keys]]:
    """Step 3: the architecture that ``general.architecture`` names."""
    name = ""
    if "general.architecture" in gguf.kv:
        name = Keys(gguf, "").get("arch", "general.architecture", "str")
    arch = get_arch(name, gguf.path)
    yield Event("data", "general.architecture", depth, 3, name, supported_archs())
    return arch, Keys(gguf, name)


def _load_tensors(
    arch: type[Architecture],
    hparams: HParams,
    loader: TensorLoader,
    placement: Placement,
    check_tensors: bool,
    progress: Progress | None,
    depth: int,
) -> Steps[ModelWeights]:
    """Step 6: declare against the file, then read."""
    mode = loader.mode
    yield Event("data", "load_mode", depth, 6, mode.name, (mode.meaning, tuple(mode.notes)))
    weights = ModelWeights(hparams.n_layer)
    yield Event("enter", "create_tensors", depth, 6, len(loader.tensors))
    try:
        arch.load_arch_tensors(hparams, weights, loader)
        loader.done_getting_tensors()
    except ValueError as error:  # a shape that no tensor can have
        raise GGUFError(str(error), path=loader.gguf.path) from error
    check_projections(hparams, weights, loader.gguf.path)
    for name, leaf in loader.created.items():
        yield Event("data", name, depth + 1, 6, loader.tensors[name].ne, leaf)
    tied = weights.output is weights.tok_embd
    if placement.devices:
        yield Event("data", "layer_devices", depth + 1, 6, placement.by_layer(), placement)
        loader.place(weights, placement)
    yield Event("exit", "create_tensors", depth, 6, {"tied output": tied})
    yield Event("enter", "load_all_data", depth, 6, sum(t.nbytes for t in loader.tensors.values()))
    try:
        yield from loader.load_all_data_steps(
            progress=progress, check_tensors=check_tensors, depth=depth + 1
        )
    except MemoryError as error:
        total = sum(leaf.nbytes for leaf in loader.created.values())
        raise LlmvizError(
            f"not enough memory for the weights: {total / 2**20:.0f} MiB as float32 ({error})"
        ) from error
    mode.check_direct(loader.gguf)
    loader.gguf.forget_bytes()
    yield Event("exit", "load_all_data", depth, 6, mode.name, tuple(mode.notes))
    return weights
