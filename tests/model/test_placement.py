"""Which layer goes where: llama.cpp's arithmetic."""

from __future__ import annotations

from typing import Any

import pytest

from llmviz.errors import LlmvizError
from llmviz.ggml.backends.simulated import SimulatedDevice
from llmviz.ggml.graph import Tensor
from llmviz.ggml.types import GGMLType
from llmviz.model.arch import ModelWeights
from llmviz.model.placement import place_weights, settle, weight_bytes


def cards(*memory: int) -> list[Any]:
    return [SimulatedDevice(m, f"GPU{i}") for i, m in enumerate(memory)]


def drawn(n_layer: int, devices: list[Any], n: int, split: Any = None) -> str:
    """One letter for each layer, then the output: c for the host, else the device's number."""
    place = settle(n_layer, devices, n, split)
    at = {id(None): "c", **{id(d): str(i) for i, d in enumerate(devices)}}
    return "".join(at[id(x)] for x in (*place.layers, place.output))


@pytest.mark.parametrize(
    ("n", "split", "expected"),
    [
        (0, None, "ccccccccc"),
        (1, None, "cccccccc0"),  # the output layer is the first to go
        (2, None, "ccccccc01"),
        (5, None, "cccc00011"),
        (9, None, "000001111"),
        (99, None, "000001111"),
        (-1, None, "000001111"),
        (-1, [3, 1], "000000011"),
        (-1, [1, 0], "000000000"),
        (-1, [0, 1], "111111111"),
        (-1, [0, 0], "000001111"),  # nothing said: by free memory
        (4, [1, 3], "ccccc0111"),
        (-1, [1], "000000000"),
        (-1, [1, 1, 0], "000001111"),
    ],
)
def test_layers_of_two_equal_devices(n: int, split: Any, expected: str) -> None:
    assert drawn(8, cards(2**20, 2**20), n, split) == expected


def test_shares_follow_the_free_memory() -> None:
    devices = cards(3 * 2**20, 2**20)
    assert drawn(7, devices, -1) == "00000011"
    held = devices[0].alloc(2 * 2**20, "weights")
    assert drawn(7, devices, -1) == "00001111"
    del held


def test_three_devices() -> None:
    assert drawn(11, cards(9, 9, 9), -1, [2, 1, 1]) == "000000111222"


def test_no_devices_is_the_host_whatever_is_asked() -> None:
    assert drawn(3, [], -1, [1, 2]) == "cccc"


@pytest.mark.parametrize("split", [[1, 2, 3], [-1, 2], [float("nan"), 1], "ab", 3, [float("inf")]])
def test_splits_that_say_nothing(split: Any) -> None:
    with pytest.raises(LlmvizError, match="tensor_split"):
        settle(4, cards(9, 9), 2, split)


def matrix(name: str) -> Tensor:
    return Tensor(GGMLType.F32, (4, 4), name=name)


def weights() -> ModelWeights:
    w = ModelWeights(3)
    w.tok_embd = w.output = matrix("token_embd.weight")
    w.tok_norm, w.pos_embd = matrix("token_embd_norm.weight"), matrix("position_embd.weight")
    w.output_norm = matrix("output_norm.weight")
    factors = matrix("rope_freqs.weight")
    for il, layer in enumerate(w.layers):
        layer.wq, layer.rope_freqs = matrix(f"blk.{il}.attn_q.weight"), factors
    return w


def test_weights_are_where_their_layer_is() -> None:
    a, b = cards(2**20, 2**20)
    w = weights()
    place = settle(3, [a, b], 3, None)
    more = place_weights(w, place)
    assert [x.home for x in (w.tok_embd, w.pos_embd)] == [None, None]  # type: ignore[union-attr]
    assert w.tok_norm is not None and w.tok_norm.home is None  # with layer 0
    assert [layer.wq.home for layer in w.layers] == [None, a, a]  # type: ignore[union-attr]
    assert [layer.rope_freqs.home for layer in w.layers] == [None, a, a]  # type: ignore[union-attr]
    assert w.output is not None and w.output.home is b and w.output is not w.tok_embd
    assert w.output.name == "token_embd.weight"
    assert {name: len(leaves) for name, leaves in more.items()} == {
        "token_embd.weight": 1, "rope_freqs.weight": 1,
    }  # fmt: skip
    assert all(leaf.is_weight for leaf in (w.tok_embd, w.output, w.output_norm))  # type: ignore[union-attr]
    # a: wq of two layers and their factors once; b: the output matrix and its norm
    assert weight_bytes(w, place) == [3 * 64, 2 * 64]
    assert weight_bytes(w, place.with_layers(1, [9, 9])) == [2 * 64, 0]


def test_all_on_the_host_leaves_a_tied_output_tied() -> None:
    w = weights()
    assert place_weights(w, settle(3, cards(2**20), 0, None)) == {}
    assert w.output is w.tok_embd
