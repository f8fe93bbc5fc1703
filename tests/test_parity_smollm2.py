"""SmolLM2-135M (Q4_1) against llama.cpp: the next token at every position of three texts.

llama.cpp quantizes the activations that it multiplies with Q4_1 weights, llmviz with
``weights="f32"`` does not, so their logits differ by some percent; where the choice is clear they
must choose alike.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from parity import cosine

import llmviz
from llmviz.batch import Batch

F16: dict[str, Any] = {"type_k": "f16", "type_v": "f16"}
THREADS: dict[str, Any] = {"n_threads": 1}  # several spin while another worker has the core
TEXTS = {
    "english": (
        "The lighthouse keeper climbed the stairs every evening just before the sun went down. "
        "There were two hundred and four steps, and he knew each of them by its sound. From the "
        "top he could see the fishing boats coming home, the long grey line of the harbour wall, "
        "and far beyond it the place where the sea and the sky became the same colour. He lit the "
        "lamp, wrote the hour in his book, and sat down to wait."
    ),
    "code": (
        "def fibonacci(n: int) -> list[int]:\n"
        '    """Return the first n Fibonacci numbers."""\n'
        "    numbers = [0, 1]\n"
        "    while len(numbers) < n:\n"
        "        numbers.append(numbers[-1] + numbers[-2])\n"
        "    return numbers[:n]\n\n\n"
        'if __name__ == "__main__":\n'
        "    for i, value in enumerate(fibonacci(10)):\n"
        '        print(f"{i}: {value}")\n'
    ),
    "emoji": (
        "Happy birthday, Anna! 🎂🎉🎈 We hope you have a wonderful day 😊 "
        "See you at the café at 7 p.m.? Löyly in the sauna 🧖‍♀️ first, then pizza 🍕 and a film 🎬. "
        "Bring your llama 🦙❤️! Kisses from Zürich, 東京 and Москва 🌍✈️"
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def model(smollm2_path: str) -> llmviz.Model:
    return llmviz.load(smollm2_path, weights="f32")


@pytest.mark.slow
def test_next_token_is_llama_cpps(
    llamacpp: ModuleType, smollm2_path: str, model: llmviz.Model, figures: Callable[[str], None]
) -> None:
    ctx = model.context(n_ctx=512, n_batch=512, **F16)
    same, cosines, errors, clear_wrong = [], [], [], []
    with llamacpp.Reference(smollm2_path, n_ctx=512, **F16, **THREADS) as reference:
        for name, text in TEXTS.items():
            ids = reference.tokenize(text)
            assert model.vocab.tokenize(text) == ids
            every = [True] * len(ids)
            reference.clear()
            ctx.memory.clear()
            assert reference.decode(ids, logits=every) == 0
            assert ctx.decode(Batch(token=ids, logits=every)) == 0
            theirs = np.stack([reference.logits_ith(i) for i in range(len(ids))])  # [n, n_vocab]
            ours = np.stack([ctx.get_logits_ith(i) for i in range(len(ids))])  # [n, n_vocab]

            agree = ours.argmax(1) == theirs.argmax(1)  # [n]
            second, first = np.partition(theirs, -2, axis=1)[:, -2:].T  # [n], [n]
            clear_wrong += [f"{name} {i}" for i in np.flatnonzero(~agree & (first - second > 1))]
            distance = np.linalg.norm(ours - theirs, axis=1) / np.linalg.norm(theirs, axis=1)
            angle = cosine(ours, theirs)
            same += agree.tolist()
            cosines += angle.tolist()
            errors += distance.tolist()
            figures(
                f"{name}: {agree.sum()}/{len(ids)} same next token, "
                f"least cosine {angle.min():.4f}, "
                f"median relative logit error {np.median(distance):.4f}"
            )
    figures(
        f"all: {sum(same)}/{len(same)} same next token, least cosine {min(cosines):.4f}, "
        f"median relative logit error {np.median(errors):.4f}"
    )
    assert len(same) > 200
    assert clear_wrong == []
    assert np.mean(same) >= 0.95
    assert min(cosines) > 0.985


@pytest.mark.slow
def test_greedy_text_is_llama_cpps(
    llamacpp: ModuleType, smollm2_path: str, model: llmviz.Model
) -> None:
    """A short greedy continuation whose every choice is clear."""
    prompt = "The capital of France is"
    with llamacpp.Reference(smollm2_path, n_ctx=256, **THREADS) as reference:
        theirs = reference.generate(prompt, 4)
        ids = reference.tokenize(prompt)
    ctx = model.context(n_ctx=256)
    ours: list[int] = []
    for _ in theirs:
        assert ctx.decode(Batch.get_one(ids)) == 0
        ids = [int(ctx.get_logits_ith(-1).argmax())]
        ours += ids
    assert ours == theirs


@pytest.mark.slow
def test_every_bit_is_llama_cpps(
    llamacpp: ModuleType,
    smollm2_path: str,
    monkeypatch: pytest.MonkeyPatch,
    figures: Callable[[str], None],
) -> None:
    """With compiled kernels on a processor like llama.cpp's the logits are its own, bit for bit."""
    from llmviz.ggml.backends import kernels

    monkeypatch.setenv("LLMVIZ_KERNELS", "exact")
    if not kernels.usable():
        pytest.skip("no numba, or a processor without AVX2 and NEON")
    from llmviz.ggml.backends.kernels.features import AVX2, AVX512

    model = llmviz.load(smollm2_path, weights="quantized")
    ctx = model.context(n_ctx=256)
    with llamacpp.Reference(smollm2_path, n_ctx=256, **THREADS) as reference:
        prompt = reference.tokenize(TEXTS["english"])[:70]
        errors = []
        for tokens in (prompt, *([t] for t in prompt[:6])):
            assert reference.decode(tokens) == 0
            assert ctx.decode(Batch.get_one(tokens)) == 0
            theirs, ours = reference.logits_ith(-1), ctx.get_logits_ith(-1)
            errors.append(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))
    equal = sum(e == 0 for e in errors)
    figures(f"{equal}/{len(errors)} rows of logits equal bit for bit, worst {max(errors):.1e}")
    if AVX2 and not AVX512:  # llama.cpp adds in another order there
        assert equal == len(errors)
    assert max(errors) < 0.2
