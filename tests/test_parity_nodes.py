"""Every node of the graph against llama.cpp's own, on random tiny models.

A prompt in ubatches of 8, then single tokens. Both keep their KV cache in float32, llama.cpp runs
without flash attention, llmviz with ``weights="f32"``: the same sums in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import tiny_models
from parity import decode_watched, first_difference, relative_error, worst_error

import llmviz
from llmviz.batch import Batch
from llmviz.errors import LlmvizError
from llmviz.ggml import dots

PROMPT = "The cat sat in the house near the water, then it ran to the old man."
NODE_LIMIT = 1e-4
LOGITS_LIMIT = 1e-5
# one thread: several wait for each other in busy loops, which a loaded machine pays for
SETTINGS: dict[str, Any] = {
    "n_ctx": 256, "n_ubatch": 8, "type_k": "f32", "type_v": "f32", "n_threads": 1,
}  # fmt: skip


class Pair:
    """The same model in both engines, fed with the same batches."""

    def __init__(
        self, llamacpp: ModuleType, path: str, weights: str = "f32", **settings: Any
    ) -> None:
        settings = {**SETTINGS, **settings}
        self.theirs = llamacpp.Reference(path, nodes=True, **settings)
        self.model = llmviz.load(path, weights=weights)
        self.ours = self.model.context(n_batch=512, **settings)
        self.worst = (0.0, "")
        self.worst_logits = 0.0

    def decode(
        self, tokens: list[int], logits: list[bool] | None = None, limit: float = NODE_LIMIT
    ) -> None:
        """Decode in both and compare every node, then every row of logits."""
        self.theirs.nodes.clear()
        assert self.theirs.decode(tokens, logits=logits) == 0
        nodes = decode_watched(self.ours, Batch(token=tokens, logits=logits))
        assert first_difference(nodes, self.theirs.nodes, limit) == ""
        self.worst = max(self.worst, worst_error(nodes, self.theirs.nodes))
        for i, wanted in enumerate(logits or [False] * (len(tokens) - 1) + [True]):
            if wanted:
                self.worst_logits = max(self.worst_logits, self.logits_error(i))

    def logits_error(self, i: int) -> float:
        """Relative error of the logits of batch token `i`."""
        theirs = self.theirs.logits_ith(i)
        assert theirs is not None
        return relative_error(self.ours.get_logits_ith(i), theirs)

    def figures(self) -> str:
        """The largest errors so far, in words."""
        error, name = self.worst
        return f"worst node {error:.1e} ({name}), logits {self.worst_logits:.1e}"


@pytest.fixture
def pair(llamacpp: ModuleType) -> Iterator[Callable[..., Pair]]:
    """Factory of `Pair`; frees llama.cpp's side afterwards."""
    made: list[Pair] = []

    def make(path: str, **settings: Any) -> Pair:
        made.append(Pair(llamacpp, path, **settings))
        return made[-1]

    yield make
    for p in made:
        p.theirs.close()


def variants() -> list[str]:
    """All of them."""
    return list(tiny_models.VARIANTS)


@pytest.mark.parametrize("variant", variants())
def test_every_node_is_llama_cpps(
    variant: str,
    pair: Callable[..., Pair],
    tiny_model: Callable[..., str],
    figures: Callable[[str], None],
) -> None:
    p = pair(tiny_model(variant=variant))
    prompt = p.theirs.tokenize(PROMPT)
    assert len(prompt) > 2 * 8
    p.decode(prompt)
    for token in (17, 300, 42):
        p.decode([token])
    figures(p.figures())
    assert p.worst_logits <= LOGITS_LIMIT


@pytest.mark.parametrize("variant", ["dense", "tied", "yarn", "rope_freqs"])
def test_all_rows_output(
    variant: str,
    pair: Callable[..., Pair],
    tiny_model: Callable[..., str],
    figures: Callable[[str], None],
) -> None:
    """With every position an output no rows are picked before the last layer's feed-forward."""
    p = pair(tiny_model(variant=variant))
    prompt = p.theirs.tokenize(PROMPT)
    p.decode(prompt, logits=[True] * len(prompt))
    figures(p.figures())
    assert p.worst_logits <= LOGITS_LIMIT


def test_some_rows_output(pair: Callable[..., Pair], tiny_model: Callable[..., str]) -> None:
    """Outputs scattered over the ubatches, one ubatch without any."""
    p = pair(tiny_model())
    prompt = p.theirs.tokenize(PROMPT)[:20]
    p.decode(prompt, logits=[i in (1, 2, 7, 16, 19) for i in range(20)])
    assert p.worst_logits <= LOGITS_LIMIT


def test_past_the_first_padded_window(
    pair: Callable[..., Pair], tiny_model: Callable[..., str]
) -> None:
    """n_kv grows from 256 to 512, so the graph is built again."""
    p = pair(tiny_model(), n_ctx=512, n_ubatch=128)
    tokens = [3 + (7 * i) % 340 for i in range(254)]
    p.decode(tokens)
    for token in (5, 6, 7, 8):
        p.decode([token])
    assert p.worst_logits <= LOGITS_LIMIT


@pytest.mark.parametrize("settings", [
    {"rope_freq_base": 50000.0},
    {"rope_freq_scale": 0.25},
    {"rope_scaling_type": "yarn", "rope_freq_scale": 0.25, "yarn_orig_ctx": 64},
    {"rope_scaling_type": "yarn", "rope_freq_scale": 0.5, "yarn_ext_factor": 0.75},
    {"rope_scaling_type": "none", "rope_freq_scale": 0.5},
], ids=str)  # fmt: skip
def test_rope_set_by_the_context(
    settings: dict[str, Any], pair: Callable[..., Pair], tiny_model: Callable[..., str]
) -> None:
    """The context's parameters come before what the file says."""
    p = pair(tiny_model(variant="linear"), **settings)
    p.decode(p.theirs.tokenize(PROMPT))
    assert p.worst_logits <= LOGITS_LIMIT


@pytest.mark.parametrize("kind", tiny_models.WEIGHT_TYPES)
def test_weight_types(
    kind: str,
    pair: Callable[..., Pair],
    tiny_model: Callable[..., str],
    figures: Callable[[str], None],
) -> None:
    """Exact arithmetic on decoded weights; llama.cpp rounds activations, so they differ."""
    p = pair(tiny_model(weight_type=kind))
    p.decode(p.theirs.tokenize(PROMPT), limit=0.1)
    figures(p.figures())
    assert p.worst_logits <= {"F16": 2e-3, "BF16": 2e-2}.get(kind, 5e-2)


@pytest.mark.parametrize("kind", [t.name for t in sorted(dots.DOTS)])
def test_weights_kept_as_blocks(
    kind: str,
    pair: Callable[..., Pair],
    tiny_model: Callable[..., str],
    figures: Callable[[str], None],
) -> None:
    """Activations rounded as llama.cpp rounds them: errors are those of float sums again.

    One rounding that falls the other way would show as some 1e-3 further down, which is rare in so
    small a model.
    """
    p = pair(tiny_model(weight_type=kind), weights="quantized")
    for token in p.theirs.tokenize(PROMPT)[:4]:
        p.decode([token], limit=2e-3)
    figures(p.figures())
    assert p.worst_logits <= 5e-4


def test_cache_in_f16(
    pair: Callable[..., Pair], tiny_model: Callable[..., str], figures: Callable[[str], None]
) -> None:
    """llama.cpp rounds queries and scores to f16 too before it multiplies them with the cache."""
    p = pair(tiny_model(), type_k="f16", type_v="f16")
    p.decode(p.theirs.tokenize(PROMPT), limit=5e-3)
    p.decode([17], limit=5e-3)
    figures(p.figures())
    assert p.worst_logits <= 2e-3


@pytest.mark.parametrize("rope_dim", [4, 8, 32])
def test_rotation_must_span_the_head(
    rope_dim: int, llamacpp: ModuleType, tiny_model: Callable[..., str]
) -> None:
    """The llama architecture rotates whole heads: both refuse a file that says otherwise."""
    path = tiny_model(rope_dim=rope_dim)
    with pytest.raises(LlmvizError, match="n_rot"):
        llamacpp.Reference(path)
    with pytest.raises(LlmvizError, match=r"n_rot|rope\.dimension_count"):
        llmviz.load(path)
