"""llama.cpp's own vocabularies: its ``.inp``/``.out`` answers, and itself on random text."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from llmviz.events import drain
from llmviz.gguf import open_gguf
from llmviz.vocab import Vocab

from .test_pre import random_text

ANSWERED = [
    "bert-bge",
    "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4", "gpt-2", "llama-bpe",
    "llama-spm", "mpt", "phi-3", "qwen2", "qwen35", "refact", "starcoder",
]  # fmt: skip
OTHERS = ["aquila", "baichuan", "gpt-neox", "nomic-bert-moe"]
SEPARATOR = b"\n__ggml_vocab_test__\n"

pytestmark = pytest.mark.filterwarnings("ignore::llmviz.vocab.VocabWarning")


def path_of(folder: Path, name: str) -> Path:
    path = folder / f"ggml-vocab-{name}.gguf"
    if not path.exists():
        pytest.skip(f"no {path.name} in this release of llama.cpp")
    return path


def read(path: Path) -> Vocab:
    with open_gguf(str(path)) as gguf:
        return Vocab.from_gguf(gguf)


def answers(path: Path) -> list[tuple[bytes, list[int]]]:
    """Texts and their ids, read as llama.cpp's test-tokenizer-0 reads them."""
    texts = Path(f"{path}.inp").read_bytes().removesuffix(SEPARATOR).split(SEPARATOR)
    lines = Path(f"{path}.out").read_text().removesuffix("\n").split("\n")
    assert len(texts) == len(lines)
    return [(text, [int(x) for x in line.split()]) for text, line in zip(texts, lines, strict=True)]


@pytest.mark.parametrize("name", ANSWERED)
def test_answers(lcp_vocabs, name, figures):
    path = path_of(lcp_vocabs, name)
    v = read(path)
    pairs = answers(path)
    for text, ids in pairs:
        assert v.tokenize(text, add_special=False) == ids, text
        assert drain(v.tokenize_steps(text, add_special=False)) == ids, text
    figures(f"{name}: {len(pairs)}/{len(pairs)} texts")
    assert len(pairs) > 40


@pytest.mark.parametrize("name", [*ANSWERED, *OTHERS])
def test_same_as_llama_cpp(lcp_vocabs, llamacpp, name):
    """Special ids, EOG, attributes, pieces; ids and text of random prompts with special tokens."""
    path = path_of(lcp_vocabs, name)
    v = read(path)
    rnd = random.Random(name)
    with llamacpp.Reference(path, vocab_only=True) as engine:
        other = engine.vocab
        assert {n: getattr(v, n) for n in other.special} == other.special
        assert (v.type, v.n_tokens) == (other.type, other.n_tokens)
        assert (v.add_bos, v.add_eos, v.add_sep) == (other.add_bos, other.add_eos, other.add_sep)
        ids = {*rnd.sample(range(v.n_tokens), 3000), *v.special_cache, *range(300)}
        for token in ids:
            assert v.is_eog(token) == other.is_eog(token)
            assert v.attrs[token] == other.attr(token)
            assert v.token_to_piece(token, 1) == other.token_to_piece(token, 1)
            assert v.token_to_piece(token, 0, True) == other.token_to_piece(token, 0, True)
        special = [v.tokens.raws[token] for token in v.special_cache[:400]] or [b"x"]
        for _ in range(25):
            parts = [
                random_text(rnd) if rnd.random() < 0.6 else rnd.choice(special)
                for _ in range(rnd.randint(1, 5))
            ]
            text = b"".join(parts)
            for flags in ((False, False), (False, True), (True, False), (True, True)):
                ids = v.tokenize(text, *flags)
                assert ids == other.tokenize(text, *flags), text
                assert v.detokenize_bytes(ids, *flags) == other.detokenize(ids, *flags), text


def test_smollm2_same_as_llama_cpp(smollm2_path, llamacpp):
    v = read(Path(smollm2_path))
    rnd = random.Random(1)
    with llamacpp.Reference(smollm2_path, vocab_only=True) as engine:
        for token in range(v.n_tokens):
            assert v.token_to_piece(token, 0, True) == engine.token_to_piece(token, 0, True)
        for _ in range(200):
            text = random_text(rnd) + rnd.choice([b"", b"<|im_end|>", b"<|im_start|>user\n"])
            for flags in ((False, False), (True, True)):
                assert v.tokenize(text, *flags) == engine.tokenize(text, *flags), text
