"""The built-in model: there at once and offline, agreeing with llama.cpp, as its card says."""

from __future__ import annotations

import hashlib
import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import llmviz
from llmviz import hub
from llmviz.builtin import EXAMPLES
from llmviz.errors import HubError
from llmviz.ggml.types import GGMLType
from training.builtin.answers import encoded
from training.builtin.corpus import held_out
from training.builtin.engine import Engine, softmax
from training.builtin.measure import EVERYTHING, RESULT, looks, name_movers
from training.builtin.scenes import SCENES

NAMES = ("builtin", "builtin:q8_0")
MEASURED = json.loads(RESULT.read_text("utf-8"))


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine("builtin")


# -- the files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_loads_at_once_and_offline(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setenv("LLMVIZ_CACHE", "/nowhere")
    llmviz.load(name)  # what is imported once
    began = time.thread_time()
    model = llmviz.load(name)
    assert time.thread_time() - began < 0.1
    assert model.arch == "llama"
    assert model.hparams.n_layer == 4


@pytest.mark.parametrize("name", NAMES)
def test_files(name: str) -> None:
    known = hub.KNOWN[name]
    path = hub.resolve(name)
    assert path.parent == Path(llmviz.__file__).parent / "builtin"
    assert known.shipped and known.path == path
    assert path.stat().st_size == known.nbytes < 3 << 20
    assert hashlib.sha256(path.read_bytes()).hexdigest() == known.sha256


def test_layout() -> None:
    for name, kind in zip(NAMES, (GGMLType.F16, GGMLType.Q8_0), strict=True):
        with llmviz.open_gguf(str(hub.resolve(name))) as gguf:
            kv, infos = gguf.kv, gguf.tensor_infos
            n_vocab = kv["llama.vocab_size"]
            assert 512 <= n_vocab <= 1024 and len(kv["tokenizer.ggml.tokens"]) == n_vocab
            assert kv["llama.attention.head_count"] == 4
            assert kv["llama.attention.head_count_kv"] == 2
            assert kv["tokenizer.ggml.model"] == "gpt2" and kv["tokenizer.ggml.pre"] == "gpt-2"
            assert infos["output.weight"].ne[:2] == (128, n_vocab)
            assert infos["blk.3.ffn_down.weight"].ne[:2] == (352, 128)
            for info in infos.values():
                assert info.type == (GGMLType.F32 if "norm" in info.name else kind)
                assert info.ne[0] % 32 == 0  # whole blocks of Q8_0 and Q4_0
            assert len(infos) == 4 * 9 + 3


def test_a_cut_file_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmviz.hub.known.SHIPPED", tmp_path)
    with pytest.raises(HubError, match=r"part of llmviz.*Install llmviz again"):
        hub.resolve("builtin")


def test_a_file_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "builtin").mkdir()  # a folder is no model
    assert hub.resolve("builtin").name == "llmviz-builtin.F16.gguf"
    debugger = llmviz.Debugger("builtin", "Mia", n_predict=1)
    debugger.run()
    assert debugger.ctx is not None
    (tmp_path / "builtin").rmdir()
    (tmp_path / "builtin").write_bytes(b"mine")
    assert hub.resolve("builtin") == Path("builtin")


# -- what it says ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_examples(name: str) -> None:
    engine = Engine(name)
    vocab = engine.model.vocab
    rows = [vocab.tokenize(example.prompt) for example in EXAMPLES.values()]
    said = {}
    for key, logits in zip(EXAMPLES, engine.run_many(rows), strict=True):
        said[key] = vocab.token_to_piece(int(logits[-1].argmax())).decode()
    assert said == {key: example.expected for key, example in EXAMPLES.items()}


def test_every_structure_has_an_example() -> None:
    shown = {example.kind for example in EXAMPLES.values()}
    kinds = {k for k, v in MEASURED["accuracy"]["kinds"].items() if v["right"] > 0.95}
    trivial = {"animal", "brackets_end", "friend", "quote_inside", "repeat_end", "sort_end"}
    assert kinds - trivial <= shown <= set(MEASURED["accuracy"]["kinds"])
    for example in EXAMPLES.values():
        assert example.note.endswith(".") and not example.prompt.endswith(" ")


def test_debugger_from_the_name() -> None:
    debugger = llmviz.Debugger("builtin", EXAMPLES["recipient"].prompt, n_predict=1)
    debugger.run()
    assert debugger.text == " Tom"


def test_a_story_ends() -> None:
    model = llmviz.load("builtin")
    text = "".join(llmviz.generate(model.context(), "Once", n_predict=200))
    sentences = text.split(". ")
    assert text.startswith(" upon a time there was a") or text.startswith(" there was a")
    assert 4 <= len(sentences) <= 30 and text.endswith((".", '."'))


# -- agreement with llama.cpp ---------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_llama_cpp_says_the_same(
    name: str, llamacpp: ModuleType, figures: Callable[[str], None]
) -> None:
    engine = Engine(name)
    worst, same, n, unlike = 0.0, 0, 0, []
    with llamacpp.Reference(hub.resolve(name), n_ctx=256, n_threads=1) as reference:
        for doc in [d for scene in ("story", *SCENES) for d in held_out(scene, 1)]:
            ids = encoded(doc, engine.tok)[0][:256]
            ours = engine.run(ids)[0]  # [n_tokens, n_vocab]
            reference.clear()
            assert reference.decode(ids, logits=[True] * len(ids)) == 0
            theirs = np.stack([reference.logits_ith(i) for i in range(len(ids))])
            ours, theirs = softmax(ours), softmax(theirs)
            worst = max(worst, float(np.abs(ours - theirs).max()))
            agree = ours.argmax(1) == theirs.argmax(1)
            second, first = np.partition(theirs, -2, axis=1)[:, -2:].T
            unlike += [doc.text] * int((~agree & (first - second > 0.05)).sum())
            same += int(agree.sum())
            n += len(ids)
    figures(f"{name}: {same}/{n} same next token, largest difference of a probability {worst:.5f}")
    # llama.cpp rounds what it multiplies with Q8_0 weights to eight bits
    assert worst < {"builtin": 0.005, "builtin:q8_0": 0.05}[name]
    assert unlike == []  # where one token is clearly the most probable
    assert same > 0.9 * n  # many are not: which of sixteen names comes next


# -- the card -------------------------------------------------------------------------------------


def test_accuracy_is_what_the_card_says(engine: Engine) -> None:
    """On a sample of the documents measured: the figures within what so few may differ by."""
    docs = [doc for name in EVERYTHING for doc in held_out(name, 300)[:12]]
    loss, scores = engine.evaluate(docs)
    assert abs(loss - MEASURED["accuracy"]["loss"]) < 0.25
    for kind, score in scores.items():
        if score.n < 8:
            continue
        card: dict[str, Any] = MEASURED["accuracy"]["kinds"][kind]
        for ours, figure in ((score.right, "right"), (score.best_rival, "best_rival")):
            spread = 3.5 * np.sqrt(max(card[figure] * (1 - card[figure]), 0.02) / score.n)
            assert abs(ours / score.n - card[figure]) <= spread, (kind, figure)


def test_heads_do_what_the_card_says(engine: Engine) -> None:
    found = looks(engine, 4)
    for name, card in MEASURED["looks"].items():
        assert np.abs(found[name] - np.array(card)).max() < 0.2, name
        assert found[name].argmax() in np.argsort(np.ravel(card))[-3:], name
    movers = name_movers(engine, 6)["direct"]
    best = int(np.argmax(MEASURED["name_movers"]["direct"]))
    assert best in np.argsort(movers.ravel())[-3:]


def test_card_has_the_figures() -> None:
    from training.builtin.card import CARD, filled

    assert CARD.read_text("utf-8") == filled(CARD.read_text("utf-8"))
