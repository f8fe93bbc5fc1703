"""Pre-tokenizers: words by hand, and every name against llama.cpp on random text."""

from __future__ import annotations

import random
import re

import pytest
from gguf_bytes import I32, STR, arr, gguf, kv
from hypothesis import given
from hypothesis import strategies as st

from llmviz.errors import UnsupportedError
from llmviz.gguf import open_gguf
from llmviz.vocab import Vocab
from llmviz.vocab.pre_names import get_pre, pre_names
from llmviz.vocab.unicode import BYTE_TO_UTF8

WORDS = [
    ("gpt-2", "it's  a\n\n b1234", ["it", "'s", " ", " a", "\n\n", " b", "1234"]),
    ("gpt-2", "a   ", ["a", "   "]),
    ("smollm", " 1234 56", [" ", "1", "2", "3", "4", " ", "5", "6"]),
    ("llama-bpe", "1234567", ["123", "456", "7"]),
    ("llama-bpe", "IT'S !!\n\n x", ["IT", "'S", " !!\n\n", " x"]),
    ("llama-bpe", "(word) \n \n", ["(word", ")", " \n \n"]),
    ("qwen2", "don't 12", ["don", "'t", " ", "1", "2"]),
    ("qwen2", "नमस्ते", ["नमस", "\u094dत", "\u0947"]),
    ("qwen35", "नमस्ते", ["नमस्ते"]),
    ("ufakzeka", "Ali'den", ["Ali", "'den"]),
    ("default", "a,b 1234 ", ["a", ",", "b", " ", "123", "4", " "]),
    ("falcon", "12345 `x`", ["123", "45", " ", "`", "x", "`"]),
    ("deepseek-v3", "1234字か x_y", ["123", "4", "字か", " x", "_y"]),
    ("deepseek-coder", "a\nb12", ["a", "\n", "b", "1", "2"]),
    ("deepseek-llm", "ab! 字\u3000", ["ab", "!", " ", "字", "\u3000"]),
    ("tekken", "camelCaseWord", ["camel", "Case", "Word"]),
    ("gpt-4o", "HTTPServer's 1234", ["HTTPServer's", " ", "123", "4"]),
    ("kimi-k2", "ab字字c1", ["ab", "字字", "c", "1"]),
    ("kimi-k2", "  字", [" ", " ", "字"]),
    ("afmoe", "abc1234567", ["abc", "1", "234", "567"]),
    ("tiny_aya", "1234567 12", ["1", "234", "567", " ", "12"]),
    ("superbpe", "1234567 a b", ["1", "234", "567", " a b"]),
    ("jais-2", "a" + " " * 12 + "b", ["a", " " * 8, " " * 2, " ", " b"]),
    ("bloom", " a,b\u3002c", [" a", ",", "b", "\u3002", "c"]),
    ("chameleon", "IMGIMGABZ  a1", ["IMGIMGABZ", "  ", "a", "1"]),
    ("exaone-moe", "a b!!\n\nc", ["a b", "!!\n", "\n", "c"]),
    ("gemma4", "a b\n\nc", ["a b", "\n\n", "c"]),
    ("minicpm5", "1234 x", ["123", "4", " x"]),
    ("seed-coder", "!!\n\n", ["!!", "\n\n"]),
    ("youtu", "한글字注ㄅ，", ["한글", "字注", "ㄅ", "，"]),
]


@pytest.mark.parametrize(("name", "text", "words"), WORDS)
def test_words(name, text, words):
    assert get_pre(name).split(text) == words


@given(st.sampled_from(pre_names()), st.text("aZ1 \n\t'.,字\u0301\u3000é!_"))
def test_words_are_the_text(name, text):
    words = get_pre(name).split(text)
    assert "".join(words) == text
    assert "" not in words or text == ""


def test_empty_text():
    assert [w for name in pre_names() for w in get_pre(name).split("") if w] == []


def test_unknown_name():
    with pytest.raises(UnsupportedError, match=r"'gpt-5'.*supported: a.x-4.0, afmoe") as caught:
        get_pre("gpt-5")
    assert caught.value.supported == pre_names()


def test_rules_are_shown_with_unicode_classes():
    assert get_pre("smollm").regexes[0] == r"\p{N}"
    assert (
        get_pre("smollm").regexes[1].endswith(r" ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
    )
    shown = [regex for name in pre_names() for regex in get_pre(name).regexes]
    assert not [regex for regex in shown if re.search("[\xd0-\xd5](?![\xd8-\xf6])", regex)
                and "\u01ba" not in regex]  # the stand-ins never show  # fmt: skip


def test_white_space_is_not_pythons():
    """U+001C to U+001F are white space to Python, not to Unicode."""
    assert get_pre("gpt-2").split("a\x1c\x1fb") == ["a", "\x1c\x1f", "b"]
    assert get_pre("gpt-2").split("a\x85\u2003b") == ["a", "\x85", "\u2003", "b"]


def test_characters_newer_than_the_table_are_no_letters():
    """U+1C89 is a letter since Unicode 16; llama.cpp's tables are of 15.1."""
    assert get_pre("gpt-2").split("a\u1c89") == ["a", "\u1c89"]


# --- against llama.cpp -------------------------------------------------------------------------

POOLS = [
    "abcdehlorstvm", "ABSTMDREVL", "0123456789", "!.,;:-_#$%&()*+/<=>?@[]^`{|}~\"\\", "   ",
    "\n\n\r\t", "''''", "éßçàÉÀÑЖжДдΣσάΆ", "你好世界龥一鿿", "한글조ㄱㆎ", "ひらカナー",
    "\u0301\u0308\u093e\u0e31\u20dd", "\u3000\xa0\u2028\u0085\u2003", "🦙👨\u200d👩🇫🇷😶",
    "।۔،、。，！？：「」“”‘’…—", "٣४๕Ⅷ½①", "\x00\x0b\x0c\x1c\x1f\x7f\x01", "ｱﾝ㐀𠀀豈ﭏⅷ",
    "\U00010d40\U0001fae9\ua7da\u1c89\U0003134f\U000323b0\U0002ebf0\U00011f02\u0378\ue000",
    "ΩKÅǅſİı", "ກເថꩠᄀ⼀", "ℨ𐐀𞤀ᏽᾼι", "IMGZ",
]  # fmt: skip
PHRASES = [
    "'s", "'S", "'re", "'RE", "'ll", "'ve", "'d", "'T", " hello", "don't", "  ", "\r\n", "\n\n\n",
    "1234567", "12", " 123", "IMGIMGABCZ", "<sentinel:12>",
]  # fmt: skip


def random_text(rnd: random.Random) -> bytes:
    parts = []
    for _ in range(rnd.randint(1, 24)):
        pool = rnd.choice(POOLS)
        phrase = rnd.random() < 0.06
        parts += [rnd.choice(PHRASES)] if phrase else rnd.choices(pool, k=rnd.randint(1, 4))
    raw = "".join(parts).encode()
    if rnd.random() < 0.1:  # not UTF-8
        at = rnd.randint(0, len(raw))
        raw = (
            raw[:at] + bytes(rnd.randrange(0x80, 0xF4) for _ in range(rnd.randint(1, 3))) + raw[at:]
        )
    return raw


@pytest.fixture(scope="module")
def pairs() -> list[bytes]:
    """Fields of a vocabulary in which many bytes join, so that ids tell where words are cut."""
    chars = [char.decode() for char in BYTE_TO_UTF8]
    everyday = [char for char in chars if ord(char) < 0x80 or char in "ĠĊčĉ"]
    merges = [f"{a} {b}" for a in everyday for b in everyday]
    merges += [f"{a} {b}" for a in chars for b in chars if (ord(a) + ord(b)) % 8 == 0]
    merges = list(dict.fromkeys(merges))
    random.Random(2).shuffle(merges)
    words = ["hello", "Ġhello", "123", "Ġthe", "ĊĊĊ", "ĠĠĠĠ"]
    tokens = [*chars, *(m.replace(" ", "") for m in merges), *words]
    return _fields(tokens, [1] * len(tokens), merges)


@pytest.fixture(scope="module")
def plain_pairs() -> list[bytes]:
    """The same for vocabularies that do not write bytes as characters."""
    rnd = random.Random(1)
    chars = sorted({c for pool in POOLS for c in pool if c not in " \0"} | {"▁"})
    drawn = {(rnd.choice(chars), rnd.choice(chars)) for _ in range(20_000)}
    merges = [f"{a} {b}" for a, b in sorted(drawn) if (a == "\n") == (b == "\n")]
    rnd.shuffle(merges)
    tokens = [f"<0x{b:02X}>" for b in range(256)] + chars + [m.replace(" ", "") for m in merges]
    tokens = list(dict.fromkeys([*tokens, "\n\n", "\n\n\n"]))
    return _fields(tokens, [6] * 256 + [1] * (len(tokens) - 256), merges)


def _fields(tokens, types, merges):
    return [
        kv("general.architecture", STR, "llama"),
        kv("tokenizer.ggml.model", STR, "gpt2"),
        arr("tokenizer.ggml.tokens", STR, tokens),
        arr("tokenizer.ggml.token_type", I32, types),
        arr("tokenizer.ggml.merges", STR, merges),
    ]


@pytest.mark.filterwarnings("ignore::llmviz.vocab.VocabWarning")
@pytest.mark.parametrize("name", pre_names())
def test_same_ids_as_llama_cpp(llamacpp, tmp_path, request, name):
    fixture = "pairs" if get_pre(name).byte_encode else "plain_pairs"
    fields = [kv("tokenizer.ggml.pre", STR, name), *request.getfixturevalue(fixture)]
    path = tmp_path / "v.gguf"
    path.write_bytes(gguf(fields))
    with open_gguf(str(path)) as file:
        v = Vocab.from_gguf(file)
    with llamacpp.Reference(path, vocab_only=True) as reference:
        rnd = random.Random(name)
        for _ in range(40):
            text = random_text(rnd)
            if name == "whitespace":  # llama.cpp aborts where spaces would be merged
                text = text.replace(b" ", b"_")
            ids = v.tokenize(text)
            assert ids == reference.tokenize(text), text
            assert v.detokenize_bytes(ids) == reference.detokenize(ids)
