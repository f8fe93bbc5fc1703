"""Random small vocabularies of the rarer kinds, for comparing with llama.cpp."""

from __future__ import annotations

import random

from .files import BYTE, CONTROL, F32, NORMAL, STR, UNKNOWN, USER_DEFINED, Keys, bpe_keys, keys_of

LETTERS = ["a", "b", "c", "é", "日", "😀", " ", "1", "\n"]


def random_words(rnd: random.Random, n: int, longest: int, letters: list[str]) -> list[str]:
    """Different texts, among them all single letters."""
    words = dict.fromkeys(letters)
    while len(words) < n:
        words["".join(rnd.choices(letters, k=rnd.randint(2, longest)))] = None
    return list(words)


def plamo2_keys(rnd: random.Random) -> Keys:
    """Four special tokens, 256 bytes, words with scores, some of them odd."""
    words = random_words(rnd, 60, 6, LETTERS)[rnd.randint(0, 5) :]
    odd = [float("nan"), float("inf"), -1000.0, -2000.0, -5000.0, 0.0, -3e5]
    scores = [0.0] * 260 + [
        rnd.choice(odd) if rnd.random() < 0.1 else -rnd.random() * 20 for _ in words
    ]
    specials = ["<|plamo:unk|>", "<|plamo:bos|>", "<|plamo:eos|>", "<|plamo:pad|>"]
    tokens = [*specials, *(f"<0x{b:02X}>" for b in range(256)), *words]
    types = [UNKNOWN, *[CONTROL] * 3, *[BYTE] * 256, *[NORMAL] * len(words)]
    return keys_of("plamo2", tokens, types, scores=("arr", F32, scores))


def rwkv_keys(rnd: random.Random) -> Keys:
    """All bytes escaped as RWKV escapes them, and words of several bytes."""
    tokens = ["<s>"]
    for byte in range(256):
        char = {9: "\\t", 10: "\\n", 13: "\\r", 0x5C: "\\\\"}.get(byte)
        if char is None:
            char = chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}"
        tokens.append(char)
    words = [w for w in random_words(rnd, 80, 7, LETTERS) if len(w.encode()) > 1]
    tokens += [w.replace("\n", "\\n") for w in words]
    return keys_of("rwkv", list(dict.fromkeys(tokens)), None)


def ugm_keys(rnd: random.Random, **more: object) -> Keys:
    """Words with log probabilities, two of them user-defined; no character map."""
    letters = [letter.replace(" ", "▁") for letter in LETTERS]
    words = random_words(rnd, 80, 5, letters)[rnd.randint(0, 3) :]
    tokens = ["<pad>", "</s>", "<unk>", *words]
    types = [CONTROL, CONTROL, UNKNOWN, *[NORMAL] * len(words)]
    for place in rnd.sample(range(3 + len(letters), len(tokens)), 2):
        types[place] = USER_DEFINED
    scores = [0.0, 0.0, 0.0, *(-rnd.random() * 12 for _ in words)]
    return keys_of("t5", tokens, types, scores=("arr", F32, scores), **more)


def dna_keys(rnd: random.Random) -> Keys:
    """Byte-pair text, the tags, and some k-mers with their marker."""
    kmers = ["".join(rnd.choices("ACGT", k=6)) + "\ue000" for _ in range(40)]
    special = [(t, NORMAL) for t in ("<dna>", "</dna>", "<oov>", *dict.fromkeys(kmers))]
    keys = bpe_keys(["A C", "C G", "a c", "Ġ a"], special)
    keys["tokenizer.ggml.model"] = (STR, "hybriddna")
    return keys


def whitespace_keys(pre: str = "whitespace", **more: object) -> Keys:
    """Byte-pair text whose white space is dropped."""
    special = [(t, NORMAL) for t in ("日", "日日", "é", "ab", "hello")]
    keys = bpe_keys(["a b", "c d", "日 日", "h e", "l l", "he ll", "hell o"], special, pre, **more)
    keys["tokenizer.ggml.model"] = (STR, "whitespace")
    return keys


def charsmap(replaced: dict[str, str]) -> list[int]:
    """The bytes of a character map for ASCII characters: a trie of depth one, then the texts."""
    entries = [0] * 512
    entries[0] = 256 << 10  # the root's children are at 256 ^ byte
    texts = b""
    for char, text in replaced.items():
        child = 256 ^ ord(char)
        entries[child] = (128 << 10) | (1 << 8) | ord(char)  # its value is at child ^ 128
        entries[child ^ 128] = len(texts)
        texts += text.encode() + b"\0"
    raw = b"".join(e.to_bytes(4, "little") for e in entries)
    return list(len(raw).to_bytes(4, "little") + raw + texts)
