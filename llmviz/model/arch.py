"""The architecture registry: one class per `general.architecture`.

↔ src/llama-arch.cpp, src/llama-model.cpp (llama_model_create)

An architecture is a file in `llmviz/models/` with three parts in this order: hyperparameters,
tensors, graph. It registers itself by subclassing `Architecture`; nothing else changes.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, ClassVar

from llmviz.errors import GGUFError, UnsupportedError

if TYPE_CHECKING:
    from llmviz.ggml.graph import Tensor
    from llmviz.model.graph import GraphContext
    from llmviz.model.hparams import HParams
    from llmviz.model.keys import Keys
    from llmviz.model.tensors import TensorLoader

__all__ = ["Architecture", "Layer", "ModelWeights", "get_arch", "supported_archs"]

_registry: dict[str, type[Architecture]] = {}


class Layer:
    """The weights of one layer; one that the file does not have is None. ↔ llama_layer"""

    def __init__(self) -> None:
        self.__dict__["weights"] = {}

    def __getattr__(self, name: str) -> Tensor | None:
        return self.__dict__["weights"].get(name)

    def __setattr__(self, name: str, value: Tensor | None) -> None:
        self.__dict__["weights"][name] = value


class ModelWeights:
    """All weights of a model by llama.cpp's field names.

    ↔ llama_model (tok_embd, output_norm, layers ...)
    """

    def __init__(self, n_layer: int) -> None:
        self.tok_embd: Tensor | None = None
        self.tok_norm: Tensor | None = None
        self.tok_norm_b: Tensor | None = None
        self.pos_embd: Tensor | None = None
        self.output_norm: Tensor | None = None
        self.output_norm_b: Tensor | None = None
        self.output: Tensor | None = None
        self.output_b: Tensor | None = None
        self.layers = [Layer() for _ in range(n_layer)]

    def rope_factors(self, il: int, long: bool) -> Tensor | None:
        """RoPE frequency factors of a layer; `long`: for contexts longer than trained on.

        ↔ llama_model::get_rope_factors
        """
        layer = self.layers[il]
        if layer.rope_freqs is not None:
            return layer.rope_freqs
        return layer.rope_long if long else layer.rope_short


class Architecture:
    """Base of all architectures.

    Class attributes
    ----------------
    name : str
        The value of ``general.architecture``.
    rope_type : str
        ``"norm"``, ``"neox"``, ``"mrope"`` or ``"none"``; `load_arch_hparams` may set another in
        ``hp.rope_type``. ↔ llama_model_rope_type
    partial_rotary : bool
        True where fewer dimensions than a head has may be rotated.
    layers_differ : bool
        True where layers may have head counts and widths of their own.
    sizes : dict
        Number of layers -> llama.cpp's name of the model's size.
    embedding_node : str
        Name of the node that the residual stream begins with.
    """

    name: ClassVar[str] = ""
    rope_type: ClassVar[str] = "none"
    embedding_node: ClassVar[str] = "embd"
    partial_rotary: ClassVar[bool] = False
    layers_differ: ClassVar[bool] = False
    sizes: ClassVar[dict[int, str]] = {}

    def __init_subclass__(cls) -> None:
        if cls.name:
            _registry[cls.name] = cls

    @staticmethod
    def load_arch_hparams(hp: HParams, keys: Keys) -> None:
        """Read the hyperparameters only this architecture has."""
        raise NotImplementedError

    @staticmethod
    def load_arch_tensors(hp: HParams, weights: ModelWeights, create: TensorLoader) -> None:
        """Declare every tensor the architecture needs, with its shape."""
        raise NotImplementedError

    @staticmethod
    def build_graph(g: GraphContext) -> None:
        """Build the graph of one ubatch; the result goes to ``g.res``."""
        raise NotImplementedError

    @classmethod
    def size_name(cls, hp: HParams) -> str:
        """llama.cpp's name of the model's size, ``"7B"``; ``"?B"`` where it knows none."""
        return cls.sizes.get(hp.n_layer, "?B")


def _load_all() -> None:
    import llmviz.models as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"llmviz.models.{module.name}")


def supported_archs() -> list[str]:
    """Names of all architectures that can be run."""
    _load_all()
    return sorted(_registry)


def get_arch(name: str, path: str | None = None) -> type[Architecture]:
    """The architecture called `name`.

    Raises
    ------
    GGUFError
        The name is empty: the file has no ``general.architecture``.
    UnsupportedError
        Unknown, or a projector (``clip``) that belongs to a main model.
    """
    _load_all()
    if not name:
        raise GGUFError(
            "unknown model architecture: '': the file has no general.architecture key, so it is "
            "not a model",
            field="general.architecture",
            path=path,
        )
    if name == "clip":
        raise UnsupportedError(
            "architecture",
            "clip",
            supported=sorted(_registry),
            hint="CLIP cannot be used as a main model: this file is a multimodal projector "
            "(mmproj); open the main model's GGUF instead",
        )
    if name not in _registry:
        raise UnsupportedError("architecture", name, supported=sorted(_registry))
    return _registry[name]
