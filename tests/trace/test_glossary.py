"""The words of the course: found in running text, in all their forms, and never changing it."""

from __future__ import annotations

import re

import pytest

from llmviz.steps import STEPS
from llmviz.trace.glossary import NODES, WORDS, gloss, marked, word_of

ASKED = {
    *("batch", "backend", "decode", "detokenize", "embedding", "EOS", "GGUF", "hyperparameters"),
    *("inference", "KV cache", "logits", "prefill", "sampling", "tensor", "token", "tokenizer"),
    *("graph", "ubatch", "scheduler", "quantization"),
}


def test_the_words_of_the_course_are_there():
    assert set(WORDS) >= ASKED


@pytest.mark.parametrize("word", WORDS)
def test_a_meaning_is_one_or_two_plain_sentences(word):
    text = WORDS[word]
    assert text[0].isupper() and text[-1] in ".?" and '"' not in text and "<" not in text
    assert len(re.findall(r"[.!?](?: |$)", text)) <= 2 and len(text) < 180


def test_forms_of_a_word():
    for form, word in {
        "Tokens": "token",
        "kv caches": "KV cache",
        "micro-batch": "ubatch",
        "queries": "query",
        "logit": "logits",
        "quantized": "quantization",
    }.items():
        assert word_of(form) == word
    assert word_of("nonsense") is None
    assert all(word_of(word) == word for word in WORDS)


def test_running_text_keeps_its_letters():
    parts = marked("A token, two tokens and a Tokenizer; a subtoken-like KV  cache, the KV cache.")
    assert [t for t, meaning in parts if meaning] == ["token", "Tokenizer", "KV cache"]
    assert dict(parts)["KV cache"] == WORDS["KV cache"]
    assert marked("") == [] and marked("nothing here") == [("nothing here", "")]
    for step in STEPS:
        assert "".join(text for text, _ in marked(step.explanation)) == step.explanation
    assert sum(any(m for _, m in marked(s.explanation)) for s in STEPS) == 16


def test_nodes_have_axes_of_their_rank():
    for name, (text, axes) in NODES.items():
        assert text and all(len(names) == rank for rank, names in axes.items()), name
    assert gloss("kq_soft_max-3", "SOFT_MAX", (4, 5, 32))[1] == ("head", "query token", "cell")
    assert gloss("unheard-of", "ADD", (1,)) == ("", ())
