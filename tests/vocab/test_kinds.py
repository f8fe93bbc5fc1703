"""PLaMo-2, RWKV, Unigram, DNA and white-space vocabularies against llama.cpp, and by hand."""

from __future__ import annotations

import random

import pytest

from llmviz.errors import GGUFError, VocabError
from llmviz.events import drain
from llmviz.vocab import Choice, Match

from .files import F32, NORMAL, STR, keys_of, vocab, write
from .kinds import (
    LETTERS,
    charsmap,
    dna_keys,
    plamo2_keys,
    rwkv_keys,
    ugm_keys,
    whitespace_keys,
)

pytestmark = pytest.mark.filterwarnings("ignore::llmviz.vocab.VocabWarning")

MADE = {
    "plamo2": plamo2_keys,
    "rwkv": rwkv_keys,
    "ugm": ugm_keys,
    "ugm prefix": lambda rnd: ugm_keys(rnd, add_space_prefix=True),
    "ugm merging": lambda rnd: ugm_keys(rnd, add_space_prefix=True, remove_extra_whitespaces=True),
    "ugm map": lambda rnd: ugm_keys(
        rnd, precompiled_charsmap=("arr", 0, charsmap({"A": "日 a", "\n": " ", "d": ""}))
    ),
    "hybriddna": dna_keys,
    "whitespace": lambda rnd: whitespace_keys(),
    "whitespace lower": lambda rnd: whitespace_keys(**{"normalizer.lowercase": True}),
    "whitespace gpt-2": lambda rnd: whitespace_keys("gpt-2"),
}


def some_text(rnd: random.Random, kind: str) -> bytes:
    """A text in which the kind's own tokens occur."""
    letters = [*LETTERS, "A", "▁", "É", "\u00a0", "\ufeff", "d", "\0"]
    if "dna" in kind:
        letters = ["a", "c", "A", "C", "G", "T", "N", "<dna>", "</dna>", " ", "ACGTAC"]
    raw = "".join(rnd.choices(letters, k=rnd.randint(1, 24))).encode()
    if rnd.random() < 0.2 and "dna" not in kind:
        at = rnd.randint(0, len(raw))
        raw = raw[:at] + bytes([rnd.randrange(0x80, 0xF4)]) + raw[at:]
    return raw


@pytest.mark.parametrize("kind", MADE)
def test_same_as_llama_cpp(tmp_path, llamacpp, kind):
    rnd = random.Random(kind)
    for round_ in range(2):
        keys = MADE[kind](rnd)
        path = write(tmp_path / f"{round_}.gguf", keys)
        v = vocab(tmp_path, keys)
        with llamacpp.Reference(path, vocab_only=True) as engine:
            other = engine.vocab
            assert {n: getattr(v, n) for n in other.special} == other.special
            assert (v.type, v.n_tokens) == (other.type, other.n_tokens)
            assert (v.add_bos, v.add_eos, v.add_sep) == (
                other.add_bos,
                other.add_eos,
                other.add_sep,
            )
            for token in range(v.n_tokens):
                assert v.attrs[token] == other.attr(token)
                assert v.token_to_piece(token, 1, True) == other.token_to_piece(token, 1, True)
            for _ in range(80):
                text = some_text(rnd, kind)
                for flags in ((False, False), (False, True)):
                    ids = v.tokenize(text, *flags)
                    assert ids == other.tokenize(text, *flags), text
                    assert drain(v.tokenize_steps(text, *flags)) == ids, text
                    assert v.detokenize_bytes(ids) == other.detokenize(ids), text


def events_of(v, text):
    steps = list(v.tokenize_steps(text, False))
    return {name: [e.value for e in steps if e.name == name] for name in {e.name for e in steps}}


def test_unigram_steps(tmp_path):
    """Of "abc", ab+c scores -3 and a+bc -4; what was passed over is shown with its sum."""
    tokens = ["<pad>", "</s>", "<unk>", "a", "b", "c", "ab", "bc"]
    scores = [0, 0, 0, -2.0, -2.0, -1.0, -2.0, -2.0]
    v = vocab(
        tmp_path, keys_of("t5", tokens, [3, 3, 2, *[NORMAL] * 5], scores=("arr", F32, scores))
    )
    seen = events_of(v, "abc")
    assert v.tokenize("abc", False) == [6, 5]
    assert seen["lattice"][0] == [
        Choice(0, 1, "a", 3, -2.0, -2.0, True),
        Choice(0, 2, "ab", 6, -2.0, -2.0, True),
    ]
    assert seen["lattice"][1][1] == Choice(1, 3, "bc", 7, -2.0, -4.0, True)
    assert seen["lattice"][2] == [Choice(2, 3, "c", 5, -1.0, -3.0, True)]
    assert seen["match"] == [Match(0, "ab", 6, 0, 2, [("a", 3)]), Match(0, "c", 5, 2, 1, [])]
    seen = events_of(v, "a??c")
    assert [(m.text, m.id, m.offset, m.length) for m in seen["unknown"]] == [("??", 2, 1, 2)]


def test_word_piece_steps(tmp_path):
    """Longest first, the tokens passed over, where each lies although letters were changed."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁he", "▁hello", "l", "lo", "w", "▁w", "o", "."]
    keys = keys_of(
        "bert", tokens, [3, 3, 3, 3, *[NORMAL] * 8], cls_token_id=2, unknown_token_id=1,
        bos_token_id=2, seperator_token_id=3,
    )  # fmt: skip
    v = vocab(tmp_path, keys)
    assert v.tokenize("Hëllo xyz lo") == [2, 5, 1, 1, 3]
    seen = events_of(v, " Hëllo xyz")
    assert [(w.text, w.offset, w.length) for w in seen["pre_tokenize"][0]] == [
        ("▁hello", 1, 6), ("▁xyz", 8, 3),
    ]  # fmt: skip
    assert seen["match"] == [Match(0, "▁hello", 5, 1, 6, [("▁he", 4)])]
    assert seen["unknown"] == [Match(1, "▁xyz", 1, 8, 3, [])]


def test_rwkv_steps_and_dead_end(tmp_path):
    v = vocab(tmp_path, keys_of("rwkv", ["<s>", "a", "ab", "abcd", "\\xff\\x00"], None))
    seen = events_of(v, "abca?")
    assert [m.text for m in seen["match"]] == ["ab", "a"]
    assert seen["match"][0] == Match(0, "ab", 2, 0, 2, [("a", 1)])
    assert [(m.text, m.id, m.offset) for m in seen["unknown"]] == [("c", 0, 2), ("?", 0, 4)]
    assert v.tokenize(b"\xff\x00", False) == [4]
    with pytest.raises(VocabError, match=r"byte 1 .*no token for byte 0xFF alone"):
        v.tokenize(b"a\xffb", False)


def test_plamo2_needs_all_bytes(tmp_path):
    keys = plamo2_keys(random.Random(0))
    kind, element, tokens = keys["tokenizer.ggml.tokens"]
    tokens = ["<gone>" if t == "<0xC8>" else t for t in tokens]
    keys["tokenizer.ggml.tokens"] = (kind, element, tokens)
    with pytest.raises(GGUFError, match=r"<0x200> is not set.*'<0xC8>' is missing"):
        vocab(tmp_path, keys)


@pytest.mark.parametrize("blob", [[1, 2], [200, 0, 0, 0, 1, 2, 3, 4, 0], [4, 0, 0, 0, 0, 0, 0, 0]])
def test_damaged_character_map(tmp_path, blob):
    keys = ugm_keys(random.Random(0), precompiled_charsmap=("arr", 0, blob))
    with pytest.raises(GGUFError, match="precompiled_charsmap is damaged"):
        vocab(tmp_path, keys)


def test_character_map_that_leads_outside(tmp_path):
    blob = [4, 0, 0, 0, 0, 0xFC, 0xFF, 0x7F, 0]  # one entry whose base is far away
    v = vocab(tmp_path, ugm_keys(random.Random(0), precompiled_charsmap=("arr", 0, blob)))
    with pytest.raises(VocabError, match="character map is damaged: entry"):
        v.tokenize("abc")


@pytest.mark.parametrize("kind", MADE)
def test_long_texts(tmp_path, kind):
    """50,000 letters are no more than a second's work, however they repeat."""
    v = vocab(tmp_path, MADE[kind](random.Random(1)))
    assert len(v.tokenize("a" * 50_000, False)) >= 50_000 // 7
    assert v.tokenize(b"", False) == []


def test_spaces_that_cannot_be_merged(tmp_path):
    keys = whitespace_keys()
    keys["tokenizer.ggml.model"] = (STR, "gpt2")
    v = vocab(tmp_path, keys)
    assert v.tokenize("ab ab", False) == [v.find("ab"), v.find("ab")]
    with pytest.raises(VocabError, match=r"llama.cpp aborts"):
        v.tokenize("ab  ab")
