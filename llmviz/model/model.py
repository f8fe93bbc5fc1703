"""A loaded model: architecture, hyperparameters, vocabulary, weights. ↔ src/llama-model.h"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmviz.errors import LlmvizError
from llmviz.ggml.backends.backend import Device
from llmviz.gguf import GGUF
from llmviz.model.arch import Architecture, ModelWeights
from llmviz.model.hparams import HParams
from llmviz.model.load_mode import LoadMode
from llmviz.model.placement import Placement, settle
from llmviz.model.tensors import ModelTensor
from llmviz.vocab import Vocab

if TYPE_CHECKING:
    from llmviz.context import Context

__all__ = ["Model"]


class Model:
    """What `llmviz.load` returns.

    Attributes
    ----------
    arch : str
        ``general.architecture``.
    hparams : HParams or None
        None for a model loaded with ``vocab_only``.
    vocab : Vocab
    gguf : GGUF
        The file: header fields, key-values, tensor infos.
    tensors : dict of str to ModelTensor
        Every tensor of the file by its name.
    weights : ModelWeights or None
        The same by llama.cpp's field names, as graph leaves.
    devices : list of Device
        All that were found or given.
    load_mode : str
        How the file's bytes are in memory (see `llmviz.load`): what became of what was asked for.
    load_notes : list of str
        Why that is something else, where it is.
    locked_bytes : int
        Bytes of weights that the system may not swap out.
    placement : Placement
        Which layers lie on which of them.
    """

    def __init__(
        self,
        gguf: GGUF,
        architecture: type[Architecture],
        hparams: HParams | None,
        vocab: Vocab,
        weights: ModelWeights | None,
        tensors: dict[str, ModelTensor],
        devices: list[Device],
        mode: LoadMode | None = None,
        placement: Placement | None = None,
    ) -> None:
        self.gguf = gguf
        self.architecture = architecture
        self.arch = architecture.name
        self._hparams = hparams
        self.vocab = vocab
        self.weights = weights
        self.tensors = tensors
        self.devices = devices
        mode = mode or LoadMode("auto")
        self.load_mode = mode.name
        self.load_notes = mode.notes
        self.locked_bytes = mode.locked
        self.placement = placement or settle(hparams.n_layer if hparams else 0, [], 0, None)

    @property
    def hparams(self) -> HParams:
        """The hyperparameters; an error for a model loaded with ``vocab_only``."""
        if self._hparams is None:
            raise LlmvizError(
                "this model was loaded with vocab_only=True: it has no hyperparameters"
            )
        return self._hparams

    @property
    def keeps_blocks(self) -> bool:
        """True where matrices are multiplied as the file has them (``weights="quantized"``)."""
        w = self.weights
        if w is None:
            return False
        layers = [tensor for layer in w.layers for tensor in vars(layer)["weights"].values()]
        return any(t is not None and t.blocks is not None for t in [w.tok_embd, w.output, *layers])

    @property
    def vocab_only(self) -> bool:
        """True where only the vocabulary was loaded."""
        return self._hparams is None

    @property
    def path(self) -> str:
        """The file."""
        return self.gguf.path

    @property
    def n_params(self) -> int:
        """Number of weights in the file."""
        total = 0
        for tensor in self.tensors.values():
            n = 1
            for extent in tensor.ne:
                n *= extent
            total += n
        return total

    @property
    def desc(self) -> str:
        """One line as llama.cpp's model description: architecture, size, file type."""
        size = "vocab only" if self.vocab_only else self.architecture.size_name(self.hparams)
        return f"{self.arch} {size} {self.gguf.ftype_name()}"

    def __repr__(self) -> str:
        return f"<Model {self.desc!r}, {self.n_params:,} parameters>"

    def context(self, **params: Any) -> Context:
        """A context to decode with; parameters are those of llama_context_params, by name.

        See Also
        --------
        llmviz.context.ContextParams : all parameters and their defaults.
        """
        from llmviz.context import Context  # the context's layer lies above this one

        return Context(self, **params)
