"""Gemma 3 270M beside llama.cpp: the same nodes, close values, the same next token.

The file (253 MB) is fetched by ``llmviz models gemma3-270m``, whose terms a user must have seen;
where it is not there the test is skipped.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from parity import cosine, decode_watched, first_difference, worst_error

import llmviz
from llmviz.batch import Batch
from llmviz.hub.known import KNOWN

TEXT = "Once upon a time, there was a little robot who"


@pytest.fixture(scope="module")
def gemma3_path() -> str:
    path = os.environ.get("LLMVIZ_GEMMA3") or KNOWN["gemma3-270m"].path
    if path is None:
        pytest.skip("Gemma 3 270M is not in the cache: llmviz models fetch gemma3-270m")
    return str(path)


@pytest.mark.filterwarnings("ignore:control-looking token")
def test_the_next_token_is_llama_cpps(
    gemma3_path: str, llamacpp: ModuleType, figures: Callable[[str], None]
) -> None:
    """llama.cpp rounds what it multiplies with quantized blocks, so values are close, not equal."""
    settings: dict[str, Any] = {"n_ctx": 256, "type_k": "f32", "type_v": "f32", "swa_full": False}
    ctx = llmviz.load(gemma3_path).context(**settings)
    with llamacpp.Reference(gemma3_path, nodes=True, n_threads=1, **settings) as theirs:
        ids = ctx.model.vocab.tokenize(TEXT)
        assert ids == theirs.tokenize(TEXT)
        assert theirs.decode(ids) == 0
        nodes = decode_watched(ctx, Batch.get_one(ids))
        assert first_difference(nodes, theirs.nodes, limit=0.3) == ""
        error, name = worst_error(nodes, theirs.nodes)
        ours, wanted = ctx.get_logits_ith(-1), theirs.logits_ith(-1)
        close = float(cosine(ours, wanted))
    figures(f"worst node {error:.1e} ({name}), cosine of the logits {close:.5f}")
    assert close > 0.998
    assert ours.argmax() == wanted.argmax()
