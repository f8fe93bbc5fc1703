"""The registry of architectures."""

from __future__ import annotations

from typing import Any

import pytest

from llmviz.errors import GGUFError, UnsupportedError
from llmviz.ggml.graph import new_tensor
from llmviz.ggml.types import GGMLType
from llmviz.model import arch
from llmviz.model.arch import Architecture, Layer, ModelWeights, get_arch, supported_archs
from llmviz.model.hparams import HParams
from llmviz.models.llama import Llama


def test_llama_is_there() -> None:
    assert "llama" in supported_archs()
    assert get_arch("llama") is Llama
    assert (Llama.name, Llama.rope_type) == ("llama", "norm")


def test_an_unknown_one_is_named_with_what_there_is() -> None:
    with pytest.raises(UnsupportedError, match=r"architecture: 'llamazilla'.*llama") as caught:
        get_arch("llamazilla")
    assert caught.value.supported == tuple(supported_archs())


def test_a_projector_is_no_model() -> None:
    with pytest.raises(UnsupportedError, match="projector.*main model") as caught:  # noqa: RUF043
        get_arch("clip")
    assert caught.value.name == "clip"


def test_no_name_at_all() -> None:
    with pytest.raises(GGUFError, match=r"general\.architecture") as caught:
        get_arch("", "some.gguf")
    assert (caught.value.field, caught.value.path) == ("general.architecture", "some.gguf")


def test_a_subclass_registers_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arch, "_registry", dict(arch._registry))

    class Toy(Architecture):
        name = "toy"

    class Helper(Architecture):
        """Without a name: a base for others."""

    assert get_arch("toy") is Toy
    assert Helper not in arch._registry.values()
    assert Toy.size_name(HParams(n_layer=3)) == "?B"
    nothing: Any = None
    with pytest.raises(NotImplementedError):
        Toy.load_arch_hparams(nothing, nothing)
    with pytest.raises(NotImplementedError):
        Toy.load_arch_tensors(nothing, nothing, nothing)
    with pytest.raises(NotImplementedError):
        Toy.build_graph(nothing)


def test_a_weight_that_the_file_lacks_is_none() -> None:
    layer = Layer()
    assert layer.wq is None
    layer.wq = w = new_tensor(GGMLType.F32, 4)
    assert layer.wq is w and layer.wk is None
    assert len(ModelWeights(3).layers) == 3
