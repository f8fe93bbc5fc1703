"""The BPE that the built-in model was trained with, and the vocabulary in its file."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

import llmviz
from training.builtin.answers import asked
from training.builtin.corpus import SECOND, documents, held_out
from training.builtin.scenes import SCENES
from training.builtin.tokenizer import Tokenizer, train
from training.builtin.words import (
    ANIMALS,
    COLOURS,
    DAYS,
    FURNITURE,
    LOOKS,
    NAMES,
    NUMBERS,
    PLACES,
    SMALL,
    THINGS,
)

ODD = ["", " ", "Hello, World!", "löyly 🦙", "\n\nMia  met\tTom.", "x=1;y=22", "MiaTom", "don't"]


@pytest.fixture(scope="module")
def model() -> llmviz.Model:
    return llmviz.load("builtin")


@pytest.fixture(scope="module")
def tok(model: llmviz.Model) -> Tokenizer:
    return Tokenizer([tuple(m.split(" ")) for m in model.gguf.kv["tokenizer.ggml.merges"]])


def texts() -> list[str]:
    docs = [d for name in ("story", *SCENES) for d in held_out(name, 4)]
    return [d.text for d in (*docs, *itertools.islice(documents(3, mix=SECOND), 20))]


def test_merges_of_a_tiny_text(tmp_path: Path) -> None:
    tok = Tokenizer(train(Counter({" low": 5, " lower": 2, " new": 3}), 256 + 2 + 6))
    assert tok.merges[:3] == [("Ġ", "l"), ("Ġl", "o"), ("Ġlo", "w")]
    assert tok.encode(" low lower")[0][0] == tok.ids["Ġlow"]
    assert tok.decode(tok.encode(" lower, Löwe")[0]) == " lower, Löwe"
    tok.save(tmp_path / "merges.json")
    assert Tokenizer.load(tmp_path / "merges.json").tokens == tok.tokens


def test_training_stops_when_every_word_is_one_token() -> None:
    tok = Tokenizer(train(Counter({" sun": 2, " moon": 1}), 1024))
    assert len(tok.word(" sun")) == len(tok.word(" moon")) == 1
    assert len(tok.tokens) < 270


def test_training_and_inference_tokenize_alike(model: llmviz.Model, tok: Tokenizer) -> None:
    for text in texts():
        ids = tok.encode(text)[0]
        assert model.vocab.tokenize(text, add_special=False) == ids
        assert model.vocab.tokenize(text) == [tok.bos, *ids]
        assert tok.decode(ids) == text == model.vocab.detokenize(ids)


def test_llama_cpp_tokenizes_alike(llamacpp: ModuleType, model: llmviz.Model) -> None:
    with llamacpp.Reference(model.gguf.path, vocab_only=True) as reference:
        for text in (*texts(), *ODD):
            assert reference.tokenize(text) == model.vocab.tokenize(text), text


def test_every_word_is_one_token(tok: Tokenizer) -> None:
    words = (
        *NAMES, *COLOURS, *DAYS, *NUMBERS, *PLACES, *SMALL, *THINGS, *FURNITURE, *ANIMALS, *LOOKS,
    )  # fmt: skip
    assert [w for w in words if len(tok.word(" " + w)) > 1] == []


def test_answers_are_one_token_and_start_a_word(tok: Tokenizer) -> None:
    for name in ("story", *SCENES):
        for doc in held_out(name, 20):
            ids = tok.encode(doc.text)[0]
            for answer, at, among in asked(doc, tok):
                assert ids[at] == among[0], (doc.text, answer)
                if name not in ("repeat", "echo"):  # some of their words mean nothing
                    assert tok.decode([ids[at]]) == answer.text
